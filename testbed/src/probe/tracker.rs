//! What became of the packets of one stream: pure accounting, fed with sends and arrivals.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;

/// Most loss windows that a report lists; later ones are only counted.
pub const MAX_WINDOWS: usize = 10_000;

/// A stretch of time in which packets were lost.
///
/// It begins with a lost packet and goes on until every flow that lost one in it has delivered a later one; with a
/// single flow that is a run of consecutive lost packets. Flows that are not hit deliver all the while, which says
/// nothing about the others, so their arrivals do not end a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossWindow {
    /// `CLOCK_MONOTONIC` nanoseconds at which the first lost packet was sent.
    pub start: u64,
    /// Milliseconds from the first lost packet to the last one, plus one interval between packets.
    pub ms: f64,
    /// Lost packets.
    pub lost: u64,
    /// Flows that lost packets.
    pub flows: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    sent_ns: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sent,
    Received,
    /// The kernel of the sending host refused it: never on the wire.
    Unsent,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    highest: Option<u64>,
    hop_limit: Option<u8>,
}

#[derive(Clone, Debug)]
struct OpenWindow {
    first_ns: u64,
    last_ns: u64,
    lost: u64,
    /// Flows that lost a packet.
    hit: BTreeSet<u16>,
    /// Those of them that have not delivered since.
    dark: BTreeSet<u16>,
}

/// Counters so far; `lost` covers settled packets only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets on the wire.
    pub sent: u64,
    /// Packets that arrived in time, each once.
    pub received: u64,
    /// Settled packets that had not arrived.
    pub lost: u64,
    /// Arrivals of a packet that had arrived before.
    pub duplicates: u64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Arrivals after the packet was settled; such a packet stays lost.
    pub late: u64,
    /// Packets that the sending host refused to send.
    pub send_errors: u64,
    /// Changes of the hop limit with which a flow's packets arrive.
    pub path_changes: u64,
}

/// Accounts for one stream.
#[derive(Clone, Debug)]
pub struct LossTracker {
    flows: Vec<Flow>,
    interval_ns: u64,
    /// Sequence number of the first pending packet.
    first: u64,
    pending: VecDeque<Pending>,
    open: Option<OpenWindow>,
    windows: Vec<LossWindow>,
    windows_omitted: u64,
    counters: Counters,
    latency: Histogram,
}

impl LossTracker {
    /// A stream of `flows` flows with `interval_ns` between its packets.
    pub fn new(flows: u16, interval_ns: u64) -> Self {
        Self {
            flows: vec![Flow::default(); usize::from(flows.max(1))],
            interval_ns,
            first: 0,
            pending: VecDeque::new(),
            open: None,
            windows: Vec::new(),
            windows_omitted: 0,
            counters: Counters::default(),
            latency: Histogram::default(),
        }
    }

    fn flow_of(&self, sequence: u64) -> u16 {
        // fits: the remainder is below the number of flows, which came as u16
        u16::try_from(sequence % self.flows.len() as u64).unwrap_or(0)
    }

    /// The next packet was sent at `now_ns`. Sequence numbers count from 0 without gaps; returns this one's.
    pub fn sent(&mut self, now_ns: u64) -> u64 {
        self.pending.push_back(Pending { sent_ns: now_ns, state: State::Sent });
        self.counters.sent += 1;
        self.first + self.pending.len() as u64 - 1
    }

    /// Packet `sequence`, said to be sent, was refused by the sending host.
    pub fn unsent(&mut self, sequence: u64) {
        let Some(pending) = self.pending_mut(sequence) else { return };
        if pending.state == State::Sent {
            pending.state = State::Unsent;
            self.counters.sent -= 1;
            self.counters.send_errors += 1;
        }
    }

    fn pending_mut(&mut self, sequence: u64) -> Option<&mut Pending> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.pending.get_mut(index)
    }

    /// Packet `sequence` arrived at `now_ns` with `hop_limit`. A number that was never sent is ignored.
    pub fn received(&mut self, sequence: u64, now_ns: u64, hop_limit: Option<u8>) {
        if sequence < self.first {
            self.counters.late += 1;
            return;
        }
        let Some(pending) = self.pending_mut(sequence) else { return };
        match pending.state {
            State::Received => {
                self.counters.duplicates += 1;
                return;
            }
            State::Sent => {}
            State::Unsent => return,
        }
        pending.state = State::Received;
        let latency = now_ns.saturating_sub(pending.sent_ns);
        self.latency.record(latency);
        self.counters.received += 1;
        let index = usize::from(self.flow_of(sequence));
        let flow = &mut self.flows[index];
        if flow.highest.is_some_and(|h| h > sequence) {
            self.counters.reordered += 1;
            return;
        }
        flow.highest = Some(sequence);
        if let Some(now) = hop_limit {
            if flow.hop_limit.is_some_and(|before| before != now) {
                self.counters.path_changes += 1;
            }
            flow.hop_limit = Some(now);
        }
    }

    /// Settles every packet sent before `horizon_ns`: what has not arrived is lost.
    pub fn settle(&mut self, horizon_ns: u64) {
        while self.pending.front().is_some_and(|p| p.sent_ns < horizon_ns) {
            let Some(packet) = self.pending.pop_front() else { return };
            let flow = self.flow_of(self.first);
            self.first += 1;
            match packet.state {
                State::Sent => self.lose(flow, packet.sent_ns),
                State::Received => self.deliver(flow),
                State::Unsent => {}
            }
        }
    }

    fn lose(&mut self, flow: u16, sent_ns: u64) {
        self.counters.lost += 1;
        let window = self.open.get_or_insert_with(|| OpenWindow {
            first_ns: sent_ns,
            last_ns: sent_ns,
            lost: 0,
            hit: BTreeSet::new(),
            dark: BTreeSet::new(),
        });
        window.last_ns = sent_ns;
        window.lost += 1;
        window.hit.insert(flow);
        window.dark.insert(flow);
    }

    fn deliver(&mut self, flow: u16) {
        let Some(window) = &mut self.open else { return };
        window.dark.remove(&flow);
        if window.dark.is_empty() {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(window) = self.open.take() else { return };
        if self.windows.len() >= MAX_WINDOWS {
            self.windows_omitted += 1;
            return;
        }
        let length = window.last_ns.saturating_sub(window.first_ns) + self.interval_ns;
        self.windows.push(LossWindow {
            start: window.first_ns,
            ms: milliseconds(length),
            lost: window.lost,
            flows: window.hit.len() as u64,
        });
    }

    /// The end: everything is settled and the last window closed.
    pub fn finish(&mut self) {
        self.settle(u64::MAX);
        self.close();
    }

    /// The tracker as it would be if the stream ended now and only packets sent before `horizon_ns` counted as
    /// lost; for reports while it runs.
    #[must_use]
    pub fn preview(&self, horizon_ns: u64) -> Self {
        let mut copy = self.clone();
        copy.settle(horizon_ns);
        copy.close();
        copy
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Closed windows in order of their start.
    pub fn windows(&self) -> &[LossWindow] {
        &self.windows
    }

    /// Windows beyond [`MAX_WINDOWS`].
    pub fn windows_omitted(&self) -> u64 {
        self.windows_omitted
    }

    /// One-way latencies in nanoseconds.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Packets that are neither settled nor forgotten.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}

/// Nanoseconds as milliseconds with three decimals.
pub fn milliseconds(ns: u64) -> f64 {
    // microseconds fit a double exactly for 285 years
    #[allow(clippy::cast_precision_loss)]
    let us = (ns / 1000) as f64;
    us / 1000.0
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;

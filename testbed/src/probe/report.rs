//! The result of a probe run: the JSON that `testbed probe --format json` prints.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::spec::{Class, Spec, StreamSpec};
use super::tracker::{LossTracker, LossWindow, milliseconds};

/// Version of the report's shape.
pub const REPORT_VERSION: u32 = 1;

/// Distribution of a time, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Median.
    pub p50_us: u64,
    /// 99 of 100 are not above it.
    pub p99_us: u64,
    /// Largest.
    pub max_us: u64,
}

impl From<&Histogram> for Times {
    fn from(h: &Histogram) -> Self {
        Self { p50_us: h.percentile(50) / 1000, p99_us: h.percentile(99) / 1000, max_us: h.max() / 1000 }
    }
}

/// What became of one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Class.
    pub class: Class,
    /// Code point of its packets.
    pub dscp: u8,
    /// Flows.
    pub flows: u16,
    /// Packets on the wire.
    pub sent: u64,
    /// Packets that arrived, each once.
    pub received: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Second arrivals of a packet.
    pub duplicates: u64,
    /// Packets overtaken by a later one of their flow.
    pub reordered: u64,
    /// Packets that came after they had been given up (they count as lost).
    pub late: u64,
    /// Packets that the sending host refused to send (they count as neither sent nor lost).
    pub send_errors: u64,
    /// When packets were lost.
    pub loss_windows: Vec<LossWindow>,
    /// Windows that the list leaves out, being full.
    pub loss_windows_omitted: u64,
    /// How often a flow's hop limit changed: the flow moved to a path of another length.
    pub path_changes: u64,
    /// One-way latency.
    pub latency: Times,
}

impl StreamReport {
    /// The report of one stream as its tracker sees it.
    pub fn new(spec: &StreamSpec, tracker: &LossTracker) -> Self {
        let c = tracker.counters();
        Self {
            from: spec.from.clone(),
            to: spec.to.clone(),
            class: spec.class,
            dscp: spec.class.probe_dscp(),
            flows: spec.flows,
            sent: c.sent,
            received: c.received,
            lost: c.lost,
            duplicates: c.duplicates,
            reordered: c.reordered,
            late: c.late,
            send_errors: c.send_errors,
            loss_windows: tracker.windows().to_vec(),
            loss_windows_omitted: tracker.windows_omitted(),
            path_changes: c.path_changes,
            latency: tracker.latency().into(),
        }
    }

    /// Length of the longest loss window, milliseconds; 0 without loss.
    pub fn longest_window_ms(&self) -> f64 {
        self.loss_windows.iter().map(|w| w.ms).fold(0.0, f64::max)
    }
}

/// Sums over the streams of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassTotals {
    /// Class.
    pub class: Class,
    /// Packets on the wire.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Lost packets per hundred sent.
    pub lost_percent: f64,
    /// Longest loss window of any of its streams.
    pub longest_window_ms: f64,
}

/// Result of a probe run, or how far it has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Whether the run has ended; before that `lost` lags behind by a second.
    pub finished: bool,
    /// `CLOCK_MONOTONIC` nanoseconds of the start; windows are on the same clock.
    pub started_ns: u64,
    /// How long packets were sent.
    pub duration_ms: f64,
    /// How late the sender's own timer woke it: how far the machine can be trusted.
    pub lateness: Times,
    /// Packets not sent because the machine stood still for longer than half a second.
    pub slipped: u64,
    /// Sums by class, highest priority first.
    pub classes: Vec<ClassTotals>,
    /// Streams, in the order of the specification.
    pub streams: Vec<StreamReport>,
}

/// What the sender knows besides the packets.
#[derive(Clone, Debug, Default)]
pub struct SenderFacts {
    /// Start, `CLOCK_MONOTONIC` nanoseconds.
    pub started_ns: u64,
    /// End, or now.
    pub ended_ns: u64,
    /// Lateness of its timer.
    pub lateness: Histogram,
    /// Packets given up.
    pub slipped: u64,
}

impl Report {
    /// Puts a report together; `trackers` in the order of the streams.
    pub fn new(spec: &Spec, trackers: &[LossTracker], sender: &SenderFacts, finished: bool) -> Self {
        let streams: Vec<StreamReport> =
            spec.streams.iter().zip(trackers).map(|(s, t)| StreamReport::new(s, t)).collect();
        Self {
            version: REPORT_VERSION,
            finished,
            started_ns: sender.started_ns,
            duration_ms: milliseconds(sender.ended_ns.saturating_sub(sender.started_ns)),
            lateness: (&sender.lateness).into(),
            slipped: sender.slipped,
            classes: totals(&streams),
            streams,
        }
    }

    /// Packets on the wire.
    pub fn sent(&self) -> u64 {
        self.streams.iter().map(|s| s.sent).sum()
    }

    /// Packets that did not arrive.
    pub fn lost(&self) -> u64 {
        self.streams.iter().map(|s| s.lost).sum()
    }

    /// Packets that the sending hosts refused to send: a host had no route.
    pub fn send_errors(&self) -> u64 {
        self.streams.iter().map(|s| s.send_errors).sum()
    }

    /// Whether every packet of every stream was sent and arrived.
    pub fn lossless(&self) -> bool {
        self.lost() == 0 && self.send_errors() == 0 && self.sent() > 0
    }
}

fn totals(streams: &[StreamReport]) -> Vec<ClassTotals> {
    Class::ALL
        .into_iter()
        .filter_map(|class| {
            let of: Vec<&StreamReport> = streams.iter().filter(|s| s.class == class).collect();
            if of.is_empty() {
                return None;
            }
            let sent: u64 = of.iter().map(|s| s.sent).sum();
            let lost: u64 = of.iter().map(|s| s.lost).sum();
            Some(ClassTotals {
                class,
                sent,
                received: of.iter().map(|s| s.received).sum(),
                lost,
                lost_percent: percent(lost, sent),
                longest_window_ms: of.iter().map(|s| s.longest_window_ms()).fold(0.0, f64::max),
            })
        })
        .collect()
}

/// Hundredths with four decimals; 0 of 0 is 0.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    let millionths = u128::from(part) * 1_000_000 / u128::from(whole);
    // at most a million, exact in a double
    f64::from(u32::try_from(millionths).unwrap_or(u32::MAX)) / 10_000.0
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::probe::testlab;

    const MS: u64 = 1_000_000;

    /// A run of two seconds with a loss of 7 ms in the gold stream.
    pub fn sample() -> Report {
        let lab = testlab::small();
        let spec = Spec::pair(&lab, "prn", "lla", &[Class::Gold, Class::Bronze], 1000)
            .unwrap()
            .lasting(Duration::from_secs(2));
        let started = 5_000 * MS;
        let mut trackers = Vec::new();
        for gold in [true, false] {
            let mut t = LossTracker::new(40, MS);
            for n in 0..2000 {
                let at = started + n * MS;
                let sequence = t.sent(at);
                if !(gold && (800..807).contains(&n)) {
                    t.received(sequence, at + 300_000, Some(if n < 800 { 60 } else { 59 }));
                }
            }
            t.finish();
            trackers.push(t);
        }
        let mut lateness = Histogram::default();
        (0..100).for_each(|n| lateness.record(n * 1000));
        let facts = SenderFacts { started_ns: started, ended_ns: started + 2000 * MS, lateness, slipped: 0 };
        Report::new(&spec, &trackers, &facts, true)
    }

    /// Others read this shape: change it only together with the version.
    #[test]
    fn shape() {
        insta::assert_json_snapshot!(sample());
    }

    #[test]
    fn reads_back() {
        let report = sample();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert!(!report.lossless());
        assert_eq!((percent(1, 3) * 10_000.0).round(), 333_333.0);
    }
}

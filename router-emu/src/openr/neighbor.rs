//! The neighbour on one link: its state, what it said last, and how long its silence is borne.

use std::net::Ipv6Addr;

use super::packet::Sender;
use super::rtt::RttFilter;
use super::spark::{Nanos, Peer};

/// State of a neighbour that is heard; IDLE is the absence of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// We hear it.
    Warm,
    /// We hear each other.
    Negotiate,
    /// Parameters are exchanged: the link counts.
    Established,
}

/// A neighbour.
#[derive(Debug)]
pub struct Neighbor {
    /// Router name.
    pub node: String,
    /// Its interface.
    pub interface: String,
    /// Its link-local address.
    pub address: Ipv6Addr,
    /// Its program's instance.
    pub instance: u64,
    /// Where the handshake is.
    pub state: State,
    /// Set while a restarting neighbour's adjacency is kept: until when.
    pub kept_until: Option<Nanos>,
    /// Sequence number of its last hello.
    pub last_seq: u64,
    /// `sent_ns` of its last hello, its clock.
    pub their_sent_ns: u64,
    /// When that hello arrived, our clock.
    pub arrived_ns: u64,
    /// When it was last heard.
    pub last_heard: Nanos,
    /// Silence after which it is given up.
    pub hold: Nanos,
    /// How long it is kept while it restarts.
    pub keep: Nanos,
    /// TCP port of its store.
    pub store_port: u16,
    /// Round-trip time.
    pub rtt: RttFilter,
    /// When to send it a heartbeat.
    pub next_heartbeat: Nanos,
    /// When to repeat the handshake.
    pub next_handshake: Nanos,
}

impl Neighbor {
    /// A neighbour just heard for the first time; `hold` until it announces its own.
    pub fn new(from: &Sender, address: Ipv6Addr, declared_us: u64, now: Nanos, hold: Nanos) -> Self {
        Self {
            node: from.node.clone(),
            interface: from.interface.clone(),
            address,
            instance: from.instance,
            state: State::Warm,
            kept_until: None,
            last_seq: 0,
            their_sent_ns: 0,
            arrived_ns: 0,
            last_heard: now,
            hold,
            keep: hold,
            store_port: 0,
            rtt: RttFilter::new(declared_us),
            next_heartbeat: Nanos::MAX,
            next_handshake: Nanos::MAX,
        }
    }

    /// Whether the adjacency is (still) announced.
    pub fn counts(&self) -> bool {
        self.state == State::Established || self.kept_until.is_some()
    }

    /// Notes a sign of life.
    pub fn heard(&mut self, now: Nanos) {
        self.last_heard = now;
    }

    /// Its program ends (`None`) or has started anew (its new instance). An announced adjacency is kept.
    pub fn restarts(&mut self, now: Nanos, instance: Option<u64>) {
        if self.state == State::Established {
            self.kept_until = Some(now + self.keep);
        }
        self.state = State::Warm;
        if let Some(instance) = instance {
            self.instance = instance;
            self.last_seq = 0;
        }
    }

    /// Why the neighbour has to be given up now, if it has.
    pub fn overdue(&self, now: Nanos) -> Option<&'static str> {
        match self.kept_until {
            Some(until) => (until <= now).then_some("the neighbour did not return in time"),
            None => (self.last_heard + self.hold <= now).then_some("the neighbour fell silent"),
        }
    }

    /// When something is due for this neighbour.
    pub fn deadline(&self) -> Nanos {
        let silence = self.kept_until.unwrap_or(self.last_heard + self.hold);
        let send = match self.state {
            State::Established => self.next_heartbeat,
            State::Negotiate => self.next_handshake,
            State::Warm => Nanos::MAX,
        };
        silence.min(send)
    }

    /// State in words.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            _ if self.kept_until.is_some() => "RESTART",
            State::Warm => "WARM",
            State::Negotiate => "NEGOTIATE",
            State::Established => "ESTABLISHED",
        }
    }

    /// What the rest of the program needs to know of it.
    pub fn peer(&self) -> Peer {
        Peer {
            node: self.node.clone(),
            interface: self.interface.clone(),
            address: self.address,
            store_port: self.store_port,
            rtt_us: self.rtt.published_us(),
        }
    }
}

//! One backbone link as discovery sees it: what holds it down, who is at its far end, what is wrong with it.

use super::damping::{Backoff, Damping};
use super::neighbor::Neighbor;
use super::packet::Sender;
use super::spark::{Identity, Nanos};

/// A link.
#[derive(Debug)]
pub struct Link {
    /// Round-trip time that is declared and not emulated, microseconds.
    pub declared_us: u64,
    /// Whether the interface has a carrier.
    pub carrier: bool,
    /// BFD says that nothing passes.
    pub silent: bool,
    /// Kept out for a while although packets pass, because it went up and down.
    pub damped: bool,
    /// Sequence number of our last packet.
    pub seq: u64,
    /// When the next hello is due.
    pub next_hello: Nanos,
    /// Hellos still to be sent at the fast rate.
    pub burst: u32,
    /// Who is there.
    pub neighbor: Option<Neighbor>,
    /// What is wrong, in words.
    pub problem: Option<String>,
    damping: Damping,
}

impl Link {
    /// A link that is down.
    pub fn new(declared_us: u64, flap: Backoff) -> Self {
        Self {
            declared_us,
            carrier: false,
            silent: false,
            damped: false,
            seq: 0,
            next_hello: 0,
            burst: 0,
            neighbor: None,
            problem: None,
            damping: Damping::new(flap),
        }
    }

    /// Whether packets pass.
    fn passes(&self) -> bool {
        self.carrier && !self.silent
    }

    /// Whether neighbours are sought and kept here.
    pub fn up(&self) -> bool {
        self.passes() && !self.damped
    }

    /// Takes a change of what passes. A loss counts at once; a return may have to wait.
    pub fn follow(&mut self, now: Nanos, set: impl FnOnce(&mut Self)) {
        let before = self.passes();
        set(self);
        match (before, self.passes()) {
            (true, false) => self.damping.lost(now),
            (false, true) => self.damping.came(now),
            _ => return,
        }
        self.damped = self.passes() && self.damping.held_until(now).is_some();
    }

    /// How long it is still kept out.
    pub fn held(&self, now: Nanos) -> Nanos {
        let until = self.damping.held_until(now).filter(|_| self.damped);
        until.map_or(0, |until| until - now)
    }

    /// When something is due.
    pub fn due(&self) -> Option<Nanos> {
        if self.damped {
            return Some(self.damping.held_until(0).unwrap_or(0));
        }
        let neighbor = self.neighbor.as_ref().map_or(Nanos::MAX, Neighbor::deadline);
        self.up().then_some(self.next_hello.min(neighbor))
    }

    /// What forbids talking to this sender, if anything.
    pub fn mismatch(&self, me: &Identity, from: &Sender) -> Option<String> {
        if from.node == me.node {
            return Some(if from.instance == me.instance {
                format!("our own packet of {} came back: the link is looped", from.interface)
            } else {
                format!("another router calls itself {}: names must be unique in a plane", me.node)
            });
        }
        if from.plane != me.plane {
            return Some(format!(
                "{} belongs to plane {}, we to plane {}: a link may not join planes",
                from.node, from.plane, me.plane
            ));
        }
        let present = self.neighbor.as_ref()?;
        let same = present.node == from.node && present.interface == from.interface;
        (!same).then(|| {
            format!(
                "{} ({}) is heard beside {} ({}): links join exactly two routers",
                from.node, from.interface, present.node, present.interface
            )
        })
    }

    /// Notes what is wrong, and says it once.
    pub fn complain(&mut self, interface: &str, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(interface, "{problem}");
            self.problem = Some(problem);
        }
    }
}

//! The queues of an interface, as wanted or observed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Queues for connections that are late, of one interface.
pub const LATE_QUEUES: usize = 4;

/// The queues of an interface: optional delay and harm, then a token bucket, then four priority bands. An interface without
/// a rate has the delay and harm alone, or queues for connections that are late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Rate in bit/s; 0 for none.
    pub rate_bps: u64,
    /// Bytes that may wait where there are no bands.
    pub limit: u32,
    /// Packets that may wait in each of the four bands; `None` for one queue without classes.
    pub band_packets: Option<u32>,
    /// One-way delay in nanoseconds; 0 for none.
    pub delay_ns: u64,
    /// What is done to packets on purpose.
    #[serde(default)]
    pub harm: Harm,
    /// Delays of single connections in nanoseconds, by number of the queue; 0 for a queue that is not there. Never beside
    /// anything else.
    #[serde(default)]
    pub late_ns: [u64; LATE_QUEUES],
    /// Whether a delay of nothing is there, left by a harm that is over: taking it out would lose what waits.
    #[serde(default)]
    pub idle: bool,
}

/// What an interface does to packets that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harm {
    /// Deviation from the delay in nanoseconds.
    pub jitter_ns: u64,
    /// Lost, in parts per million.
    pub loss_ppm: u32,
    /// With a wrong bit, in parts per million.
    pub corrupt_ppm: u32,
    /// Sent twice, in parts per million.
    pub duplicate_ppm: u32,
    /// Sent before others, in parts per million.
    pub reorder_ppm: u32,
}

impl Queue {
    /// Whether packets are delayed or harmed.
    pub fn hurts(&self) -> bool {
        self.delay_ns > 0 || self.harm != Harm::default()
    }

    /// Whether there are queues for late connections.
    pub fn is_late(&self) -> bool {
        self.late_ns.iter().any(|delay| *delay > 0)
    }

    /// What is there besides delay and harm: rate, bands, late queues.
    pub fn frame(&self) -> (bool, bool, bool) {
        (self.rate_bps > 0, self.band_packets.is_some(), self.is_late())
    }

    /// Whether it is whole: not one of which a part is missing.
    fn is_whole(&self) -> bool {
        let bands = self.band_packets.is_none_or(|packets| packets > 0 && self.rate_bps > 0);
        bands && (self.rate_bps > 0 || self.hurts() || self.is_late() || self.idle)
    }

    /// What `self` becomes when it is changed in place to `to`; `None` if it has to be made anew, which loses what waits.
    pub fn changed_to(&self, to: &Self) -> Option<Self> {
        let there = self.hurts() || self.idle;
        let kept = self.is_whole() && self.frame() == to.frame() && (there || !to.hurts());
        kept.then_some(Self { idle: there && !to.hurts(), ..*to })
    }

    /// Whether it does what `wanted` asks for.
    pub fn serves(&self, wanted: &Self) -> bool {
        Self { idle: false, ..*self } == Self { idle: false, ..*wanted }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend((self.rate_bps > 0).then(|| format!("{} bit/s", self.rate_bps)));
        words.extend(self.band_packets.map(|_| "4 bands".to_owned()));
        words.extend((self.delay_ns > 0).then(|| format!("{} us delay", self.delay_ns / 1000)));
        let harm = self.harm;
        words.extend((harm.jitter_ns > 0).then(|| format!("{} us jitter", harm.jitter_ns / 1000)));
        let shares = [
            ("loss", harm.loss_ppm),
            ("corrupt", harm.corrupt_ppm),
            ("duplicate", harm.duplicate_ppm),
            ("reorder", harm.reorder_ppm),
        ];
        let shares = shares.iter().filter(|(_, ppm)| *ppm > 0);
        words.extend(shares.map(|(word, ppm)| format!("{word} {}", super::percent(*ppm))));
        let late = (1..).zip(self.late_ns).filter(|(_, delay)| *delay > 0);
        words.extend(
            late.map(|(number, delay): (u8, u64)| format!("late queue {number} of {} us", delay / 1000)),
        );
        f.write_str(&if words.is_empty() { "none".to_owned() } else { words.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_harm_leaves_the_queue_in_place() {
        let plain = Queue { rate_bps: 20, limit: 1, band_packets: Some(50), ..Queue::default() };
        let hurt = Queue { harm: Harm { loss_ppm: 10, ..Harm::default() }, ..plain };
        assert_eq!(plain.changed_to(&hurt), None, "a new root");
        let over = hurt.changed_to(&plain).unwrap();
        assert!(over.idle && over.serves(&plain) && !over.serves(&hurt));
        assert_eq!(over.changed_to(&hurt), Some(hurt), "and back without a new root");
        assert_eq!(plain.changed_to(&Queue { rate_bps: 10, ..plain }), Some(Queue { rate_bps: 10, ..plain }));
        let broken = Queue { band_packets: Some(0), ..plain };
        assert_eq!(broken.changed_to(&plain), None);
    }
}

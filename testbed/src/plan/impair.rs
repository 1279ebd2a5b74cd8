//! Harm that a link does to what it carries, in one direction.

use std::fmt;

use serde::{Deserialize, Serialize};
use topologies::lab::Lab;
use topologies::units::{Capacity, Period, Share};

use super::queue::Harm;
use crate::failure::{Code, Failure};

/// Parts of a million that are everything.
pub const MILLION: u32 = 1_000_000;

/// Longest delay and jitter in microseconds: a minute, as of round-trip times in lab files, and a second, since the kernel
/// draws the deviation from 32 bits of nanoseconds (`tabledist` in net/sched/sch_netem.c).
const LONGEST_DELAY_US: u64 = 60_000_000;
const LONGEST_JITTER_US: u64 = 1_000_000;
/// Least emulated rate in bit/s: a full frame then takes more than a minute.
const LEAST_RATE: u64 = 1000;

/// What one direction of a link does to packets, beyond what the lab file says of it. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Impairment {
    /// Packets lost at random, in parts per million; a million: all of them.
    pub loss_ppm: u32,
    /// Packets with one wrong bit, in parts per million.
    pub corrupt_ppm: u32,
    /// Packets that come twice, in parts per million.
    pub duplicate_ppm: u32,
    /// Packets that overtake those before them, in parts per million; needs a delay of the lab's or of its own.
    pub reorder_ppm: u32,
    /// Delay of this direction, on top of the lab's.
    pub delay: Period,
    /// The delay is off by up to this much, evenly.
    pub jitter: Period,
    /// Rate in real bits per second, if that is less than the link's.
    pub rate: Option<Capacity>,
}

impl Impairment {
    /// Whether it does nothing at all.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the kernel's netem is needed for it: all but a rate.
    pub fn needs_netem(&self) -> bool {
        !Self { rate: None, ..*self }.is_none()
    }

    /// Whether a link can do it that the lab delays by `delay_us` one way.
    ///
    /// # Errors
    /// `Usage` (exit code 2), with what to write instead.
    pub fn check(&self, lab: &Lab, delay_us: u64) -> Result<(), Failure> {
        let refuse = |message: String, hint: &str| Err(Failure::new(Code::Usage, message).hint(hint));
        if self.is_none() {
            return refuse(
                "an impairment that does nothing".to_owned(),
                "name at least one of --loss, --delay, --jitter, --rate, --corrupt, --duplicate, --reorder; \
                 `link restore` takes one away",
            );
        }
        let shares = [self.loss_ppm, self.corrupt_ppm, self.duplicate_ppm, self.reorder_ppm];
        if shares.iter().any(|ppm| *ppm > MILLION) {
            return refuse("more than all packets".to_owned(), "shares end at 100%");
        }
        if self.delay.0 > LONGEST_DELAY_US || self.jitter.0 > LONGEST_JITTER_US {
            return refuse(
                format!("a delay of {} with a jitter of {} is too much", self.delay, self.jitter),
                "a delay is 60s at most, jitter 1s",
            );
        }
        let delay = self.delay.0.saturating_add(delay_us);
        if self.jitter.0 > delay {
            return refuse(
                format!("jitter {} is more than the delay that it is a deviation from", self.jitter),
                "give a --delay of at least as much",
            );
        }
        if self.reorder_ppm > 0 && delay == 0 {
            return refuse(
                "without a delay there is nothing to overtake".to_owned(),
                "give a --delay: packets that overtake are sent at once, the others after it",
            );
        }
        match self.rate.map(|rate| rate.0 / lab.bandwidth_divisor.max(1)) {
            Some(rate) if rate < LEAST_RATE => refuse(
                format!(
                    "a rate of {rate} bit/s in the emulation is too little (this lab divides by {})",
                    lab.bandwidth_divisor
                ),
                "rates are those of the real network; 1000 bit/s have to be left of them",
            ),
            _ => Ok(()),
        }
    }

    /// What the kernel is to do to packets, beside delay and rate.
    pub fn harm(&self) -> Harm {
        Harm {
            jitter_ns: self.jitter.0.saturating_mul(1000),
            loss_ppm: self.loss_ppm,
            corrupt_ppm: self.corrupt_ppm,
            duplicate_ppm: self.duplicate_ppm,
            reorder_ppm: self.reorder_ppm,
        }
    }
}

/// `12.5%`, as people write a share of a million.
pub fn percent(ppm: u32) -> Share {
    Share(u64::from(ppm))
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("loss", self.loss_ppm),
            ("corrupt", self.corrupt_ppm),
            ("duplicate", self.duplicate_ppm),
            ("reorder", self.reorder_ppm),
        ];
        let mut words: Vec<String> = Vec::new();
        words.extend(
            shares.iter().filter(|(_, ppm)| *ppm > 0).map(|(w, ppm)| format!("{w} {}", percent(*ppm))),
        );
        for (word, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            words.extend((time.0 > 0).then(|| format!("{word} {time}")));
        }
        words.extend(self.rate.map(|rate| format!("rate {rate}")));
        f.write_str(&words.join(" "))
    }
}

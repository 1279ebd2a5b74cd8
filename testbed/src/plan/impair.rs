//! Harm that a link does to what it carries, in one direction.

use std::fmt;

use serde::{Deserialize, Serialize};
use topologies::units::{Capacity, Period};

/// Parts of a million that are everything.
pub const MILLION: u32 = 1_000_000;

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
}

/// `12.5%`, as people write a share of a million.
pub fn percent(ppm: u32) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
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

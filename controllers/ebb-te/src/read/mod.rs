//! Readers: text in, network or demands out.

mod geo;
mod graphml;
mod lab;
mod matrix;
mod sndlib;

pub use graphml::graphml;
pub use lab::lab;
pub use matrix::matrix;
pub use sndlib::{is_sndlib, sndlib};

use topologies::Problem;

use crate::network::Network;

/// What to take where a topology does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Capacity of a link, bit/s.
    pub capacity_bps: u64,
    /// Round-trip time of a link whose ends have no coordinates, microseconds.
    pub rtt_us: u32,
    /// Plane of a lab.
    pub plane: u8,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { capacity_bps: 100_000_000_000, rtt_us: 10_000, plane: 1 }
    }
}

/// Reads a topology in any of the formats, told apart by what the text begins with.
pub fn topology(text: &str, file: &str, defaults: &Defaults) -> Result<Network, Vec<Problem>> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.starts_with('<') {
        graphml(text, file, defaults).map_err(|p| vec![p])
    } else if is_sndlib(text) {
        sndlib(text, file, defaults).map_err(|p| vec![p])
    } else {
        lab(text, file, defaults)
    }
}

/// A problem at a line (0: with the whole file).
fn problem(file: &str, line: usize, message: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem {
        file: file.to_owned(),
        line: u64::try_from(line).unwrap_or(u64::MAX),
        column: u64::from(line > 0),
        message: message.into(),
        hint: Some(hint.into()),
    }
}

/// Bit/s of a number in a unit, if it is one that a link can have.
fn whole_bps(number: f64, unit: f64) -> Option<u64> {
    /// 10 Pbit/s: beyond any link, and sums of many still fit.
    const MOST: f64 = 1e16;
    let bps = (number * unit).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 <= value <= 1e16
    (0.0..=MOST).contains(&bps).then_some(bps as u64)
}

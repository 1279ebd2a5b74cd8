//! Figures for people: times and rates to three digits.

use std::time::Duration;

/// `10.1 ms`, `523 ms`, `2.05 s`.
pub fn short(time: Duration) -> String {
    let (value, unit) = match time.as_nanos() {
        0..1_000_000 => (time.as_secs_f64() * 1e6, "us"),
        1_000_000..1_000_000_000 => (time.as_secs_f64() * 1e3, "ms"),
        _ => (time.as_secs_f64(), "s"),
    };
    format!("{} {unit}", three(value))
}

/// Bits per second as lab files have them: `37.5G`, `800M`, `0`.
pub fn rate(bps: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| bps >= *size) else { return bps.to_string() };
    #[allow(clippy::cast_precision_loss)] // three digits are printed
    let value = bps as f64 / size as f64;
    let text = three(value);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn three(value: f64) -> String {
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let times =
            [(950, "0.95 us"), (10_146_791, "10.1 ms"), (523_485_080, "523 ms"), (2_050_000_000, "2.05 s")];
        for (ns, text) in times {
            assert_eq!(short(Duration::from_nanos(ns)), text);
        }
        let rates = [
            (0, "0"),
            (37_500_000_000, "37.5G"),
            (400_000_000_000, "400G"),
            (1_234_567, "1.23M"),
            (20_000, "20k"),
        ];
        for (bps, text) in rates {
            assert_eq!(rate(bps), text);
        }
    }
}

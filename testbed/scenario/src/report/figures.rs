//! Figures and words for people: times, counts, shares, dates; text without control characters.

use crate::record::{Outcome, Run, Step};

/// `950 us`, `10.1 ms`, `2.05 s` of nanoseconds.
pub fn ns(ns: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // three digits are shown
    ms(ns as f64 / 1e6)
}

/// `950 us`, `10.1 ms`, `2.05 s` of milliseconds.
pub fn ms(ms: f64) -> String {
    if !ms.is_finite() {
        return "-".to_owned();
    }
    match ms.abs() {
        0.0..0.9995 => format!("{:.0} us", ms * 1e3),
        0.9995..999.5 => format!("{} ms", three(ms)),
        _ => format!("{} s", three(ms / 1e3)),
    }
}

fn three(value: f64) -> String {
    match value.abs() {
        0.0..9.995 => format!("{value:.2}"),
        9.995..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `12 345 678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// `0.16 %` of a whole; `0 %` of nothing.
pub fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    #[allow(clippy::cast_precision_loss)] // three digits are shown
    let percent = 100.0 * part as f64 / whole as f64;
    if percent < 0.005 { "< 0.01 %".to_owned() } else { format!("{} %", three(percent)) }
}

/// The word for an outcome.
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Skipped => "skipped",
        Outcome::Running => "running",
        Outcome::Passed => "passed",
        Outcome::Warned => "warned",
        Outcome::Failed => "failed",
        Outcome::Broken => "broken",
    }
}

/// How long a run has taken, or has gone on by the last thing known of it. Nanoseconds.
pub fn duration_ns(run: &Run) -> u64 {
    let last = if run.ended_ns > 0 {
        run.ended_ns
    } else {
        let steps = run.steps.iter().map(|s| s.began_ns.max(s.ended_ns));
        let looks = run.samples.iter().map(|s| s.at_ns);
        steps.chain(looks).chain(run.events.iter().map(|e| e.at_ns)).max().unwrap_or(0)
    };
    last.saturating_sub(run.began_ns)
}

/// How long a step took, nanoseconds; nothing while it goes on or was not reached.
pub fn step_ns(step: &Step) -> Option<u64> {
    (step.ended_ns > 0).then(|| step.ended_ns.saturating_sub(step.began_ns))
}

/// What a step is called: its name, else what it does.
pub fn step_name(step: &Step) -> &str {
    if step.name.is_empty() { &step.action } else { &step.name }
}

/// `2026-12-01T00:15:30` (UTC) of milliseconds since the Unix epoch.
pub fn date(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    let (mut year, mut day) = (1970_u64, days % 146_097);
    year += days / 146_097 * 400;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= if leap(year) { 366 } else { 365 } {
        day -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}", day + 1)
}

/// Text in one line that drives no terminal: control characters and marks that turn the direction of writing become
/// spaces.
pub fn plain(text: &str) -> String {
    let drives = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|c| if drives(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let cases = [
            (0.0, "0 us"),
            (0.95, "950 us"),
            (0.9996, "1.00 ms"),
            (10.1468, "10.1 ms"),
            (523.485, "523 ms"),
            (999.7, "1.00 s"),
            (2050.0, "2.05 s"),
            (f64::NAN, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(ms(value), text);
        }
        assert_eq!([count(0), count(999), count(1_234_567)], ["0", "999", "1 234 567"]);
        assert_eq!([share(0, 0), share(1, 3), share(1, 1_000_000)], ["0 %", "33.3 %", "< 0.01 %"]);
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00");
        assert_eq!(date(951_782_400_000), "2000-02-29T00:00:00");
        assert_eq!(date(1_796_084_130_000), "2026-12-01T00:15:30");
        assert!(date(u64::MAX).ends_with(|c: char| c.is_ascii_digit()));
    }

    #[test]
    fn nothing_drives_a_terminal() {
        assert_eq!(plain("a\x1b[31mb\r\n\u{202e}c"), "a [31mb   c");
    }
}

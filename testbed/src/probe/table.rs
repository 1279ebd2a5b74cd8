//! The report as text for people, at most 100 columns wide unless names are very long.

use std::fmt::Write as _;

use super::reach::ReachReport;
use super::report::{Report, StreamReport, Times};

/// Most loss windows that are listed.
const LISTED: usize = 20;

/// The report as a table with a list of loss windows and a line of sums.
pub fn render(report: &Report) -> String {
    let mut rows = vec![
        [
            "FROM", "TO", "CLASS", "SENT", "LOST", "LOSS %", "LONGEST", "DUP", "REORD", "PATHS", "P50 ms",
            "P99 ms", "MAX ms",
        ]
        .map(str::to_string),
    ];
    rows.extend(report.streams.iter().map(row));
    let mut text = align(&rows, 3);
    windows(report, &mut text);
    if report.classes.len() > 1 {
        text.push('\n');
        for c in &report.classes {
            let _ = write!(text, "{:<7}{:>9} sent, {:>6} lost", c.class, c.sent, c.lost);
            if c.lost > 0 {
                let _ = write!(
                    text,
                    " ({:.3} %), longest window {}",
                    c.lost_percent,
                    window(c.longest_window_ms)
                );
            }
            text.push('\n');
        }
    }
    let _ = writeln!(
        text,
        "\n{} in {:.1} s: {} sent, {} lost, {} refused by the sending host{}",
        count(report.streams.len(), "stream"),
        report.duration_ms / 1000.0,
        report.sent(),
        report.lost(),
        report.send_errors(),
        if report.finished { "" } else { " (still running)" },
    );
    let Times { p50_us, p99_us, max_us } = report.lateness;
    let _ = write!(
        text,
        "own timers late by {} ms median, {} ms p99, {} ms at most",
        ms(p50_us),
        ms(p99_us),
        ms(max_us)
    );
    if report.slipped > 0 {
        let _ = write!(text, "; {} packets left out while the machine stood still", report.slipped);
    }
    text.push('\n');
    text
}

fn row(s: &StreamReport) -> [String; 13] {
    let percent = if s.lost == 0 {
        "-".to_string()
    } else {
        // shown with three decimals, exact up to 2^53 packets
        #[allow(clippy::cast_precision_loss)]
        let percent = s.lost as f64 * 100.0 / s.sent.max(1) as f64;
        format!("{percent:.3}")
    };
    let longest = if s.lost == 0 { "-".to_string() } else { window(s.longest_window_ms()) };
    [
        s.from.clone(),
        s.to.clone(),
        s.class.to_string(),
        s.sent.to_string(),
        s.lost.to_string(),
        percent,
        longest,
        s.duplicates.to_string(),
        s.reordered.to_string(),
        s.path_changes.to_string(),
        ms(s.latency.p50_us),
        ms(s.latency.p99_us),
        ms(s.latency.max_us),
    ]
}

fn windows(report: &Report, text: &mut String) {
    let mut all: Vec<(u64, String)> = Vec::new();
    for s in &report.streams {
        for w in &s.loss_windows {
            // shown to the millisecond
            #[allow(clippy::cast_precision_loss)]
            let at = w.start.saturating_sub(report.started_ns) as f64 / 1e9;
            let line = format!(
                "{at:>11.3} s {:>11}  {:>7} lost on {} of {} flows  {} -> {} {}",
                window(w.ms),
                w.lost,
                w.flows,
                s.flows,
                s.from,
                s.to,
                s.class
            );
            all.push((w.start, line));
        }
    }
    if all.is_empty() {
        return;
    }
    all.sort();
    text.push_str("\nloss windows, from the start of the run:\n");
    for (_, line) in all.iter().take(LISTED) {
        let _ = writeln!(text, "{line}");
    }
    let omitted: u64 = report.streams.iter().map(|s| s.loss_windows_omitted).sum();
    let more = all.len().saturating_sub(LISTED) as u64 + omitted;
    if more > 0 {
        let _ = writeln!(text, "{more:>11} more, see --format json");
    }
}

/// The matrix of a reachability check: hosts that do not reach each other, or one line if all do.
pub fn render_reach(report: &ReachReport) -> String {
    let missing: Vec<_> = report.pairs.iter().filter(|p| p.rtt_us.is_none()).collect();
    let total = count(report.pairs.len(), "host pair");
    if missing.is_empty() {
        let slowest = report.pairs.iter().filter_map(|p| p.rtt_us).max().unwrap_or(0);
        return format!("{total}: all reach each other, round trip at most {} ms\n", ms(slowest));
    }
    let mut text = format!("{total}: {} without an answer\n", missing.len());
    for pair in missing.iter().take(LISTED) {
        let _ = writeln!(text, "  {} -> {}", pair.from, pair.to);
    }
    if missing.len() > LISTED {
        let _ = writeln!(text, "  and {} more", missing.len() - LISTED);
    }
    text
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Microseconds as milliseconds, two decimals below ten, else one.
fn ms(us: u64) -> String {
    if us < 10_000 {
        format!("{}.{:02}", us / 1000, us % 1000 / 10)
    } else {
        format!("{}.{}", us / 1000, us % 1000 / 100)
    }
}

fn window(ms: f64) -> String {
    if ms < 10_000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1000.0) }
}

/// Columns to the width of their longest entry, two spaces apart; the first `left` of them left-aligned.
fn align<const N: usize>(rows: &[[String; N]], left: usize) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if n == 0 { "" } else { "  " };
            let _ = if n < left {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::report::tests::sample;

    #[test]
    fn table() {
        let text = render(&sample());
        assert!(text.lines().all(|l| l.len() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }

    /// Six DCs, big numbers: still 100 columns.
    #[test]
    fn wide() {
        let mut report = sample();
        for s in &mut report.streams {
            s.sent = 1_234_567;
            s.lost = 123_456;
            s.path_changes = 10_000;
            s.reordered = 99_999;
            s.latency = Times { p50_us: 123_456, p99_us: 987_654, max_us: 4_500_000 };
        }
        let text = render(&report);
        assert!(text.lines().all(|l| l.len() <= 110), "{text}");
    }
}

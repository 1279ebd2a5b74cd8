//! What a run of the suite showed, as a table for people: a row a test, with the numbers that it printed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::evidence;

/// One test's outcome.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    passed: bool,
    took: Duration,
    notes: Vec<String>,
}

#[derive(Debug, Default)]
struct Table {
    rows: Vec<Row>,
    /// Of the test that runs now.
    notes: Vec<String>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { rows: Vec::new(), notes: Vec::new() });

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a line that the running test printed.
pub fn noted(line: &str) {
    table().notes.push(line.trim().to_owned());
}

/// Runs a test and keeps its outcome.
pub fn record<E>(name: &str, test: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    table().notes.clear();
    let began = Instant::now();
    let result = test();
    let mut table = table();
    let notes = std::mem::take(&mut table.notes);
    table.rows.push(Row { name: name.to_owned(), passed: result.is_ok(), took: began.elapsed(), notes });
    result
}

/// Scenario numbers at the beginning of a test's name: `e1_e2_headroom` shows E1 and E2.
fn numbers(name: &str) -> Vec<String> {
    let is_number = |part: &&str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_ascii_lowercase())
            && chars.clone().count() > 0
            && chars.all(|c| c.is_ascii_digit())
    };
    name.split('_').take_while(is_number).map(str::to_uppercase).collect()
}

fn render(rows: &[Row], date: &str, machine: &str) -> String {
    let mut out = format!(
        "# What the scenarios showed\n\nWritten by a run of `cargo xtask test --full` on {date}. {machine}\n\n\
         The numbers are those of the list of scenarios: F forwarding, P programming, E engineering of traffic, R repair, \
         O operations. Tests without a number are at the end. Lines are what the tests printed.\n\n\
         | | test | result | seconds | measured |\n|---|---|---|---|---|\n"
    );
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| (numbers(&row.name).is_empty(), numbers(&row.name), row.name.clone()));
    for row in rows {
        let result = if row.passed { "passed" } else { "**failed**" };
        let notes = row.notes.join("<br>").replace('|', "\\|");
        let seconds = row.took.as_secs_f64();
        let _ = writeln!(
            out,
            "| {} | `{}` | {result} | {seconds:.1} | {notes} |",
            numbers(&row.name).join(", "),
            row.name
        );
    }
    out
}

/// Processors, memory, kernel.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory = read("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let gib = memory.map_or(0, |kib| kib.div_ceil(1024 * 1024));
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    let kvm = if Path::new("/dev/kvm").exists() { "with" } else { "without" };
    format!(
        "Machine: {cores} processors, {gib} GiB, Linux {kernel}, {kvm} a KVM device; what carried the lab is in the first line of `up_ready`."
    )
}

/// Where the table goes: `TESTBED_E2E_RESULTS`, else beside the evidence.
fn path() -> PathBuf {
    match std::env::var_os("TESTBED_E2E_RESULTS") {
        Some(path) if !path.is_empty() => path.into(),
        _ => evidence::folder().join("results.md"),
    }
}

/// Writes the table of this run.
pub fn write() -> anyhow::Result<PathBuf> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("cannot run date")?;
    let text = render(&table().rows, String::from_utf8_lossy(&date.stdout).trim(), &machine());
    let path = path();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_off_names() {
        assert_eq!(numbers("e1_e2_headroom"), ["E1", "E2"]);
        assert_eq!(numbers("o10_x"), ["O10"]);
        assert_eq!(numbers("up_ready"), [""; 0]);
        assert_eq!(numbers("e_x"), [""; 0]);
    }

    #[test]
    fn rows_are_sorted_and_say_what_failed() {
        let row = |name: &str, passed, notes: &[&str]| Row {
            name: name.into(),
            passed,
            took: Duration::from_millis(1250),
            notes: notes.iter().map(|n| (*n).to_owned()).collect(),
        };
        let text = render(
            &[
                row("up_ready", true, &[]),
                row("r1_local_repair", false, &["a|b", "c"]),
                row("f1_x", true, &[]),
            ],
            "2026-01-02",
            "Machine: one.",
        );
        let rows: Vec<&str> = text.lines().filter(|l| l.contains('`') && l.starts_with("| ")).collect();
        assert_eq!(
            rows,
            [
                "| F1 | `f1_x` | passed | 1.2 |  |",
                "| R1 | `r1_local_repair` | **failed** | 1.2 | a\\|b<br>c |",
                "|  | `up_ready` | passed | 1.2 |  |"
            ]
        );
    }
}

//! `doctor` and `gc`.

use super::args::{Format, Global};
use super::show;
use crate::carrier;

/// What the machine has; exit code 4 if no lab kind can run here.
pub fn doctor(global: &Global) -> anyhow::Result<u8> {
    let report = carrier::doctor::report(&carrier::state_root());
    if global.format == Format::Json {
        show::json(&report)?;
    } else {
        show::print(report.to_text())?;
    }
    Ok(report.exit_code())
}

/// Removes what dead labs left.
pub fn gc(global: &Global, dry_run: bool) -> anyhow::Result<u8> {
    let found = carrier::gc::run(&carrier::state_root(), dry_run)?;
    if global.format == Format::Json {
        show::json(&serde_json::json!({"version": 1, "dry_run": dry_run, "found": found}))?;
        return Ok(0);
    }
    if found.is_empty() {
        show::line("nothing left behind")?;
    }
    for item in found {
        show::line(format!("{}{item}", if dry_run { "would remove " } else { "removed " }))?;
    }
    Ok(0)
}

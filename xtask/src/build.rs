//! Cargo, called from cargo.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Stop;

/// The cargo that runs us.
fn command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Whether the toolchain has this subcommand.
pub fn has(subcommand: &str) -> bool {
    let output =
        command().args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

/// Runs cargo and shows what it prints.
pub fn cargo(what: &str, args: &[&str]) -> Result<(), Stop> {
    cargo_with(what, args, &[])
}

/// The same, with environment variables.
pub fn cargo_with(what: &str, args: &[&str], env: &[(&str, &str)]) -> Result<(), Stop> {
    eprintln!("xtask: {what}: cargo {}", args.join(" "));
    let status = command()
        .args(args)
        .envs(env.iter().copied())
        .status()
        .map_err(|e| Stop::new(5, format!("cannot run cargo: {e}")))?;
    if status.success() { Ok(()) } else { Err(Stop::new(1, format!("{what} failed ({status})"))) }
}

/// Builds the testbed and all programs that it starts; says nothing unless something has to be compiled.
pub fn programs() -> Result<(), Stop> {
    let args = ["build", "--release", "-p", "testbed", "-p", "router-emu", "-p", "ebb"];
    let mut child = command()
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Stop::new(5, format!("cannot run cargo: {e}")))?;
    if let Some(stderr) = child.stderr.take() {
        show_work(BufReader::new(stderr));
    }
    let status = child.wait().map_err(|e| Stop::new(5, format!("cargo: {e}")))?;
    if status.success() { Ok(()) } else { Err(Stop::new(1, "the build failed")) }
}

/// Passes cargo's lines on, but for the one that says there was nothing to do.
fn show_work(lines: impl std::io::BufRead) {
    let mut compiled = false;
    for line in lines.lines().map_while(Result::ok) {
        let word = line.trim_start();
        if !compiled && word.starts_with("Compiling") {
            compiled = true;
            eprintln!("xtask: building (a first build takes a few minutes)");
        }
        if compiled || !word.starts_with("Finished") {
            eprintln!("{line}");
        }
    }
}

/// Where cargo puts what it builds.
pub fn target_dir() -> Result<PathBuf, Stop> {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR").filter(|d| !d.is_empty()) {
        return Ok(PathBuf::from(dir));
    }
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().ok_or_else(|| Stop::new(5, "xtask lies outside of a workspace"))?;
    Ok(root.join("target"))
}

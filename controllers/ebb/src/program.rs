//! What the programs of a plane that are not agents start with.

use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use router_emu::agent;

#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Configuration file (JSON).
    #[arg(long)]
    config: PathBuf,
}

/// Reads the command line of the program that is `about` this and starts the log on stderr; where its configuration lies. A
/// wrong command line ends the process.
pub fn start(about: &'static str) -> PathBuf {
    let matches = Args::command().about(about).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    agent::start_log();
    args.config
}

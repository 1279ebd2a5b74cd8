//! Rolls a change of configuration out to the routers of whole planes, and back if it does harm.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ebb::rollout::config::RolloutConfig;
use ebb::rollout::core::Verdict;
use ebb::rollout::run::Runner;
use router_emu::agent;

/// Rolls a change of configuration out, plane by plane, and back if it does harm.
///
/// Every line on standard output is a JSON object: what happened, and when. Exit code 0: all routers have it and keep it;
/// 1: it was rolled back, or refused before anything was changed; 2: rolled back, and the network is not as it was.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// What to roll out (JSON).
    #[arg(long)]
    config: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    agent::start_log();
    let config = RolloutConfig::load(&args.config)?;
    let mut code = ExitCode::FAILURE;
    agent::run(async {
        code = match Runner::new(config).run().await {
            Verdict::Done => ExitCode::SUCCESS,
            Verdict::RolledBack { .. } | Verdict::Refused(_) => ExitCode::FAILURE,
            Verdict::NotRecovered(_) => ExitCode::from(2),
        };
        Ok(())
    })?;
    Ok(code)
}

//! The command line: arguments, one module a verb, what is printed.
//!
//! In this room: parsing words, choosing the lab, talking to its supervisor, rendering. Not in this room: the
//! work itself. Data goes to standard output, everything else to standard error.

pub mod args;
pub mod config;
pub mod doctor;
mod evidence;
pub mod exec;
pub mod fault_args;
pub mod faults;
pub mod internal;
pub mod look;
pub mod operate;
pub mod probe;
pub mod progress;
pub mod run;
mod run_args;
mod runs;
pub mod show;
pub mod target;
pub mod up;

use clap::Parser as _;

use self::args::{Cli, Command};
use crate::failure::{Code, Failure};

/// Parses the words, runs the verb, returns the exit code.
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { Code::Usage.number() } else { 0 };
            // a closed pipe is no reason to complain
            let _ = e.print();
            return code;
        }
    };
    start_logging(cli.global.verbose);
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            let failure = crate::failure::from_error(&error);
            show::complain(format!("testbed: {failure}"));
            failure.code.number()
        }
    }
}

fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TESTBED_LOG").unwrap_or_else(|_| level.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn run(cli: Cli) -> anyhow::Result<u8> {
    let global = cli.global;
    match cli.command {
        // the keeper and the supervisor make their own runtimes
        Command::Internal(internal) => return internal::run(internal),
        Command::Completions { shell } => return look::completions(shell),
        Command::Schema { scenario } => return look::schema(scenario),
        Command::Validate(which) => return look::validate(&global, &which),
        Command::Doctor => return doctor::doctor(&global),
        Command::Gc { dry_run } => return doctor::gc(&global, dry_run),
        Command::Graph(args) => return look::graph(&global, &args),
        Command::Report(args) => return run::report(&global, &args),
        Command::Logs(args) => return look::logs(&global, &args),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            Command::Up(args) => up::up(&global, args).await,
            Command::Down(args) => up::down(&global, args).await,
            Command::Plan(args) => look::plan(&global, args).await,
            Command::Status { watch } => look::status(&global, watch).await,
            Command::Events { follow, all, last } => look::events(&global, follow, all, last).await,
            Command::Exec(args) => exec::exec(&global, args).await,
            Command::Shell { node } => exec::shell(&global, node).await,
            Command::Link { action } => operate::link(&global, action).await,
            Command::Program { action } => operate::program(&global, action).await,
            Command::Node { action } => faults::node(&global, action).await,
            Command::Rpc { action } => faults::rpc(&global, action).await,
            Command::Kernel { action } => faults::kernel(&global, action).await,
            Command::Drain(args) => operate::drain(&global, args, true).await,
            Command::Undrain(args) => operate::drain(&global, args, false).await,
            Command::Config { action } => config::config(&global, action).await,
            Command::Cycle(args) => operate::cycle(&global, args).await,
            Command::Compare => operate::compare(&global).await,
            Command::Run(args) => run::run(&global, args).await,
            Command::Probe(args) => probe::probe(&global, args).await,
            _ => Err(Failure::new(Code::Internal, "command not dispatched").into()),
        }
    })
}

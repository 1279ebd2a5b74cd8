//! Hidden verbs: what the testbed starts of itself.

use std::path::PathBuf;

use clap::Subcommand;

use crate::carrier::{guest_exec, keep, kernel, kvm};

/// What the testbed starts of itself.
#[derive(Debug, Subcommand)]
pub enum Internal {
    /// Keep a world; the order comes on standard input
    Keep,
    /// Process 1 of a world
    Supervise,
    /// A command on the guest's kernel, in a throw-away guest
    GuestExec {
        /// Guest kernel
        #[arg(long, env = "TESTBED_KERNEL")]
        kernel: Option<PathBuf>,
        /// Command, after `--`
        #[arg(last = true, required = true)]
        argv: Vec<String>,
    },
    /// Process 1 of such a guest
    GuestRun,
}

/// Runs a hidden verb.
pub fn run(verb: Internal) -> anyhow::Result<u8> {
    match verb {
        Internal::Keep => keep::run().map(|()| 0),
        Internal::Supervise => {
            let carrier = crate::supervise::main::run()?;
            crate::supervise::main::end_world(carrier)
        }
        Internal::GuestExec { kernel, argv } => {
            let kernel = kernel::ensure(kernel.as_deref(), &mut |line| eprintln!("{line}"))?;
            let own = [
                std::env::current_exe()?.display().to_string(),
                "internal".to_owned(),
                "guest-run".to_owned(),
            ];
            let code = guest_exec::execute(&kernel, kvm::choose(&kernel)?.accel, &own, &argv)?;
            Ok(u8::try_from(code).unwrap_or(u8::MAX))
        }
        Internal::GuestRun => Err(guest_exec::run_inside()),
    }
}

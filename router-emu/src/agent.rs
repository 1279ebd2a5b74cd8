//! What every agent program starts with.
//!
//! In this room: the `--config` command line, the log, the end on SIGTERM or SIGINT, the monotonic clock and a
//! file write that survives a crash. Not in this room: anything about one agent in particular.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use futures::FutureExt as _;
use rtnl::monitor::Monitor;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Loaded;

/// Command line of an agent.
#[derive(Debug, Parser)]
pub struct Args {
    /// The router's configuration file (JSON), the same for all agents of a router.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Nice value of this process (-20 to 19); negative values need the privilege.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub nice: Option<i32>,
}

/// Reads the command line and the base configuration, starts the log on stderr and applies `--nice`.
///
/// The log level comes from `TESTBED_LOG` or `RUST_LOG`, `info` by default.
pub fn start() -> anyhow::Result<Loaded> {
    let args = Args::parse();
    start_log();
    if let Some(nice) = args.nice {
        set_nice(nice)?;
    }
    Loaded::read(&args.config)
}

/// Starts the log: one line an event, on stderr, without colours.
pub fn start_log() {
    use tracing_subscriber::EnvFilter;
    let filter = std::env::var("TESTBED_LOG")
        .or_else(|_| std::env::var("RUST_LOG"))
        .ok()
        .and_then(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new("info"));
    // a second call (tests in one process) keeps the first subscriber
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .try_init();
}

/// Runs an agent's main future on a single-threaded runtime with a local task set.
pub fn run<F: Future<Output = anyhow::Result<()>>>(main: F) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, main)
}

/// A future, cheap to clone, that ends when SIGTERM or SIGINT arrives. Needs a running tokio runtime.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Clone + Send + Unpin + 'static> {
    let mut term = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    }
    .boxed()
    .shared())
}

/// `CLOCK_MONOTONIC` in nanoseconds: one clock for all agents of a kernel.
pub fn monotonic_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}

/// Writes `bytes` to `path` so that a crash leaves either the old or the new content.
///
/// The folder is made if it is missing.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(what)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let mut file = std::fs::File::create(&draft).with_context(what)?;
    file.write_all(bytes).with_context(what)?;
    file.sync_all().with_context(what)?;
    std::fs::rename(&draft, path).with_context(what)
}

/// Registers a kernel subscription with the event loop: readable when events wait. Needs a running tokio runtime.
pub fn watch(monitor: Monitor) -> anyhow::Result<AsyncFd<Monitor>> {
    // SAFETY: a monitor owns one open descriptor, returns the same number every time and closes it when dropped.
    // JUSTIFICATION: tokio cannot check that by itself for types that are `AsRawFd` only.
    let registered = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
    registered.map_err(|e| anyhow::anyhow!("cannot watch for kernel events: {}", e.into_parts().1))
}

/// Moves a thread, 0 for the calling one, into a scheduling class (`SCHED_*`) with a static priority.
///
/// # Errors
/// No such thread, or no privilege.
pub fn set_scheduler(thread: i32, class: i32, priority: i32) -> std::io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the call reads one small structure that lives on our stack.
    // JUSTIFICATION: nix has no wrapper for sched_setscheduler.
    if unsafe { libc::sched_setscheduler(thread, class, &raw const param) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

/// Whether the calling thread runs before all ordinary ones (`SCHED_FIFO`, lowest level).
///
/// For threads that packets wait for, and only while they do: whatever takes long is done in the ordinary class. Without
/// the privilege the thread stays ordinary, which is said once.
#[derive(Debug, Default)]
pub struct Urgency {
    urgent: bool,
    refused: bool,
}

impl Urgency {
    /// Moves the calling thread into the class, or back.
    pub fn set(&mut self, urgent: bool) {
        if self.refused || self.urgent == urgent {
            return;
        }
        let class = if urgent { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
        match set_scheduler(0, class, i32::from(urgent)) {
            Ok(()) => self.urgent = urgent,
            Err(why) => {
                tracing::warn!("repairs run at the usual priority: {why}");
                self.refused = true;
            }
        }
    }

    /// Moves the calling thread into the class until the value is dropped, in the same thread.
    pub fn hold() -> impl Drop {
        struct Held(Urgency);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let mut urgency = Self::default();
        urgency.set(true);
        Held(urgency)
    }
}

fn set_nice(nice: i32) -> anyhow::Result<()> {
    // SAFETY: setpriority takes three integers and touches no memory of ours.
    // JUSTIFICATION: nix has no wrapper for setpriority.
    let code = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if code != 0 {
        anyhow::bail!(
            "cannot set nice {nice}: {} (leave --nice out, or run privileged)",
            std::io::Error::last_os_error()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_moves_forward() {
        let first = monotonic_ns();
        assert!(first > 0);
        assert!(monotonic_ns() >= first);
    }

    #[test]
    fn a_file_is_replaced_whole_and_its_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/state.json");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}

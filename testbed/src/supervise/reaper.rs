//! Children of process 1: every process whose parent died becomes ours, so all exits are collected here.
//!
//! `std` and tokio must not wait for children themselves; nothing else in the supervisor may spawn.

use std::collections::HashMap;
use std::io;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code.
    Code(i32),
    /// Killed by the signal of this number, which may be one without a name (real-time signals).
    Signal(i32),
}

impl Exit {
    /// The shell's number for it: the code, or 128 + signal.
    pub fn number(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "{signal}"),
                Err(_) => write!(f, "signal {number}"),
            },
        }
    }
}

/// A child with its ends of the pipes.
pub struct Child {
    /// Process id in the world.
    pub pid: Pid,
    /// If piped.
    pub stdin: Option<ChildStdin>,
    /// If piped.
    pub stdout: Option<ChildStdout>,
    /// If piped.
    pub stderr: Option<ChildStderr>,
    /// Resolves when the process has ended.
    pub exit: oneshot::Receiver<Exit>,
}

impl Child {
    /// Sends a signal; a process that has ended already is fine.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }
}

/// Spawns and collects.
pub struct Reaper {
    // held over spawn and over waitpid, so that no exit is collected before its pid is known
    waiting: Mutex<HashMap<Pid, oneshot::Sender<Exit>>>,
}

impl Reaper {
    /// Starts collecting; needs a tokio runtime.
    pub fn start() -> io::Result<Arc<Self>> {
        let reaper = Arc::new(Self { waiting: Mutex::default() });
        let mut exits = signal(SignalKind::child())?;
        let task = Arc::clone(&reaper);
        tokio::spawn(async move {
            while exits.recv().await.is_some() {
                task.collect();
            }
        });
        Ok(reaper)
    }

    /// Starts a process.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut waiting = self.lock();
        let mut child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let (tx, exit) = oneshot::channel();
        waiting.insert(pid, tx);
        Ok(Child {
            pid,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            exit,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Pid, oneshot::Sender<Exit>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self) {
        let mut waiting = self.lock();
        loop {
            let mut status = 0;
            // SAFETY: `status` is an integer to write to, and lives longer than the call.
            // JUSTIFICATION: nix refuses real-time signals, after the kernel has let go of the child that one has killed.
            let pid = match Errno::result(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) }) {
                Ok(0) | Err(Errno::ECHILD) => return,
                Ok(pid) => Pid::from_raw(pid),
                Err(Errno::EINTR) => continue,
                Err(e) => {
                    tracing::error!("waitpid: {e}");
                    return;
                }
            };
            let exit = if libc::WIFEXITED(status) {
                Exit::Code(libc::WEXITSTATUS(status))
            } else if libc::WIFSIGNALED(status) {
                Exit::Signal(libc::WTERMSIG(status))
            } else {
                continue;
            };
            if let Some(tx) = waiting.remove(&pid) {
                // whoever started it may have lost interest
                let _ = tx.send(exit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Input: processes that end at once, by code and by signal (one of them real-time), and one that cannot be started.
    /// Output: each exit arrives; the failed start is an error, not a lost child.
    #[tokio::test]
    async fn collects() {
        let reaper = Reaper::start().unwrap();
        for n in 0..20 {
            let child = reaper.spawn(Command::new("sh").args(["-c", &format!("exit {n}")])).unwrap();
            let exit = tokio::time::timeout(Duration::from_secs(10), child.exit).await.unwrap().unwrap();
            assert_eq!(exit, Exit::Code(n));
        }
        assert!(reaper.spawn(&mut Command::new("/nonexistent/program")).is_err());
        let child = reaper.spawn(Command::new("sleep").arg("60")).unwrap();
        child.signal(Signal::SIGKILL);
        let exit = tokio::time::timeout(Duration::from_secs(10), child.exit).await.unwrap().unwrap();
        assert_eq!(exit.number(), 137);
        let child = reaper.spawn(Command::new("sh").args(["-c", "kill -40 $$"])).unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(10), child.exit).await.unwrap().unwrap();
        assert_eq!((exit.number(), exit.to_string()), (168, "signal 40".to_owned()));
    }
}

//! Locks on files, and processes told apart by more than their number.
//!
//! A lock lives as long as any process holds the open file, so whoever can take it knows that all holders are gone.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// An exclusive `flock` held until dropped, or until the last process that inherited it ends.
#[derive(Debug)]
pub struct FileLock {
    inner: Flock<File>,
}

impl FileLock {
    /// Takes the lock, or gives `None` if someone else has it.
    pub fn try_exclusive(path: &Path) -> Result<Option<Self>> {
        match Flock::lock(open(path)?, FlockArg::LockExclusiveNonblock) {
            Ok(inner) => Ok(Some(Self { inner })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, why)) => Err(why).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Takes the lock, waiting until it is free.
    pub fn exclusive(path: &Path) -> Result<Self> {
        Flock::lock(open(path)?, FlockArg::LockExclusive)
            .map(|inner| Self { inner })
            .map_err(|(_, why)| why)
            .with_context(|| format!("cannot lock {}", path.display()))
    }

    /// Takes the lock, waiting at most `patience`: those who only look hold it for a moment.
    pub fn exclusive_within(path: &Path, patience: Duration) -> Result<Option<Self>> {
        let deadline = Instant::now() + patience;
        loop {
            match Self::try_exclusive(path)? {
                Some(lock) => return Ok(Some(lock)),
                None if Instant::now() >= deadline => return Ok(None),
                None => std::thread::sleep(Duration::from_millis(3)),
            }
        }
    }

    /// Whether the file still stands in a folder; one without a name can be found by nobody who looks for the lock.
    pub fn has_name(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        self.inner.metadata().is_ok_and(|m| m.nlink() > 0)
    }

    /// The open file that carries the lock.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Whether some process holds the lock at `path`; a missing file is held by nobody.
pub fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

/// Waits until nobody holds the lock at `path`; false on the deadline.
pub fn wait_free(path: &Path, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while is_held(path) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    true
}

/// Processes that have the file at `path` open, found by device and inode.
pub fn holders(path: &Path) -> Vec<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(wanted) = fs::metadata(path) else { return Vec::new() };
    let mut found = Vec::new();
    for pid in pids() {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok).any(
            |entry| {
                fs::metadata(entry.path()).is_ok_and(|m| m.dev() == wanted.dev() && m.ino() == wanted.ino())
            },
        );
        if open && pid.cast_unsigned() != std::process::id() {
            found.extend(Identity::of(pid));
        }
    }
    found
}

fn pids() -> Vec<i32> {
    let mut pids: Vec<i32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// A process: its number and when it started, in clock ticks since boot. Numbers are used again, the pair is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process number.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub started: u64,
}

impl Identity {
    /// Reads `/proc`; nothing if there is no such process, or only its unreaped remains.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // the name, in parentheses, may hold anything
        let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
        let state = rest.next()?;
        let started = rest.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, started })
    }

    /// This process.
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether this very process still runs.
    pub fn alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// A handle that stays with this very process, whatever becomes of its number; nothing if it has ended.
    pub fn open(&self) -> Option<PidFd> {
        let fd = PidFd::open(self.pid).ok()?;
        self.alive().then_some(fd)
    }
}

/// A `pidfd`: readable when the process has ended.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens a handle on a process.
    pub fn open(pid: i32) -> Result<Self> {
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        // JUSTIFICATION: neither std (stable) nor nix wraps it.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(Errno::result(fd).with_context(|| format!("process {pid}"))?)?;
        // SAFETY: the kernel just gave us this descriptor, nobody else has it.
        // JUSTIFICATION: the only way to own a raw descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal; a process that has ended is no error.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, no information block is passed.
        // JUSTIFICATION: neither std (stable) nor nix wraps it.
        let done =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal as i32, none, 0) };
        match Errno::result(done) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(why) => Err(why).context("cannot signal the process"),
        }
    }

    /// Waits until the process has ended; false on the deadline.
    pub fn wait(&self, patience: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(n) if n > 0 => return true,
                Err(Errno::EINTR) if Instant::now() < deadline => {}
                _ => return false,
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where the lock of a lab lies.
pub fn alive_lock(state: &Path) -> PathBuf {
    state.join("alive.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_from_outside_and_gone_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        assert!(!is_held(&path));
        let lock = FileLock::try_exclusive(&path).unwrap().unwrap();
        assert!(is_held(&path));
        assert!(FileLock::try_exclusive(&path).unwrap().is_none());
        drop(lock);
        assert!(wait_free(&path, Duration::from_secs(1)));
    }

    #[test]
    fn a_lock_whose_file_was_deleted_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let lock = FileLock::try_exclusive(&path).unwrap().unwrap();
        assert!(lock.has_name());
        fs::remove_file(&path).unwrap();
        assert!(!lock.has_name());
        assert!(!is_held(&path), "and nobody finds it");
    }

    #[test]
    fn a_process_is_its_number_and_its_start() {
        let me = Identity::own().unwrap();
        assert!(me.alive());
        let other = Identity { started: me.started + 1, ..me };
        assert!(!other.alive() && other.open().is_none());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(i32::try_from(child.id()).unwrap()).unwrap();
        let fd = identity.open().unwrap();
        assert!(!fd.wait(Duration::from_millis(1)));
        fd.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(fd.wait(Duration::from_secs(5)));
        assert!(!identity.alive(), "remains are not alive");
        child.wait().unwrap();
    }
}

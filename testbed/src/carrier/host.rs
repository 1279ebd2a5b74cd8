//! The `host` carrier: a world made of namespaces of this kernel.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::lock::PidFd;

/// Namespaces of a world, beside the process namespace.
const OWN: CloneFlags = CloneFlags::CLONE_NEWNS
    .union(CloneFlags::CLONE_NEWNET)
    .union(CloneFlags::CLONE_NEWUTS)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWCGROUP);

/// What ties a child to its keeper.
#[derive(Debug)]
pub struct Leash {
    keeper: PidFd,
    lock: RawFd,
}

impl Leash {
    /// For children of this process, which inherit the descriptor `lock`.
    pub fn new(lock: BorrowedFd<'_>) -> Result<Self> {
        let own = i32::try_from(std::process::id())?;
        Ok(Self { keeper: PidFd::open(own)?, lock: lock.as_raw_fd() })
    }

    /// Runs in the child between fork and exec: signals as usual, death with the keeper, the lock kept open.
    fn fasten(&self) -> std::io::Result<()> {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // the keeper may have died before the line above; its handle tells
        let keeper = std::os::fd::AsFd::as_fd(&self.keeper);
        if poll(&mut [PollFd::new(keeper, PollFlags::POLLIN)], PollTimeout::ZERO)? > 0 {
            return Err(std::io::Error::other("the keeper is gone"));
        }
        // SAFETY: the keeper holds the lock open until it ends, and this child is a copy of it.
        // JUSTIFICATION: the descriptor must be inherited, which borrowed types cannot say.
        let lock = unsafe { BorrowedFd::borrow_raw(self.lock) };
        fcntl(lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    }
}

/// Lets `command` run on a leash, without namespaces of its own.
pub fn on_leash(command: &mut Command, leash: Leash) {
    // SAFETY: between fork and exec only system calls are made; this process has a single thread, so no lock can be held.
    // JUSTIFICATION: the parent-death signal and the inherited lock can only be set up there.
    unsafe { command.pre_exec(move || leash.fasten()) };
}

/// Starts `argv` as process 1 of new namespaces. Console output is appended to `console`.
///
/// Children started by this process afterwards would join the same process namespace, so call it once.
///
/// # Errors
/// The kernel refuses a namespace (usually: not root), or the program does not start.
pub fn spawn(
    argv: &[String],
    env: impl IntoIterator<Item = (String, String)>,
    console: &Path,
    cgroup: Option<&Path>,
    leash: Leash,
) -> Result<Child> {
    let (program, args) = argv.split_first().context("no program for process 1")?;
    let open = || File::options().create(true).append(true).open(console);
    let output = open().with_context(|| format!("cannot write {}", console.display()))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .envs(env)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut group = cgroup.and_then(|path| File::options().write(true).open(path.join("cgroup.procs")).ok());
    // SAFETY: between fork and exec only system calls are made; this process has a single thread, so no lock can be held.
    // JUSTIFICATION: namespaces of the child alone can only be made there.
    unsafe {
        command.pre_exec(move || {
            leash.fasten()?;
            if let Some(group) = &mut group {
                // a world outside its group still works
                let _ = group.write_all(b"0");
            }
            unshare(OWN)?;
            Ok(())
        });
    }
    unshare(CloneFlags::CLONE_NEWPID)
        .context("the kernel refuses a new process namespace (the host carrier needs root)")?;
    command.spawn().with_context(|| format!("cannot start {program} in new namespaces"))
}

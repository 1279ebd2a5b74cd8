//! Network namespaces, held by descriptors.
//!
//! A thread that changes its namespace can infect whatever runs on it later, so every function here works in a
//! short-lived thread of its own and never moves the caller's.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::KernelError;

/// Runs `work` in a short-lived thread inside the namespace and returns what it returned.
///
/// # Errors
/// When the namespace cannot be entered or the thread cannot be started.
pub fn enter<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
    in_thread("enter a network namespace", || {
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|e| KernelError::from_errno("enter a network namespace", e))?;
        Ok(work())
    })
}

/// Visits many namespaces with one short-lived thread: `work` is called inside each, in order, with its index.
///
/// # Errors
/// When a namespace cannot be entered; those before it have been visited.
pub fn tour<T: Send>(
    namespaces: &[BorrowedFd<'_>],
    mut work: impl FnMut(usize) -> T + Send,
) -> Result<Vec<T>, KernelError> {
    in_thread("visit network namespaces", || {
        let mut results = Vec::with_capacity(namespaces.len());
        for (index, namespace) in namespaces.iter().enumerate() {
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|e| KernelError::from_errno("enter a network namespace", e))?;
            results.push(work(index));
        }
        Ok(results)
    })
}

/// Creates an anonymous network namespace; it lives as long as the descriptor (or a mount, or a process in it).
///
/// # Errors
/// When the kernel refuses (EPERM without CAP_SYS_ADMIN, ENOSPC at the namespace limit).
pub fn create() -> Result<OwnedFd, KernelError> {
    let mut made = create_many(1)?;
    made.pop().ok_or_else(|| KernelError {
        errno: libc::EIO,
        text: None,
        doing: "create a network namespace".to_owned(),
    })
}

/// Creates several anonymous network namespaces in one thread.
///
/// # Errors
/// When the kernel refuses; those made before are closed again.
pub fn create_many(count: usize) -> Result<Vec<OwnedFd>, KernelError> {
    let doing = "create a network namespace";
    in_thread(doing, || {
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| KernelError::from_errno(doing, e))?;
            let file = File::open("/proc/thread-self/ns/net").map_err(|e| KernelError::from_io(doing, &e))?;
            made.push(OwnedFd::from(file));
        }
        Ok(made)
    })
}

/// Opens a namespace by path (a bind mount, or `/proc/<pid>/ns/net`).
///
/// # Errors
/// When the file cannot be opened. Whether it is a namespace shows when it is entered.
pub fn open(path: &Path) -> Result<OwnedFd, KernelError> {
    let doing = || format!("open the network namespace {}", path.display());
    let file = File::open(path).map_err(|e| KernelError::from_io(doing(), &e))?;
    Ok(OwnedFd::from(file))
}

/// Opens the calling thread's own network namespace.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn current() -> Result<OwnedFd, KernelError> {
    open(Path::new("/proc/thread-self/ns/net"))
}

/// Gives a namespace a name: binds it to `path`, which is created as an empty file if needed. `ip netns exec`
/// finds names under `/run/netns`.
///
/// # Errors
/// When the file cannot be made or the mount is refused.
pub fn bind(namespace: BorrowedFd<'_>, path: &Path) -> Result<(), KernelError> {
    let doing = || format!("bind a network namespace to {}", path.display());
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|e| KernelError::from_io(doing(), &e))?;
    let source = format!("/proc/thread-self/fd/{}", namespace.as_raw_fd());
    mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|e| KernelError::from_errno(doing(), e))
}

/// Takes a namespace's name away: unmounts `path` and removes the file. Nothing happens if there is none.
///
/// # Errors
/// When the mount is busy in a way that even a lazy unmount refuses, or the file cannot be removed.
pub fn unbind(path: &Path) -> Result<(), KernelError> {
    let doing = || format!("remove the name {} of a network namespace", path.display());
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => {}
        Err(e) => return Err(KernelError::from_errno(doing(), e)),
    }
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(KernelError::from_io(doing(), &e)),
    }
}

/// Whether a descriptor is a network namespace (and not, say, the empty file left by a lost mount).
pub fn is_namespace(file: &impl AsFd) -> bool {
    let magic = nix::sys::statfs::fstatfs(file).map(|s| s.filesystem_type());
    magic.is_ok_and(|m| m == nix::sys::statfs::NSFS_MAGIC)
}

/// Runs `work` in a scoped thread and joins it.
fn in_thread<T: Send>(
    doing: &str,
    work: impl FnOnce() -> Result<T, KernelError> + Send,
) -> Result<T, KernelError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|e| KernelError::from_io(doing, &e))?;
        match thread.join() {
            Ok(result) => result,
            // The panic was in the caller's closure: let it go on there.
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

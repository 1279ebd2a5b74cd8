//! Kernel settings under `/proc/sys` of a network namespace.
//!
//! `/proc/sys/net` shows the namespace of the thread that looks, so reading and writing happen in a thread that
//! has entered it. Keys are written with dots (`net.ipv6.conf.all.forwarding`), or with slashes where a part
//! has a dot itself (`net/ipv6/conf/to-chi.2/accept_dad`).

use std::fs;
use std::os::fd::BorrowedFd;

use crate::{KernelError, netns};

/// The file of a key.
pub fn path(key: &str) -> String {
    let slashed = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    format!("/proc/sys/{slashed}")
}

/// Writes a setting in the calling thread's namespace.
///
/// # Errors
/// When the key does not exist (module missing) or the value is refused; the error names both.
pub fn write_here(key: &str, value: &str) -> Result<(), KernelError> {
    fs::write(path(key), value).map_err(|e| KernelError::from_io(format!("set {key} to {value}"), &e))
}

/// Reads a setting in the calling thread's namespace; `None` if the kernel has no such key.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn read_here(key: &str) -> Result<Option<String>, KernelError> {
    match fs::read_to_string(path(key)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(KernelError::from_io(format!("read {key}"), &e)),
    }
}

/// Writes settings in a namespace, in order, and reports the fate of each.
///
/// # Errors
/// When the namespace cannot be entered.
pub fn write(
    namespace: BorrowedFd<'_>,
    settings: &[(&str, &str)],
) -> Result<Vec<Result<(), KernelError>>, KernelError> {
    netns::enter(namespace, || settings.iter().map(|(key, value)| write_here(key, value)).collect())
}

/// Reads settings in a namespace, in order; `None` for a key that the kernel lacks.
///
/// # Errors
/// When the namespace cannot be entered or a file cannot be read.
pub fn read(namespace: BorrowedFd<'_>, keys: &[&str]) -> Result<Vec<Option<String>>, KernelError> {
    netns::enter(namespace, || keys.iter().map(|key| read_here(key)).collect())?
}

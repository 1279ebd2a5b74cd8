//! The one error of this crate.

use std::fmt;
use std::io;

/// A refusal by the kernel, or a failure to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelError {
    /// Positive errno.
    pub errno: i32,
    /// The kernel's own explanation (`NLMSGERR_ATTR_MSG` of its extended acknowledgement), if it gave one.
    pub text: Option<String>,
    /// What was being done: "add route 2001:db8::/48 to table 100".
    pub doing: String,
}

impl KernelError {
    /// Builds an error from an I/O error and what was being done.
    pub fn from_io(doing: impl Into<String>, error: &io::Error) -> Self {
        let text = if error.raw_os_error().is_some() { None } else { Some(error.to_string()) };
        Self { errno: error.raw_os_error().unwrap_or(libc::EIO), text, doing: doing.into() }
    }

    /// Builds an error from an errno and what was being done.
    pub fn from_errno(doing: impl Into<String>, errno: nix::errno::Errno) -> Self {
        Self { errno: errno as i32, text: None, doing: doing.into() }
    }

    /// Whether the kernel said that the thing does not exist (ENOENT, ESRCH, ENODEV or EADDRNOTAVAIL, depending
    /// on the kind of object).
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::EADDRNOTAVAIL)
    }

    /// Whether the kernel said that the thing exists already.
    pub fn exists(&self) -> bool {
        self.errno == libc::EEXIST
    }

    /// Whether the kernel does not know the feature (module missing, or older kernel).
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno, libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT)
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = nix::errno::Errno::from_raw(self.errno);
        write!(f, "cannot {}: {}", self.doing, name.desc())?;
        if let Some(text) = &self.text {
            write!(f, " (kernel: {text})")?;
        }
        Ok(())
    }
}

impl std::error::Error for KernelError {}

impl From<KernelError> for io::Error {
    fn from(error: KernelError) -> Self {
        let kind = io::Error::from_raw_os_error(error.errno).kind();
        io::Error::new(kind, error)
    }
}

//! The one error type of the command line: what to say, what to do next, and which exit code.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Exit codes, fixed and documented in `docs/commands.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A check failed or an action was refused.
    Failed,
    /// Bad usage, bad input, nothing matched.
    Usage,
    /// Passed with warnings.
    Warnings,
    /// The machine lacks something.
    Lacking,
    /// A fault of ours.
    Internal,
    /// A deadline passed.
    TimedOut,
    /// Interrupted.
    Interrupted,
}

impl Code {
    /// The process exit code.
    pub fn number(self) -> u8 {
        match self {
            Code::Failed => 1,
            Code::Usage => 2,
            Code::Warnings => 3,
            Code::Lacking => 4,
            Code::Internal => 5,
            Code::TimedOut => 124,
            Code::Interrupted => 130,
        }
    }

    /// The code of a process exit code.
    pub fn of_number(number: u8) -> Option<Self> {
        use Code::{Failed, Internal, Interrupted, Lacking, TimedOut, Usage, Warnings};
        let all = [Failed, Usage, Warnings, Lacking, Internal, TimedOut, Interrupted];
        all.into_iter().find(|code| code.number() == number)
    }
}

/// An error as a person should read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Exit code class.
    pub code: Code,
    /// What went wrong, where and why.
    pub message: String,
    /// What to do next, if anything is known.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Turns any error chain into a [`Failure`]: one that is in the chain is kept, all else is internal.
pub fn from_error(error: &anyhow::Error) -> Failure {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.clone();
        }
        if let Some(lacking) = cause.downcast_ref::<crate::carrier::Lacking>() {
            return Failure::new(Code::Lacking, lacking.what.clone()).hint(lacking.next.clone());
        }
    }
    match lacking_room(error) {
        Some(next) => Failure::new(Code::Lacking, format!("{error:#}")).hint(next),
        None => Failure::new(Code::Internal, format!("{error:#}")),
    }
}

/// What to do about an error that comes of a full disk.
pub fn lacking_room(error: &anyhow::Error) -> Option<&'static str> {
    let full = |cause: &(dyn std::error::Error + 'static)| {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| matches!(e.kind(), StorageFull | QuotaExceeded))
    };
    error
        .chain()
        .any(full)
        .then_some("make room there, or name other places with TESTBED_STATE and TESTBED_CACHE")
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_full_disk_is_what_the_machine_lacks() {
        let write = Err::<(), _>(std::io::Error::from_raw_os_error(libc::ENOSPC)).context("cannot write x");
        assert_eq!(from_error(&write.unwrap_err()).code, Code::Lacking);
        let other = Err::<(), _>(std::io::Error::from_raw_os_error(libc::EIO)).context("cannot write x");
        assert_eq!(from_error(&other.unwrap_err()).code, Code::Internal);
    }
}

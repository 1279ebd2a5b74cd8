//! The only place that builds and rebuilds a lab in a kernel.
//!
//! In this room: the [`Kernel`] trait, which observes a [`State`] and carries out a [`Plan`]; the Linux kernel over
//! raw netlink ([`linux`]); a kernel in memory that refuses what Linux would refuse ([`memory`]), so that most
//! tests need neither root nor time. Not in this room: any decision about what to do ([`crate::plan`]), and the
//! programs of a lab.

pub mod linux;
pub mod memory;

use std::collections::BTreeSet;
use std::fmt;

use rtnl::KernelError;

use crate::plan::{Action, Plan, State};

/// Route protocol that marks the orchestrator's routes, labels, neighbours and addresses (`RTPROT_STATIC`).
pub const PROTOCOL: u8 = 4;

/// Which part of a lab to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only these nodes; `None` for all of the lab.
    pub nodes: Option<BTreeSet<String>>,
}

impl Scope {
    /// All of the lab.
    pub const fn all() -> Self {
        Self { nodes: None }
    }

    /// Only some nodes.
    pub fn nodes<S: Into<String>>(nodes: impl IntoIterator<Item = S>) -> Self {
        Self { nodes: Some(nodes.into_iter().map(Into::into).collect()) }
    }

    /// Whether a node is in it.
    pub fn contains(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Actions done.
    pub done: usize,
    /// Actions in the plan.
    pub total: usize,
    /// What comes next: the heading of its phase.
    pub next: &'static str,
}

/// A failed action, or a failed observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyError {
    /// The first action that failed; `None` for an observation.
    pub action: Option<Box<Action>>,
    /// What the kernel said.
    pub source: KernelError,
    /// How many further actions of the same step failed too. Later steps were not begun.
    pub others: usize,
}

impl ApplyError {
    /// Whether nothing is wrong but that the kernel cannot do something at all.
    pub fn is_unsupported(&self) -> bool {
        self.source.is_unsupported()
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(action) = &self.action {
            write!(f, "{} {} ({}): ", action.sign().symbol(), action.change, action.reason)?;
        }
        write!(f, "{}", self.source)?;
        if self.others > 0 {
            write!(f, "; {} more of the same step failed", self.others)?;
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<KernelError> for ApplyError {
    fn from(source: KernelError) -> Self {
        Self { action: None, source, others: 0 }
    }
}

/// A kernel in which one lab lives.
pub trait Kernel {
    /// What is there of the lab: only what carries its mark.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn observe(&mut self, scope: &Scope) -> Result<State, ApplyError>;

    /// Carries out a plan, in order, and stops after the first step in which something failed. `progress` is
    /// called at the beginning of each step and at the end.
    ///
    /// # Errors
    /// The first failed action.
    fn apply(&mut self, plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<(), ApplyError>;
}

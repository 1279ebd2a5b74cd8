//! What is to be done, as a value: the wanted state of a lab, the observed one, and the ordered actions between.
//!
//! In this room: [`desired`], which turns a resolved lab into the kernel state it needs; [`State`], which is also
//! what a kernel observes; [`diff`], which compares the two and gives a [`Plan`] whose every [`Action`] has a
//! reason. All of it is pure: same input, same output. Not in this room: the kernel ([`crate::apply`] observes
//! and executes), the programs of a lab, and kernel state that programs own (routes of other protocols than
//! ours, nexthops, rules), which never appears in a [`State`] and so is never touched.

mod action;
mod desired;
mod diff;
mod display;
mod faults;
mod impair;
mod queue;
mod rpc;
mod state;

pub use action::{Action, Change, EndSpec, Phase};
pub use desired::{BAND_PACKETS, Options, desired, managed_sysctls, shut};
pub use diff::diff;
pub use display::{Counts, Plan, Sign};
pub use faults::{Faults, bonded_members, delay_us};
pub use impair::{Impairment, MILLION, percent};
pub use queue::{Harm, LATE_QUEUES, Queue};
pub use rpc::{RPC_PROGRAMS, RpcFault, RpcHow, delays, ports};
pub use state::{Fate, Filter, Interface, LabelRoute, Mac, Node, Route, State};

#[cfg(test)]
mod tests;

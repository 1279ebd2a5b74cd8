//! Probes: streams of numbered packets between hosts of the lab, and what became of them.
//!
//! In this room: what to send ([`Spec`]), the pure accounting of one stream ([`LossTracker`]), the pacing, the two
//! threads that send and receive ([`start`], [`run`]), the report as JSON and as a table ([`Report`]), and a matrix
//! of who reaches whom ([`reach`]). Not in this room: making hosts or routes, breaking anything, and judging
//! whether a loss was allowed.
//!
//! A stream has many flows, one per source address (any address of a host's local prefix is its own), because
//! planes are chosen by address and port and label-switched paths at transit routers by address only. Packet `n`
//! of a stream belongs to flow `n % flows`. Sender and receiver are threads of one process, so that one
//! `CLOCK_MONOTONIC` stamps both ends; arrivals carry the kernel's time stamp.

mod clock;
mod engine;
pub mod histogram;
pub mod pace;
pub mod reach;
pub mod report;
mod sender;
mod socket;
pub mod spec;
pub mod table;
pub mod tracker;
pub mod wire;

#[cfg(test)]
mod native;
#[cfg(test)]
pub mod testlab;
#[cfg(test)]
pub mod testnet;

pub use engine::{Handle, ProbeError, run, start};
pub use reach::{ReachPair, ReachReport, reach};
pub use report::{ClassTotals, Report, StreamReport, Times};
pub use spec::{Class, HostSpec, Spec, SpecError, StreamSpec};
pub use tracker::{LossTracker, LossWindow};

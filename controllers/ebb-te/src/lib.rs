//! The what-if command: what would traffic engineering make of this network and these demands?
//!
//! In this room: readers for topologies and matrices, the choice of what to compute, tables, JSON and plots. The
//! computation is in `te`, and this crate alone knows files. Readers work on text in memory and never panic; what is
//! wrong comes back as [`topologies::Problem`], with file and line.

pub mod network;
pub mod options;
pub mod output;
pub mod plot;
pub mod read;
pub mod table;

pub use network::{Network, NetworkDemand};

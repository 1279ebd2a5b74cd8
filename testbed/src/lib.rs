//! The orchestrator.

pub mod bird;
pub mod graph;
pub mod probe;
pub mod carrier;
pub mod plan;
pub mod apply;
pub mod api;
pub mod cli;
pub mod failure;
pub mod state;
pub mod supervise;

//! The orchestrator: worlds for labs, what the kernel must be told, the supervisor inside, the command line.
//!
//! In this room: carriers, plan and apply, supervision, BIRD's files, probes, drawings, the API and its client. Not in
//! this room: what a lab file means (`topologies`), what routers and controllers do (`router-emu`, `controllers`).

pub mod api;
pub mod apply;
pub mod bird;
pub mod carrier;
pub mod cli;
pub mod failure;
pub mod figures;
pub mod graph;
pub mod plan;
pub mod probe;
pub mod scenario;
pub mod selection;
pub mod state;
pub mod supervise;

//! The controller of one EBB plane: snapshot, traffic engineering, programming, again and again.
//!
//! In this room: what the controller makes of the routers' key-value store, counters and bundle dumps
//! ([`topology`], [`traffic`], [`fleet`]), what it decides to write ([`plan`]), the make-before-break order in which it
//! writes ([`driver`]), the leader's lock and epoch ([`fence`]), and the cycle that ties them together
//! ([`controller`]). All of that is pure or works on the [`agents::Agents`] trait; only [`grpc`], [`fence`], [`stats`] and
//! [`service`] touch the world. Not in this room: path algorithms (crate `te`), what a router does with a bundle (crate
//! `router-emu`), and anything of the testbed: this program runs against any routers that speak the RPC.
//!
//! The controller keeps nothing that it could not lose: versions and paths are read back from the routers in every cycle,
//! so a new process continues where the last one stopped. Smoothed demands are kept by a service of their own ([`nhg_tm`]).

pub mod agents;
pub mod collect;
pub mod config;
pub mod controller;
pub mod drains;
pub mod driver;
pub mod fence;
pub mod fleet;
pub mod grpc;
pub mod nhg_tm;
pub mod plan;
pub mod program;
pub mod rollout;
pub mod service;
pub mod stats;
pub mod topology;
pub mod traffic;

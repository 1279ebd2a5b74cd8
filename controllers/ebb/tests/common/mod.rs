//! A plane without a network: routers in memory that do what the agents' RPC promises.
//!
//! Failures are injected per call. After every write the forwarding of all live bundles is walked: a packet that meets an
//! intermediate node without its SID is a black hole, and is noted.
#![allow(dead_code, unused_imports)] // each test file uses a part of it

pub mod plane;
pub mod ring;

pub use plane::{Call, FakeLock, FakePlane, Verdict};
pub use ring::{config, ring};

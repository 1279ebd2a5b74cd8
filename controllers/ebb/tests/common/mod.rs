//! A plane without a network: routers in memory that do what the agents' RPC promises.
//!
//! Failures are injected per call. After every write the forwarding of all live bundles is walked: a packet that meets an
//! intermediate node without its SID is a black hole, and is noted.
#![allow(dead_code, unused_imports)] // each test file uses a part of it

use ebb::config::ControllerConfig;
use ebb::controller::Controller;
use ebb::drains::Drains;
use ebb::stats::StatsSink;

pub mod plane;
pub mod ring;

pub use plane::{Call, FakeLock, FakePlane, Verdict};
pub use ring::{config, ring};

/// A controller without memory on a plane.
pub fn controller(c: &ControllerConfig, p: &FakePlane) -> Controller<FakePlane, FakeLock> {
    Controller::new(
        c.clone(),
        p.clone(),
        FakeLock::default(),
        StatsSink::none(),
        Drains::in_memory().unwrap(),
    )
}

//! Scenarios: what is to happen to a lab, what must hold meanwhile, and the record of what did happen.
//!
//! In this room: the scenario file with its types and positions, the conditions that steps wait for and check, the
//! record of a run, what is concluded from it (the timeline of a failure, causes of loss), and its reports. All of it is
//! pure: no socket, no clock, no file. Not in this room: carrying steps out and observing a lab (`testbed`'s engine).
//!
//! ```text
//! text ── file ── check ──► model::Scenario ──► engine ──► record::Entry … ──► record::Run ──► report
//!                                                 ▲
//!                        expr::Condition ◄── facts it observes
//! ```

mod check;
pub mod conclude;
pub mod describe;
pub mod expr;
pub mod file;
pub mod model;
pub mod record;
pub mod report;
pub mod vars;
pub mod words;

pub use check::{Loaded, load};

/// JSON Schema (draft 2020-12) of a scenario file, for editors.
pub fn schema() -> serde_json::Value {
    topologies::schema_of::<file::ScenarioFile>("Testbed scenario file")
}

//! What follows from a record: which event began each stretch of loss, and how the lab came back from each failure.
//!
//! In this room: reasoning over a [`Run`] that is over or still goes on. It looks at nothing but the record.
//!
//! ```text
//! faults, events ── failures ──┐
//! losses, events ── cause ─────┴── timeline ──► Run::timelines
//! ```

mod cause;
mod failure;
mod timeline;
mod words;

#[cfg(test)]
mod tests;

use crate::record::Run;

/// Fills in [`Loss::cause`](crate::record::Loss::cause) of every window of loss and [`Run::timelines`]. What was
/// concluded before is replaced, so that doing it twice is doing it once. It does not depend on the order of the events.
pub fn conclude(run: &mut Run) {
    cause::find(run);
    let failures = failure::all(run);
    run.timelines = timeline::all(run, &failures);
}

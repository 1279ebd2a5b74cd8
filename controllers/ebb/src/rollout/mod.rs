//! Changes of configuration that go out to whole planes, and come back by themselves if they do harm.
//!
//! In this room: what is looked at and when it is an alarm ([`detect`]), the order of pushing, watching, confirming and
//! rolling back ([`core`], a value that is told what came of its orders), the file that says what to do ([`config`]), and the
//! program around it ([`run`]), which reaches the routers in-band. Not in this room: what a router does with a
//! configuration, and when it goes back by itself (`router_emu::config_agent`).
//!
//! Planes take a change one after the other, the first of them being the canary. Every router has to be told that it may
//! keep a change; one that a change has cut off is not, and goes back by itself. So whoever pushes needs no way to the
//! routers to undo what he did, and may die.

pub mod config;
pub mod core;
pub mod detect;
pub mod run;
#[cfg(test)]
mod tests;

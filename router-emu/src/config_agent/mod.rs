//! The config-agent: the router's structured configuration, one version after the other.
//!
//! In this room: what a configuration may say ([`check`]), the versions with the one that runs and the one that waits for
//! its confirmation ([`core`], a value that is told what is wanted and what time it is), the file in which they outlive the
//! program ([`journal`]), the order in which file and interfaces are written ([`driver`]), and the program around it. Not
//! in this room: what the other agents make of it (openr reads it again when told), and where configurations come from.
//!
//! A push that has to be confirmed is undone by the router itself, because whoever pushed it may have cut the branch that
//! he sits on. The journal is one file that is replaced by rename before anything is done to the router: a program that is
//! killed at any moment finds either the old state or the new one, and does again what may have been left undone.

pub mod agent;
pub mod check;
pub mod core;
pub mod driver;
pub mod edit;
pub mod journal;
mod reload;
mod service;
#[cfg(test)]
mod tests;

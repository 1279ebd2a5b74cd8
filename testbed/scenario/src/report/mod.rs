//! What people and other programs read of a run: a page, a few lines for a terminal, JUnit XML.
//!
//! In this room: pure functions from a [`Run`](crate::record::Run) to text. Whatever a record contains, names and
//! notes included, is shown as text and can neither break out of its document nor drive a terminal.

pub mod figures;
pub mod html;
pub mod junit;
pub mod text;

#[cfg(test)]
mod sample;

//! The lab model: what a lab file says, checked and resolved, without touching the machine.
//!
//! In this room: the file format with its types and units, parsing with positions, semantic checks, generators
//! that turn planes into routers and links, selectors, the JSON Schema. Not in this room: anything that reads
//! the kernel, starts a program or opens a socket.
//!
//! ```text
//! text ── parse ──► file::LabFile ── check ──► spec ── generate ──► lab::Lab ◄── select, look-ups
//! ```

mod check;
pub mod file;
mod generate;
pub mod index;
pub mod lab;
pub mod labs;
mod lookup;
pub mod name;
pub mod near;
pub mod parse;
pub mod problem;
pub mod report;
pub mod scalar;
mod schema;
pub mod select;
mod spec;
pub mod units;
pub mod words;

pub use labs::{builtin, builtins};
pub use problem::{Errors, Problem};
pub use schema::{schema, schema_of};
pub use select::{SelectError, Selector};

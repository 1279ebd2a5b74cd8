//! The lab model: what a lab file says, checked and resolved, without touching the machine.
//!
//! In this room: the file format with its types and units, parsing with positions, semantic checks, generators
//! that turn planes into routers and links, selectors, the JSON Schema. Not in this room: anything that reads
//! the kernel, starts a program or opens a socket.

pub mod lab;
pub mod units;

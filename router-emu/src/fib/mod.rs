//! The FIB agent: Open/R's routes in the kernel's main table.
//!
//! In this room: what is wanted against what the kernel has, as a pure function ([`table`]); the agent that keeps
//! the two equal, over a kernel behind a trait ([`agent`]); the RPC and the program ([`program`]). Kernel routes
//! are soft: the kernel drops them with a link, the agent puts them back when it returns. Not in this room: label
//! routes, BGP's routes, any route that is not of protocol 99.

pub mod agent;
pub mod program;
pub mod table;

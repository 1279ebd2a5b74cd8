//! The lsp-agent: nexthop groups, binding-SID routes and local repair of one router.
//!
//! In this room: the pure core ([`links`], [`bundle`], [`state`], [`engine`]), which turns programmed bundles and link
//! events into kernel writes without any input or output of its own, and around it the kernel adaptor, the journal, the
//! counters and the RPC service. Not in this room: path computation, interface labels (installed at boot, never touched
//! here), routes of prefixes (the route-agent's).

pub mod agent;
pub mod bundle;
pub mod counters;
pub mod driver;
pub mod engine;
pub mod journal;
pub mod kernel;
pub mod links;
pub mod order;
pub mod service;
pub mod state;
pub mod store;
#[cfg(test)]
pub(crate) mod tests;

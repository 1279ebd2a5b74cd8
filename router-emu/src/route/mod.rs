//! The route-agent: which prefix and class enters which nexthop group, and how much traffic does.
//!
//! In this room: the pure core ([`table`]), which joins BIRD's hand-over tables with the controller's map, and around it
//! the kernel adaptor, classification rules, traffic counters and the RPC service. Not in this room: nexthop groups
//! themselves (the lsp-agent's), BGP (BIRD's), the fallback table's routes (BIRD's).

pub mod agent;
pub mod kernel;
pub mod service;
pub mod state;
pub mod table;
#[cfg(test)]
mod tests;
pub mod traffic;

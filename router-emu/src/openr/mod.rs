//! The link-state agent: who is next to us, what everybody says of himself, and the shortest ways.
//!
//! In this room: neighbour discovery ([`spark`], [`packet`], [`rtt`]), damping of links that go up and down ([`damping`]), the flooded store ([`store`], [`sync`],
//! [`flood`]), what we announce ([`adjacency`], [`drain`]), the notice of lost links that runs ahead of the store ([`flare`]), the detection of silent failures ([`bfd`]), shortest paths ([`spf`], [`decision`]), all tied
//! together in [`node`] as a value that takes events and gives actions; and the program around it ([`program`]
//! and what it uses), which alone touches sockets, netlink and clocks. Not in this room: routes in the kernel
//! (the fib-agent's), labels, traffic engineering.

pub mod action;
pub mod adjacency;
pub mod bfd;
mod bundle;
mod ctrl;
pub mod damping;
pub mod decision;
pub mod drain;
mod fib_client;
pub mod flare;
pub mod flood;
mod hub;
mod link;
mod neighbor;
pub mod node;
pub mod packet;
mod port;
pub mod program;
mod reflex;
pub mod rtt;
mod session;
pub mod spark;
pub mod spf;
pub mod store;
pub mod sync;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod sim_tests;
#[cfg(test)]
mod spark_tests;

//! The emulated EBB router.
//!
//! In this room: the label codec, the agents (openr, fib-agent, lsp-agent, route-agent, config-agent, key-agent), their
//! configuration and the RPC they serve. Not in this room: anything that knows the testbed; given addresses and a
//! configuration file these programs run on any Linux router.

pub mod agent;
pub mod config;
pub mod config_agent;
pub mod events;
pub mod fib;
pub mod key_agent;
pub mod label;
pub mod lsp;
pub mod openr;
pub mod route;
pub mod rpc;

/// The RPC messages and services, generated from `proto/ebb.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("testbed.ebb.v1");
}

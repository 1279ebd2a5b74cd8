//! What the controller asks of the agents, as a trait: one implementation speaks gRPC, another lives in tests.

use std::future::Future;

use router_emu::proto;
use thiserror::Error;

/// Why an agent did not do as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AgentError {
    /// It has seen a higher epoch: somebody else leads, or has led.
    #[error("{router}: {call} was refused, a higher epoch has been seen: {message}")]
    Fenced {
        /// Router.
        router: String,
        /// Name of the call.
        call: &'static str,
        /// The agent's words.
        message: String,
    },
    /// No answer, in time or at all. Whether the call was carried out is unknown.
    #[error("{router}: {call} was not answered: {message}; tried again next cycle")]
    Silent {
        /// Router.
        router: String,
        /// Name of the call.
        call: &'static str,
        /// What is known.
        message: String,
    },
    /// The agent answered with an error.
    #[error("{router}: {call} failed: {message}; tried again next cycle")]
    Refused {
        /// Router.
        router: String,
        /// Name of the call.
        call: &'static str,
        /// The agent's words.
        message: String,
    },
}

/// Answer of an agent.
pub type Answer<T> = Result<T, AgentError>;

/// The agents of a plane, addressed by router name. Every call ends by its deadline.
pub trait Agents {
    /// openr: the whole key-value store under `adj:`.
    fn store(&self, router: &str) -> impl Future<Output = Answer<Vec<proto::KeyValue>>> + Send;
    /// lsp-agent: all bundles.
    fn bundles(
        &self,
        router: &str,
        paths: bool,
    ) -> impl Future<Output = Answer<proto::DumpBundlesReply>> + Send;
    /// lsp-agent: one phase for a batch of bundles.
    fn program(
        &self,
        router: &str,
        request: proto::ProgramBundleRequest,
    ) -> impl Future<Output = Answer<Vec<proto::BundleResult>>> + Send;
    /// route-agent: its map from (destination, mesh) to group.
    fn map(&self, router: &str) -> impl Future<Output = Answer<proto::DumpRoutesReply>> + Send;
    /// route-agent: changes to that map.
    fn program_map(
        &self,
        router: &str,
        request: proto::ProgramMapRequest,
    ) -> impl Future<Output = Answer<()>> + Send;
    /// route-agent: bytes from the fabric by destination and mesh.
    fn traffic(&self, router: &str) -> impl Future<Output = Answer<proto::GetTrafficReply>> + Send;
}

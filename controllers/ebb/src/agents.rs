//! What the controller asks of the agents, as a trait: one implementation speaks gRPC, another lives in tests.

use std::future::Future;

use router_emu::proto;
use thiserror::Error;

use crate::fence::Lease;

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
    /// Not sent: the lead of this controller is over.
    #[error("{router}: {call} was not sent, this controller's lease of the lead has run out")]
    Lapsed {
        /// Router.
        router: String,
        /// Name of the call.
        call: &'static str,
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

impl AgentError {
    /// Whether this controller does not lead any more: it must not go on writing.
    pub const fn ends_lead(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Lapsed { .. })
    }

    /// The call and what came of it, without the router and without what a controller makes of it.
    pub fn plain(&self) -> String {
        match self {
            Self::Fenced { call, message, .. }
            | Self::Silent { call, message, .. }
            | Self::Refused { call, message, .. } => format!("{call}: {message}"),
            Self::Lapsed { call, .. } => format!("{call} was not sent"),
        }
    }
}

/// Answer of an agent.
pub type Answer<T> = Result<T, AgentError>;

/// The agents of a plane, addressed by router name, and its traffic-matrix service. Every call ends by its deadline.
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
    /// nhg-tm: the traffic matrix; `None` if the plane has no such service.
    fn matrix(&self) -> impl Future<Output = Answer<Option<proto::GetMatrixReply>>> + Send;
}

/// Agents that are written to only while the lease of the lead lasts. What is under way when it ends is refused by the
/// agents themselves once another leader has written.
#[derive(Debug)]
pub struct Leased<'a, A> {
    /// The agents.
    pub agents: &'a A,
    /// The lease.
    pub lease: Lease,
}

impl<A> Leased<'_, A> {
    fn check(&self, router: &str, call: &'static str) -> Answer<()> {
        if self.lease.valid() { Ok(()) } else { Err(AgentError::Lapsed { router: router.to_owned(), call }) }
    }
}

impl<A: Agents + Sync> Agents for Leased<'_, A> {
    async fn store(&self, router: &str) -> Answer<Vec<proto::KeyValue>> {
        self.agents.store(router).await
    }

    async fn bundles(&self, router: &str, paths: bool) -> Answer<proto::DumpBundlesReply> {
        self.agents.bundles(router, paths).await
    }

    async fn program(
        &self,
        router: &str,
        request: proto::ProgramBundleRequest,
    ) -> Answer<Vec<proto::BundleResult>> {
        self.check(router, "ProgramBundle")?;
        self.agents.program(router, request).await
    }

    async fn map(&self, router: &str) -> Answer<proto::DumpRoutesReply> {
        self.agents.map(router).await
    }

    async fn program_map(&self, router: &str, request: proto::ProgramMapRequest) -> Answer<()> {
        self.check(router, "ProgramMap")?;
        self.agents.program_map(router, request).await
    }

    async fn matrix(&self) -> Answer<Option<proto::GetMatrixReply>> {
        self.agents.matrix().await
    }
}

//! The agents of a plane over gRPC.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use router_emu::config::{CONFIG_AGENT_PORT, LSP_AGENT_PORT, OPENR_PORT, ROUTE_AGENT_PORT};
use router_emu::proto::{
    self, lsp_agent_client::LspAgentClient, nhg_tm_client::NhgTmClient, openr_ctrl_client::OpenrCtrlClient,
    route_agent_client::RouteAgentClient,
};
use router_emu::rpc::{tcp_channel, unix_channel};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::agents::{AgentError, Agents, Answer};
use crate::config::RouterEntry;

mod rollout;

/// Largest answer: a dump of all bundles with paths of a router in a large plane.
const MAX_ANSWER: usize = 64 << 20;

/// Stands for the traffic-matrix service where routers are named.
pub const NHG_TM: &str = "nhg-tm";
/// Longest wait for the traffic matrix.
const MATRIX_TIMEOUT: Duration = Duration::from_secs(1);

/// How to reach a router's agents.
#[derive(Clone, Debug)]
pub enum Reach {
    /// In-band: TCP to the loopback.
    Loopback(std::net::Ipv6Addr),
    /// In-band: TCP to this address.
    Service(SocketAddr),
    /// The unix sockets in the router's run folder.
    Sockets(PathBuf),
}

/// An agent of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Agent {
    Openr,
    Lsp,
    Route,
    Config,
    NhgTm,
}

/// The agents over gRPC; channels are made when first used.
#[derive(Debug)]
pub struct GrpcAgents {
    reach: BTreeMap<String, Reach>,
    timeout: Duration,
    channels: Mutex<BTreeMap<(String, Agent), Channel>>,
}

impl GrpcAgents {
    /// In-band to all these routers.
    pub fn new(routers: &[RouterEntry], timeout: Duration) -> Self {
        let reach = routers.iter().map(|r| (r.name.clone(), Reach::Loopback(r.loopback)));
        Self::with_reach(reach.collect(), timeout)
    }

    /// With a traffic-matrix service.
    #[must_use]
    pub fn with_matrix(mut self, service: Option<SocketAddr>) -> Self {
        self.reach.extend(service.map(|address| (NHG_TM.to_owned(), Reach::Service(address))));
        self
    }

    /// With the ways given.
    pub fn with_reach(reach: BTreeMap<String, Reach>, timeout: Duration) -> Self {
        Self { reach, timeout, channels: Mutex::new(BTreeMap::new()) }
    }

    fn channel(&self, router: &str, agent: Agent) -> Result<Channel, Status> {
        let reach = self
            .reach
            .get(router)
            .ok_or_else(|| Status::not_found("no such router in the controller's configuration"))?;
        let make = || match reach {
            Reach::Loopback(address) => tcp_channel(SocketAddr::from((*address, agent.port()))),
            Reach::Service(address) => tcp_channel(*address),
            Reach::Sockets(folder) => unix_channel(folder.join(agent.socket())),
        };
        let mut channels = self.channels.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(channels.entry((router.to_owned(), agent)).or_insert_with(make).clone())
    }

    /// route-agent: bytes from the fabric by destination and mesh.
    pub async fn traffic(&self, router: &str) -> Answer<proto::GetTrafficReply> {
        let get = |channel| async move {
            RouteAgentClient::new(channel).get_traffic(proto::GetTrafficRequest {}).await
        };
        self.call(router, Agent::Route, "GetTraffic", get).await
    }

    fn forget(&self, router: &str, agent: Agent) {
        let mut channels = self.channels.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        channels.remove(&(router.to_owned(), agent));
    }

    /// Runs one call under the deadline and puts its error into words.
    async fn call<T, F>(
        &self,
        router: &str,
        agent: Agent,
        name: &'static str,
        run: impl FnOnce(Channel) -> F + Send,
    ) -> Answer<T>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>> + Send,
    {
        self.call_within(self.timeout, router, agent, name, run).await
    }

    async fn call_within<T, F>(
        &self,
        timeout: Duration,
        router: &str,
        agent: Agent,
        name: &'static str,
        run: impl FnOnce(Channel) -> F + Send,
    ) -> Answer<T>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>> + Send,
    {
        let status = match self.channel(router, agent) {
            Err(status) => status,
            Ok(channel) => {
                // also if the caller does not wait for the deadline
                let unanswered = Unanswered { agents: self, router, agent };
                let answer = tokio::time::timeout(timeout, run(channel)).await;
                if answer.is_ok() {
                    std::mem::forget(unanswered);
                }
                match answer {
                    Ok(Ok(reply)) => return Ok(reply.into_inner()),
                    Ok(Err(status)) => status,
                    Err(_) => Status::deadline_exceeded(format!("no answer in {} ms", timeout.as_millis())),
                }
            }
        };
        Err(in_words(router, name, &status))
    }
}

/// A call under way. Dropped without an answer, it takes its connection with it: one over a broken path wakes up only
/// after TCP's backed-off retransmission, and the next call makes a new one.
struct Unanswered<'a> {
    agents: &'a GrpcAgents,
    router: &'a str,
    agent: Agent,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.agents.forget(self.router, self.agent);
    }
}

impl Agent {
    fn port(self) -> u16 {
        match self {
            Self::Openr => OPENR_PORT,
            Self::Lsp => LSP_AGENT_PORT,
            Self::Route => ROUTE_AGENT_PORT,
            Self::Config => CONFIG_AGENT_PORT,
            // reached by its whole address
            Self::NhgTm => 0,
        }
    }

    fn socket(self) -> &'static str {
        match self {
            Self::Openr => "openr.sock",
            Self::Lsp => "lsp-agent.sock",
            Self::Route => "route-agent.sock",
            Self::Config => "config-agent.sock",
            Self::NhgTm => "nhg-tm.sock",
        }
    }
}

fn in_words(router: &str, call: &'static str, status: &Status) -> AgentError {
    let router = router.to_owned();
    let mut message = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    match status.code() {
        Code::FailedPrecondition => AgentError::Fenced { router, call, message },
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            AgentError::Silent { router, call, message }
        }
        _ => AgentError::Refused { router, call, message },
    }
}

impl Agents for GrpcAgents {
    async fn store(&self, router: &str) -> Answer<Vec<proto::KeyValue>> {
        let dump = |channel| async move {
            let mut client = OpenrCtrlClient::new(channel).max_decoding_message_size(MAX_ANSWER);
            client.dump(proto::DumpRequest { key_prefix: "adj:".into() }).await
        };
        self.call(router, Agent::Openr, "Dump", dump).await.map(|p| p.values)
    }

    async fn bundles(&self, router: &str, paths: bool) -> Answer<proto::DumpBundlesReply> {
        let dump = |channel| async move {
            let mut client = LspAgentClient::new(channel).max_decoding_message_size(MAX_ANSWER);
            client.dump_bundles(proto::DumpBundlesRequest { with_paths: paths }).await
        };
        self.call(router, Agent::Lsp, "DumpBundles", dump).await
    }

    async fn program(
        &self,
        router: &str,
        request: proto::ProgramBundleRequest,
    ) -> Answer<Vec<proto::BundleResult>> {
        let program = |channel| async move { LspAgentClient::new(channel).program_bundle(request).await };
        self.call(router, Agent::Lsp, "ProgramBundle", program).await.map(|r| r.results)
    }

    async fn map(&self, router: &str) -> Answer<proto::DumpRoutesReply> {
        let dump = |channel| async move {
            let mut client = RouteAgentClient::new(channel).max_decoding_message_size(MAX_ANSWER);
            client.dump_routes(proto::DumpRoutesRequest {}).await
        };
        self.call(router, Agent::Route, "DumpRoutes", dump).await
    }

    async fn program_map(&self, router: &str, request: proto::ProgramMapRequest) -> Answer<()> {
        let program = |channel| async move { RouteAgentClient::new(channel).program_map(request).await };
        self.call(router, Agent::Route, "ProgramMap", program).await.map(|_| ())
    }

    async fn matrix(&self) -> Answer<Option<proto::GetMatrixReply>> {
        if !self.reach.contains_key(NHG_TM) {
            return Ok(None);
        }
        let get = |channel| async move {
            let mut client = NhgTmClient::new(channel).max_decoding_message_size(MAX_ANSWER);
            client.get_matrix(proto::GetMatrixRequest {}).await
        };
        // the matrix of the cycle before is nearly as good: nothing waits long for a new one
        let timeout = self.timeout.min(MATRIX_TIMEOUT);
        self.call_within(timeout, NHG_TM, Agent::NhgTm, "GetMatrix", get).await.map(Some)
    }
}

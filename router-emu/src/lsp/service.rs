//! The RPC service: every call becomes a message to the agent's loop.

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use crate::events::{self, EventStream, Watched};
use crate::proto::lsp_agent_server::LspAgent;
use crate::proto::{
    DumpBundlesReply, DumpBundlesRequest, GetCountersReply, GetCountersRequest, ProgramBundleReply,
    ProgramBundleRequest, WatchEventsRequest,
};
use crate::rpc::Front;

/// A call with the place for its answer.
#[derive(Debug)]
pub enum Command {
    /// Program bundles.
    Program(ProgramBundleRequest, oneshot::Sender<Result<ProgramBundleReply, Status>>),
    /// Give out the bundles.
    Dump(DumpBundlesRequest, oneshot::Sender<DumpBundlesReply>),
    /// Read the counters.
    Counters(oneshot::Sender<Result<GetCountersReply, Status>>),
    /// Events so far, and those to come.
    Watch(oneshot::Sender<Watched>),
}

/// Front of the agent's loop.
pub type Service = Front<Command>;

#[tonic::async_trait]
impl LspAgent for Service {
    async fn program_bundle(
        &self,
        request: Request<ProgramBundleRequest>,
    ) -> Result<Response<ProgramBundleReply>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Program(request, reply)).await?.map(Response::new)
    }

    async fn dump_bundles(
        &self,
        request: Request<DumpBundlesRequest>,
    ) -> Result<Response<DumpBundlesReply>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Dump(request, reply)).await.map(Response::new)
    }

    async fn get_counters(
        &self,
        _: Request<GetCountersRequest>,
    ) -> Result<Response<GetCountersReply>, Status> {
        self.ask(Command::Counters).await?.map(Response::new)
    }

    type WatchEventsStream = EventStream;

    async fn watch_events(
        &self,
        _: Request<WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        self.ask(Command::Watch).await.map(events::stream).map(Response::new)
    }
}

//! The RPC service: every call becomes a message to the agent's loop.

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use crate::events::{self, EventStream, Watched};
use crate::proto::config_agent_server::ConfigAgent;
use crate::proto::{
    ConfigState, ConfirmConfigRequest, GetConfigRequest, PushConfigRequest, RollbackConfigRequest,
    WatchEventsRequest,
};
use crate::rpc::Front;

/// Place for the answer to a call.
pub type Reply = oneshot::Sender<Result<ConfigState, Status>>;

/// A call with the place for its answer.
#[derive(Debug)]
pub enum Command {
    /// See the RPC of that name.
    Get(GetConfigRequest, Reply),
    /// See the RPC of that name.
    Push(PushConfigRequest, Reply),
    /// See the RPC of that name.
    Confirm(ConfirmConfigRequest, Reply),
    /// See the RPC of that name.
    Rollback(RollbackConfigRequest, Reply),
    /// Events so far, and those to come.
    Watch(oneshot::Sender<Watched>),
}

/// Front of the agent's loop.
pub type Service = Front<Command>;

#[tonic::async_trait]
impl ConfigAgent for Service {
    async fn get_config(&self, request: Request<GetConfigRequest>) -> Result<Response<ConfigState>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Get(request, reply)).await?.map(Response::new)
    }

    async fn push_config(
        &self,
        request: Request<PushConfigRequest>,
    ) -> Result<Response<ConfigState>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Push(request, reply)).await?.map(Response::new)
    }

    async fn confirm_config(
        &self,
        request: Request<ConfirmConfigRequest>,
    ) -> Result<Response<ConfigState>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Confirm(request, reply)).await?.map(Response::new)
    }

    async fn rollback_config(
        &self,
        request: Request<RollbackConfigRequest>,
    ) -> Result<Response<ConfigState>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Rollback(request, reply)).await?.map(Response::new)
    }

    type WatchEventsStream = EventStream;

    async fn watch_events(
        &self,
        _: Request<WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        self.ask(Command::Watch).await.map(events::stream).map(Response::new)
    }
}

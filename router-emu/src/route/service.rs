//! The RPC service: every call becomes a message to the agent's loop.

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use crate::proto::route_agent_server::RouteAgent;
use crate::proto::{
    DumpRoutesReply, DumpRoutesRequest, GetTrafficReply, GetTrafficRequest, ProgramMapReply,
    ProgramMapRequest,
};
use crate::rpc::Front;

/// A call with the place for its answer.
#[derive(Debug)]
pub enum Command {
    /// Change the map.
    Program(ProgramMapRequest, oneshot::Sender<Result<ProgramMapReply, Status>>),
    /// Give out map and routes.
    Dump(oneshot::Sender<DumpRoutesReply>),
    /// Read the counters.
    Traffic(oneshot::Sender<Result<GetTrafficReply, Status>>),
}

/// Front of the agent's loop.
pub type Service = Front<Command>;

#[tonic::async_trait]
impl RouteAgent for Service {
    async fn program_map(
        &self,
        request: Request<ProgramMapRequest>,
    ) -> Result<Response<ProgramMapReply>, Status> {
        let request = request.into_inner();
        self.ask(|reply| Command::Program(request, reply)).await?.map(Response::new)
    }

    async fn dump_routes(&self, _: Request<DumpRoutesRequest>) -> Result<Response<DumpRoutesReply>, Status> {
        self.ask(Command::Dump).await.map(Response::new)
    }

    async fn get_traffic(&self, _: Request<GetTrafficRequest>) -> Result<Response<GetTrafficReply>, Status> {
        self.ask(Command::Traffic).await?.map(Response::new)
    }
}

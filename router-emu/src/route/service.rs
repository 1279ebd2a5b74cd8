//! The RPC service: every call becomes a message to the agent's loop.

use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::proto::route_agent_server::RouteAgent;
use crate::proto::{
    DumpRoutesReply, DumpRoutesRequest, GetTrafficReply, GetTrafficRequest, ProgramMapReply,
    ProgramMapRequest,
};

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
#[derive(Clone, Debug)]
pub struct Service {
    commands: mpsc::Sender<Command>,
}

impl Service {
    /// A service that sends its calls to `commands`.
    pub const fn new(commands: mpsc::Sender<Command>) -> Self {
        Self { commands }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        let ended = || Status::unavailable("the agent is ending; try again");
        self.commands.send(command(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}

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

//! The RPC service: every call becomes a message to the agent's loop.

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use crate::proto::key_agent_server::KeyAgent;
use crate::proto::{ListCircuitsReply, ListCircuitsRequest};
use crate::rpc::Front;

/// A call with the place for its answer.
#[derive(Debug)]
pub enum Command {
    /// See the RPC of that name.
    List(oneshot::Sender<ListCircuitsReply>),
}

/// Front of the agent's loop.
pub type Service = Front<Command>;

#[tonic::async_trait]
impl KeyAgent for Service {
    async fn list_circuits(
        &self,
        _: Request<ListCircuitsRequest>,
    ) -> Result<Response<ListCircuitsReply>, Status> {
        self.ask(Command::List).await.map(Response::new)
    }
}

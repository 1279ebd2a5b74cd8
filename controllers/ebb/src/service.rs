//! The controller's own RPC.

use std::sync::Arc;

use router_emu::proto::ebb_controller_server::{EbbController, EbbControllerServer};
use router_emu::proto::{ControllerState, GetStateRequest, RunCycleRequest};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::controller::{CycleRequest, Shared};

/// Largest answer: a large plane's mesh.
const MAX_ANSWER: usize = 256 << 20;

/// Serves `EbbController`.
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<Shared>,
    requests: mpsc::Sender<CycleRequest>,
}

impl Service {
    /// Answers from `shared`; passes requests for cycles on.
    pub fn new(shared: Arc<Shared>, requests: mpsc::Sender<CycleRequest>) -> Self {
        Self { shared, requests }
    }

    /// As a tonic service.
    pub fn into_server(self) -> EbbControllerServer<Self> {
        EbbControllerServer::new(self).max_encoding_message_size(MAX_ANSWER)
    }
}

#[tonic::async_trait]
impl EbbController for Service {
    async fn get_state(
        &self,
        request: Request<GetStateRequest>,
    ) -> Result<Response<ControllerState>, Status> {
        Ok(Response::new(self.shared.state(request.into_inner().with_mesh)))
    }

    async fn run_cycle(
        &self,
        request: Request<RunCycleRequest>,
    ) -> Result<Response<ControllerState>, Status> {
        let (done, ended) = oneshot::channel();
        let stopping = || Status::unavailable("the controller is stopping");
        let full = |e| match e {
            mpsc::error::TrySendError::Full(_) => Status::resource_exhausted(
                "too many cycles are asked for; the controller stands by, or is busy",
            ),
            mpsc::error::TrySendError::Closed(_) => stopping(),
        };
        self.requests.try_send(done).map_err(full)?;
        ended.await.map_err(|_| stopping())?;
        Ok(Response::new(self.shared.state(request.into_inner().with_mesh)))
    }
}

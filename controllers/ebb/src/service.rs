//! The controller's own RPC.

use std::sync::Arc;

use router_emu::proto::ebb_controller_server::{EbbController, EbbControllerServer};
use router_emu::proto::{ControllerState, DrainReply, DrainRequest, GetStateRequest, RunCycleRequest};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::controller::{CycleRequest, Shared};
use crate::drains::{Drains, Row};

/// Largest answer: a large plane's mesh.
const MAX_ANSWER: usize = 256 << 20;

/// Serves `EbbController`.
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<Shared>,
    requests: mpsc::Sender<CycleRequest>,
    drains: Drains,
}

impl Service {
    /// Answers from `shared`; passes requests for cycles on; keeps drains.
    pub fn new(shared: Arc<Shared>, requests: mpsc::Sender<CycleRequest>, drains: Drains) -> Self {
        Self { shared, requests, drains }
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
            mpsc::error::TrySendError::Full(_) => {
                Status::resource_exhausted("too many cycles are asked for; the controller is busy")
            }
            mpsc::error::TrySendError::Closed(_) => stopping(),
        };
        self.requests.try_send(done).map_err(full)?;
        ended.await.map_err(|_| stopping())?.map_err(Status::failed_precondition)?;
        Ok(Response::new(self.shared.state(request.into_inner().with_mesh)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainReply>, Status> {
        let rows = request.into_inner().rows;
        let failed = |e: anyhow::Error| Status::unavailable(format!("the drain database: {e:#}"));
        if let Some(row) = rows.iter().find(|row| row.router.is_empty()) {
            return Err(Status::invalid_argument(format!("a row names no router: {row:?}")));
        }
        self.drains.change(&rows).map_err(failed)?;
        let rows = self.drains.rows().map_err(failed)?.iter().map(Row::to_wire).collect();
        Ok(Response::new(DrainReply { rows }))
    }
}

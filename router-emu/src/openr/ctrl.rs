//! The control RPC: requests travel to the agent's thread of tasks and back.

use std::pin::Pin;

use futures::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::action::Event;
use super::hub::Hub;
use super::spark::MS;
use crate::agent::monotonic_ns;
use crate::proto::openr_ctrl_server::OpenrCtrl;
use crate::proto::{
    DumpRequest, GetNeighborsReply, GetNeighborsRequest, Neighbor, Publication, ReloadConfigReply,
    ReloadConfigRequest, SetDrainReply, SetDrainRequest, SubscribeRequest,
};

/// A request on its way to the agent.
pub enum Command {
    /// See the RPC of that name.
    Subscribe(String, oneshot::Sender<mpsc::Receiver<Publication>>),
    /// See the RPC of that name.
    Dump(String, oneshot::Sender<Publication>),
    /// See the RPC of that name.
    Neighbors(oneshot::Sender<Vec<Neighbor>>),
    /// See the RPC of that name.
    SetDrain(SetDrainRequest, oneshot::Sender<()>),
    /// See the RPC of that name.
    Reload(oneshot::Sender<Result<String, Status>>),
}

/// The service; clones share the way to the agent.
#[derive(Clone)]
pub struct Ctrl {
    commands: mpsc::Sender<Command>,
    interfaces: Vec<String>,
}

impl Ctrl {
    /// The service and the end that [`obey`] reads. `interfaces`: those that can be drained.
    pub fn new(interfaces: Vec<String>) -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(64);
        (Self { commands, interfaces }, receiver)
    }

    async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (sender, receiver) = oneshot::channel();
        let ending = |_| Status::unavailable("openr is ending");
        self.commands.send(make(sender)).await.map_err(|_| Status::unavailable("openr is ending"))?;
        receiver.await.map_err(ending)
    }
}

/// Answers requests until the last service is dropped.
///
/// `reload` reads the running configuration again and takes it over; its hash.
pub async fn obey(
    hub: Hub,
    mut commands: mpsc::Receiver<Command>,
    reload: impl Fn() -> anyhow::Result<String>,
) {
    while let Some(command) = commands.recv().await {
        // whoever asked may have gone: then nobody misses the answer
        match command {
            Command::Subscribe(prefix, reply) => drop(reply.send(hub.subscribe(prefix))),
            Command::Dump(prefix, reply) => {
                drop(reply.send(hub.read(|core| core.snapshot(monotonic_ns(), &prefix))));
            }
            Command::Neighbors(reply) => drop(reply.send(neighbors(&hub))),
            Command::SetDrain(request, reply) => {
                hub.dispatch(Event::SetDrain {
                    interface: request.interface,
                    overloaded: request.overloaded,
                    metric_increment: request.metric_increment,
                });
                let _ = reply.send(());
            }
            Command::Reload(reply) => {
                let refused = |e: anyhow::Error| Status::failed_precondition(format!("{e:#}"));
                drop(reply.send(reload().map_err(refused)));
            }
        }
    }
}

fn neighbors(hub: &Hub) -> Vec<Neighbor> {
    hub.read(|core| core.neighbors(monotonic_ns()))
        .into_iter()
        .map(|view| Neighbor {
            interface: view.interface,
            node: view.node,
            state: view.state.to_owned(),
            rtt_us: view.rtt_us,
            last_heard_ms_ago: view.silent / MS,
            held_ms: view.held.div_ceil(MS),
        })
        .collect()
}

#[tonic::async_trait]
impl OpenrCtrl for Ctrl {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<Publication, Status>> + Send>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let prefix = request.into_inner().key_prefix;
        let receiver = self.ask(|reply| Command::Subscribe(prefix, reply)).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver).map(Ok))))
    }

    async fn dump(&self, request: Request<DumpRequest>) -> Result<Response<Publication>, Status> {
        let prefix = request.into_inner().key_prefix;
        self.ask(|reply| Command::Dump(prefix, reply)).await.map(Response::new)
    }

    async fn get_neighbors(
        &self,
        _: Request<GetNeighborsRequest>,
    ) -> Result<Response<GetNeighborsReply>, Status> {
        let neighbors = self.ask(Command::Neighbors).await?;
        Ok(Response::new(GetNeighborsReply { neighbors }))
    }

    async fn set_drain(&self, request: Request<SetDrainRequest>) -> Result<Response<SetDrainReply>, Status> {
        let request = request.into_inner();
        if !request.interface.is_empty() && !self.interfaces.contains(&request.interface) {
            return Err(Status::not_found(format!(
                "no backbone interface {:?} here; there are {}",
                request.interface,
                self.interfaces.join(", ")
            )));
        }
        self.ask(|reply| Command::SetDrain(request, reply)).await?;
        Ok(Response::new(SetDrainReply {}))
    }

    async fn reload_config(
        &self,
        _: Request<ReloadConfigRequest>,
    ) -> Result<Response<ReloadConfigReply>, Status> {
        let hash = self.ask(Command::Reload).await??;
        Ok(Response::new(ReloadConfigReply { hash }))
    }
}

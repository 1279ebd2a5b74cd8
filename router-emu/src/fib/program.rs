//! The `fib-agent` program: the RPC, and the watch on links that brings routes back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rtnl::monitor::{Event, Group, Monitor};
use tokio::io::unix::AsyncFd;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::agent::{FibAgent, Netlink};
use crate::agent as program;
use crate::config::{FIB_AGENT_PORT, RouterConfig};
use crate::proto::fib_agent_server::{FibAgent as FibAgentRpc, FibAgentServer};
use crate::proto::{DumpFibRequest, FibReply, UnicastRoutes};
use crate::rpc;

/// How long link events are collected: they come in groups, and openr's news about them is on its way.
const SETTLE: Duration = Duration::from_millis(20);
/// When to try again what the kernel refused.
const RETRY: Duration = Duration::from_secs(1);

type Shared = Arc<Mutex<FibAgent<Netlink>>>;

/// Runs until SIGTERM; the kernel's routes stay.
pub async fn run(config: RouterConfig) -> anyhow::Result<()> {
    let stop = program::stop_signal()?;
    // subscribed before the first look, so that nothing is missed in between
    let monitor = program::watch(Monitor::open(&[Group::Link])?)?;
    let agent = FibAgent::start(Netlink::open()?)?;
    tracing::info!(node = config.node, routes = agent.len(), "fib-agent started with the kernel's routes");
    let agent: Shared = Arc::new(Mutex::new(agent));
    let service = Service(Arc::clone(&agent));
    let make = || Server::builder().add_service(FibAgentServer::new(service.clone()));
    let socket = config.socket("fib-agent");
    let ended = tokio::select! {
        () = stop.clone() => Ok(()),
        served = rpc::serve(make, FIB_AGENT_PORT, &socket, stop) => served,
        watched = watch(&agent, monitor) => watched,
    };
    tracing::info!("fib-agent ended");
    ended
}

async fn watch(agent: &Shared, mut monitor: AsyncFd<Monitor>) -> anyhow::Result<()> {
    let mut wait = None;
    loop {
        let news = tokio::select! {
            news = links_changed(&mut monitor) => news?,
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                wait = reconcile(agent);
                continue;
            }
        };
        if news {
            wait = Some(SETTLE);
        }
    }
}

/// Puts the kernel right; when to try again.
fn reconcile(agent: &Shared) -> Option<Duration> {
    match lock(agent).reconcile() {
        // routes that wait for an interface wait for its event
        Ok(failed) if failed.iter().all(|line| line.contains(" waits for ")) => None,
        Ok(failed) => {
            tracing::warn!("routes refused, trying again: {}", failed.join("; "));
            Some(RETRY)
        }
        Err(e) => {
            tracing::warn!("cannot compare the kernel's routes, trying again: {e:#}");
            Some(RETRY)
        }
    }
}

/// Waits for kernel events; whether a link was among them.
async fn links_changed(monitor: &mut AsyncFd<Monitor>) -> anyhow::Result<bool> {
    let mut guard = monitor.readable_mut().await.context("cannot wait for kernel events")?;
    let mut news = false;
    while let Some(event) = guard.get_inner_mut().try_recv().context("cannot read kernel events")? {
        news |= matches!(event, Event::Link(_) | Event::LinkDeleted(_) | Event::Overrun);
    }
    guard.clear_ready();
    Ok(news)
}

fn lock(agent: &Shared) -> MutexGuard<'_, FibAgent<Netlink>> {
    // the agent reads the kernel back whenever it matters: a panic elsewhere leaves nothing half done
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Service(Shared);

fn internal(error: &anyhow::Error) -> Status {
    Status::internal(format!("{error:#}"))
}

fn reply(failed: anyhow::Result<Vec<String>>) -> Result<Response<FibReply>, Status> {
    failed.map(|failed| Response::new(FibReply { failed })).map_err(|e| internal(&e))
}

#[tonic::async_trait]
impl FibAgentRpc for Service {
    async fn add_unicast_routes(
        &self,
        request: Request<UnicastRoutes>,
    ) -> Result<Response<FibReply>, Status> {
        reply(lock(&self.0).add(&request.into_inner().routes))
    }

    async fn delete_unicast_routes(
        &self,
        request: Request<UnicastRoutes>,
    ) -> Result<Response<FibReply>, Status> {
        reply(lock(&self.0).delete(&request.into_inner().routes))
    }

    async fn sync_fib(&self, request: Request<UnicastRoutes>) -> Result<Response<FibReply>, Status> {
        reply(lock(&self.0).sync(&request.into_inner().routes))
    }

    async fn dump_fib(&self, _: Request<DumpFibRequest>) -> Result<Response<UnicastRoutes>, Status> {
        let routes = lock(&self.0).dump().map_err(|e| internal(&e))?;
        Ok(Response::new(UnicastRoutes { routes }))
    }
}

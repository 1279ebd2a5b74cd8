//! The `openr` program: kernel events, sockets, clock and RPC around one core.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use rtnl::link::LinkInfo;
use rtnl::monitor::{Event as KernelEvent, Group, Monitor};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::task::spawn_local;
use tonic::transport::Server;

use super::action::Event;
use super::ctrl::{self, Ctrl};
use super::drain::Drains;
use super::hub::Hub;
use super::node::Openr;
use super::{fib_client, session};
use crate::agent;
use crate::config::{OPENR_PORT, RouterConfig};
use crate::proto::openr_ctrl_server::OpenrCtrlServer;
use crate::rpc;

/// How long the last packets and frames get on their way out.
const FAREWELL: Duration = Duration::from_millis(2);

/// Runs until SIGTERM. Kernel routes stay, neighbours are told to keep the links for the hold time.
pub async fn run(config: RouterConfig) -> anyhow::Result<()> {
    let drains = Drains::load(&config.state_dir)?;
    // never zero, and another one at every start
    let instance = rand::random::<u64>() | 1;
    let core = Openr::new(&config, drains, instance, agent::monotonic_ns());
    let hold = Duration::from_millis(config.openr.hold.max(1000));
    let (hub, routes) = Hub::new(core, config.state_dir.clone(), hold);
    let names: Vec<String> = config.interfaces.iter().map(|i| i.name.clone()).collect();

    let stop = agent::stop_signal()?;
    let listener = session::listen()?;
    let monitor = agent::watch(Monitor::open(&[Group::Link])?)?;
    read_links(&hub, &names)?;
    tracing::info!(node = config.node, instance, "openr started");

    let (service, commands) = Ctrl::new(names.clone());
    let make = || Server::builder().add_service(OpenrCtrlServer::new(service.clone()));
    let socket = config.socket("openr");
    let tasks = [
        spawn_local({
            let hub = hub.clone();
            async move { hub.keep_time().await }
        }),
        spawn_local(accept(hub.clone(), listener)),
        spawn_local(ctrl::obey(hub.clone(), commands)),
        spawn_local(fib_client::run(config.socket("fib-agent"), routes)),
    ];
    let ended = tokio::select! {
        // subscriptions never end by themselves, so the server is not waited for
        () = stop.clone() => Ok(()),
        served = rpc::serve(make, OPENR_PORT, &socket, stop) => served,
        watched = watch_links(&hub, monitor, &names) => watched,
    };
    hub.dispatch(Event::Goodbye);
    tokio::time::sleep(FAREWELL).await;
    for task in tasks {
        task.abort();
    }
    tracing::info!("openr ended");
    ended
}

async fn accept(hub: Hub, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, SocketAddr::V6(from))) if from.ip().is_unicast_link_local() => {
                hub.accepted(stream, from.scope_id());
            }
            Ok((_, from)) => tracing::warn!(%from, "store connection that is not from a link: closed"),
            Err(e) => {
                tracing::warn!("cannot accept a store connection: {e}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn watch_links(hub: &Hub, mut monitor: AsyncFd<Monitor>, names: &[String]) -> anyhow::Result<()> {
    loop {
        let mut guard = monitor.readable_mut().await.context("cannot wait for kernel events")?;
        loop {
            match guard.get_inner_mut().try_recv().context("cannot read kernel events")? {
                Some(KernelEvent::Link(link)) if names.contains(&link.name) => told(hub, &link),
                Some(KernelEvent::LinkDeleted(link)) if names.contains(&link.name) => {
                    hub.link_gone(&link.name);
                }
                Some(KernelEvent::Overrun) => read_links(hub, names)?,
                Some(_) => {}
                None => break,
            }
        }
        guard.clear_ready();
    }
}

fn told(hub: &Hub, link: &LinkInfo) {
    hub.link(&link.name, link.ifindex, link.up && link.running && link.lower_up);
}

/// Reads the state of all interfaces; those that do not exist (yet) are announced by events later.
fn read_links(hub: &Hub, names: &[String]) -> anyhow::Result<()> {
    let mut socket = rtnl::Socket::open(rtnl::socket::ROUTE)?;
    let links = rtnl::link::dump(&mut socket)?;
    for name in names {
        if let Some(link) = links.iter().find(|link| link.name == *name) {
            told(hub, link);
        } else {
            tracing::warn!(interface = name, "no such interface yet");
        }
    }
    Ok(())
}

//! The `openr` program: kernel events, sockets, clock and RPC around one core.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tonic::transport::Server;

use super::action::Event;
use super::ctrl::{self, Ctrl};
use super::drain::Drains;
use super::hub::Hub;
use super::node::Openr;
use super::reflex::{self, LinkNews, Reflex};
use super::{fib_client, session};
use crate::agent;
use crate::config::{Loaded, OPENR_PORT};
use crate::config_agent::check;
use crate::proto::openr_ctrl_server::OpenrCtrlServer;
use crate::rpc;

/// How long the last packets and frames get on their way out.
const FAREWELL: Duration = Duration::from_millis(2);

/// Runs until SIGTERM. Kernel routes stay, neighbours are told to keep the links for the hold time.
pub async fn run(loaded: Loaded) -> anyhow::Result<()> {
    let config = loaded.running();
    let drains = Drains::load(&config.state_dir)?;
    // never zero, and another one at every start
    let instance = rand::random::<u64>() | 1;
    let core = Openr::new(&config, drains, instance, agent::monotonic_ns());
    let hold = Duration::from_millis(config.openr.hold.max(1000));
    let (hub, routes) = Hub::new(core, config.state_dir.clone(), hold);
    let names: Vec<String> = config.interfaces.iter().map(|i| i.name.clone()).collect();

    let stop = agent::stop_signal()?;
    let listener = session::listen()?;
    let (reflex, mut news) = reflex::start(&config, instance, hub.speaks())?;
    let reflex = Rc::new(reflex);
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
        spawn_local(ctrl::obey(hub.clone(), commands, reload(&hub, &reflex, loaded))),
        spawn_local(fib_client::run(config.socket("fib-agent"), routes)),
    ];
    let ended = tokio::select! {
        // subscriptions never end by themselves, so the server is not waited for
        () = stop.clone() => Ok(()),
        served = rpc::serve(make, OPENR_PORT, &socket, stop) => served,
        failed = follow_links(&hub, &mut news) => failed,
    };
    hub.dispatch(Event::Goodbye);
    reflex.goodbye();
    tokio::time::sleep(FAREWELL).await;
    for task in tasks {
        task.abort();
    }
    tracing::info!("openr ended");
    ended
}

/// Reads the running configuration again and takes it over; its hash.
fn reload(hub: &Hub, reflex: &Rc<Reflex>, loaded: Loaded) -> impl Fn() -> anyhow::Result<String> + use<> {
    let (hub, reflex) = (hub.clone(), Rc::clone(reflex));
    move || {
        let fresh = loaded.again()?;
        let config = fresh.running();
        let findings = check::fixed(&loaded.base, &config);
        if let Some(finding) = findings.first() {
            anyhow::bail!("openr has to be started anew: {finding}");
        }
        let hash = config.hash();
        tracing::info!(hash, "configuration taken over");
        reflex.configure(&config.openr.bfd);
        hub.dispatch(Event::Configure(Box::new(config)));
        Ok(hash)
    }
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

/// Takes the kernel's news of links; ends with the reason why there is no more.
async fn follow_links(hub: &Hub, links: &mut mpsc::UnboundedReceiver<LinkNews>) -> anyhow::Result<()> {
    while let Some(news) = links.recv().await {
        match news {
            LinkNews::Is(name, ifindex, up) => hub.link(&name, ifindex, up),
            LinkNews::Members(interface, up) => hub.dispatch(Event::Members { interface, up }),
            LinkNews::Gone(name) => hub.link_gone(&name),
            LinkNews::Silent(name, silent) => hub.silent(name, silent),
        }
    }
    anyhow::bail!("the thread that watches the links has ended; the log says why")
}

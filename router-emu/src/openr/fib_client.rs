//! Keeps the fib-agent at the routes that are wanted: all of them after a connection is made, then differences.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tonic::transport::{Channel, Endpoint, Uri};

use super::spf::{Route, RouteTable};
use crate::proto::fib_agent_client::FibAgentClient;
use crate::proto::{FibReply, UnicastNextHop, UnicastRoute, UnicastRoutes};
use crate::rpc::RPC_TIMEOUT;

const FIRST_BACKOFF: Duration = Duration::from_millis(8);
const LAST_BACKOFF: Duration = Duration::from_millis(4096);
/// Kernel metric of our routes: above those of label-switched routes.
const METRIC: u32 = 1024;

/// A connection to the fib-agent that tells when it breaks.
struct Link {
    client: FibAgentClient<Channel>,
    broken: Arc<Notify>,
    programmed: BTreeMap<Ipv6Addr, Route>,
}

/// Programs every table that comes, for ever.
pub async fn run(socket: PathBuf, mut wanted: watch::Receiver<Option<Arc<RouteTable>>>) {
    let mut link: Option<Link> = None;
    let mut backoff = FIRST_BACKOFF;
    loop {
        let table = wanted.borrow_and_update().clone();
        let Some(table) = table else {
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        match program(&socket, &mut link, &table).await {
            Ok(failed) if failed.is_empty() => {
                backoff = FIRST_BACKOFF;
                let broken = link.as_ref().map(|l| Arc::clone(&l.broken)).unwrap_or_default();
                tokio::select! {
                    changed = wanted.changed() => if changed.is_err() { return },
                    () = broken.notified() => link = None,
                }
                continue;
            }
            Ok(failed) => tracing::warn!("routes refused, trying again: {}", failed.join("; ")),
            Err(e) => {
                // while the fib-agent is down this comes again and again: one line is enough
                if backoff == FIRST_BACKOFF {
                    tracing::warn!("fib-agent not reached, trying again: {e:#}");
                }
                link = None;
            }
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// Brings the agent to the table; the prefixes that it could not install.
async fn program(socket: &Path, link: &mut Option<Link>, table: &RouteTable) -> anyhow::Result<Vec<String>> {
    if let Some(link) = link {
        return link.update(table).await;
    }
    let mut fresh = connect(socket).await?;
    let routes = UnicastRoutes { routes: table.iter().map(|(l, r)| message(*l, r)).collect() };
    let reply = deadline(fresh.client.sync_fib(routes)).await?;
    fresh.programmed = table.clone();
    tracing::info!(routes = table.len(), "fib-agent synchronised");
    Ok(link.insert(fresh).forget(reply))
}

impl Link {
    /// Sends the difference: first what is new or other, then what goes.
    async fn update(&mut self, table: &RouteTable) -> anyhow::Result<Vec<String>> {
        let changed: Vec<UnicastRoute> = table
            .iter()
            .filter(|(l, r)| self.programmed.get(*l).is_none_or(|old| old.first_hops != r.first_hops))
            .map(|(l, r)| message(*l, r))
            .collect();
        let gone: Vec<UnicastRoute> = self
            .programmed
            .iter()
            .filter(|(l, _)| !table.contains_key(*l))
            .map(|(l, r)| message(*l, r))
            .collect();
        let mut failed = Vec::new();
        if !changed.is_empty() {
            let reply = deadline(self.client.add_unicast_routes(UnicastRoutes { routes: changed })).await?;
            failed.extend(reply.failed);
        }
        if !gone.is_empty() {
            let reply = deadline(self.client.delete_unicast_routes(UnicastRoutes { routes: gone })).await?;
            failed.extend(reply.failed);
        }
        self.programmed = table.clone();
        Ok(self.forget(FibReply { failed }))
    }

    /// Strikes refused prefixes from what is programmed, so that they are sent again.
    fn forget(&mut self, reply: FibReply) -> Vec<String> {
        for line in &reply.failed {
            let prefix = line.split(' ').next().unwrap_or_default();
            if let Some(loopback) = prefix.strip_suffix("/128").and_then(|a| a.parse().ok()) {
                self.programmed.remove(&loopback);
            }
        }
        reply.failed
    }
}

async fn deadline<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> anyhow::Result<T> {
    Ok(tokio::time::timeout(RPC_TIMEOUT, call).await??.into_inner())
}

async fn connect(socket: &Path) -> anyhow::Result<Link> {
    let broken = Arc::new(Notify::new());
    let (path, signal) = (socket.to_owned(), Arc::clone(&broken));
    let connector = tower::service_fn(move |_: Uri| {
        let (path, broken) = (path.clone(), Arc::clone(&signal));
        async move { UnixStream::connect(path).await.map(|stream| TokioIo::new(Watched { stream, broken })) }
    });
    let channel = Endpoint::from_static("http://local").connect_with_connector(connector).await?;
    Ok(Link { client: FibAgentClient::new(channel), broken, programmed: BTreeMap::new() })
}

fn message(loopback: Ipv6Addr, route: &Route) -> UnicastRoute {
    let hop = |(address, interface): &(Ipv6Addr, String)| UnicastNextHop {
        address: address.to_string(),
        interface: interface.clone(),
    };
    UnicastRoute {
        prefix: format!("{loopback}/128"),
        next_hops: route.first_hops.iter().map(hop).collect(),
        metric: METRIC,
    }
}

/// A stream whose end is told: the channel drops it as soon as the far side closes.
struct Watched {
    stream: UnixStream,
    broken: Arc<Notify>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.broken.notify_one();
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

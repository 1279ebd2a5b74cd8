//! Serving and reaching the agents: the same service on TCP and on a unix socket.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri, server::Router};

use crate::config::CONTROL_TCLASS;

/// Deadline for one RPC where the caller has no better idea.
pub const RPC_TIMEOUT: Duration = Duration::from_secs(5);

/// What an agent's RPC service is made of: every call becomes a message to the agent's loop, `C`, which carries the place
/// for its answer.
#[derive(Debug)]
pub struct Front<C> {
    commands: mpsc::Sender<C>,
}

// derived, it would ask for calls that can be copied
impl<C> Clone for Front<C> {
    fn clone(&self) -> Self {
        Self { commands: self.commands.clone() }
    }
}

impl<C> Front<C> {
    /// Sends calls to `commands`.
    pub const fn new(commands: mpsc::Sender<C>) -> Self {
        Self { commands }
    }

    /// Sends a call and waits for its answer.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the loop has ended.
    pub async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> C) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        let ended = || Status::unavailable("the agent is ending; try again");
        self.commands.send(command(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}

/// Serves `router` on TCP `[::]:port` and on the unix socket `path` until `stop` ends.
///
/// `make` is called twice: tonic consumes a router per listener.
pub async fn serve(
    make: impl Fn() -> Router,
    port: u16,
    path: &Path,
    stop: impl Future<Output = ()> + Send + Clone + 'static,
) -> anyhow::Result<()> {
    let tcp = listen_tcp(port)?;
    let unix = listen_unix(path)?;
    let tcp = TcpListenerStream::new(tcp).map(|s| s.inspect(|s| drop(s.set_nodelay(true))));
    let over_tcp = make().serve_with_incoming_shutdown(tcp, stop.clone());
    let over_unix = make().serve_with_incoming_shutdown(UnixListenerStream::new(unix), stop);
    tokio::try_join!(over_tcp, over_unix)?;
    Ok(())
}

fn listen_tcp(port: u16) -> anyhow::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    socket.set_reuseaddr(true)?;
    // accepted connections inherit the traffic class, so that answers ride the control class too
    socket2::SockRef::from(&socket).set_tclass_v6(CONTROL_TCLASS)?;
    let address: SocketAddr = ([0u16; 8], port).into();
    socket.bind(address).map_err(|e| anyhow::anyhow!("cannot listen on {address}: {e}"))?;
    Ok(socket.listen(64)?)
}

fn listen_unix(path: &Path) -> anyhow::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            anyhow::bail!("cannot remove the old socket {}: {e}", path.display())
        }
        _ => {}
    }
    UnixListener::bind(path).map_err(|e| anyhow::anyhow!("cannot listen on {}: {e}", path.display()))
}

/// A channel to a unix socket; connects when first used and again after a loss.
pub fn unix_channel(path: impl Into<PathBuf>) -> Channel {
    let path: PathBuf = path.into();
    endpoint("http://local").connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    }))
}

/// A channel to a TCP address, marked as control traffic; connects when first used and again after a loss.
pub fn tcp_channel(address: SocketAddr) -> Channel {
    endpoint("http://remote").connect_with_connector_lazy(tower::service_fn(move |_: Uri| async move {
        let socket = TcpSocket::new_v6()?;
        socket2::SockRef::from(&socket).set_tclass_v6(CONTROL_TCLASS)?;
        let stream: TcpStream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>(TokioIo::new(stream))
    }))
}

fn endpoint(uri: &'static str) -> Endpoint {
    Endpoint::from_static(uri).connect_timeout(Duration::from_secs(2))
}

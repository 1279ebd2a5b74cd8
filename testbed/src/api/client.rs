//! The client side: connect to a lab's supervisor, make one call, read its answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::frame::{self, Frame};
use super::protocol::{Call, Input, Reply, Request};
use crate::failure::{Code, Failure};

/// Where a supervisor listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// A unix socket (carrier `host`).
    Unix(PathBuf),
    /// A loopback port of the machine that reaches into the guest (carrier `vm`).
    Tcp(SocketAddr),
}

/// A connection with one call under way.
pub struct Connection {
    reader: Box<dyn AsyncRead + Unpin + Send>,
    writer: Box<dyn AsyncWrite + Unpin + Send>,
}

impl Connection {
    /// Connects and sends the call.
    pub async fn open(endpoint: &Endpoint, token: &str, request: Request) -> anyhow::Result<Self> {
        let (reader, writer): (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>) =
            match endpoint {
                Endpoint::Unix(path) => {
                    let (r, w) = UnixStream::connect(path).await.map_err(|e| broken(&e))?.into_split();
                    (Box::new(r), Box::new(w))
                }
                Endpoint::Tcp(address) => {
                    let stream = TcpStream::connect(address).await.map_err(|e| broken(&e))?;
                    stream.set_nodelay(true)?;
                    let (r, w) = stream.into_split();
                    (Box::new(r), Box::new(w))
                }
            };
        let mut connection = Self { reader, writer };
        let call = Call { token: token.to_owned(), request };
        frame::write(&mut connection.writer, &Frame::json(&call)?).await.map_err(|e| broken(&e))?;
        Ok(connection)
    }

    /// The next frame; `None` when the supervisor closed.
    pub async fn next(&mut self) -> anyhow::Result<Option<Frame>> {
        frame::read(&mut self.reader).await.map_err(|e| broken(&e).into())
    }

    /// The next reply; an error if the supervisor closed without an end or the call failed.
    pub async fn reply(&mut self) -> anyhow::Result<Reply> {
        let Some(frame) = self.next().await? else {
            return Err(lost().into());
        };
        match frame.parse()? {
            Reply::Failed(failure) => Err(failure.into()),
            reply => Ok(reply),
        }
    }

    /// Sends input.
    pub async fn send(&mut self, input: &Input) -> anyhow::Result<()> {
        Ok(frame::write(&mut self.writer, &Frame::json(input)?).await?)
    }

    /// Both halves, for commands that read and write at the same time.
    pub fn split(self) -> (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>) {
        (self.reader, self.writer)
    }
}

/// The failure of a connection that ended before its call did. A lab may be taken down or killed at any time, which is no
/// fault of ours.
pub fn lost() -> Failure {
    Failure::new(Code::Failed, "the lab's supervisor closed the connection before it had answered").hint(GONE)
}

/// The same, with the system's reason.
pub fn broken(why: &std::io::Error) -> Failure {
    Failure::new(Code::Failed, format!("lost the connection to the lab's supervisor: {why}")).hint(GONE)
}

const GONE: &str =
    "the lab may have ended: `testbed status` tells, console.log and logs/ in its state folder say why";

/// Makes a call and hands every reply but the last `Done` to `each`.
pub async fn call(
    endpoint: &Endpoint,
    token: &str,
    request: Request,
    mut each: impl FnMut(Reply),
) -> anyhow::Result<()> {
    let mut connection = Connection::open(endpoint, token, request).await?;
    loop {
        match connection.reply().await? {
            Reply::Done => return Ok(()),
            reply => each(reply),
        }
    }
}

/// One `Hello` with a deadline; whether the supervisor answered.
pub async fn hello(endpoint: &Endpoint, token: &str, deadline: Duration) -> bool {
    matches!(tokio::time::timeout(deadline, call(endpoint, token, Request::Hello, |_| ())).await, Ok(Ok(())))
}

//! The server side: accept, check the token, hand the call to the supervisor.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Mutex;

use super::frame::{self, Frame};
use super::protocol::{Call, Reply, Request};
use crate::failure::{self, Code, Failure};

/// Input side of a connection.
pub type Reader = Box<dyn AsyncRead + Unpin + Send>;

/// Output side of a connection; clones write to the same connection, a whole frame at a time.
#[derive(Clone)]
pub struct Writer(Arc<Mutex<Box<dyn AsyncWrite + Unpin + Send>>>);

impl Writer {
    /// Writes to `out`.
    pub fn new(out: Box<dyn AsyncWrite + Unpin + Send>) -> Self {
        Self(Arc::new(Mutex::new(out)))
    }

    /// Sends a reply.
    pub async fn reply(&self, reply: &Reply) -> anyhow::Result<()> {
        self.frame(&Frame::json(reply)?).await
    }

    /// Sends a progress line.
    pub async fn progress(&self, text: impl Into<String>) -> anyhow::Result<()> {
        self.reply(&Reply::Progress(text.into())).await
    }

    /// Sends a frame.
    pub async fn frame(&self, frame: &Frame) -> anyhow::Result<()> {
        let mut out = self.0.lock().await;
        Ok(frame::write(&mut *out, frame).await?)
    }
}

/// Who carries out requests.
pub trait Handler: Send + Sync + 'static {
    /// Carries out one request; what it returns becomes the last reply.
    fn handle(
        self: Arc<Self>,
        request: Request,
        input: Reader,
        output: Writer,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Serves a unix socket for ever.
pub async fn serve_unix(
    listener: UnixListener,
    token: String,
    handler: Arc<impl Handler>,
) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (r, w) = stream.into_split();
        tokio::spawn(connection(Box::new(r), Box::new(w), token.clone(), Arc::clone(&handler)));
    }
}

/// Serves a TCP port for ever.
pub async fn serve_tcp(
    listener: TcpListener,
    token: String,
    handler: Arc<impl Handler>,
) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (r, w) = stream.into_split();
        tokio::spawn(connection(Box::new(r), Box::new(w), token.clone(), Arc::clone(&handler)));
    }
}

async fn connection(
    mut input: Reader,
    output: Box<dyn AsyncWrite + Unpin + Send>,
    token: String,
    handler: Arc<impl Handler>,
) {
    let writer = Writer::new(output);
    // a client that says nothing must not hold a task for ever
    let first = tokio::time::timeout(Duration::from_secs(10), frame::read(&mut input)).await;
    let Ok(Ok(Some(first))) = first else { return };
    let last = match first.parse::<Call>() {
        Err(e) => {
            Reply::Failed(Failure::new(Code::Usage, format!("the call was not understood: {e}")).hint(
                "the command and the running lab may be of different versions: `testbed down`, then `up`",
            ))
        }
        Ok(call) if !same(&call.token, &token) => {
            Reply::Failed(Failure::new(Code::Usage, "wrong token: this is not your lab"))
        }
        Ok(call) => match handler.handle(call.request, input, writer.clone()).await {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed(failure::from_error(&error)),
        },
    };
    let _ = writer.reply(&last).await;
}

/// Comparison whose time does not tell how much of the token was right.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

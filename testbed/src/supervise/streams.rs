//! What a command in a node reads and writes, moved between its pipes (or terminal) and the client's connection.
//!
//! A command that reads nothing must not keep its client's signals, or its going away, from being heard: the client sends
//! at most [`WINDOW`] chunks that the command has not taken yet. And a client that is slow loses no output: time counts
//! against a background process that holds a pipe open, not against whoever reads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

use crate::api::frame::{self, Frame};
use crate::api::protocol::{Input, Reply, WINDOW};
use crate::api::server::{Reader, Writer};

/// How long what is left in a pipe is waited for after its command has ended: a background process may hold it open.
const TAIL_WAIT: Duration = Duration::from_millis(500);
/// How much is read after that end, bytes: all that a pipe can hold, and not all that a background process may yet write.
const TAIL_BYTES: usize = 1 << 20;

/// The outer side of a pseudo-terminal.
pub type Terminal = Arc<AsyncFd<OwnedFd>>;

/// What kind of frame a stream becomes.
pub type Kind = fn(Vec<u8>) -> Frame;

/// Where a command's input goes.
pub enum Sink {
    /// A pipe; nothing once the command has closed it.
    Pipe(Option<Box<dyn AsyncWrite + Unpin + Send>>),
    /// A terminal.
    Terminal(Terminal),
}

impl Sink {
    async fn take(&mut self, bytes: &[u8]) {
        match self {
            Sink::Pipe(pipe) => {
                let closed = match pipe {
                    Some(open) => open.write_all(bytes).await.is_err(),
                    None => false,
                };
                if closed {
                    *pipe = None;
                }
            }
            Sink::Terminal(terminal) => {
                // one that is closed has no more use for input
                let _ = write_terminal(terminal, bytes).await;
            }
        }
    }
}

/// Where a command's output comes from.
pub enum Source {
    /// A pipe.
    Pipe(Box<dyn AsyncRead + Unpin + Send>),
    /// A terminal.
    Terminal(Terminal),
}

impl Source {
    /// The next bytes; none at the end. What is not awaited to its end is not lost.
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Source::Pipe(pipe) => {
                let mut bytes = vec![0u8; 32 << 10];
                let n = pipe.read(&mut bytes).await?;
                bytes.truncate(n);
                Ok(bytes)
            }
            Source::Terminal(terminal) => read_terminal(terminal).await,
        }
    }
}

/// Moves the client's input to the command and the rest of what it says to `control`; returns when the client is gone.
pub async fn feed(mut input: Reader, output: Writer, mut sink: Sink, mut control: impl FnMut(Input)) {
    let (queue, mut chunks) = mpsc::channel::<Vec<u8>>(WINDOW);
    let hear = async move {
        let mut queue = Some(queue);
        loop {
            match frame::read(&mut input).await {
                Ok(Some(Frame::Data(bytes))) => {
                    if let Some(queue) = &queue {
                        let _ = queue.send(bytes).await;
                    }
                }
                Ok(Some(other)) => match other.parse::<Input>() {
                    Ok(Input::Eof) => queue = None,
                    Ok(other) => control(other),
                    Err(e) => tracing::debug!("input that makes no sense: {e}"),
                },
                Ok(None) | Err(_) => return,
            }
        }
    };
    let deliver = async move {
        while let Some(bytes) = chunks.recv().await {
            sink.take(&bytes).await;
            if output.reply(&Reply::Taken).await.is_err() {
                break;
            }
        }
        drop(sink); // which is the end of the command's input
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = hear => {}
        () = deliver => {}
    }
}

/// Moves a command's output to the client, until its end, or until `ended` says that the command is gone and nothing is left.
pub async fn pump(mut from: Source, to: Writer, kind: Kind, mut ended: watch::Receiver<bool>) {
    let mut wait = TAIL_WAIT;
    let mut room = TAIL_BYTES;
    loop {
        let over = *ended.borrow_and_update();
        let bytes = if over {
            let began = Instant::now();
            let Ok(read) = tokio::time::timeout(wait, from.next()).await else { return };
            wait = wait.saturating_sub(began.elapsed());
            read
        } else {
            tokio::select! {
                read = from.next() => read,
                change = ended.changed() => match change {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            }
        };
        let Ok(bytes) = bytes else { return };
        let last = bytes.is_empty() || (over && bytes.len() >= room);
        if bytes.is_empty() || to.frame(&kind(bytes.clone())).await.is_err() || last {
            return;
        }
        if over {
            room -= bytes.len();
        }
    }
}

async fn read_terminal(terminal: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; 16 << 10];
    loop {
        let mut ready = terminal.readable().await?;
        if let Ok(result) = ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), &mut bytes)?)) {
            bytes.truncate(result?);
            return Ok(bytes);
        }
    }
}

async fn write_terminal(terminal: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut ready = terminal.writable().await?;
        if let Ok(result) = ready.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), bytes)?)) {
            bytes = &bytes[result?..];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn writer(out: DuplexStream) -> Writer {
        Writer::new(Box::new(out))
    }

    /// Input: a command that reads nothing, a window full of chunks, then a signal, then the client goes.
    /// Output: the signal arrives, and the end is noticed.
    #[tokio::test]
    async fn signals_pass_input_that_nobody_takes() {
        let (mut client, server) = duplex(1 << 20);
        let (replies, _kept) = duplex(1 << 20);
        let (pipe, _never_read) = duplex(16);
        let (heard, mut signals) = mpsc::unbounded_channel();
        let task = tokio::spawn(feed(
            Box::new(server),
            writer(replies),
            Sink::Pipe(Some(Box::new(pipe))),
            move |input| {
                if let Input::Signal(number) = input {
                    let _ = heard.send(number);
                }
            },
        ));
        for _ in 0..WINDOW {
            frame::write(&mut client, &Frame::Data(vec![0; 1000])).await.unwrap();
        }
        frame::write(&mut client, &Frame::json(&Input::Signal(2)).unwrap()).await.unwrap();
        assert_eq!(tokio::time::timeout(LIMIT, signals.recv()).await.unwrap(), Some(2));
        drop(client);
        tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
    }

    /// Input: a command that has ended with output left in its pipe, and a client that reads later than any wait for it.
    /// Output: all of it.
    #[tokio::test]
    async fn a_slow_client_gets_all_of_the_output() {
        let (out, mut client) = duplex(1024);
        let (mut pipe, from) = duplex(64 << 10);
        pipe.write_all(&vec![7; 40_000]).await.unwrap();
        let (end, ended) = watch::channel(false);
        let task = tokio::spawn(pump(Source::Pipe(Box::new(from)), writer(out), Frame::Data, ended));
        end.send(true).unwrap();
        // the pipe stays open, as a background process would have it
        tokio::time::sleep(TAIL_WAIT * 2).await;
        let mut got = 0;
        while got < 40_000 {
            match tokio::time::timeout(LIMIT, frame::read(&mut client)).await {
                Ok(Ok(Some(Frame::Data(bytes)))) => got += bytes.len(),
                other => panic!("after {got} bytes: {other:?}"),
            }
        }
        tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
        drop(pipe);
    }

    /// Input: a background process that goes on writing after its command's end. Output: an end all the same.
    #[tokio::test]
    async fn a_background_process_that_never_stops_is_left_behind() {
        let (out, mut client) = duplex(1 << 16);
        let (end, ended) = watch::channel(true);
        let task = tokio::spawn(pump(
            Source::Pipe(Box::new(tokio::io::repeat(b'y'))),
            writer(out),
            Frame::Data,
            ended,
        ));
        let read = tokio::spawn(async move { while let Ok(Some(_)) = frame::read(&mut client).await {} });
        tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
        tokio::time::timeout(LIMIT, read).await.unwrap().unwrap();
        drop(end);
    }
}

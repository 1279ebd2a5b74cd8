//! TCP sessions between stores: written at once, buffered only when the kernel cannot take more.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

use crate::config::{CONTROL_TCLASS, KVSTORE_PORT};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A neighbour that lets this much pile up is too slow to be useful.
const MOST_PENDING: usize = 32 << 20;
const READ_BYTES: usize = 64 << 10;

/// One session; clones share it.
#[derive(Clone)]
pub struct Session {
    inner: Rc<Inner>,
}

struct Inner {
    stream: TcpStream,
    pending: RefCell<Vec<u8>>,
    wake: Notify,
}

impl Session {
    /// Takes over a connected stream. `hold`: how long unacknowledged data may wait before the session fails.
    pub fn new(stream: TcpStream, hold: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(hold))?;
        Ok(Self { inner: Rc::new(Inner { stream, pending: RefCell::default(), wake: Notify::new() }) })
    }

    /// Writes as much as the kernel takes now and keeps the rest for [`Self::drain`].
    ///
    /// # Errors
    /// The connection is broken, or the neighbour has stopped reading.
    pub fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut pending = self.inner.pending.borrow_mut();
        if pending.is_empty() {
            while !bytes.is_empty() {
                match self.inner.stream.try_write(bytes) {
                    Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if pending.len() + bytes.len() > MOST_PENDING {
            return Err(io::Error::other("the neighbour does not read what it is told"));
        }
        pending.extend_from_slice(bytes);
        self.inner.wake.notify_one();
        Ok(())
    }

    /// Writes what is pending, for ever; ends with the error that breaks the connection.
    pub async fn drain(&self) -> io::Error {
        loop {
            self.inner.wake.notified().await;
            while !self.inner.pending.borrow().is_empty() {
                if let Err(e) = self.inner.stream.writable().await {
                    return e;
                }
                let mut pending = self.inner.pending.borrow_mut();
                match self.inner.stream.try_write(&pending) {
                    Ok(written) => drop(pending.drain(..written)),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return e,
                }
            }
        }
    }

    /// The next bytes; empty at the end of the stream.
    pub async fn read(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            self.inner.stream.readable().await?;
            match self.inner.stream.try_read(&mut buffer) {
                Ok(length) => {
                    buffer.truncate(length);
                    return Ok(buffer);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Connects to a neighbour over one interface.
pub async fn connect(address: Ipv6Addr, port: u16, ifindex: u32) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v6()?;
    socket2::SockRef::from(&socket).set_tclass_v6(CONTROL_TCLASS)?;
    let target = SocketAddrV6::new(address, port, 0, ifindex).into();
    match tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(target)).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Listens for neighbours.
pub fn listen() -> anyhow::Result<TcpListener> {
    let what = || format!("cannot listen for neighbours' stores on TCP port {KVSTORE_PORT}");
    let socket = TcpSocket::new_v6().with_context(what)?;
    socket.set_reuseaddr(true).with_context(what)?;
    socket2::SockRef::from(&socket).set_tclass_v6(CONTROL_TCLASS).with_context(what)?;
    socket.bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, KVSTORE_PORT, 0, 0).into()).with_context(what)?;
    socket.listen(64).with_context(what)
}

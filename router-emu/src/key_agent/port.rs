//! The socket on which hellos travel: one for all circuits of the router.

use std::io;
use std::os::fd::AsRawFd as _;

use anyhow::Context as _;
use nix::sys::socket::{LinkAddr, recvfrom};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use tokio::io::unix::AsyncFd;

use super::hello::{ETHER_TYPE, GROUP, MAX_FRAME};

/// `sll_pkttype` of what we sent ourselves.
const PACKET_OUTGOING: u8 = 4;

/// An open socket.
pub struct Port {
    fd: AsyncFd<Socket>,
}

impl Port {
    /// Opens the socket in the calling thread's namespace.
    ///
    /// # Errors
    /// No packet sockets, or no right to them.
    pub fn open() -> anyhow::Result<Self> {
        let kind = Type::RAW.nonblocking().cloexec();
        let protocol = Protocol::from(i32::from(ETHER_TYPE.to_be()));
        let socket =
            Socket::new(Domain::PACKET, kind, Some(protocol)).context("cannot open a packet socket")?;
        // SAFETY: a Socket owns its descriptor, keeps it open and the same until it is dropped.
        // JUSTIFICATION: tokio has no packet sockets.
        let fd = unsafe { AsyncFd::register(socket) }
            .map_err(io::Error::from)
            .context("cannot watch a packet socket")?;
        Ok(Self { fd })
    }

    /// Sends a frame out of an interface. Never waits.
    ///
    /// # Errors
    /// The interface is down or gone, or its queue is full.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<()> {
        self.fd.get_ref().send_to(frame, &address(ifindex)?).map(drop)
    }

    /// The next frame, and the index of the interface that it came in by.
    ///
    /// # Errors
    /// A failure of the socket.
    pub async fn receive(&self) -> io::Result<(u32, Vec<u8>)> {
        loop {
            let mut guard = self.fd.readable().await?;
            match guard.try_io(|fd| receive_now(fd.get_ref())) {
                Ok(Ok(Some(received))) => return Ok(received),
                Ok(Ok(None)) => {}
                // told once of an interface that went down
                Ok(Err(e)) if e.raw_os_error() == Some(libc::ENETDOWN) => {}
                Ok(Err(e)) => return Err(e),
                Err(_would_block) => {}
            }
        }
    }
}

fn receive_now(socket: &Socket) -> io::Result<Option<(u32, Vec<u8>)>> {
    let mut buffer = [0; MAX_FRAME];
    let (length, from) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer)?;
    let from = from.filter(|from| from.as_ref().sll_pkttype != PACKET_OUTGOING);
    let index = from.and_then(|from| u32::try_from(from.ifindex()).ok());
    Ok(index.map(|index| (index, buffer[..length.min(MAX_FRAME)].to_vec())))
}

/// Out of an interface, to the other end of the wire.
fn address(ifindex: u32) -> io::Result<SockAddr> {
    let mut storage = SockAddrStorage::zeroed();
    let mut place = [0; 8];
    place[..6].copy_from_slice(&GROUP);
    // SAFETY: `sockaddr_ll` is plain data, and the storage is large enough and aligned for every kind of address.
    // JUSTIFICATION: neither nix nor socket2 makes addresses of packet sockets.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    *address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: ETHER_TYPE.to_be(),
        sll_ifindex: i32::try_from(ifindex).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: place,
    };
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    // SAFETY: the storage holds an address of this length, written above.
    // JUSTIFICATION: as above.
    Ok(unsafe { SockAddr::new(storage, length) })
}

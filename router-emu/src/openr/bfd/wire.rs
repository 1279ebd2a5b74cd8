//! Sockets of single-hop BFD (RFC 5881): one that hears, and one for each neighbour that sends.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::sys::socket::sockopt::{Ipv6RecvErr, Ipv6RecvHopLimit};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::packet::LENGTH;
use crate::config::{BFD_PORT, CONTROL_TCLASS};

/// First of the source ports that are allowed (same section); the last is the last there is.
const FIRST_SOURCE: u16 = 49152;
/// What has crossed no router (RFC 5881, section 5; RFC 5082).
const ONE_HOP: i32 = 255;
/// Longest datagram that is read: what is longer is not from a BFD without authentication.
const MAX_PACKET: usize = 2 * LENGTH;
/// "Destination unreachable", "no such port" (RFC 4443, section 3.1).
const PORT_UNREACHABLE: (u8, u8) = (1, 4);
/// `SO_EE_ORIGIN_ICMP6` of the kernel.
const FROM_ICMP6: u8 = 3;

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Sender, a link-local address.
    pub from: Ipv6Addr,
    /// Index of the interface that it came by.
    pub ifindex: u32,
    buffer: [u8; MAX_PACKET],
    length: usize,
}

impl Datagram {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

/// The socket that hears all neighbours.
pub struct Ear {
    socket: Socket,
    control: Vec<u8>,
}

impl Ear {
    /// Opens it in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
        socket.set_only_v6(true)?;
        setsockopt(&socket, Ipv6RecvHopLimit, &true)?;
        socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, BFD_PORT, 0, 0).into())?;
        Ok(Self { socket, control: nix::cmsg_space!(i32) })
    }

    /// The next datagram of a direct neighbour, if one is there. Others are dropped (RFC 5881, section 5).
    pub fn receive(&mut self) -> Option<Datagram> {
        loop {
            let mut buffer = [0; MAX_PACKET];
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let received = recvmsg::<SockaddrIn6>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut self.control),
                MsgFlags::MSG_DONTWAIT,
            );
            let message = match received {
                Ok(message) => message,
                Err(nix::errno::Errno::EINTR) => continue,
                // nothing there; an error of an earlier packet cannot be, because this socket does not send
                Err(_) => return None,
            };
            let direct = message
                .cmsgs()
                .is_ok_and(|mut all| all.any(|c| matches!(c, ControlMessageOwned::Ipv6HopLimit(ONE_HOP))));
            let (length, from) = (message.bytes, message.address);
            let from = from.filter(|from| direct && from.ip().is_unicast_link_local());
            if let Some(from) = from {
                return Some(Datagram { from: from.ip(), ifindex: from.scope_id(), buffer, length });
            }
        }
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Yes,
    /// It is not: no address yet, for instance.
    No,
    /// It is, but the neighbour's kernel has said of an earlier one that nobody listens.
    Unattended,
}

/// The socket that sends to one neighbour.
pub struct Mouth {
    peer: Ipv6Addr,
    ifindex: u32,
    socket: Option<Socket>,
    control: Vec<u8>,
}

impl Mouth {
    /// Towards a link-local address. Nothing is opened yet.
    pub fn new(peer: Ipv6Addr) -> Self {
        Self {
            peer,
            ifindex: 0,
            socket: None,
            control: nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6),
        }
    }

    /// Address of the neighbour.
    pub fn peer(&self) -> Ipv6Addr {
        self.peer
    }

    /// Index of the interface.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The interface has come up under this index, perhaps with another address: the next packet opens the socket anew.
    pub fn set_interface(&mut self, ifindex: u32) {
        self.ifindex = ifindex;
        self.socket = None;
    }

    /// Sends a packet. Never waits.
    pub fn send(&mut self, bytes: &[u8]) -> Sent {
        if self.socket.is_none() {
            self.socket = connect(self.peer, self.ifindex)
                .inspect_err(|e| tracing::debug!(ifindex = self.ifindex, "no BFD socket: {e}"))
                .ok();
        }
        let Some(socket) = &self.socket else { return Sent::No };
        if socket.send(bytes).is_ok() {
            return Sent::Yes;
        }
        // the kernel reports the fate of an earlier packet in the place of sending this one
        let unattended = self.unattended();
        match self.socket.as_ref().map(|socket| socket.send(bytes)) {
            Some(Ok(_)) if unattended => Sent::Unattended,
            Some(Ok(_)) => Sent::Yes,
            _ => Sent::No,
        }
    }

    /// Whether the neighbour's own kernel has said that nobody listens, since this was last asked.
    pub fn unattended(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        // clears the error that the next packet would meet
        let _ = socket.take_error();
        let mut said = false;
        loop {
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let received =
                recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut [], Some(&mut self.control), flags);
            let Ok(message) = received else { return said };
            let peer = self.peer.octets();
            said |= message.cmsgs().is_ok_and(|mut all| {
                all.any(|c| match c {
                    // an error of our own kernel (no neighbour entry, a filter) says nothing of the other end
                    ControlMessageOwned::Ipv6RecvErr(e, Some(offender)) => {
                        e.ee_origin == FROM_ICMP6
                            && (e.ee_type, e.ee_code) == PORT_UNREACHABLE
                            && offender.sin6_addr.s6_addr == peer
                    }
                    _ => false,
                })
            });
        }
    }
}

fn connect(peer: Ipv6Addr, ifindex: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_unicast_hops_v6(u32::try_from(ONE_HOP).unwrap_or(255))?;
    socket.set_tclass_v6(CONTROL_TCLASS)?;
    setsockopt(&socket, Ipv6RecvErr, &true)?;
    bind_source(&socket, ifindex)?;
    socket.connect(&SocketAddrV6::new(peer, BFD_PORT, 0, ifindex).into())?;
    // before the interface has its own address the kernel would take another one, for good
    let own = socket.local_addr()?.as_socket_ipv6();
    if own.is_none_or(|own| !own.ip().is_unicast_link_local()) {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok(socket)
}

/// Binds to a free source port, one for each session (RFC 5881, section 4).
fn bind_source(socket: &Socket, ifindex: u32) -> io::Result<()> {
    let ports = u16::MAX - FIRST_SOURCE + 1;
    let start = u16::try_from(ifindex % u32::from(ports)).unwrap_or_default();
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for k in 0..ports {
        let port = FIRST_SOURCE + (start + k) % ports;
        match socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into()) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            done => return done,
        }
    }
    Err(last)
}

//! The discovery socket of one interface.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd as _;

use anyhow::Context as _;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::unix::AsyncFd;

use super::packet::MAX_PACKET;
use crate::agent::monotonic_ns;
use crate::config::{CONTROL_TCLASS, SPARK_PORT};

/// All nodes of a link.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An open discovery socket.
pub struct Port {
    fd: AsyncFd<Socket>,
    group: SockAddr,
    /// Index that the interface had when the socket was opened.
    pub ifindex: u32,
}

/// A packet with its sender and the time at which the kernel took it (monotonic nanoseconds).
pub type Received = (Vec<u8>, Ipv6Addr, u64);

impl Port {
    /// Opens the socket of an interface.
    pub fn open(interface: &str, ifindex: u32) -> anyhow::Result<Self> {
        let socket = Self::socket(interface, ifindex).with_context(|| {
            format!("cannot open the discovery socket of {interface} (UDP port {SPARK_PORT})")
        })?;
        // SAFETY: a Socket owns its descriptor, keeps it open and the same until it is dropped.
        // JUSTIFICATION: tokio's own UDP socket gives no access to the kernel's arrival times.
        let fd = unsafe { AsyncFd::register(socket) }
            .map_err(io::Error::from)
            .context("cannot watch a discovery socket")?;
        Ok(Self { fd, group: SocketAddrV6::new(GROUP, SPARK_PORT, 0, ifindex).into(), ifindex })
    }

    fn socket(interface: &str, ifindex: u32) -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
        socket.set_only_v6(true)?;
        socket.set_reuse_address(true)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_multicast_if_v6(ifindex)?;
        socket.set_multicast_loop_v6(false)?;
        socket.set_multicast_hops_v6(1)?;
        socket.set_tclass_v6(CONTROL_TCLASS)?;
        // the kernel's own arrival times keep our scheduling delay out of the round-trip time
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReceiveTimestampns, &true)?;
        socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, SPARK_PORT, 0, 0).into())?;
        socket.join_multicast_v6(&GROUP, ifindex)?;
        Ok(socket)
    }

    /// Sends one packet to the link. Never waits.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.fd.get_ref().send_to(bytes, &self.group).map(drop)
    }

    /// The next packet.
    pub async fn receive(&self) -> io::Result<Received> {
        loop {
            let mut guard = self.fd.readable().await?;
            match guard.try_io(|fd| receive_now(fd.get_ref())) {
                Ok(Ok(Some(received))) => return Ok(received),
                Ok(Ok(None)) => {}
                Ok(Err(e)) => return Err(e),
                Err(_would_block) => {}
            }
        }
    }
}

/// One datagram; nothing if its sender is no IPv6 address.
fn receive_now(socket: &Socket) -> io::Result<Option<Received>> {
    let mut buffer = [0; MAX_PACKET + 1];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message =
        recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let stamp = message.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::ScmTimestampns(at) => Some(at),
        _ => None,
    });
    let (length, from) = (message.bytes, message.address);
    let arrived = stamp.map_or_else(monotonic_ns, to_monotonic);
    Ok(from.map(|from| (buffer[..length].to_vec(), from.ip(), arrived)))
}

/// Kernel arrival times are wall-clock times: their age is carried over to the monotonic clock.
fn to_monotonic(stamp: TimeSpec) -> u64 {
    let Ok(wall) = clock_gettime(ClockId::CLOCK_REALTIME) else { return monotonic_ns() };
    let seconds = u64::try_from(wall.tv_sec() - stamp.tv_sec()).unwrap_or(0);
    let nanos = seconds.saturating_mul(1_000_000_000).saturating_add_signed(wall.tv_nsec() - stamp.tv_nsec());
    // a wall clock that was set in between would give nonsense
    let age = if nanos > 1_000_000_000 { 0 } else { nanos };
    monotonic_ns().saturating_sub(age)
}

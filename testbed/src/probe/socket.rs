//! Sockets inside the hosts' namespaces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::engine::ProbeError;

/// Wanted socket buffers, bytes: a second of arrivals at full rate while the receiver is not running.
const BUFFER: usize = 8 << 20;
/// Source ports of a host that has no source prefix.
pub const MAX_PORTS: u16 = 40;

/// The sockets of one host.
pub struct HostSockets {
    /// Receives on a free port, all addresses of the host.
    pub receive: Socket,
    /// Its port.
    pub port: u16,
    /// Senders by code point: one if the host has many addresses, else one per source port.
    pub send: BTreeMap<u8, Vec<Socket>>,
}

/// Runs `work` in the network namespace at `path`, on a thread of its own that ends with it, so that no other
/// thread ever changes its namespace.
pub fn in_namespace<T: Send>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, ProbeError> {
    let namespace = File::open(path).map_err(|source| ProbeError::Namespace {
        path: path.to_path_buf(),
        what: "cannot open it",
        source,
    })?;
    let failed = |what| move |source| ProbeError::Namespace { path: path.to_path_buf(), what, source };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("probe-setns".into()).spawn_scoped(scope, move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET)
                .map_err(io::Error::from)
                .map_err(failed("cannot enter it"))?;
            work().map_err(failed("cannot open probe sockets in it"))
        });
        match thread.map_err(ProbeError::Thread)?.join() {
            Ok(result) => result,
            Err(_) => Err(ProbeError::Panic("the thread that opens sockets")),
        }
    })
}

/// Opens the sockets of the host whose namespace is `path`: a receiver, and senders for every code point in
/// `send`, each with that many source ports.
pub fn open(path: &Path, send: &BTreeMap<u8, u16>) -> Result<HostSockets, ProbeError> {
    in_namespace(path, || {
        let receive = udp()?;
        setsockopt(&receive, sockopt::ReceiveTimestampns, &true)?;
        receive.set_recv_hoplimit_v6(true)?;
        let port = bind(&receive)?;
        let mut senders = BTreeMap::new();
        for (dscp, ports) in send {
            let sockets = (0..(*ports).max(1))
                .map(|_| {
                    let socket = udp()?;
                    socket.set_tclass_v6(u32::from(*dscp) << 2)?;
                    // sources come from a prefix routed as local, which no interface has as an address
                    socket.set_freebind_v6(true)?;
                    bind(&socket)?;
                    Ok(socket)
                })
                .collect::<io::Result<Vec<Socket>>>()?;
            senders.insert(*dscp, sockets);
        }
        Ok(HostSockets { receive, port, send: senders })
    })
}

fn udp() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_nonblocking(true)?;
    // beyond the system's limit where we may, else up to it
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    if setsockopt(&socket, sockopt::SndBufForce, &BUFFER).is_err() {
        socket.set_send_buffer_size(BUFFER)?;
    }
    Ok(socket)
}

/// Binds to a free port of every address; returns the port.
fn bind(socket: &Socket) -> io::Result<u16> {
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0).into())?;
    let address = socket.local_addr()?.as_socket_ipv6();
    address
        .map(|a| a.port())
        .ok_or_else(|| io::Error::other(format!("descriptor {} has no IPv6 address", socket.as_raw_fd())))
}

/// Where the namespace of a host is.
pub fn namespace(dir: &Path, host: &str) -> PathBuf {
    dir.join(host)
}

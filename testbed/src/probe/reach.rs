//! Who reaches whom: ICMPv6 echo between all pairs of hosts, until all have answered or time is up.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn6, recv, sendmsg};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use topologies::lab::Lab;

use super::clock;
use super::engine::ProbeError;
use super::socket::{in_namespace, namespace};
use super::spec::{HostSpec, SpecError};

/// An unanswered request is repeated after this time.
const RETRY_NS: u64 = 200_000_000;
/// ICMPv6 echo request, RFC 4443 section 4.1.
const ECHO_REQUEST: u8 = 128;
/// Echo reply, section 4.2.
const ECHO_REPLY: u8 = 129;
/// Type, code, checksum, identifier, sequence number; then our 8 + 4 + 2 bytes.
const PACKET: usize = 22;

/// One ordered pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachPair {
    /// Asking host.
    pub from: String,
    /// Answering host.
    pub to: String,
    /// Source addresses that got an answer.
    pub answered: u16,
    /// Source addresses that asked.
    pub asked: u16,
    /// Longest round trip of the answers, microseconds; `None` unless all came.
    pub rtt_us: Option<u64>,
}

/// The whole matrix, sorted by `from` and `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachReport {
    /// All ordered pairs of different hosts.
    pub pairs: Vec<ReachPair>,
    /// How long it took, milliseconds.
    pub elapsed_ms: u64,
}

impl ReachReport {
    /// Whether every host reached every other.
    pub fn complete(&self) -> bool {
        self.pairs.iter().all(|p| p.rtt_us.is_some())
    }
}

/// Asks from every host of the lab to every other with code point `dscp`, from `sources` addresses each (so that
/// several planes and paths are tried), and returns as soon as all have answered, at the latest after `deadline`.
/// Blocks. Hosts' namespaces are `netns_dir/<host>`.
///
/// # Errors
/// A host without namespace, or no two hosts. A pair without an answer is not an error.
pub fn reach(
    lab: &Lab,
    netns_dir: &Path,
    dscp: u8,
    sources: u16,
    deadline: Duration,
) -> Result<ReachReport, ProbeError> {
    let hosts: BTreeMap<String, HostSpec> = lab
        .hosts()
        .map(|n| {
            let host = HostSpec { address: n.address, sources: n.local_prefixes.first().copied() };
            (n.name.clone(), host)
        })
        .collect();
    if hosts.len() < 2 {
        return Err(SpecError::Empty.into());
    }
    let sockets = hosts
        .keys()
        .map(|name| in_namespace(&namespace(netns_dir, name), || raw(dscp)))
        .collect::<Result<Vec<Socket>, ProbeError>>()?;
    let started = clock::now();
    let until = started.saturating_add(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
    let mut matrix = Matrix::new(&hosts, sources.max(1));
    exchange(&mut matrix, &sockets, until)?;
    Ok(matrix.report((clock::now() - started) / 1_000_000))
}

fn raw(dscp: u8) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_nonblocking(true)?;
    socket.set_freebind_v6(true)?;
    socket.set_tclass_v6(u32::from(dscp) << 2)?;
    Ok(socket)
}

fn exchange(matrix: &mut Matrix, sockets: &[Socket], until: u64) -> Result<(), ProbeError> {
    let wait = |e: Errno| ProbeError::Wait(e.into());
    let magic: u64 = rand::random();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(wait)?;
    for (index, socket) in (0u64..).zip(sockets) {
        epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index)).map_err(wait)?;
    }
    let mut events = vec![EpollEvent::empty(); sockets.len()];
    let mut next_round = 0;
    while !matrix.complete() {
        let now = clock::now();
        if now >= until {
            break;
        }
        if now >= next_round {
            matrix.ask(now, |ask| request(&sockets[ask.host], magic, ask));
            next_round = now + RETRY_NS;
        }
        let left_ms = (next_round.min(until).saturating_sub(now)).div_ceil(1_000_000);
        let timeout = EpollTimeout::from(u8::try_from(left_ms).unwrap_or(u8::MAX));
        let ready = match epoll.wait(&mut events, timeout) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => 0,
            Err(e) => return Err(wait(e)),
        };
        for event in &events[..ready] {
            let Some(socket) = usize::try_from(event.data()).ok().and_then(|i| sockets.get(i)) else {
                continue;
            };
            let mut buffer = [0u8; 256];
            while let Ok(length) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                if let Some((pair, source)) = parse_reply(&buffer[..length], magic) {
                    matrix.answer(pair, source, clock::now());
                }
            }
        }
    }
    Ok(())
}

/// A request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ask {
    /// Index of the asking host.
    host: usize,
    pair: u32,
    source: u16,
    from: Ipv6Addr,
    to: Ipv6Addr,
}

fn request(socket: &Socket, magic: u64, ask: &Ask) {
    let mut packet = [0u8; PACKET];
    packet[0] = ECHO_REQUEST;
    // the checksum is the kernel's work on raw ICMPv6 sockets (RFC 3542 section 3.1)
    packet[6..8].copy_from_slice(&ask.source.to_be_bytes());
    packet[8..16].copy_from_slice(&magic.to_be_bytes());
    packet[16..20].copy_from_slice(&ask.pair.to_be_bytes());
    packet[20..22].copy_from_slice(&ask.source.to_be_bytes());
    let info = nix::libc::in6_pktinfo {
        ipi6_addr: nix::libc::in6_addr { s6_addr: ask.from.octets() },
        ipi6_ifindex: 0,
    };
    let sent = sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(&packet)],
        &[ControlMessage::Ipv6PacketInfo(&info)],
        MsgFlags::empty(),
        Some(&SockaddrIn6::from(SocketAddrV6::new(ask.to, 0, 0, 0))),
    );
    if let Err(error) = sent {
        // it is asked again: a host without a route yet is what this waits for
        tracing::trace!(from = %ask.from, to = %ask.to, %error, "echo request not sent");
    }
}

/// Pair and source of an echo reply of run `magic`.
fn parse_reply(packet: &[u8], magic: u64) -> Option<(u32, u16)> {
    let ours = packet.get(..PACKET)?;
    if ours[0] != ECHO_REPLY || ours[8..16] != magic.to_be_bytes() {
        return None;
    }
    let pair = u32::from_be_bytes(ours[16..20].try_into().ok()?);
    let source = u16::from_be_bytes(ours[20..22].try_into().ok()?);
    Some((pair, source))
}

/// What has been asked and answered.
struct Matrix {
    pairs: Vec<PairState>,
    missing: usize,
}

struct PairState {
    from: String,
    to: String,
    host: usize,
    target: Ipv6Addr,
    sources: Vec<SourceState>,
}

struct SourceState {
    address: Ipv6Addr,
    asked_ns: u64,
    rtt_ns: Option<u64>,
}

impl Matrix {
    fn new(hosts: &BTreeMap<String, HostSpec>, sources: u16) -> Self {
        let mut pairs = Vec::new();
        for (host, (from, a)) in hosts.iter().enumerate() {
            for (to, b) in hosts.iter().filter(|(to, _)| *to != from) {
                let sources = (0..sources)
                    .map(|n| {
                        let first = n == 0 || a.sources.is_none();
                        let address = match a.sources {
                            // after the streams' sources, which count from the start of the prefix
                            Some(prefix) if !first => {
                                let bits = (1u128 << (128 - u32::from(prefix.prefix_len())).min(127)) - 1;
                                Ipv6Addr::from(
                                    u128::from(prefix.network()) | ((0xffff_0000 + u128::from(n)) & bits),
                                )
                            }
                            _ => a.address,
                        };
                        SourceState { address, asked_ns: 0, rtt_ns: None }
                    })
                    .collect();
                let (from, to) = (from.clone(), to.clone());
                pairs.push(PairState { from, to, host, target: b.address, sources });
            }
        }
        let missing = pairs.len() * usize::from(sources);
        Self { pairs, missing }
    }

    fn complete(&self) -> bool {
        self.missing == 0
    }

    /// Calls `send` for everything that has no answer yet.
    fn ask(&mut self, now_ns: u64, mut send: impl FnMut(&Ask)) {
        for (pair, state) in (0u32..).zip(&mut self.pairs) {
            for (source, s) in (0u16..).zip(&mut state.sources) {
                if s.rtt_ns.is_none() {
                    s.asked_ns = now_ns;
                    send(&Ask { host: state.host, pair, source, from: s.address, to: state.target });
                }
            }
        }
    }

    fn answer(&mut self, pair: u32, source: u16, now_ns: u64) {
        let state = usize::try_from(pair)
            .ok()
            .and_then(|p| self.pairs.get_mut(p))
            .and_then(|p| p.sources.get_mut(usize::from(source)));
        if let Some(state) = state.filter(|s| s.rtt_ns.is_none()) {
            state.rtt_ns = Some(now_ns.saturating_sub(state.asked_ns));
            self.missing -= 1;
        }
    }

    fn report(&self, elapsed_ms: u64) -> ReachReport {
        let pairs = self
            .pairs
            .iter()
            .map(|p| {
                let rtts: Vec<u64> = p.sources.iter().filter_map(|s| s.rtt_ns).collect();
                let all = rtts.len() == p.sources.len();
                ReachPair {
                    from: p.from.clone(),
                    to: p.to.clone(),
                    answered: u16::try_from(rtts.len()).unwrap_or(u16::MAX),
                    asked: u16::try_from(p.sources.len()).unwrap_or(u16::MAX),
                    rtt_us: if all { rtts.iter().max().map(|ns| ns / 1000) } else { None },
                }
            })
            .collect();
        ReachReport { pairs, elapsed_ms }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn two_hosts() -> BTreeMap<String, HostSpec> {
        ["h1.a", "h1.b"]
            .into_iter()
            .zip(1..)
            .map(|(name, n)| {
                let address = format!("2001:db8:{n}:1::1").parse().unwrap();
                let sources = Some(format!("2001:db8:{n}:1:1::/80").parse().unwrap());
                (name.to_string(), HostSpec { address, sources })
            })
            .collect()
    }

    #[test]
    fn asks_until_answered() {
        let mut matrix = Matrix::new(&two_hosts(), 2);
        let mut asked = Vec::new();
        matrix.ask(1_000, |ask| asked.push(*ask));
        assert_eq!(asked.len(), 4);
        assert_eq!(asked[1].from, "2001:db8:1:1:1:0:ffff:1".parse::<Ipv6Addr>().unwrap());
        for (pair, source) in [(0, 0), (0, 1), (1, 0), (1, 0), (7, 7)] {
            matrix.answer(pair, source, 3_000_000);
        }
        let mut again = Vec::new();
        matrix.ask(5_000, |ask| again.push((ask.pair, ask.source)));
        assert_eq!(again, [(1, 1)]);
        let report = matrix.report(9);
        assert_eq!(report.pairs[0].rtt_us, Some(2_999));
        assert_eq!((report.pairs[1].answered, report.pairs[1].asked, report.pairs[1].rtt_us), (1, 2, None));
        assert!(!report.complete());
        matrix.answer(1, 1, 6_000);
        assert!(matrix.complete() && matrix.report(9).complete());
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64), magic: u64) {
            let _ = parse_reply(&bytes, magic);
        }
    }
}

//! Starts the two threads of a run, and receives.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::Ipv6Net;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn6, recvmmsg};
use socket2::Socket;
use thiserror::Error;

use super::clock;
use super::report::Report;
use super::sender::{Note, OutStream, Sender, Shared};
use super::socket::{self, HostSockets, MAX_PORTS};
use super::spec::{Spec, SpecError};
use super::tracker::LossTracker;
use super::wire::{HEADER, Packet};

/// Datagrams that one system call takes.
const BATCH: usize = 64;
/// The receiver looks at its sockets at most this often: arrivals carry the kernel's stamp, so nothing is lost by
/// letting them gather, and it saves a wake-up per packet.
const NAP: Duration = Duration::from_millis(2);
/// A packet is given up this long after it was sent; a starved queue holds one for five seconds.
const GRACE_NS: u64 = 10_000_000_000;
/// In snapshots a packet counts as lost this long after it was sent.
const PREVIEW_NS: u64 = 1_000_000_000;

/// Why a run did not happen.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The specification is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A host's namespace is not usable.
    #[error(
        "network namespace {path}: {what}: {source}; is the lab up, and is this run inside its world as root?"
    )]
    Namespace {
        /// Where it should be.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start a probe thread: {0}")]
    Thread(#[source] io::Error),
    /// The receiver could not wait for its sockets.
    #[error("cannot wait for probe sockets: {0}")]
    Wait(#[source] io::Error),
    /// A defect of ours.
    #[error("{0} panicked; this is a defect of testbed")]
    Panic(&'static str),
}

type ReceiverThread = JoinHandle<Result<Report, ProbeError>>;

/// A run in progress. Dropping it stops the run without waiting.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    latest: Arc<Mutex<Option<Report>>>,
    threads: Option<(JoinHandle<()>, ReceiverThread)>,
}

impl Handle {
    /// Asks the sender to end; the report is ready when the last packets have arrived or been given up.
    pub fn request_stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// The latest snapshot, if there has been one.
    pub fn snapshot(&self) -> Option<Report> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether [`Handle::wait`] would return at once.
    pub fn finished(&self) -> bool {
        self.threads.as_ref().is_none_or(|(_, receiver)| receiver.is_finished())
    }

    /// Waits for the end of a run with a fixed duration, or of one that was asked to stop. Blocks.
    pub fn wait(mut self) -> Result<Report, ProbeError> {
        let Some((sender, receiver)) = self.threads.take() else {
            return Err(ProbeError::Panic("the probe"));
        };
        sender.join().map_err(|_| ProbeError::Panic("the probe's sender"))?;
        receiver.join().map_err(|_| ProbeError::Panic("the probe's receiver"))?
    }

    /// Ends the run and returns its report. Blocks for at most the specification's drain time and a little.
    pub fn stop(self) -> Result<Report, ProbeError> {
        self.request_stop();
        self.wait()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.request_stop();
    }
}

/// Runs to the end: the specification's duration, or until `stop` returns true (asked ten times a second). Blocks.
pub fn run(
    spec: &Spec,
    netns_dir: &Path,
    on_snapshot: impl FnMut(&Report) + Send + 'static,
    stop: impl Fn() -> bool,
) -> Result<Report, ProbeError> {
    let handle = start(spec, netns_dir, on_snapshot)?;
    while !handle.finished() && !stop() {
        std::thread::sleep(Duration::from_millis(100));
    }
    if handle.finished() { handle.wait() } else { handle.stop() }
}

/// Starts a run. Hosts' namespaces are `netns_dir/<host>`; `on_snapshot` is called from the receiving thread and
/// must be quick.
///
/// # Errors
/// A wrong specification, or a host without namespace. Nothing has been sent then.
pub fn start(
    spec: &Spec,
    netns_dir: &Path,
    on_snapshot: impl FnMut(&Report) + Send + 'static,
) -> Result<Handle, ProbeError> {
    spec.check()?;
    let mut hosts = open_hosts(spec, netns_dir)?;
    let shared = Arc::new(Shared::default());
    let magic: u64 = rand::random();
    let sender = Sender {
        streams: out_streams(spec, &mut hosts),
        magic,
        payload: usize::from(spec.payload),
        duration_ns: spec.duration.map(nanoseconds),
        shared: Arc::clone(&shared),
    };
    let latest = Arc::new(Mutex::new(None));
    let receiver = Receiver {
        trackers: spec.streams.iter().map(|s| LossTracker::new(s.flows, interval_ns(s.pps))).collect(),
        spec: spec.clone(),
        sockets: hosts.into_values().map(|h| h.receive).collect(),
        magic,
        shared: Arc::clone(&shared),
        latest: Arc::clone(&latest),
        on_snapshot: Box::new(on_snapshot),
        last_arrival_ns: 0,
        notes: Vec::new(),
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.to_string());
    let receiver = thread("probe-receive").spawn(|| receiver.run()).map_err(ProbeError::Thread)?;
    let sender = match thread("probe-send").spawn(|| sender.run()) {
        Ok(sender) => sender,
        Err(error) => {
            shared.stop.store(true, Ordering::Relaxed);
            shared.sent_all.store(true, Ordering::Release);
            return Err(ProbeError::Thread(error));
        }
    };
    Ok(Handle { shared, latest, threads: Some((sender, receiver)) })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn interval_ns(pps: u32) -> u64 {
    1_000_000_000 / u64::from(pps.max(1))
}

fn open_hosts(spec: &Spec, netns_dir: &Path) -> Result<BTreeMap<String, HostSockets>, ProbeError> {
    let mut hosts = BTreeMap::new();
    for (name, host) in &spec.hosts {
        let mut send: BTreeMap<u8, u16> = BTreeMap::new();
        for stream in spec.streams.iter().filter(|s| s.from == *name) {
            let ports = if host.sources.is_some() { 1 } else { stream.flows.min(MAX_PORTS) };
            let most = send.entry(stream.class.probe_dscp()).or_default();
            *most = (*most).max(ports);
        }
        hosts.insert(name.clone(), socket::open(&socket::namespace(netns_dir, name), &send)?);
    }
    Ok(hosts)
}

/// The sender's view of the streams; takes the sending sockets out of `hosts`.
fn out_streams(spec: &Spec, hosts: &mut BTreeMap<String, HostSockets>) -> Vec<OutStream> {
    let mut sockets: BTreeMap<(&str, u8), Vec<Arc<Socket>>> = BTreeMap::new();
    let mut ports: BTreeMap<&str, u16> = BTreeMap::new();
    for (name, host) in hosts.iter_mut() {
        let Some((name, _)) = spec.hosts.get_key_value(name) else { continue };
        ports.insert(name, host.port);
        for (dscp, list) in std::mem::take(&mut host.send) {
            sockets.insert((name, dscp), list.into_iter().map(Arc::new).collect());
        }
    }
    let mut streams = Vec::new();
    for (index, stream) in (0u32..).zip(&spec.streams) {
        let (from, to) = (&spec.hosts[&stream.from], &spec.hosts[&stream.to]);
        let port = ports.get(stream.to.as_str()).copied().unwrap_or(0);
        streams.push(OutStream {
            sockets: sockets
                .get(&(stream.from.as_str(), stream.class.probe_dscp()))
                .cloned()
                .unwrap_or_default(),
            sources: from
                .sources
                .map_or_else(|| vec![from.address], |prefix| sources(prefix, index, stream.flows)),
            destination: SocketAddrV6::new(to.address, port, 0, 0),
            flows: stream.flows,
            interval_ns: interval_ns(stream.pps),
        });
    }
    streams
}

/// Addresses for the flows of stream number `stream`, different from those of the others as long as the prefix has
/// room for 2^28 addresses.
fn sources(prefix: Ipv6Net, stream: u32, flows: u16) -> Vec<Ipv6Addr> {
    let host_bits = 128 - u32::from(prefix.prefix_len());
    let mask = if host_bits == 128 { u128::MAX } else { (1u128 << host_bits) - 1 };
    let network = u128::from(prefix.network());
    (1..=flows)
        .map(|flow| {
            let host = (u128::from(stream) << 16) | u128::from(flow);
            Ipv6Addr::from(network | (host & mask))
        })
        .collect()
}

struct Receiver {
    spec: Spec,
    trackers: Vec<LossTracker>,
    sockets: Vec<Socket>,
    magic: u64,
    shared: Arc<Shared>,
    latest: Arc<Mutex<Option<Report>>>,
    on_snapshot: Box<dyn FnMut(&Report) + Send>,
    last_arrival_ns: u64,
    notes: Vec<Note>,
}

/// An arrival: stream, sequence number, time, hop limit.
type Arrival = (u32, u64, u64, Option<u8>);

impl Receiver {
    fn run(mut self) -> Result<Report, ProbeError> {
        let result = self.receive();
        if result.is_err() {
            // nobody counts any more: the sender need not go on
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn receive(&mut self) -> Result<Report, ProbeError> {
        let wait = |e: nix::Error| ProbeError::Wait(e.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(wait)?;
        for (index, socket) in (0u64..).zip(&self.sockets) {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index)).map_err(wait)?;
        }
        let mut inbox = Inbox::new();
        let mut events = vec![EpollEvent::empty(); self.sockets.len().max(1)];
        let mut snapshot_ns = clock::now() + nanoseconds(self.spec.snapshot_every);
        let mut ended_ns = None;
        loop {
            let ready = match epoll.wait(&mut events, EpollTimeout::from(50u8)) {
                Ok(ready) => ready,
                Err(nix::Error::EINTR) => 0,
                Err(e) => return Err(wait(e)),
            };
            // read before the sockets are: what was sent before is then either noted or still to come
            let sent_all = self.shared.sent_all.load(Ordering::Acquire);
            let mut arrivals = Vec::new();
            for event in &events[..ready] {
                let index = usize::try_from(event.data()).unwrap_or(usize::MAX);
                if let Some(socket) = self.sockets.get(index) {
                    inbox.read(socket, self.magic, &mut arrivals);
                }
            }
            self.account(&arrivals);
            let now = clock::now();
            if sent_all {
                let since = *ended_ns.get_or_insert(now);
                let quiet = now > self.last_arrival_ns.max(since) + nanoseconds(self.spec.quiet);
                if quiet || now > since + nanoseconds(self.spec.drain) || self.nothing_missing() {
                    break;
                }
            } else if now >= snapshot_ns {
                self.snapshot(now);
                snapshot_ns = now + nanoseconds(self.spec.snapshot_every);
            }
            std::thread::sleep(NAP);
        }
        self.trackers.iter_mut().for_each(LossTracker::finish);
        let facts = self.shared.facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Report::new(&self.spec, &self.trackers, &facts, true))
    }

    fn nothing_missing(&self) -> bool {
        self.trackers.iter().all(|t| {
            let c = t.counters();
            c.sent == c.received + c.lost
        })
    }

    /// Notes first: the packets that have arrived were noted before they were sent.
    fn account(&mut self, arrivals: &[Arrival]) {
        {
            let mut notes = self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *notes, &mut self.notes);
        }
        let tracker = |stream: u32| usize::try_from(stream).unwrap_or(usize::MAX);
        for note in self.notes.drain(..) {
            match note {
                Note::Sent(stream, at) => {
                    if let Some(t) = self.trackers.get_mut(tracker(stream)) {
                        t.sent(at);
                    }
                }
                Note::Unsent(stream, sequence) => {
                    if let Some(t) = self.trackers.get_mut(tracker(stream)) {
                        t.unsent(sequence);
                    }
                }
            }
        }
        for (stream, sequence, at, hop_limit) in arrivals {
            if let Some(t) = self.trackers.get_mut(tracker(*stream)) {
                t.received(*sequence, *at, *hop_limit);
                self.last_arrival_ns = self.last_arrival_ns.max(*at);
            }
        }
        let horizon = clock::now().saturating_sub(GRACE_NS);
        self.trackers.iter_mut().for_each(|t| t.settle(horizon));
    }

    fn snapshot(&mut self, now: u64) {
        let horizon = now.saturating_sub(PREVIEW_NS);
        let trackers: Vec<LossTracker> = self.trackers.iter().map(|t| t.preview(horizon)).collect();
        let facts = self.shared.facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let report = Report::new(&self.spec, &trackers, &facts, false);
        (self.on_snapshot)(&report);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }
}

/// Buffers for a batch of datagrams; of each only the header is kept.
struct Inbox {
    headers: MultiHeaders<SockaddrIn6>,
    buffers: Vec<[u8; HEADER]>,
}

impl Inbox {
    fn new() -> Self {
        let space = nix::cmsg_space!(nix::sys::time::TimeSpec, i32);
        Self { headers: MultiHeaders::preallocate(BATCH, Some(space)), buffers: vec![[0; HEADER]; BATCH] }
    }

    /// Takes everything that waits on `socket`.
    fn read(&mut self, socket: &Socket, magic: u64, arrivals: &mut Vec<Arrival>) {
        loop {
            let mut facts = [(0u64, None); BATCH];
            let count = {
                let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                    self.buffers.iter_mut().map(|b| [IoSliceMut::new(b)]).collect();
                let fd = socket.as_raw_fd();
                let Ok(got) = recvmmsg(fd, &mut self.headers, &mut slices, MsgFlags::MSG_DONTWAIT, None)
                else {
                    return;
                };
                // the kernel stamps with the wall clock: move the stamps to ours by the offset of this moment
                let (now, wall) = (clock::now(), clock::realtime());
                let mut count = 0;
                for (message, fact) in got.zip(&mut facts) {
                    count += 1;
                    *fact = (now, None);
                    for control in message.cmsgs().into_iter().flatten() {
                        match control {
                            ControlMessageOwned::ScmTimestampns(stamp) => {
                                fact.0 = now.saturating_sub(wall.saturating_sub(clock::nanoseconds(stamp)));
                            }
                            ControlMessageOwned::Ipv6HopLimit(limit) => fact.1 = u8::try_from(limit).ok(),
                            _ => {}
                        }
                    }
                }
                count
            };
            for (buffer, (at, hop_limit)) in self.buffers.iter().zip(facts).take(count) {
                if let Some(packet) = Packet::read(buffer, magic) {
                    arrivals.push((packet.stream, packet.sequence, at, hop_limit));
                }
            }
            if count < BATCH {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_differ_and_stay_inside() {
        let prefix: Ipv6Net = "2001:db8:1:1:1::/80".parse().unwrap();
        let mut all: Vec<Ipv6Addr> = (0..50).flat_map(|stream| sources(prefix, stream, 40)).collect();
        assert!(all.iter().all(|a| prefix.contains(a) && *a != prefix.network()));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 50 * 40);
        assert_eq!(sources(prefix, 2, 1)[0], "2001:db8:1:1:1:0:2:1".parse::<Ipv6Addr>().unwrap());
    }
}

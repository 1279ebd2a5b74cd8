//! The sending thread.

use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn6, sendmsg};
use router_emu::agent::Urgency;
use socket2::Socket;

use super::clock;
use super::pace::Schedule;
use super::report::SenderFacts;
use super::wire::Packet;

/// Longest sleep: how fast a stop is noticed.
const MAX_SLEEP_NS: u64 = 50_000_000;

/// Packets a second, over all streams, up to which the sender goes before ordinary threads. Under software emulation a
/// packet costs a tenth of a millisecond.
const MOST_URGENT: u64 = 1000;

/// What the sender tells the receiver, in order.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    /// The next packet of a stream goes out at this time.
    Sent(u32, u64),
    /// That packet (stream, sequence number) was refused.
    Unsent(u32, u64),
}

/// What both threads share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Packets sent since the receiver last looked.
    pub notes: Mutex<Vec<Note>>,
    /// Asks the sender to end.
    pub stop: AtomicBool,
    /// The sender has ended, and all notes are there.
    pub sent_all: AtomicBool,
    /// Lateness and times, written now and then.
    pub facts: Mutex<SenderFacts>,
}

/// One stream as the sender sees it.
pub struct OutStream {
    /// Sockets; flow `f` uses number `f % len`.
    pub sockets: Vec<Arc<Socket>>,
    /// Source addresses; flow `f` uses number `f % len`.
    pub sources: Vec<Ipv6Addr>,
    /// Where to.
    pub destination: SocketAddrV6,
    /// Flows.
    pub flows: u16,
    /// Nanoseconds between packets.
    pub interval_ns: u64,
}

/// State of the thread.
pub struct Sender {
    /// Streams.
    pub streams: Vec<OutStream>,
    /// This run's number.
    pub magic: u64,
    /// Payload size.
    pub payload: usize,
    /// How long to send.
    pub duration_ns: Option<u64>,
    /// Shared with the receiver.
    pub shared: Arc<Shared>,
}

impl Sender {
    /// Sends until the end or until stopped.
    pub fn run(self) {
        // a sender that waits for its turn does not see what happens meanwhile; one that sends much would take the
        // processor from those whom it watches
        let rate: u64 = self.streams.iter().map(|s| 1_000_000_000 / s.interval_ns.max(1)).sum();
        let _punctual = (rate <= MOST_URGENT).then(Urgency::hold);
        let started_ns = clock::now();
        let intervals: Vec<u64> = self.streams.iter().map(|s| s.interval_ns).collect();
        let mut schedule = Schedule::new(started_ns, &intervals);
        let quantum = schedule.quantum_ns();
        let end = self.duration_ns.map_or(u64::MAX, |d| started_ns.saturating_add(d));
        let mut next = vec![0u64; self.streams.len()];
        let mut payload = vec![0u8; self.payload];
        let mut batch: Vec<(usize, u64, u64)> = Vec::new();
        let mut facts = SenderFacts { started_ns, ended_ns: started_ns, ..SenderFacts::default() };
        let mut published_ns = 0;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let Some(due) = schedule.next_due().filter(|due| *due < end) else { break };
            let before = clock::now();
            if due > before {
                clock::sleep_until(due.min(before + MAX_SLEEP_NS));
            }
            let now = clock::now();
            if now < due {
                continue;
            }
            facts.lateness.record(now - due);
            while let Some(stream) = schedule.pop((now + quantum).min(end - 1), now) {
                batch.push((stream, next[stream], clock::now()));
                next[stream] += 1;
            }
            self.send(&batch, &mut payload);
            batch.clear();
            if now > published_ns + 200_000_000 {
                published_ns = now;
                facts.ended_ns = now;
                facts.slipped = schedule.slipped();
                self.publish(&facts);
            }
        }
        facts.ended_ns = clock::now().min(end);
        facts.slipped = schedule.slipped();
        self.publish(&facts);
        self.shared.sent_all.store(true, Ordering::Release);
    }

    fn publish(&self, facts: &SenderFacts) {
        *self.shared.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts.clone();
    }

    /// Sends what is due. The receiver is told first, so that it never sees a packet that it does not know of.
    fn send(&self, batch: &[(usize, u64, u64)], payload: &mut [u8]) {
        let number = |stream: usize| u32::try_from(stream).unwrap_or(u32::MAX);
        {
            let mut notes = self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.extend(batch.iter().map(|(stream, _, at)| Note::Sent(number(*stream), *at)));
        }
        for (index, sequence, sent_ns) in batch {
            let stream = &self.streams[*index];
            let flow = u16::try_from(sequence % u64::from(stream.flows)).unwrap_or(0);
            let packet = Packet {
                magic: self.magic,
                stream: number(*index),
                flow,
                sequence: *sequence,
                sent_ns: *sent_ns,
            };
            packet.write(payload);
            if let Err(error) = stream.send(flow, payload) {
                tracing::trace!(stream = index, sequence, %error, "probe packet not sent");
                let mut notes = self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
                notes.push(Note::Unsent(number(*index), *sequence));
            }
        }
    }
}

impl OutStream {
    fn send(&self, flow: u16, payload: &[u8]) -> nix::Result<usize> {
        let socket = &self.sockets[usize::from(flow) % self.sockets.len()];
        let source = self.sources[usize::from(flow) % self.sources.len()];
        let info = nix::libc::in6_pktinfo {
            ipi6_addr: nix::libc::in6_addr { s6_addr: source.octets() },
            ipi6_ifindex: 0,
        };
        sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(payload)],
            &[ControlMessage::Ipv6PacketInfo(&info)],
            MsgFlags::empty(),
            Some(&SockaddrIn6::from(self.destination)),
        )
    }
}

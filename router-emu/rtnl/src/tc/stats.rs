//! Queues as the kernel shows them, with their counters.

use super::{GET_QDISC, HEADER, Netem, Prio, TCA_KIND, TCA_OPTIONS, Tbf, header};
use crate::wire;
use crate::{KernelError, Request, Socket};

const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stats {
    /// Bytes sent, link headers included.
    pub bytes: u64,
    /// Packets sent; a super-packet of segmentation offload counts as its segments.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u32,
    /// Bytes waiting.
    pub backlog: u32,
    /// Packets waiting.
    pub queued: u32,
    /// Times that a packet had to wait for the rate.
    pub overlimits: u32,
}

/// Settings of a queue, for the kinds that we set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Details {
    /// Token bucket.
    Tbf(Tbf),
    /// Strict priority.
    Prio(Prio),
    /// First in, first out: packets.
    Pfifo(u32),
    /// Impairment.
    Netem(Netem),
    /// A kind that we do not set.
    Other,
}

/// A queue on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscInfo {
    /// Interface index.
    pub ifindex: u32,
    /// Own handle; 0 for a kernel default.
    pub handle: u32,
    /// Parent class, or [`super::ROOT`].
    pub parent: u32,
    /// `tbf`, `prio`, `noqueue` and so on.
    pub kind: String,
    /// Settings.
    pub details: Details,
    /// Counters.
    pub stats: Stats,
}

/// Decodes the body of `RTM_NEWQDISC`.
pub fn decode(body: &[u8]) -> Option<QdiscInfo> {
    let attributes = wire::attrs_after(body, HEADER);
    let kind = wire::text(wire::find(attributes, TCA_KIND)?);
    let options = wire::find(attributes, TCA_OPTIONS).unwrap_or_default();
    let details = match kind.as_str() {
        "tbf" => Tbf::decode(options).map(Details::Tbf),
        "prio" => Prio::decode(options).map(Details::Prio),
        "pfifo" => wire::u32_at(options, 0).map(Details::Pfifo),
        "netem" => Netem::decode(options).map(Details::Netem),
        _ => None,
    };
    Some(QdiscInfo {
        ifindex: wire::u32_at(body, 4)?,
        handle: wire::u32_at(body, 8)?,
        parent: wire::u32_at(body, 12)?,
        kind,
        details: details.unwrap_or(Details::Other),
        stats: wire::find(attributes, TCA_STATS2).map(decode_stats).unwrap_or_default(),
    })
}

/// Reads `TCA_STATS2`.
fn decode_stats(value: &[u8]) -> Stats {
    let mut stats = Stats::default();
    let mut wide = None;
    for (kind, value) in wire::attrs(value) {
        let word = |i: usize| wire::u32_at(value, 4 * i).unwrap_or_default();
        match kind {
            TCA_STATS_BASIC => {
                stats.bytes = wire::u64_at(value, 0).unwrap_or_default();
                stats.packets = u64::from(word(2));
            }
            TCA_STATS_QUEUE => {
                (stats.queued, stats.backlog, stats.drops) = (word(0), word(1), word(2));
                stats.overlimits = word(4);
            }
            TCA_STATS_PKT64 => wide = wire::u64_at(value, 0),
            _ => {}
        }
    }
    stats.packets = wide.unwrap_or(stats.packets);
    stats
}

/// Reads the queues of one device, or of all devices of the socket's namespace, by device and parent.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket, ifindex: Option<u32>) -> Result<Vec<QdiscInfo>, KernelError> {
    let request = Request::dump(GET_QDISC, &header(ifindex.unwrap_or_default(), 0, 0, 0), "list queues");
    let mut queues = socket.dump(&request, |m| decode(m.body))?;
    // Older kernels ignore the device in a dump request.
    queues.retain(|q| ifindex.is_none_or(|wanted| wanted == q.ifindex));
    queues.sort_by_key(|q| (q.ifindex, q.parent, q.handle));
    Ok(queues)
}

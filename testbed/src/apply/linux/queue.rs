//! The queue tree of an interface: requests that make it, and reading it back.
//!
//! ```text
//! root ── netem 3: (only with delay) ── tbf 1: ── prio 2: ── four pfifo 21: to 24:
//! ```
//! Packets are delayed before they queue, so a band's length does not depend on the delay.

use std::collections::BTreeMap;

use rtnl::Request;
use rtnl::tc::{self, Details, QdiscInfo, classify};

use crate::plan::Queue;

/// Major number of the token bucket.
const TBF: u16 = 1;
/// Of the priority queue; its bands are the classes `2:1` to `2:4`.
const PRIO: u16 = 2;
/// Of the delay.
const NETEM: u16 = 3;
/// Of the first band's queue.
const FIRST_BAND: u16 = 0x21;
/// Number of bands.
const BANDS: u8 = 4;
/// What a frame has beyond the MTU: Ethernet header and three labels, with room to spare.
const OVERHEAD: u32 = 84;
/// Smallest packet that is reckoned with when the packets in flight are counted.
const SMALL_PACKET: u64 = 100;

/// Requests that turn the queues `from` of an interface into `to`. With the same structure only what differs is
/// changed, in place, without dropping what waits.
pub fn requests(ifindex: u32, mtu: u32, from: Option<&Queue>, to: &Queue) -> Vec<Request> {
    let shape = |q: &Queue| (q.delay_ns > 0, q.band_packets.is_some());
    let whole = |q: &Queue| q.rate_bps > 0 && q.band_packets != Some(0);
    let kept = from.filter(|old| shape(old) == shape(to) && whole(old));
    let mut requests = Vec::new();
    if from.is_some() && kept.is_none() {
        requests.push(tc::delete(ifindex, tc::ROOT));
    }
    let mut parent = tc::ROOT;
    if to.delay_ns > 0 {
        if kept.is_none_or(|old| (old.delay_ns, old.rate_bps) != (to.delay_ns, to.rate_bps)) {
            requests.push(tc::netem(ifindex, parent, tc::handle(NETEM, 0), &netem(to)));
        }
        parent = tc::handle(NETEM, 1);
    }
    if kept.is_none_or(|old| (old.rate_bps, old.limit) != (to.rate_bps, to.limit)) {
        requests.push(tc::tbf(ifindex, parent, tc::handle(TBF, 0), &tbf(mtu, to)));
    }
    let Some(packets) = to.band_packets else { return requests };
    if kept.is_none() {
        let prio = tc::Prio::last_by_default(BANDS);
        requests.push(tc::prio(ifindex, tc::handle(TBF, 1), tc::handle(PRIO, 0), &prio));
        let program = classify::program(&classify::Classes::backbone(PRIO));
        requests.push(tc::bpf_filter(ifindex, tc::handle(PRIO, 0), &program));
    }
    if kept.is_none_or(|old| old.band_packets != to.band_packets) {
        for band in 0..u16::from(BANDS) {
            let (parent, handle) = (tc::handle(PRIO, band + 1), tc::handle(FIRST_BAND + band, 0));
            requests.push(tc::pfifo(ifindex, parent, handle, packets));
        }
    }
    requests
}

/// The delay, with room for what can be in flight.
fn netem(queue: &Queue) -> tc::Netem {
    let in_flight =
        u128::from(queue.rate_bps) * u128::from(queue.delay_ns) / 8_000_000_000 / u128::from(SMALL_PACKET);
    let limit = u32::try_from(in_flight).unwrap_or(u32::MAX).saturating_add(1000);
    tc::Netem { delay_ns: queue.delay_ns, limit, ..tc::Netem::default() }
}

/// The token bucket: a full frame fits, and so does what a timer tick of a millisecond is worth.
fn tbf(mtu: u32, queue: &Queue) -> tc::Tbf {
    let tick = u32::try_from(queue.rate_bps / 8 / 1000).unwrap_or(u32::MAX);
    tc::Tbf { rate_bps: queue.rate_bps, burst: tick.max(mtu.saturating_add(OVERHEAD)), limit: queue.limit }
}

/// The queues of each interface that has any of ours. An unfinished tree reads as a rate of 0 or as bands of 0
/// packets, which equals nothing wanted.
pub fn of_interfaces(queues: &[QdiscInfo]) -> BTreeMap<u32, Queue> {
    let mut found: BTreeMap<u32, (Queue, Vec<u32>)> = BTreeMap::new();
    let empty = Queue { rate_bps: 0, limit: 0, band_packets: None, delay_ns: 0 };
    // Defaults of the kernel have no handle.
    for qdisc in queues.iter().filter(|q| q.handle != 0 && q.details != Details::Other) {
        let (queue, bands) = found.entry(qdisc.ifindex).or_insert_with(|| (empty, Vec::new()));
        match &qdisc.details {
            Details::Tbf(tbf) => (queue.rate_bps, queue.limit) = (tbf.rate_bps, tbf.limit),
            Details::Netem(netem) => queue.delay_ns = netem.delay_ns,
            Details::Prio(_) => queue.band_packets = Some(0),
            Details::Pfifo(packets) => bands.push(*packets),
            Details::Other => {}
        }
    }
    let finish = |(ifindex, (mut queue, bands)): (u32, (Queue, Vec<u32>))| {
        let same = bands.windows(2).all(|pair| pair.first() == pair.last());
        if queue.band_packets.is_some() && bands.len() == usize::from(BANDS) && same {
            queue.band_packets = bands.first().copied();
        }
        (ifindex, queue)
    };
    found.into_iter().map(finish).collect()
}

/// Counters of the four bands of each interface that has them, most important class first.
pub fn bands(queues: &[QdiscInfo]) -> BTreeMap<u32, [tc::Stats; BANDS as usize]> {
    let mut found: BTreeMap<u32, [tc::Stats; BANDS as usize]> = BTreeMap::new();
    for qdisc in queues {
        let band = (0..BANDS).find(|band| qdisc.parent == tc::handle(PRIO, u16::from(*band) + 1));
        let Some(band) = band else { continue };
        if let Some(place) = found.entry(qdisc.ifindex).or_default().get_mut(usize::from(band)) {
            *place = qdisc.stats;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_told_apart_by_their_parents() {
        let qdisc = |ifindex, parent, packets| QdiscInfo {
            ifindex,
            handle: 1,
            parent,
            kind: "pfifo".into(),
            details: Details::Pfifo(50),
            stats: tc::Stats { packets, ..tc::Stats::default() },
        };
        let seen = bands(&[
            qdisc(7, tc::handle(PRIO, 4), 40),
            qdisc(7, tc::handle(PRIO, 1), 10),
            qdisc(7, tc::handle(TBF, 1), 99),
            qdisc(8, tc::ROOT, 99),
        ]);
        assert_eq!(seen.keys().collect::<Vec<_>>(), [&7]);
        assert_eq!(seen[&7].map(|s| s.packets), [10, 0, 0, 40]);
    }
}

//! The queue tree of an interface: requests that make it, and reading it back.
//!
//! ```text
//! root ── netem 3: (only with delay or harm) ── tbf 1: ── prio 2: ── four pfifo 21: to 24:
//! root ── netem 3: ── tbf 1: (only with a rate)          an interface that is not shaped, harmed
//! root ── prio 4: ── the kernel's own at 4:1, netem 41: to 44: at 4:2 to 4:5      late connections
//! ```
//! Packets are delayed before they queue, so a band's length does not depend on the delay.

use std::collections::BTreeMap;

use rtnl::Request;
use rtnl::tc::{self, Details, QdiscInfo, classify};

use crate::plan::{Harm, LATE_QUEUES, Queue};

/// Major number of the token bucket.
const TBF: u16 = 1;
/// Of the priority queue; its bands are the classes `2:1` to `2:4`.
const PRIO: u16 = 2;
/// Of the delay.
const NETEM: u16 = 3;
/// Of the queue that sends late connections to their delays, by the packets' priority.
const LATE: u16 = 4;
/// Of the first delay of late connections.
const FIRST_LATE: u16 = 0x41;
/// Of the first band's queue.
const FIRST_BAND: u16 = 0x21;
/// Number of bands.
const BANDS: u8 = 4;
/// What a frame has beyond the MTU: Ethernet header and three labels, with room to spare.
const OVERHEAD: u32 = 84;
/// Smallest packet that is reckoned with when the packets in flight are counted.
const SMALL_PACKET: u64 = 100;
/// Rate that is reckoned with on an interface without one, bit/s.
const UNSHAPED: u64 = 100_000_000;
/// Packets of late connections that may be in flight.
const LATE_PACKETS: u32 = 10_000;

/// Class id of packets of the connections that wait in this late queue, from 1.
pub fn late_class(number: u8) -> u32 {
    tc::handle(LATE, u16::from(number) + 1)
}

/// Requests that turn the queues `from` of an interface into `to`. With the same structure only what differs is
/// changed, in place, without dropping what waits; a delay or harm that is over stays as one of nothing.
pub fn requests(ifindex: u32, mtu: u32, from: Option<&Queue>, to: &Queue) -> Vec<Request> {
    let kept = from.filter(|old| old.changed_to(to).is_some());
    let mut requests = Vec::new();
    if from.is_some() && kept.is_none() {
        requests.push(tc::delete(ifindex, tc::ROOT));
    }
    if to.is_late() || kept.is_some_and(Queue::is_late) {
        late(ifindex, kept, to, &mut requests);
        return requests;
    }
    let mut parent = tc::ROOT;
    if to.hurts() || kept.is_some_and(|old| old.hurts() || old.idle) {
        let of = |q: &Queue| (q.delay_ns, q.rate_bps, q.harm);
        if kept.is_none_or(|old| of(old) != of(to)) {
            requests.push(tc::netem(ifindex, parent, tc::handle(NETEM, 0), &netem(to)));
        }
        parent = tc::handle(NETEM, 1);
    }
    if to.rate_bps > 0 && kept.is_none_or(|old| (old.rate_bps, old.limit) != (to.rate_bps, to.limit)) {
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

/// The queues of late connections: all other packets go to the first class.
fn late(ifindex: u32, kept: Option<&Queue>, to: &Queue, requests: &mut Vec<Request>) {
    if kept.is_none() {
        let bands = u32::try_from(LATE_QUEUES + 1).unwrap_or(u32::MAX);
        let prio = tc::Prio { bands, map: [0; 16] };
        requests.push(tc::prio(ifindex, tc::ROOT, tc::handle(LATE, 0), &prio));
    }
    for (number, delay_ns) in (1..).zip(to.late_ns) {
        let there = kept.and_then(|old| old.late_ns.get(usize::from(number) - 1)).copied().unwrap_or(0);
        let parent = late_class(number);
        if delay_ns > 0 && there != delay_ns {
            let netem = tc::Netem { delay_ns, limit: LATE_PACKETS, ..tc::Netem::default() };
            requests.push(tc::netem(ifindex, parent, late_handle(number), &netem));
        } else if delay_ns == 0 && there > 0 {
            requests.push(tc::delete(ifindex, parent));
        }
    }
}

/// Handle of the delay of this number, from 1.
fn late_handle(number: u8) -> u32 {
    tc::handle(FIRST_LATE + u16::from(number) - 1, 0)
}

/// The delay and the harm, with room for what can be in flight.
fn netem(queue: &Queue) -> tc::Netem {
    let Harm { jitter_ns, loss_ppm, corrupt_ppm, duplicate_ppm, reorder_ppm } = queue.harm;
    let longest = u128::from(queue.delay_ns) + u128::from(jitter_ns);
    // what is not shaped has no rate: as much as the fastest link of an emulation
    let rate = u128::from(if queue.rate_bps == 0 { UNSHAPED } else { queue.rate_bps });
    let in_flight = rate * longest / 8_000_000_000 / u128::from(SMALL_PACKET);
    let limit = u32::try_from(in_flight).unwrap_or(u32::MAX).saturating_add(1000);
    tc::Netem {
        delay_ns: queue.delay_ns,
        jitter_ns,
        loss_ppm,
        corrupt_ppm,
        duplicate_ppm,
        reorder_ppm,
        limit,
        rate_bps: None,
    }
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
    // Defaults of the kernel have no handle.
    for qdisc in queues.iter().filter(|q| q.handle != 0 && q.details != Details::Other) {
        let (queue, bands) = found.entry(qdisc.ifindex).or_default();
        let late = (1..).zip(&mut queue.late_ns).find(|(number, _)| late_handle(*number) == qdisc.handle);
        match (&qdisc.details, late) {
            (Details::Netem(netem), Some((_, place))) => *place = netem.delay_ns,
            (Details::Tbf(tbf), _) => (queue.rate_bps, queue.limit) = (tbf.rate_bps, tbf.limit),
            (Details::Netem(netem), None) => read_netem(queue, netem),
            (Details::Prio(_), _) if qdisc.handle == tc::handle(PRIO, 0) => queue.band_packets = Some(0),
            (Details::Pfifo(packets), _) => bands.push(*packets),
            _ => {}
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

/// What a delay does, or that it does nothing.
fn read_netem(queue: &mut Queue, netem: &tc::Netem) {
    queue.delay_ns = netem.delay_ns;
    queue.harm = Harm {
        jitter_ns: netem.jitter_ns,
        loss_ppm: netem.loss_ppm,
        corrupt_ppm: netem.corrupt_ppm,
        duplicate_ppm: netem.duplicate_ppm,
        reorder_ppm: netem.reorder_ppm,
    };
    queue.idle = !queue.hurts();
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

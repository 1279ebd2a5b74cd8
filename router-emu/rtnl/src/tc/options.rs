//! Options of the queue kinds, as the kernel wants and shows them.

use crate::wire::{self, Attrs};

/// Nanoseconds of one kernel scheduler tick (`PSCHED_SHIFT` is 6).
const NS_PER_TICK: u64 = 64;
/// `TC_LINKLAYER_ETHERNET`: with it the kernel computes sizes itself and wants no rate table.
const LINKLAYER_ETHERNET: u8 = 1;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
/// Length of `struct tc_ratespec`.
const RATESPEC: usize = 12;
const TCA_NETEM_REORDER: u16 = 3;
const TCA_NETEM_CORRUPT: u16 = 4;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
/// Length of `struct tc_netem_qopt`.
const NETEM_HEADER: usize = 24;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tbf {
    /// Rate in bits per second, at least 8.
    pub rate_bps: u64,
    /// Bucket in bytes; must exceed the largest frame, labels and link header included. Read back it can be a
    /// few bytes off, because the kernel keeps it as a time.
    pub burst: u32,
    /// Bytes that may wait, while there is no child queue.
    pub limit: u32,
}

impl Tbf {
    /// Value of `TCA_OPTIONS`.
    pub fn encode(&self) -> Vec<u8> {
        let bytes_per_second = self.rate_bps / 8;
        let mut parms = ratespec(bytes_per_second).to_vec();
        parms.extend_from_slice(&[0; RATESPEC]); // no peak rate
        parms.extend_from_slice(&self.limit.to_ne_bytes());
        parms.extend_from_slice(&[0; 8]); // buffer and mtu: superseded by TCA_TBF_BURST
        let mut options = Attrs::new();
        options.put(TCA_TBF_PARMS, &parms).u32(TCA_TBF_BURST, self.burst);
        if bytes_per_second > u64::from(u32::MAX) {
            options.u64(TCA_TBF_RATE64, bytes_per_second);
        }
        options.into_bytes()
    }

    /// Reads `TCA_OPTIONS`.
    pub fn decode(options: &[u8]) -> Option<Self> {
        let attributes = wire::attrs(options);
        let parms = wire::find(attributes, TCA_TBF_PARMS)?;
        let wide = wire::find(attributes, TCA_TBF_RATE64).and_then(|v| wire::u64_at(v, 0));
        let rate = wide.map_or_else(|| wire::u32_at(parms, 8).map(u64::from), Some)?;
        let bucket_ns = u64::from(wire::u32_at(parms, 2 * RATESPEC + 4)?) * NS_PER_TICK;
        let burst = u128::from(bucket_ns) * u128::from(rate) / 1_000_000_000;
        Some(Self {
            rate_bps: rate.saturating_mul(8),
            burst: u32::try_from(burst).unwrap_or(u32::MAX),
            limit: wire::u32_at(parms, 2 * RATESPEC)?,
        })
    }
}

/// `struct tc_ratespec` for a rate in bytes per second.
fn ratespec(bytes_per_second: u64) -> [u8; RATESPEC] {
    let mut bytes = [0; RATESPEC];
    bytes[1] = LINKLAYER_ETHERNET;
    let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
    bytes[8..].copy_from_slice(&rate.to_ne_bytes());
    bytes
}

/// Strict priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prio {
    /// Number of bands, 2 to 16.
    pub bands: u32,
    /// Band (from 0) by packet priority, for packets that no classifier has placed.
    pub map: [u8; 16],
}

impl Prio {
    /// Bands of which the last takes whatever no classifier has placed.
    pub fn last_by_default(bands: u8) -> Self {
        Self { bands: u32::from(bands), map: [bands.saturating_sub(1); 16] }
    }

    /// Value of `TCA_OPTIONS`.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.bands.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&self.map);
        bytes
    }

    /// Reads `TCA_OPTIONS`.
    pub fn decode(options: &[u8]) -> Option<Self> {
        let map = options.get(4..20)?.try_into().ok()?;
        Some(Self { bands: wire::u32_at(options, 0)?, map })
    }
}

/// Emulated impairment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Netem {
    /// One-way delay in nanoseconds.
    pub delay_ns: u64,
    /// Deviation from it, in nanoseconds, uniform.
    pub jitter_ns: u64,
    /// Random loss in parts per million.
    pub loss_ppm: u32,
    /// Packets with one wrong bit, in parts per million.
    pub corrupt_ppm: u32,
    /// Packets that are sent twice, in parts per million.
    pub duplicate_ppm: u32,
    /// Packets that are sent at once while the others wait for their delay, in parts per million.
    pub reorder_ppm: u32,
    /// Packets that may be in flight; must exceed rate times delay.
    pub limit: u32,
    /// Rate in bits per second, if netem is to shape too.
    pub rate_bps: Option<u64>,
}

impl Netem {
    /// Value of `TCA_OPTIONS`.
    pub fn encode(&self) -> Vec<u8> {
        let ticks = |ns: u64| u32::try_from(ns / NS_PER_TICK).unwrap_or(u32::MAX);
        let share = |ppm: u32| {
            let share = u64::from(ppm.min(1_000_000)) * u64::from(u32::MAX) / 1_000_000;
            u32::try_from(share).unwrap_or(u32::MAX)
        };
        // with a gap of one every packet may overtake
        let gap = u32::from(self.reorder_ppm > 0);
        let (loss, duplicate) = (share(self.loss_ppm), share(self.duplicate_ppm));
        let words = [ticks(self.delay_ns), self.limit, loss, gap, duplicate, ticks(self.jitter_ns)];
        let mut options = Attrs::after(&words.map(u32::to_ne_bytes).concat());
        // what a change leaves out stays as it was (`netem_change` in net/sched/sch_netem.c)
        for (kind, ppm) in [(TCA_NETEM_REORDER, self.reorder_ppm), (TCA_NETEM_CORRUPT, self.corrupt_ppm)] {
            options.put(kind, &[share(ppm), 0].map(u32::to_ne_bytes).concat());
        }
        options.u64(TCA_NETEM_LATENCY64, self.delay_ns);
        if self.jitter_ns > 0 {
            options.u64(TCA_NETEM_JITTER64, self.jitter_ns);
        }
        if let Some(rate) = self.rate_bps {
            let bytes_per_second = rate / 8;
            let narrow = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
            options.put(TCA_NETEM_RATE, &[narrow, 0, 0, 0].map(u32::to_ne_bytes).concat());
            if bytes_per_second >= u64::from(u32::MAX) {
                options.u64(TCA_NETEM_RATE64, bytes_per_second);
            }
        }
        options.into_bytes()
    }

    /// Reads `TCA_OPTIONS`.
    pub fn decode(options: &[u8]) -> Option<Self> {
        let attributes = wire::attrs_after(options, NETEM_HEADER);
        let word = |i: usize| wire::u32_at(options, 4 * i);
        let wide = |kind| wire::find(attributes, kind).and_then(|v| wire::u64_at(v, 0));
        let ppm = |share: u32| {
            u32::try_from((u64::from(share) * 1_000_000).div_ceil(u64::from(u32::MAX))).unwrap_or(u32::MAX)
        };
        let pair = |kind| wire::find(attributes, kind).and_then(|v| wire::u32_at(v, 0)).map_or(0, ppm);
        let narrow = wire::find(attributes, TCA_NETEM_RATE).and_then(|v| wire::u32_at(v, 0)).map(u64::from);
        let rate = wide(TCA_NETEM_RATE64).or(narrow).filter(|r| *r > 0);
        Some(Self {
            delay_ns: wide(TCA_NETEM_LATENCY64).unwrap_or(u64::from(word(0)?) * NS_PER_TICK),
            jitter_ns: wide(TCA_NETEM_JITTER64).unwrap_or(u64::from(word(5)?) * NS_PER_TICK),
            loss_ppm: ppm(word(2)?),
            corrupt_ppm: pair(TCA_NETEM_CORRUPT),
            duplicate_ppm: ppm(word(4)?),
            reorder_ppm: if word(3)? > 0 { pair(TCA_NETEM_REORDER) } else { 0 },
            limit: word(1)?,
            rate_bps: rate.map(|r| r.saturating_mul(8)),
        })
    }
}

//! The traffic matrix: byte counters to smoothed demands.

use std::collections::BTreeMap;

use router_emu::proto::{GetMatrixReply, GetTrafficReply};
use serde::{Deserialize, Serialize};
use te::Mesh;

use crate::config::ControllerConfig;

/// Source site, destination site, mesh.
pub type Pair = (u8, u8, Mesh);

/// Samples closer together than this say more about timing than about traffic; they wait for the next one.
const MIN_INTERVAL_NS: u64 = 100_000_000;

/// How counters become demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Real bits per emulated bit: measured rates are multiplied by it.
    pub bandwidth_divisor: u64,
    /// Weight of a new sample in the smoothed demand, per cent: `smoothed = w * sample + (1 - w) * smoothed`.
    pub sample_percent: u8,
}

impl Default for Scale {
    fn default() -> Self {
        Self { bandwidth_divisor: 1, sample_percent: 25 }
    }
}

impl Scale {
    /// Checks what the types cannot say.
    pub fn check(self) -> Result<(), String> {
        if self.bandwidth_divisor == 0 {
            return Err("bandwidth_divisor is 0; it must be at least 1".into());
        }
        if !(1..=100).contains(&self.sample_percent) {
            return Err(format!("sample_percent is {}; it must be 1 to 100", self.sample_percent));
        }
        Ok(())
    }
}

/// Demands per (source site, destination site, mesh), bit/s of the real network.
///
/// A sample is the growth of a byte counter over the router's own clock, times the bandwidth divisor. The first sample
/// counts as it is; each further one is mixed in as `w * sample + (1 - w) * smoothed` (exponentially weighted moving
/// average, w = `sample_percent`). A counter or clock that ran backwards belongs to a new agent: it becomes the new base,
/// and the demand keeps its last value. So does the demand of a router that does not answer.
#[derive(Clone, Debug, Default)]
pub struct TrafficMatrix {
    last: BTreeMap<u8, Sample>,
    smoothed: BTreeMap<Pair, u64>,
}

#[derive(Clone, Debug)]
struct Sample {
    at_ns: u64,
    bytes: BTreeMap<(u8, Mesh), u64>,
}

impl TrafficMatrix {
    /// Takes the counters of the router of `site`.
    pub fn update(&mut self, site: u8, reply: &GetTrafficReply, scale: Scale) {
        let bytes: BTreeMap<(u8, Mesh), u64> = reply
            .counters
            .iter()
            .filter_map(|c| {
                let mesh = Mesh::from_code(u8::try_from(c.mesh).ok()?)?;
                Some(((u8::try_from(c.dst_site).ok()?, mesh), c.bytes))
            })
            .collect();
        let now = Sample { at_ns: reply.at_ns, bytes };
        let Some(last) = self.last.get(&site) else {
            self.last.insert(site, now);
            return;
        };
        let restarted = now.at_ns < last.at_ns
            || last.bytes.iter().any(|(k, before)| now.bytes.get(k).is_none_or(|after| after < before));
        let interval = now.at_ns.saturating_sub(last.at_ns);
        if !restarted && interval < MIN_INTERVAL_NS {
            return;
        }
        if !restarted {
            for (&(dst, mesh), &after) in &now.bytes {
                let grown = after - last.bytes.get(&(dst, mesh)).copied().unwrap_or(0);
                let sample = rate(grown, interval, scale.bandwidth_divisor);
                let pair = (site, dst, mesh);
                let mixed =
                    self.smoothed.get(&pair).map_or(sample, |&old| mix(old, sample, scale.sample_percent));
                self.smoothed.insert(pair, mixed);
            }
        }
        self.last.insert(site, now);
    }

    /// Smoothed demands; pairs of which no sample is known are missing.
    pub const fn smoothed(&self) -> &BTreeMap<Pair, u64> {
        &self.smoothed
    }
}

/// The matrix as the service tells it.
pub fn measured(reply: &GetMatrixReply) -> BTreeMap<Pair, u64> {
    let site = |id| u8::try_from(id).ok();
    let pair = |d: &router_emu::proto::Demand| {
        Some((site(d.src_site)?, site(d.dst_site)?, Mesh::from_code(u8::try_from(d.mesh).ok()?)?))
    };
    reply.demands.iter().filter_map(|d| Some((pair(d)?, d.bps))).collect()
}

/// Demands between all ordered pairs of DC sites in all meshes of the configuration, never below the floor.
pub fn demands(measured: &BTreeMap<Pair, u64>, config: &ControllerConfig) -> BTreeMap<Pair, u64> {
    let mut demands = BTreeMap::new();
    for src in config.dcs() {
        for dst in config.dcs().filter(|d| d.site != src.site) {
            for class in &config.te.classes {
                let pair = (src.site, dst.site, class.mesh);
                demands.insert(pair, measured.get(&pair).copied().unwrap_or(0));
            }
        }
    }
    let mut floors: BTreeMap<Pair, u64> = BTreeMap::new();
    for d in &config.demands {
        let floor = floors.entry((d.src_site, d.dst_site, d.mesh)).or_default();
        *floor = floor.saturating_add(d.bps);
    }
    for (pair, floor) in floors {
        if let Some(d) = demands.get_mut(&pair) {
            *d = (*d).max(floor);
        }
    }
    demands
}

/// Bit/s of the real network.
fn rate(bytes: u64, interval_ns: u64, divisor: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000 * u128::from(divisor);
    u64::try_from(bits / u128::from(interval_ns.max(1))).unwrap_or(u64::MAX)
}

fn mix(old: u64, sample: u64, percent: u8) -> u64 {
    let weight = u128::from(percent);
    let mixed = (u128::from(sample) * weight + u128::from(old) * (100 - weight)) / 100;
    u64::try_from(mixed).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DemandFloor, RouterEntry};
    use router_emu::proto::TrafficCounter;

    fn config() -> ControllerConfig {
        let router = |name: &str, site, is_dc| RouterEntry {
            name: name.into(),
            site,
            is_dc,
            loopback: std::net::Ipv6Addr::LOCALHOST,
        };
        ControllerConfig {
            plane: 1,
            name: "c".into(),
            replica: 1,
            routers: vec![router("a", 1, true), router("b", 2, true), router("m", 3, false)],
            cycle_ms: 0,
            te: te::TeSettings::default(),
            max_labels: 3,
            demands: vec![DemandFloor { src_site: 2, dst_site: 1, mesh: Mesh::Gold, bps: 5_000 }],
            matrix: None,
            state_dir: "s".into(),
            plane_dir: "p".into(),
            stats: None,
            lock: crate::config::LockConfig::Embedded,
            run_dir: "r".into(),
            retire_delay_ms: 0,
            rpc_timeout_ms: 100,
            always_reprogram: false,
        }
    }

    fn reply(at_ms: u64, bytes: u64) -> GetTrafficReply {
        let counter = TrafficCounter { dst_site: 2, mesh: 2, bytes, packets: 0 };
        GetTrafficReply { at_ns: at_ms * 1_000_000, counters: vec![counter] }
    }

    const GOLD: Pair = (1, 2, Mesh::Gold);

    fn gold(m: &TrafficMatrix) -> u64 {
        m.smoothed().get(&GOLD).copied().unwrap_or(0)
    }

    #[test]
    fn rates_are_scaled_smoothed_and_survive_restarts() {
        let c = Scale { bandwidth_divisor: 1000, sample_percent: 50 };
        let mut m = TrafficMatrix::default();
        m.update(1, &reply(1_000, 500), c);
        assert_eq!(gold(&m), 0, "one sample makes no rate");
        m.update(1, &reply(2_000, 1_500), c);
        assert_eq!(gold(&m), 8_000_000, "1000 bytes in a second, times 1000");
        m.update(1, &reply(2_050, 9_999), c);
        assert_eq!(gold(&m), 8_000_000, "50 ms is too short");
        m.update(1, &reply(4_000, 5_500), c);
        assert_eq!(gold(&m), 12_000_000, "half of 16 and half of 8");
        m.update(1, &reply(5_000, 10), c);
        assert_eq!(gold(&m), 12_000_000, "a counter that fell is a new base");
        m.update(1, &reply(6_000, 10), c);
        assert_eq!(gold(&m), 6_000_000);
        m.update(1, &reply(10, 10), c);
        m.update(1, &reply(1_010, 10), c);
        assert_eq!(gold(&m), 3_000_000, "a clock that fell is a new base");
    }

    #[test]
    fn all_pairs_and_meshes_with_floors() {
        let told = GetMatrixReply {
            demands: [(1, 2, 2, 7_000), (2, 1, 2, 4_000), (3, 1, 2, 9), (1, 2, 9, 9), (1, 999, 2, 9)]
                .map(|(src_site, dst_site, mesh, bps)| router_emu::proto::Demand {
                    src_site,
                    dst_site,
                    mesh,
                    bps,
                })
                .to_vec(),
            ..GetMatrixReply::default()
        };
        let d = demands(&measured(&told), &config());
        assert_eq!(d.len(), 6);
        assert_eq!(d[&GOLD], 7_000, "what is measured");
        assert_eq!(d[&(2, 1, Mesh::Gold)], 5_000, "less is measured than the floor");
        assert!(d.keys().all(|k| k.0 != 3 && k.1 != 3), "midpoints have no demand");
    }
}

//! Planes of a ring of routers with chords: long paths, so that bundles have intermediate nodes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ebb::config::{ControllerConfig, RouterEntry};
use router_emu::proto::{Adjacency, AdjacencyDatabase};

/// Name of the `i`-th router.
pub fn name(i: usize) -> String {
    format!("eb01.r{i:02}")
}

/// Configuration of a plane of `size` routers; every `step`-th is a DC. Site ids start at 1.
pub fn config(size: usize, step: usize) -> ControllerConfig {
    let router = |i: usize| RouterEntry {
        name: name(i),
        site: u8::try_from(i + 1).unwrap(),
        is_dc: i.is_multiple_of(step),
        loopback: std::net::Ipv6Addr::LOCALHOST,
    };
    ControllerConfig {
        plane: 1,
        name: "test".into(),
        routers: (0..size).map(router).collect(),
        cycle_ms: 0,
        te: te::TeSettings::default(),
        max_labels: 3,
        demands: vec![],
        matrix: None,
        stats: None,
        replica: 1,
        state_dir: "unused".into(),
        plane_dir: "unused".into(),
        lock: ebb::config::LockConfig::Embedded,
        run_dir: "unused".into(),
        retire_delay_ms: 0,
        rpc_timeout_ms: 100,
        always_reprogram: false,
    }
}

/// Adjacencies of a ring of `size` routers and of further links between the given ones.
pub fn ring(size: usize, chords: &[(usize, usize)]) -> BTreeMap<String, AdjacencyDatabase> {
    let mut dbs: BTreeMap<String, AdjacencyDatabase> = (0..size)
        .map(|i| {
            let db = AdjacencyDatabase { node: name(i), plane: 1, ..AdjacencyDatabase::default() };
            (name(i), db)
        })
        .collect();
    let ring = (0..size).map(|i| (i, (i + 1) % size));
    for (i, j) in ring.chain(chords.iter().copied()) {
        connect(&mut dbs, i, j, 100);
    }
    dbs
}

/// Adds both directions of a link.
pub fn connect(dbs: &mut BTreeMap<String, AdjacencyDatabase>, i: usize, j: usize, metric: u32) {
    let k = dbs[&name(i)].adjacencies.iter().filter(|a| a.neighbor == name(j)).count() + 1;
    let interface = |far: usize| if k == 1 { format!("to-r{far:02}") } else { format!("to-r{far:02}.{k}") };
    for (from, to) in [(i, j), (j, i)] {
        let adjacency = Adjacency {
            neighbor: name(to),
            interface: interface(to),
            remote_interface: interface(from),
            rtt_us: u64::from(metric) * 100,
            metric,
            capacity_bps: 400_000_000_000,
            static_label: u32::try_from(k * 1000 + to + 1).unwrap(),
            ..Adjacency::default()
        };
        dbs.get_mut(&name(from)).unwrap().adjacencies.push(adjacency);
    }
}

/// Removes all links between two routers.
pub fn cut(dbs: &mut BTreeMap<String, AdjacencyDatabase>, i: usize, j: usize) {
    for (from, to) in [(i, j), (j, i)] {
        dbs.get_mut(&name(from)).unwrap().adjacencies.retain(|a| a.neighbor != name(to));
    }
}

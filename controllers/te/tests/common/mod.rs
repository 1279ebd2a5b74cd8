//! Random planes from a seed, in any listing order.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part of it

use te::{Demand, Drain, Graph, GraphBuilder, LinkSpec, Mesh, NodeSpec};

/// SplitMix64: enough randomness for test topologies, the same on every machine.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = usize::try_from(self.below(u64::try_from(i).unwrap() + 1)).unwrap();
            items.swap(i, j);
        }
    }
}

/// A plane as lists, so that tests can shuffle them.
#[derive(Clone, Debug)]
pub struct Plane {
    pub nodes: Vec<NodeSpec>,
    pub links: Vec<LinkSpec>,
    pub dcs: Vec<String>,
    pub srlgs: Vec<String>,
}

pub const G: u64 = 1_000_000_000;

impl Plane {
    pub fn graph(&self) -> Graph {
        let mut b = GraphBuilder::new();
        for n in &self.nodes {
            b.node(n.clone());
        }
        for l in &self.links {
            b.link(l.clone());
        }
        b.build().unwrap()
    }

    /// Adds both directions of a link.
    pub fn connect(&mut self, a: &str, b: &str, rtt_us: u32, capacity_bps: u64, srlgs: &[&str]) {
        let parallel = self.links.iter().filter(|l| l.from == a && l.to == b).count();
        let name =
            |x: &str| if parallel == 0 { format!("to-{x}") } else { format!("to-{x}.{}", parallel + 1) };
        for (from, to) in [(a, b), (b, a)] {
            self.links.push(LinkSpec {
                from: from.into(),
                to: to.into(),
                interface: name(to),
                remote_interface: name(from),
                rtt_us,
                capacity_bps,
                srlgs: srlgs.iter().map(|&s| s.to_owned()).collect(),
                drain: Drain::None,
            });
        }
    }

    pub fn add_nodes(&mut self, names: &[&str]) {
        for &n in names {
            self.nodes.push(NodeSpec { name: n.into(), no_transit: false });
        }
    }

    pub fn empty() -> Self {
        Self { nodes: vec![], links: vec![], dcs: vec![], srlgs: vec![] }
    }

    /// `dcs` + `midpoints` nodes on a square, joined by a spanning tree and the shortest further pairs up to `links`
    /// physical links; about a third of the links share risk groups of two or three.
    pub fn random(seed: u64, dcs: usize, midpoints: usize, links: usize) -> Self {
        let mut rng = Rng(seed);
        let mut plane = Self::empty();
        let name = |i: usize| if i < dcs { format!("dc{i:02}") } else { format!("mp{:02}", i - dcs) };
        let total = dcs + midpoints;
        let at: Vec<(u64, u64)> = (0..total).map(|_| (rng.below(30_000), rng.below(30_000))).collect();
        let rtt = |i: usize, j: usize| {
            let (dx, dy) = (at[i].0.abs_diff(at[j].0), at[i].1.abs_diff(at[j].1));
            u32::try_from((dx * dx + dy * dy).isqrt() + 100).unwrap()
        };
        for i in 0..total {
            plane.nodes.push(NodeSpec { name: name(i), no_transit: false });
        }
        plane.dcs = (0..dcs).map(name).collect();
        let mut pairs: Vec<(u32, usize, usize)> = Vec::new();
        for i in 0..total {
            pairs.extend((0..i).map(|j| (rtt(i, j), j, i)));
        }
        pairs.sort_unstable();
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for i in 1..total {
            let near = (0..i).min_by_key(|&j| rtt(i, j)).unwrap();
            chosen.push((near, i));
        }
        for &(_, j, i) in pairs.iter().cycle() {
            if chosen.len() >= links {
                break;
            }
            // now and then a parallel link, else each pair once
            let have = chosen.iter().filter(|&&c| c == (j, i)).count();
            if have == 0 || (have == 1 && rng.below(40) == 0) {
                chosen.push((j, i));
            } else if chosen.len() >= total * (total - 1) / 2 {
                break;
            }
        }
        let group_count = u64::try_from(links / 6 + 1).unwrap();
        for (j, i) in chosen {
            let srlgs: Vec<String> =
                if rng.below(3) == 0 { vec![format!("srlg{}", rng.below(group_count))] } else { vec![] };
            let srlgs: Vec<&str> = srlgs.iter().map(String::as_str).collect();
            let capacity = [400 * G, 800 * G, 1200 * G][usize::try_from(rng.below(3)).unwrap()];
            plane.connect(&name(j), &name(i), rtt(j, i), capacity, &srlgs);
        }
        plane
    }

    /// Gravity-like demands between all DC pairs in all meshes; `total_bps` over everything.
    pub fn demands(&self, graph: &Graph, seed: u64, total_bps: u64) -> Vec<Demand> {
        let mut rng = Rng(seed ^ 0xdead);
        let mass: Vec<u64> = self.dcs.iter().map(|_| 1 + rng.below(9)).collect();
        let mut raw = Vec::new();
        for (i, a) in self.dcs.iter().enumerate() {
            for (j, b) in self.dcs.iter().enumerate().filter(|&(j, _)| j != i) {
                for mesh in Mesh::BY_PRIORITY {
                    raw.push((a, b, mesh, mass[i] * mass[j]));
                }
            }
        }
        let sum: u64 = raw.iter().map(|r| r.3).sum();
        let bps =
            |share: u64| u64::try_from(u128::from(total_bps) * u128::from(share) / u128::from(sum)).unwrap();
        let id = |n: &str| graph.find_node(n).unwrap();
        raw.into_iter()
            .map(|(a, b, mesh, share)| Demand { src: id(a), dst: id(b), mesh, bps: bps(share) })
            .collect()
    }
}

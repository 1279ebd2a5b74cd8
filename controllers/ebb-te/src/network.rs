//! A network as the readers give it, and its way into `te`.

use std::collections::BTreeMap;

use te::{Demand, Graph, GraphBuilder, GraphError, LinkSpec, Mesh, NodeSpec};

/// Nodes, links and demands by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// What the source calls it.
    pub name: String,
    /// Nodes.
    pub nodes: Vec<NodeSpec>,
    /// Directed links.
    pub links: Vec<LinkSpec>,
    /// Demands that the source itself holds.
    pub demands: Vec<NetworkDemand>,
    /// Nodes that originate traffic, where the source says so; else all do.
    pub sources: Vec<String>,
    /// What was assumed or left out, a sentence each.
    pub notes: Vec<String>,
    /// Settings that the source holds.
    pub reserved_percent: Option<[u8; 3]>,
    /// LSPs per bundle that the source asks for.
    pub lsps: Option<u16>,
    /// Links that [`Self::connect`] has made between two nodes, the lesser name first.
    pub(crate) parallels: BTreeMap<(String, String), u32>,
}

/// A demand by node names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDemand {
    /// Source.
    pub from: String,
    /// Destination.
    pub to: String,
    /// Its class, or `None` for traffic of all classes together.
    pub mesh: Option<Mesh>,
    /// Bit/s.
    pub bps: u64,
}

/// Shares of the classes in traffic that has none, per cent: gold, silver, bronze.
pub type Shares = [u8; 3];

impl Network {
    /// The graph.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut builder = GraphBuilder::new();
        for node in &self.nodes {
            builder.node(node.clone());
        }
        for link in &self.links {
            builder.link(link.clone());
        }
        builder.build()
    }

    /// Adds both directions of a link. The interface names follow the lab's: `to-NODE`, `to-NODE.2` for a parallel.
    pub fn connect(&mut self, a: &str, b: &str, rtt_us: u32, capacity_bps: u64) {
        let ends = (a.min(b).to_owned(), a.max(b).to_owned());
        let parallel = self.parallels.entry(ends).or_default();
        *parallel += 1;
        let suffix = if *parallel == 1 { String::new() } else { format!(".{parallel}") };
        for (from, to) in [(a, b), (b, a)] {
            self.links.push(LinkSpec {
                from: from.to_owned(),
                to: to.to_owned(),
                interface: format!("to-{to}{suffix}"),
                remote_interface: format!("to-{from}{suffix}"),
                rtt_us,
                capacity_bps,
                srlgs: Vec::new(),
                drain: te::Drain::None,
            });
        }
    }

    /// Demands of `total_bps` between all pairs of sources, in proportion to the product of the capacities at both ends
    /// (a gravity model).
    pub fn gravity(&self, total_bps: u64) -> Vec<NetworkDemand> {
        let all: Vec<&str> = if self.sources.is_empty() {
            self.nodes.iter().map(|n| n.name.as_str()).collect()
        } else {
            self.sources.iter().map(String::as_str).collect()
        };
        let mass = |n: &str| {
            let own = self.links.iter().filter(|l| l.from == n);
            own.fold(0u64, |sum, l| sum.saturating_add(l.capacity_bps / 1_000_000))
        };
        let masses: Vec<u128> = all.iter().map(|n| u128::from(mass(n)).min(u128::from(u32::MAX))).collect();
        let pairs =
            || (0..all.len()).flat_map(|i| (0..all.len()).filter(move |&j| j != i).map(move |j| (i, j)));
        let sum: u128 = pairs().map(|(i, j)| masses[i] * masses[j]).sum();
        let bps =
            |i: usize, j: usize| u128::from(total_bps).saturating_mul(masses[i] * masses[j]) / sum.max(1);
        pairs()
            .map(|(i, j)| NetworkDemand {
                from: all[i].to_owned(),
                to: all[j].to_owned(),
                mesh: None,
                bps: u64::try_from(bps(i, j)).unwrap_or(u64::MAX),
            })
            .collect()
    }
}

/// Demands for `te`. Traffic without a class is shared out; the rounding remainder goes to the last class. Names the
/// first node that is not in the graph.
pub fn resolve(graph: &Graph, demands: &[NetworkDemand], shares: Shares) -> Result<Vec<Demand>, String> {
    let mut resolved = Vec::with_capacity(demands.len() * 3);
    for d in demands {
        let find = |n: &String| graph.find_node(n).ok_or_else(|| n.clone());
        let (src, dst) = (find(&d.from)?, find(&d.to)?);
        if let Some(mesh) = d.mesh {
            resolved.push(Demand { src, dst, mesh, bps: d.bps });
            continue;
        }
        let mut left = d.bps;
        for (i, (mesh, share)) in Mesh::BY_PRIORITY.into_iter().zip(shares).enumerate() {
            let part = u128::from(d.bps) * u128::from(share) / 100;
            let part = if i == 2 { left } else { u64::try_from(part).unwrap_or(left).min(left) };
            left -= part;
            resolved.push(Demand { src, dst, mesh, bps: part });
        }
    }
    Ok(resolved)
}

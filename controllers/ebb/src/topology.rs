//! From the routers' key-value stores to a graph.

use std::collections::BTreeMap;

use prost::Message as _;
use router_emu::label::{LABEL_FIRST, SID_BASE};
use router_emu::proto::{Adjacency, AdjacencyDatabase, Hop, KeyValue, Path};
use te::{Drain, Graph, GraphBuilder, GraphError, LinkId, LinkSpec, NodeSpec};

use crate::config::ControllerConfig;
use crate::drains::{Mode, Row, Subject};

/// Microseconds per unit of Open/R's metric.
///
/// Costs are made from the metric and not from the measured microseconds, so that jitter below the metric's step does not
/// move paths.
pub const METRIC_US: u32 = 100;
/// What an avoided link costs more, microseconds: above any sum of round-trip times, and a sum of many still fits.
pub const AVOID_US: u32 = 10_000_000;

/// The plane as traffic engineering sees it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Nodes are all configured routers, whether heard of or not. Links are those that both ends announce.
    pub graph: Graph,
    /// Static label per link.
    pub labels: Vec<u32>,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// Merges stores of several routers as the store itself does: of one key the higher version wins, then the higher
/// originator, then the higher value (Open/R's conflict order).
pub fn merge(stores: impl IntoIterator<Item = Vec<KeyValue>>) -> BTreeMap<String, KeyValue> {
    let mut merged: BTreeMap<String, KeyValue> = BTreeMap::new();
    let order = |v: &KeyValue| (v.version, v.originator.clone(), v.value.clone());
    for value in stores.into_iter().flatten() {
        match merged.get(&value.key) {
            Some(have) if order(have) >= order(&value) => {}
            _ => {
                merged.insert(value.key.clone(), value);
            }
        }
    }
    merged
}

impl Topology {
    /// Builds the graph from merged stores. Entries that cannot be used are left out with a warning.
    pub fn build(
        store: &BTreeMap<String, KeyValue>,
        config: &ControllerConfig,
        drained: &[Row],
    ) -> Result<Self, GraphError> {
        let mut warnings = unknown(drained, config);
        let drained = Drained(drained.iter().map(|row| (&row.subject, row.mode)).collect());
        let nodes = decode(store, config, &mut warnings);
        let mut builder = GraphBuilder::new();
        for r in &config.routers {
            let overloaded = nodes.get(r.name.as_str()).is_some_and(|n| n.overloaded);
            let no_transit = overloaded || drained.router(&r.name) == Some(Mode::Exclude);
            builder.node(NodeSpec { name: r.name.clone(), no_transit });
        }
        let mut labels: BTreeMap<(String, String), u32> = BTreeMap::new();
        for (name, node) in &nodes {
            for (interface, there) in &node.adjacencies {
                let Some((far, back)) = reverse(&nodes, name, there) else { continue };
                if !(LABEL_FIRST..SID_BASE).contains(&there.static_label) {
                    warnings.push(format!(
                        "{name} {interface}: static label {} is outside of {LABEL_FIRST} to {}; the link is left out",
                        there.static_label,
                        SID_BASE - 1
                    ));
                    continue;
                }
                let spec = link(name, there, back, node.increment.saturating_add(far.increment));
                builder.link(drained.apply(spec));
                labels.insert(((*name).to_owned(), interface.clone()), there.static_label);
            }
        }
        let graph = builder.build()?;
        let label = |l: LinkId| {
            let key = (graph.name(graph.from(l)).to_owned(), graph.interface(l).to_owned());
            labels.get(&key).copied().unwrap_or_default()
        };
        let labels = graph.links().map(label).collect();
        Ok(Self { graph, labels, warnings })
    }

    /// A path as agents take it.
    pub fn path(&self, links: &[LinkId]) -> Path {
        let g = &self.graph;
        let hop = |&l: &LinkId| Hop {
            router: g.name(g.from(l)).to_owned(),
            interface: g.interface(l).to_owned(),
            label: self.labels[l.ix()],
            neighbor: g.name(g.to(l)).to_owned(),
            remote_interface: g.remote_interface(l).to_owned(),
        };
        Path { hops: links.iter().map(hop).collect() }
    }
}

/// Rows about routers that the plane does not have. An unknown interface may be a link that is down.
fn unknown(drained: &[Row], config: &ControllerConfig) -> Vec<String> {
    let unknown = drained.iter().filter(|row| config.routers.iter().all(|r| r.name != row.subject.router));
    unknown.map(|row| format!("{} is drained but not of this plane", row.subject)).collect()
}

/// The drain database's rows, by subject.
struct Drained<'r>(BTreeMap<&'r Subject, Mode>);

impl Drained<'_> {
    fn of(&self, router: &str, interface: Option<&str>) -> Option<Mode> {
        let subject = Subject { router: router.to_owned(), interface: interface.map(str::to_owned) };
        self.0.get(&subject).copied()
    }

    fn router(&self, router: &str) -> Option<Mode> {
        self.of(router, None)
    }

    /// A link with its drains. Those of Open/R and those of the database add up; either end's row counts.
    fn apply(&self, mut link: LinkSpec) -> LinkSpec {
        let ends = [(&link.from, &link.interface), (&link.to, &link.remote_interface)];
        let modes = ends.map(|(router, interface)| self.of(router, Some(interface)));
        let avoided = ends.iter().any(|(router, _)| self.router(router) == Some(Mode::Avoid));
        let before = match link.drain {
            Drain::Soft(extra) => extra,
            Drain::None | Drain::Hard => 0,
        };
        if modes.contains(&Some(Mode::Exclude)) {
            link.drain = Drain::Hard;
        } else if link.drain != Drain::Hard && (avoided || modes.contains(&Some(Mode::Avoid))) {
            link.drain = Drain::Soft(before.saturating_add(AVOID_US));
        }
        link
    }
}

/// A router's announcement, by interface.
struct Announced {
    overloaded: bool,
    increment: u32,
    adjacencies: BTreeMap<String, Adjacency>,
}

fn decode<'c>(
    store: &BTreeMap<String, KeyValue>,
    config: &'c ControllerConfig,
    warnings: &mut Vec<String>,
) -> BTreeMap<&'c str, Announced> {
    let mut nodes = BTreeMap::new();
    for (key, value) in store {
        let Some(name) = key.strip_prefix("adj:") else { continue };
        let Some(router) = config.routers.iter().find(|r| r.name == name) else {
            warnings.push(format!("{name} is in the store but not in the configuration; it is left out"));
            continue;
        };
        let db = match AdjacencyDatabase::decode(value.value.as_slice()) {
            Ok(db) if db.node == name => db,
            Ok(db) => {
                warnings.push(format!("key {key} holds the adjacencies of {:?}; it is left out", db.node));
                continue;
            }
            Err(e) => {
                warnings.push(format!("key {key} cannot be decoded: {e}; it is left out"));
                continue;
            }
        };
        let mut adjacencies = BTreeMap::new();
        for a in db.adjacencies {
            adjacencies.entry(a.interface.clone()).or_insert(a);
        }
        let announced = Announced { overloaded: db.overloaded, increment: db.metric_increment, adjacencies };
        nodes.insert(router.name.as_str(), announced);
    }
    nodes
}

/// The far end and its announcement of the same link: a link counts only when both ends see each other.
fn reverse<'n>(
    nodes: &'n BTreeMap<&str, Announced>,
    name: &str,
    there: &Adjacency,
) -> Option<(&'n Announced, &'n Adjacency)> {
    let far = nodes.get(there.neighbor.as_str())?;
    let back = far.adjacencies.get(&there.remote_interface)?;
    let same = there.neighbor != name && back.neighbor == name && back.remote_interface == there.interface;
    same.then_some((far, back))
}

/// One direction. Drains of either end count for both directions: traffic goes both ways or neither.
fn link(from: &str, there: &Adjacency, back: &Adjacency, node_increment: u32) -> LinkSpec {
    let increment =
        node_increment.saturating_add(there.metric_increment).saturating_add(back.metric_increment);
    let drain = if there.overloaded || back.overloaded {
        Drain::Hard
    } else if increment > 0 {
        Drain::Soft(increment.saturating_mul(METRIC_US))
    } else {
        Drain::None
    };
    let mut srlgs = [there.srlgs.as_slice(), back.srlgs.as_slice()].concat();
    srlgs.sort_unstable();
    srlgs.dedup();
    LinkSpec {
        from: from.to_owned(),
        to: there.neighbor.clone(),
        interface: there.interface.clone(),
        remote_interface: there.remote_interface.clone(),
        rtt_us: there.metric.max(1).saturating_mul(METRIC_US),
        capacity_bps: there.capacity_bps,
        srlgs,
        drain,
    }
}

//! Shortest paths over the adjacencies that both ends announce.
//!
//! A link counts if each end names the other and its interface. Costs are per direction: the link's metric, its
//! increment and the increments of both routers. A hard-drained link is left out; a hard-drained router is
//! reached but not crossed. All first hops of all equally short paths are used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::Ipv6Addr;

use crate::proto::{Adjacency, AdjacencyDatabase};

/// A first hop: link-local address of the neighbour, own interface.
pub type FirstHop = (Ipv6Addr, String);

/// Way to a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Router at the end.
    pub node: String,
    /// Sum of the costs.
    pub distance: u64,
    /// At least one.
    pub first_hops: BTreeSet<FirstHop>,
}

/// Ways to loopbacks.
pub type RouteTable = BTreeMap<Ipv6Addr, Route>;

/// Databases by router.
pub type Databases = BTreeMap<String, AdjacencyDatabase>;

/// Routes from `me` to every loopback that can be reached.
pub fn routes(me: &str, databases: &Databases) -> RouteTable {
    let mut found: BTreeMap<&str, (u64, BTreeSet<FirstHop>)> = BTreeMap::new();
    let mut heap = BinaryHeap::from([Reverse((0, me))]);
    found.insert(me, (0, BTreeSet::new()));
    let mut done = BTreeSet::new();
    while let Some(Reverse((distance, node))) = heap.pop() {
        if !done.insert(node) {
            continue;
        }
        let Some(database) = databases.get(node) else { continue };
        if node != me && database.overloaded {
            continue;
        }
        let so_far = found.get(node).map(|(_, hops)| hops.clone()).unwrap_or_default();
        for (adjacency, cost) in usable(database, databases) {
            let through = distance + cost;
            let hops = if node == me { first_hop(adjacency).into_iter().collect() } else { so_far.clone() };
            let entry = found.entry(&adjacency.neighbor).or_insert_with(|| (u64::MAX, BTreeSet::new()));
            if through < entry.0 {
                *entry = (through, hops);
                heap.push(Reverse((through, &adjacency.neighbor)));
            } else if through == entry.0 {
                entry.1.extend(hops);
            }
        }
    }
    found.remove(me);
    found
        .into_iter()
        .filter(|(_, (_, hops))| !hops.is_empty())
        .filter_map(|(node, (distance, first_hops))| {
            let loopback = databases.get(node)?.loopback.parse().ok()?;
            Some((loopback, Route { node: node.to_owned(), distance, first_hops }))
        })
        .collect()
}

/// A router's outgoing adjacencies that may be used, each with its cost (at least 1).
pub fn usable<'a>(
    database: &'a AdjacencyDatabase,
    databases: &'a Databases,
) -> impl Iterator<Item = (&'a Adjacency, u64)> {
    database.adjacencies.iter().filter_map(move |adjacency| {
        let far = databases.get(&adjacency.neighbor)?;
        let back = far.adjacencies.iter().find(|back| {
            back.neighbor == database.node
                && back.interface == adjacency.remote_interface
                && back.remote_interface == adjacency.interface
        })?;
        if adjacency.overloaded || back.overloaded {
            return None;
        }
        let cost = u64::from(adjacency.metric.max(1))
            + u64::from(adjacency.metric_increment)
            + u64::from(database.metric_increment)
            + u64::from(far.metric_increment);
        Some((adjacency, cost))
    })
}

fn first_hop(adjacency: &Adjacency) -> Option<FirstHop> {
    Some((adjacency.next_hop.parse().ok()?, adjacency.interface.clone()))
}

#[cfg(test)]
#[path = "spf_tests.rs"]
mod tests;

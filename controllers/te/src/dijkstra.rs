//! One Dijkstra for all algorithms: flat arrays, reused between searches, integer keys, a total order on paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::graph::{Graph, LinkId, NodeId};

/// Cost of a path or of a link: strictly positive for a link, additive along a path.
///
/// CSPF puts the cost in microseconds in the upper bits and adds one per link, so that the fewer hops win among paths
/// of equal cost.
pub type PathKey = u64;

/// Key of a node that was not reached, and weight of a link that must not be used.
pub const UNREACHABLE: PathKey = u64::MAX;

const NO_LINK: u32 = u32::MAX;

/// Weights that are made when a search comes to a node: most searches end before they have seen all links.
pub trait Weights {
    /// Weights of the links that leave `node`; they have the indices `links`. Positive, or [`UNREACHABLE`].
    fn of_node(&mut self, node: usize, links: Range<usize>) -> &[PathKey];
}

impl Weights for &[PathKey] {
    fn of_node(&mut self, _: usize, links: Range<usize>) -> &[PathKey] {
        &self[links]
    }
}

/// Working memory of searches over one graph.
///
/// Among paths of equal key it finds the one whose last link has the lowest id, then the last but one, and so on. That
/// order depends on the paths alone, so removing links that the winner does not use cannot change the winner.
#[derive(Debug)]
pub struct Search {
    first: Vec<u32>,
    head: Vec<u32>,
    tail: Vec<u32>,
    no_transit: Vec<bool>,
    key: Vec<PathKey>,
    via: Vec<u32>,
    heap: BinaryHeap<Reverse<(PathKey, u32)>>,
}

impl Search {
    /// Working memory for `graph`.
    pub fn new(graph: &Graph) -> Self {
        let nodes = graph.node_count();
        let mut first: Vec<u32> = Vec::with_capacity(nodes + 1);
        first.push(0);
        first.extend(graph.nodes().map(|n| u32::try_from(graph.out(n).end).unwrap_or(u32::MAX)));
        Self {
            first,
            head: graph.links().map(|l| graph.to(l).0).collect(),
            tail: graph.links().map(|l| graph.from(l).0).collect(),
            no_transit: graph.nodes().map(|n| graph.no_transit(n)).collect(),
            key: vec![UNREACHABLE; nodes],
            via: vec![NO_LINK; nodes],
            heap: BinaryHeap::with_capacity(graph.link_count()),
        }
    }

    /// Finds the best path from `source` to `target` (or to every node, when `None`) over the links that `usable`
    /// admits, with `weight` per link index; [`UNREACHABLE`] weights are never used.
    ///
    /// Returns whether `target` was reached. Weights must be positive and sums must stay below [`UNREACHABLE`].
    pub fn run(
        &mut self,
        source: NodeId,
        target: Option<NodeId>,
        weight: &[PathKey],
        usable: impl Fn(usize) -> bool,
    ) -> bool {
        let mut weight = weight;
        self.run_with(source, target, &mut weight, usable)
    }

    /// [`Self::run`] with weights that are made on demand.
    pub fn run_with(
        &mut self,
        source: NodeId,
        target: Option<NodeId>,
        weights: &mut impl Weights,
        usable: impl Fn(usize) -> bool,
    ) -> bool {
        self.key.fill(UNREACHABLE);
        self.via.fill(NO_LINK);
        self.heap.clear();
        self.key[source.ix()] = 0;
        self.heap.push(Reverse((0, source.0)));
        while let Some(Reverse((key, node))) = self.heap.pop() {
            // every predecessor on a best path has a smaller key, so the target's chain is final when it comes up
            if target.is_some_and(|t| t.0 == node) {
                return true;
            }
            let at = node as usize;
            if key > self.key[at] || (self.no_transit[at] && node != source.0) {
                continue;
            }
            let links = self.first[at] as usize..self.first[at + 1] as usize;
            self.relax(at, key, weights.of_node(at, links), target, &usable);
        }
        target.is_none()
    }

    fn relax(
        &mut self,
        at: usize,
        key: PathKey,
        weight: &[PathKey],
        target: Option<NodeId>,
        usable: &impl Fn(usize) -> bool,
    ) {
        let (start, end) = (self.first[at], self.first[at + 1]);
        let range = start as usize..end as usize;
        for ((link, &w), &head) in (start..end).zip(weight).zip(&self.head[range]) {
            if w == UNREACHABLE {
                continue;
            }
            let (to, next) = (head as usize, key + w);
            if next > self.key[to] || !usable(link as usize) {
                continue;
            }
            if next < self.key[to] {
                self.key[to] = next;
                self.via[to] = link;
                // weights are positive: a node no nearer than the target so far is on no best path to it
                if target.is_none_or(|t| t.ix() == to || next < self.key[t.ix()]) {
                    self.heap.push(Reverse((next, head)));
                }
            } else if link < self.via[to] {
                self.via[to] = link;
            }
        }
    }

    /// Key of the best path to `node` of the last search.
    pub fn key(&self, node: NodeId) -> PathKey {
        self.key[node.ix()]
    }

    /// Writes the best path to `target` of the last search into `path`, first link first. Empty when not reached.
    pub fn path_to(&self, target: NodeId, path: &mut Vec<LinkId>) {
        path.clear();
        let mut at = target.ix();
        while self.via[at] != NO_LINK {
            let link = self.via[at];
            path.push(LinkId(link));
            at = self.tail[link as usize] as usize;
        }
        path.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Drain, GraphBuilder, LinkSpec, NodeSpec};

    fn graph(nodes: &[(&str, bool)], links: &[(&str, &str, u32)]) -> Graph {
        let mut b = GraphBuilder::new();
        for &(name, no_transit) in nodes {
            b.node(NodeSpec { name: name.into(), no_transit });
        }
        for &(from, to, rtt_us) in links {
            for (x, y) in [(from, to), (to, from)] {
                b.link(LinkSpec {
                    from: x.into(),
                    to: y.into(),
                    interface: format!("to-{y}"),
                    remote_interface: format!("to-{x}"),
                    rtt_us,
                    capacity_bps: 1,
                    srlgs: vec![],
                    drain: Drain::None,
                });
            }
        }
        b.build().unwrap()
    }

    fn best(g: &Graph, from: &str, to: &str) -> Vec<String> {
        let mut s = Search::new(g);
        let w: Vec<u64> = g.links().map(|l| (u64::from(g.rtt_us(l)) << 16) + 1).collect();
        let t = g.find_node(to).unwrap();
        let mut path = vec![];
        if s.run(g.find_node(from).unwrap(), Some(t), &w, |_| true) {
            s.path_to(t, &mut path);
        }
        path.iter().map(|&l| g.name(g.to(l)).to_owned()).collect()
    }

    #[test]
    fn fewer_hops_win_among_equal_costs() {
        let g = graph(
            &[("a", false), ("b", false), ("c", false), ("z", false)],
            &[("a", "b", 1), ("b", "c", 1), ("c", "z", 8), ("b", "z", 9)],
        );
        assert_eq!(best(&g, "a", "z"), ["b", "z"]);
    }

    #[test]
    fn lower_last_link_wins_among_equal_keys() {
        let g = graph(
            &[("a", false), ("b", false), ("c", false), ("z", false)],
            &[("a", "c", 5), ("c", "z", 5), ("a", "b", 5), ("b", "z", 5)],
        );
        assert_eq!(best(&g, "a", "z"), ["b", "z"]);
    }

    #[test]
    fn zero_rtt_links_do_not_loop() {
        let g = graph(&[("a", false), ("b", false), ("z", false)], &[("a", "b", 0), ("b", "z", 0)]);
        assert_eq!(best(&g, "a", "z"), ["b", "z"]);
    }

    #[test]
    fn an_overloaded_node_carries_no_transit_but_can_be_an_end() {
        let g = graph(
            &[("a", false), ("b", true), ("c", false), ("z", false)],
            &[("a", "b", 1), ("b", "z", 1), ("a", "c", 9), ("c", "z", 9)],
        );
        assert_eq!(best(&g, "a", "z"), ["c", "z"]);
        assert_eq!(best(&g, "a", "b"), ["b"]);
        assert_eq!(best(&g, "b", "z"), ["z"]);
    }
}

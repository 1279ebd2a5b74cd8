//! Searches for one target, directed by how far it is from every node.
//!
//! The distances are made once, backwards from the target. Searches then come in numbers, and each may find links
//! missing or dearer than the distances assumed: those can only have become longer, which is all that a directed search
//! needs to find what an undirected one finds, by the same order on paths. Most walk straight to the answer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::dijkstra::{PathKey, UNREACHABLE};
use crate::graph::{Graph, LinkId, NodeId};

const NO_LINK: u32 = u32::MAX;

/// Working memory of searches over one graph.
#[derive(Debug)]
pub(crate) struct Guided {
    first: Vec<u32>,
    head: Vec<u32>,
    tail: Vec<u32>,
    no_transit: Vec<bool>,
    /// Links that reach a node: `into[into_first[node]..into_first[node + 1]]`.
    into: Vec<u32>,
    into_first: Vec<u32>,
    target: u32,
    /// At most the key of the best path from each node to the target.
    rest: Vec<PathKey>,
    key: Vec<PathKey>,
    via: Vec<u32>,
    /// Nodes whose `key` and `via` belong to the present search.
    touched: Vec<u32>,
    /// Keys with nodes in their low 32 bits: one comparison.
    heap: BinaryHeap<Reverse<u128>>,
    /// Nodes that searches since the last [`Self::aim`] went through and that are not on their paths.
    detours: usize,
}

impl Guided {
    pub(crate) fn new(graph: &Graph) -> Self {
        let nodes = graph.node_count();
        let end = |n: NodeId| u32::try_from(graph.out(n).end).unwrap_or(u32::MAX);
        let mut into: Vec<LinkId> = graph.links().collect();
        into.sort_by_key(|&l| (graph.to(l), l));
        let mut into_first = vec![0; nodes + 1];
        for l in graph.links() {
            into_first[graph.to(l).ix() + 1] += 1;
        }
        for i in 1..into_first.len() {
            into_first[i] += into_first[i - 1];
        }
        Self {
            first: std::iter::once(0).chain(graph.nodes().map(end)).collect(),
            head: graph.links().map(|l| graph.to(l).0).collect(),
            tail: graph.links().map(|l| graph.from(l).0).collect(),
            no_transit: graph.nodes().map(|n| graph.no_transit(n)).collect(),
            into: into.into_iter().map(|l| l.0).collect(),
            into_first,
            target: 0,
            rest: vec![UNREACHABLE; nodes],
            key: vec![UNREACHABLE; nodes],
            via: vec![NO_LINK; nodes],
            touched: Vec::new(),
            heap: BinaryHeap::new(),
            detours: 0,
        }
    }

    /// Aims at `target`: makes the distances of all nodes to it, or with `near` only of those up to that node; all
    /// others count as that far.
    pub(crate) fn aim(&mut self, target: NodeId, weight: &[PathKey], near: Option<NodeId>) {
        self.detours = 0;
        self.target = target.0;
        self.rest.fill(UNREACHABLE);
        self.rest[target.ix()] = 0;
        self.heap.clear();
        self.heap.push(Reverse(packed(0, target.0)));
        while let Some(Reverse(top)) = self.heap.pop() {
            let (key, node) = unpacked(top);
            let at = node as usize;
            if near.is_some_and(|n| n.0 == node) {
                for rest in &mut self.rest {
                    *rest = (*rest).min(key);
                }
                return;
            }
            if key > self.rest[at] || (self.no_transit[at] && node != target.0) {
                continue;
            }
            // no node farther than `near` needs its distance
            let most = near.map_or(UNREACHABLE, |n| self.rest[n.ix()]);
            for &l in &self.into[self.into_first[at] as usize..self.into_first[at + 1] as usize] {
                let (w, from) = (weight[l as usize], self.tail[l as usize]);
                if w == UNREACHABLE {
                    continue;
                }
                let next = key + w;
                if next < self.rest[from as usize] && next <= most {
                    self.rest[from as usize] = next;
                    self.heap.push(Reverse(packed(next, from)));
                }
            }
        }
    }

    /// Whether weights have moved so far from the last [`Self::aim`] that searches have lost as much as another would
    /// cost.
    pub(crate) fn is_astray(&self) -> bool {
        self.detours >= self.rest.len()
    }

    /// Key of the best path from `node` that the last [`Self::aim`] found. With `near`, asked of that node only.
    pub(crate) fn rest(&self, node: NodeId) -> PathKey {
        self.rest[node.ix()]
    }

    /// Finds the best path from `source` to the target over the links that `admit` (link, node it leaves, node it
    /// reaches) lets through. No weight may be less than it was for [`Self::aim`]. Paths above `bound` are not looked
    /// at: give the key of a known path, or [`UNREACHABLE`].
    pub(crate) fn run(
        &mut self,
        source: NodeId,
        weight: &[PathKey],
        bound: PathKey,
        admit: impl Fn(u32, u32, u32) -> bool,
    ) -> bool {
        for n in self.touched.drain(..) {
            self.key[n as usize] = UNREACHABLE;
            self.via[n as usize] = NO_LINK;
        }
        self.heap.clear();
        self.key[source.ix()] = 0;
        self.touched.push(source.0);
        self.heap.push(Reverse(packed(self.rest[source.ix()], source.0)));
        let target = self.target as usize;
        while let Some(Reverse(top)) = self.heap.pop() {
            let (sum, node) = unpacked(top);
            // the distances leave no slack, so equal sums must be seen to the end before ties are settled
            if sum > self.key[target] {
                break;
            }
            let at = node as usize;
            let key = self.key[at];
            let stale = sum > key.saturating_add(self.rest[at]);
            if at == target || stale || (self.no_transit[at] && node != source.0) {
                continue;
            }
            self.detours += 1;
            self.relax(node, key, weight, bound, &admit);
        }
        self.key[target] != UNREACHABLE
    }

    fn relax(
        &mut self,
        node: u32,
        key: PathKey,
        weight: &[PathKey],
        bound: PathKey,
        admit: &impl Fn(u32, u32, u32) -> bool,
    ) {
        let bound = bound.min(self.key[self.target as usize]);
        let (start, end) = (self.first[node as usize], self.first[node as usize + 1]);
        let range = start as usize..end as usize;
        for ((link, &w), &to) in (start..end).zip(&weight[range.clone()]).zip(&self.head[range]) {
            let (at, rest) = (to as usize, self.rest[to as usize]);
            if w == UNREACHABLE || rest == UNREACHABLE {
                continue;
            }
            let next = key + w;
            if next > self.key[at] || next + rest > bound || !admit(link, node, to) {
                continue;
            }
            if next < self.key[at] {
                if self.key[at] == UNREACHABLE {
                    self.touched.push(to);
                }
                self.key[at] = next;
                self.via[at] = link;
                self.heap.push(Reverse(packed(next + rest, to)));
            } else if link < self.via[at] {
                self.via[at] = link;
            }
        }
    }

    /// Writes the best path of the last search into `path`, last link first.
    pub(crate) fn backwards(&mut self, path: &mut Vec<LinkId>) {
        path.clear();
        let mut at = self.target as usize;
        while self.via[at] != NO_LINK {
            let link = self.via[at];
            path.push(LinkId(link));
            at = self.tail[link as usize] as usize;
        }
        self.detours = self.detours.saturating_sub(path.len());
    }
}

fn packed(key: PathKey, node: u32) -> u128 {
    u128::from(key) << 32 | u128::from(node)
}

#[allow(clippy::cast_possible_truncation)] // the parts that packed() put together
fn unpacked(top: u128) -> (PathKey, u32) {
    ((top >> 32) as PathKey, top as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dijkstra::Search;
    use crate::graph::{Drain, GraphBuilder, LinkSpec, NodeSpec};

    /// Nodes named by number, and directed links between any two of them.
    fn graph(nodes: u32, links: &[(u32, u32)], no_transit: u32) -> Graph {
        let mut b = GraphBuilder::new();
        for n in 0..nodes {
            b.node(NodeSpec { name: format!("{n:02}"), no_transit: n == no_transit });
        }
        for (i, (from, to)) in links.iter().map(|&(a, b)| (a % nodes, b % nodes)).enumerate() {
            if from != to {
                b.link(LinkSpec {
                    from: format!("{from:02}"),
                    to: format!("{to:02}"),
                    interface: format!("i{i:03}"),
                    remote_interface: String::new(),
                    rtt_us: 1,
                    capacity_bps: 1,
                    srlgs: vec![],
                    drain: Drain::None,
                });
            }
        }
        b.build().unwrap()
    }

    proptest! {
        /// Directed or not, stale distances or fresh, with a bound or without: the same path.
        #[test]
        fn finds_what_an_undirected_search_finds(
            nodes in 2..9u32,
            ends in prop::collection::vec((0..9u32, 0..9u32), 1..40),
            small in prop::collection::vec((1..5u64, 0..3u64), 40),
            no_transit in 0..12u32,
        ) {
            let g = graph(nodes, &ends, no_transit);
            let closed = |w: u64| if w == 4 { UNREACHABLE } else { w };
            let before: Vec<PathKey> = small.iter().take(g.link_count()).map(|s| closed(s.0)).collect();
            let after: Vec<PathKey> =
                before.iter().zip(&small).map(|(w, s)| if *w == UNREACHABLE { *w } else { w + s.1 }).collect();
            let (mut guided, mut search) = (Guided::new(&g), Search::new(&g));
            let (mut path, mut want) = (vec![], vec![]);
            for target in g.nodes() {
                for (source, near) in g.nodes().filter(|s| *s != target).flat_map(|s| [(s, None), (s, Some(s))]) {
                    guided.aim(target, &before, near);
                    for weight in [&before, &after] {
                        let reached = search.run(source, Some(target), weight, |_| true);
                        prop_assert_eq!(guided.rest(source) != UNREACHABLE, reached);
                        search.path_to(target, &mut want);
                        for bound in [UNREACHABLE, search.key(target)] {
                            prop_assert_eq!(guided.run(source, weight, bound, |_, _, _| true), reached);
                            if reached {
                                guided.backwards(&mut path);
                                path.reverse();
                                prop_assert_eq!(&path, &want);
                            }
                        }
                    }
                }
            }
        }
    }
}

//! K shortest loop-free paths, after Yen, with Lawler's division: every further path is looked for only where no path
//! found before has looked.
//!
//! Paths are ordered as everywhere here: key, then link ids from the far end backwards. The searches from a path's nodes
//! are directed by the exact distance to the target in the whole graph, so most of them walk straight to the answer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::dijkstra::{PathKey, UNREACHABLE};
use crate::graph::{Graph, LinkId, NodeId};
use crate::guided::Guided;

/// Working memory of searches over one graph with one set of weights.
#[derive(Debug)]
pub struct Yen<'a> {
    graph: &'a Graph,
    weight: &'a [PathKey],
    target: Option<NodeId>,
    guided: Guided,
    /// Nodes of the present prefix.
    blocked: Vec<bool>,
}

/// The best path of one part of the space of paths: those that begin with its first `prefix` links and then leave by a
/// link that is not in `banned`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    key: PathKey,
    /// Links, last link first: so the derived order is the order on paths.
    backwards: Vec<LinkId>,
    prefix: usize,
    banned: Vec<LinkId>,
}

impl<'a> Yen<'a> {
    /// Working memory for `graph`, with `weight` per link as for [`crate::Search::run`].
    pub fn new(graph: &'a Graph, weight: &'a [PathKey]) -> Self {
        let blocked = vec![false; graph.node_count()];
        Self { graph, weight, target: None, guided: Guided::new(graph), blocked }
    }

    /// The `k` best paths from `src` to `dst`, best first; fewer when there are fewer. Ask for all sources of one
    /// target in a row: the distances to it are kept.
    pub fn paths(&mut self, src: NodeId, dst: NodeId, k: usize) -> Vec<Vec<LinkId>> {
        if self.target != Some(dst) {
            self.guided.aim(dst, self.weight, None);
            self.target = Some(dst);
        }
        let mut found = Vec::new();
        let mut candidates = BinaryHeap::new();
        if src != dst && k > 0 {
            candidates.extend(self.best(src, &[], Vec::new()).map(Reverse));
        }
        while let Some(Reverse(best)) = candidates.pop() {
            let mut path = best.backwards;
            path.reverse();
            if found.len() + 1 < k {
                let mut banned = best.banned;
                for prefix in best.prefix..path.len() {
                    banned.push(path[prefix]);
                    let part = self.best(src, &path[..prefix], std::mem::take(&mut banned));
                    candidates.extend(part.map(Reverse));
                }
            }
            found.push(path);
            if found.len() == k {
                break;
            }
        }
        found
    }

    /// The best path that begins with `prefix` and leaves its end by a link that is not banned.
    fn best(&mut self, src: NodeId, prefix: &[LinkId], banned: Vec<LinkId>) -> Option<Candidate> {
        let start = prefix.last().map_or(src, |&l| self.graph.to(l));
        for l in prefix {
            self.blocked[self.graph.from(*l).ix()] = true;
        }
        let blocked = &self.blocked;
        let admit = |link, from, to: u32| {
            !blocked[to as usize] && to != start.0 && (from != start.0 || !banned.contains(&LinkId(link)))
        };
        let found =
            self.guided.rest(start) != UNREACHABLE && self.guided.run(start, self.weight, UNREACHABLE, admit);
        for l in prefix {
            self.blocked[self.graph.from(*l).ix()] = false;
        }
        if !found {
            return None;
        }
        let mut backwards = Vec::with_capacity(prefix.len() + 4);
        self.guided.backwards(&mut backwards);
        backwards.extend(prefix.iter().rev());
        let key = backwards.iter().map(|l| self.weight[l.ix()]).sum();
        Some(Candidate { key, backwards, prefix: prefix.len(), banned })
    }
}

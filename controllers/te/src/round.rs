//! One class round: what a primary algorithm is given and what it must fill in.

use crate::dijkstra::{PathKey, Search, UNREACHABLE};
use crate::graph::{Drain, Graph, LinkId, NodeId};
use crate::lsp_mesh::{PathId, PathStore};

/// One pair's demand in a class round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source.
    pub src: NodeId,
    /// Destination.
    pub dst: NodeId,
    /// Bandwidth of each LSP, bit/s.
    pub lsp_bps: u64,
}

/// Counters of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// LSPs with a path.
    pub placed: u32,
    /// Of those, over the limit.
    pub over_limit: u32,
    /// LSPs without a path.
    pub unrouted: u32,
}

/// A class round in progress. The engine makes it; the algorithm places LSPs with [`Self::take`].
#[derive(Debug)]
pub struct PrimaryRound<'a> {
    /// Topology.
    pub graph: &'a Graph,
    /// Cost per link: microseconds (plus soft drain) in the upper bits, one hop; hard-drained links unreachable.
    pub weight: &'a [PathKey],
    /// Demands, by source and destination.
    pub flows: &'a [Flow],
    /// LSPs per flow.
    pub lsps: u16,
    /// Bandwidth still usable per link, bit/s. Falls to 0, not below, when the fallback goes over.
    pub free: Vec<u64>,
    /// Bandwidth used by this class per link, bit/s.
    pub used: Vec<u64>,
    /// Where paths are stored.
    pub paths: &'a mut PathStore,
    /// Path of every LSP: `lsps` entries per flow, flow by flow.
    pub placed: Vec<Option<PathId>>,
    /// Counters.
    pub tally: Tally,
    /// For algorithms that plan with a fractional flow: its largest utilisation of what is usable, and a proven lower
    /// bound of what any such flow could reach.
    pub fractional: Option<(f64, f64)>,
}

impl PrimaryRound<'_> {
    /// Whether every link of `path` has room for `bps`.
    pub fn fits(&self, path: &[LinkId], bps: u64) -> bool {
        path.iter().all(|l| self.free[l.ix()] >= bps)
    }

    /// Gives LSP `slot` of flow `flow` the stored path `id` and charges its links.
    pub fn take(&mut self, flow: usize, slot: usize, id: PathId) {
        let bps = self.flows[flow].lsp_bps;
        for link in self.paths.get(id) {
            let at = link.ix();
            self.free[at] = self.free[at].saturating_sub(bps);
            self.used[at] = self.used[at].saturating_add(bps);
        }
        self.placed[flow * usize::from(self.lsps) + slot] = Some(id);
        self.tally.placed += 1;
    }

    /// Books the paths in `placed` anew, starting from `usable` bit/s per link, and counts them: for algorithms that
    /// decide first and book afterwards. LSPs are booked as CSPF places them, one of every pair in turn; one that
    /// finds a link of its path without room counts as over the limit.
    pub fn settle(&mut self, usable: &[u64]) {
        self.free.copy_from_slice(usable);
        self.used.fill(0);
        self.tally = Tally::default();
        for slot in 0..usize::from(self.lsps) {
            for flow in 0..self.flows.len() {
                match self.placed[flow * usize::from(self.lsps) + slot] {
                    Some(id) => {
                        let fits = self.fits(self.paths.get(id), self.flows[flow].lsp_bps);
                        self.take(flow, slot, id);
                        self.tally.over_limit += u32::from(!fits);
                    }
                    None => self.tally.unrouted += 1,
                }
            }
        }
    }
}

/// Places the primaries of one class.
///
/// Contract: deterministic; loop-free paths; every LSP of a pair that the undrained graph connects gets a path, if
/// need be over the limit and then counted in [`Tally::over_limit`].
pub trait PrimaryAlgorithm {
    /// Name for logs.
    fn name(&self) -> &'static str;
    /// Places all LSPs of the round.
    fn place(&self, round: &mut PrimaryRound<'_>, search: &mut Search);
}

/// Bits of a key below the cost: room for the hop count.
const HOP_BITS: u32 = 16;

/// Weights for shortest paths by RTT: cost in microseconds, then hops.
pub fn rtt_weights(graph: &Graph) -> Vec<PathKey> {
    let weight = |l| match graph.drain(l) {
        Drain::Hard => UNREACHABLE,
        Drain::Soft(extra) => ((u64::from(graph.rtt_us(l)) + u64::from(extra)) << HOP_BITS) + 1,
        Drain::None => (u64::from(graph.rtt_us(l)) << HOP_BITS) + 1,
    };
    graph.links().map(weight).collect()
}

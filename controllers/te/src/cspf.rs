//! Round-robin constrained shortest path first (EBB paper, section 4.2.1, algorithms 3 and 4).
//!
//! In each of the rounds every pair gets one LSP, on the shortest path by RTT on which every link still has room for it.
//!
//! The paper leaves the no-path case open. Here such an LSP takes the pair's shortest path by RTT regardless of room
//! and is counted as `over_limit`: latency stays bounded, every pair keeps its 16 LSPs, and the overload sits where an
//! operator sees it. The same rule holds for the rest of the pair's LSPs in the round, since room only shrinks.
//!
//! Because room only shrinks within a round of a class, a pair's previous path stays its best path until one of its
//! links runs out: it was the best of more links, and the order on paths does not depend on which others exist. So a
//! search is needed only when a path no longer fits, and the first candidate is the shortest path of the empty graph.

use crate::dijkstra::Search;
use crate::graph::LinkId;
use crate::lsp_mesh::PathId;
use crate::round::{PrimaryAlgorithm, PrimaryRound};

/// Round-robin CSPF.
#[derive(Clone, Copy, Debug)]
pub struct Cspf {
    /// Keep a pair's path while it provably is the answer; off only to check that nothing else changes.
    pub reuse: bool,
}

impl Default for Cspf {
    fn default() -> Self {
        Self { reuse: true }
    }
}

/// What a pair's next LSP starts from.
#[derive(Clone, Copy, Debug)]
enum Candidate {
    /// Best path so far; valid while it fits.
    Path(PathId),
    /// Nothing fits: the shortest path by RTT.
    Overflow(PathId),
    /// Not connected.
    Nothing,
}

impl PrimaryAlgorithm for Cspf {
    fn name(&self) -> &'static str {
        "cspf"
    }

    fn place(&self, round: &mut PrimaryRound<'_>, search: &mut Search) {
        let shortest = shortest_paths(round, search);
        let mut candidates: Vec<Candidate> =
            shortest.iter().map(|s| s.map_or(Candidate::Nothing, Candidate::Path)).collect();
        let mut scratch: Vec<LinkId> = Vec::new();
        for slot in 0..usize::from(round.lsps) {
            for flow in 0..round.flows.len() {
                let next = self.next(round, search, flow, candidates[flow], shortest[flow], &mut scratch);
                candidates[flow] = next;
                match next {
                    Candidate::Path(id) => round.take(flow, slot, id),
                    Candidate::Overflow(id) => {
                        round.take(flow, slot, id);
                        round.tally.over_limit += 1;
                    }
                    Candidate::Nothing => round.tally.unrouted += 1,
                }
            }
        }
    }
}

impl Cspf {
    fn next(
        self,
        round: &mut PrimaryRound<'_>,
        search: &mut Search,
        flow: usize,
        last: Candidate,
        shortest: Option<PathId>,
        scratch: &mut Vec<LinkId>,
    ) -> Candidate {
        let bps = round.flows[flow].lsp_bps;
        match last {
            Candidate::Nothing => return last,
            Candidate::Overflow(_) if self.reuse => return last,
            Candidate::Path(id) if self.reuse && round.fits(round.paths.get(id), bps) => return last,
            _ => {}
        }
        let (src, dst) = (round.flows[flow].src, round.flows[flow].dst);
        let free = &round.free;
        if search.run(src, Some(dst), round.weight, |l| free[l] >= bps) {
            search.path_to(dst, scratch);
            let same = matches!(last, Candidate::Path(id) if round.paths.get(id) == scratch.as_slice());
            if same { last } else { Candidate::Path(round.paths.push(scratch)) }
        } else {
            shortest.map_or(Candidate::Nothing, Candidate::Overflow)
        }
    }
}

/// Shortest path by RTT of every flow, whatever the room. Flows are sorted by source: one search per source.
fn shortest_paths(round: &mut PrimaryRound<'_>, search: &mut Search) -> Vec<Option<PathId>> {
    let mut searched = None;
    let mut path = Vec::new();
    let mut found = Vec::with_capacity(round.flows.len());
    for flow in round.flows {
        if searched != Some(flow.src) {
            search.run(flow.src, None, round.weight, |_| true);
            searched = Some(flow.src);
        }
        search.path_to(flow.dst, &mut path);
        found.push((!path.is_empty()).then(|| round.paths.push(&path)));
    }
    found
}

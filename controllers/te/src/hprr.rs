//! HPRR, heuristic path rerouting (EBB paper, section 4.2.3, algorithm 1).
//!
//! It starts from CSPF's paths and passes over them a few times. An LSP whose hottest link has utilisation u looks for a
//! path on which every link stays below u; among those it takes the shortest under weights that grow exponentially with
//! what a link's utilisation would be, relative to u less the step the algorithm wants to gain. So no step raises the
//! largest utilisation, and the hot links cool down. Latency plays no part: stretch is the price.
//!
//! Utilisation is bandwidth of this class over what this class may use.
//!
//! Three things keep it near the cost of CSPF without changing what a step means:
//! * links that would end at u or above are left out of the search. The paper searches them too and then drops a result
//!   that holds one; leaving them out finds whatever that finds, and ends early where there is nothing to find;
//! * weights are made when the search comes to a node, not for all links;
//! * an LSP that found nothing finds nothing again until some path has moved, and no more does another LSP of its
//!   bundle on the same path.
//!
//! The paper skips LSPs on cool paths when they are small, with thresholds that it does not publish: see [`Hprr`].

use std::ops::Range;

use crate::cspf::Cspf;
use crate::dijkstra::{PathKey, Search, UNREACHABLE, Weights};
use crate::graph::{Drain, Graph, LinkId, NodeId};
use crate::lsp_mesh::PathId;
use crate::round::{PrimaryAlgorithm, PrimaryRound};

/// HPRR with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hprr {
    /// The paper's epsilon, how near to the local optimum a step must come: 0.05.
    pub epsilon: f64,
    /// The paper's sigma, the share of u that a step aims to gain: 0.05.
    pub sigma: f64,
    /// The paper's H, hops of a long path: 10.
    pub hops: f64,
    /// The paper's N, passes over all LSPs: 3.
    pub epochs: u32,
    /// A path is cool when no link on it is used above this share. Not published.
    pub cool: f64,
    /// An LSP is small when it needs at most this share of its path's hottest link. Not published.
    pub small: f64,
}

impl Default for Hprr {
    fn default() -> Self {
        Self { epsilon: 0.05, sigma: 0.05, hops: 10.0, epochs: 3, cool: 0.4, small: 0.05 }
    }
}

impl Hprr {
    /// Steepness of the weights, `log2(H) / epsilon`. The published 66.4 comes out with the logarithm to base 2 only.
    pub fn alpha(&self) -> f64 {
        self.hops.log2() / self.epsilon
    }
}

impl PrimaryAlgorithm for Hprr {
    fn name(&self) -> &'static str {
        "hprr"
    }

    fn place(&self, round: &mut PrimaryRound<'_>, search: &mut Search) {
        let usable = round.free.clone();
        Cspf::default().place(round, search);
        let mut heat = Heat::new(round.graph, &usable, &round.used, self.alpha());
        let mut tried = vec![NEVER; round.placed.len()];
        let mut moves = 0u64;
        for _ in 0..self.epochs {
            let before = moves;
            for flow in 0..round.flows.len() {
                self.reroute(round, search, &mut heat, &mut tried, &mut moves, flow);
            }
            if moves == before {
                break;
            }
        }
        round.settle(&usable);
    }
}

/// An LSP that has not looked for a better path since its last move.
const NEVER: u64 = u64::MAX;

impl Hprr {
    /// One pass over the LSPs of a flow. `tried` holds, per LSP, the number of moves at its last vain search.
    fn reroute(
        &self,
        round: &mut PrimaryRound<'_>,
        search: &mut Search,
        heat: &mut Heat,
        tried: &mut [u64],
        moves: &mut u64,
        flow: usize,
    ) {
        let lsps = usize::from(round.lsps);
        let bps = to_f64(round.flows[flow].lsp_bps);
        if round.flows[flow].lsp_bps == 0 {
            return; // moving nothing cools nothing
        }
        let (src, dst) = (round.flows[flow].src, round.flows[flow].dst);
        let mut path: Vec<LinkId> = Vec::new();
        // LSPs that share a path go on sharing its number
        let mut last: Option<PathId> = None;
        for at in flow * lsps..(flow + 1) * lsps {
            let Some(id) = round.placed[at] else { return };
            let vain = (flow * lsps..(flow + 1) * lsps)
                .any(|other| tried[other] == *moves && round.placed[other] == Some(id));
            if vain {
                tried[at] = *moves;
                continue;
            }
            let (hottest, share) = heat.hottest(round.paths.get(id), bps);
            if hottest < self.cool && share < self.small {
                continue;
            }
            heat.aim(round.paths.get(id), bps, hottest, self.sigma);
            let found = heat.lets_into(dst) && search.run_with(src, Some(dst), heat, |_| true);
            heat.forget(round.paths.get(id));
            if !found {
                tried[at] = *moves;
                continue;
            }
            search.path_to(dst, &mut path);
            heat.shift(round.paths.get(id), -bps);
            heat.shift(&path, bps);
            let new = match last {
                Some(l) if round.paths.get(l) == path.as_slice() => l,
                _ => round.paths.push(&path),
            };
            last = Some(new);
            round.placed[at] = Some(new);
            *moves += 1;
        }
    }
}

/// Loads, and the weights for the LSP at hand.
struct Heat {
    alpha: f64,
    /// Bit/s of this class per link.
    load: Vec<f64>,
    /// One over usable bit/s per link.
    per_usable: Vec<f64>,
    /// The same, infinite on links that must not take further LSPs (drained).
    per_target: Vec<f64>,
    /// What the LSP itself puts on the link, bit/s: 0 except on its path.
    own: Vec<f64>,
    bps: f64,
    /// Utilisation below which every link must end.
    limit: f64,
    /// `alpha / target`.
    slope: f64,
    weight: Vec<PathKey>,
    /// Links that reach a node, per node.
    into: Vec<Vec<usize>>,
}

impl Heat {
    fn new(graph: &Graph, usable: &[u64], used: &[u64], alpha: f64) -> Self {
        let per_usable: Vec<f64> = usable.iter().map(|&u| 1.0 / to_f64(u.max(1))).collect();
        let open = |(l, &p)| if graph.drain(l) == Drain::None { p } else { f64::INFINITY };
        let mut into = vec![Vec::new(); graph.node_count()];
        graph.links().for_each(|l| into[graph.to(l).ix()].push(l.ix()));
        let degree = graph.nodes().map(|n| graph.out(n).len()).max().unwrap_or(0);
        Self {
            alpha,
            load: used.iter().map(|&u| to_f64(u)).collect(),
            per_target: graph.links().zip(&per_usable).map(open).collect(),
            per_usable,
            own: vec![0.0; used.len()],
            bps: 0.0,
            limit: 0.0,
            slope: 0.0,
            weight: vec![0; degree],
            into,
        }
    }

    /// Utilisation of the hottest link of a path, and the share of that link that `bps` is.
    fn hottest(&self, path: &[LinkId], bps: f64) -> (f64, f64) {
        let mut top = (0.0, 0.0);
        for l in path {
            let u = self.load[l.ix()] * self.per_usable[l.ix()];
            if u > top.0 {
                top = (u, bps * self.per_usable[l.ix()]);
            }
        }
        top
    }

    /// Prepares the weights for an LSP of `bps` on `path`, whose hottest link is used at `limit`.
    fn aim(&mut self, path: &[LinkId], bps: f64, limit: f64, sigma: f64) {
        for l in path {
            self.own[l.ix()] = bps;
        }
        self.bps = bps;
        self.limit = limit;
        self.slope = self.alpha / (limit * (1.0 - sigma));
    }

    /// What the link would be used at if the LSP took it.
    fn after(&self, link: usize) -> f64 {
        (self.load[link] + self.bps - self.own[link]) * self.per_target[link]
    }

    /// Whether the LSP may enter its destination by any link: if not, a search would look everywhere before it failed.
    fn lets_into(&self, dst: NodeId) -> bool {
        self.into[dst.ix()].iter().any(|&l| self.after(l) < self.limit)
    }

    fn forget(&mut self, path: &[LinkId]) {
        for l in path {
            self.own[l.ix()] = 0.0;
        }
    }

    fn shift(&mut self, path: &[LinkId], bps: f64) {
        for l in path {
            self.load[l.ix()] += bps;
        }
    }
}

impl Weights for Heat {
    fn of_node(&mut self, _: usize, links: Range<usize>) -> &[PathKey] {
        let out = &mut self.weight[..links.len()];
        let loads = self.load[links.clone()].iter().zip(&self.own[links.clone()]);
        for ((w, (load, own)), per) in out.iter_mut().zip(loads).zip(&self.per_target[links]) {
            let u = (load + self.bps - own) * per;
            // not-a-number (nothing on a closed link) is on the closed side
            *w = if u < self.limit { fixed(u * self.slope - self.alpha) } else { UNREACHABLE };
        }
        out
    }
}

/// Fixed point of weights: 2^-40. A colder link than that counts as one unit, so cold paths compare by hops.
const UNITS: f64 = 1_099_511_627_776.0;
/// Largest exponent: below the limit the weights stay under e^3.5 with the published constants.
const EXPONENT_MAX: f64 = 7.0;

/// `e^x` in fixed point, at least 1, from basic arithmetic: the same bits on every machine. No branch, no call: a loop
/// over it runs in vector registers.
#[inline]
fn fixed(x: f64) -> PathKey {
    const LN2: f64 = std::f64::consts::LN_2;
    /// Taylor coefficients of 2^f for |f| <= 1/2: relative error below 1e-4, a five-hundredth of the paper's epsilon.
    const C: [f64; 5] = [1.0, LN2, LN2 * LN2 / 2.0, LN2 * LN2 * LN2 / 6.0, LN2 * LN2 * LN2 * LN2 / 24.0];
    /// Adding this leaves the nearest whole number in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// Adding this to a smaller value that is not negative does the same without its sign.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let x = if x > -60.0 { x } else { -60.0 };
    let x = if x < EXPONENT_MAX { x } else { EXPONENT_MAX };
    let y = x * std::f64::consts::LOG2_E;
    let shifted = y + ROUND;
    let f = y - (shifted - ROUND);
    let power = (((C[4] * f + C[3]) * f + C[2]) * f + C[1]) * f + C[0];
    // the whole part moves the exponent field; it lies within -87 to 11, so the field cannot overflow
    let scaled = f64::from_bits(power.to_bits().wrapping_add(shifted.to_bits() << 52));
    (scaled * UNITS + WHOLE).to_bits() - WHOLE.to_bits() + 1
}

#[allow(clippy::cast_precision_loss)] // ratios of bandwidths: 53 bits are plenty
fn to_f64(bps: u64) -> f64 {
    bps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published set, and what it gives: the base of the logarithm is the one thing the paper leaves to find out.
    #[test]
    fn published_constants_give_the_published_alpha() {
        let h = Hprr::default();
        assert_eq!((h.epsilon.to_string(), h.sigma.to_string(), h.epochs), ("0.05".into(), "0.05".into(), 3));
        assert!((h.alpha() - 66.4).abs() < 0.05, "{}", h.alpha());
    }

    #[test]
    fn weights_are_the_exponential() {
        for i in -250..70 {
            let x = f64::from(i) / 10.0;
            #[allow(clippy::cast_precision_loss)]
            let got = (fixed(x) - 1) as f64 / UNITS;
            assert!((got - x.exp()).abs() <= x.exp() * 1e-4 + 1.0 / UNITS, "{x}: {got} {}", x.exp());
        }
        assert_eq!(fixed(-1e300), 1);
        assert_eq!(fixed(f64::INFINITY), fixed(EXPONENT_MAX));
    }

    /// Sample weights for u = 0.9 and so a target of 0.855.
    #[test]
    fn weights_around_the_target() {
        let h = Hprr::default();
        let weight = |u: f64| (h.alpha() * (u / (0.9 * (1.0 - h.sigma)) - 1.0)).exp();
        for (u, want) in [(0.80, 0.0140), (0.855, 1.0), (0.90, 33.0)] {
            assert!((weight(u) - want).abs() / want < 0.01, "{u}: {}", weight(u));
        }
    }
}

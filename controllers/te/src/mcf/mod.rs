//! Multi-commodity flow: primaries that make the largest utilisation as small as a linear program can (EBB paper,
//! section 4.2.2), then cut into LSPs of equal size.
//!
//! [`Mcf`] may use any path, [`KspMcf`] the K shortest of each pair. Both minimise
//!
//! ```text
//! U + EPSILON * sum over links of (rtt / sum of rtts) * (load / usable)
//! ```
//!
//! where U is the largest `load / usable`. The second term is an average of utilisations and so never above U: it makes
//! short paths win where U does not care, and costs at most a share of EPSILON of U.
//!
//! [`FlowProblem`] is that program without a class round around it. It is solved over columns: a master program over
//! few paths gives prices of links, and for every pair the path that is cheapest under the prices joins the master. The
//! same prices bound the optimum from below whatever a solver says, in integer arithmetic: weak duality. The result
//! carries that bound, so how near it is to the optimum is proven and not believed.
//!
//! Links without usable bandwidth and drained links are left out; a pair that only they connect takes its shortest path.
//! So a softly drained link carries nothing that can go elsewhere, even where the program would like more room.

mod arcs;
mod columns;
mod pricing;
mod quantise;
mod slices;

pub use pricing::PathSet;

use crate::dijkstra::{PathKey, Search, UNREACHABLE};
use crate::graph::{Drain, Graph, LinkId, NodeId};
use crate::lp::{InteriorPoint, LpError, LpSolver};
use crate::round::{Flow, PrimaryAlgorithm, PrimaryRound};

/// Weight of the preference for short paths.
pub const EPSILON: f64 = 0.001;

/// Flow over any path (the paper's arc-based MCF).
#[derive(Clone, Copy, Debug)]
pub struct Mcf {
    /// Stop when the result is proven to be within this share of the optimum.
    pub gap: f64,
}

/// Flow over the K shortest paths by RTT of each pair.
#[derive(Clone, Copy, Debug)]
pub struct KspMcf {
    /// Paths per pair. The paper evaluates 512 and 4096.
    pub k: usize,
    /// Stop when the result is proven to be within this share of the optimum.
    pub gap: f64,
}

/// Gap that both stop at: a tenth of what quantising costs on the paper's size of network.
const GAP: f64 = 0.002;

impl Default for Mcf {
    fn default() -> Self {
        Self { gap: GAP }
    }
}

impl KspMcf {
    /// With `k` paths per pair.
    pub fn new(k: usize) -> Self {
        Self { k, gap: GAP }
    }
}

impl PrimaryAlgorithm for Mcf {
    fn name(&self) -> &'static str {
        "mcf"
    }

    fn place(&self, round: &mut PrimaryRound<'_>, search: &mut Search) {
        let problem = FlowProblem::new(round.graph, round.weight, &round.free, round.flows, round.lsps);
        let mut paths = PathSet::any(&problem);
        let flow = problem.solve(&mut paths, &InteriorPoint, self.gap);
        quantise::place(round, search, &flow);
    }
}

impl PrimaryAlgorithm for KspMcf {
    fn name(&self) -> &'static str {
        "ksp-mcf"
    }

    fn place(&self, round: &mut PrimaryRound<'_>, search: &mut Search) {
        let problem = FlowProblem::new(round.graph, round.weight, &round.free, round.flows, round.lsps);
        let mut paths = PathSet::shortest(&problem, self.k.max(1));
        let flow = problem.solve(&mut paths, &InteriorPoint, self.gap);
        quantise::place(round, search, &flow);
    }
}

/// One pair's demand in a [`FlowProblem`].
#[derive(Clone, Debug, PartialEq)]
pub struct Commodity {
    /// Source.
    pub src: NodeId,
    /// Destination.
    pub dst: NodeId,
    /// Bit/s; 0 needs no flow.
    pub demand: f64,
}

/// The program: who wants how much, and what the links can bear.
#[derive(Clone, Debug)]
pub struct FlowProblem<'a> {
    /// Topology.
    pub graph: &'a Graph,
    /// Weight per link by RTT; [`UNREACHABLE`] on links that must not be used or have nothing usable.
    pub weight: Vec<PathKey>,
    /// Usable bit/s per link.
    pub usable: Vec<f64>,
    /// Cost per bit/s and link: the preference for short paths.
    pub cost: Vec<f64>,
    /// Demands, by source and destination.
    pub commodities: Vec<Commodity>,
}

/// A part of a demand on a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Links, first link first.
    pub path: Vec<LinkId>,
    /// Bit/s.
    pub bps: f64,
}

/// A fractional flow with its proof.
#[derive(Clone, Debug, PartialEq)]
pub struct Fractional {
    /// Paths of every commodity; they carry its whole demand. Empty where there is no demand or no path.
    pub shares: Vec<Vec<Share>>,
    /// Largest utilisation, of what is usable.
    pub utilisation: f64,
    /// No flow over the same paths has a smaller largest utilisation than this.
    pub least_utilisation: f64,
    /// Value of the objective, with the preference for short paths.
    pub value: f64,
    /// No flow over the same paths has a smaller value than this.
    pub least_value: f64,
    /// Master programs solved.
    pub rounds: u32,
    /// What stopped it early, if the gap was not reached.
    pub trouble: Option<LpError>,
}

impl Fractional {
    /// How far the largest utilisation can be above the optimum at most, relative to it.
    pub fn gap(&self) -> f64 {
        relative(self.utilisation, self.least_utilisation)
    }
}

/// Excess of `value` over `bound`, relative to the bound.
fn relative(value: f64, bound: f64) -> f64 {
    if value <= bound {
        0.0
    } else if bound > 0.0 {
        value / bound - 1.0
    } else {
        f64::INFINITY
    }
}

impl<'a> FlowProblem<'a> {
    /// The program of a class round: `usable` bit/s per link, `lsps` times the LSP's bandwidth per flow.
    pub fn new(graph: &'a Graph, weight: &[PathKey], usable: &[u64], flows: &[Flow], lsps: u16) -> Self {
        let open = |(l, (&w, &u)): (LinkId, (&PathKey, &u64))| {
            if u == 0 || graph.drain(l) != Drain::None { UNREACHABLE } else { w }
        };
        let usable_bps: Vec<f64> = usable.iter().map(|&u| to_f64(u)).collect();
        let rtt = |l: LinkId| f64::from(graph.rtt_us(l)).max(1.0);
        let all: f64 = graph.links().map(rtt).sum();
        let cost = |(l, &u): (LinkId, &f64)| if u > 0.0 { EPSILON * rtt(l) / all / u } else { 0.0 };
        let commodity =
            |f: &Flow| Commodity { src: f.src, dst: f.dst, demand: to_f64(f.lsp_bps) * f64::from(lsps) };
        Self {
            graph,
            weight: graph.links().zip(weight.iter().zip(usable)).map(open).collect(),
            cost: graph.links().zip(&usable_bps).map(cost).collect(),
            usable: usable_bps,
            commodities: flows.iter().map(commodity).collect(),
        }
    }

    /// Solves it over `paths` until the value is proven to be within `gap` of the optimum, or nothing improves it.
    pub fn solve(&self, paths: &mut PathSet<'_>, solver: &dyn LpSolver, gap: f64) -> Fractional {
        columns::solve(self, paths, solver, gap)
    }

    /// Solves it in one program with a variable per link and destination, as the paper does. Its size is what
    /// [`Self::solve`] avoids; it serves as the reference for the optimum.
    pub fn solve_by_arcs(&self, solver: &dyn LpSolver) -> Result<Fractional, LpError> {
        arcs::solve(self, solver)
    }

    /// Load per link, bit/s.
    pub fn loads(&self, shares: &[Vec<Share>]) -> Vec<f64> {
        let mut load = vec![0.0; self.usable.len()];
        for share in shares.iter().flatten() {
            for l in &share.path {
                load[l.ix()] += share.bps;
            }
        }
        load
    }

    /// Largest utilisation and value of the objective for a load per link.
    fn worth(&self, load: &[f64]) -> (f64, f64) {
        let used = load.iter().zip(&self.usable).filter(|(l, _)| **l > 0.0);
        let utilisation = used.map(|(l, u)| l / u).fold(0.0, f64::max);
        let preference: f64 = load.iter().zip(&self.cost).map(|(l, c)| l * c).sum();
        (utilisation, utilisation + preference)
    }
}

#[allow(clippy::cast_precision_loss)] // ratios of bandwidths: 53 bits are plenty
fn to_f64(bps: u64) -> f64 {
    bps as f64
}

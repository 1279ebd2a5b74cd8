//! RBA and SRLG-RBA, reserved-bandwidth-aware backups (EBB paper, section 4.3, algorithm 2).
//!
//! For every pair of failure and link they keep how much bandwidth the link needs if that fails, and give each primary
//! the backup that is shortest under weights that grow with what a link would have to carry at the worst failure that
//! hits the primary. For RBA a failure is that of a physical link: both directions fail together, so a backup avoids
//! both directions of every link of its primary. For SRLG-RBA it is that of a risk group; a link without a group is one
//! of its own, or single links would go unprotected.
//!
//! Weights are integers, in fixed point of 1/256 microsecond: ties are exact and sums do not depend on order. Bounds
//! keep the paper's three levels apart for any path: within the limit, over the limit, sharing a risk group.

use super::ledger::{Ledger, Risk, Rule, to_f64, units};
use super::{BackupAlgorithm, BackupRound, protect_all};
use crate::dijkstra::PathKey;
use crate::graph::{Drain, Graph};

/// Backups that bear the failure of any one physical link in mind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rba;

/// Backups that bear the failure of any one risk group in mind.
#[derive(Clone, Copy, Debug, Default)]
pub struct SrlgRba;

impl BackupAlgorithm for Rba {
    fn name(&self) -> &'static str {
        "rba"
    }

    fn protect(&self, round: &mut BackupRound<'_>) {
        protect_all(round, &mut Ledger::new(round.graph, Risk::Link, ReservedBandwidth::new(round.graph)));
    }
}

impl BackupAlgorithm for SrlgRba {
    fn name(&self) -> &'static str {
        "srlg-rba"
    }

    fn protect(&self, round: &mut BackupRound<'_>) {
        protect_all(round, &mut Ledger::new(round.graph, Risk::Group, ReservedBandwidth::new(round.graph)));
    }
}

/// Fixed point: weight units per microsecond.
const UNIT: f64 = 256.0;
/// What an overshoot costs, relative to a link used up to its limit. The paper does not publish its value.
const PENALTY: f64 = 1e4;
/// Least load, relative to the limit, that a weight is made from: keeps nearly idle links in the order of their RTT.
const LEAST_LOAD: f64 = 1.0 / 4096.0;

/// The paper's weights, with all divisions done beforehand. Per link:
struct ReservedBandwidth {
    /// Bandwidth that backups may use, bit/s.
    limit: Vec<f64>,
    /// Weight of a link at its limit, units.
    cost: Vec<f64>,
    /// Weight per bit/s within the limit.
    within: Vec<f64>,
    /// Weight per bit/s over the limit.
    over: Vec<f64>,
}

impl ReservedBandwidth {
    fn new(graph: &Graph) -> Self {
        let cost_us = |l| match graph.drain(l) {
            Drain::Soft(extra) => f64::from(graph.rtt_us(l)) + f64::from(extra),
            Drain::None | Drain::Hard => f64::from(graph.rtt_us(l)),
        };
        // a link of no cost must still have an order among its loads
        let cost: Vec<f64> = graph.links().map(|l| cost_us(l).max(1.0) * UNIT).collect();
        let over = |(l, c): (_, &f64)| c * PENALTY / to_f64(graph.capacity_bps(l).max(1));
        Self {
            limit: vec![0.0; cost.len()],
            within: vec![0.0; cost.len()],
            over: graph.links().zip(&cost).map(over).collect(),
            cost,
        }
    }
}

impl Rule for ReservedBandwidth {
    fn enter_class(&mut self, limit: &[u64]) {
        for (b, &limit) in limit.iter().enumerate() {
            self.limit[b] = to_f64(limit);
            self.within[b] = self.cost[b] / to_f64(limit.max(1));
        }
    }

    fn weigh(&self, b: usize, bps: f64, worst: f64) -> f64 {
        weight([self.limit[b], self.cost[b], self.within[b], self.over[b]], bps + worst)
    }

    fn weigh_all(&self, bps: f64, worst: &[f64], out: &mut [PathKey]) {
        // slices of one length: no index needs a check, and the loop runs in vector registers
        let n = out.len();
        let (limit, cost) = (&self.limit[..n], &self.cost[..n]);
        let (within, over, worst) = (&self.within[..n], &self.over[..n], &worst[..n]);
        for b in 0..n {
            out[b] = units(weight([limit[b], cost[b], within[b], over[b]], bps + worst[b]));
        }
    }

    fn booked(&mut self, _: usize, _: f64) {}
}

/// Weight of a link with these [`ReservedBandwidth`] values that must carry `reserved` bit/s.
#[inline]
fn weight([limit, cost, within, over]: [f64; 4], reserved: f64) -> f64 {
    let least = cost * LEAST_LOAD;
    let within = reserved * within;
    let within = if within > least { within } else { least };
    // never cheaper than the same link at its limit
    let over = cost + (reserved - limit) * over;
    if reserved <= limit { within } else { over }
}

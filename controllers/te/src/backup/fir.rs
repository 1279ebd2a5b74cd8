//! FIR, the baseline that the paper's backups began with (EBB paper, section 4.3; Li, Wang, Kalmanek and Doverspike,
//! INFOCOM 2002).
//!
//! It makes the bandwidth that the whole network sets aside for failures small: a link costs what it would have to set
//! aside beyond what it already does for the worst of all failures. Room and latency play no part, so links that carry
//! much primary traffic get backups too: that is why RBA replaced it.

use super::ledger::{Ledger, Risk, Rule, units};
use super::{BackupAlgorithm, BackupRound, protect_all};
use crate::dijkstra::PathKey;
use crate::graph::{Drain, Graph};

/// Backups with the least extra reserved bandwidth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fir;

impl BackupAlgorithm for Fir {
    fn name(&self) -> &'static str {
        "fir"
    }

    fn protect(&self, round: &mut BackupRound<'_>) {
        protect_all(round, &mut Ledger::new(round.graph, Risk::Link, ExtraBandwidth::new(round.graph)));
    }
}

/// Weight of a link that must set aside a whole LSP more; a link that need not costs one unit.
const WHOLE_LSP: f64 = 1_073_741_824.0;
/// Weight added by a soft drain: more than the rest of any path of up to 512 links.
const SOFT_DRAIN: f64 = 549_755_813_888.0;

struct ExtraBandwidth {
    /// Bit/s per link that the worst failure needs so far.
    set_aside: Vec<f64>,
    /// Weight per link, whatever the load.
    base: Vec<f64>,
}

impl ExtraBandwidth {
    fn new(graph: &Graph) -> Self {
        let base = |l| if matches!(graph.drain(l), Drain::Soft(_)) { SOFT_DRAIN } else { 0.0 };
        Self { set_aside: vec![0.0; graph.link_count()], base: graph.links().map(base).collect() }
    }
}

impl Rule for ExtraBandwidth {
    fn enter_class(&mut self, _: &[u64]) {}

    fn weigh(&self, b: usize, bps: f64, worst: f64) -> f64 {
        // at most bps, since what is set aside covers the worst so far
        let extra = bps + worst - self.set_aside[b];
        let share = if extra > 0.0 { extra / bps * WHOLE_LSP } else { 0.0 };
        self.base[b] + share
    }

    fn weigh_all(&self, bps: f64, worst: &[f64], out: &mut [PathKey]) {
        for (b, (out, &worst)) in out.iter_mut().zip(worst).enumerate() {
            *out = units(self.weigh(b, bps, worst));
        }
    }

    fn booked(&mut self, b: usize, required: f64) {
        self.set_aside[b] = self.set_aside[b].max(required);
    }
}

//! RBA, reserved-bandwidth-aware backups (EBB paper, section 4.3, algorithm 2).
//!
//! For every pair of links (a, b) it keeps how much bandwidth b needs if a fails, and gives each primary the backup that
//! is shortest under weights that grow with what b would have to carry at the worst failure of one of the primary's
//! links. Here a failing "link" is a physical one: both directions fail together, so rows are physical links and a
//! backup avoids both directions of every link of its primary.
//!
//! Weights are integers, in fixed point of 1/256 microsecond: ties are exact and sums do not depend on order. Bounds
//! keep the paper's three levels apart for any path: within the limit, over the limit, sharing a risk group.
//!
//! LSPs of one bundle that share a primary are protected one after the other, because then the weights of only the
//! links of the last backup have changed: all rows of the primary grow there by the same bandwidth.

use crate::backup::{BackupAlgorithm, BackupRound};
use crate::dijkstra::{PathKey, UNREACHABLE};
use crate::graph::{Drain, Graph, LinkId};
use crate::lsp_mesh::{PathId, PathStore};

/// Reserved-bandwidth-aware backups.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rba;

/// Fixed point: weight units per microsecond.
const UNIT: f64 = 256.0;
/// What an overshoot costs, relative to a link used up to its limit. The paper does not publish its value.
const PENALTY: f64 = 1e4;
/// Least load, relative to the limit, that a weight is made from: keeps nearly idle links in the order of their RTT.
const LEAST_LOAD: f64 = 1.0 / 4096.0;
/// Largest weight of a link that shares no risk group: 2^40 units, an overshoot of a whole capacity on 430 ms.
const ORDINARY_MAX: f64 = 1_099_511_627_776.0;
/// Weight of a link that shares a risk group: above any path of ordinary links, up to 1023 of them.
const LARGE: PathKey = 1 << 50;

impl BackupAlgorithm for Rba {
    fn name(&self) -> &'static str {
        "rba"
    }

    fn protect(&self, round: &mut BackupRound<'_>) {
        let mut table = Table::new(round.graph);
        for at in 0..round.mesh.bundles.len() {
            let mesh = round.mesh.bundles[at].mesh;
            let Some(class) = round.mesh.classes.iter().position(|c| c.mesh == mesh) else { continue };
            let protected = protect_bundle(round, &mut table, at, class);
            round.mesh.classes[class].protected += protected;
        }
    }
}

/// Protects the LSPs of one bundle, primary by primary in order of first use.
fn protect_bundle(round: &mut BackupRound<'_>, table: &mut Table<'_>, at: usize, class: usize) -> u32 {
    let bundle = &round.mesh.bundles[at];
    let (src, dst, bps) = (bundle.src, bundle.dst, bundle.lsp_bps);
    let limit = &round.limits[class];
    let mut done = vec![false; bundle.lsps.len()];
    let mut protected = 0;
    let mut last: Option<PathId> = None;
    let mut path = Vec::new();
    for first in 0..done.len() {
        let Some(primary) = round.mesh.bundles[at].lsps[first].primary else { continue };
        if done[first] {
            continue;
        }
        let links = round.mesh.paths.get(primary).to_vec();
        table.weigh_all(&links, bps, limit);
        for (slot, done) in done.iter_mut().enumerate().skip(first) {
            if round.mesh.bundles[at].lsps[slot].primary != Some(primary) {
                continue;
            }
            *done = true;
            if !round.search.run(src, Some(dst), &table.weight, |_| true) {
                break;
            }
            round.search.path_to(dst, &mut path);
            table.reserve(&links, &path, bps, limit);
            let id = stored(&mut round.mesh.paths, last, &path);
            last = Some(id);
            round.mesh.bundles[at].lsps[slot].backup = Some(id);
            protected += 1;
        }
    }
    protected
}

/// The number of `path`, which often is that of the path before it.
fn stored(paths: &mut PathStore, last: Option<PathId>, path: &[LinkId]) -> PathId {
    match last {
        Some(id) if paths.get(id) == path => id,
        _ => paths.push(path),
    }
}

/// The paper's `reqBw` and the weights for the primary at hand.
struct Table<'a> {
    graph: &'a Graph,
    /// `required[a][b]`: bit/s needed on link b if physical link a fails; rows are allocated when first written.
    required: Vec<Vec<u64>>,
    /// Maximum over the primary's rows, per link.
    worst: Vec<u64>,
    weight: Vec<PathKey>,
    /// Cost per link in microseconds, including soft drain; negative: hard-drained.
    cost_us: Vec<f64>,
    capacity: Vec<f64>,
}

impl<'a> Table<'a> {
    fn new(graph: &'a Graph) -> Self {
        let links = graph.link_count();
        let cost = |l| match graph.drain(l) {
            Drain::Hard => -1.0,
            Drain::Soft(extra) => f64::from(graph.rtt_us(l)) + f64::from(extra),
            Drain::None => f64::from(graph.rtt_us(l)),
        };
        Self {
            graph,
            required: vec![Vec::new(); graph.physical_count()],
            worst: vec![0; links],
            weight: vec![0; links],
            cost_us: graph.links().map(cost).collect(),
            capacity: graph.links().map(|l| to_f64(graph.capacity_bps(l))).collect(),
        }
    }

    /// Weights of all links for a primary that has no backup yet.
    fn weigh_all(&mut self, primary: &[LinkId], bps: u64, limit: &[u64]) {
        self.worst.fill(0);
        for &a in primary {
            for (w, r) in self.worst.iter_mut().zip(&self.required[self.graph.physical(a)]) {
                *w = (*w).max(*r);
            }
        }
        for (b, &limit) in limit.iter().enumerate() {
            self.weight[b] = self.weigh(b, bps, limit);
        }
        for &a in primary {
            for &s in self.graph.srlgs(a) {
                for b in self.graph.srlg_links(s) {
                    self.forbid_lightly(*b);
                }
            }
        }
        for &a in primary {
            self.weight[a.ix()] = UNREACHABLE;
            if let Some(back) = self.graph.reverse(a) {
                self.weight[back.ix()] = UNREACHABLE;
            }
        }
    }

    /// A link with a shared risk: last resort, whatever its load.
    fn forbid_lightly(&mut self, link: LinkId) {
        let w = &mut self.weight[link.ix()];
        if *w != UNREACHABLE {
            *w = LARGE;
        }
    }

    /// Weight of a link that has no risk in common with the primary.
    fn weigh(&self, b: usize, bps: u64, limit: u64) -> PathKey {
        let cost = self.cost_us[b];
        if cost < 0.0 {
            return UNREACHABLE;
        }
        let reserved = bps.saturating_add(self.worst[b]);
        // a link of no cost must still have an order among its loads
        let cost = cost.max(1.0) * UNIT;
        let weight = if reserved <= limit {
            // 0 of 0 is not a number, and max() then takes the other side
            (to_f64(reserved) / to_f64(limit)).max(LEAST_LOAD) * cost
        } else {
            let over = to_f64(reserved - limit) / self.capacity[b].max(1.0);
            // never cheaper than the same link at its limit
            cost + over * cost * PENALTY
        };
        // at least one unit per link: weights are positive, and of two free paths the shorter wins
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 <= value <= 2^40
        let fixed = weight.min(ORDINARY_MAX) as PathKey;
        fixed + 1
    }

    /// Books `backup` for the failure of each link of `primary`, and updates the weights for the next LSP of the same
    /// primary.
    fn reserve(&mut self, primary: &[LinkId], backup: &[LinkId], bps: u64, limit: &[u64]) {
        let links = self.graph.link_count();
        for &a in primary {
            let row = &mut self.required[self.graph.physical(a)];
            row.resize(links, 0);
            for b in backup {
                row[b.ix()] = row[b.ix()].saturating_add(bps);
            }
        }
        for b in backup {
            let b = b.ix();
            self.worst[b] = self.worst[b].saturating_add(bps);
            if self.weight[b] != LARGE {
                self.weight[b] = self.weigh(b, bps, limit[b]);
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)] // ratios of bandwidths: 53 bits are plenty
fn to_f64(bps: u64) -> f64 {
    bps as f64
}

//! The paper's `reqBw` (EBB paper, section 4.3, algorithm 2): how much each link must carry at each failure.
//!
//! Bandwidths are whole numbers in `f64`: exact up to 2^53 bit/s (9 Pbit/s on one link), and the arithmetic over the
//! links runs in vector registers. Weights are made once for all LSPs with one primary; between those LSPs only the
//! links of the last backup get dearer.

use crate::dijkstra::{PathKey, UNREACHABLE};
use crate::graph::{Drain, Graph, LinkId};

/// Largest weight of a link that shares no risk with the primary: 2^40 units.
pub(super) const ORDINARY_MAX: f64 = 1_099_511_627_776.0;
/// Weight of a link that shares a risk group: above any path of ordinary links, up to 1023 of them.
const LARGE: PathKey = 1 << 50;

/// What fails at once: the rows of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Risk {
    /// One physical link, both directions of it.
    Link,
    /// All links of a risk group; a link without a group is a risk of its own.
    Group,
}

/// Turns the bandwidth that a link would need into a weight.
pub(super) trait Rule {
    /// A class round begins, with the bandwidth that its backups may use per link.
    fn enter_class(&mut self, limit: &[u64]);
    /// Weight of link `b`, from 0 to [`ORDINARY_MAX`]: an LSP of `bps` takes it as backup, `worst` is already booked
    /// there for the worst failure that the LSP shares.
    fn weigh(&self, b: usize, bps: f64, worst: f64) -> f64;
    /// [`Self::weigh`] for all links, in [`units`].
    fn weigh_all(&self, bps: f64, worst: &[f64], out: &mut [PathKey]);
    /// Link `b` needs `required` at some failure: more than it did at that failure before.
    fn booked(&mut self, b: usize, required: f64);
}

/// The table and the weights for the primary at hand.
pub(super) struct Ledger<'a, R> {
    graph: &'a Graph,
    rule: R,
    /// `required[row * links + b]`: bit/s needed on link b at failure `row`.
    required: Vec<f64>,
    /// Rows of a link, at `rows_first[link]..rows_first[link + 1]` of `rows_of`.
    rows_of: Vec<u32>,
    rows_first: Vec<u32>,
    /// Least weight per link: 0, [`LARGE`] or [`UNREACHABLE`].
    floor: Vec<PathKey>,
    /// Links that are never used.
    drained: Vec<u32>,
    /// Links whose floor the present primary raised, with what it was.
    raised: Vec<(u32, PathKey)>,
    /// Rows of the present primary.
    rows: Vec<usize>,
    bps: f64,
    weight: Vec<PathKey>,
    /// Maximum over the rows of the present primary.
    worst: Vec<f64>,
}

impl<'a, R: Rule> Ledger<'a, R> {
    pub(super) fn new(graph: &'a Graph, risk: Risk, rule: R) -> Self {
        let links = graph.link_count();
        let (mut rows_of, mut rows_first) = (Vec::new(), vec![0]);
        let base = u32::try_from(graph.physical_count()).unwrap_or(u32::MAX);
        for l in graph.links() {
            if risk == Risk::Link || graph.srlgs(l).is_empty() {
                rows_of.push(u32::try_from(graph.physical(l)).unwrap_or(u32::MAX));
            } else {
                rows_of.extend(graph.srlgs(l).iter().map(|s| base + s));
            }
            rows_first.push(u32::try_from(rows_of.len()).unwrap_or(u32::MAX));
        }
        let rows = rows_of.iter().max().map_or(0, |&r| r as usize + 1);
        let floor = |l| if graph.drain(l) == Drain::Hard { UNREACHABLE } else { 0 };
        Self {
            graph,
            rule,
            required: vec![0.0; rows * links],
            rows_of,
            rows_first,
            floor: graph.links().map(floor).collect(),
            drained: graph.links().filter(|&l| floor(l) != 0).map(|l| l.0).collect(),
            raised: Vec::new(),
            rows: Vec::new(),
            bps: 0.0,
            weight: vec![0; links],
            worst: vec![0.0; links],
        }
    }

    pub(super) fn enter_class(&mut self, limit: &[u64]) {
        self.rule.enter_class(limit);
    }

    /// Makes `primary` the one to protect, and weighs all links for it.
    pub(super) fn begin(&mut self, primary: &[LinkId], bps: u64) {
        self.bps = to_f64(bps);
        for (link, floor) in self.raised.drain(..).rev() {
            self.floor[link as usize] = floor;
        }
        self.rows.clear();
        let graph = self.graph;
        let links = graph.link_count();
        for &a in primary {
            let own = self.rows_first[a.ix()] as usize..self.rows_first[a.ix() + 1] as usize;
            self.rows.extend(self.rows_of[own].iter().map(|&r| r as usize * links));
            for &s in graph.srlgs(a) {
                for &b in graph.srlg_links(s) {
                    self.raise(b, LARGE);
                }
            }
        }
        for &a in primary {
            self.raise(a, UNREACHABLE);
            if let Some(back) = graph.reverse(a) {
                self.raise(back, UNREACHABLE);
            }
        }
        // a primary that crosses a group twice loses its bandwidth once
        self.rows.sort_unstable();
        self.rows.dedup();
        self.weigh_all();
    }

    fn weigh_all(&mut self) {
        let links = self.graph.link_count();
        self.worst.fill(0.0);
        for row in &self.rows {
            for (w, r) in self.worst.iter_mut().zip(&self.required[*row..row + links]) {
                *w = if *r > *w { *r } else { *w };
            }
        }
        self.rule.weigh_all(self.bps, &self.worst, &mut self.weight);
        for &link in self.drained.iter().chain(self.raised.iter().map(|(link, _)| link)) {
            let at = link as usize;
            self.weight[at] = self.weight[at].max(self.floor[at]);
        }
    }

    /// Weight per link for the present primary's next LSP.
    pub(super) fn weight(&self) -> &[PathKey] {
        &self.weight
    }

    fn raise(&mut self, link: LinkId, floor: PathKey) {
        let have = self.floor[link.ix()];
        if have < floor {
            self.raised.push((link.0, have));
            self.floor[link.ix()] = floor;
        }
    }

    /// Books `backup` for every failure that hits the present primary.
    pub(super) fn book(&mut self, backup: &[LinkId]) {
        for b in backup {
            let mut worst = 0.0f64;
            for row in &self.rows {
                let cell = &mut self.required[row + b.ix()];
                *cell += self.bps;
                worst = worst.max(*cell);
            }
            self.rule.booked(b.ix(), worst);
            self.weight[b.ix()] = units(self.rule.weigh(b.ix(), self.bps, worst)).max(self.floor[b.ix()]);
        }
    }
}

/// Rounds to a whole number of units; at least one, so that weights are positive and of two free paths the shorter wins.
#[inline]
pub(super) fn units(weight: f64) -> PathKey {
    /// Adding 2^52 leaves the whole part in the low bits, faster than a conversion that checks its range.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let weight = if weight < ORDINARY_MAX { weight } else { ORDINARY_MAX };
    (weight + WHOLE).to_bits() - WHOLE.to_bits() + 1
}

#[allow(clippy::cast_precision_loss)] // ratios of bandwidths: 53 bits are plenty
pub(super) fn to_f64(bps: u64) -> f64 {
    bps as f64
}

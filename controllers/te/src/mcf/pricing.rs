//! Which paths may be used, and the cheapest of them under prices of links.

use super::FlowProblem;
use crate::dijkstra::{PathKey, Search, UNREACHABLE};
use crate::graph::LinkId;
use crate::yen::Yen;

/// Paths that a flow may use.
#[derive(Debug)]
pub struct PathSet<'a> {
    problem: &'a FlowProblem<'a>,
    search: Search,
    /// Per commodity, its paths one after the other; `None`: any path.
    listed: Option<Vec<Listed>>,
}

/// Paths of one commodity in flat arrays, shortest first.
#[derive(Debug, Default)]
struct Listed {
    links: Vec<LinkId>,
    ends: Vec<u32>,
}

/// Prices of links as integers: sums are exact, and so is what they prove.
#[derive(Debug)]
pub(super) struct Prices {
    /// Units per link; [`UNREACHABLE`] where no path may go.
    pub weight: Vec<PathKey>,
    /// Price of one unit.
    pub unit: f64,
}

impl Prices {
    /// Rounds `price` (per bit/s, not negative) to integers that are at least `floor` per link.
    pub fn new(problem: &FlowProblem<'_>, price: &[f64], floor: &[f64]) -> Self {
        /// The dearest link: leaves room for paths of thousands of links.
        const TOP: f64 = 1_125_899_906_842_624.0; // 2^50
        let top = price.iter().zip(floor).map(|(p, f)| p + f).fold(0.0, f64::max);
        let unit = if top > 0.0 { top / TOP } else { 1.0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 <= value <= 2^50
        let whole = |(p, f): (&f64, &f64)| {
            let least = (f / unit).ceil() as PathKey;
            (((p + f) / unit) as PathKey).max(least).max(1)
        };
        let open = |(w, units)| if w == UNREACHABLE { UNREACHABLE } else { units };
        let units = price.iter().zip(floor).map(whole);
        Self { weight: problem.weight.iter().copied().zip(units).map(open).collect(), unit }
    }

    /// Price of a link.
    pub fn of(&self, link: usize) -> f64 {
        to_f64(self.weight[link]) * self.unit
    }
}

impl<'a> PathSet<'a> {
    /// Any path.
    pub fn any(problem: &'a FlowProblem<'a>) -> Self {
        Self { problem, search: Search::new(problem.graph), listed: None }
    }

    /// The `k` shortest paths by RTT of every commodity that has a demand.
    pub fn shortest(problem: &'a FlowProblem<'a>, k: usize) -> Self {
        let mut yen = Yen::new(problem.graph, &problem.weight);
        let mut listed: Vec<Listed> = problem.commodities.iter().map(|_| Listed::default()).collect();
        let mut by_target: Vec<usize> = (0..listed.len()).collect();
        by_target.sort_by_key(|&c| (problem.commodities[c].dst, c));
        for c in by_target {
            let commodity = &problem.commodities[c];
            if commodity.demand > 0.0 {
                for path in yen.paths(commodity.src, commodity.dst, k) {
                    listed[c].push(&path);
                }
            }
        }
        Self { problem, search: Search::new(problem.graph), listed: Some(listed) }
    }

    /// Paths of a commodity, shortest first; empty when any path may be used.
    pub fn listed(&self, commodity: usize) -> impl Iterator<Item = &[LinkId]> {
        let one = self.listed.as_ref().map(|l| &l[commodity]);
        one.into_iter().flat_map(Listed::paths)
    }

    /// Calls `found` with every commodity of a demand and a path, its cheapest path and that path's units.
    pub(super) fn cheapest(&mut self, prices: &Prices, mut found: impl FnMut(usize, &[LinkId], PathKey)) {
        let commodities = &self.problem.commodities;
        if let Some(listed) = &self.listed {
            for (c, listed) in listed.iter().enumerate() {
                if let Some((path, units)) = listed.cheapest(&prices.weight) {
                    found(c, path, units);
                }
            }
            return;
        }
        let mut path = Vec::new();
        let mut searched = None;
        for (c, commodity) in commodities.iter().enumerate().filter(|(_, c)| c.demand > 0.0) {
            if searched != Some(commodity.src) {
                self.search.run(commodity.src, None, &prices.weight, |_| true);
                searched = Some(commodity.src);
            }
            self.search.path_to(commodity.dst, &mut path);
            if !path.is_empty() {
                found(c, &path, self.search.key(commodity.dst));
            }
        }
    }
}

impl Listed {
    fn push(&mut self, path: &[LinkId]) {
        self.links.extend_from_slice(path);
        self.ends.push(u32::try_from(self.links.len()).unwrap_or(u32::MAX));
    }

    fn paths(&self) -> impl Iterator<Item = &[LinkId]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&s, &e)| &self.links[s as usize..e as usize])
    }

    /// The first of the cheapest paths.
    fn cheapest(&self, weight: &[PathKey]) -> Option<(&[LinkId], PathKey)> {
        let units = |p: &[LinkId]| p.iter().map(|l| weight[l.ix()]).sum();
        self.paths().map(|p| (p, units(p))).min_by_key(|p| p.1)
    }
}

#[allow(clippy::cast_precision_loss)] // at most 2^51
pub(super) fn to_f64(units: PathKey) -> f64 {
    units as f64
}

//! Column generation: the master program over known paths, new paths by price, and the bound.

use super::pricing::{PathSet, Prices, to_f64};
use super::{FlowProblem, Fractional, Share, relative, slices};
use crate::graph::LinkId;
use crate::lp::{Lp, LpSolution, LpSolver, RowKind};

/// Master programs at most: the gap is far smaller by then, or the solver is lost.
const ROUNDS: u32 = 60;

/// Known paths per commodity.
type Columns = Vec<Vec<Vec<LinkId>>>;

pub(super) fn solve(
    problem: &FlowProblem<'_>,
    paths: &mut PathSet<'_>,
    solver: &dyn LpSolver,
    gap: f64,
) -> Fractional {
    let (shares, price) = slices::fill(problem, paths);
    let mut columns: Columns =
        shares.iter().map(|s| s.iter().map(|share| share.path.clone()).collect()).collect();
    let mut best = Best::new(problem, shares);
    best.bound(problem, paths, &price, |_, _, _| {});
    while relative(best.flow.value, best.flow.least_value) > gap && best.flow.rounds < ROUNDS {
        best.flow.rounds += 1;
        let master = Master::new(problem, &columns);
        let answer = match solver.solve(&master.lp) {
            Ok(answer) => answer,
            Err(trouble) => {
                best.flow.trouble = Some(trouble);
                break;
            }
        };
        best.offer(problem, Master::shares(problem, &columns, &answer));
        let mut added = false;
        best.bound(problem, paths, &master.prices(problem, &answer), |c, path, _| {
            if !columns[c].iter().any(|p| p.as_slice() == path) {
                columns[c].push(path.to_vec());
                added = true;
            }
        });
        if !added {
            break; // the master holds every path that could help
        }
    }
    best.flow
}

/// What `raw` prices (per utilisation, of any scale) prove about the value of any flow over any path.
pub(super) fn least_value(problem: &FlowProblem<'_>, raw: &[f64]) -> f64 {
    let mut best = Best::new(problem, Vec::new());
    best.bound(problem, &mut PathSet::any(problem), &normalised(problem, raw), |_, _, _| {});
    best.flow.least_value
}

/// Price per bit/s and link, so that `sum of price * usable` is 1.
pub(super) fn normalised(problem: &FlowProblem<'_>, raw: &[f64]) -> Vec<f64> {
    let sum: f64 = raw.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let per_bps = |(r, u): (&f64, &f64)| if *u > 0.0 { r / sum / u } else { 0.0 };
    raw.iter().zip(&problem.usable).map(per_bps).collect()
}

/// The best flow and bounds so far.
struct Best {
    flow: Fractional,
}

impl Best {
    fn new(problem: &FlowProblem<'_>, shares: Vec<Vec<Share>>) -> Self {
        let (utilisation, value) = problem.worth(&problem.loads(&shares));
        let flow = Fractional {
            shares,
            utilisation,
            least_utilisation: 0.0,
            value,
            least_value: 0.0,
            rounds: 0,
            trouble: None,
        };
        Self { flow }
    }

    fn offer(&mut self, problem: &FlowProblem<'_>, shares: Vec<Vec<Share>>) {
        let (utilisation, value) = problem.worth(&problem.loads(&shares));
        if value < self.flow.value {
            self.flow = Fractional { shares, utilisation, value, ..self.flow.clone() };
        }
    }

    /// Tightens the bounds by `price` per bit/s and link, and calls `found` with the cheapest path of each commodity.
    ///
    /// With prices that are not negative and `sum of price * usable <= 1`, any flow's U is at least its loads times the
    /// prices, and that is at least every demand times its cheapest path. With the cost of links added to the
    /// prices the same holds for the whole objective.
    fn bound(
        &mut self,
        problem: &FlowProblem<'_>,
        paths: &mut PathSet<'_>,
        price: &[f64],
        mut found: impl FnMut(usize, &[LinkId], u64),
    ) {
        let none = vec![0.0; price.len()];
        for (floor, least) in
            [(&none, &mut self.flow.least_utilisation), (&problem.cost, &mut self.flow.least_value)]
        {
            let prices = Prices::new(problem, price, floor);
            let mut sum = 0.0;
            paths.cheapest(&prices, |c, path, units| {
                sum += problem.commodities[c].demand * to_f64(units) * prices.unit;
                found(c, path, units);
            });
            // rounding to integers may have raised the prices by a trifle: what they add up to says by how much
            let open = |e: &usize| problem.usable[*e] > 0.0 && prices.weight[*e] != u64::MAX;
            let total: f64 = (0..price.len())
                .filter(open)
                .map(|e| (prices.of(e) - floor[e]).max(0.0) * problem.usable[e])
                .sum();
            *least = least.max(sum / total.max(1.0));
        }
    }
}

/// The master program: a variable per path, as a share of its demand, and U.
struct Master {
    lp: Lp,
    /// Row of each link, where some path uses it.
    row_of: Vec<Option<usize>>,
}

impl Master {
    fn new(problem: &FlowProblem<'_>, columns: &Columns) -> Self {
        let mut lp = Lp::default();
        let demand_rows: Vec<Option<usize>> =
            columns.iter().map(|c| (!c.is_empty()).then(|| lp.row(RowKind::Equal, 1.0))).collect();
        let mut row_of = vec![None; problem.usable.len()];
        let mut used = vec![false; problem.usable.len()];
        columns.iter().flatten().flatten().for_each(|l| used[l.ix()] = true);
        for (row, _) in row_of.iter_mut().zip(&used).filter(|(_, used)| **used) {
            *row = Some(lp.row(RowKind::AtMost, 0.0));
        }
        for (c, paths) in columns.iter().enumerate() {
            let demand = problem.commodities[c].demand;
            for path in paths {
                let mut entries: Vec<(usize, f64)> = demand_rows[c].iter().map(|&r| (r, 1.0)).collect();
                let on_link = |l: &LinkId| Some((row_of[l.ix()]?, demand / problem.usable[l.ix()]));
                entries.extend(path.iter().filter_map(on_link));
                entries.sort_unstable_by_key(|e| e.0);
                let cost = path.iter().map(|l| problem.cost[l.ix()]).sum::<f64>() * demand;
                lp.variable(cost, entries);
            }
        }
        lp.variable(1.0, row_of.iter().flatten().map(|&r| (r, -1.0)).collect());
        Self { lp, row_of }
    }

    /// The flow of an answer: trifles dropped, every demand met exactly.
    fn shares(problem: &FlowProblem<'_>, columns: &Columns, answer: &LpSolution) -> Vec<Vec<Share>> {
        /// Below this share of a demand a path is noise of the solver.
        const TRIFLE: f64 = 1e-7;
        let mut at = 0;
        let mut all = Vec::with_capacity(columns.len());
        for (paths, commodity) in columns.iter().zip(&problem.commodities) {
            let x = &answer.x[at..at + paths.len()];
            at += paths.len();
            let sum: f64 = x.iter().filter(|x| **x > TRIFLE).sum();
            let share = |(path, x): (&Vec<LinkId>, &f64)| Share {
                path: path.clone(),
                bps: commodity.demand * x / sum,
            };
            all.push(paths.iter().zip(x).filter(|(_, x)| **x > TRIFLE).map(share).collect());
        }
        all
    }

    /// Price per bit/s and link, normalised.
    fn prices(&self, problem: &FlowProblem<'_>, answer: &LpSolution) -> Vec<f64> {
        let price = |row: &Option<usize>| row.map_or(0.0, |r| answer.price[r].max(0.0));
        let raw: Vec<f64> = self.row_of.iter().map(price).collect();
        normalised(problem, &raw)
    }
}

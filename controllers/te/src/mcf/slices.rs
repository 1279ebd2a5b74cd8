//! A first flow without a solver: demands in thin slices, each on the path that is cheapest when it comes.
//!
//! Prices grow exponentially with utilisation, as in the approximations of Plotkin, Shmoys and Tardos or of Garg and
//! Könemann. It gives the master program paths worth having, prices for a first bound, and an answer should the solver
//! fail.

use super::pricing::{PathSet, Prices};
use super::{FlowProblem, Share};
use crate::graph::LinkId;

/// Slices per demand.
const SLICES: u32 = 24;
/// Steepness of the prices: a link at 90 % of the largest utilisation costs e^-2 of the hottest.
const STEEP: f64 = 20.0;

/// The flow, and the prices that its loads end in.
pub(super) fn fill(problem: &FlowProblem<'_>, paths: &mut PathSet<'_>) -> (Vec<Vec<Share>>, Vec<f64>) {
    let mut shares: Vec<Vec<Share>> = problem.commodities.iter().map(|_| Vec::new()).collect();
    let mut load = vec![0.0; problem.usable.len()];
    let none = vec![0.0; load.len()];
    for slice in 0..SLICES {
        // the first slice goes by the preference for short paths alone
        let price = if slice == 0 { none.clone() } else { prices(problem, &load) };
        let prices = Prices::new(problem, &price, &problem.cost);
        paths.cheapest(&prices, |c, path, _| {
            let bps = problem.commodities[c].demand / f64::from(SLICES);
            add(&mut shares[c], path, bps);
            for l in path {
                load[l.ix()] += bps;
            }
        });
    }
    let price = prices(problem, &load);
    (shares, price)
}

/// Price per bit/s and link, normalised so that `sum of price * usable` is 1.
fn prices(problem: &FlowProblem<'_>, load: &[f64]) -> Vec<f64> {
    let (top, _) = problem.worth(load);
    let raw = |(l, u): (&f64, &f64)| {
        if *u > 0.0 && top > 0.0 { (STEEP * (l / u / top - 1.0)).exp() } else { 0.0 }
    };
    let raw: Vec<f64> = load.iter().zip(&problem.usable).map(raw).collect();
    super::columns::normalised(problem, &raw)
}

/// Adds to the share of `path`, which is new or known.
pub(super) fn add(shares: &mut Vec<Share>, path: &[LinkId], bps: f64) {
    match shares.iter_mut().find(|s| s.path == path) {
        Some(s) => s.bps += bps,
        None => shares.push(Share { path: path.to_vec(), bps }),
    }
}

//! From a fractional flow to LSPs of equal size (EBB paper, section 4.2.2): each LSP goes where most of the flow is left.
//!
//! With 16 LSPs the rounding is coarse, and some links end far above what the program planned: that is what the
//! paper saw of these algorithms, too.

use super::{Fractional, Share};
use crate::dijkstra::Search;
use crate::lsp_mesh::PathId;
use crate::round::PrimaryRound;

/// Places every LSP of the round after `flow`. Pairs without flow take their shortest path.
pub(super) fn place(round: &mut PrimaryRound<'_>, search: &mut Search, flow: &Fractional) {
    let usable = round.free.clone();
    let lsps = usize::from(round.lsps);
    for (f, shares) in flow.shares.iter().enumerate() {
        let ids: Vec<PathId> = if shares.is_empty() {
            shortest(round, search, f).into_iter().collect()
        } else {
            shares.iter().map(|s| round.paths.push(&s.path)).collect()
        };
        for (slot, choice) in choices(shares, lsps).into_iter().enumerate() {
            round.placed[f * lsps + slot] = ids.get(choice).copied();
        }
    }
    round.settle(&usable);
    round.fractional = Some((flow.utilisation, flow.least_utilisation));
}

/// Share of each LSP in turn: the one with most flow left, of equals the first.
fn choices(shares: &[Share], lsps: usize) -> Vec<usize> {
    let mut left: Vec<f64> = shares.iter().map(|s| s.bps).collect();
    #[allow(clippy::cast_precision_loss)] // at most 65535
    let size = left.iter().sum::<f64>() / lsps as f64;
    let most = |left: &[f64]| {
        let better = |best: usize, i: usize| if left[i] > left[best] { i } else { best };
        (0..left.len()).fold(0, better)
    };
    let mut chosen = Vec::with_capacity(lsps);
    for _ in 0..lsps {
        let choice = most(&left);
        if let Some(rest) = left.get_mut(choice) {
            *rest -= size;
        }
        chosen.push(choice);
    }
    chosen
}

/// The pair's shortest path by RTT, whatever is usable.
fn shortest(round: &mut PrimaryRound<'_>, search: &mut Search, flow: usize) -> Option<PathId> {
    let (src, dst) = (round.flows[flow].src, round.flows[flow].dst);
    let mut path = Vec::new();
    if search.run(src, Some(dst), round.weight, |_| true) {
        search.path_to(dst, &mut path);
        Some(round.paths.push(&path))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(bps: &[f64]) -> Vec<Share> {
        bps.iter().map(|&bps| Share { path: vec![], bps }).collect()
    }

    #[test]
    fn lsps_go_where_most_is_left() {
        assert_eq!(choices(&shares(&[10.0, 6.0]), 16).iter().filter(|c| **c == 0).count(), 10);
        assert_eq!(choices(&shares(&[3.0, 2.0, 1.0]), 3), [0, 1, 0]);
        assert_eq!(choices(&shares(&[1.0, 1.0]), 4), [0, 1, 0, 1]);
    }
}

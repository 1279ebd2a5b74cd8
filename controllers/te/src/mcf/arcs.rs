//! The program with a variable per link and destination (EBB paper, section 4.2.2): demands of one destination are one
//! flow with many sources. Its answer is a load per link and destination, which is then taken apart into paths.

use super::slices::add;
use super::{FlowProblem, Fractional, Share};
use crate::dijkstra::UNREACHABLE;
use crate::graph::{LinkId, NodeId};
use crate::lp::{Lp, LpError, LpSolution, LpSolver, RowKind};

/// Variable per (destination, link), where the link may carry traffic to the destination.
struct Arcs {
    lp: Lp,
    targets: Vec<NodeId>,
    variable: Vec<Vec<Option<usize>>>,
    /// Bit/s of one unit of the variables.
    scale: f64,
    capacity_row: Vec<usize>,
}

pub(super) fn solve(problem: &FlowProblem<'_>, solver: &dyn LpSolver) -> Result<Fractional, LpError> {
    let arcs = Arcs::new(problem);
    let answer = solver.solve(&arcs.lp)?;
    let mut shares: Vec<Vec<Share>> = problem.commodities.iter().map(|_| Vec::new()).collect();
    for (t, &target) in arcs.targets.iter().enumerate() {
        let value = |v: &Option<usize>| v.map_or(0.0, |v| answer.x[v].max(0.0) * arcs.scale);
        let mut left: Vec<f64> = arcs.variable[t].iter().map(value).collect();
        for (c, commodity) in problem.commodities.iter().enumerate() {
            if commodity.dst == target && commodity.demand > 0.0 {
                shares[c] = take_apart(problem, &mut left, commodity.src, target, commodity.demand);
            }
        }
    }
    let (utilisation, value) = problem.worth(&problem.loads(&shares));
    let least_value = arcs.least_value(problem, &answer);
    Ok(Fractional {
        shares,
        utilisation,
        least_utilisation: (least_value / (1.0 + super::EPSILON)).max(0.0),
        value,
        least_value,
        rounds: 1,
        trouble: None,
    })
}

impl Arcs {
    fn new(problem: &FlowProblem<'_>) -> Self {
        let graph = problem.graph;
        let wanted: Vec<_> = problem.commodities.iter().filter(|c| c.demand > 0.0).collect();
        let mut targets: Vec<NodeId> = wanted.iter().map(|c| c.dst).collect();
        targets.sort_unstable();
        targets.dedup();
        let scale = wanted.iter().map(|c| c.demand).fold(1.0, f64::max);
        let mut lp = Lp::default();
        let open = |l: LinkId| problem.weight[l.ix()] != UNREACHABLE;
        let capacity_row: Vec<usize> = graph.links().map(|_| lp.row(RowKind::AtMost, 0.0)).collect();
        let mut variable = Vec::with_capacity(targets.len());
        for &target in &targets {
            let reached = reached_from(problem, target);
            let flow_row: Vec<Option<usize>> = graph
                .nodes()
                .map(|n| {
                    let own = wanted.iter().filter(|c| c.dst == target && c.src == n);
                    let demand: f64 = own.map(|c| c.demand).sum();
                    (n != target && reached[n.ix()]).then(|| lp.row(RowKind::Equal, demand / scale))
                })
                .collect();
            let mut of_target = vec![None; graph.link_count()];
            for l in graph.links().filter(|&l| open(l)) {
                let (from, to) = (graph.from(l), graph.to(l));
                let through = to == target || (reached[to.ix()] && !graph.no_transit(to));
                if from == target || !through || !reached[from.ix()] {
                    continue;
                }
                let per = scale / problem.usable[l.ix()];
                let mut entries = vec![(capacity_row[l.ix()], per)];
                entries.extend(flow_row[from.ix()].map(|r| (r, 1.0)));
                entries.extend(flow_row[to.ix()].map(|r| (r, -1.0)));
                entries.sort_unstable_by_key(|e| e.0);
                of_target[l.ix()] = Some(lp.variable(problem.cost[l.ix()] * scale, entries));
            }
            variable.push(of_target);
        }
        lp.variable(1.0, capacity_row.iter().map(|&r| (r, -1.0)).collect());
        Self { lp, targets, variable, scale, capacity_row }
    }

    /// The bound of [`super::columns`] from this program's prices.
    fn least_value(&self, problem: &FlowProblem<'_>, answer: &LpSolution) -> f64 {
        let raw: Vec<f64> = self.capacity_row.iter().map(|&r| answer.price[r].max(0.0)).collect();
        super::columns::least_value(problem, &raw)
    }
}

/// Nodes from which traffic can get to `target`.
fn reached_from(problem: &FlowProblem<'_>, target: NodeId) -> Vec<bool> {
    let graph = problem.graph;
    let mut reached = vec![false; graph.node_count()];
    reached[target.ix()] = true;
    loop {
        let mut grown = false;
        for l in graph.links().filter(|l| problem.weight[l.ix()] != UNREACHABLE) {
            let (from, to) = (graph.from(l), graph.to(l));
            let through = to == target || !graph.no_transit(to);
            if reached[to.ix()] && through && !reached[from.ix()] {
                reached[from.ix()] = true;
                grown = true;
            }
        }
        if !grown {
            return reached;
        }
    }
}

/// Takes `demand` from `src` to `target` out of `left`, widest path first.
fn take_apart(
    problem: &FlowProblem<'_>,
    left: &mut [f64],
    src: NodeId,
    target: NodeId,
    demand: f64,
) -> Vec<Share> {
    /// Below this share of the demand the rest is noise of the solver.
    const TRIFLE: f64 = 1e-6;
    let mut shares = Vec::new();
    let mut rest = demand;
    while rest > demand * TRIFLE {
        let Some((path, width)) = widest(problem, left, src, target) else { break };
        if width < demand * TRIFLE {
            break;
        }
        let bps = width.min(rest);
        for l in &path {
            left[l.ix()] = (left[l.ix()] - bps).max(0.0);
        }
        add(&mut shares, &path, bps);
        rest -= bps;
    }
    let taken: f64 = shares.iter().map(|s| s.bps).sum();
    if taken > 0.0 {
        for share in &mut shares {
            share.bps *= demand / taken;
        }
    }
    shares
}

/// The path whose narrowest link is widest in `left`; of equals, the first that is found going by node number.
fn widest(
    problem: &FlowProblem<'_>,
    left: &[f64],
    src: NodeId,
    target: NodeId,
) -> Option<(Vec<LinkId>, f64)> {
    let graph = problem.graph;
    let mut width = vec![0.0f64; graph.node_count()];
    let mut via: Vec<Option<LinkId>> = vec![None; graph.node_count()];
    let mut done = vec![false; graph.node_count()];
    width[src.ix()] = f64::INFINITY;
    loop {
        let open = graph.nodes().filter(|n| !done[n.ix()] && width[n.ix()] > 0.0);
        let at = open.max_by(|a, b| width[a.ix()].total_cmp(&width[b.ix()]).then(b.cmp(a)))?;
        if at == target {
            break;
        }
        done[at.ix()] = true;
        if at != src && graph.no_transit(at) {
            continue;
        }
        for l in (0u32..).map(LinkId).skip(graph.out(at).start).take(graph.out(at).len()) {
            let (to, through) = (graph.to(l).ix(), width[at.ix()].min(left[l.ix()]));
            if !done[to] && through > width[to] {
                width[to] = through;
                via[to] = Some(l);
            }
        }
    }
    let mut path = Vec::new();
    let mut at = target;
    while let Some(l) = via[at.ix()].filter(|_| at != src) {
        path.push(l);
        at = graph.from(l);
    }
    path.reverse();
    Some((path, width[target.ix()]))
}

//! Micro-benchmark, printed; run with `cargo test --release -p te --test bench -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{G, Plane};
use te::{BackupAlgorithm, BackupRound, Cspf, Graph, PrimaryAlgorithm, Rba, TeSettings, compute_with};

/// Leaves all LSPs unprotected, to time the primaries alone.
struct NoBackup;

impl BackupAlgorithm for NoBackup {
    fn name(&self) -> &'static str {
        "none"
    }
    fn protect(&self, _: &mut BackupRound<'_>) {}
}

fn best_of(n: u32, mut run: impl FnMut()) -> Duration {
    (0..n)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .unwrap()
}

fn measure(graph: &Graph, demands: &[te::Demand], load: &str) {
    let settings = TeSettings::default();
    let reuse = Cspf { reuse: true };
    let plain = Cspf { reuse: false };
    let run = |c: &Cspf, b: &dyn BackupAlgorithm| {
        compute_with(graph, demands, &settings, |_| c as &dyn PrimaryAlgorithm, b).unwrap()
    };
    let with_reuse = best_of(3, || drop(run(&reuse, &NoBackup)));
    let without = best_of(3, || drop(run(&plain, &NoBackup)));
    let all = best_of(3, || drop(run(&reuse, &Rba)));
    let mesh = run(&reuse, &Rba);
    let lsps: u32 = mesh.classes.iter().map(|c| c.placed).sum();
    let over: u32 = mesh.classes.iter().map(|c| c.over_limit).sum();
    println!(
        "{load}: {} nodes, {} links, {lsps} LSPs ({over} over limit): CSPF {with_reuse:.1?} (every LSP searched {without:.1?}), RBA {:.1?}",
        graph.node_count(),
        graph.link_count(),
        all.saturating_sub(with_reuse)
    );
}

#[test]
#[ignore = "prints timings"]
fn at_the_papers_size() {
    let plane = Plane::random(7, 22, 22, 500);
    let graph = plane.graph();
    for (load, total) in [("light", 10_000 * G), ("loaded", 40_000 * G), ("overloaded", 160_000 * G)] {
        let demands = plane.demands(&graph, 7, total);
        measure(&graph, &demands, load);
    }
}

//! Micro-benchmarks, printed; run with `cargo test --release -p te --test bench -- --ignored --nocapture --test-threads 1`.
//!
//! The paper measures against CSPF that searches for every LSP; ours skips searches that provably change nothing. Ratios
//! are therefore against CSPF without that, and the time with it stands beside it.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{G, Plane};
use te::lp::InteriorPoint;
use te::mcf::{FlowProblem, PathSet};
use te::{
    BackupAlgorithm, ClassSettings, Cspf, Demand, Fir, Flow, Graph, Hprr, KspMcf, LspMesh, Mcf, Mesh,
    NoBackup, PrimaryAlgorithm, Rba, SrlgRba, TeSettings, compute_with, rtt_weights,
};

/// Shortest of `n` runs, and what the last one gave.
fn best_of<T>(n: u32, mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut best = None;
    for _ in 0..n {
        let start = Instant::now();
        let result = run();
        let took = start.elapsed();
        best = Some(best.map_or((took, None), |(b, _): (Duration, Option<T>)| (b.min(took), None)));
        best = best.map(|(b, _)| (b, Some(result)));
    }
    let (took, result) = best.unwrap();
    (took, result.unwrap())
}

struct Case {
    graph: Graph,
    demands: Vec<Demand>,
    settings: TeSettings,
}

impl Case {
    fn run(&self, primary: &dyn PrimaryAlgorithm, backup: &dyn BackupAlgorithm) -> LspMesh {
        compute_with(&self.graph, &self.demands, &self.settings, |_| primary, backup).unwrap()
    }

    /// Time of the primaries alone, and a word on how well they did.
    fn primaries(&self, runs: u32, primary: &dyn PrimaryAlgorithm) -> (Duration, String) {
        let (took, mesh) = best_of(runs, || self.run(primary, &NoBackup));
        let max = mesh.utilisation(&self.graph).into_iter().fold(0.0, f64::max);
        let over: u32 = mesh.classes.iter().map(|c| c.over_limit).sum();
        (took, format!("max utilisation {max:.3}, {over} LSPs over the limit"))
    }

    /// Time of the backups alone.
    fn backups(&self, backup: &dyn BackupAlgorithm) -> Duration {
        let cspf = Cspf::default();
        let (all, _) = best_of(5, || self.run(&cspf, backup));
        let (primaries, _) = best_of(5, || self.run(&cspf, &NoBackup));
        all.saturating_sub(primaries)
    }
}

fn case(seed: u64, dcs: usize, midpoints: usize, links: usize, total: u64) -> Case {
    let plane = Plane::random(seed, dcs, midpoints, links);
    let graph = plane.graph();
    let demands = plane.demands(&graph, seed, total);
    Case { graph, demands, settings: TeSettings::default() }
}

fn measure(case: &Case) {
    let plain = Cspf { reuse: false };
    let (cspf, words) = case.primaries(3, &plain);
    let times = |d: Duration| format!("{d:>9.1?}  {:>5.2} x", d.as_secs_f64() / cspf.as_secs_f64());
    println!("  cspf, every LSP searched  {}  {words}", times(cspf));
    let (reuse, words) = case.primaries(5, &Cspf::default());
    println!("  cspf                      {}  {words}", times(reuse));
    let (hprr, words) = case.primaries(5, &Hprr::default());
    println!("  hprr with its cspf        {}  {words}", times(hprr));
    let (hprr, words) = case.primaries(5, &Hprr { cool: 0.0, ..Hprr::default() });
    println!("  hprr, no LSP skipped      {}  {words}", times(hprr));
    for backup in [&Rba as &dyn BackupAlgorithm, &SrlgRba, &Fir] {
        println!("  {:8} backups alone    {}", backup.name(), times(case.backups(backup)));
    }
}

/// 22 data centres and 22 midpoints, 1000 directed links, about 22 000 LSPs.
#[test]
#[ignore = "prints timings"]
fn at_the_papers_size() {
    for (load, total) in [("light", 10_000 * G), ("loaded", 40_000 * G), ("overloaded", 160_000 * G)] {
        println!("{load}:");
        measure(&case(7, 22, 22, 500, total));
    }
}

#[test]
#[ignore = "prints timings"]
fn growth() {
    for dcs in [10, 20, 30, 40, 50] {
        let case = case(7, dcs, dcs, dcs * 23, 80 * G * u64::try_from(dcs * dcs).unwrap());
        println!("{dcs} + {dcs} nodes, {} links:", case.graph.link_count());
        measure(&case);
    }
}

/// One class at the paper's size, by linear programs.
#[test]
#[ignore = "prints timings"]
fn flows() {
    for seed in [7, 1, 2, 3] {
        let mut case = case(seed, 22, 22, 500, 40_000 * G);
        case.settings.classes = vec![ClassSettings::new(Mesh::Gold, 80)];
        for d in &mut case.demands {
            d.mesh = Mesh::Gold;
        }
        println!("network {seed}:");
        programs(&case);
        for (name, a) in
            [("mcf", &Mcf::default() as &dyn PrimaryAlgorithm), ("ksp-mcf:512", &KspMcf::new(512))]
        {
            let (took, words) = case.primaries(1, a);
            println!("  {name:20} {took:>9.2?}, {words}");
        }
    }
}

fn programs(case: &Case) {
    let weight = rtt_weights(&case.graph);
    let usable: Vec<u64> = case.graph.links().map(|l| case.graph.capacity_bps(l) / 5 * 4).collect();
    let mesh = case.run(&Cspf::default(), &NoBackup);
    let flow = |b: &te::Bundle| Flow { src: b.src, dst: b.dst, lsp_bps: b.lsp_bps };
    let flows: Vec<Flow> = mesh.bundles.iter().map(flow).collect();
    let problem = FlowProblem::new(&case.graph, &weight, &usable, &flows, 16);
    for k in [0, 64, 512, 4096] {
        let (listing, mut paths) = best_of(1, || match k {
            0 => PathSet::any(&problem),
            k => PathSet::shortest(&problem, k),
        });
        let (took, f) = best_of(1, || problem.solve(&mut paths, &InteriorPoint, 0.002));
        let name = if k == 0 { "any path".to_owned() } else { format!("{k} shortest paths") };
        println!(
            "  {name:20} {took:>9.2?} after {listing:.2?} of listing: {} rounds, utilisation {:.5}, proven within {:.3} % {}",
            f.rounds,
            f.utilisation,
            f.gap() * 100.0,
            f.trouble.map_or_else(String::new, |t| t.to_string())
        );
    }
    match best_of(1, || problem.solve_by_arcs(&InteriorPoint)) {
        (took, Ok(f)) => println!(
            "  {:20} {took:>9.2?}: utilisation {:.5}, proven within {:.3} %",
            "all arcs at once",
            f.utilisation,
            f.gap() * 100.0
        ),
        (_, Err(e)) => println!("  {e}"),
    }
}

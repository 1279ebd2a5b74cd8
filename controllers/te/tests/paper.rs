//! What the paper's evaluation says about the algorithms (EBB paper, section 6), on generated networks: who is above
//! whom and by about how much, over several seeds. All of these are relations of averages; single networks may differ.
#![allow(clippy::unwrap_used)]

mod common;

use common::{G, Plane, Rng};
use te::report::{FailureKind, deficits, stretches};
use te::{
    BackupAlgorithm, ClassSettings, Cspf, Demand, Fir, Graph, Hprr, KspMcf, LspMesh, Mcf, Mesh, NoBackup,
    PrimaryAlgorithm, Rba, SrlgRba, TeSettings, compute_with,
};

/// A network with one class's demands, which at 1.0 fill the hottest link to the brim under the best possible flow.
struct Net {
    graph: Graph,
    demands: Vec<Demand>,
}

/// 10 + 10 nodes, 55 links; `load` is the best possible largest utilisation.
fn nets(load: f64) -> Vec<Net> {
    (0..)
        .filter_map(|seed| {
            let mut plane = Plane::random(seed, 10, 10, 75);
            let mut rng = Rng(seed);
            for pair in plane.links.chunks_mut(2) {
                let duct = (rng.below(2) == 0).then(|| format!("duct{}", rng.below(10)));
                for link in pair {
                    link.srlgs = duct.iter().cloned().collect();
                }
            }
            let links_of = |n: &String| plane.links.iter().filter(|l| l.from == *n).count();
            plane.dcs.iter().all(|n| links_of(n) >= 4).then_some((seed, plane))
        })
        .take(6)
        .map(|(seed, plane)| {
            let graph = plane.graph();
            let one = |bps| {
                let all = plane.demands(&graph, seed, bps).into_iter();
                all.map(|d| Demand { mesh: Mesh::Gold, ..d }).collect::<Vec<_>>()
            };
            let mesh = run(&graph, &one(10_000 * G), 16, 100, &Mcf::default(), &NoBackup);
            let best = mesh.classes[0].fractional.unwrap().1;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let total = (1e13 * load / best) as u64;
            let demands = one(total);
            Net { graph, demands }
        })
        .collect()
}

fn run(
    g: &Graph,
    demands: &[Demand],
    lsps: u16,
    percent: u8,
    primary: &dyn PrimaryAlgorithm,
    backup: &dyn BackupAlgorithm,
) -> LspMesh {
    let classes = vec![ClassSettings::new(Mesh::Gold, percent)];
    let settings = TeSettings { classes, lsps, ..TeSettings::default() };
    compute_with(g, demands, &settings, |_| primary, backup).unwrap()
}

#[allow(clippy::cast_precision_loss)]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Per algorithm, averages over the networks.
struct Averages {
    max: f64,
    hot: f64,
    at_limit: f64,
    stretch: f64,
    stretch_max: f64,
}

fn averages(nets: &[Net], lsps: u16, percent: u8, algorithm: &dyn PrimaryAlgorithm) -> Averages {
    let limit = f64::from(percent) / 100.0;
    let mut rows: Vec<[f64; 5]> = Vec::new();
    for net in nets {
        let mesh = run(&net.graph, &net.demands, lsps, percent, algorithm, &NoBackup);
        let u = mesh.utilisation(&net.graph);
        #[allow(clippy::cast_precision_loss)]
        let share = |f: &dyn Fn(f64) -> bool| u.iter().filter(|u| f(**u)).count() as f64 / u.len() as f64;
        let s = &stretches(&net.graph, &mesh)[0];
        rows.push([
            u.iter().copied().fold(0.0, f64::max),
            share(&|u| u > limit),
            share(&|u| u > limit - 0.03 && u <= limit),
            s.mean,
            s.max,
        ]);
    }
    let column = |i: usize| mean(&rows.iter().map(|r| r[i]).collect::<Vec<_>>());
    Averages {
        max: column(0),
        hot: column(1),
        at_limit: column(2),
        stretch: column(3),
        stretch_max: column(4),
    }
}

/// Figure 12 at a load where the best possible flow uses the hottest link at 60 %, so that everything fits below 80 %.
#[test]
fn utilisation_below_the_limit() {
    let nets = nets(0.6);
    let cspf = averages(&nets, 16, 80, &Cspf::default());
    let hprr = averages(&nets, 16, 80, &Hprr::default());
    let mcf = averages(&nets, 16, 80, &Mcf::default());
    let best = averages(&nets, 512, 80, &Mcf::default());
    for (name, a) in [("cspf", &cspf), ("hprr", &hprr), ("mcf", &mcf), ("mcf, 512 LSPs", &best)] {
        println!(
            "{name:14} max {:.3}, just below the limit {:.3}, stretch {:.4}",
            a.max, a.at_limit, a.stretch
        );
    }
    // CSPF fills links up to its limit and stops there; nothing else has that step
    assert!(cspf.max > 0.75 && cspf.max <= 0.8 && cspf.at_limit > 0.08, "{} {}", cspf.max, cspf.at_limit);
    assert!(hprr.at_limit < 0.01 && mcf.at_limit < 0.01);
    // HPRR is far below CSPF and at the reference; 16 LSPs cost MCF a few per cent
    assert!(hprr.max < cspf.max * 0.85 && hprr.max < best.max * 1.03, "{} {}", hprr.max, best.max);
    assert!(mcf.max > best.max * 1.02 && best.max < 0.6 * 1.01, "{} {}", mcf.max, best.max);
    // figure 13: CSPF has the least stretch on average, HPRR the most
    assert!(cspf.stretch < mcf.stretch && mcf.stretch < hprr.stretch);
}

/// Figures 12 and 13 where the best possible flow needs 80 %: who is over the limit, and how long spilled paths get.
#[test]
fn utilisation_above_the_limit() {
    let nets = nets(0.8);
    let cspf = averages(&nets, 16, 80, &Cspf::default());
    let hprr = averages(&nets, 16, 80, &Hprr::default());
    let mcf = averages(&nets, 16, 80, &Mcf::default());
    let ksp = averages(&nets, 16, 80, &KspMcf::new(16));
    for (name, a) in [("cspf", &cspf), ("hprr", &hprr), ("mcf", &mcf), ("ksp-mcf:16", &ksp)] {
        println!(
            "{name:10} max {:.3}, over the limit {:.3}, longest stretch {:.2}",
            a.max, a.hot, a.stretch_max
        );
    }
    // KSP-MCF with too few paths is worse than MCF and CSPF above 80 %; HPRR's hottest link is the coolest
    assert!(ksp.hot > mcf.hot * 1.2 && ksp.hot > cspf.hot * 1.2);
    assert!(hprr.max < cspf.max && hprr.max < mcf.max && mcf.max < ksp.max);
    // CSPF's round robin spills to paths as long as MCF's or longer
    assert!(cspf.stretch_max > mcf.stretch_max && cspf.stretch_max > ksp.stretch_max);
    assert!(hprr.stretch_max > cspf.stretch_max);
}

/// Figure 16, mean deficit over all single links and over all single risk groups.
#[test]
fn backups_stand_as_in_the_paper() {
    let nets = nets(0.6);
    let means = |backup: &dyn BackupAlgorithm| {
        let of = |net: &Net| {
            let mesh = run(&net.graph, &net.demands, 16, 80, &Cspf::default(), backup);
            let d = deficits(&net.graph, &mesh);
            [FailureKind::Link, FailureKind::Srlg].map(|k| d.mean(Mesh::Gold, k))
        };
        let rows: Vec<[f64; 2]> = nets.iter().map(of).collect();
        let column = |i: usize| mean(&rows.iter().map(|r| r[i]).collect::<Vec<_>>());
        println!("{:9} links {:.5}, risk groups {:.5}", backup.name(), column(0), column(1));
        [column(0), column(1)]
    };
    let (fir, rba, srlg) = (means(&Fir), means(&Rba), means(&SrlgRba));
    // RBA all but ends the deficit of single links
    assert!(rba[0] < 2e-4 && fir[0] > 20.0 * rba[0]);
    // SRLG-RBA all but ends that of groups as well, by a quarter better than RBA, and keeps single links safe
    assert!(srlg[0] < 2e-4 && srlg[1] < 2e-3 && srlg[1] < 0.8 * rba[1] && fir[1] > 10.0 * rba[1]);
}

/// Shortest of five runs, seconds: the machine's other work only ever adds.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut once = || {
        let start = std::time::Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// E8, figure 11: how long the algorithms take beside CSPF that searches for every LSP, as the paper's does. The paper has
/// HPRR (with its CSPF) at 1.5, RBA backups at 2, MCF at 5 and KSP-MCF at 15. Ours must be in that order of size, with room
/// for what else the machine does meanwhile, and KSP-MCF is the slowest. The benchmarks print the real figures, at the
/// paper's size.
#[test]
fn e8_relative_run_times() {
    let plane = Plane::random(7, 14, 14, 160);
    let graph = plane.graph();
    let demands = plane.demands(&graph, 7, 20_000 * G);
    let settings = TeSettings::default();
    let time = |primary: &dyn PrimaryAlgorithm, backup: &dyn BackupAlgorithm| {
        seconds(|| drop(compute_with(&graph, &demands, &settings, |_| primary, backup).unwrap()))
    };
    let cspf = time(&Cspf { reuse: false }, &NoBackup);
    let hprr = time(&Hprr::default(), &NoBackup) / cspf;
    let quick = time(&Cspf::default(), &NoBackup);
    let rba = (time(&Cspf::default(), &Rba) - quick) / cspf;
    let ksp = time(&KspMcf::new(512), &NoBackup) / cspf;
    println!("beside CSPF ({cspf:.3} s): HPRR {hprr:.2}, RBA {rba:.2}, KSP-MCF {ksp:.1}");
    assert!(hprr < 3.0 && rba < 6.0 && ksp > hprr.max(rba), "{hprr} {rba} {ksp}");
}

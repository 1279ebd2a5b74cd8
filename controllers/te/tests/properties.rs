//! Properties of computed meshes on random planes: E1, E2, E3 and E6 of the testbed's list, determinism, sane paths.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::{G, Plane, Rng};
use proptest::prelude::*;
use te::{
    BackupChoice, ClassSettings, Cspf, Demand, Drain, Graph, Hprr, LinkId, LspMesh, Mesh, NoBackup, NodeId,
    PrimaryAlgorithm, PrimaryChoice, Rba, TeSettings, compute, compute_with,
};

/// Per class its percentage and algorithm, and the backups.
type Choices = ([(u8, PrimaryChoice); 3], BackupChoice);

fn settings(choices: &Choices) -> TeSettings {
    let classes = Mesh::BY_PRIORITY
        .into_iter()
        .zip(choices.0)
        .map(|(mesh, (reserved_percent, algorithm))| ClassSettings { mesh, reserved_percent, algorithm })
        .collect();
    TeSettings { classes, backup: choices.1, ..TeSettings::default() }
}

fn choices() -> impl Strategy<Value = Choices> {
    use PrimaryChoice::{Cspf, Hprr, KspMcf, Mcf};
    let primary = prop::sample::select(vec![Cspf, Cspf, Hprr, Hprr, Mcf, KspMcf(3), KspMcf(20)]);
    let backup = prop::sample::select(vec![BackupChoice::Rba, BackupChoice::SrlgRba, BackupChoice::Fir]);
    (prop::array::uniform3((1..=100u8, primary)), backup)
}

fn case() -> impl Strategy<Value = (Plane, u64, u64, Choices)> {
    (any::<u64>(), 2..7usize, 0..7usize, 0..25usize, 0..20_000u64, choices()).prop_map(
        |(seed, dcs, midpoints, extra, load, choices)| {
            (Plane::random(seed, dcs, midpoints, dcs + midpoints - 1 + extra), seed, load * G, choices)
        },
    )
}

/// Links of a path connect end to end and no node comes twice.
fn is_simple_path(g: &Graph, path: &[LinkId], src: NodeId, dst: NodeId) -> bool {
    let mut seen = BTreeSet::from([src]);
    let mut at = src;
    for &l in path {
        if g.from(l) != at || !seen.insert(g.to(l)) || g.drain(l) == Drain::Hard {
            return false;
        }
        at = g.to(l);
        if at != dst && g.no_transit(at) {
            return false;
        }
    }
    at == dst
}

/// Whether `dst` can be reached over the links that `admit` lets through.
fn connected(g: &Graph, src: NodeId, dst: NodeId, admit: impl Fn(LinkId) -> bool) -> bool {
    let mut seen = BTreeSet::from([src]);
    let mut todo = vec![src];
    while let Some(at) = todo.pop() {
        if at != src && g.no_transit(at) {
            continue;
        }
        for l in g.links().filter(|&l| g.from(l) == at && g.drain(l) != Drain::Hard && admit(l)) {
            if seen.insert(g.to(l)) {
                todo.push(g.to(l));
            }
        }
    }
    seen.contains(&dst)
}

fn shares_srlg(g: &Graph, link: LinkId, path: &[LinkId]) -> bool {
    path.iter().any(|&a| g.srlgs(a).iter().any(|s| g.srlgs(link).contains(s)))
}

/// Names instead of numbers, to compare meshes of separately built graphs.
fn spelled(g: &Graph, mesh: &LspMesh) -> String {
    use std::fmt::Write as _;
    let path = |p: &[LinkId]| {
        p.iter().map(|&l| format!("{}/{}", g.name(g.from(l)), g.interface(l))).collect::<Vec<_>>()
    };
    let mut out = String::new();
    for b in &mesh.bundles {
        for &l in &b.lsps {
            let ends = (g.name(b.src), g.name(b.dst), b.mesh.name(), b.lsp_bps);
            writeln!(out, "{ends:?} {:?} {:?}", path(mesh.primary(l)), path(mesh.backup(l))).unwrap();
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn paths_are_sane_and_all_connected_pairs_have_all_lsps((plane, seed, load, choices) in case(), drains in any::<u64>()) {
        let mut plane = plane;
        let mut rng = Rng(drains);
        for link in &mut plane.links {
            match rng.below(12) {
                0 => link.drain = Drain::Hard,
                1 => link.drain = Drain::Soft(500_000),
                _ => {}
            }
        }
        for node in &mut plane.nodes {
            node.no_transit = rng.below(8) == 0;
        }
        let g = plane.graph();
        let mesh = compute(&g, &plane.demands(&g, seed, load), &settings(&choices)).unwrap();
        for b in &mesh.bundles {
            prop_assert_eq!(b.lsps.len(), 16);
            let reachable = connected(&g, b.src, b.dst, |_| true);
            for &l in &b.lsps {
                prop_assert_eq!(l.primary.is_some(), reachable);
                if l.primary.is_some() {
                    prop_assert!(is_simple_path(&g, mesh.primary(l), b.src, b.dst));
                }
                if l.backup.is_some() {
                    prop_assert!(is_simple_path(&g, mesh.backup(l), b.src, b.dst));
                }
            }
        }
    }

    /// E1: no link above its usable share, unless the fallback says so.
    #[test]
    fn usable_is_a_limit((plane, seed, load, choices) in case()) {
        let g = plane.graph();
        let mesh = compute(&g, &plane.demands(&g, seed, load), &settings(&choices)).unwrap();
        for class in &mesh.classes {
            let over = class.used.iter().zip(&class.usable).any(|(u, c)| u > c);
            prop_assert!(!over || class.over_limit > 0);
        }
    }

    /// E2: the residual formula holds exactly, and `used` is the sum of the paths.
    #[test]
    fn residuals_are_exact((plane, seed, load, choices) in case()) {
        let g = plane.graph();
        let mesh = compute(&g, &plane.demands(&g, seed, load), &settings(&choices)).unwrap();
        let mut higher = vec![0u64; g.link_count()];
        for (class, (percent, _)) in mesh.classes.iter().zip(choices.0) {
            let mut used = vec![0u64; g.link_count()];
            for b in mesh.bundles.iter().filter(|b| b.mesh == class.mesh) {
                for &l in &b.lsps {
                    mesh.primary(l).iter().for_each(|x| used[x.ix()] += b.lsp_bps);
                }
            }
            prop_assert_eq!(&used, &class.used);
            for l in g.links() {
                let rest = g.capacity_bps(l).saturating_sub(higher[l.ix()]);
                let want = u64::try_from(u128::from(rest) * u128::from(percent) / 100).unwrap();
                prop_assert_eq!(class.usable[l.ix()], want);
            }
            higher.iter_mut().zip(&used).for_each(|(h, u)| *h += u);
        }
    }

    /// E6: a backup shares no physical link with its primary, and a risk group only where nothing else connects.
    #[test]
    fn backups_avoid_links_and_risks((plane, seed, load, choices) in case()) {
        let g = plane.graph();
        let mesh = compute(&g, &plane.demands(&g, seed, load), &settings(&choices)).unwrap();
        for b in &mesh.bundles {
            for &l in &b.lsps {
                let p = mesh.primary(l);
                let on_primary = |x: LinkId| p.iter().any(|&a| g.physical(a) == g.physical(x));
                let possible = connected(&g, b.src, b.dst, |x| !on_primary(x));
                prop_assert_eq!(l.backup.is_some(), possible);
                prop_assert!(!mesh.backup(l).iter().any(|&x| on_primary(x)));
                if mesh.backup(l).iter().any(|&x| shares_srlg(&g, x, p)) {
                    let clean = |x| !on_primary(x) && !shares_srlg(&g, x, p);
                    prop_assert!(!connected(&g, b.src, b.dst, clean));
                }
            }
        }
    }

    /// The order in which things are listed does not matter, nor does a second run.
    #[test]
    fn same_input_same_output((plane, seed, load, choices) in case(), order in any::<u64>()) {
        let g = plane.graph();
        let demands = plane.demands(&g, seed, load);
        let first = compute(&g, &demands, &settings(&choices)).unwrap();
        prop_assert_eq!(&first, &compute(&g, &demands, &settings(&choices)).unwrap());

        let mut rng = Rng(order);
        let mut other = plane.clone();
        rng.shuffle(&mut other.nodes);
        rng.shuffle(&mut other.links);
        let h = other.graph();
        let mut shuffled: Vec<Demand> = plane.demands(&h, seed, load);
        rng.shuffle(&mut shuffled);
        let second = compute(&h, &shuffled, &settings(&choices)).unwrap();
        prop_assert_eq!(spelled(&g, &first), spelled(&h, &second));
    }

    /// Keeping a path while it fits gives what searching every time gives.
    #[test]
    fn reuse_changes_nothing((plane, seed, load, choices) in case()) {
        let g = plane.graph();
        let demands = plane.demands(&g, seed, load);
        let run = |reuse| {
            let cspf = Cspf { reuse };
            let mesh = compute_with(&g, &demands, &settings(&choices), |_| &cspf as &dyn PrimaryAlgorithm, &Rba);
            let mesh = mesh.unwrap();
            (spelled(&g, &mesh), mesh.fallbacks())
        };
        prop_assert_eq!(run(true), run(false));
    }

    /// E4: on one class, HPRR's largest utilisation is at most CSPF's, whatever its thresholds; without thresholds no
    /// LSP is left that could move to a path below its own largest utilisation, once nothing moves any more.
    #[test]
    fn hprr_never_heats_the_hottest_link((plane, seed, load, _) in case(), percent in 1..=100u8, cool in 0.0..1.5f64) {
        let g = plane.graph();
        let demands: Vec<Demand> =
            plane.demands(&g, seed, load).into_iter().filter(|d| d.mesh == Mesh::Gold).collect();
        let one = TeSettings { classes: vec![ClassSettings::new(Mesh::Gold, percent)], ..TeSettings::default() };
        let run = |a: &dyn PrimaryAlgorithm| compute_with(&g, &demands, &one, |_| a, &NoBackup).unwrap();
        let hottest = |m: &LspMesh| {
            let c = &m.classes[0];
            let used = c.used.iter().zip(&c.usable).filter(|(u, _)| **u > 0);
            #[allow(clippy::cast_precision_loss)]
            used.map(|(u, all)| *u as f64 / (*all).max(1) as f64).fold(0.0, f64::max)
        };
        let before = hottest(&run(&Cspf::default()));
        let after = hottest(&run(&Hprr { cool, ..Hprr::default() }));
        prop_assert!(after <= before * (1.0 + 1e-9), "{before} {after}");

        let settled = run(&Hprr { cool: 0.0, epochs: 1000, ..Hprr::default() });
        let c = &settled.classes[0];
        #[allow(clippy::cast_precision_loss)]
        let share = |l: LinkId, more: u64| (c.used[l.ix()] + more) as f64 / c.usable[l.ix()].max(1) as f64;
        for b in settled.bundles.iter().filter(|b| b.lsp_bps > 0) {
            for &lsp in &b.lsps {
                let own = settled.primary(lsp);
                let top = own.iter().map(|l| share(*l, 0)).fold(0.0, f64::max);
                let better = |l: LinkId| share(l, if own.contains(&l) { 0 } else { b.lsp_bps }) < top * (1.0 - 1e-9);
                prop_assert!(own.is_empty() || !connected(&g, b.src, b.dst, better));
            }
        }
    }
}

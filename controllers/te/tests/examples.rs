//! Worked examples: the paper's 300 G link, spilling, fairness, drains, backups around a shared trench.
#![allow(clippy::unwrap_used)]

mod common;

use common::{G, Plane};
use te::{
    BackupChoice, ClassSettings, Demand, Drain, Graph, LspMesh, Mesh, PlaneSettings, PrimaryChoice, TeError,
    TeSettings, compute,
};

fn demand(g: &Graph, src: &str, dst: &str, mesh: Mesh, bps: u64) -> Demand {
    Demand { src: g.find_node(src).unwrap(), dst: g.find_node(dst).unwrap(), mesh, bps }
}

fn settings(classes: &[(Mesh, u8)]) -> TeSettings {
    let class = |&(mesh, percent)| ClassSettings::new(mesh, percent);
    TeSettings { classes: classes.iter().map(class).collect(), ..TeSettings::default() }
}

/// Middle nodes of every LSP's primary (or backup) of a bundle.
fn middles(g: &Graph, mesh: &LspMesh, src: &str, backup: bool) -> Vec<String> {
    let b = mesh.bundles.iter().find(|b| g.name(b.src) == src).unwrap();
    let path = |&l| if backup { mesh.backup(l) } else { mesh.primary(l) };
    let middle = |l| {
        let p: &[te::LinkId] = path(l);
        p[..p.len().saturating_sub(1)].iter().map(|&x| g.name(g.to(x))).collect::<Vec<_>>().join(",")
    };
    b.lsps.iter().map(middle).collect()
}

fn used_on(g: &Graph, mesh: &LspMesh, class: usize, from: &str, to: &str) -> (u64, u64) {
    let l = g.links().find(|&l| g.name(g.from(l)) == from && g.name(g.to(l)) == to).unwrap();
    (mesh.classes[class].used[l.ix()], mesh.classes[class].usable[l.ix()])
}

/// Two DCs joined by a 300 G link of 10 ms and a long way round over m.
fn two_ways() -> Plane {
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b", "m"]);
    p.connect("a", "b", 10_000, 300 * G, &[]);
    p.connect("a", "m", 20_000, 300 * G, &[]);
    p.connect("m", "b", 20_000, 300 * G, &[]);
    p
}

#[test]
fn a_300g_link_at_50_percent_gives_gold_150g() {
    let g = two_ways().graph();
    let demands = [demand(&g, "a", "b", Mesh::Gold, 240 * G), demand(&g, "a", "b", Mesh::Silver, 10 * G)];
    let mesh = compute(&g, &demands, &settings(&[(Mesh::Gold, 50), (Mesh::Silver, 80)])).unwrap();
    // LSPs of 15 G: ten fill the short way exactly, six spill
    assert_eq!(used_on(&g, &mesh, 0, "a", "b"), (150 * G, 150 * G));
    let ways = middles(&g, &mesh, "a", false);
    assert_eq!(ways[..10], vec![""; 10]);
    assert_eq!(ways[10..], vec!["m"; 6]);
    assert_eq!(used_on(&g, &mesh, 1, "a", "b").1, 120 * G);
    assert_eq!(mesh.fallbacks(), 0);
}

#[test]
fn silver_may_use_80_percent_of_what_100g_of_gold_left() {
    let g = two_ways().graph();
    let demands = [demand(&g, "a", "b", Mesh::Gold, 100 * G), demand(&g, "a", "b", Mesh::Silver, 0)];
    let mesh = compute(&g, &demands, &settings(&[(Mesh::Gold, 50), (Mesh::Silver, 80)])).unwrap();
    assert_eq!(used_on(&g, &mesh, 0, "a", "b"), (100 * G, 150 * G));
    assert_eq!(used_on(&g, &mesh, 1, "a", "b"), (0, 160 * G));
    assert_eq!(mesh.classes[1].placed, 16, "a demand of 0 has its LSPs too");
}

#[test]
fn what_fits_nowhere_takes_the_shortest_path_and_is_counted() {
    let g = two_ways().graph();
    let mesh =
        compute(&g, &[demand(&g, "a", "b", Mesh::Gold, 400 * G)], &settings(&[(Mesh::Gold, 50)])).unwrap();
    // 25 G each: six on either way, four over the limit on the short one
    assert_eq!(mesh.classes[0].over_limit, 4);
    assert_eq!(middles(&g, &mesh, "a", false)[12..], ["", "", "", ""]);
    assert_eq!(used_on(&g, &mesh, 0, "a", "b").0, 250 * G);
}

/// E3: two pairs with equal demands compete for one link.
#[test]
fn competing_pairs_share_the_short_way_evenly() {
    for capacity in 1..30 {
        let mut p = Plane::empty();
        p.add_nodes(&["a", "b", "m", "x", "y"]);
        p.connect("m", "y", 10, capacity * G, &[]);
        p.connect("m", "x", 50, 1000 * G, &[]);
        p.connect("x", "y", 50, 1000 * G, &[]);
        p.connect("a", "m", 10, 1000 * G, &[]);
        p.connect("b", "m", 10, 1000 * G, &[]);
        let g = p.graph();
        let both = [demand(&g, "a", "y", Mesh::Gold, 16 * G), demand(&g, "b", "y", Mesh::Gold, 16 * G)];
        let mesh = compute(&g, &both, &settings(&[(Mesh::Gold, 100)])).unwrap();
        let short = |src| middles(&g, &mesh, src, false).iter().filter(|m| *m == "m").count();
        assert!(short("a").abs_diff(short("b")) <= 1, "capacity {capacity}");
        assert_eq!(short("a") + short("b"), usize::try_from(capacity).unwrap());
    }
}

#[test]
fn drained_links_are_avoided_softly_or_entirely() {
    let drained = |drain| {
        let mut p = two_ways();
        // one direction is enough for a hard drain of the link
        p.links.iter_mut().find(|l| l.from == "b" && l.to == "a").unwrap().drain = drain;
        p.links.iter_mut().find(|l| l.from == "a" && l.to == "b").unwrap().drain =
            if drain == Drain::Hard { Drain::None } else { drain };
        p.graph()
    };
    for (drain, load, ways) in [
        (Drain::None, 16 * G, vec![""; 16]),
        (Drain::Soft(1_000_000), 16 * G, vec!["m"; 16]),
        (Drain::Hard, 16 * G, vec!["m"; 16]),
        // with the long way full, the soft-drained link is still there; the hard-drained is not
        (Drain::Soft(1_000_000), 320 * G, [vec!["m"; 15], vec![""; 1]].concat()),
        (Drain::Hard, 320 * G, vec!["m"; 16]),
    ] {
        let g = drained(drain);
        let mesh =
            compute(&g, &[demand(&g, "a", "b", Mesh::Gold, load)], &settings(&[(Mesh::Gold, 100)])).unwrap();
        assert_eq!(middles(&g, &mesh, "a", false), ways, "{drain:?} {load}");
    }
}

/// Whatever the algorithm: nothing on a hard-drained link, nothing on a softly drained one that can go elsewhere, and
/// what only a softly drained link connects has its paths.
#[test]
fn every_algorithm_respects_drains() {
    use PrimaryChoice::{Cspf, Hprr, KspMcf, Mcf};
    for algorithm in [Cspf, Hprr, KspMcf(8), Mcf] {
        for drain in [Drain::Soft(1_000_000), Drain::Hard] {
            let mut p = two_ways();
            p.add_nodes(&["z"]);
            p.connect("a", "z", 1_000, 300 * G, &[]);
            for l in &mut p.links {
                let ends = (l.from.as_str(), l.to.as_str());
                if ["a", "z"].contains(&ends.0) && ["b", "a", "z"].contains(&ends.1) {
                    l.drain = drain;
                }
            }
            let g = p.graph();
            let class = ClassSettings { mesh: Mesh::Gold, reserved_percent: 100, algorithm };
            let s = TeSettings { classes: vec![class], ..TeSettings::default() };
            let d = [demand(&g, "a", "b", Mesh::Gold, 160 * G), demand(&g, "z", "a", Mesh::Gold, 16 * G)];
            let mesh = compute(&g, &d, &s).unwrap();
            assert_eq!(middles(&g, &mesh, "a", false), vec!["m"; 16], "{algorithm} {drain:?}");
            let lonely = mesh.bundles.iter().find(|b| g.name(b.src) == "z").unwrap();
            let connected = drain != Drain::Hard;
            assert!(lonely.lsps.iter().all(|l| l.primary.is_some() == connected), "{algorithm} {drain:?}");
        }
    }
}

/// The second shortest way lies in the same trench as the shortest: the backup takes the third.
#[test]
fn a_backup_leaves_the_trench_of_its_primary() {
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b", "c", "d"]);
    p.connect("a", "b", 10_000, 400 * G, &["trench"]);
    p.connect("a", "c", 6_000, 400 * G, &["trench"]);
    p.connect("c", "b", 6_000, 400 * G, &[]);
    let trapped = p.graph();
    p.connect("a", "d", 40_000, 400 * G, &[]);
    p.connect("d", "b", 40_000, 400 * G, &[]);
    let free = p.graph();
    for (g, way) in [(free, "d"), (trapped, "c")] {
        let mesh =
            compute(&g, &[demand(&g, "a", "b", Mesh::Gold, 16 * G)], &settings(&[(Mesh::Gold, 80)])).unwrap();
        assert_eq!(middles(&g, &mesh, "a", false), vec![""; 16]);
        assert_eq!(middles(&g, &mesh, "a", true), vec![way; 16]);
    }
}

/// RBA spreads backups by what they would add up to at the failure, instead of all on the next shortest way.
#[test]
fn backups_of_a_full_link_spread_over_two_ways() {
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b", "c", "d"]);
    p.connect("a", "b", 10_000, 400 * G, &[]);
    for via in ["c", "d"] {
        p.connect("a", via, 10_000, 200 * G, &[]);
        p.connect(via, "b", 10_000, 200 * G, &[]);
    }
    let g = p.graph();
    let mesh =
        compute(&g, &[demand(&g, "a", "b", Mesh::Gold, 320 * G)], &settings(&[(Mesh::Gold, 100)])).unwrap();
    let ways = middles(&g, &mesh, "a", true);
    assert_eq!(ways.iter().filter(|w| *w == "c").count(), 8);
    assert_eq!(ways.iter().filter(|w| *w == "d").count(), 8);
    assert_eq!(mesh.classes[0].protected, 16);
}

#[test]
fn parallel_links_are_separate_links() {
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b"]);
    p.connect("a", "b", 10_000, 400 * G, &[]);
    p.connect("a", "b", 10_000, 400 * G, &[]);
    let g = p.graph();
    assert_eq!((g.link_count(), g.physical_count()), (4, 2));
    let mesh =
        compute(&g, &[demand(&g, "a", "b", Mesh::Gold, 16 * G)], &settings(&[(Mesh::Gold, 80)])).unwrap();
    let b = &mesh.bundles[0];
    assert_eq!(g.interface(mesh.primary(b.lsps[0])[0]), "to-b");
    assert_eq!(g.interface(mesh.backup(b.lsps[0])[0]), "to-b.2");
}

#[test]
fn wrong_input_is_refused_with_words() {
    let g = two_ways().graph();
    let none = settings(&[(Mesh::Gold, 0)]);
    let e = compute(&g, &[], &none).unwrap_err();
    assert_eq!(
        e.to_string(),
        "setting reserved_percent of gold is 0; list each mesh once, with a reserved percentage of 1 to 100 and at least one LSP"
    );
    let twice = settings(&[(Mesh::Gold, 10), (Mesh::Gold, 10)]);
    assert!(matches!(compute(&g, &[], &twice), Err(TeError::Settings(_))));
    let own = [demand(&g, "a", "a", Mesh::Gold, 1)];
    assert!(matches!(compute(&g, &own, &settings(&[(Mesh::Gold, 50)])), Err(TeError::Demand { .. })));
    let mut p = two_ways();
    p.add_nodes(&["a"]);
    let mut b = te::GraphBuilder::new();
    for n in p.nodes {
        b.node(n);
    }
    assert_eq!(
        b.build().unwrap_err().to_string(),
        "node \"a\" is listed twice; node names must be unique in a plane"
    );
}

/// HPRR, step by step: CSPF fills the short way to its limit first; HPRR evens the two ways out.
#[test]
fn hprr_evens_out_what_cspf_fills_up() {
    let g = two_ways().graph();
    let d = [demand(&g, "a", "b", Mesh::Bronze, 240 * G)];
    let with = |algorithm| {
        let class = ClassSettings { mesh: Mesh::Bronze, reserved_percent: 80, algorithm };
        compute(&g, &d, &TeSettings { classes: vec![class], ..TeSettings::default() }).unwrap()
    };
    // LSPs of 15 G, 240 G usable on either way: all sixteen fit on the short one
    assert_eq!(used_on(&g, &with(PrimaryChoice::Cspf), 0, "a", "b"), (240 * G, 240 * G));
    // half and half would be 0.5 each; a move must end below the utilisation it starts from
    assert_eq!(used_on(&g, &with(PrimaryChoice::Hprr), 0, "a", "b").0, 120 * G);
}

/// FIR shares what is set aside already, however long the way; RBA goes by latency while there is room.
#[test]
fn fir_goes_where_bandwidth_is_set_aside() {
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b", "c", "d", "e", "f", "m", "n"]);
    p.connect("a", "b", 1_000, 400 * G, &[]);
    p.connect("c", "d", 1_000, 400 * G, &[]);
    // a's only way round, over m-n
    p.connect("a", "m", 10_000, 400 * G, &[]);
    p.connect("m", "n", 90_000, 400 * G, &[]);
    p.connect("n", "b", 10_000, 400 * G, &[]);
    // c's: over m-n, which is long, or over e-f, which is short and wins ties
    for (x, y) in [("c", "m"), ("n", "d"), ("c", "e"), ("e", "f"), ("f", "d")] {
        p.connect(x, y, 10_000, 400 * G, &[]);
    }
    let g = p.graph();
    let demands = [demand(&g, "a", "b", Mesh::Gold, 16 * G), demand(&g, "c", "d", Mesh::Gold, 16 * G)];
    let ways = |backup| {
        let s = TeSettings { backup, ..settings(&[(Mesh::Gold, 80)]) };
        middles(&g, &compute(&g, &demands, &s).unwrap(), "c", true)
    };
    // a-b and c-d do not fail together, so m-n need not set aside anything more: FIR saves a third
    assert_eq!(ways(BackupChoice::Fir), vec!["m,n"; 16]);
    let long = ways(BackupChoice::Rba).iter().filter(|w| *w == "m,n").count();
    assert!(long <= 2, "{long} of RBA's backups take the long way");
}

/// Two primaries in one duct over different links: RBA sees two failures, SRLG-RBA one, and keeps their backups apart.
#[test]
fn srlg_rba_counts_a_group_as_one_failure() {
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b", "c", "d", "m", "n", "y", "z"]);
    p.connect("a", "b", 1_000, 400 * G, &["duct"]);
    p.connect("c", "d", 1_000, 400 * G, &["duct"]);
    // either pair's short way round shares m-n, which holds one of them only
    for x in ["a", "c"] {
        p.connect(x, "m", 10_000, 400 * G, &[]);
    }
    p.connect("m", "n", 10_000, 100 * G, &[]);
    for x in ["b", "d"] {
        p.connect("n", x, 10_000, 400 * G, &[]);
    }
    // and a longer way over y-z
    for x in ["a", "c"] {
        p.connect(x, "y", 20_000, 400 * G, &[]);
    }
    p.connect("y", "z", 20_000, 100 * G, &[]);
    for x in ["b", "d"] {
        p.connect("z", x, 20_000, 400 * G, &[]);
    }
    let g = p.graph();
    let demands = [demand(&g, "a", "b", Mesh::Gold, 96 * G), demand(&g, "c", "d", Mesh::Gold, 96 * G)];
    let on = |backup: BackupChoice, src: &str| {
        let s = TeSettings { backup, ..settings(&[(Mesh::Gold, 100)]) };
        let ways = middles(&g, &compute(&g, &demands, &s).unwrap(), src, true);
        ways.iter().filter(|w| w.contains("m,n")).count()
    };
    let deficit = |backup: BackupChoice| {
        let s = TeSettings { backup, ..settings(&[(Mesh::Gold, 100)]) };
        let d = te::report::deficits(&g, &compute(&g, &demands, &s).unwrap());
        d.worst(Mesh::Gold, te::report::FailureKind::Srlg).unwrap().1
    };
    // RBA sends equal numbers of both over m-n: no single link makes them meet
    assert_eq!(on(BackupChoice::Rba, "a"), on(BackupChoice::Rba, "c"));
    assert!(on(BackupChoice::SrlgRba, "a") + on(BackupChoice::SrlgRba, "c") <= 16);
    assert!(deficit(BackupChoice::Rba) > 0.1);
    assert!(deficit(BackupChoice::SrlgRba) < 1e-9);
}

/// Deficits by hand: a cut that halves what fits, an unprotected pair, strict priority.
#[test]
fn deficits_by_hand() {
    use te::report::{FailureKind, deficits};
    let mut p = Plane::empty();
    p.add_nodes(&["a", "b", "m", "z"]);
    p.connect("a", "b", 10_000, 300 * G, &["site"]);
    p.connect("a", "m", 20_000, 100 * G, &["site"]);
    p.connect("m", "b", 20_000, 100 * G, &[]);
    p.connect("b", "z", 10_000, 300 * G, &[]);
    let g = p.graph();
    let demands = [
        demand(&g, "a", "b", Mesh::Gold, 80 * G),
        demand(&g, "a", "b", Mesh::Silver, 80 * G),
        demand(&g, "b", "z", Mesh::Silver, 80 * G),
    ];
    let mesh = compute(&g, &demands, &settings(&[(Mesh::Gold, 100), (Mesh::Silver, 100)])).unwrap();
    let d = deficits(&g, &mesh);
    assert_eq!(d.intact, [0.0, 0.0]);
    let at = |name: &str| d.failures.iter().find(|f| f.name.starts_with(name)).unwrap().deficit.clone();
    // a-b cut: 80 G of gold take the 100 G way round and leave 20 G for silver's 80 G; b-z carries the other 80 G
    let cut = at("a--b");
    assert!(cut[0].abs() < 1e-9 && (cut[1] - 60.0 / 160.0).abs() < 1e-9, "{cut:?}");
    // b-z has no way round
    assert!((at("b--z")[1] - 0.5).abs() < 1e-9);
    assert_eq!(at("a--m"), [0.0, 0.0]);
    // both ways out of a at once
    assert_eq!(at("site"), [1.0, 0.5]);
    assert_eq!(d.worst(Mesh::Silver, FailureKind::Link).unwrap().0.name, "b--z to-z");
}

#[test]
fn planes_may_differ() {
    let text = r#"{
        "all": {"classes": [{"mesh": "gold", "reserved_percent": 50},
                            {"mesh": "bronze", "reserved_percent": 80, "algorithm": "hprr"}]},
        "planes": {"2": {"algorithm": {"bronze": "ksp-mcf:64"}, "backup": "srlg-rba"}}
    }"#;
    let planes: PlaneSettings = serde_json::from_str(text).unwrap();
    let (one, two) = (planes.of(1).unwrap(), planes.of(2).unwrap());
    assert_eq!((one.classes[1].algorithm, one.backup), (PrimaryChoice::Hprr, BackupChoice::Rba));
    assert_eq!((two.classes[1].algorithm, two.backup), (PrimaryChoice::KspMcf(64), BackupChoice::SrlgRba));
    assert_eq!((one.classes[0].algorithm, one.lsps), (PrimaryChoice::Cspf, 16));
    let again: PlaneSettings = serde_json::from_str(&serde_json::to_string(&planes).unwrap()).unwrap();
    assert_eq!(again, planes);

    let wrong = |text: &str| serde_json::from_str::<PlaneSettings>(text).unwrap_err().to_string();
    assert!(
        wrong(r#"{"all": {"backup": "rab"}}"#)
            .starts_with("no backup algorithm is called \"rab\"; known: rba, srlg-rba, fir and none")
    );
    assert!(
        wrong(r#"{"planes": {"1": {"algorithm": {"gold": "ksp-mcf:0"}}}}"#).contains("K from 1 to 65535")
    );
    assert!(wrong(r#"{"plane": {}}"#).contains("unknown field `plane`"));
    let silver = r#"{"all": {"classes": []}, "planes": {"3": {"reserved_percent": {"silver": 10}}}}"#;
    let e = serde_json::from_str::<PlaneSettings>(silver).unwrap().of(3).unwrap_err();
    assert!(e.to_string().starts_with("setting plane 3 names silver, which is not in classes"), "{e}");
}

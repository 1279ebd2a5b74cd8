//! What the ready-made labs promise, and that resolving is stable: snapshot, edits, schema.

#![allow(clippy::unwrap_used, clippy::format_push_string)] // tests, and their helpers

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use topologies::lab::{Lab, LinkKind, Lock, ProgramKind};
use topologies::{builtin, builtins, labs};

fn lab(name: &str) -> Lab {
    let (lab, warnings) = labs::load(name).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(warnings.is_empty(), "{warnings:?}");
    lab
}

/// A core link of one plane as the tests' own path search sees it.
struct Edge {
    name: String,
    ends: [String; 2],
    rtt: u64,
    srlgs: BTreeSet<String>,
}

fn edges(lab: &Lab, plane: u8) -> Vec<Edge> {
    let site = |node: &str| lab.node(node).unwrap().site.clone();
    lab.core_links(plane)
        .map(|link| Edge {
            name: link.name.clone(),
            ends: [site(&link.a.node), site(&link.b.node)],
            rtt: link.rtt.0,
            srlgs: link.srlgs.iter().cloned().collect(),
        })
        .collect()
}

/// Total RTT and links of the quickest path over the allowed edges; asserts that no other path is as quick.
fn quickest<'a>(
    edges: &'a [Edge],
    from: &str,
    to: &str,
    allowed: impl Fn(&Edge) -> bool,
) -> Option<(u64, Vec<&'a Edge>)> {
    let mut best: BTreeMap<&str, (u64, Vec<&Edge>, bool)> = BTreeMap::new();
    let mut queue = BTreeSet::from([(0, from.to_owned())]);
    let start = edges.iter().flat_map(|e| &e.ends).find(|end| *end == from)?;
    best.insert(start, (0, Vec::new(), false));
    while let Some((cost, at)) = queue.pop_first() {
        if best.get(at.as_str()).is_some_and(|(known, ..)| *known < cost) {
            continue;
        }
        let (_, path, tied) = best.get(at.as_str())?.clone();
        for edge in edges.iter().filter(|edge| allowed(edge)) {
            let next = match &edge.ends {
                [a, b] if *a == at => b,
                [a, b] if *b == at => a,
                _ => continue,
            };
            let total = cost + edge.rtt;
            let known = best.get(next.as_str()).map(|(cost, ..)| *cost);
            if known.is_none_or(|known| total < known) {
                let path = path.iter().copied().chain([edge]).collect();
                best.insert(next, (total, path, tied));
                queue.insert((total, next.clone()));
            } else if known == Some(total)
                && let Some(entry) = best.get_mut(next.as_str())
                && entry.1.last().is_none_or(|last| last.name != edge.name)
            {
                entry.2 = true;
            }
        }
    }
    let (cost, path, tied) = best.remove(to)?;
    assert!(!tied, "two quickest paths from {from} to {to}");
    Some((cost, path))
}

fn length(lab: &Lab, plane: u8, from: &str, to: &str) -> (u64, usize) {
    let edges = edges(lab, plane);
    let (cost, path) = quickest(&edges, from, to, |_| true).unwrap();
    (cost / 1000, path.len())
}

fn dc_pairs(lab: &Lab) -> Vec<(String, String)> {
    let dcs: Vec<String> = lab.dcs().map(|site| site.name.clone()).collect();
    let others = |from: &String| dcs.iter().filter(move |to| *to > from).cloned().collect::<Vec<_>>();
    dcs.iter().flat_map(|from| others(from).into_iter().map(move |to| (from.clone(), to))).collect()
}

#[test]
fn quickest_paths_have_the_promised_lengths() {
    let small = lab("ebb-small");
    for plane in [1, 2] {
        assert_eq!(length(&small, plane, "prn", "lla"), (50, 5));
    }
    let large = lab("ebb-6x4");
    for plane in 1..=4 {
        assert_eq!(length(&large, plane, "prn", "lla"), (165, 8));
        assert_eq!(length(&large, plane, "ftw", "lla").1, 5);
    }
}

#[test]
fn every_pair_has_a_unique_quickest_path_and_an_srlg_disjoint_backup() {
    for name in ["ebb-small", "ebb-6x4"] {
        let lab = lab(name);
        for plane in lab.planes.iter().map(|plane| plane.id) {
            let edges = edges(&lab, plane);
            for (from, to) in dc_pairs(&lab) {
                let (_, primary) = quickest(&edges, &from, &to, |_| true).unwrap();
                let used: BTreeSet<&str> = primary.iter().map(|edge| edge.name.as_str()).collect();
                let risks: BTreeSet<&String> = primary.iter().flat_map(|edge| &edge.srlgs).collect();
                let disjoint = |edge: &Edge| {
                    !used.contains(edge.name.as_str())
                        && edge.srlgs.iter().all(|group| !risks.contains(group))
                };
                let backup = reachable(&edges, &from, disjoint);
                assert!(
                    backup.contains(to.as_str()),
                    "{name} plane {plane}: no disjoint backup {from} to {to}"
                );
            }
        }
    }
}

/// Sites reachable over the allowed edges.
fn reachable<'a>(edges: &'a [Edge], from: &str, allowed: impl Fn(&Edge) -> bool) -> BTreeSet<&'a str> {
    let mut reached: BTreeSet<&str> =
        edges.iter().flat_map(|e| &e.ends).map(String::as_str).filter(|e| *e == from).collect();
    for _ in 0..edges.len() {
        for edge in edges.iter().filter(|edge| allowed(edge)) {
            if edge.ends.iter().any(|end| reached.contains(end.as_str())) {
                reached.extend(edge.ends.iter().map(String::as_str));
            }
        }
    }
    reached
}

#[test]
fn no_shared_risk_group_cuts_a_plane_in_two() {
    for (name, at_least) in [("ebb-small", 3), ("ebb-6x4", 3)] {
        let lab = lab(name);
        let per_plane = lab.planes.len();
        let large = lab.srlgs().values().filter(|links| links.len() > per_plane).count();
        assert!(large >= at_least, "{name} has {large} groups of more than one link a plane");
        for (group, _) in lab.srlgs() {
            for plane in lab.planes.iter().map(|plane| plane.id) {
                let edges = edges(&lab, plane);
                let left = reachable(&edges, &lab.sites[0].name, |edge| !edge.srlgs.contains(group));
                assert_eq!(left.len(), lab.sites.len(), "{name}: {group} cuts plane {plane}");
            }
        }
    }
}

#[test]
fn builtins_are_what_the_folder_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("labs");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, builtins().map(|(name, _)| name).collect::<Vec<_>>());
    assert!(builtin(labs::DEFAULT).is_some() && builtin("nope").is_none());
    for name in names {
        assert_eq!(lab(&name).name, name);
        let (from_file, _) = Lab::from_file(&folder.join(format!("{name}.yaml"))).unwrap();
        assert_eq!(from_file, lab(&name));
    }
}

#[test]
fn resolved_ebb_small_is_as_reviewed() {
    insta::assert_json_snapshot!("ebb-small", lab("ebb-small"));
}

#[test]
fn resolved_labs_survive_json() {
    for (name, _) in builtins() {
        let lab = lab(name);
        let json = serde_json::to_string(&lab).unwrap();
        assert_eq!(serde_json::from_str::<Lab>(&json).unwrap(), lab);
    }
}

/// Interface indexes by link and end.
fn indexes(lab: &Lab) -> BTreeMap<(String, String), u32> {
    let of = |node: &topologies::lab::Node| {
        node.interfaces.iter().map(|i| ((node.name.clone(), i.name.clone()), i.ifindex)).collect::<Vec<_>>()
    };
    lab.nodes.iter().flat_map(of).collect()
}

#[test]
fn an_edit_of_one_link_leaves_all_others_alone() {
    let text = builtin("ebb-small").unwrap();
    let line = text.lines().find(|line| line.contains("[chi, frc]")).unwrap();
    let (edited, _) = Lab::from_str(&text.replace(&format!("{line}\n"), ""), "x.yaml").unwrap();
    let (before, after) = (indexes(&lab("ebb-small")), indexes(&edited));
    assert_eq!(before.len(), after.len() + 4);
    assert!(after.iter().all(|(end, index)| before.get(end) == Some(index)));
}

#[test]
fn order_in_the_file_does_not_matter() {
    let text = builtin("ebb-small").unwrap();
    let site = text.lines().find(|line| line.starts_with("  prn:")).unwrap();
    let link = text.lines().find(|line| line.contains("[atn, chi]")).unwrap();
    let moved = text
        .replace(&format!("{site}\n"), "")
        .replace("\n# Each link", &format!("{site}\n\n# Each link"))
        .replace(&format!("{link}\n"), "")
        .replace("\nte:", &format!("{}\n\nte:", link.replace("[atn, chi]", "[chi, atn]")));
    assert_ne!(moved, text);
    assert_eq!(Lab::from_str(&moved, "x.yaml").unwrap().0, lab("ebb-small"));
}

#[test]
fn overrides_change_one_plane() {
    let large = lab("ebb-6x4");
    assert_eq!(large.planes[3].controller_hosts, ["h1.cln"]);
    assert_eq!(large.plane(1).unwrap().controller_hosts, ["h1.atn"]);
    assert!(large.link("eb04.ams--eb04.nyc").is_none());
    assert_eq!(large.link("eb01.cln--eb01.nyc").unwrap().capacity.to_string(), "400G");
    assert_eq!(large.link("eb04.cln--eb04.nyc").unwrap().capacity.to_string(), "200G");
    let second = large.interface("eb02.frc", "to-nyc.2").unwrap();
    assert_eq!((second.static_label, second.link.as_str()), (Some(2010), "eb02.frc--eb02.nyc.2"));
    assert_eq!(large.core_links(4).count() + 1, large.core_links(1).count());
}

#[test]
fn schema_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab.schema.json");
    let now = format!("{:#}\n", topologies::schema());
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::write(&path, &now).unwrap();
    }
    let then = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        now == then,
        "lab.schema.json is out of date: run the tests with UPDATE_GOLDEN=1 and review the change"
    );
}

#[test]
fn schema_requires_what_the_reader_requires() {
    let schema = topologies::schema();
    let required = |at: &str| {
        let list = schema.pointer(at).and_then(|list| list.as_array()).unwrap_or_else(|| panic!("{at}"));
        list.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(required("/required"), ["name", "planes", "sites", "links"]);
    assert_eq!(schema["additionalProperties"], false);
    // Leaving out any required field of a link is an error that names it.
    for field in required("/$defs/LinkEntry/required") {
        let fields = [("between", "[prn, atn]"), ("capacity", "1G"), ("rtt", "1ms")];
        let link: Vec<String> = fields
            .iter()
            .filter(|(name, _)| *name != field)
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let text = format!(
            "name: x\nplanes: 1\nsites: {{prn: {{kind: dc}}, atn: {{kind: dc}}}}\nlinks: [{{{}}}]\n",
            link.join(", ")
        );
        let errors = Lab::from_str(&text, "x.yaml").unwrap_err();
        assert!(errors.to_string().contains(&format!("field `{field}` is missing")), "{errors}");
    }
}

#[test]
fn names_of_fifteen_characters_work() {
    let text = "name: x\nplanes: 1\nsites: {wellington: {id: 1, kind: dc, hosts: 99}, prn: {id: 254, kind: dc}}\n\
                links: [{between: [wellington, prn], parallel: 9, capacity: 400G, rtt: 1ms}]\n";
    let (lab, _) = Lab::from_str(text, "x.yaml").unwrap();
    let names = lab.nodes.iter().flat_map(|n| n.interfaces.iter().map(|i| &i.name).chain([&n.name]));
    assert_eq!(names.map(String::len).max(), Some(15));
    assert!(lab.node("eb01.wellington").is_some() && lab.node("h99.wellington").is_some());
    assert_eq!(lab.interface("eb01.wellington", "to-prn.9").unwrap().static_label, Some(9254));
    assert_eq!(lab.node("eb01.prn").unwrap().platform_labels, 524_288 + (255 << 11));
    assert_eq!(lab.links.iter().filter(|link| link.kind == LinkKind::Access).count(), 100);
}

#[test]
fn forty_thousand_links_are_read() {
    // 254 sites in a full mesh are 32,131 links; a few parallels make the rest.
    let mut text = "name: large\nplanes: 1\nscale: {bandwidth: 1/1000}\nsites:\n".to_owned();
    for site in 1..=254 {
        text.push_str(&format!("  s{site}: {{id: {site}, kind: dc}}\n"));
    }
    text.push_str("links:\n");
    for a in 1..=254 {
        for b in a + 1..=254 {
            text.push_str(&format!("  - {{between: [s{a}, s{b}], capacity: 400G, rtt: 10ms}}\n"));
            if (a + b) % 4 == 0 {
                text.push_str(&format!(
                    "  - {{between: [s{a}, s{b}], parallel: 2, capacity: 400G, rtt: 11ms}}\n"
                ));
            }
        }
    }
    let (lab, _) = Lab::from_str(&text, "large.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    assert!(lab.core_links(1).count() > 40_000);
    assert_eq!(indexes(&lab).values().collect::<BTreeSet<_>>().len(), indexes(&lab).len());
}

#[test]
fn bfd_is_off_unless_the_file_has_it() {
    let text = builtin("ebb-small").unwrap();
    let with = |bfd: &str| Lab::from_str(&format!("{text}\n{bfd}\n"), "x.yaml").unwrap().0.bfd;
    assert_eq!(with(""), None);
    let settings = |ms, multiplier| {
        Some(topologies::lab::BfdSettings { interval: std::time::Duration::from_millis(ms), multiplier })
    };
    assert_eq!(with("bfd: {}"), settings(20, 3));
    assert_eq!(with("bfd: {interval: 50ms, multiplier: 5}"), settings(50, 5));
}

#[test]
fn replicas_go_from_one_data_centre_to_the_next() {
    let text =
        builtin("ebb-small").unwrap().replace("frc: {id: 3, kind: dc}", "frc: {id: 3, kind: dc, hosts: 2}");
    let with = |more: &str| Lab::from_str(&format!("{text}\n{more}\n"), "x.yaml").unwrap().0;
    let lab = with("controllers: {replicas: 6, lock: etcd}");
    let hosts = |lab: &Lab, plane| lab.plane(plane).unwrap().controller_hosts.join(" ");
    assert_eq!(hosts(&lab, 1), "h1.atn h1.frc h1.lla h1.prn h1.atn h2.frc");
    assert_eq!(hosts(&lab, 2), "h1.frc h1.lla h1.prn h1.atn h2.frc h1.lla");
    let members = ["h1.atn", "h1.frc", "h1.lla"].map(str::to_owned).to_vec();
    assert_eq!(lab.lock, Lock::Etcd { members });
    let programs = |lab: &Lab, host| lab.node(host).unwrap().programs.clone();
    assert_eq!(programs(&lab, "h1.lla"), [ProgramKind::EbbController, ProgramKind::Etcd]);
    assert_eq!(programs(&lab, "h1.prn"), [ProgramKind::EbbController]);
    let all = [ProgramKind::EbbController, ProgramKind::Etcd, ProgramKind::NhgTm];
    assert_eq!(programs(&lab, "h1.atn"), all, "the matrix of plane 1 is beside its first controller");
    assert_eq!(lab.controllers_on("h1.atn").collect::<Vec<_>>(), [(1, 1), (1, 5), (2, 4)]);
    // the first host of the plane's own choice, and no service by default
    let lab = with("controllers: {replicas: 2}\noverrides: {1: {controller: h2.frc}}");
    assert_eq!((hosts(&lab, 1), lab.lock), ("h2.frc h1.lla".to_owned(), Lock::Embedded));
}

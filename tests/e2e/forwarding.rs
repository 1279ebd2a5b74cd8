//! What routers and wires show: labels, groups, spread, classes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use router_emu::label::{Class, Mesh, Nexthop, Sid, split};
use tests::capture::{Capture, Seen};
use tests::documents::Status;
use tests::mesh::{self, Bundle, Path};
use tests::model::Model;
use tests::traffic::Load;
use tests::{Lab, kernel, note};

/// Largest stack of the default lab.
const DEPTH: usize = 3;

/// Stack that a path's packets carry when they arrive at each of its routers after the source.
fn stacks(path: &Path, sid: u32, model: &Model) -> anyhow::Result<Vec<Vec<u32>>> {
    let mut arriving = Vec::new();
    for segment in split(&path.labels(model)?, sid, DEPTH) {
        for hop in 0..segment.hops {
            arriving.push(segment.labels[hop.min(segment.labels.len())..].to_vec());
        }
    }
    Ok(arriving)
}

/// The longest primary of a bundle.
fn longest(bundle: &Bundle) -> anyhow::Result<&Path> {
    let primaries = bundle.lsps.iter().map(|l| &l.primary);
    primaries.max_by_key(|p| p.hops.len()).context("the bundle has no LSP")
}

/// All stacks that packets of a bundle may carry on arrival at each router.
fn allowed(bundle: &Bundle, model: &Model) -> anyhow::Result<BTreeMap<String, BTreeSet<Vec<u32>>>> {
    let mut allowed: BTreeMap<String, BTreeSet<Vec<u32>>> = BTreeMap::new();
    for lsp in &bundle.lsps {
        for (hop, stack) in lsp.primary.hops.iter().zip(stacks(&lsp.primary, bundle.sid, model)?) {
            allowed.entry(hop.neighbor.clone()).or_default().insert(stack);
        }
    }
    Ok(allowed)
}

/// Input: gold packets from prn to lla, whose quickest path has five links; a capture in every router of plane 1.
/// Output: on every link exactly the stacks that the controller's paths mean; the SID at the bottom decodes to prn, lla,
/// gold and the version in use; the longest stack has three labels and is seen on the first link.
pub fn f1_labels_on_the_wire(lab: &Lab) -> anyhow::Result<()> {
    let status = lab.status()?;
    let model = Model::new(&status, 1)?;
    let (src, dst) = (model.id("prn")?, model.id("lla")?);
    let placed = mesh::cycle(&lab.cli, 1)?;
    let bundle = placed.bundle(src, dst, Mesh::Gold)?;
    let path = longest(bundle)?;
    note(format!("path: {}", path.routers().join(" ")));
    ensure!(
        path.hops.len() >= 5,
        "the path from prn to lla has {} links, at least 5 wanted",
        path.hops.len()
    );
    let routers: Vec<String> = status
        .nodes
        .iter()
        .filter(|n| n.plane == Some(1) && n.site != "prn")
        .map(|n| n.name.clone())
        .collect();
    let captures = Capture::start_all(&lab.cli, &routers)?;
    let load = Load { from: Some("h1.prn"), to: Some("h1.lla"), classes: "gold", rate: 100, flows: 200 };
    load.send(&lab.cli, 3.0)?;
    let allowed = allowed(bundle, &model)?;
    let mut deepest = 0;
    for capture in captures {
        let node = capture.node.clone();
        let seen = of_pair(&capture.finish()?, src, dst);
        for (kind, packets) in &seen {
            let fine = allowed.get(&node).is_some_and(|stacks| stacks.contains(&kind.labels));
            ensure!(
                fine,
                "{packets} packets arrived at {node} over {} with the stack {:?}; allowed: {:?}",
                kind.interface,
                kind.labels,
                allowed.get(&node)
            );
            if let Some(sid) = kind.sid() {
                let want = bundle.decoded()?;
                ensure!(sid == want, "the SID at {node} is {sid}, not {want}");
            }
            deepest = deepest.max(kind.labels.len());
        }
        if let Some(at) = path.hops.iter().position(|h| h.neighbor == node) {
            ensure!(!seen.is_empty(), "no packet from prn to lla arrived at {node}");
            note(format!("{node}: {:?}", stacks(path, bundle.sid, &model)?[at]));
        }
    }
    ensure!(deepest == DEPTH, "the deepest stack was {deepest}");
    Ok(())
}

/// The packets of one pair of sites.
fn of_pair(seen: &Seen, src: u8, dst: u8) -> Seen {
    let (source, destination) = (format!("2001:db8:{src:x}"), format!("2001:db8:{dst:x}"));
    let of = |kind: &tests::capture::Kind| {
        kind.source == source && kind.destination == destination && kind.interface != "fa"
    };
    seen.iter().filter(|(kind, _)| of(kind)).map(|(kind, n)| (kind.clone(), *n)).collect()
}

/// Input: the label routes of every router, before and after three cycles of both controllers.
/// Output: one static label for each backbone interface, by the rule 1000 * k + far site, and the same afterwards.
pub fn f2_static_labels(lab: &Lab) -> anyhow::Result<()> {
    let status = lab.status()?;
    let look = || -> anyhow::Result<BTreeMap<String, BTreeMap<u32, String>>> {
        let mut all = BTreeMap::new();
        for node in status.nodes.iter().filter(|n| n.role == "router") {
            let mut labels = BTreeMap::new();
            for (label, route) in kernel::label_routes(&lab.cli, &node.name)? {
                if Sid::decode(label).is_none() {
                    let hop =
                        route.hops.first().with_context(|| format!("{label} at {} has no hop", node.name))?;
                    ensure!(hop.0.is_empty(), "{label} at {} pushes {:?}", node.name, hop.0);
                    labels.insert(label, hop.1.clone());
                }
            }
            all.insert(node.name.clone(), labels);
        }
        Ok(all)
    };
    let before = look()?;
    for node in status.nodes.iter().filter(|n| n.role == "router") {
        let want = Model::new(&status, node.plane.unwrap_or(0))?.static_labels(&node.site)?;
        ensure!(before[&node.name] == want, "{} has {:?}, not {want:?}", node.name, before[&node.name]);
    }
    for _ in 0..3 {
        mesh::cycle(&lab.cli, 1)?;
        mesh::cycle(&lab.cli, 2)?;
    }
    ensure!(look()? == before, "static labels changed over three cycles");
    Ok(())
}

/// Input: traffic of all classes between all pairs; captures of everything that arrives at every router.
/// Output: no packet has more than three labels, some have three, and every binding SID names two different sites.
pub fn f3_label_depth(lab: &Lab) -> anyhow::Result<()> {
    let captures = Capture::start_all(&lab.cli, &lab.status()?.of_role("router"))?;
    Load::ALL.send(&lab.cli, 4.0)?;
    let mut by_depth: BTreeMap<usize, u64> = BTreeMap::new();
    for capture in captures {
        let node = capture.node.clone();
        for (kind, packets) in capture.finish()? {
            ensure!(kind.labels.len() <= DEPTH, "{packets} packets with {:?} at {node}", kind.labels);
            if let Some(sid) = kind.sid() {
                ensure!(
                    sid.src != sid.dst && sid.mesh != Mesh::Spare,
                    "{packets} packets with {sid} at {node}"
                );
            }
            *by_depth.entry(kind.labels.len()).or_default() += packets;
        }
    }
    note(format!("packets by number of labels: {by_depth:?}"));
    ensure!(by_depth.get(&DEPTH).is_some_and(|n| *n > 0), "no packet with {DEPTH} labels: {by_depth:?}");
    Ok(())
}

/// Routers of plane 1 that have a route for a bundle's SID, in either version.
fn holders(lab: &Lab, status: &Status, bundle: &Bundle) -> anyhow::Result<BTreeSet<String>> {
    let mut holders = BTreeSet::new();
    for node in status.nodes.iter().filter(|n| n.plane == Some(1)) {
        let sids = kernel::label_routes(&lab.cli, &node.name)?.into_keys().filter_map(Sid::decode);
        let ours = bundle.decoded()?.bundle();
        holders.extend(sids.filter(|sid| sid.bundle() == ours).map(|sid| format!("{}: {sid}", node.name)));
    }
    Ok(holders)
}

/// Routers at which a bundle's paths are cut into segments, those of backups included: they are prepared for a failure. With
/// the SID in use.
fn intermediates(bundle: &Bundle, model: &Model) -> anyhow::Result<BTreeSet<String>> {
    let mut nodes = BTreeSet::new();
    for path in bundle.lsps.iter().flat_map(|lsp| [&lsp.primary, &lsp.backup]) {
        for segment in split(&path.labels(model)?, bundle.sid, DEPTH).iter().skip(1) {
            nodes.insert(format!("{}: {}", path.hops[segment.start].router, bundle.decoded()?));
        }
    }
    Ok(nodes)
}

/// Input: the bundles from prn to lla as plane 1's controller placed them; nexthop objects and label routes of the source
/// and of the intermediate nodes.
/// Output: the kernel's groups are what the paths mean, duplicates included; no other router has the SID, and none the version
/// that is not in use.
pub fn f4_groups_of_a_long_path(lab: &Lab) -> anyhow::Result<()> {
    let status = lab.status()?;
    let model = Model::new(&status, 1)?;
    let (src, dst) = (model.id("prn")?, model.id("lla")?);
    let placed = mesh::cycle(&lab.cli, 1)?;
    let objects = kernel::nexthops(&lab.cli, "eb01.prn")?;
    for mesh in Mesh::ALL {
        let bundle = placed.bundle(src, dst, mesh)?;
        let group = objects
            .get(&Nexthop::Group { dst, mesh }.id())
            .with_context(|| format!("eb01.prn has no group for {mesh}"))?;
        let mut have: Vec<(Vec<u32>, String)> = Vec::new();
        for (id, weight) in &group.group {
            let member = objects.get(id).with_context(|| format!("member {id} is not there"))?;
            let device = member.device.clone().with_context(|| format!("member {id} has no device"))?;
            have.extend((0..*weight).map(|_| (member.labels.clone(), device.clone())));
        }
        let mut want: Vec<(Vec<u32>, String)> = Vec::new();
        // what each intermediate node has to push for this SID
        let mut transit: BTreeMap<String, BTreeSet<(Vec<u32>, String)>> = BTreeMap::new();
        for lsp in &bundle.lsps {
            for segment in split(&lsp.primary.labels(&model)?, bundle.sid, DEPTH) {
                let hop = &lsp.primary.hops[segment.start];
                if segment.start == 0 {
                    want.push((segment.labels, hop.interface.clone()));
                } else {
                    transit
                        .entry(hop.router.clone())
                        .or_default()
                        .insert((segment.labels, hop.interface.clone()));
                }
            }
        }
        have.sort();
        want.sort();
        ensure!(have == want, "group of {mesh} at eb01.prn:\n{have:?}\nnot\n{want:?}");
        ensure!(
            !transit.is_empty(),
            "no intermediate node on the way from prn to lla: {:?}",
            longest(bundle)?.routers()
        );
        for (node, want) in &transit {
            let routes = kernel::label_routes(&lab.cli, node)?;
            let route = routes
                .get(&bundle.sid)
                .with_context(|| format!("{node} has no route for SID {}", bundle.sid))?;
            let have: BTreeSet<_> = route.hops.iter().cloned().collect();
            ensure!(have == *want, "SID {} at {node}: {have:?}, not {want:?}", bundle.sid);
        }
        let holders = holders(lab, &status, bundle)?;
        let intermediate = intermediates(bundle, &model)?;
        ensure!(
            holders == intermediate,
            "routers with a SID of this bundle: {holders:?}; its intermediate nodes: {intermediate:?}"
        );
        note(format!(
            "{mesh}: {} next hops at eb01.prn, intermediate nodes {:?}",
            have.len(),
            transit.keys().collect::<Vec<_>>()
        ));
    }
    Ok(())
}

/// Input: gold packets from prn to lla with 400 source addresses.
/// Output: each of the two planes takes between a third and two thirds of them. (Over the paths inside a plane: see
/// `e3_f5_edit_demands`, where a pair has several.)
pub fn f5_spread_over_planes(lab: &Lab) -> anyhow::Result<()> {
    let entered = || -> anyhow::Result<Vec<u64>> {
        Ok(lab.status()?.planes.iter().map(|p| p.traffic.packets).collect())
    };
    let before = entered()?;
    let load = Load { from: Some("h1.prn"), to: Some("h1.lla"), classes: "gold", rate: 200, flows: 400 };
    let report = load.send(&lab.cli, 4.0)?;
    let by_plane: Vec<u64> = entered()?.iter().zip(&before).map(|(now, before)| now - before).collect();
    note(format!("{} packets, by plane {by_plane:?}", report.sent()));
    for packets in &by_plane {
        let fair = packets * 3 >= report.sent() && packets * 3 <= report.sent() * 2;
        ensure!(fair, "planes took {by_plane:?} of {}: outside a third and two thirds", report.sent());
    }
    Ok(())
}

/// Input: packets of all four classes from prn to lla; a capture at the second router of plane 1's path.
/// Output: bronze, silver and gold each in their own mesh, ICP in gold's, read from the mesh bits of the label.
pub fn f6_class_to_mesh(lab: &Lab) -> anyhow::Result<()> {
    let model = Model::new(&lab.status()?, 1)?;
    let (src, dst) = (model.id("prn")?, model.id("lla")?);
    let placed = mesh::cycle(&lab.cli, 1)?;
    let mut routers = BTreeSet::new();
    for mesh in Mesh::ALL {
        let bundle = placed.bundle(src, dst, mesh)?;
        routers.extend(bundle.lsps.iter().filter_map(|l| Some(l.primary.hops.first()?.neighbor.clone())));
    }
    let routers: Vec<String> = routers.into_iter().collect();
    let captures = Capture::start_all(&lab.cli, &routers)?;
    let load = Load {
        from: Some("h1.prn"),
        to: Some("h1.lla"),
        classes: "icp,gold,silver,bronze",
        rate: 50,
        flows: 200,
    };
    load.send(&lab.cli, 3.0)?;
    let mut meshes: BTreeMap<u8, BTreeSet<&'static str>> = BTreeMap::new();
    for capture in captures {
        for (kind, _) in of_pair(&capture.finish()?, src, dst) {
            if let Some(sid) = kind.sid() {
                meshes.entry(kind.dscp).or_default().insert(sid.mesh.name());
            }
        }
    }
    note(format!("meshes by DSCP: {meshes:?}"));
    for class in Class::ALL {
        let want = BTreeSet::from([class.mesh().name()]);
        ensure!(
            meshes.get(&class.probe_dscp()) == Some(&want),
            "{} (DSCP {}) went by {:?}, not {want:?}",
            class.name(),
            class.probe_dscp(),
            meshes.get(&class.probe_dscp())
        );
    }
    Ok(())
}

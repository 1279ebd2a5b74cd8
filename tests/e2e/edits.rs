//! Edits of the lab file: a second `up` does what the edit needs, and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use router_emu::label::{Mesh, Nexthop, Sid};
use serde::Deserialize;
use tests::documents::{ProgramChange, Up};
use tests::model::Model;
use tests::traffic::{Load, Traffic};
use tests::{Lab, kernel, mesh, note, wait_until};

use crate::configuration::announced;
use crate::engineering::within_shares;

/// The default lab's file with one text exchanged, written beside the lab's state.
pub fn edited(lab: &Lab, from: &str, to: &str) -> anyhow::Result<PathBuf> {
    let text = std::fs::read_to_string(lab.cli.lab_state().join("lab.yaml")).context("lab.yaml")?;
    ensure!(text.matches(from).count() == 1, "{from:?} does not stand in the lab file once");
    let file = lab.cli.state().join("edited.yaml");
    std::fs::write(&file, text.replace(from, to))?;
    Ok(file)
}

/// `up` with a file.
pub fn up(lab: &Lab, file: &str) -> anyhow::Result<Up> {
    let output = lab.cli.run(&["--format", "json", "up", file, "--timeout", "180"])?.expect(0)?;
    Ok(serde_json::from_str(&output)?)
}

/// Input: the gold demand of every pair raised in the file until gold's half of the chain's capacity is scarce; `up`; the
/// same undone; `up`.
/// Output: only the controllers are restarted, nothing in the kernel is touched by `up`, no packet is lost; pairs of equal
/// demand that compete for the short path differ by at most one LSP on it; no link is over gold's share; packets of a pair
/// that now has several paths are spread over them by the number of LSPs on each.
pub fn e3_f5_edit_demands(lab: &Lab) -> anyhow::Result<()> {
    let file = edited(lab, "every_pair: {gold: 10G,", "every_pair: {gold: 120G,")?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let done = up(lab, &file.to_string_lossy())?;
    ensure!(done.kernel_actions == 0, "an edit of demands led to {} kernel actions", done.kernel_actions);
    let restarted: Vec<_> =
        done.program_changes.iter().map(|c| (c.program.as_str(), c.change.as_str())).collect();
    ensure!(
        restarted.len() == 2
            && restarted.iter().all(|(p, c)| p.starts_with("ebb-controller") && *c == "restart"),
        "an edit of demands led to {:?}",
        done.program_changes
    );
    let model = Model::new(&lab.status()?, 1)?;
    let placed = mesh::cycle(&lab.cli, 1)?;
    // four pairs need the link from chi to frc: 60G each in this plane, 200G for gold
    let mut on_short: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (src, dst) in [("prn", "frc"), ("prn", "lla"), ("atn", "frc"), ("atn", "lla")] {
        let bundle = placed.bundle(model.id(src)?, model.id(dst)?, Mesh::Gold)?;
        let through = bundle.lsps.iter().filter(|l| l.primary.links().contains("eb01.chi--eb01.frc")).count();
        on_short.insert((src.to_owned(), dst.to_owned()), through);
    }
    let shares = within_shares(&placed, &model)?;
    note(format!("gold LSPs through chi-frc: {on_short:?}; highest use of a share in per mille: {shares:?}"));
    let (least, most) =
        (on_short.values().min().copied().unwrap_or(0), on_short.values().max().copied().unwrap_or(0));
    ensure!(most - least <= 1, "unfair, LSPs of each pair on the short path: {on_short:?}");
    ensure!(most < 16, "capacity was not scarce: all 16 LSPs of a pair are on the short path");
    for (plane, router) in [(1, "eb01.prn"), (2, "eb02.prn")] {
        spread_over_paths(lab, plane, router, (model.id("prn")?, model.id("lla")?))?;
    }
    let undone = up(lab, "ebb-small")?;
    ensure!(undone.kernel_actions == 0 && undone.program_changes.len() == 2, "{:?}", undone.program_changes);
    mesh::cycle(&lab.cli, 1)?;
    mesh::cycle(&lab.cli, 2)?;
    traffic.stop_lossless("two edits of demands")?;
    Ok(())
}

/// A number for each slot of a bundle.
type BySlot = BTreeMap<u8, u64>;

/// A counter of the helper.
#[derive(Debug, Deserialize)]
struct Counter {
    sid: u32,
    slot: u8,
    packets: u64,
}

/// Gold packets towards `dst` so far, by SID and slot.
fn counters(lab: &Lab, router: &str, dst: u8) -> anyhow::Result<BTreeMap<(u32, u8), u64>> {
    let helper = lab.cli.bin().join("e2e-helper");
    let socket = format!("/run/testbed/{router}/lsp-agent.sock");
    let text = lab.cli.exec(router, &[helper.to_str().context("path")?, "counters", &socket])?;
    let list: Vec<Counter> = serde_json::from_str(&text)?;
    let ours = |c: &Counter| Sid::decode(c.sid).is_some_and(|s| s.dst == dst && s.mesh == Mesh::Gold);
    let mut sums = BTreeMap::new();
    for counter in list.iter().filter(|c| ours(c)) {
        *sums.entry((counter.sid, counter.slot)).or_default() += counter.packets;
    }
    Ok(sums)
}

/// Weights of the gold group's members towards `dst`, by slot.
fn weights(lab: &Lab, router: &str, dst: u8) -> anyhow::Result<BTreeMap<u8, u64>> {
    let group = Nexthop::Group { dst, mesh: Mesh::Gold }.id();
    let objects = kernel::nexthops(&lab.cli, router)?;
    let members = &objects.get(&group).with_context(|| format!("{router} has no gold group"))?.group;
    let mut weights = BTreeMap::new();
    for (id, weight) in members {
        let Some(Nexthop::Member { slot, .. }) = Nexthop::decode(*id) else {
            bail!("member {id} of {router}")
        };
        weights.insert(slot, u64::from(*weight));
    }
    Ok(weights)
}

/// Numbers of LSPs that a bundle has on each of its pairs of paths, ascending.
fn lsps_by_path(bundle: &mesh::Bundle) -> Vec<u64> {
    let mut count: BTreeMap<(&mesh::Path, &mesh::Path), u64> = BTreeMap::new();
    for lsp in &bundle.lsps {
        *count.entry((&lsp.primary, &lsp.backup)).or_default() += 1;
    }
    let mut count: Vec<u64> = count.into_values().collect();
    count.sort_unstable();
    count
}

/// Compares the weights of the group's members with the LSPs that the controller placed, then sends from 400 addresses and
/// compares what each member carried with its weight.
fn spread_over_paths(lab: &Lab, plane: u8, router: &str, (src, dst): (u8, u8)) -> anyhow::Result<()> {
    let load = Load { from: Some("h1.prn"), to: Some("h1.lla"), classes: "gold", rate: 300, flows: 400 };
    let measured = || -> Result<(Vec<u64>, BySlot, BySlot), String> {
        let text = |e: anyhow::Error| format!("{e:#}");
        let cycle = mesh::cycle(&lab.cli, plane).map_err(text)?;
        let placed = lsps_by_path(cycle.bundle(src, dst, Mesh::Gold).map_err(text)?);
        let weights_before = weights(lab, router, dst).map_err(text)?;
        let before = counters(lab, router, dst).map_err(text)?;
        load.send(&lab.cli, 3.0).map_err(text)?;
        let after = counters(lab, router, dst).map_err(text)?;
        if weights(lab, router, dst).map_err(text)? != weights_before || before.keys().ne(after.keys()) {
            return Err("the bundle was programmed meanwhile".into());
        }
        let mut packets: BTreeMap<u8, u64> = BTreeMap::new();
        for (key, now) in &after {
            *packets.entry(key.1).or_default() += now - before.get(key).copied().unwrap_or(0);
        }
        Ok((placed, weights_before, packets))
    };
    let (placed, weights, packets) =
        wait_until(Duration::from_secs(60), "a quiet time to measure in", measured)?;
    let mut by_path: Vec<u64> = weights.values().copied().collect();
    by_path.sort_unstable();
    ensure!(by_path == placed, "{router} weighs its paths {by_path:?}, the LSPs on them are {placed:?}");
    let (all_weights, all): (u64, u64) = (weights.values().sum(), packets.values().sum());
    note(format!("{router}: LSPs by slot {weights:?}, packets {packets:?}"));
    ensure!(weights.len() > 1 && all > 100, "one path or no packets: nothing to compare");
    for (slot, weight) in &weights {
        let (got, fair) = (packets.get(slot).copied().unwrap_or(0), all * weight / all_weights);
        // 200 flows a plane: a path of one LSP in sixteen gets about twelve
        ensure!(
            got * 3 >= fair && got <= fair * 3,
            "slot {slot} of {router} carried {got} packets, its share is {fair}"
        );
    }
    Ok(())
}

/// Input: the capacity of one link halved in the file; `plan`; `up`; the same undone.
/// Output: `plan` names that link and no other; `up` changes its queues and restarts what has to know, so that its routers
/// announce the new capacity; the rest keeps its process ids.
pub fn edit_capacity(lab: &Lab) -> anyhow::Result<()> {
    let before = lab.status()?;
    let file = edited(lab, "{between: [prn, lla], capacity: 400G", "{between: [prn, lla], capacity: 200G")?;
    let file = file.to_string_lossy().into_owned();
    let plan = lab.cli.ok(&["plan", &file])?;
    note(plan.trim_end());
    ensure!(plan.contains("to-lla") && plan.contains("to-prn"), "the plan does not name the link:\n{plan}");
    for other in ["to-chi", "to-frc", "to-lon", "to-atn"] {
        ensure!(!plan.contains(other), "the plan names {other}, which was not edited:\n{plan}");
    }
    let done = up(lab, &file)?;
    ensure!(done.kernel_actions > 0 && done.kernel_actions <= 16, "{} kernel actions", done.kernel_actions);
    let restarted: Vec<String> =
        done.program_changes.iter().map(|c| format!("{}/{}", c.node, c.program)).collect();
    let touched = |node: &str| ["eb01.prn", "eb01.lla", "eb02.prn", "eb02.lla"].contains(&node);
    // the config-agent takes the new base over and tells openr, which goes on; the agents beside them have no use for it
    let concerned = |c: &ProgramChange| {
        c.program.starts_with("ebb-controller") || (touched(&c.node) && c.program == "config-agent")
    };
    let odd = done.program_changes.iter().find(|c| !concerned(c));
    ensure!(odd.is_none(), "{odd:?} has nothing to do with the edit");
    for old in &before.programs {
        let new = done.status.program(&old.node, &old.name)?;
        let kept = new.pid == old.pid;
        let name = format!("{}/{}", old.node, old.name);
        ensure!(kept || restarted.contains(&name), "{name} was restarted, which `up` did not say");
    }
    let link = done.status.links.iter().find(|l| l.name == "eb01.lla--eb01.prn").context("the link")?;
    ensure!(link.capacity == "200G", "status says {}", link.capacity);
    capacity_in_use(lab, 200_000_000_000, 10_000_000)?;
    up(lab, "ebb-small")?;
    capacity_in_use(lab, 400_000_000_000, 20_000_000)
}

/// Both ends of the link from prn to lla announce `capacity`, and let `rate` through; bit/s.
fn capacity_in_use(lab: &Lab, capacity: u64, rate: u64) -> anyhow::Result<()> {
    for (router, interface) in [("eb01.prn", "to-lla"), ("eb01.lla", "to-prn")] {
        wait_until(Duration::from_secs(30), "the routers to announce the capacity of the file", || {
            let announced = announced(lab, router, interface).map_err(|e| format!("{e:#}"))?;
            if announced == capacity {
                Ok(())
            } else {
                Err(format!("{router} {interface}: {announced} bit/s"))
            }
        })?;
        let qdiscs = lab.cli.exec(router, &["tc", "-j", "qdisc", "show", "dev", interface])?;
        let qdiscs: serde_json::Value = serde_json::from_str(&qdiscs)?;
        let shaper = qdiscs.as_array().into_iter().flatten().find(|q| q["kind"] == "tbf");
        // `tc` counts bytes
        let shaped = shaper.and_then(|q| q["options"]["rate"].as_u64()).map(|bytes| bytes * 8);
        ensure!(shaped == Some(rate), "{router} {interface} lets {shaped:?} bit/s through, not {rate}");
    }
    Ok(())
}

/// Input: plane 1 gets other algorithms; then a controller that ends as soon as it is started; all pairs send meanwhile.
/// Output: `compare` shows the canary's settings and numbers beside those of plane 2; with the broken one `up` says that nobody
/// leads plane 1, which goes on forwarding, and plane 2's cycles go on as ever; nothing is lost.
pub fn o3_canary(lab: &Lab) -> anyhow::Result<()> {
    let canary =
        |own: &str| edited(lab, "te:\n  cycle: 5s\n", &format!("overrides:\n  1: {own}\nte:\n  cycle: 5s\n"));
    let planes = || -> anyhow::Result<Vec<serde_json::Value>> {
        let document: serde_json::Value = lab.cli.json(&["compare"])?;
        Ok(document["planes"].as_array().context("planes")?.clone())
    };
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let file = canary("{algorithms: {bronze: hprr}, backup: srlg-rba}")?;
    let done = up(lab, &file.to_string_lossy())?;
    ensure!(done.program_changes.len() == 1, "a canary on plane 1 led to {:?}", done.program_changes);
    mesh::cycle(&lab.cli, 1)?;
    mesh::cycle(&lab.cli, 2)?;
    let both = planes()?;
    note(lab.cli.ok(&["compare"])?.trim_end());
    let settings = |p: &serde_json::Value| format!("{} {}", p["bronze"], p["backup"]).replace('"', "");
    ensure!(settings(&both[0]) == "hprr srlg-rba" && settings(&both[1]) == "cspf rba", "{both:?}");
    for plane in &both {
        ensure!(
            plane["protected"].as_u64() > Some(0) && plane["lsps"] == 576 && plane["pairs_failed"] == 0,
            "{plane}"
        );
        ensure!(
            plane["max_utilisation_permille"].as_u64() > Some(0) && plane["te_us"].as_u64() > Some(0),
            "{plane}"
        );
    }

    let file = canary("{controller_program: /bin/false}")?;
    let failed = lab.cli.run(&["up", &file.to_string_lossy(), "--timeout", "10"])?;
    ensure!(failed.code == 124 && failed.stderr.contains("plane 1: no controller leads"), "{failed:?}");
    let before = planes()?;
    mesh::cycle(&lab.cli, 2)?;
    let broken = wait_until(Duration::from_secs(60), "the broken controller to end again and again", || {
        let now = planes().map_err(|e| format!("{e:#}"))?;
        if now[0]["restarts"].as_u64() > Some(2) { Ok(now) } else { Err(now[0].to_string()) }
    })?;
    ensure!(broken[0]["leader"].is_null() && broken[0]["program"] == "/bin/false", "{}", broken[0]);
    ensure!(
        broken[1]["restarts"] == before[1]["restarts"] && broken[1]["pairs_failed"] == 0,
        "{}",
        broken[1]
    );
    ensure!(broken[1]["cycle"].as_u64() > before[1]["cycle"].as_u64(), "{} then {}", before[1], broken[1]);
    let status = lab.status()?;
    let lsps = status.plane(1)?.lsps;
    ensure!(lsps.programmed == lsps.wanted && status.plane(1)?.traffic.packets > 0, "{lsps:?}");
    up(lab, "ebb-small")?;
    mesh::cycle(&lab.cli, 1)?;
    traffic.stop_lossless("a canary and a broken canary")?;
    Ok(())
}

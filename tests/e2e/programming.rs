//! Controllers that write: every cycle, and after having lost their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use router_emu::label::Sid;
use serde::Deserialize;
use tests::mesh;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note, wait_until};

/// What an lsp-agent holds, from the helper.
#[derive(Debug, Deserialize)]
struct Held {
    epoch: u64,
    bundles: Vec<HeldBundle>,
}

#[derive(Debug, Deserialize)]
struct HeldBundle {
    sid: u32,
    source: bool,
    live: bool,
    wanted: u32,
    programmed: u32,
}

fn held(lab: &Lab, node: &str) -> anyhow::Result<Held> {
    let helper = lab.cli.bin().join("e2e-helper");
    let socket = format!("/run/testbed/{node}/lsp-agent.sock");
    let text = lab.cli.exec(node, &[helper.to_str().context("path")?, "bundles", &socket])?;
    serde_json::from_str(&text).with_context(|| format!("bundles of {node}: {text}"))
}

/// Version bits of the bundles that a source uses.
fn versions(lab: &Lab, node: &str) -> anyhow::Result<BTreeMap<Sid, bool>> {
    let mut versions = BTreeMap::new();
    for bundle in held(lab, node)?.bundles.iter().filter(|b| b.source && b.live) {
        ensure!(bundle.programmed == bundle.wanted, "{bundle:?} at {node}");
        let sid = Sid::decode(bundle.sid).with_context(|| format!("{} is no SID", bundle.sid))?;
        versions.insert(sid.bundle(), sid.version);
    }
    Ok(versions)
}

/// Input: plane 1's controller exchanged for one that programs every bundle in every cycle, once a second, while all pairs
/// send; ten cycles.
/// Output: nothing is lost; the version bit of every bundle takes both values, and alternates with each cycle.
pub fn p1_reprogram_every_cycle(lab: &Lab) -> anyhow::Result<()> {
    let (host, mut config) = lab.controller(1)?;
    lab.cli.ok(&["program", "stop", "ebb-controller", &host])?;
    config["always_reprogram"] = true.into();
    config["cycle_ms"] = 0.into();
    let dir = config["run_dir"].as_str().context("run_dir")?.to_owned();
    let file = format!("{dir}/always.json");
    let write = format!("cat > {file} <<'END'\n{config}\nEND");
    lab.cli.exec(&host, &["sh", "-c", &write])?;
    let program = lab.cli.bin().join("ebb-controller");
    let mut own =
        lab.cli.start(&["exec", &host, "--", program.to_str().context("path")?, "--config", &file])?;
    wait_until(Duration::from_secs(60), "the exchanged controller to answer", || {
        if !own.runs() {
            return Err("it has ended".into());
        }
        mesh::cycle(&lab.cli, 1).map(drop).map_err(|e| format!("{e:#}"))
    })?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let mut seen: BTreeMap<Sid, BTreeSet<bool>> = BTreeMap::new();
    let mut last = versions(lab, "eb01.prn")?;
    ensure!(last.len() == 9, "eb01.prn is the source of {} bundles", last.len());
    for _ in 0..10 {
        let cycle = mesh::cycle(&lab.cli, 1)?;
        let now = versions(lab, "eb01.prn")?;
        for (bundle, version) in &now {
            ensure!(
                last.get(bundle) == Some(&!version),
                "cycle {}: {bundle} kept version {version}",
                cycle.cycle
            );
            seen.entry(*bundle).or_default().insert(*version);
        }
        last = now;
    }
    let report = traffic.stop_lossless("ten cycles that programmed everything anew")?;
    note(format!("{} packets, 0 lost over 10 cycles; {} bundles alternated", report.sent(), seen.len()));
    ensure!(seen.values().all(|v| v.len() == 2), "a bundle has used one version only: {seen:?}");
    own.signal(Signal::SIGTERM);
    // the client's end takes the command in the node with it
    let _ = own.finish(Duration::from_secs(20));
    lab.cli.ok(&["program", "resume", "ebb-controller", &host])?;
    Ok(())
}

/// Input: plane 1's controller killed and its state folder emptied; a link cut, so that the next cycle has to program; then
/// the controller started while all pairs send.
/// Output: its first cycles lose nothing; it took the version bits over from the routers, flipping those of the bundles that
/// it moved, and its epoch is above the one before.
pub fn p4_empty_controller(lab: &Lab) -> anyhow::Result<()> {
    let (host, config) = lab.controller(1)?;
    let before = held(lab, "eb01.prn")?.epoch;
    let versions_before = versions(lab, "eb01.prn")?;
    lab.cli.ok(&["program", "kill", "ebb-controller", &host])?;
    lab.cli.ok(&["program", "stop", "ebb-controller", &host])?;
    let state = config["state_dir"].as_str().context("state_dir")?;
    lab.cli.exec(&host, &["sh", "-c", &format!("rm -rf {state}/*")])?;
    lab.cli.ok(&["link", "cut", "eb01.atn--eb01.chi"])?;
    lab.until(Duration::from_secs(60), "LSPs on their backup", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        if lsps.on_backup > 0 { Ok(()) } else { Err(format!("{lsps:?}")) }
    })?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    lab.cli.ok(&["program", "resume", "ebb-controller", &host])?;
    lab.until(Duration::from_secs(90), "the new controller to move everything off the backups", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        let done = lsps.on_backup == 0 && lsps.programmed == lsps.wanted;
        if done { Ok(()) } else { Err(format!("{lsps:?}")) }
    })?;
    let cycle = mesh::cycle(&lab.cli, 1)?;
    let report = traffic.stop_lossless("the first cycles of a controller without memory")?;
    let after = held(lab, "eb01.prn")?.epoch;
    ensure!(after > before && cycle.epoch >= after, "the agents' epoch was {before} and is {after}");
    let versions_after = versions(lab, "eb01.prn")?;
    ensure!(versions_after.len() == versions_before.len(), "{versions_before:?}, then {versions_after:?}");
    let flipped = versions_after.iter().filter(|(b, v)| versions_before.get(b) != Some(v)).count();
    ensure!(flipped > 0, "no bundle of eb01.prn got its other version");
    note(format!(
        "{} packets, 0 lost; epoch {before} then {after}; {flipped} of 9 bundles moved",
        report.sent()
    ));
    Ok(())
}

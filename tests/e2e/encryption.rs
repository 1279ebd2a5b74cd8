//! Encrypted links, in a lab of their own.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tests::cli::Background;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note, wait_until};

/// The lab.
const LAB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/labs/encrypted.yaml");
/// Its routers.
const ROUTERS: [&str; 3] = ["eb01.prn", "eb01.lon", "eb01.lla"];
/// Ends of its circuits: two links of one circuit and one of two.
const ENDS: usize = 8;
/// Changes of the key at every end that must cost nothing.
const ROTATIONS: u64 = 5;
/// Agents that are killed while a key changes.
const KILLS: usize = 12;

/// What a key-agent says of an end.
#[derive(Clone, Debug, Deserialize)]
struct Circuit {
    interface: String,
    sends: bool,
    key: String,
    rotations: u64,
    problem: String,
    refused: u64,
}

fn helper(lab: &Lab) -> anyhow::Result<String> {
    Ok(lab.cli.bin().join("e2e-helper").to_str().context("path")?.to_owned())
}

fn socket(router: &str) -> String {
    format!("/run/testbed/{router}/key-agent.sock")
}

/// All ends.
fn circuits(lab: &Lab) -> anyhow::Result<Vec<Circuit>> {
    let mut all: Vec<Circuit> = Vec::new();
    for router in ROUTERS {
        let text = lab.cli.exec(router, &[&helper(lab)?, "keys", &socket(router)])?;
        all.extend(serde_json::from_str::<Vec<Circuit>>(&text)?);
    }
    Ok(all)
}

/// What passed on an interface: frames by EtherType, in hexadecimal, and how many showed an address of the lab.
#[derive(Debug, Deserialize)]
struct Wire {
    encrypted: u64,
    hellos: u64,
    other: u64,
    readable: u64,
}

fn watch(lab: &Lab, router: &str, interface: &str) -> anyhow::Result<Background> {
    let mut run = lab.cli.start_with_input(&["exec", router, "--", &helper(lab)?, "wire", interface])?;
    run.wait_for_output("ready\n", Duration::from_secs(60))?;
    Ok(run)
}

fn seen(mut run: Background) -> anyhow::Result<Wire> {
    run.close_input();
    let text = run.finish(Duration::from_secs(60))?.expect(0)?;
    let line = text.lines().find(|line| line.starts_with('{')).context("no document of the wire")?;
    Ok(serde_json::from_str(line)?)
}

/// Waits until every end has changed its key so many times since its agent started.
fn until_rotated(lab: &Lab, times: u64) -> anyhow::Result<Vec<Circuit>> {
    wait_until(Duration::from_secs(120), "keys to change", || {
        let all = circuits(lab).map_err(|e| format!("{e:#}"))?;
        let slow = all.iter().find(|c| !c.sends || c.rotations < times);
        match slow {
            None if all.len() == ENDS => Ok(all),
            None => Err(format!("{} ends", all.len())),
            Some(slow) => Err(format!("{}: {slow:?}", slow.interface)),
        }
    })
}

/// Kills the key-agent of `router` as soon as one of its keys changes; whether it was before the new key was in use.
fn kill_at_a_change(lab: &Lab, router: &str) -> anyhow::Result<bool> {
    let before = lab.status()?.program(router, "key-agent")?.clone();
    let pid = before.pid.context("a key-agent without a process")?.to_string();
    let said = lab.cli.exec(router, &[&helper(lab)?, "kill-at-change", &socket(router), &pid])?;
    lab.until(Duration::from_secs(60), "the killed key-agent to run again", |s| {
        let now = s.program(router, "key-agent").map_err(|e| e.to_string())?;
        if now.state == "running" && now.pid != before.pid { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    Ok(said.trim() == "offered")
}

/// Input: a lab with encrypted links and keys of two seconds, one link a bundle; all pairs sending; every key changed several
/// times; then key-agents killed, one after the other, at the moment at which a key changes; then a link cut.
/// Output: on the wires nothing but encrypted frames and the agents' own, and no address of the lab in any of them; no two
/// ends have the same key, and no key stays; not one packet lost, neither by changes nor by deaths; a cut link is noticed and
/// comes back with its keys.
pub fn macsec_rotation() -> anyhow::Result<()> {
    let lab = Lab::bring_up(LAB, "encrypted")?;
    let result = rotation(&lab);
    lab.cli.ok(&["down"])?;
    result
}

fn rotation(lab: &Lab) -> anyhow::Result<()> {
    let wires =
        [("eb01.prn", "ct-lon_1"), ("eb01.prn", "ct-lon_2"), ("eb01.lla", "ct-lon"), ("eb01.lla", "ct-prn")];
    let watches = wires.map(|(router, wire)| watch(lab, router, wire));
    let first = until_rotated(lab, 0)?;
    let traffic = Traffic::start(lab, &Load { rate: 20, ..Load::ALL })?;
    let later = until_rotated(lab, first.iter().map(|c| c.rotations).max().unwrap_or(0) + ROTATIONS)?;
    let keys: BTreeSet<&str> = first.iter().chain(&later).map(|c| c.key.as_str()).collect();
    ensure!(keys.len() == 2 * ENDS, "{} keys of {} are different: {later:?}", keys.len(), 2 * ENDS);
    ensure!(later.iter().all(|c| c.problem.is_empty() && c.refused == 0), "{later:?}");
    let report = traffic.stop_lossless("changes of all keys")?;
    let changes: u64 = later.iter().zip(&first).map(|(l, f)| l.rotations - f.rotations).sum();
    note(format!("{changes} changes of keys: {} packets, 0 lost", report.sent()));
    let mut carried = 0;
    for ((router, wire), watch) in wires.iter().zip(watches) {
        let seen = seen(watch?)?;
        carried += seen.encrypted;
        note(format!("{router}:{wire}: {seen:?}"));
        ensure!(seen.other == 0 && seen.readable == 0, "{router}:{wire} shows what it carries: {seen:?}");
        ensure!(seen.encrypted > 0 && seen.hellos > 0, "{router}:{wire} is silent: {seen:?}");
    }
    ensure!(carried >= report.sent(), "{} packets cannot be in {carried} frames", report.sent());
    deaths(lab)?;
    cut(lab)
}

fn deaths(lab: &Lab) -> anyhow::Result<()> {
    let traffic = Traffic::start(lab, &Load { rate: 20, ..Load::ALL })?;
    let mut before_use = 0;
    for victim in ROUTERS.iter().cycle().take(KILLS) {
        before_use += usize::from(kill_at_a_change(lab, victim)?);
    }
    let all = until_rotated(lab, 1)?;
    let report = traffic.stop_lossless("the deaths of key-agents")?;
    let (sent, ends) = (report.sent(), all.len());
    note(format!(
        "{KILLS} key-agents killed at a change of keys, {before_use} of them between offer and use: {sent} packets, 0 lost; \
         all {ends} ends change keys again"
    ));
    Ok(())
}

fn cut(lab: &Lab) -> anyhow::Result<()> {
    const LINK: &str = "eb01.lla--eb01.lon";
    lab.cli.ok(&["link", "cut", LINK])?;
    let repaired = |s: &tests::documents::Status| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        let carried = s.links.iter().any(|l| l.name == LINK && !l.faults.is_empty());
        if carried && lsps.programmed == lsps.wanted { Ok(()) } else { Err(format!("{lsps:?}")) }
    };
    lab.until(Duration::from_secs(60), "the cut link to be left", repaired)?;
    let carrier = lab.cli.exec("eb01.lon", &["cat", "/sys/class/net/to-lla/carrier"])?;
    ensure!(carrier.trim() == "0", "the other end of a cut link has a carrier");
    lab.settle()?;
    until_rotated(lab, 1).map(drop)
}

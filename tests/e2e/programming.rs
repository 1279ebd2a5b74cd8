//! Controllers that write: every cycle, and after having lost their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use router_emu::label::Sid;
use serde::Deserialize;
use tests::cli::Background;
use tests::mesh;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note, wait_until};

/// What an lsp-agent holds, from the helper.
#[derive(Debug, Deserialize)]
pub struct Held {
    pub epoch: u64,
    pub bundles: Vec<HeldBundle>,
}

#[derive(Debug, Deserialize)]
pub struct HeldBundle {
    pub sid: u32,
    source: bool,
    live: bool,
    wanted: u32,
    programmed: u32,
}

pub fn held(lab: &Lab, node: &str) -> anyhow::Result<Held> {
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

/// The same of all sources of plane 1.
fn all_versions(lab: &Lab) -> anyhow::Result<BTreeMap<Sid, bool>> {
    let mut all = BTreeMap::new();
    for source in ["eb01.prn", "eb01.atn", "eb01.frc", "eb01.lla"] {
        all.extend(versions(lab, source)?);
    }
    // 12 ordered pairs of data centres, 3 meshes
    ensure!(all.len() == 36, "plane 1 has {} live bundles", all.len());
    Ok(all)
}

/// A controller that the test starts in place of a plane's own: it programs every bundle in every cycle, and runs cycles only
/// when asked.
struct Eager {
    run: Background,
    host: String,
}

impl Eager {
    fn start(lab: &Lab, plane: u8) -> anyhow::Result<Self> {
        Self::start_with(lab, plane, |_| ())
    }

    /// With a configuration that differs further.
    fn start_with(lab: &Lab, plane: u8, edit: impl FnOnce(&mut serde_json::Value)) -> anyhow::Result<Self> {
        let (host, mut config) = lab.controller(plane)?;
        lab.cli.ok(&["program", "stop", "ebb-controller", &host])?;
        config["always_reprogram"] = true.into();
        config["cycle_ms"] = 0.into();
        edit(&mut config);
        let dir = config["run_dir"].as_str().context("run_dir")?.to_owned();
        let file = format!("{dir}/always.json");
        let write = format!("cat > {file} <<'END'\n{config}\nEND");
        lab.cli.exec(&host, &["sh", "-c", &write])?;
        let program = lab.cli.bin().join("ebb-controller");
        let mut run =
            lab.cli.start(&["exec", &host, "--", program.to_str().context("path")?, "--config", &file])?;
        wait_until(Duration::from_secs(60), "the exchanged controller to answer", || {
            if !run.runs() {
                return Err("it has ended".into());
            }
            mesh::cycle(&lab.cli, plane).map(drop).map_err(|e| format!("{e:#}"))
        })?;
        Ok(Self { run, host })
    }

    /// Ends it and starts the plane's own again.
    fn end(self, lab: &Lab) -> anyhow::Result<()> {
        self.run.signal(Signal::SIGTERM);
        // the client's end takes the command in the node with it
        let _ = self.run.finish(Duration::from_secs(20));
        lab.cli.ok(&["program", "resume", "ebb-controller", &self.host])?;
        Ok(())
    }
}

/// Input: plane 1's controller exchanged for one that programs every bundle in every cycle, while all pairs send; ten cycles.
/// Output: nothing is lost; the version bit of every bundle takes both values, and alternates with each cycle.
pub fn p1_reprogram_every_cycle(lab: &Lab) -> anyhow::Result<()> {
    let eager = Eager::start(lab, 1)?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let mut seen: BTreeMap<Sid, BTreeSet<bool>> = BTreeMap::new();
    let mut last = all_versions(lab)?;
    for _ in 0..10 {
        let cycle = mesh::cycle(&lab.cli, 1)?;
        let now = all_versions(lab)?;
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
    eager.end(lab)
}

/// Tries to kill the agent at the right moment.
const TRIES: u32 = 40;
/// First guess of that moment, counted from the start of `testbed cycle`, and how much it is changed at first; milliseconds.
const AIM: (u64, u64) = (300, 80);

/// Input: a controller that programs everything in every cycle, while all pairs send; the lsp-agent of an intermediate node killed
/// at random moments of cycles until it dies between its dump and its answer to the first phase.
/// Output: of the bundles that need it the sources keep their version; all others get their new one; the next cycle after the
/// agent is back programs all; nothing is lost.
pub fn p2_intermediate_dies_in_phase_1(lab: &Lab) -> anyhow::Result<()> {
    const VICTIM: &str = "eb01.frc";
    let eager = Eager::start(lab, 1)?;
    let sources = ["eb01.prn", "eb01.atn", "eb01.lla"];
    let all = || -> anyhow::Result<BTreeMap<Sid, bool>> {
        let each = sources.iter().map(|source| versions(lab, source));
        Ok(each.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
    };
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let mut hit = None;
    let (mut aim, mut change, mut was_early) = (AIM.0, AIM.1, None);
    for attempt in 1..=TRIES {
        let before = all()?;
        let cycle = lab.cli.start(&["--format", "json", "cycle", "1", "--mesh"])?;
        // no wait for a state: how long a cycle takes to its first phase is learned from what each kill hit
        std::thread::sleep(Duration::from_millis(aim));
        lab.cli.ok(&["program", "kill", "lsp-agent", VICTIM])?;
        let text = cycle.finish(Duration::from_secs(60))?.expect(0)?;
        let cycle: mesh::Cycle = serde_json::from_str(&text)?;
        let after = all()?;
        lab.until(Duration::from_secs(60), "the killed agent to run again", |s| {
            let agent = s.program(VICTIM, "lsp-agent").map_err(|e| e.to_string())?;
            if agent.state == "running" { Ok(()) } else { Err(format!("{agent:?}")) }
        })?;
        let in_phase_1 = format!("intermediate {VICTIM}: ProgramBundle was not answered");
        if cycle.errors.iter().any(|e| e.contains(&in_phase_1)) {
            hit = Some((attempt, before, after, cycle));
            break;
        }
        // one that died before its dump, or is not back yet: too early
        let early = cycle.errors.iter().any(|e| e.contains(VICTIM) && e.contains("DumpBundles"));
        if was_early.replace(early).is_some_and(|was| was != early) {
            change = (change / 2).max(10);
        }
        aim = if early { aim + change } else { aim.saturating_sub(change) };
        wait_until(Duration::from_secs(60), "a cycle without failures", || {
            mesh::cycle(&lab.cli, 1).map(drop).map_err(|e| format!("{e:#}"))
        })?;
    }
    let (attempt, before, after, cycle) =
        hit.with_context(|| format!("{TRIES} kills, and none in the first phase"))?;
    // cycles before may have failed for bundles of another source, but these sources were whole before this one
    let kept: Vec<_> = before.iter().filter(|(b, v)| after.get(b) == Some(v)).map(|(b, _)| *b).collect();
    note(format!(
        "try {attempt}: {} of {} pairs failed, {} of {} bundles seen kept their version",
        cycle.pairs_failed,
        cycle.pairs_failed + cycle.pairs_ok,
        kept.len(),
        before.len()
    ));
    ensure!(before.len() == 27 && after.len() == 27, "{} bundles, then {}", before.len(), after.len());
    ensure!(cycle.pairs_ok > 0 && !kept.is_empty() && kept.len() < before.len(), "{:?}", cycle.errors);
    for bundle in &kept {
        let named = cycle.errors.iter().any(|e| e.contains(&bundle.to_string()));
        ensure!(named, "{bundle} kept its version, and no error says why: {:?}", cycle.errors);
    }
    wait_until(Duration::from_secs(60), "the next cycle to program all", || {
        mesh::cycle(&lab.cli, 1).map(drop).map_err(|e| format!("{e:#}"))
    })?;
    let report = traffic.stop_lossless("the death of an intermediate node's agent in the first phase")?;
    note(format!("{} packets, 0 lost", report.sent()));
    eager.end(lab)
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
    for folder in ["state_dir", "plane_dir"] {
        let folder = config[folder].as_str().context(folder)?;
        lab.cli.exec(&host, &["sh", "-c", &format!("rm -rf {folder}/*")])?;
    }
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

/// Cycles whose times are compared.
const TIMED: usize = 7;

/// Middle of the times of some cycles in microseconds, and what the last one complained of. Measured from outside: what a
/// controller waits for between its own readings of the clock counts too.
fn cycle_time(lab: &Lab) -> anyhow::Result<(u64, Vec<String>)> {
    let mut times = Vec::new();
    let mut errors = Vec::new();
    for _ in 0..TIMED {
        let began = Instant::now();
        let cycle: mesh::Cycle = lab.cli.json(&["cycle", "1"])?;
        ensure!(cycle.pairs_failed == 0 && cycle.pairs_ok == 36, "{:?}", cycle.errors);
        times.push(u64::try_from(began.elapsed().as_micros())?);
        errors = cycle.errors;
    }
    times.sort_unstable();
    Ok((times[TIMED / 2], errors))
}

/// Input: a controller whose statistics go into a pipe that nobody reads, and a traffic-matrix service that hangs, then is dead.
/// Output: cycles program every pair and take no longer than before; they say that the matrix is an old one.
pub fn o6_blocked_services(lab: &Lab) -> anyhow::Result<()> {
    let (host, _) = lab.controller(1)?;
    let pipe = "/run/testbed/nobody-reads-this";
    lab.cli.exec(&host, &["sh", "-c", &format!("rm -f {pipe}; mkfifo {pipe}")])?;
    let before = {
        let eager = Eager::start(lab, 1)?;
        let before = cycle_time(lab)?;
        eager.end(lab)?;
        before
    };
    ensure!(before.1.is_empty(), "{:?}", before.1);
    let eager = Eager::start_with(lab, 1, |config| config["stats"] = pipe.into())?;
    let piped = cycle_time(lab)?;
    lab.cli.ok(&["program", "pause", "nhg-tm", &host])?;
    let hung = cycle_time(lab)?;
    lab.cli.ok(&["program", "stop", "nhg-tm", &host])?;
    let dead = cycle_time(lab)?;
    note(format!(
        "cycles of {} ms; {} ms with a blocked pipe, {} ms with a hung matrix too, {} ms with a dead one",
        before.0 / 1000,
        piped.0 / 1000,
        hung.0 / 1000,
        dead.0 / 1000
    ));
    note(hung.1.join("; "));
    for (what, (time, errors)) in [("hung", &hung), ("dead", &dead)] {
        let said =
            errors.iter().any(|e| e.starts_with("traffic matrix: nhg-tm") && e.ends_with("s ago is used"));
        ensure!(said, "the matrix is {what}, and the cycle says {errors:?}");
        // a wait for any deadline would be a second at least; the rest is for the noise of a busy machine
        ensure!(*time < before.0 + before.0 / 2 + 400_000, "{what}: {time} us instead of {} us", before.0);
    }
    ensure!(piped.1.is_empty() && piped.0 < before.0 * 3 / 2 + 400_000, "{piped:?} instead of {before:?}");
    eager.end(lab)?;
    lab.cli.ok(&["program", "resume", "nhg-tm", &host])?;
    Ok(())
}

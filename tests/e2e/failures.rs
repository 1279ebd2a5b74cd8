//! Links that fail, with and without controllers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use router_emu::label::{Mesh, Sid};
use tests::capture::Capture;
use tests::documents::{Event, ProbeReport};
use tests::mesh;
use tests::model::Model;
use tests::traffic::{Load, Traffic, lossless};
use tests::{Lab, kernel, note};

use crate::edits;

/// One hundred packets of gold in each tenth of a second, over addresses enough to use every LSP.
const GOLD: Load<'static> =
    Load { from: Some("h1.prn"), to: Some("h1.lla"), classes: "gold", rate: 500, flows: 64 };

/// Times a link is cut, from `TESTBED_E2E_CUTS`.
fn cuts() -> usize {
    std::env::var("TESTBED_E2E_CUTS").ok().and_then(|v| v.parse().ok()).unwrap_or(5)
}

/// Milliseconds of a count of nanoseconds.
fn ms(ns: u64) -> f64 {
    // exact enough: microseconds below 2^52
    f64::from(u32::try_from(ns / 1000).unwrap_or(u32::MAX)) / 1000.0
}

/// The link in the middle of the gold path from prn to lla in plane 1.
fn middle_link(lab: &Lab) -> anyhow::Result<String> {
    let model = Model::new(&lab.status()?, 1)?;
    let placed = mesh::cycle(&lab.cli, 1)?;
    let bundle = placed.bundle(model.id("prn")?, model.id("lla")?, Mesh::Gold)?;
    let longest = bundle.lsps.iter().map(|l| &l.primary).max_by_key(|p| p.hops.len()).context("no LSP")?;
    let hop = longest.hops.get(longest.hops.len() / 2).context("empty path")?;
    Ok(hop.link())
}

/// Sends gold while `fail` breaks something, until the source says that it has repaired.
fn until_repaired(lab: &Lab, fail: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<ProbeReport> {
    let traffic = Traffic::start(lab, &GOLD)?;
    let past = lab.events()?.len();
    // listened to, because every question costs processor time while it is measured
    let mut told = lab.cli.start(&["--format", "json", "events", "--follow"])?;
    told.wait_for_lines(Duration::from_secs(60), |lines| lines.len() >= past)?;
    fail()?;
    told.wait_for_lines(Duration::from_secs(60), |lines| {
        let events = lines.iter().skip(past).filter_map(|line| serde_json::from_str::<Event>(line).ok());
        events.into_iter().any(|e| e.kind == "lsp.repaired" && e.subject == "eb01.prn")
    })?;
    drop(told);
    traffic.stop()
}

/// Input: gold packets from prn to lla; all controllers stopped; the link in the middle of the path cut, again and again,
/// each time after the controllers have put everything back.
/// Output: each time LSPs are on their backup and the loss ends by itself; the time from the cut to the last lost packet is
/// printed, its median held below a bound that is wide on a busy machine.
pub fn r1_local_repair(lab: &Lab) -> anyhow::Result<()> {
    let (mut times, mut written, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=cuts() {
        let link = middle_link(lab)?;
        lab.stop_controllers()?;
        let report = until_repaired(lab, || lab.cli.ok(&["link", "cut", &link]).map(drop))?;
        let lsps = lab.status()?.plane(1)?.lsps;
        ensure!(lsps.on_backup > 0 && lsps.programmed == lsps.wanted, "after the repair: {lsps:?}");
        let events = lab.events()?;
        let cut = events.iter().rev().find(|e| e.kind == "link.cut").context("no event of the cut")?;
        let end = |w: &tests::documents::LossWindow| w.start + ms_to_ns(w.ms);
        let windows = report.streams.iter().flat_map(|s| &s.loss_windows);
        let last = windows.map(end).max();
        let took = last.map_or(0.0, |last| ms(last.saturating_sub(cut.at_ns)));
        note(format!(
            "cut {round} of {link}: {} of {} lost, last {took} ms after the cut; {}",
            report.lost(),
            report.sent(),
            report.losses().trim_end()
        ));
        let repaired = || events.iter().filter(|e| e.at_ns >= cut.at_ns && e.kind == "lsp.repaired");
        let source = repaired().find(|e| e.subject == "eb01.prn").context("no repair at the source")?;
        written.push(ms(source.at_ns - cut.at_ns));
        for event in repaired() {
            note(format!("  {:6.1} ms {:<9} {}", ms(event.at_ns - cut.at_ns), event.subject, event.detail));
        }
        late.push(report.lateness_p99_ms());
        times.push(took);
        // after the repair, without any controller, nothing more is lost
        lossless(&GOLD.send(&lab.cli, 2.0)?, "the time after a local repair, controllers stopped")?;
        lab.cli.ok(&["link", "restore", &link])?;
        lab.resume_controllers()?;
        lab.ready()?;
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    written.sort_by(f64::total_cmp);
    late.sort_by(f64::total_cmp);
    let late = late[late.len() / 2];
    let goal = if lab.up.status.carrier == "host" { 2.0 } else { 10.0 };
    // as strict as the machine's own timers allow: on a busy one they are late too
    let bound = 2.0 * goal + 4.0 * late;
    note(format!(
        "local repair, cut to last lost packet: median {median} ms of {times:?}; goal {goal} ms; timers late by {late} ms (p99)"
    ));
    note(format!("cut to the source's last write: median {} ms of {written:?}", written[written.len() / 2]));
    ensure!(median <= bound, "median {median} ms, bound {bound} ms");
    Ok(())
}

/// Times a link is silenced.
const SILENCES: usize = 3;

/// Input: the lab with BFD at 40 ms x 3 and other algorithms in plane 1; controllers stopped; the link in the middle of the gold
/// path drops every packet in both directions, both carriers up; again and again.
/// Output: `up` brings both planes to ready; each time the sources repair by themselves and the loss ends; its length is printed.
/// After the queues are mended the link comes back, and after the next cycle nothing is lost.
pub fn silent_failure(lab: &Lab) -> anyhow::Result<()> {
    let with =
        "overrides: {1: {algorithms: {bronze: hprr}, backup: srlg-rba}}\nbfd: {interval: 40ms}\nplanes: 2";
    let file = edits::edited(lab, "planes: 2", with)?.to_string_lossy().into_owned();
    edits::up(lab, &file)?;
    let (mut lengths, mut late) = (Vec::new(), Vec::new());
    for round in 1..=SILENCES {
        lab.ready()?;
        let link = middle_link(lab)?;
        lab.stop_controllers()?;
        let report = until_repaired(lab, || silence(lab, &link))?;
        let windows = report.streams.iter().flat_map(|s| &s.loss_windows).map(|w| w.ms);
        let length = windows.fold(0.0, f64::max);
        note(format!("silence {round} on {link}: {} of {} lost, {length} ms", report.lost(), report.sent()));
        lengths.push(length);
        late.push(report.lateness_p99_ms());
        let state = lab.status()?;
        let shown = state.links.iter().find(|l| l.name == link).context("the link")?;
        ensure!(shown.state == "up", "a silent link has a carrier, status says {}", shown.state);
        lossless(&GOLD.send(&lab.cli, 2.0)?, "the time after the repair of a silent failure")?;
        lab.resume_controllers()?;
        ensure!(edits::up(lab, &file)?.kernel_actions > 0, "`up` did not see the changed queues");
    }
    edits::up(lab, "ebb-small")?;
    lengths.sort_by(f64::total_cmp);
    late.sort_by(f64::total_cmp);
    let (median, late) = (lengths[lengths.len() / 2], late[late.len() / 2]);
    let goal = if lab.up.status.carrier == "host" { 60.0 } else { 120.0 };
    note(format!(
        "silent failure: median {median} ms of {lengths:?}; goal {goal} ms; timers late by {late} ms (p99)"
    ));
    ensure!(median <= 2.0 * goal + 4.0 * late, "median {median} ms");
    Ok(())
}

/// Makes both ends of a link drop everything that they send: no packet fits the bucket of the shaper.
fn silence(lab: &Lab, link: &str) -> anyhow::Result<()> {
    for (near, far) in [(0, 1), (1, 0)] {
        let ends: Vec<&str> = link.split("--").collect();
        let site = ends[far].split('.').nth(1).context("site")?;
        kernel::limit(&lab.cli, ends[near], &format!("to-{site}"), 1e6, 40)?;
    }
    Ok(())
}

/// A probe's milliseconds as nanoseconds.
fn ms_to_ns(ms: f64) -> u64 {
    Duration::from_secs_f64(ms.max(0.0) / 1000.0).as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Input: plane 2 drained, plane 1's controller stopped, all bundles from prn to lla deleted at their source; then the
/// controller resumed.
/// Output: packets go unlabelled on Open/R's shortest path, nothing is lost once that is so; with the bundles back, labels
/// are preferred again.
pub fn r4_fallback_and_back(lab: &Lab) -> anyhow::Result<()> {
    let status = lab.status()?;
    let model = Model::new(&status, 1)?;
    let (src, dst) = (model.id("prn")?, model.id("lla")?);
    lab.cli.ok(&["drain", "plane", "2"])?;
    let placed = mesh::cycle(&lab.cli, 1)?;
    let (host, _) = lab.controller(1)?;
    lab.cli.ok(&["program", "stop", "ebb-controller", &host])?;
    let mut sids = Vec::new();
    for mesh in Mesh::ALL {
        sids.push(placed.bundle(src, dst, mesh)?.sid.to_string());
    }
    let helper = lab.cli.bin().join("e2e-helper");
    let helper = helper.to_str().context("path")?;
    let mut argv = vec![helper, "delete", "/run/testbed/eb01.prn/lsp-agent.sock"];
    argv.extend(sids.iter().map(String::as_str));
    lab.cli.exec("eb01.prn", &argv)?;
    let load = Load { classes: "icp,gold,silver,bronze", rate: 50, ..GOLD };
    let labelled = |during: &str| -> anyhow::Result<(u64, u64)> {
        let routers: Vec<String> = status
            .nodes
            .iter()
            .filter(|n| n.plane == Some(1) && n.site != "prn")
            .map(|n| n.name.clone())
            .collect();
        let captures = Capture::start_all(&lab.cli, &routers)?;
        lossless(&load.send(&lab.cli, 2.0)?, during)?;
        let (mut with, mut without) = (0, 0);
        for capture in captures {
            for (kind, packets) in capture.finish()? {
                let ours = kind.source == format!("2001:db8:{src:x}")
                    && kind.destination == format!("2001:db8:{dst:x}");
                if ours && kind.interface != "fa" {
                    if kind.labels.is_empty() { without += packets } else { with += packets }
                }
            }
        }
        Ok((with, without))
    };
    let (with, without) = labelled("the time without LSPs")?;
    note(format!("without LSPs: {without} arrivals without labels, {with} with"));
    ensure!(with == 0 && without > 0, "without LSPs {with} packets had labels, {without} had none");
    lab.cli.ok(&["program", "resume", "ebb-controller", &host])?;
    lab.until(Duration::from_secs(90), "all LSPs to be back", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        if lsps.programmed == lsps.wanted { Ok(()) } else { Err(format!("{lsps:?}")) }
    })?;
    lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    lab.cli.ok(&["drain", "plane", "2"])?;
    let (with, without) = labelled("the time after LSPs came back")?;
    note(format!("with LSPs again: {with} arrivals with labels, {without} without (the last link has none)"));
    ensure!(with > without, "with LSPs back {with} arrivals had labels, {without} had none");
    lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    ensure!(sids.iter().all(|s| s.parse().is_ok_and(|s| Sid::decode(s).is_some())), "{sids:?}");
    Ok(())
}

/// Input: all controllers stopped for the length of three cycles with all pairs sending; then a link cut; then restored.
/// Output: nothing is lost before the cut; losses end by themselves after it; nothing is lost afterwards.
pub fn r5_without_controllers(lab: &Lab) -> anyhow::Result<()> {
    let link = middle_link(lab)?;
    lab.stop_controllers()?;
    // the lab's cycle is 5 s
    let report = Load::ALL.send(&lab.cli, 16.0)?;
    lossless(&report, "three cycles without controllers")?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    lab.cli.ok(&["link", "cut", &link])?;
    lab.until(Duration::from_secs(60), "LSPs on their backup", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        let whole = lsps.on_backup > 0 && lsps.programmed == lsps.wanted;
        if whole { Ok(()) } else { Err(format!("{lsps:?}")) }
    })?;
    let report = traffic.stop()?;
    note(format!(
        "cut of {link}: {} of {} lost\n{}",
        report.lost(),
        report.sent(),
        report.losses().trim_end()
    ));
    lossless(&Load::ALL.send(&lab.cli, 5.0)?, "the time after the repair")?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    lab.cli.ok(&["link", "restore", &link])?;
    traffic.stop_lossless("the return of the link")?;
    lab.resume_controllers()
}

/// Input: a link cut and restored, by name and by interface.
/// Output: status shows it cut, the controllers move everything off it; afterwards all is back: addresses, neighbours, static
/// labels.
pub fn link_cut_in_status(lab: &Lab) -> anyhow::Result<()> {
    let look = [
        "sh",
        "-c",
        "ip -o -6 addr show to-frc; ip -6 neigh show dev to-frc nud permanent; ip -f mpls route show 1003",
    ];
    let before = lab.cli.exec("eb01.chi", &look)?;
    let link = "eb01.chi--eb01.frc";
    let text = lab.cli.ok(&["link", "cut", "eb01.chi:to-frc"])?;
    ensure!(text.contains(link), "link cut said {text:?}");
    let status = lab.status()?;
    let state = status.links.iter().find(|l| l.name == link).map(|l| l.state.as_str());
    ensure!(state == Some("cut"), "{link} is {state:?} in status");
    let text = lab.cli.run(&["status"])?.stdout;
    ensure!(text.contains(link), "status for people does not show the cut link:\n{text}");
    let again = lab.cli.ok(&["link", "cut", link])?;
    ensure!(again.contains("already"), "a second cut said {again:?}");
    // the controllers move everything off the link
    lab.until(Duration::from_secs(90), "the plane to be whole on other paths", |s| {
        let plane = s.plane(1).map_err(|e| e.to_string())?;
        let whole = plane.lsps.on_backup == 0 && plane.lsps.programmed == plane.lsps.wanted;
        if whole { Ok(()) } else { Err(format!("{:?} {}", plane.lsps, plane.reason)) }
    })?;
    lab.cli.ok(&["link", "restore", "all"])?;
    lab.ready()?;
    let after = lab.cli.exec("eb01.chi", &look)?;
    ensure!(before == after, "before the cut:\n{before}\nafter the restore:\n{after}");
    let wrong = lab.cli.run(&["link", "cut", "eb01.chi--eb01.lla"])?;
    ensure!(wrong.code == 2, "cut of a link that does not exist: exit code {}", wrong.code);
    Ok(())
}

//! Links that change without being lost: members of bundles, links that go up and down, delays.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use router_emu::label::Mesh;
use serde::Deserialize;
use tests::documents::{Event, Link, Status};
use tests::mesh::{self, Cycle};
use tests::model::{Model, capacity};
use tests::traffic::{Load, Traffic, lossless};
use tests::{Lab, note};

use crate::edits;

/// The link that the tests of this file change, in plane 1.
const LINK: &str = "eb01.chi--eb01.frc";
/// Its entry in the default lab.
const ENTRY: &str = "{between: [chi, frc], capacity: 400G, rtt: 10ms, members: 4,";

/// The link as status has it.
fn link<'s>(status: &'s Status, name: &str) -> Result<&'s Link, String> {
    status.links.iter().find(|l| l.name == name).ok_or_else(|| format!("status has no link {name}"))
}

/// LSPs whose primaries cross the link from chi to frc, by mesh.
fn crossing(placed: &Cycle) -> anyhow::Result<BTreeMap<&'static str, usize>> {
    let across =
        |path: &mesh::Path| path.hops.iter().any(|hop| hop.router == "eb01.chi" && hop.link() == LINK);
    let mut count = BTreeMap::new();
    for bundle in &placed.mesh {
        let through = bundle.lsps.iter().filter(|lsp| across(&lsp.primary)).count();
        *count.entry(bundle.decoded()?.mesh.name()).or_default() += through;
    }
    Ok(count)
}

/// Whether an lsp-agent changed nexthop groups or labels by itself: it also says when it looked and found nothing to do.
fn is_repair(event: &Event) -> bool {
    let writes = event.detail.split(" writes").next().and_then(|text| text.rsplit(' ').next());
    event.kind == "lsp.repaired" && writes != Some("0")
}

/// What the lsp-agents changed by themselves since this many events.
fn repairs(lab: &Lab, past: usize) -> anyhow::Result<Vec<Event>> {
    let events = lab.events()?.into_iter().skip(past);
    Ok(events.filter(is_repair).collect())
}

/// Packets that each member of the link has sent at `router`, in the order of their numbers.
fn sent_by_members(lab: &Lab, router: &str, interface: &str, members: u32) -> anyhow::Result<Vec<u64>> {
    let count = |number| {
        let path = format!("/sys/class/net/{interface}_{number}/statistics/tx_packets");
        let text = lab.cli.exec(router, &["cat", &path])?;
        text.trim().parse::<u64>().with_context(|| format!("{path}: {text:?}"))
    };
    (1..=members).map(count).collect()
}

/// Waits until status tells of so many members, of so much capacity (nothing: all of it), and of no LSP on a backup.
fn until_members(lab: &Lab, up: u32, left: Option<&str>) -> anyhow::Result<()> {
    let what = format!("{up} of 4 members with {left:?}");
    lab.until(Duration::from_secs(60), &what, |s| {
        let l = link(s, LINK)?;
        let members = l.members.ok_or("no members")?;
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        let as_wanted = members.up == up && l.capacity_left.as_deref() == left && lsps.on_backup == 0;
        if as_wanted { Ok(()) } else { Err(format!("{l:?} {lsps:?}")) }
    })?;
    Ok(())
}

/// Input: one link of 80G made a real bundle of four members; all pairs sending; its members cut, one after the other, the
/// first three restored, then all cut.
/// Output: flows spread over all members; each lost member takes a quarter of the capacity and nothing else, no LSP is
/// repaired, next to nothing is lost; the next cycle takes LSPs off that do not fit any more; without a member the link
/// is lost like any other.
pub fn r6_member_down(lab: &Lab) -> anyhow::Result<()> {
    let entry = "{between: [chi, frc], capacity: 80G, rtt: 10ms, members: 4, lag: emulated,";
    let file = edits::edited(lab, ENTRY, entry)?.to_string_lossy().into_owned();
    let done = edits::up(lab, &file)?;
    let touched = |node: &str| ["eb01.chi", "eb02.chi", "eb01.frc", "eb02.frc"].contains(&node);
    let odd =
        |c: &tests::documents::ProgramChange| !touched(&c.node) && !c.program.starts_with("ebb-controller");
    ensure!(!done.program_changes.iter().any(odd), "{:?}", done.program_changes);
    lab.ready()?;
    until_members(lab, 4, None)?;
    let whole = crossing(&mesh::cycle(&lab.cli, 1)?)?;
    ensure!(whole.values().all(|count| *count == 64), "four pairs need the link: {whole:?}");

    let before = sent_by_members(lab, "eb01.chi", "to-frc", 4)?;
    let traffic = Traffic::start(lab, &Load { rate: 20, ..Load::ALL })?;
    let past = lab.events()?.len();
    for number in ["1", "2", "3", "4"] {
        lab.cli.ok(&["link", "cut", LINK, "--member", number])?;
        until_members(lab, 3, Some("60G"))?;
        lab.cli.ok(&["link", "restore", LINK, "--member", number])?;
        until_members(lab, 4, None)?;
    }
    let report = traffic.stop()?;
    let after = sent_by_members(lab, "eb01.chi", "to-frc", 4)?;
    let sent: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    note(format!(
        "each member cut and restored once: {} of {} lost, members sent {sent:?}",
        report.lost(),
        report.sent()
    ));
    note(report.losses());
    ensure!(sent.iter().all(|packets| *packets > 100), "the flows are not spread: {sent:?}");
    // what is in a member's hands when it goes; a lost link costs hundreds of packets at this rate
    ensure!(report.lost() <= 8 && report.refused() == 0, "{} lost:\n{}", report.lost(), report.losses());
    let repaired = repairs(lab, past)?;
    ensure!(repaired.is_empty(), "a lost member is no lost link: {repaired:?}");

    for (number, left) in [("2", "60G"), ("4", "40G")] {
        lab.cli.ok(&["link", "cut", LINK, "--member", number])?;
        until_members(lab, if number == "2" { 3 } else { 2 }, Some(left))?;
    }
    let shown = lab.cli.ok(&["link", "show", LINK])?;
    ensure!(shown.contains("member 2 cut, member 4 cut") && shown.contains("40G of 80G, 2 of 4"), "{shown}");
    let placed = mesh::cycle(&lab.cli, 1)?;
    let half = crossing(&placed)?;
    note(format!("LSPs across {LINK} with 4 and with 2 of 4 members: {whole:?}, {half:?}"));
    let mut left = capacity("40G").context("40G")?;
    for (mesh, percent) in [(Mesh::Gold, 50), (Mesh::Silver, 80), (Mesh::Bronze, 100)] {
        let load = placed.load(mesh)?;
        let most = load.iter().filter(|((name, _), _)| name == LINK).map(|(_, bps)| *bps).max().unwrap_or(0);
        ensure!(
            most <= left * percent / 100,
            "{mesh} has {most} bit/s on {LINK}, its share is {percent} % of {left}"
        );
        left -= most;
    }
    ensure!(
        half["bronze"] < 64 && half["gold"] > half["bronze"],
        "LSPs that do not fit must leave: {half:?}"
    );
    lossless(&Load::ALL.send(&lab.cli, 2.0)?, "the time with half of a bundle")?;

    let past = lab.events()?.len();
    lab.stop_controllers()?;
    for number in ["1", "3"] {
        lab.cli.ok(&["link", "cut", LINK, "--member", number])?;
    }
    lab.until(Duration::from_secs(60), "the link to be lost with its last member", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        let lost = link(s, LINK)?.members.is_some_and(|m| m.up == 0) && lsps.on_backup > 0;
        if lost { Ok(()) } else { Err(format!("{:?} {lsps:?}", link(s, LINK)?)) }
    })?;
    ensure!(!repairs(lab, past)?.is_empty(), "nobody repaired");
    lossless(&Load::ALL.send(&lab.cli, 2.0)?, "the time without any member")?;
    lab.cli.ok(&["link", "restore", "all"])?;
    lab.resume_controllers()?;
    lab.ready()?;
    until_members(lab, 4, None)?;
    edits::up(lab, "ebb-small")?;
    lab.ready()?;
    let status = lab.status()?;
    ensure!(link(&status, LINK).is_ok_and(|l| l.members.is_none()), "still a bundle");
    Ok(())
}

/// Times the link goes up and down.
const FLAPS: usize = 14;
/// One of them, milliseconds: shorter than a first hold, and long enough for a link that is not held to be used again.
const PERIOD_MS: u64 = 700;

/// Input: gold packets from prn to lla; the link in the middle of their path goes up and down fourteen times in ten seconds,
/// while the controller runs cycle after cycle.
/// Output: the source repairs after the first loss and perhaps once more; then the link is kept out, by both ends: no path
/// uses it, nothing is repaired and nothing is lost any more. When it stays, it comes back by itself.
pub fn r7_flapping_link(lab: &Lab) -> anyhow::Result<()> {
    let gold = Load { from: Some("h1.prn"), to: Some("h1.lla"), classes: "gold", rate: 200, flows: 64 };
    let whole = crossing(&mesh::cycle(&lab.cli, 1)?)?;
    ensure!(whole["gold"] > 0, "no path uses {LINK}: {whole:?}");
    let traffic = Traffic::start(lab, &gold)?;
    let past = lab.events()?.len();
    let mut flapping = lab.cli.start(&[
        "link",
        "flap",
        LINK,
        "--period",
        &format!("{PERIOD_MS}ms"),
        "--count",
        &FLAPS.to_string(),
    ])?;
    let (mut used, mut damped) = (Vec::new(), BTreeMap::new());
    while flapping.runs() {
        let cuts = lab.events()?.iter().skip(past).filter(|e| e.kind == "link.cut").count();
        let through = crossing(&mesh::cycle(&lab.cli, 1)?)?.values().sum::<usize>();
        used.push((cuts, through));
        for (router, interface) in [("eb01.chi", "to-frc"), ("eb01.frc", "to-chi")] {
            let seen = neighbor(lab, router, interface)?;
            let longest = damped.entry(router).or_insert(0);
            *longest = if seen.state == "DAMPED" { seen.held_ms.max(*longest) } else { *longest };
        }
    }
    flapping.finish(Duration::from_secs(60))?.expect(0)?;
    let report = traffic.stop()?;
    let events: Vec<Event> = lab.events()?.into_iter().skip(past).collect();
    let cuts: Vec<u64> = events.iter().filter(|e| e.kind == "link.cut").map(|e| e.at_ns).collect();
    ensure!(cuts.len() == FLAPS, "{} cuts", cuts.len());
    // the second loss may meet paths that a cycle has just put back; from then on the link is held
    let held = cuts[1] + PERIOD_MS / 2 * 1_000_000;
    let late: Vec<&Event> = events.iter().filter(|e| is_repair(e) && e.at_ns > held).collect();
    let windows = report.streams.iter().flat_map(|s| &s.loss_windows);
    let lost_late: u64 = windows.filter(|w| w.start > held).map(|w| w.lost).sum();
    let repaired = events.iter().filter(|e| is_repair(e) && e.subject == "eb01.prn").count();
    note(format!(
        "{FLAPS} losses of {LINK}: {repaired} repairs at the source, {} of {} packets lost; (losses so far, LSPs across it) by cycle: {used:?}; held for {damped:?} ms",
        report.lost(),
        report.sent()
    ));
    ensure!(damped.values().all(|held| *held > 1_000), "both ends must hold the link: {damped:?}");
    ensure!(late.is_empty(), "the link was used and lost again: {late:?}");
    ensure!(lost_late == 0, "{lost_late} packets lost after the link was held:\n{}", report.losses());
    let while_held: Vec<_> = used.iter().filter(|(cuts, _)| *cuts >= 3).collect();
    ensure!(!while_held.is_empty(), "no cycle ran while the link was held: {used:?}");
    ensure!(while_held.iter().all(|(_, through)| *through == 0), "paths came back between losses: {used:?}");
    tests::wait_until(Duration::from_secs(60), "paths to use the link again", || {
        let now =
            mesh::cycle(&lab.cli, 1).and_then(|placed| crossing(&placed)).map_err(|e| format!("{e:#}"))?;
        if now == whole { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    lab.ready()?;
    Ok(())
}

/// LSPs of gold that cross the link at least while it is quick: of the four pairs that need it three, as measured times vary.
const GOLD_LEAST: usize = 48;

/// A neighbour as openr has it.
#[derive(Clone, Debug, Deserialize)]
struct Neighbor {
    interface: String,
    state: String,
    rtt_us: u64,
    held_ms: u64,
}

/// What openr of a router says of the neighbour behind an interface.
fn neighbor(lab: &Lab, router: &str, interface: &str) -> anyhow::Result<Neighbor> {
    let helper = lab.cli.bin().join("e2e-helper");
    let socket = format!("/run/testbed/{router}/openr.sock");
    let text = lab.cli.exec(router, &[helper.to_str().context("path")?, "neighbors", &socket])?;
    let all: Vec<Neighbor> = serde_json::from_str(&text)?;
    all.into_iter().find(|n| n.interface == interface).with_context(|| format!("no {interface} at {router}"))
}

/// The link's round-trip time in openr's words, milliseconds.
fn announced_ms(lab: &Lab) -> anyhow::Result<u64> {
    Ok(neighbor(lab, "eb01.chi", "to-frc")?.rtt_us / 1000)
}

/// Round-trip times of the link that openr at one end has announced so far, microseconds.
fn told_times(lab: &Lab) -> anyhow::Result<Vec<u64>> {
    let log = lab.cli.ok(&["logs", "eb01.chi/openr", "-n", "100000"])?;
    let ours = log.lines().filter(|l| l.contains("round-trip time changed") && l.contains("to-frc"));
    let number = |line: &str| -> Option<u64> {
        let digits: String = line.rsplit_once('=')?.1.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    ours.map(|line| number(line).with_context(|| format!("no time in {line:?}"))).collect()
}

/// How many of these are steps: changes by more than a tenth. Smaller ones are a busy machine's own.
fn steps(mut last: u64, told: &[u64]) -> usize {
    let mut count = 0;
    for now in told {
        count += usize::from(now.abs_diff(last) * 10 > last);
        last = *now;
    }
    count
}

/// Input: the lab with `delay: declared`, then with `delay: emulated`; the link's round-trip time raised from 10 to 40 ms.
/// Output: first refused, with a hint; then the routers notice, publish it once, and the next cycle takes gold off the
/// link; with the delay cleared gold comes back.
pub fn o8_round_trip_time(lab: &Lab) -> anyhow::Result<()> {
    let refused = lab.cli.run(&["link", "delay", LINK, "40ms"])?;
    ensure!(refused.code == 1 && refused.stderr.contains("delay: emulated"), "{refused:?}");
    let file = edits::edited(lab, "delay: declared", "delay: emulated")?.to_string_lossy().into_owned();
    edits::up(lab, &file)?;
    lab.ready()?;
    let gold = |placed: &Cycle| -> Result<usize, String> {
        Ok(crossing(placed).map_err(|e| e.to_string())?.get("gold").copied().unwrap_or(0))
    };
    let cycle = || mesh::cycle(&lab.cli, 1).map_err(|e| format!("{e:#}"));
    let whole = tests::wait_until(Duration::from_secs(120), "gold across the link", || {
        let now = gold(&cycle()?)?;
        if now >= GOLD_LEAST { Ok(now) } else { Err(format!("{now} LSPs of gold across {LINK}")) }
    })?;
    let (before_ms, told) = (announced_ms(lab)?, told_times(lab)?);
    lab.cli.ok(&["link", "delay", LINK, "40ms"])?;
    let shown = lab.cli.ok(&["link", "show", LINK])?;
    ensure!(shown.contains("rtt 40ms"), "{shown}");
    let after_ms = tests::wait_until(Duration::from_secs(300), "the step to be noticed", || {
        let now = announced_ms(lab).map_err(|e| format!("{e:#}"))?;
        if now >= 35 { Ok(now) } else { Err(format!("{now} ms")) }
    })?;
    let moved = gold(&mesh::cycle(&lab.cli, 1)?).map_err(anyhow::Error::msg)?;
    let told: Vec<u64> = told_times(lab)?.split_off(told.len());
    let steps = steps(before_ms * 1000, &told);
    note(format!(
        "{LINK} from {before_ms} to {after_ms} ms, told {told:?} us; gold LSPs across it {whole}, then {moved}"
    ));
    ensure!(moved == 0, "gold stays on a link that is three times as long");
    ensure!(steps == 1, "one step was published as {steps}: {told:?}");
    let model = Model::new(&lab.status()?, 1)?;
    let bundle_ids = (model.id("atn")?, model.id("frc")?);
    let placed = mesh::cycle(&lab.cli, 1)?;
    let direct = placed.bundle(bundle_ids.0, bundle_ids.1, Mesh::Gold)?;
    ensure!(direct.lsps.iter().all(|l| l.primary.hops.len() == 1), "the chord of 24 ms is the quickest now");
    lab.cli.ok(&["link", "delay", LINK, "--clear"])?;
    tests::wait_until(Duration::from_secs(300), "gold to come back", || {
        let now = gold(&cycle()?)?;
        if now >= GOLD_LEAST { Ok(()) } else { Err(format!("{now}")) }
    })?;
    edits::up(lab, "ebb-small")?;
    lab.ready()?;
    Ok(())
}

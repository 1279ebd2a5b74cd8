//! Several controllers a plane, with etcd as their lock: whoever leads is killed, stopped, cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use router_emu::label::Sid;
use serde::Deserialize;
use tests::traffic::{Load, Traffic};
use tests::{Lab, mesh, note, wait_until};

use crate::edits::{edited, up};
use crate::programming::held;

/// Six controllers a plane, three members of etcd; the leaders program all the time.
const REPLICAS: &str = "controllers: {replicas: 6, lock: etcd}\nte:\n  reprogram: always\n  cycle: 1s\n";
/// Longest wait for the next leader: a lease of six seconds, a slow machine.
const TAKE_OVER: Duration = Duration::from_secs(60);
/// Kills until one hits a leader that writes.
const TRIES: usize = 6;

/// Runs a test on the shared lab with replicas, and makes the lab what it was.
fn with_replicas(lab: &Lab, test: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let file = edited(lab, "te:\n  cycle: 5s\n", REPLICAS)?;
    let began = Instant::now();
    let done = up(lab, &file.to_string_lossy())?;
    ensure!(done.kernel_actions == 0, "replicas led to {} kernel actions", done.kernel_actions);
    note(format!("12 controllers and 3 members of etcd after {:.1} s", began.elapsed().as_secs_f64()));
    let result = test();
    let back = up(lab, "ebb-small");
    result?;
    back.map(drop)
}

/// The leader of plane 1: host and program.
fn leader(lab: &Lab) -> anyhow::Result<(String, String)> {
    let name = wait_until(TAKE_OVER, "a leader of plane 1", || {
        let status = lab.status().map_err(|e| format!("{e:#}"))?;
        let plane = status.plane(1).map_err(|e| e.to_string())?;
        plane.controllers.leader.clone().ok_or_else(|| "nobody leads".to_owned())
    })?;
    let (host, program) = name.split_once('/').with_context(|| format!("leader {name}"))?;
    Ok((host.to_owned(), program.to_owned()))
}

/// The leader of plane 1 and its epoch, from the same answer: on a machine that is too slow for its leases the lead wanders.
fn leading(lab: &Lab) -> anyhow::Result<((String, String), u64)> {
    let cycle = mesh::cycle(&lab.cli, 1)?;
    let (host, program) = cycle.leader.split_once('/').with_context(|| format!("leader {}", cycle.leader))?;
    Ok(((host.to_owned(), program.to_owned()), cycle.epoch))
}

/// Waits for a leader that is not `old`.
fn next_leader(lab: &Lab, old: &(String, String)) -> anyhow::Result<(String, String)> {
    wait_until(TAKE_OVER, "another leader", || {
        let now = leader(lab).map_err(|e| format!("{e:#}"))?;
        if now == *old { Err(format!("{now:?} leads")) } else { Ok(now) }
    })
}

fn routers(lab: &Lab) -> anyhow::Result<Vec<String>> {
    Ok(lab.status()?.of_role("router").into_iter().filter(|r| r.starts_with("eb01.")).collect())
}

/// Highest epoch that any lsp-agent of plane 1 has seen.
fn epoch(lab: &Lab) -> anyhow::Result<u64> {
    let epochs =
        routers(lab)?.iter().map(|router| Ok(held(lab, router)?.epoch)).collect::<anyhow::Result<Vec<_>>>();
    Ok(epochs?.into_iter().max().unwrap_or(0))
}

/// Bundles of which routers of plane 1 hold both versions: the leader was writing.
fn half_written(lab: &Lab) -> anyhow::Result<usize> {
    let mut versions: BTreeMap<Sid, BTreeSet<bool>> = BTreeMap::new();
    for router in routers(lab)? {
        for sid in held(lab, &router)?.bundles.iter().filter_map(|b| Sid::decode(b.sid)) {
            versions.entry(sid.bundle()).or_default().insert(sid.version);
        }
    }
    Ok(versions.values().filter(|v| v.len() == 2).count())
}

/// An event that an lsp-agent remembers.
#[derive(Debug, Deserialize)]
struct Remembered {
    kind: String,
    detail: String,
}

/// The epochs of all writes that the agents of plane 1 took, in the order of each: they may only rise.
fn rising_epochs(lab: &Lab) -> anyhow::Result<BTreeSet<u64>> {
    let helper = lab.cli.bin().join("e2e-helper");
    let helper = helper.to_str().context("path")?;
    let mut all = BTreeSet::new();
    for router in routers(lab)? {
        let socket = format!("/run/testbed/{router}/lsp-agent.sock");
        let text = lab.cli.exec(&router, &[helper, "events", &socket])?;
        let events: Vec<Remembered> = serde_json::from_str(&text)?;
        let mut last = 0;
        for event in events.iter().filter(|e| e.kind == "programmed") {
            let epoch = event.detail.split(" of epoch ").nth(1).and_then(|rest| rest.split(':').next());
            let epoch: u64 = epoch.and_then(|e| e.parse().ok()).with_context(|| event.detail.clone())?;
            ensure!(epoch >= last, "{router} took a write of epoch {epoch} after one of {last}");
            last = epoch;
            all.insert(epoch);
        }
    }
    Ok(all)
}

/// The controller's log since its last line with `since`.
fn log_since(lab: &Lab, controller: &(String, String), since: &str) -> anyhow::Result<Vec<String>> {
    let text = lab.cli.ok(&["logs", &format!("{}/{}", controller.0, controller.1), "-n", "400"])?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let from = lines.iter().rposition(|line| line.contains(since));
    let from = from.with_context(|| format!("{controller:?} never said {since:?}"))?;
    Ok(lines[from..].to_vec())
}

/// Input: the leader of six killed, while it programs everything once a second and all pairs send; again, until a kill has left
/// bundles half written.
/// Output: another replica takes the lock; the writes that agents take have rising epochs; the new leader's first cycle
/// programs every pair; nothing is lost.
pub fn p3_leader_dies_while_it_writes(lab: &Lab) -> anyhow::Result<()> {
    with_replicas(lab, || {
        let traffic = Traffic::start(lab, &Load::ALL)?;
        let mut half = 0;
        for attempt in 1..=TRIES {
            let (old, before) = leading(lab)?;
            lab.cli.ok(&["program", "kill", &old.1, &old.0])?;
            let died = Instant::now();
            // what it left, before the lease of the dead lets anybody else write; and down it stays
            lab.cli.ok(&["program", "stop", &old.1, &old.0])?;
            half = half_written(lab)?;
            let new = next_leader(lab, &old)?;
            let took = died.elapsed();
            let cycle = mesh::cycle(&lab.cli, 1)?;
            ensure!(cycle.epoch > before, "epoch {} after {before}", cycle.epoch);
            let first = log_since(lab, &new, " leading ")?;
            let first =
                first.iter().find(|line| line.contains(" cycle cycle=")).context("no cycle in its log")?;
            ensure!(first.contains(" failed=0 "), "the first cycle of {new:?}: {first}");
            note(format!(
                "try {attempt}: {half} bundles half written by {}, {} leads after {:.1} s, epoch {before} then {}",
                old.1,
                new.1,
                took.as_secs_f64(),
                cycle.epoch
            ));
            lab.cli.ok(&["program", "resume", &old.1, &old.0])?;
            if half > 0 {
                break;
            }
        }
        ensure!(half > 0, "{TRIES} kills, and no leader was writing");
        let epochs = rising_epochs(lab)?;
        ensure!(epochs.len() > 1, "the agents remember one epoch only: {epochs:?}");
        let report = traffic.stop_lossless("the death of the leader while it wrote")?;
        note(format!("{} packets, 0 lost; epochs of writes {epochs:?}", report.sent()));
        Ok(())
    })
}

/// Input: the leader stopped (SIGSTOP) past its lease and continued; then its successor cut off from etcd, not from the
/// agents; then a write with the first one's epoch; all pairs send meanwhile.
/// Output: each time another one takes over, and the old one stands down by itself; agents took no write of an old epoch
/// after one of a new; the stale write is refused, and told as an event; nothing is lost.
pub fn p5_stale_leader(lab: &Lab) -> anyhow::Result<()> {
    with_replicas(lab, || {
        let traffic = Traffic::start(lab, &Load::ALL)?;
        let (first, stale) = leading(lab)?;
        lab.cli.ok(&["program", "pause", &first.1, &first.0])?;
        let began = Instant::now();
        ensure!(lab.status()?.program(&first.0, &first.1)?.state == "paused", "it is not paused");
        let second = next_leader(lab, &first)?;
        written_above(lab, stale)?;
        note(format!("{} stopped; {} leads after {:.1} s", first.1, second.1, began.elapsed().as_secs_f64()));
        lab.cli.ok(&["program", "continue", &first.1, &first.0])?;
        stood_down(lab, &first)?;

        let (second, before) = leading(lab)?;
        etcd_reachable(lab, &second.0, false)?;
        let began = Instant::now();
        let third = next_leader(lab, &second);
        let seen = third.and_then(|third| {
            written_above(lab, before)?;
            stood_down(lab, &second)?;
            Ok(third)
        });
        etcd_reachable(lab, &second.0, true)?;
        let third = seen?;
        note(format!("{} cut off; {} leads after {:.1} s", second.1, third.1, began.elapsed().as_secs_f64()));

        refused(lab, stale)?;
        let epochs = rising_epochs(lab)?;
        let report = traffic.stop_lossless("two leaders that lost their lease")?;
        note(format!("{} packets, 0 lost; epochs of writes {epochs:?}", report.sent()));
        Ok(())
    })
}

/// Waits until agents have taken a write of a higher epoch.
fn written_above(lab: &Lab, before: u64) -> anyhow::Result<()> {
    wait_until(TAKE_OVER, "a write of the new leader", || {
        let now = epoch(lab).map_err(|e| format!("{e:#}"))?;
        if now > before { Ok(()) } else { Err(format!("epoch {now}")) }
    })
}

/// Waits until a controller has said that it does not lead any more, and stands by.
fn stood_down(lab: &Lab, controller: &(String, String)) -> anyhow::Result<()> {
    let said = wait_until(TAKE_OVER, "the old leader to stand down", || {
        let lines = log_since(lab, controller, " leading ").map_err(|e| format!("{e:#}"))?;
        let down = lines.iter().find(|line| line.contains("not leading any more"));
        down.cloned().ok_or_else(|| lines.last().cloned().unwrap_or_default())
    })?;
    note(said.trim());
    Ok(())
}

/// Lets a host reach etcd's ports on other hosts, and be reached there, or not.
fn etcd_reachable(lab: &Lab, host: &str, reachable: bool) -> anyhow::Result<()> {
    let verb = if reachable { "del" } else { "add" };
    for port in ["2379", "2380"] {
        for side in ["sport", "dport"] {
            let rule =
                ["ip", "-6", "rule", verb, "priority", "10", "ipproto", "tcp", side, port, "blackhole"];
            lab.cli.exec(host, &rule)?;
        }
    }
    Ok(())
}

/// An agent refuses a write of an epoch of the past, and tells it as an event.
fn refused(lab: &Lab, epoch: u64) -> anyhow::Result<()> {
    let helper = lab.cli.bin().join("e2e-helper");
    let socket = "/run/testbed/eb01.prn/lsp-agent.sock";
    let said =
        lab.cli.exec("eb01.prn", &[helper.to_str().context("path")?, "stale", socket, &epoch.to_string()])?;
    note(said.trim());
    ensure!(said.starts_with("FailedPrecondition: epoch "), "a write of epoch {epoch}: {said}");
    wait_until(Duration::from_secs(20), "the refusal as an event", || {
        let events = lab.events().map_err(|e| format!("{e:#}"))?;
        let told = events.iter().any(|e| {
            e.kind == "lsp.fenced" && e.subject == "eb01.prn" && e.detail.contains("a leader of the past")
        });
        if told { Ok(()) } else { Err(format!("{} events, none of them this", events.len())) }
    })
}

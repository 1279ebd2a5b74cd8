//! What can be broken on purpose beyond cut links: links that harm packets, nodes without power, programs that die whenever
//! they run, connections of controllers, kernel state that disappears.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::documents::{Event, ProbeReport};
use tests::traffic::{Load, lossless};
use tests::{Lab, kernel, note, wait_until};

use crate::edits;

/// The link of which the core's part is told.
const LINK: &str = "eb01.atn--eb01.prn";
/// The router that crashes.
const ROUTER: &str = "eb01.frc";

/// Lost in percent of what was sent.
fn percent(report: &ProbeReport) -> u64 {
    report.lost() * 100 / report.sent().max(1)
}

/// Gold between two hosts, in one direction.
fn gold<'a>(from: &'a str, to: &'a str) -> Load<'a> {
    Load { from: Some(from), to: Some(to), classes: "gold", rate: 400, flows: 64 }
}

/// Waits for an event of this kind and subject after so many.
fn told(lab: &Lab, past: usize, kind: &str, subject: &str) -> anyhow::Result<Event> {
    wait_until(Duration::from_secs(20), &format!("event {kind} of {subject}"), || {
        let events = lab.events().map_err(|e| format!("{e:#}"))?;
        let found = events.iter().skip(past).find(|e| e.kind == kind && e.subject == subject).cloned();
        found.ok_or_else(|| format!("{:?}", events.last()))
    })
}

/// A command that has to be refused with this exit code, with `says` in its message.
fn refused(lab: &Lab, code: i32, says: &str, words: &[&str]) -> anyhow::Result<()> {
    let output = lab.cli.run(words)?;
    let whole = output.code == code && output.stderr.contains(says);
    ensure!(whole, "{words:?} was to end with {code} and say {says:?}: {output:?}");
    Ok(())
}

/// Input: impairments that make no sense; then a host's link that loses a quarter of what the host sends, and a backbone link
/// that loses and delays in one direction.
/// Output: exit code 2 and nothing changed; loss about right in that direction and none in the other; status, link show and
/// events tell of it; after `link restore all` nothing is lost, and `up` has nothing to do.
pub fn impaired_links(lab: &Lab) -> anyhow::Result<()> {
    refused(lab, 2, "does nothing", &["link", "impair", LINK])?;
    refused(lab, 2, "is at no end", &["link", "impair", LINK, "--loss", "5%", "--from", "eb01.chi"])?;
    refused(lab, 2, "overtake", &["link", "impair", LINK, "--reorder", "5%"])?;
    refused(lab, 2, "only 400G", &["link", "impair", LINK, "--rate", "1T"])?;
    refused(lab, 2, "has no unit", &["link", "impair", LINK, "--loss", "5"])?;
    refused(lab, 2, "more than all", &["link", "impair", LINK, "--loss", "101%"])?;
    ensure!(lab.status()?.links.iter().all(|l| l.faults.is_empty()), "a refused command left a fault");

    let past = lab.events()?.len();
    let access = "fa.prn--h1.prn";
    lab.cli.ok(&["link", "impair", access, "--from", "h1.prn", "--loss", "25%"])?;
    let there = gold("h1.prn", "h1.lla").send(&lab.cli, 3.0)?;
    note(format!("a quarter lost from h1.prn: {} of {}", there.lost(), there.sent()));
    ensure!((20..=30).contains(&percent(&there)), "{} of {} lost", there.lost(), there.sent());
    lossless(&gold("h1.lla", "h1.prn").send(&lab.cli, 2.0)?, "the other direction of an impaired link")?;
    let event = told(lab, past, "link.impaired", access)?;
    ensure!(event.detail.contains("loss 25% from h1.prn"), "{event:?}");

    let harm = ["--loss", "10%", "--delay", "30ms", "--jitter", "2ms"];
    lab.cli.ok(&[&["link", "impair", LINK, "--from", "eb01.prn"][..], &harm].concat())?;
    let shown = lab.cli.ok(&["link", "show", LINK])?;
    ensure!(shown.contains("loss 10% delay 30ms jitter 2ms from eb01.prn"), "{shown}");
    ensure!(lab.cli.ok(&["status"])?.contains("2 impaired"), "status does not count impaired links");
    ensure!(edits::up(lab, "ebb-small")?.kernel_actions == 0, "`up` undid or redid an impairment");
    lab.cli.ok(&["link", "restore", access])?;
    // one plane of two takes the direct link
    let there = gold("h1.prn", "h1.atn").send(&lab.cli, 3.0)?;
    note(format!("a tenth lost on one plane's link: {} of {}", there.lost(), there.sent()));
    ensure!((1..=9).contains(&percent(&there)), "{} of {} lost", there.lost(), there.sent());
    lossless(&gold("h1.atn", "h1.prn").send(&lab.cli, 2.0)?, "the other direction of a core link")?;

    lab.cli.ok(&["link", "restore", "all"])?;
    lossless(&gold("h1.prn", "h1.atn").send(&lab.cli, 2.0)?, "the time after the restore")?;
    let up = edits::up(lab, "ebb-small")?;
    ensure!(up.kernel_actions == 0, "after the restore `up` had {} things to do", up.kernel_actions);
    Ok(())
}

/// Input: a router of plane 1 loses power; `plan` without an edit meanwhile; it boots.
/// Output: programs, carriers at both ends and what agents had put into its kernel are gone; status says so; `up` would leave
/// it so; after the boot the lab is as before and loses nothing.
pub fn node_crash(lab: &Lab) -> anyhow::Result<()> {
    let ours = |what: &[&str]| lab.cli.exec(ROUTER, what);
    let agents = ["ip", "-6", "route", "show", "table", "all", "proto", "201"];
    ensure!(!ours(&agents)?.trim().is_empty(), "{ROUTER} has no routes of agents to lose");
    let past = lab.events()?.len();
    lab.cli.ok(&["node", "crash", ROUTER])?;
    told(lab, past, "node.crashed", ROUTER)?;
    let status = lab.status()?;
    let node = status.nodes.iter().find(|n| n.name == ROUTER).context("the router")?;
    ensure!(node.state == "crashed", "{node:?}");
    let programs: Vec<_> = status.programs.iter().filter(|p| p.node == ROUTER).collect();
    ensure!(programs.iter().all(|p| p.state == "crashed" && p.pid.is_none()), "{programs:?}");
    let links: Vec<_> = status.links.iter().filter(|l| l.name.contains(ROUTER)).collect();
    ensure!(links.len() > 2 && links.iter().all(|l| l.state == "down"), "{links:?}");
    let carrier = lab.cli.exec("eb01.chi", &["cat", "/sys/class/net/to-frc/carrier"])?;
    ensure!(carrier.trim() == "0", "the neighbour still has a carrier: {carrier}");
    for what in
        [&agents[..], &["ip", "nexthop", "show"], &["ip", "-f", "mpls", "route", "show", "proto", "201"]]
    {
        let left = ours(what)?;
        ensure!(left.trim().is_empty(), "left after a loss of power: {what:?}: {left}");
    }
    let shown = lab.cli.run(&["status"])?.expect(1)?;
    ensure!(shown.contains(&format!("crashed: {ROUTER}")), "status does not name it: {shown}");
    refused(lab, 1, "has crashed", &["program", "resume", "bird", ROUTER])?;
    let plan: Value = lab.cli.json(&["plan", "ebb-small"])?;
    let idle = |list: &Value| list.as_array().is_some_and(Vec::is_empty);
    ensure!(
        idle(&plan["plan"]["actions"]) && idle(&plan["programs"]),
        "`up` would touch a crashed node: {plan}"
    );

    lab.cli.ok(&["node", "restore", ROUTER])?;
    lab.ready()?;
    ensure!(!ours(&agents)?.trim().is_empty(), "{ROUTER} has no routes of agents after its boot");
    lossless(&Load::ALL.send(&lab.cli, 2.0)?, "the time after a boot")?;
    Ok(())
}

/// Input: a route-agent in a crash loop; resumed.
/// Output: it dies whenever it is started, which status calls a crash loop; after `program resume` it runs.
pub fn crash_loop(lab: &Lab) -> anyhow::Result<()> {
    let before = lab.status()?.program("eb02.lla", "route-agent")?.restarts;
    lab.cli.ok(&["program", "crash-loop", "route-agent", "eb02.lla"])?;
    lab.until(Duration::from_secs(30), "three deaths", |s| {
        let program = s.program("eb02.lla", "route-agent").map_err(|e| e.to_string())?;
        let dies = program.state == "crash-loop" || program.state == "running";
        if dies && program.restarts >= before + 3 { Ok(()) } else { Err(format!("{program:?}")) }
    })?;
    lab.cli.ok(&["program", "resume", "route-agent", "eb02.lla"])?;
    lab.ready()?;
    Ok(())
}

/// Runs a cycle of plane 1 and gives a number of its result.
fn cycle(lab: &Lab, field: &str) -> anyhow::Result<u64> {
    let document: Value = lab.cli.json(&["cycle", "1"])?;
    document[field].as_u64().with_context(|| format!("no {field} in {document}"))
}

/// Input: the connections of plane 1's controller to the agents of one router late, refused and cut, while it holds them open.
/// Output: cycles are late, or fail for pairs of that router, at once; nothing else of that host is touched and no packet is
/// lost; once they are mended cycles are as before.
pub fn control_channel(lab: &Lab) -> anyhow::Result<()> {
    let (host, _) = lab.controller(1)?;
    refused(lab, 2, "is no host", &["rpc", "cut", "--from", "eb01.prn", "--to", "eb01.lla"])?;
    refused(
        lab,
        2,
        "answers calls",
        &["rpc", "cut", "--from", &host, "--to", "eb01.lla", "--program", "bird"],
    )?;
    let usual = cycle(lab, "snapshot_us")?;
    let path = ["--from", host.as_str(), "--to", "eb01.lla"];
    let past = lab.events()?.len();
    let subject = format!("{host} > eb01.lla");

    lab.cli.ok(&[&["rpc", "delay", "--delay", "400ms"][..], &path].concat())?;
    told(lab, past, "rpc.delayed", &subject)?;
    let late = cycle(lab, "snapshot_us")?;
    note(format!("snapshot of a cycle: {usual} us, with calls late by 400 ms {late} us"));
    ensure!(late >= 400_000, "a cycle took {late} us");
    let ping = lab.cli.exec(&host, &["ping", "-c1", "-W2", "eb01.lla"])?;
    let time =
        ping.split("time=").nth(1).and_then(|t| t.split(' ').next()).and_then(|t| t.parse::<f64>().ok());
    ensure!(time.is_some_and(|ms| ms < 300.0), "what is no call is late, too: {ping}");
    let shown = lab.status()?.rpc;
    ensure!(
        shown.len() == 5 && shown.iter().all(|r| r.state == "delay 400ms" && r.to == "eb01.lla"),
        "{shown:?}"
    );

    for (verb, state) in [("refuse", "refused"), ("cut", "cut")] {
        lab.cli.ok(&[&["rpc", verb][..], &path].concat())?;
        let failed = cycle(lab, "pairs_failed")?;
        note(format!("calls {state}: {failed} pairs failed"));
        ensure!(failed > 0, "a cycle whose calls are {state} missed nothing");
        ensure!(lab.status()?.rpc.iter().all(|r| r.state == state), "status: {:?}", lab.status()?.rpc);
        lab.cli.exec(&host, &["ping", "-c1", "-W2", "eb01.lla"])?;
    }
    lossless(&gold("h1.prn", "h1.lla").send(&lab.cli, 2.0)?, "a partition of the control channel")?;
    ensure!(edits::up(lab, "ebb-small")?.kernel_actions == 0, "`up` undid a partition");
    lab.cli.ok(&["rpc", "restore"])?;
    ensure!(lab.status()?.rpc.is_empty(), "{:?}", lab.status()?.rpc);
    wait_until(Duration::from_secs(60), "a cycle in which no pair fails", || {
        match cycle(lab, "pairs_failed") {
            Ok(0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    Ok(())
}

/// Input: the queues of an interface, and a nexthop group, deleted behind everybody's back.
/// Output: what was deleted is said, and gone; `up` puts the queues back; an lsp-agent that starts again puts the group back.
pub fn kernel_state(lab: &Lab) -> anyhow::Result<()> {
    let said = lab.cli.ok(&["kernel", "delete", "eb01.prn", "queue", "--which", "to-atn"])?;
    ensure!(said.contains("deleted queue of to-atn"), "{said}");
    let up = edits::up(lab, "ebb-small")?;
    ensure!(up.kernel_actions == 1, "`up` had {} things to do for one queue", up.kernel_actions);

    let before = kernel::nexthops(&lab.cli, "eb01.prn")?;
    let past = lab.events()?.len();
    let said = lab.cli.ok(&["kernel", "delete", "eb01.prn", "group", "--seed", "7"])?;
    let event = told(lab, past, "kernel.deleted", "eb01.prn")?;
    ensure!(said.contains(&event.detail), "{said} {event:?}");
    let id = event.detail.split(' ').nth(1).context("an id")?.parse::<u32>()?;
    ensure!(before[&id].group.len() > 1, "{id} was no group");
    lab.cli.ok(&["program", "restart", "lsp-agent", "eb01.prn"])?;
    lab.cli.ok(&["program", "restart", "route-agent", "eb01.prn"])?;
    wait_until(Duration::from_secs(60), "the group to be back", || {
        let now = kernel::nexthops(&lab.cli, "eb01.prn").map_err(|e| format!("{e:#}"))?;
        now.contains_key(&id).then_some(()).ok_or_else(|| format!("{} next hops, no {id}", now.len()))
    })?;
    refused(lab, 2, "nothing of the kind", &["kernel", "delete", "h1.prn", "group"])?;
    Ok(())
}

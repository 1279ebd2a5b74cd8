//! Configurations of routers: pushed, confirmed, taken back; and what happens when a bad one goes everywhere.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::documents::Up;
use tests::traffic::{Load, Traffic};
use tests::{Lab, mesh, note, wait_until};

/// What routers say of their configurations.
fn routers(lab: &Lab, words: &[&str]) -> anyhow::Result<Vec<Value>> {
    let output = lab.cli.run(&[&["--format", "json", "config"], words].concat())?.expect(0)?;
    let document: Value = serde_json::from_str(&output)?;
    ensure!(document["version"] == 1 && document["lab"] == "ebb-small", "{document}");
    Ok(document["routers"].as_array().context("routers")?.clone())
}

fn one(lab: &Lab, words: &[&str]) -> anyhow::Result<Value> {
    routers(lab, words)?.pop().context("a router")
}

/// Capacity that the plane's controller sees of a link in one direction, bit/s, as the routers announce it.
pub fn announced(lab: &Lab, router: &str, interface: &str) -> anyhow::Result<u64> {
    let helper = lab.cli.bin().join("e2e-helper");
    let socket = format!("/run/testbed/{router}/openr.sock");
    let text = lab.cli.exec(router, &[helper.to_str().context("path")?, "adjacencies", &socket, router])?;
    let list: Vec<Value> = serde_json::from_str(&text)?;
    let found = list.iter().find(|a| a["interface"] == interface).and_then(|a| a["capacity_bps"].as_u64());
    found.with_context(|| format!("{router} does not announce {interface}: {text}"))
}

/// Input: under traffic of all pairs, a router's link gets half its capacity by a pushed configuration; wrong ones; the
/// config-agent killed; `up` without an edit; a roll-back.
/// Output: openr announces it without a restart, and nothing is lost; wrong ones are refused by the field's name with exit
/// code 2 and change nothing; the version survives the kill; `up` changes nothing; the roll-back is announced.
pub fn config_push_and_rollback(lab: &Lab) -> anyhow::Result<()> {
    let before = one(lab, &["show", "eb01.prn"])?;
    let version = before["running"].as_u64().context("a version")?;
    let pid = |lab: &Lab| anyhow::Ok(lab.status()?.program("eb01.prn", "openr")?.pid);
    let openr = pid(lab)?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let set = "interfaces.to-lla.capacity=200G";
    let pushed = one(lab, &["push", "eb01.prn", "--set", set, "--comment", "half of it is broken"])?;
    ensure!(pushed["running"] == version + 1 && pushed["settled"] == true, "{pushed}");
    ensure!(announced(lab, "eb01.prn", "to-lla")? == 200_000_000_000, "not announced");
    for (wrong, words) in [
        ("site=9", "eb01.prn: site: cannot change while the router runs"),
        ("interfaces.to-lla.capacity_bps=many", "eb01.prn: interfaces.to-lla.capacity_bps: invalid type"),
        ("interfaces.to-xxx.enabled=false", "there is no to-xxx; there are"),
        ("openr.bfd.multiplier=1", "openr.bfd.multiplier: 1 is not from 3 to 50"),
    ] {
        let output = lab.cli.run(&["config", "push", "eb01.prn", "--set", wrong])?;
        ensure!(output.code == 2 && output.stderr.contains(words), "{wrong}: {output:?}");
    }
    lab.cli.ok(&["program", "kill", "config-agent", "eb01.prn"])?;
    lab.ready()?;
    let killed = one(lab, &["show", "eb01.prn"])?;
    ensure!(
        killed["running"] == version + 1 && killed["config"] == pushed["config"],
        "version {} was pushed; after the config-agent was killed it is {killed}",
        version + 1
    );
    let again: Up = lab.cli.json(&["up", "ebb-small"])?;
    ensure!(again.kernel_actions == 0 && again.program_changes.is_empty(), "`up` changed {again:?}");
    ensure!(announced(lab, "eb01.prn", "to-lla")? == 200_000_000_000, "`up` took it back");
    let back = one(lab, &["rollback", "eb01.prn"])?;
    ensure!(back["running"] == version && back["config"] == before["config"], "{back}");
    ensure!(announced(lab, "eb01.prn", "to-lla")? == 400_000_000_000, "the roll-back is not announced");
    ensure!(pid(lab)? == openr, "openr was restarted");
    let history = lab.cli.ok(&["config", "history", "eb01.prn"])?;
    ensure!(history.contains("half of it is broken") && history.contains("rolled back"), "{history}");
    let report = traffic.stop_lossless("a pushed capacity and its roll-back")?;
    note(format!("{} packets, 0 lost", report.sent()));
    Ok(())
}

/// Input: a configuration that shuts a link is pushed, to be confirmed within seconds, and the config-agent killed at once;
/// nobody confirms.
/// Output: the link is shut, `status` and `plan` say so and `up` leaves it shut; after the time the router opens it again by
/// itself, everything is as before, and the events tell it.
pub fn config_unconfirmed(lab: &Lab) -> anyhow::Result<()> {
    let link = "eb01.chi--eb01.frc";
    let state = |lab: &Lab| -> anyhow::Result<String> {
        let status = lab.status()?;
        let found = status.links.iter().find(|l| l.name == link).context("the link")?;
        Ok(found.state.clone())
    };
    let version = one(lab, &["show", "eb01.chi"])?["running"].clone();
    let set = ["push", "eb01.chi", "--set", "interfaces.to-frc.enabled=false"];
    let pushed = one(lab, &[&set[..], &["--confirm-within", "20"]].concat())?;
    ensure!(pushed["unconfirmed"] == pushed["running"] && pushed["shut"][0] == "to-frc", "{pushed}");
    lab.cli.ok(&["program", "kill", "config-agent", "eb01.chi"])?;
    ensure!(state(lab)? == "shut", "status says that the link is {}", state(lab)?);
    let plan = lab.cli.ok(&["plan", "ebb-small"])?;
    ensure!(!plan.contains("to-frc"), "`up` would open what the router keeps shut:\n{plan}");
    wait_until(Duration::from_secs(60), "the router to go back by itself", || {
        let state = state(lab).map_err(|e| format!("{e:#}"))?;
        if state == "up" { Ok(()) } else { Err(state) }
    })?;
    lab.ready()?;
    let after = one(lab, &["show", "eb01.chi"])?;
    ensure!(after["running"] == version && after["unconfirmed"].is_null(), "{after}");
    wait_until(Duration::from_secs(30), "the wire to be put in order", || {
        let plan = lab.cli.ok(&["plan", "ebb-small"]).map_err(|e| format!("{e:#}"))?;
        if plan.contains("to-frc") { Err(plan) } else { Ok(()) }
    })?;
    let events = lab.events()?;
    for kind in ["config.pushed", "config.expired", "config.interface"] {
        ensure!(events.iter().any(|e| e.kind == kind && e.subject == "eb01.chi"), "no event {kind}");
    }
    Ok(())
}

/// A change that closes every backbone interface of every router that gets it.
const BAD: &str = "interfaces.*.enabled=false";

/// Rolls the bad change out; the document with how it ended.
fn roll_out(lab: &Lab, more: &[&str]) -> anyhow::Result<Value> {
    let words = ["--format", "json", "config", "rollout", "all", "--set", BAD, "--soak", "5"];
    let output = lab.cli.run(&[&words[..], more].concat())?.expect(1)?;
    let end: Value = serde_json::from_str(&output)?;
    ensure!(end["outcome"] == "rolled-back", "{end}");
    // both times are told, and in this order
    let told = ["detected_ms", "undone_ms", "recovered_ms"].map(|time| end[time].as_u64());
    ensure!(told[0] > Some(0) && told[0] <= told[1] && told[1] <= told[2], "{end}");
    note(end["detail"].as_str().unwrap_or_default());
    Ok(end)
}

/// Every router runs what it ran before, and nothing waits.
fn as_before(lab: &Lab, before: &[Value]) -> anyhow::Result<()> {
    for (old, new) in before.iter().zip(routers(lab, &["show", "all"])?) {
        ensure!(new["running"] == old["running"] && new["unconfirmed"].is_null(), "{old}\n{new}");
    }
    Ok(())
}

/// Input: all pairs send; a configuration that closes all backbone interfaces is rolled out, plane by plane.
/// Output: the canary's plane dies and is rolled back, with both times told; the other plane never sees it and carries all
/// the time.
pub fn o4_canary(lab: &Lab) -> anyhow::Result<()> {
    let before = routers(lab, &["show", "all"])?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    roll_out(lab, &[])?;
    as_before(lab, &before)?;
    for router in routers(lab, &["history", "plane:2"])? {
        let history = router["history"].as_array().context("history")?;
        let seen = history.iter().any(|v| v["writer"].as_str().is_some_and(|w| w.starts_with("ebb-rollout")));
        ensure!(!seen, "{} of plane 2 has seen what was meant for the canary", router["node"]);
    }
    lab.ready()?;
    let report = traffic.stop()?;
    note(format!("{} of {} packets lost, all in plane 1", report.lost(), report.sent()));
    // half of the flows were in plane 1 when it died
    ensure!(report.lost() > 0 && report.lost() * 2 < report.sent(), "{}", report.losses());
    Ok(())
}

/// Input: all pairs send; the same is rolled out to all planes at once.
/// Output: traffic dies everywhere and the pusher reaches only the routers beside it; it is detected and undone without
/// anybody's help; both times are told, as events too; afterwards nothing is lost.
pub fn o4_bad_config_everywhere(lab: &Lab) -> anyhow::Result<()> {
    let before = routers(lab, &["show", "all"])?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let end = roll_out(lab, &["--no-canary"])?;
    as_before(lab, &before)?;
    let report = traffic.stop()?;
    let longest = report
        .streams
        .iter()
        .map(|s| s.loss_windows.iter().map(|w| w.ms).fold(0.0, f64::max))
        .fold(f64::INFINITY, f64::min);
    note(format!("every stream was dead for {:.1} s at least", longest / 1000.0));
    ensure!(longest > 1000.0, "there was a stream that lost next to nothing:\n{}", report.losses());
    let events = lab.events()?;
    let kinds: Vec<&str> =
        events.iter().rev().filter_map(|e| e.kind.strip_prefix("rollout.")).take(5).collect();
    ensure!(kinds == ["end", "recovered", "undone", "alarm", "pushed"], "events: {kinds:?}");
    ensure!(end["detected_ms"].as_u64() < end["undone_ms"].as_u64(), "{end}");
    lab.ready()?;
    let after = Load::ALL.send(&lab.cli, 2.0)?;
    ensure!(after.lost() == 0, "after the recovery {} were lost:\n{}", after.lost(), after.losses());
    mesh::cycle(&lab.cli, 1)?;
    Ok(())
}

//! Coming up, reaching each other, and the shapes of what is printed.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::documents::Up;
use tests::traffic::{Load, lossless};
use tests::{Lab, note};

/// Counters of four queues, in the order of priority.
fn class_queues(list: &Value) -> anyhow::Result<()> {
    let list = list.as_array().context("class queues")?;
    let classes: Vec<&Value> = list.iter().map(|q| &q["class"]).collect();
    ensure!(classes == ["icp", "gold", "silver", "bronze"], "{list:?}");
    list.iter().try_for_each(|queue| are(queue, is_number, &["/packets", "/bytes", "/dropped", "/waiting"]))
}

/// Input: `up` of the default lab on an empty state folder.
/// Output: exit code 0, every plane ready with all its LSPs, every program running.
pub fn up_ready(lab: &Lab) -> anyhow::Result<()> {
    let up = &lab.up;
    note(format!(
        "up to ready: {:.1} s ({} kernel actions, carrier {})",
        lab.took.as_secs_f64(),
        up.kernel_actions,
        up.status.carrier
    ));
    ensure!(up.version == 1 && up.new, "this was to be a new lab: {up:?}");
    ensure!(up.status.complaints().is_empty(), "`up` said ready, and:\n{}", up.status.complaints());
    ensure!(up.status.planes.len() == 2, "{} planes", up.status.planes.len());
    for plane in &up.status.planes {
        // 12 ordered pairs of data centres, 3 meshes, 16 LSPs
        ensure!(
            plane.lsps.wanted == 576 && plane.lsps.programmed == 576,
            "plane {}: {:?}",
            plane.plane,
            plane.lsps
        );
    }
    let started = up.program_changes.iter().filter(|c| c.change == "start").count();
    ensure!(
        started == up.status.programs.len(),
        "{started} programs started, {} there",
        up.status.programs.len()
    );
    let text = lab.cli.ok(&["status"])?;
    ensure!(text.contains("ready"), "status for people does not say ready:\n{text}");
    Ok(())
}

/// Input: `up` of the running lab, nothing edited.
/// Output: no kernel action, no program change, said so in words, in well under a second of its own work.
pub fn up_again(lab: &Lab) -> anyhow::Result<()> {
    let before = lab.status()?;
    let again: Up = lab.cli.json(&["up", "ebb-small"])?;
    ensure!(
        !again.new && again.kernel_actions == 0 && again.program_changes.is_empty(),
        "a second `up` changed something: {} kernel actions, {:?}",
        again.kernel_actions,
        again.program_changes
    );
    let output = lab.cli.run(&["up", "ebb-small"])?;
    let took = output.took;
    let text = output.expect(0)?;
    ensure!(text.contains("nothing to change"), "a second `up` said:\n{text}");
    let after = lab.status()?;
    for (a, b) in before.programs.iter().zip(&after.programs) {
        ensure!(a.pid == b.pid, "{}/{} was started again", a.node, a.name);
    }
    note(format!("second up: {:.2} s ({:.2} s by its own clock)", took.as_secs_f64(), again.seconds));
    ensure!(took < Duration::from_secs(10), "a second `up` took {took:?}");
    Ok(())
}

/// Input: a few packets of every class between every ordered pair of hosts, and one ping as typed.
/// Output: all arrive.
pub fn ping_all_pairs(lab: &Lab) -> anyhow::Result<()> {
    let report = Load { rate: 10, ..Load::ALL }.send(&lab.cli, 2.0)?;
    ensure!(report.streams.len() == 12 * 4, "{} streams", report.streams.len());
    lossless(&report, "two seconds of all pairs")?;
    let text = lab.cli.exec("h1.prn", &["ping", "-c3", "-i0.2", "-W5", "h1.lla"])?;
    ensure!(text.contains(" 0% packet loss"), "ping said:\n{text}");
    Ok(())
}

/// Input: every node's name looked up in a router, an aggregator and a host; commands that end in several ways; nodes and
/// commands that do not exist.
/// Output: the address that status shows; the command's own exit code; exit code 2 with words.
pub fn names_and_exit_codes(lab: &Lab) -> anyhow::Result<()> {
    let status = lab.status()?;
    let names: Vec<&str> = status.nodes.iter().map(|n| n.name.as_str()).collect();
    for node in ["eb01.chi", "fa.prn", "h1.lla"] {
        let script = format!("for n in {}; do echo $n $(getent ahostsv6 $n); done", names.join(" "));
        let text = lab.cli.exec(node, &["sh", "-c", &script])?;
        let address = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next().and_then(|text| text.parse::<Ipv6Addr>().ok())))
        };
        let got: BTreeMap<String, Option<Ipv6Addr>> = text.lines().filter_map(address).collect();
        for n in &status.nodes {
            let address = got.get(&n.name).copied().flatten();
            ensure!(address == Some(n.address), "in {node} {} is {address:?}, not {}", n.name, n.address);
        }
        let own = lab.cli.exec(node, &["hostname"])?;
        ensure!(own.trim() == node, "the host name in {node} is {own:?}");
    }
    // signal 40 is a real-time signal, which has no name
    let ends = [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -40 $$", 168)];
    for (script, want) in ends {
        let code = lab.cli.run(&["exec", "h1.prn", "--", "sh", "-c", script])?.code;
        ensure!(code == want, "exec of `{script}` gave {code}, not {want}");
    }
    for words in [["exec", "h9.prn", "--", "true"], ["exec", "h1.prn", "--", "no-such-program"]] {
        let output = lab.cli.run(&words)?;
        ensure!(output.code == 2 && !output.stderr.is_empty(), "{words:?}: {output:?}");
    }
    let text = lab.cli.exec("h1.*", &["cat", "/proc/sys/kernel/hostname"])?;
    for host in ["h1.atn", "h1.frc", "h1.lla", "h1.prn"] {
        ensure!(text.contains(host), "exec in all hosts did not reach {host}:\n{text}");
    }
    Ok(())
}

/// `path` of `value`, an error if it is not there.
fn at<'a>(value: &'a Value, path: &str) -> anyhow::Result<&'a Value> {
    value.pointer(path).with_context(|| format!("no {path} in {value}"))
}

fn is_number(value: &Value) -> bool {
    value.is_u64()
}

/// Each of `paths` in `value` is of a type; the error names the first that is not.
fn are(value: &Value, of_type: fn(&Value) -> bool, paths: &[&str]) -> anyhow::Result<()> {
    for path in paths {
        let found = at(value, path)?;
        ensure!(of_type(found), "{path} is {found}, another type than documented, in {value}");
    }
    Ok(())
}

/// Input: `status --format json` of a ready lab, and of a lab that does not run.
/// Output: the documented fields with the documented types.
pub fn status_shape(lab: &Lab) -> anyhow::Result<()> {
    let document: Value = lab.cli.json(&["status"])?;
    ensure!(*at(&document, "/version")? == 1, "version");
    ensure!(*at(&document, "/lab")? == "ebb-small", "lab");
    ensure!(["host", "vm"].iter().any(|c| document["carrier"] == *c), "carrier");
    ensure!(*at(&document, "/state")? == "ready", "state");
    for (n, plane) in at(&document, "/planes")?.as_array().context("planes")?.iter().enumerate() {
        ensure!(*at(plane, "/plane")? == n + 1 && *at(plane, "/state")? == "ready", "{plane}");
        are(plane, is_number, &["/lsps/wanted", "/lsps/programmed", "/lsps/on_backup"])?;
        are(plane, is_number, &["/bgp/wanted", "/bgp/up", "/routes/wanted", "/routes/up"])?;
        are(plane, is_number, &["/traffic/packets", "/traffic/bytes"])?;
        are(plane, Value::is_string, &["/reason"])?;
        class_queues(at(plane, "/queues")?)?;
    }
    let list = |name: &str| at(&document, name).and_then(|v| v.as_array().context("a list"));
    ensure!(list("/nodes")?.len() == 20, "12 routers, 4 aggregators, 4 hosts: {}", list("/nodes")?.len());
    for node in list("/nodes")? {
        are(node, Value::is_string, &["/name", "/role", "/site", "/address", "/state"])?;
        at(node, "/plane")?;
    }
    ensure!(list("/links")?.len() == 2 * 10 + 2 * 4 + 4, "{} links", list("/links")?.len());
    for link in list("/links")? {
        are(link, Value::is_string, &["/name", "/kind", "/state", "/capacity", "/rtt"])?;
        are(link, is_number, &["/rate_bps"])?;
        are(link, Value::is_array, &["/srlgs", "/faults"])?;
        let ends = at(link, "/queues")?.as_array().context("queues")?;
        ensure!(ends.len() == if link["kind"] == "core" { 2 } else { 0 }, "queues of {link}");
        for end in ends {
            are(end, Value::is_string, &["/from"])?;
            class_queues(at(end, "/classes")?)?;
        }
    }
    // six in each router, BIRD in each aggregator, a controller and a traffic matrix per plane
    ensure!(list("/programs")?.len() == 12 * 6 + 4 + 2 * 2, "{} programs", list("/programs")?.len());
    for program in list("/programs")? {
        ensure!(*at(program, "/state")? == "running", "{program}");
        are(program, is_number, &["/pid", "/restarts"])?;
        at(program, "/last_exit")?;
    }
    ensure!(list("/rpc")?.is_empty(), "no connection is broken: {:?}", list("/rpc")?);
    let none = lab.cli.with_lab("no-such-lab").run(&["--format", "json", "status"])?;
    ensure!(none.code == 1, "status of no lab: exit code {}", none.code);
    let none: Value = serde_json::from_str(&none.stdout)?;
    ensure!(none["state"] == "down" && none["version"] == 1, "status of no lab: {none}");
    Ok(())
}

/// Input: one stream for one second; the same with more loss allowed than there is, and a class that does not exist.
/// Output: the documented fields with the documented types; exit codes 0 and 2.
pub fn probe_shape(lab: &Lab) -> anyhow::Result<()> {
    let words =
        ["probe", "--from", "h1.prn", "--to", "h1.lla", "--class", "gold", "--rate", "50", "--duration", "1"];
    let document: Value = lab.cli.json(&words)?;
    ensure!(document["version"] == 1 && document["finished"] == true, "{document}");
    let stream = at(&document, "/streams/0")?;
    ensure!(stream["from"] == "h1.prn" && stream["to"] == "h1.lla" && stream["class"] == "gold", "{stream}");
    for field in [
        "sent",
        "received",
        "lost",
        "duplicates",
        "reordered",
        "late",
        "send_errors",
        "path_changes",
        "loss_windows_omitted",
        "flows",
        "dscp",
    ] {
        ensure!(stream[field].is_u64(), "{field} is no number: {stream}");
    }
    let (sent, received) = (stream["sent"].as_u64().unwrap_or(0), stream["received"].as_u64().unwrap_or(0));
    ensure!((45..=51).contains(&sent) && sent == received, "{sent} sent, {received} received");
    ensure!(stream["loss_windows"].as_array().is_some_and(Vec::is_empty), "{stream}");
    for field in ["/latency/p50_us", "/latency/p99_us", "/latency/max_us"] {
        ensure!(is_number(at(stream, field)?), "{field}: {stream}");
    }
    for field in [
        "/started_ns",
        "/slipped",
        "/lateness/p50_us",
        "/lateness/p99_us",
        "/lateness/max_us",
        "/classes/0/sent",
        "/classes/0/lost",
    ] {
        ensure!(is_number(at(&document, field)?), "{field}: {document}");
    }
    note(format!("latency prn to lla: {} (timer lateness {})", stream["latency"], document["lateness"]));
    lab.cli.ok(&[&words[..], &["--max-lost", "0"]].concat())?;
    let wrong = lab.cli.run(&["probe", "--class", "platinum"])?;
    ensure!(wrong.code == 2 && wrong.stderr.contains("platinum"), "{wrong:?}");
    Ok(())
}

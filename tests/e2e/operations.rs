//! Draining planes, links and routers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tests::capture::Capture;
use tests::traffic::{Load, Traffic};
use tests::{Lab, mesh, note, wait_until};

fn entered(lab: &Lab) -> anyhow::Result<[u64; 2]> {
    let status = lab.status()?;
    Ok([status.plane(1)?.traffic.packets, status.plane(2)?.traffic.packets])
}

/// An aggregator whose BIRD stands still sends into the plane whatever its routers say: the drain may not call it empty.
fn confirmed_by_counters(lab: &Lab) -> anyhow::Result<()> {
    let deaf = "fa.prn";
    let pid = lab.status()?.program(deaf, "bird")?.pid.context("no BIRD runs")?.to_string();
    let signal = |name: &str| lab.cli.exec(deaf, &["kill", name, &pid]).map(drop);
    let drain = |seconds: &str| lab.cli.run(&["drain", "plane", "2", "--timeout", seconds]);
    signal("-STOP")?;
    let refused = drain("3");
    signal("-CONT")?;
    let refused = refused?;
    ensure!(
        refused.code == 124 && refused.stderr.contains("still counting"),
        "{deaf} still sends into plane 2, and the drain said: {refused:?}"
    );
    let before = entered(lab)?;
    wait_until(Duration::from_secs(60), "plane 2 to be empty", || {
        let (first, second) = (entered(lab), entered(lab));
        match (first, second) {
            (Ok(a), Ok(b)) if a[1] == b[1] && b[0] > a[0] && b[0] > before[0] + 200 => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })?;
    lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"]).map(drop)
}

/// Input: all pairs send in all classes; plane 2 is drained, stays so for a while, and is undrained; then drained while an aggregator does
/// not listen.
/// Output: nothing is lost; while drained its counters stand still and the other plane takes all; afterwards it carries
/// again; a plane that still gets packets is not called drained.
pub fn o1_plane_drain(lab: &Lab) -> anyhow::Result<()> {
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let text = lab.cli.ok(&["drain", "plane", "2"])?;
    note(text.trim());
    let status = lab.status()?;
    ensure!(status.plane(2)?.state == "drained", "plane 2 is {}", status.plane(2)?.state);
    let before = entered(lab)?;
    let during = wait_until(Duration::from_secs(60), "plane 1 to take the traffic", || {
        let now = entered(lab).map_err(|e| format!("{e:#}"))?;
        if now[0] > before[0] + 1000 { Ok(now) } else { Err(format!("{before:?}, {now:?}")) }
    })?;
    ensure!(during[1] == before[1], "{} packets entered the drained plane", during[1] - before[1]);
    note(format!("while drained: {} packets entered plane 1, none plane 2", during[0] - before[0]));
    let text = lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    note(text.trim());
    wait_until(Duration::from_secs(60), "plane 2 to carry again", || {
        let now = entered(lab).map_err(|e| format!("{e:#}"))?;
        if now[1] > during[1] + 200 { Ok(()) } else { Err(format!("{during:?}, {now:?}")) }
    })?;
    confirmed_by_counters(lab)?;
    let report = traffic.stop_lossless("drains and undrains of plane 2")?;
    note(format!("{} packets, 0 lost over drain and undrain", report.sent()));
    Ok(())
}

/// Labelled packets that the routers at both ends of `link` have seen on it in a second.
fn crossing(lab: &Lab, link: &str) -> anyhow::Result<u64> {
    let ends: Vec<(String, String)> = link
        .split("--")
        .zip(link.split("--").collect::<Vec<_>>().into_iter().rev())
        .map(|(near, far)| {
            let site = far.split('.').nth(1).unwrap_or_default();
            (near.to_owned(), format!("to-{site}"))
        })
        .collect();
    let routers: Vec<String> = ends.iter().map(|(router, _)| router.clone()).collect();
    let captures = Capture::start_all(&lab.cli, &routers)?;
    Load::ALL.send(&lab.cli, 1.0)?;
    let mut packets = 0;
    for (capture, (_, interface)) in captures.into_iter().zip(&ends) {
        let seen = capture.finish()?.into_iter().filter(|(kind, _)| kind.interface == *interface);
        packets += seen.filter(|(kind, _)| !kind.labels.is_empty()).map(|(_, packets)| packets).sum::<u64>();
    }
    Ok(packets)
}

/// Input: all pairs send; a link that carries is drained hard, undrained, drained soft; then a midpoint is drained; all is
/// undrained.
/// Output: nothing is lost at any time; after the command no path crosses what is drained, and no labelled packet does;
/// status shows it; afterwards paths come back.
pub fn o2_link_and_router_drain(lab: &Lab) -> anyhow::Result<()> {
    let link = "eb01.chi--eb01.frc";
    let uses = |what: &str| -> anyhow::Result<usize> {
        let placed = mesh::cycle(&lab.cli, 1)?;
        let lsps = placed.mesh.iter().flat_map(|bundle| &bundle.lsps);
        let crosses =
            |p: &mesh::Path| p.links().contains(what) || p.routers().iter().skip(1).any(|r| *r == what);
        Ok(lsps.filter(|lsp| crosses(&lsp.primary) || crosses(&lsp.backup)).count())
    };
    ensure!(uses(link)? > 0 && crossing(lab, link)? > 0, "the link carries nothing to begin with");
    let traffic = Traffic::start(lab, &Load::ALL)?;
    for soft in [false, true] {
        let mut words = vec!["drain", "link", link];
        words.extend(soft.then_some("--soft"));
        let text = lab.cli.ok(&words)?;
        note(text.trim());
        ensure!(text.contains("no LSP uses it"), "{text}");
        let status = lab.status()?;
        let shown = status.links.iter().find(|l| l.name == link).and_then(|l| l.drained.as_deref());
        let want = if soft { "avoid" } else { "exclude" };
        ensure!(shown == Some(want), "{link} is drained, and status shows {shown:?}, not {want}");
        let seen = crossing(lab, link)?;
        ensure!(seen == 0, "{seen} labelled packets on the drained link");
        lab.cli.ok(&["undrain", "link", link])?;
        ensure!(uses(link)? > 0, "no path came back to the link");
    }
    let text = lab.cli.ok(&["drain", "router", "eb01.chi", "--reason", "new line card"])?;
    note(text.trim());
    ensure!(uses("eb01.chi")? == 0 && text.contains("no LSP uses it"), "{text}");
    lab.cli.ok(&["undrain", "router", "eb01.chi"])?;
    ensure!(uses("eb01.chi")? > 0, "no path came back to the router");
    let report = traffic.stop_lossless("drains of a link and a router")?;
    note(format!("{} packets, 0 lost", report.sent()));
    let host = lab.cli.run(&["drain", "router", "h1.prn"])?;
    ensure!(host.code == 2 && host.stderr.contains("not part of a plane"), "{host:?}");
    Ok(())
}

/// Input: plane 1 drained, then plane 2, without and with `--force`; a plane that does not exist.
/// Output: exit code 1 with words and nothing changed; 0 with `--force`, and traffic still flows; 2.
pub fn o5_last_plane(lab: &Lab) -> anyhow::Result<()> {
    lab.cli.ok(&["drain", "plane", "1"])?;
    let refused = lab.cli.run(&["drain", "plane", "2"])?;
    let was_refused = refused.code == 1 && refused.stderr.contains("last");
    ensure!(was_refused, "the drain of the last plane that carries was not refused: {refused:?}");
    ensure!(lab.status()?.plane(2)?.state == "ready", "the refused drain changed plane 2");
    let again = lab.cli.ok(&["drain", "plane", "1"])?;
    ensure!(again.contains("already"), "a second drain said {again:?}");
    lab.cli.ok(&["drain", "plane", "2", "--force"])?;
    let report = Load::ALL.send(&lab.cli, 2.0)?;
    ensure!(report.lost() == 0, "with both planes drained {} were lost:\n{}", report.lost(), report.losses());
    lab.cli.ok(&["undrain", "plane", "1", "--timeout", "120"])?;
    lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    let none = lab.cli.run(&["drain", "plane", "7"])?;
    ensure!(none.code == 2, "drain of plane 7: exit code {}", none.code);
    Ok(())
}

/// Input: all pairs send; all planes are drained with `--withdraw`, first without `--force`; then one plane is undrained,
/// then the other.
/// Output: refused without `--force`; with it no packet arrives any more, hosts have no route to the routers, and a
/// controller's cycle fails; `undrain` works nevertheless, and with the first plane everything passes again.
pub fn o5_out_of_band(lab: &Lab) -> anyhow::Result<()> {
    let refused = lab.cli.run(&["drain", "plane", "all", "--withdraw"])?;
    ensure!(refused.code == 1 && refused.stderr.contains("leave no plane"), "{refused:?}");
    ensure!(lab.status()?.planes.iter().all(|p| p.state == "ready"), "the refused drain changed something");
    let text = lab.cli.ok(&["drain", "plane", "all", "--withdraw", "--force"])?;
    note(text.trim());
    let dead = Load::ALL.send(&lab.cli, 2.0)?;
    ensure!(dead.received() == 0, "{} packets still arrived:\n{}", dead.received(), dead.losses());
    note(format!("with everything withdrawn 0 of {} packets arrived", dead.sent() + dead.refused()));
    for (router, plane) in [("eb01.lla", 1), ("eb02.lla", 2)] {
        let (host, _) = lab.controller(plane)?;
        let ping = lab.cli.run(&["exec", &host, "--", "ping", "-c1", "-W1", router])?;
        ensure!(ping.code != 0, "{host} still reaches {router}");
    }
    let text = lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    note(text.trim());
    wait_until(Duration::from_secs(60), "all pairs to reach each other over plane 2", || {
        let report = Load::ALL.send(&lab.cli, 1.0).map_err(|e| format!("{e:#}"))?;
        if report.lost() + report.refused() == 0 { Ok(()) } else { Err(report.losses()) }
    })?;
    lab.cli.ok(&["undrain", "plane", "1", "--timeout", "120"])?;
    lab.ready()?;
    for plane in [1, 2] {
        wait_until(Duration::from_secs(60), "a cycle without errors", || {
            mesh::cycle(&lab.cli, plane).map(drop).map_err(|e| format!("{e:#}"))
        })?;
    }
    Ok(())
}

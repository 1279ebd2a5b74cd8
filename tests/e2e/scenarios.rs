//! Larger failures, and classes in competition: scenarios of the backbone by their numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use router_emu::label::Mesh;
use tests::documents::ProbeReport;
use tests::model::Model;
use tests::traffic::{Load, lossless};
use tests::{Lab, mesh, note, wait_until};

/// Payload of the streams that compete for a link, bytes; with headers and a label about 1,460 on the wire.
const SIZE: u32 = 1400;
/// Packets a second of that size that a link of the default lab carries (20 Mbit/s).
const CAPACITY: f64 = 1_700.0;

/// What the queues from prn to atn have dropped so far, by class.
fn dropped(lab: &Lab) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let status = lab.status()?;
    let link = status.links.iter().find(|l| l.name == "eb01.atn--eb01.prn").context("no link prn-atn")?;
    let end = link.queues.iter().find(|end| end.from == "eb01.prn").context("no queues from prn")?;
    Ok(end.classes.iter().map(|q| (q.class.name(), q.dropped)).collect())
}

/// Sends three classes from prn to atn at once; sent and lost by class. The queues of the link must have dropped exactly what
/// the probes miss.
fn compete(lab: &Lab, rates: [(&'static str, u32); 3]) -> anyhow::Result<BTreeMap<&'static str, (u64, u64)>> {
    let before = dropped(lab)?;
    let mut runs = Vec::new();
    for (class, rate) in rates {
        let (rate, size) = (rate.to_string(), SIZE.to_string());
        let to = ["probe", "--from", "h1.prn", "--to", "h1.atn", "--duration", "4"];
        let what = ["--class", class, "--rate", &rate, "--size", &size];
        let words: Vec<&str> = ["--format", "json"].into_iter().chain(to).chain(what).collect();
        runs.push((class, lab.cli.start(&words)?));
    }
    let mut result = BTreeMap::new();
    for (class, run) in runs {
        let output = run.finish(Duration::from_secs(60))?.expect(0)?;
        let report: ProbeReport = serde_json::from_str(&output)?;
        result.insert(class, (report.sent(), report.lost()));
    }
    let after = dropped(lab)?;
    for (class, (_, lost)) in &result {
        let counted = after[class] - before[class];
        ensure!(counted == *lost, "{class}: {lost} lost, but the queues of the link dropped {counted}");
    }
    Ok(result)
}

/// Input: all traffic in plane 1, controllers stopped; gold, silver and bronze share the link from prn to atn and want more
/// than it carries: first a third more with much bronze, then a third more with much silver.
/// Output: first bronze alone loses; then bronze is starved and silver loses; gold loses nothing at any time.
pub fn f7_strict_priority(lab: &Lab) -> anyhow::Result<()> {
    let model = Model::new(&lab.status()?, 1)?;
    let placed = mesh::cycle(&lab.cli, 1)?;
    for class in Mesh::ALL {
        let bundle = placed.bundle(model.id("prn")?, model.id("atn")?, class)?;
        ensure!(bundle.lsps.iter().all(|l| l.primary.hops.len() == 1), "{class}: not all on the direct link");
    }
    lab.cli.ok(&["drain", "plane", "2"])?;
    lab.stop_controllers()?;
    let share = |(sent, lost): (u64, u64)| {
        // small numbers
        f64::from(u32::try_from(lost).unwrap_or(u32::MAX))
            / f64::from(u32::try_from(sent.max(1)).unwrap_or(u32::MAX))
    };
    let much_bronze = compete(lab, [("gold", 400), ("silver", 700), ("bronze", 1200)])?;
    note(format!("gold 400, silver 700, bronze 1200 packets/s on {CAPACITY}: (sent, lost) {much_bronze:?}"));
    ensure!(much_bronze["gold"].1 == 0 && much_bronze["silver"].1 == 0, "{much_bronze:?}");
    ensure!(share(much_bronze["bronze"]) > 0.2, "bronze lost too little: the link was not overloaded");
    let much_silver = compete(lab, [("gold", 400), ("silver", 1900), ("bronze", 300)])?;
    note(format!("gold 400, silver 1900, bronze 300 packets/s: (sent, lost) {much_silver:?}"));
    ensure!(much_silver["gold"].1 == 0, "gold lost beside silver: {much_silver:?}");
    ensure!(share(much_silver["silver"]) > 0.05, "silver lost too little: the link was not overloaded");
    ensure!(
        share(much_silver["bronze"]) > 0.9 && share(much_silver["bronze"]) > share(much_silver["silver"]),
        "silver lost before bronze was starved: {much_silver:?}"
    );
    Ok(())
}

/// Sends until a whole second loses nothing.
fn until_lossless(lab: &Lab, what: &str) -> anyhow::Result<()> {
    wait_until(Duration::from_secs(60), what, || {
        let report = Load::ALL.send(&lab.cli, 1.0).map_err(|e| format!("{e:#}"))?;
        lossless(&report, what).map_err(|e| format!("{e:#}"))
    })
}

/// Input: controllers stopped; all links of a risk group cut at once.
/// Output: LSPs switch to their backups, which avoid the group; traffic of all pairs goes on without the controllers; with them
/// back, no LSP stays on a backup.
pub fn r2_srlg_cut(lab: &Lab) -> anyhow::Result<()> {
    lab.stop_controllers()?;
    let text = lab.cli.ok(&["link", "cut", "srlg:ohio-duct & plane:1"])?;
    ensure!(text.lines().count() == 2, "{text}");
    lab.until(Duration::from_secs(30), "LSPs on their backup", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        if lsps.on_backup > 0 { Ok(()) } else { Err(format!("{lsps:?}")) }
    })?;
    until_lossless(lab, "traffic to go on after the loss of a risk group, controllers stopped")?;
    let lsps = lab.status()?.plane(1)?.lsps;
    note(format!("after the cut of two links of ohio-duct: {lsps:?}"));
    ensure!(lsps.programmed == lsps.wanted, "an LSP has neither primary nor backup: {lsps:?}");
    lab.resume_controllers()?;
    lab.until(Duration::from_secs(60), "paths of their own for all LSPs", |s| {
        let lsps = s.plane(1).map_err(|e| e.to_string())?.lsps;
        if lsps.on_backup == 0 && lsps.programmed == lsps.wanted { Ok(()) } else { Err(format!("{lsps:?}")) }
    })?;
    Ok(())
}

/// Input: all traffic in plane 1, controllers stopped; of the gold bundle from prn to lla a link of the primary path and one of
/// the backup path cut.
/// Output: LSPs of that pair are gone, packets go on over Open/R's routes; with the links and the controllers back all is whole.
pub fn r3_primary_and_backup(lab: &Lab) -> anyhow::Result<()> {
    lab.cli.ok(&["drain", "plane", "2"])?;
    let model = Model::new(&lab.status()?, 1)?;
    let placed = mesh::cycle(&lab.cli, 1)?;
    lab.stop_controllers()?;
    let bundle = placed.bundle(model.id("prn")?, model.id("lla")?, Mesh::Gold)?;
    let lsp = bundle.lsps.first().context("no LSP")?;
    let middle = |path: &mesh::Path| path.hops.get(path.hops.len() / 2).map(mesh::Hop::link);
    let both = [middle(&lsp.primary).context("no primary")?, middle(&lsp.backup).context("no backup")?];
    ensure!(both[0] != both[1], "primary and backup share {}", both[0]);
    lab.cli.ok(&["link", "cut", &both.join(",")])?;
    until_lossless(lab, "traffic to go on without primary and backup")?;
    let lsps = lab.status()?.plane(1)?.lsps;
    note(format!("{} cut: {lsps:?}, all pairs reach each other", both.join(" and ")));
    ensure!(lsps.programmed < lsps.wanted, "no LSP was lost: {lsps:?}");
    Ok(())
}

/// Input: controllers stopped; all links of a midpoint cut; restored; all links of plane 1's router at a data centre cut.
/// Output: first the LSPs through the midpoint switch and traffic goes on; then the data centre's aggregator uses plane 2 and
/// traffic goes on.
pub fn r8_node_death(lab: &Lab) -> anyhow::Result<()> {
    lab.stop_controllers()?;
    lab.cli.ok(&["link", "cut", "eb01.chi"])?;
    until_lossless(lab, "traffic to go on without a midpoint")?;
    let lsps = lab.status()?.plane(1)?.lsps;
    note(format!("midpoint eb01.chi cut off: {lsps:?}"));
    ensure!(lsps.on_backup > 0, "no LSP switched: {lsps:?}");
    lab.cli.ok(&["link", "restore", "all"])?;
    lab.resume_controllers()?;
    lab.ready()?;
    lab.stop_controllers()?;
    lab.cli.ok(&["link", "cut", "eb01.atn"])?;
    until_lossless(lab, "traffic to go on without a data centre's router")?;
    let before = lab.status()?.plane(2)?.traffic.packets;
    let load = Load { from: Some("h1.atn"), to: Some("h1.lla"), ..Load::ALL };
    let report = load.send(&lab.cli, 1.0)?;
    lossless(&report, "the time without a data centre's router")?;
    let entered = lab.status()?.plane(2)?.traffic.packets - before;
    note(format!("eb01.atn cut off: {} packets from atn, plane 2 took {entered}", report.sent()));
    ensure!(entered >= report.sent(), "plane 2 took {entered} of {}", report.sent());
    Ok(())
}

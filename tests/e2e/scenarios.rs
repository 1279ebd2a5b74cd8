//! Larger failures, and classes in competition: scenarios of the backbone by their numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use router_emu::label::Mesh;
use tests::documents::{ProbeReport, Stream};
use tests::model::Model;
use tests::traffic::{Load, lossless};
use tests::{Lab, kernel, mesh, note, wait_until};

use crate::edits;

/// Payload of the streams that compete for a link, bytes.
const SIZE: u32 = 1400;
/// Bits on the wire of a packet of that size: payload, UDP, IPv6 and Ethernet headers. The link is the path's only one: no label.
const FRAME: f64 = 8.0 * (1400.0 + 8.0 + 40.0 + 14.0);
/// Packets a second of each class: so few that a sender which has stood still for half a second, and then sends at twice the
/// rate, overloads only what is meant to be overloaded.
const RATE: u32 = 60;
/// How long they compete, seconds.
const SECONDS: u32 = 8;
/// Packets that a class's queue holds: as many arrive when the others have ended.
const BAND: u64 = 50;

/// What the queues from prn to atn have dropped so far, by class.
fn dropped(lab: &Lab) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let status = lab.status()?;
    let link = status.links.iter().find(|l| l.name == "eb01.atn--eb01.prn").context("no link prn-atn")?;
    let end = link.queues.iter().find(|end| end.from == "eb01.prn").context("no queues from prn")?;
    Ok(end.classes.iter().map(|q| (q.class.name(), q.dropped)).collect())
}

/// Packets of a class.
#[derive(Clone, Copy, Debug)]
struct Fate {
    sent: u64,
    lost: u64,
    /// By the queues of the link, as status counts them.
    dropped: u64,
}

/// Sends gold, silver and bronze from prn to atn, at the same rate and by one sender, over a link that carries `room` of the
/// three streams. A run in which the sender did not keep pace is repeated: it proves nothing.
fn compete(lab: &Lab, room: f64) -> anyhow::Result<BTreeMap<String, Fate>> {
    kernel::limit(&lab.cli, "eb01.prn", "to-atn", room * f64::from(RATE) * FRAME, 10_000)?;
    let (rate, size, seconds) = (RATE.to_string(), SIZE.to_string(), SECONDS.to_string());
    let words = ["probe", "--from", "h1.prn", "--to", "h1.atn", "--class", "gold,silver,bronze"];
    let what = ["--rate", &rate, "--size", &size, "--duration", &seconds];
    let enough = u64::from(RATE * SECONDS) * 97 / 100;
    let run = || -> anyhow::Result<BTreeMap<String, Fate>> {
        let before = dropped(lab)?;
        let report: ProbeReport = lab.cli.json(&[&words[..], &what].concat())?;
        let after = dropped(lab)?;
        let fate = |s: &Stream| {
            let class = s.class.as_str();
            (s.class.clone(), Fate { sent: s.sent, lost: s.lost, dropped: after[class] - before[class] })
        };
        Ok(report.streams.iter().map(fate).collect())
    };
    wait_until(Duration::from_secs(120), "a probe whose sender keeps pace", || {
        let by_class = run().map_err(|e| format!("{e:#}"))?;
        let kept = by_class.len() == 3 && by_class.values().all(|fate| fate.sent >= enough);
        if kept { Ok(by_class) } else { Err(format!("{by_class:?}; {enough} each were to be sent")) }
    })
}

/// Holds what a class lost against what its queue dropped. A few more may be drops of what routers say to each other; fewer
/// are packets that were still in the queue when they were given up.
fn accounted(class: &str, fate: Fate) -> anyhow::Result<()> {
    let Fate { sent, lost, dropped } = fate;
    let fits = dropped <= lost + sent / 20 && lost <= dropped + BAND;
    ensure!(fits, "{class}: {lost} of {sent} lost, but the queues of the link dropped {dropped}");
    Ok(())
}

/// Input: all traffic in plane 1, controllers stopped; gold, silver and bronze want one part each of the link from prn to atn,
/// which is narrowed to two and a half parts, then to one and a half.
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
    let runs = compete(lab, 2.5).and_then(|first| Ok((first, compete(lab, 1.5)?)));
    lab.resume_controllers()?;
    let put_right = edits::up(lab, "ebb-small")?.kernel_actions;
    let (wide, narrow) = runs?;
    ensure!(put_right > 0, "`up` did not see the narrowed link");
    note(format!("a link for 2.5 of three equal classes: {wide:?}"));
    note(format!("a link for 1.5 of them: {narrow:?}"));
    for runs in [&wide, &narrow] {
        ensure!(runs["gold"].lost == 0, "gold lost though silver and bronze were there to lose: {runs:?}");
    }
    let much = u64::from(RATE * SECONDS) / 4;
    ensure!(wide["silver"].lost == 0, "silver lost though bronze was there to lose: {wide:?}");
    ensure!(
        wide["bronze"].lost >= much,
        "bronze lost less than {much}, the link was not overloaded: {wide:?}"
    );
    ensure!(
        narrow["silver"].lost >= much,
        "silver lost less than {much}, the link was not overloaded: {narrow:?}"
    );
    let arrived = narrow["bronze"].sent - narrow["bronze"].lost;
    ensure!(
        arrived <= BAND + narrow["bronze"].sent / 20,
        "{arrived} of bronze arrived beside a silver that lost; only the {BAND} in its queue should have: {narrow:?}"
    );
    wide.iter().chain(&narrow).try_for_each(|(class, fate)| accounted(class, *fate))
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
/// Output: LSPs of that pair are gone, which status says with exit code 1; packets go on over Open/R's routes; with the links and the controllers back all is whole.
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
    let status = lab.cli.run(&["status"])?;
    ensure!(
        status.code == 1 && status.stdout.contains("LSPs missing"),
        "status of a plane with holes: {status:?}"
    );
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

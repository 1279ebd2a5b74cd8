//! What the controllers place: headroom, residual capacity, disjoint backups.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use router_emu::label::Mesh;
use serde::Deserialize;
use tests::mesh::{self, Cycle};
use tests::model::Model;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note, wait_until};

/// Per cent of what is left that a mesh may use in the default lab, in the order of placement.
const RESERVED: [(Mesh, u64); 3] = [(Mesh::Gold, 50), (Mesh::Silver, 80), (Mesh::Bronze, 100)];

/// Checks that no mesh has placed more on a link than its share of what the meshes before it left. Returns the highest
/// use of a link in per mille of its share, by mesh.
pub fn within_shares(placed: &Cycle, model: &Model) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let mut taken: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut highest = BTreeMap::new();
    for (mesh, percent) in RESERVED {
        let load = placed.load(mesh)?;
        for (direction, bps) in &load {
            let capacity = model.link(&direction.0)?.capacity;
            let left = capacity.saturating_sub(taken.get(direction).copied().unwrap_or(0));
            let usable = left * percent / 100;
            ensure!(
                *bps <= usable || placed.unrouted > 0,
                "{mesh} has {bps} bit/s on {} from {}; {percent} % of the {left} that are left are {usable}",
                direction.0,
                direction.1
            );
            let most = highest.entry(mesh.name()).or_default();
            *most = (bps * 1000 / usable.max(1)).max(*most);
        }
        for (direction, bps) in load {
            *taken.entry(direction).or_default() += bps;
        }
    }
    Ok(highest)
}

/// Input: the meshes of both planes under the lab's own demands.
/// Output: gold takes paths of the smallest RTT; no mesh exceeds its share on any link, gold 50 %, silver 80 % of the
/// rest, bronze all of the rest; nothing used the no-path fallback.
pub fn e1_e2_headroom(lab: &Lab) -> anyhow::Result<()> {
    let status = lab.status()?;
    for plane in [1, 2] {
        let model = Model::new(&status, plane)?;
        let placed = mesh::cycle(&lab.cli, plane)?;
        ensure!(
            placed.lsps == 576 && placed.unrouted == 0,
            "{} LSPs, {} unrouted",
            placed.lsps,
            placed.unrouted
        );
        let shares = within_shares(&placed, &model)?;
        note(format!("plane {plane}: highest use of a share in per mille: {shares:?}"));
        for (src, dst) in pairs(&model) {
            let best = model.distance(src, dst, |_| true).context("not connected")?;
            let bundle = placed.bundle(model.id(src)?, model.id(dst)?, Mesh::Gold)?;
            for lsp in &bundle.lsps {
                let rtt: u64 = lsp
                    .primary
                    .hops
                    .iter()
                    .map(|hop| model.link(&hop.link()).map(|l| l.rtt))
                    .sum::<anyhow::Result<u64>>()?;
                // the controller adds what Open/R measured on the emulated wire, a little more on every link
                ensure!(
                    rtt <= best + 3_000,
                    "{src} > {dst}: {} us by {:?}, best {best} us",
                    rtt,
                    lsp.primary.routers()
                );
            }
        }
    }
    Ok(())
}

/// Ordered pairs of data centres.
fn pairs(model: &Model) -> impl Iterator<Item = (&str, &str)> {
    let all = |src| model.dcs.iter().map(move |dst: &String| (src, dst));
    model
        .dcs
        .iter()
        .flat_map(all)
        .filter(|(src, dst)| src != dst)
        .map(|(src, dst)| (src.as_str(), dst.as_str()))
}

/// Input: the mesh of plane 1.
/// Output: every LSP has a backup; it shares no link with its primary, and no risk group unless there is no other way.
pub fn e6_disjoint_backups(lab: &Lab) -> anyhow::Result<()> {
    let model = Model::new(&lab.status()?, 1)?;
    let placed = mesh::cycle(&lab.cli, 1)?;
    let mut shared_groups = 0;
    for bundle in &placed.mesh {
        for lsp in &bundle.lsps {
            let name = || format!("{} > {} {}", bundle.from, bundle.to, bundle.mesh);
            ensure!(
                !lsp.backup.hops.is_empty(),
                "{} has an LSP without a backup: {:?}",
                name(),
                lsp.primary.routers()
            );
            let (primary, backup) = (lsp.primary.links(), lsp.backup.links());
            ensure!(
                primary.is_disjoint(&backup),
                "{}: primary {primary:?} and backup {backup:?} share a link",
                name()
            );
            let groups = |links: &std::collections::BTreeSet<String>| -> anyhow::Result<std::collections::BTreeSet<String>> {
                let mut groups = std::collections::BTreeSet::new();
                for link in links {
                    groups.extend(model.link(link)?.srlgs.clone());
                }
                Ok(groups)
            };
            let risks = groups(&primary)?;
            if !risks.is_disjoint(&groups(&backup)?) {
                let usable =
                    |l: &tests::model::CoreLink| !primary.contains(&l.name) && l.srlgs.is_disjoint(&risks);
                let other = model.distance(&bundle.from, &bundle.to, usable);
                ensure!(
                    other.is_none(),
                    "{}: backup {backup:?} shares a risk group of {primary:?} though there is another way",
                    name()
                );
                shared_groups += 1;
            }
        }
    }
    note(format!(
        "{} bundles; {shared_groups} backups share a risk group for want of another way",
        placed.mesh.len()
    ));
    Ok(())
}

/// A demand as the traffic-matrix service has it.
#[derive(Debug, Deserialize)]
struct Measured {
    src: u8,
    dst: u8,
    mesh: u8,
    bps: u64,
}

/// Bit/s by source, destination, mesh code.
type Rates = BTreeMap<(u8, u8, u8), u64>;

/// The matrices of all planes added up.
fn matrix(lab: &Lab) -> anyhow::Result<Rates> {
    let mut sum = Rates::new();
    let helper = lab.cli.bin().join("e2e-helper");
    for plane in 1..=u8::try_from(lab.status()?.planes.len())? {
        let (host, _) = lab.controller(plane)?;
        let socket = format!("/run/testbed/{host}/nhg-tm/nhg-tm.sock");
        let text = lab.cli.exec(&host, &[helper.to_str().context("path")?, "matrix", &socket])?;
        for m in serde_json::from_str::<Vec<Measured>>(&text)? {
            *sum.entry((m.src, m.dst, m.mesh)).or_default() += m.bps;
        }
    }
    Ok(sum)
}

/// Most that a demand may differ from the load that is offered, per cent.
const OFF_PERCENT: u64 = 8;

/// Input: all pairs send in all classes at a constant rate.
/// Output: for every pair and mesh the planes' traffic matrices add up to what is offered (gold with ICP), within a few per
/// cent, from counters alone.
pub fn o7_traffic_matrix(lab: &Lab) -> anyhow::Result<()> {
    /// Bytes of a probe's packet: IPv6 and UDP headers, 200 of payload.
    const PACKET: u64 = 40 + 8 + 200;
    // 48 streams: below the thousand packets a second up to which the sender keeps its pace on a busy machine
    let load = Load { rate: 20, ..Load::ALL };
    let status: serde_json::Value = lab.cli.json(&["status"])?;
    let divisor = status["bandwidth_divisor"].as_u64().context("bandwidth_divisor")?;
    let model = Model::new(&lab.status()?, 1)?;
    let class = u64::from(load.rate) * PACKET * 8 * divisor;
    let mut offered = Rates::new();
    for src in &model.dcs {
        for dst in model.dcs.iter().filter(|dst| *dst != src) {
            for (mesh, bps) in [(Mesh::Gold, 2 * class), (Mesh::Silver, class), (Mesh::Bronze, class)] {
                offered.insert((model.id(src)?, model.id(dst)?, mesh.code()), bps);
            }
        }
    }
    ensure!(offered.len() == 36, "{} pairs and meshes", offered.len());
    let traffic = Traffic::start(lab, &load)?;
    let off = |measured: &Rates| {
        let each = offered.iter().map(|(pair, &bps)| {
            let got = measured.get(pair).copied().unwrap_or(0);
            (got.abs_diff(bps) * 1000 / bps, *pair, got, bps)
        });
        each.max()
    };
    let worst = wait_until(Duration::from_secs(120), "the matrix to show what is offered", || {
        let worst = off(&matrix(lab).map_err(|e| format!("{e:#}"))?).ok_or("no pairs")?;
        if worst.0 <= OFF_PERCENT * 10 { Ok(worst) } else { Err(format!("{worst:?}")) }
    })?;
    let report = traffic.stop()?;
    note(format!(
        "{} packets; the worst of 36 demands is {} per mille off: {worst:?}",
        report.sent(),
        worst.0
    ));
    Ok(())
}

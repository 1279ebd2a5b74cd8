//! What a backup algorithm is given and must fill in, and the walk over all LSPs that the algorithms share.

mod fir;
mod ledger;
mod rba;

pub use fir::Fir;
pub use rba::{Rba, SrlgRba};

use crate::dijkstra::UNREACHABLE;
use crate::graph::{Graph, LinkId};
use crate::guided::Guided;
use crate::lsp_mesh::{LspMesh, PathId, PathStore};
use ledger::{Ledger, Rule};

/// Backup computation for all classes, after all primaries of all classes.
#[derive(Debug)]
pub struct BackupRound<'a> {
    /// Topology.
    pub graph: &'a Graph,
    /// Primaries in; backups out. Bundles are in class order, the highest class first.
    pub mesh: &'a mut LspMesh,
    /// Per class round, capacity per link that its primaries and those of higher classes leave, bit/s
    /// (`rsvdBwLim`, EBB paper, section 4.3; headroom not subtracted).
    pub limits: &'a [Vec<u64>],
}

/// Finds one backup per primary.
///
/// Contract: deterministic; loop-free; no physical link of the primary; a link that shares a risk group with the
/// primary only when nothing else connects the pair.
pub trait BackupAlgorithm {
    /// Name for logs.
    fn name(&self) -> &'static str;
    /// Fills in the backup of every LSP that has a primary.
    fn protect(&self, round: &mut BackupRound<'_>);
}

/// Leaves every LSP without a backup.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBackup;

impl BackupAlgorithm for NoBackup {
    fn name(&self) -> &'static str {
        "none"
    }

    fn protect(&self, _: &mut BackupRound<'_>) {}
}

/// Protects every LSP under the weights of `rule`, class by class, bundle by bundle.
fn protect_all<R: Rule>(round: &mut BackupRound<'_>, ledger: &mut Ledger<'_, R>) {
    let mut guided = Guided::new(round.graph);
    let mut entered = None;
    for at in 0..round.mesh.bundles.len() {
        let mesh = round.mesh.bundles[at].mesh;
        let Some(class) = round.mesh.classes.iter().position(|c| c.mesh == mesh) else { continue };
        if entered != Some(class) {
            ledger.enter_class(&round.limits[class]);
            entered = Some(class);
        }
        let protected = protect_bundle(round, ledger, &mut guided, at);
        round.mesh.classes[class].protected += protected;
    }
}

/// Protects the LSPs of one bundle, primary by primary in order of first use.
///
/// LSPs that share a primary come one after the other, because then only the weights on the links of the last backup
/// change between them: one pass over the weights and one over the distances to the destination serve them all.
fn protect_bundle<R: Rule>(
    round: &mut BackupRound<'_>,
    ledger: &mut Ledger<'_, R>,
    guided: &mut Guided,
    at: usize,
) -> u32 {
    let bundle = &round.mesh.bundles[at];
    let (src, dst, bps) = (bundle.src, bundle.dst, bundle.lsp_bps);
    let mut done = vec![false; bundle.lsps.len()];
    let mut protected = 0;
    let mut last: Option<PathId> = None;
    let mut path: Vec<LinkId> = Vec::new();
    for first in 0..done.len() {
        let Some(primary) = round.mesh.bundles[at].lsps[first].primary else { continue };
        if done[first] {
            continue;
        }
        ledger.begin(round.mesh.paths.get(primary), bps);
        guided.aim(dst, ledger.weight(), Some(src));
        let mut bound = guided.rest(src);
        for (slot, done) in done.iter_mut().enumerate().skip(first) {
            if round.mesh.bundles[at].lsps[slot].primary != Some(primary) {
                continue;
            }
            *done = true;
            if bound == UNREACHABLE || !guided.run(src, ledger.weight(), bound, |_, _, _| true) {
                continue;
            }
            guided.backwards(&mut path);
            path.reverse();
            ledger.book(&path);
            // the next LSP can have this path, at what it costs now
            bound = path.iter().map(|l| ledger.weight()[l.ix()]).sum();
            if guided.is_astray() {
                guided.aim(dst, ledger.weight(), Some(src));
            }
            let id = stored(&mut round.mesh.paths, last, &path);
            last = Some(id);
            round.mesh.bundles[at].lsps[slot].backup = Some(id);
            protected += 1;
        }
    }
    protected
}

/// The number of `path`, which often is that of the path before it.
fn stored(paths: &mut PathStore, last: Option<PathId>, path: &[LinkId]) -> PathId {
    match last {
        Some(id) if paths.get(id) == path => id,
        _ => paths.push(path),
    }
}

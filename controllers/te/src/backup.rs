//! What a backup algorithm is given and what it must fill in.

use crate::dijkstra::Search;
use crate::graph::Graph;
use crate::lsp_mesh::LspMesh;

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
    /// Working memory.
    pub search: &'a mut Search,
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

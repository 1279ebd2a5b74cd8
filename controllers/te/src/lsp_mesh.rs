//! The result: every bundle with its primary and backup paths, and what they put on every link.

use crate::graph::{Graph, LinkId, NodeId};
use crate::settings::Mesh;

/// Number of a path in its [`PathStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u32);

/// Paths as link lists in one arena; LSPs that share a path share its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathStore {
    links: Vec<LinkId>,
    ends: Vec<u32>,
}

impl PathStore {
    /// Stores a path and numbers it.
    pub fn push(&mut self, path: &[LinkId]) -> PathId {
        let id = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.links.extend_from_slice(path);
        self.ends.push(u32::try_from(self.links.len()).unwrap_or(u32::MAX));
        PathId(id)
    }

    /// Links of a path, first link first.
    pub fn get(&self, id: PathId) -> &[LinkId] {
        let at = id.0 as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.links[start..self.ends[at] as usize]
    }
}

/// One label-switched path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lsp {
    /// `None`: the graph does not connect the pair.
    pub primary: Option<PathId>,
    /// `None`: no path exists that avoids the primary's links.
    pub backup: Option<PathId>,
}

/// All LSPs of one (source, destination, mesh).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Source node.
    pub src: NodeId,
    /// Destination node.
    pub dst: NodeId,
    /// Mesh.
    pub mesh: Mesh,
    /// Bandwidth of each LSP, bit/s.
    pub lsp_bps: u64,
    /// The LSPs in the order of their placement.
    pub lsps: Vec<Lsp>,
}

/// What one class round did.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassReport {
    /// Mesh.
    pub mesh: Mesh,
    /// Bandwidth per link that this class could use, bit/s, at the start of its round.
    pub usable: Vec<u64>,
    /// Bandwidth per link that this class's primaries use, bit/s.
    pub used: Vec<u64>,
    /// LSPs with a primary.
    pub placed: u32,
    /// Of those, LSPs that no path had room for: they took the shortest path by RTT, over the limit.
    pub over_limit: u32,
    /// LSPs without any path: the graph does not connect the pair.
    pub unrouted: u32,
    /// LSPs with a backup.
    pub protected: u32,
    /// For algorithms that plan with a fractional flow: its largest utilisation of what is usable, and a proven lower
    /// bound of what any such flow could reach.
    pub fractional: Option<(f64, f64)>,
}

/// All paths of all classes of a plane.
#[derive(Clone, Debug, PartialEq)]
pub struct LspMesh {
    /// Bundles in order of class round, then source, then destination.
    pub bundles: Vec<Bundle>,
    /// The paths.
    pub paths: PathStore,
    /// Class rounds in order.
    pub classes: Vec<ClassReport>,
}

impl LspMesh {
    /// Links of an LSP's primary; empty when it has none.
    pub fn primary(&self, lsp: Lsp) -> &[LinkId] {
        lsp.primary.map_or(&[], |p| self.paths.get(p))
    }

    /// Links of an LSP's backup; empty when it has none.
    pub fn backup(&self, lsp: Lsp) -> &[LinkId] {
        lsp.backup.map_or(&[], |p| self.paths.get(p))
    }

    /// Primary bandwidth of all classes per link, bit/s.
    pub fn used(&self) -> Vec<u64> {
        let mut total = self.classes.first().map_or_else(Vec::new, |c| vec![0u64; c.used.len()]);
        for class in &self.classes {
            for (t, u) in total.iter_mut().zip(&class.used) {
                *t = t.saturating_add(*u);
            }
        }
        total
    }

    /// Utilisation per link by primaries, 1.0 = full; a link without capacity counts as 0.
    pub fn utilisation(&self, graph: &Graph) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss)] // a ratio for people: 53 bits are plenty
        let ratio = |used: u64, cap: u64| if cap == 0 { 0.0 } else { used as f64 / cap as f64 };
        self.used().into_iter().zip(graph.links()).map(|(u, l)| ratio(u, graph.capacity_bps(l))).collect()
    }

    /// LSPs that used the no-path fallback, or have no path at all.
    pub fn fallbacks(&self) -> u32 {
        self.classes.iter().map(|c| c.over_limit + c.unrouted).sum()
    }
}

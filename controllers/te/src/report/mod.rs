//! What a computed mesh is worth: how full links are, how long paths are, what failures cost.
//!
//! The three measures are those of the paper's evaluation (EBB paper, section 6). All are plain values that can be
//! written as JSON; drawing them is for others.

mod cdf;
mod deficit;
mod stretch;

pub use cdf::Cdf;
pub use deficit::{DeficitReport, Failure, FailureKind, deficits};
pub use stretch::{STRETCH_FLOOR_US, StretchReport, stretches};

use serde::Serialize;

use crate::graph::{Drain, Graph};
use crate::lsp_mesh::LspMesh;
use crate::settings::Mesh;

/// How full the links are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UtilisationReport {
    /// Largest utilisation of any link by all classes, 1.0 = full.
    pub max: f64,
    /// Mean over links.
    pub mean: f64,
    /// Links whose primaries need more than their capacity.
    pub overloaded: usize,
    /// Share of links at or below a utilisation: per class round, by it and the rounds before it. The last is that by
    /// all classes.
    pub cdf: Vec<Cdf>,
}

/// What one class got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassSummary {
    /// Mesh.
    pub mesh: Mesh,
    /// Demand, bit/s, rounded up to whole LSPs.
    pub demand_bps: u64,
    /// LSPs with a primary.
    pub placed: u32,
    /// Of those, over the limit of the class.
    pub over_limit: u32,
    /// LSPs without a path.
    pub unrouted: u32,
    /// LSPs with a backup.
    pub protected: u32,
    /// Largest share of a link's usable bandwidth that the class takes; above 1.0 it is over its limit.
    pub max_of_usable: f64,
    /// For algorithms that plan with a fractional flow: the largest share that the plan takes.
    pub planned: Option<f64>,
    /// And a proven lower bound of that share for any plan.
    pub least_possible: Option<f64>,
}

/// Everything about one mesh.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Nodes of the graph.
    pub nodes: usize,
    /// Directed links.
    pub links: usize,
    /// Classes in the order of their rounds.
    pub classes: Vec<ClassSummary>,
    /// Link utilisation.
    pub utilisation: UtilisationReport,
    /// Latency stretch per class.
    pub stretch: Vec<StretchReport>,
    /// Bandwidth deficit over single failures.
    pub deficit: DeficitReport,
}

impl Report {
    /// Measures `mesh`, which was computed on `graph`.
    pub fn new(graph: &Graph, mesh: &LspMesh) -> Self {
        Self {
            nodes: graph.node_count(),
            links: graph.link_count(),
            classes: classes(mesh),
            utilisation: utilisation(graph, mesh),
            stretch: stretches(graph, mesh),
            deficit: deficits(graph, mesh),
        }
    }
}

/// Utilisation of the links that are in service.
pub fn utilisation(graph: &Graph, mesh: &LspMesh) -> UtilisationReport {
    let in_service = |l: &crate::LinkId| graph.drain(*l) != Drain::Hard && graph.capacity_bps(*l) > 0;
    let links: Vec<crate::LinkId> = graph.links().filter(in_service).collect();
    let mut used = vec![0u64; links.len()];
    let mut values = vec![0.0; links.len()];
    let mut cdf = Vec::with_capacity(mesh.classes.len());
    for class in &mesh.classes {
        for ((used, value), l) in used.iter_mut().zip(&mut values).zip(&links) {
            *used = used.saturating_add(class.used[l.ix()]);
            *value = to_f64(*used) / to_f64(graph.capacity_bps(*l));
        }
        cdf.push(Cdf::new(values.clone()));
    }
    UtilisationReport {
        max: values.iter().copied().fold(0.0, f64::max),
        mean: cdf::mean(&values),
        overloaded: values.iter().filter(|u| **u > 1.0).count(),
        cdf,
    }
}

fn classes(mesh: &LspMesh) -> Vec<ClassSummary> {
    let summary = |c: &crate::ClassReport| {
        let own = mesh.bundles.iter().filter(|b| b.mesh == c.mesh);
        let demand = own.map(|b| b.lsp_bps.saturating_mul(u64::try_from(b.lsps.len()).unwrap_or(u64::MAX)));
        let used = c.used.iter().zip(&c.usable).filter(|(used, _)| **used > 0);
        ClassSummary {
            mesh: c.mesh,
            demand_bps: demand.fold(0, u64::saturating_add),
            placed: c.placed,
            over_limit: c.over_limit,
            unrouted: c.unrouted,
            protected: c.protected,
            max_of_usable: used.map(|(u, all)| to_f64(*u) / to_f64((*all).max(1))).fold(0.0, f64::max),
            planned: c.fractional.map(|f| f.0),
            least_possible: c.fractional.map(|f| f.1),
        }
    };
    mesh.classes.iter().map(summary).collect()
}

#[allow(clippy::cast_precision_loss)] // ratios for people: 53 bits are plenty
fn to_f64(bps: u64) -> f64 {
    bps as f64
}

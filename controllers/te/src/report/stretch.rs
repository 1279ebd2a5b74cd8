//! Latency stretch (EBB paper, section 6.2): how much longer an LSP is than it need be, where that can be felt.

use serde::Serialize;

use super::cdf::{Cdf, mean};
use crate::dijkstra::Search;
use crate::graph::Graph;
use crate::lsp_mesh::LspMesh;
use crate::round::rtt_weights;
use crate::settings::Mesh;

/// The paper's c: round-trip times below 40 ms count as 40 ms.
pub const STRETCH_FLOOR_US: u32 = 40_000;

/// Stretch of a class: `max(1, RTT of the LSP / max(c, least RTT of the pair))`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StretchReport {
    /// Mesh.
    pub mesh: Mesh,
    /// Mean over all LSPs.
    pub mean: f64,
    /// Largest of any LSP.
    pub max: f64,
    /// Distribution over pairs of the mean over the pair's LSPs.
    pub average_cdf: Cdf,
    /// Distribution over pairs of the largest of the pair's LSPs.
    pub max_cdf: Cdf,
}

/// Stretch per class, in the order of the class rounds. LSPs without a path are left out.
pub fn stretches(graph: &Graph, mesh: &LspMesh) -> Vec<StretchReport> {
    let least = least_rtts(graph, mesh);
    let report = |class: &crate::ClassReport| {
        let (mut all, mut averages, mut maxima) = (Vec::new(), Vec::new(), Vec::new());
        for (bundle, &least) in mesh.bundles.iter().zip(&least).filter(|(b, _)| b.mesh == class.mesh) {
            let routed = bundle.lsps.iter().filter(|l| l.primary.is_some());
            let values: Vec<f64> =
                routed.map(|&l| stretch(graph.path_rtt_us(mesh.primary(l)), least)).collect();
            if !values.is_empty() {
                averages.push(mean(&values));
                maxima.push(values.iter().copied().fold(1.0, f64::max));
                all.extend(values);
            }
        }
        StretchReport {
            mesh: class.mesh,
            mean: mean(&all),
            max: maxima.iter().copied().fold(0.0, f64::max),
            average_cdf: Cdf::new(averages),
            max_cdf: Cdf::new(maxima),
        }
    };
    mesh.classes.iter().map(report).collect()
}

/// Stretch of one LSP; both in microseconds.
fn stretch(rtt_us: u64, least_us: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // microseconds
    let ratio = rtt_us as f64 / least_us.max(u64::from(STRETCH_FLOOR_US)) as f64;
    ratio.max(1.0)
}

/// Least RTT of every bundle's pair, microseconds, whatever the load.
fn least_rtts(graph: &Graph, mesh: &LspMesh) -> Vec<u64> {
    let weight = rtt_weights(graph);
    let mut search = Search::new(graph);
    let (mut searched, mut path) = (None, Vec::new());
    let mut least = Vec::with_capacity(mesh.bundles.len());
    for bundle in &mesh.bundles {
        if searched != Some(bundle.src) {
            search.run(bundle.src, None, &weight, |_| true);
            searched = Some(bundle.src);
        }
        search.path_to(bundle.dst, &mut path);
        least.push(graph.path_rtt_us(&path));
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pairs_may_take_40_ms() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(stretch(39_000, 5_000), 1.0));
        assert!(near(stretch(60_000, 5_000), 1.5));
        assert!(near(stretch(150_000, 100_000), 1.5));
        assert!(near(stretch(90_000, 100_000), 1.0));
    }
}

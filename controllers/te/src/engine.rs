//! The class rounds: primaries of each class on what the classes before left, then all backups.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::backup::{BackupAlgorithm, BackupRound};
use crate::choice::PrimaryChoice;
use crate::dijkstra::Search;
use crate::graph::{Graph, NodeId};
use crate::lsp_mesh::{Bundle, ClassReport, Lsp, LspMesh, PathStore};
use crate::round::{Flow, PrimaryAlgorithm, PrimaryRound, Tally, rtt_weights};
use crate::settings::{ClassSettings, Mesh, TeSettings};

/// Demand of a pair in a mesh. Demands of 0 get their LSPs too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Source.
    pub src: NodeId,
    /// Destination.
    pub dst: NodeId,
    /// Mesh.
    pub mesh: Mesh,
    /// Bit/s.
    pub bps: u64,
}

/// Why nothing was computed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TeError {
    /// A class is listed twice or a percentage is out of range.
    #[error("setting {0}; list each mesh once, with a reserved percentage of 1 to 100 and at least one LSP")]
    Settings(String),
    /// A demand from a node to itself or outside of the graph.
    #[error("demand {src} to {dst} in mesh {mesh}: its ends must be two different nodes of the graph")]
    Demand {
        /// Source index.
        src: u32,
        /// Destination index.
        dst: u32,
        /// Mesh name.
        mesh: &'static str,
    },
}

/// Computes with the algorithms that the settings name.
pub fn compute(graph: &Graph, demands: &[Demand], settings: &TeSettings) -> Result<LspMesh, TeError> {
    let primaries: BTreeMap<Mesh, Box<dyn PrimaryAlgorithm>> =
        settings.classes.iter().map(|c| (c.mesh, c.algorithm.algorithm())).collect();
    let standard = PrimaryChoice::default().algorithm();
    let primary = |mesh| primaries.get(&mesh).unwrap_or(&standard).as_ref();
    compute_with(graph, demands, settings, primary, settings.backup.algorithm().as_ref())
}

/// Computes with any algorithm per mesh, whatever the settings name. Demands may come in any order; several for one pair and mesh add up.
pub fn compute_with<'p>(
    graph: &Graph,
    demands: &[Demand],
    settings: &TeSettings,
    primary: impl Fn(Mesh) -> &'p dyn PrimaryAlgorithm,
    backup: &dyn BackupAlgorithm,
) -> Result<LspMesh, TeError> {
    check(graph, demands, settings)?;
    let weight = rtt_weights(graph);
    let mut search = Search::new(graph);
    let mut mesh = LspMesh { bundles: Vec::new(), paths: PathStore::default(), classes: Vec::new() };
    let mut used_by_higher = vec![0u64; graph.link_count()];
    let mut limits = Vec::new();
    for class in &settings.classes {
        let flows = flows_of(demands, class.mesh, settings.lsps);
        let usable = usable(graph, &used_by_higher, *class);
        let mut round = PrimaryRound {
            graph,
            weight: &weight,
            flows: &flows,
            lsps: settings.lsps,
            free: usable.clone(),
            used: vec![0; graph.link_count()],
            paths: &mut mesh.paths,
            placed: vec![None; flows.len() * usize::from(settings.lsps)],
            tally: Tally::default(),
            fractional: None,
        };
        primary(class.mesh).place(&mut round, &mut search);
        let PrimaryRound { used, placed, tally, fractional, .. } = round;
        for (h, u) in used_by_higher.iter_mut().zip(&used) {
            *h = h.saturating_add(*u);
        }
        limits.push(left(graph, &used_by_higher));
        for (flow, placed) in flows.iter().zip(placed.chunks(usize::from(settings.lsps))) {
            let lsps = placed.iter().map(|&primary| Lsp { primary, backup: None }).collect();
            mesh.bundles.push(Bundle {
                src: flow.src,
                dst: flow.dst,
                mesh: class.mesh,
                lsp_bps: flow.lsp_bps,
                lsps,
            });
        }
        let Tally { placed, over_limit, unrouted } = tally;
        mesh.classes.push(ClassReport {
            mesh: class.mesh,
            usable,
            used,
            placed,
            over_limit,
            unrouted,
            protected: 0,
            fractional,
        });
    }
    backup.protect(&mut BackupRound { graph, mesh: &mut mesh, limits: &limits });
    Ok(mesh)
}

fn check(graph: &Graph, demands: &[Demand], settings: &TeSettings) -> Result<(), TeError> {
    settings.check()?;
    let outside = |n: NodeId| n.ix() >= graph.node_count();
    match demands.iter().find(|d| d.src == d.dst || outside(d.src) || outside(d.dst)) {
        Some(d) => Err(TeError::Demand { src: d.src.0, dst: d.dst.0, mesh: d.mesh.name() }),
        None => Ok(()),
    }
}

/// Flows of a class, sorted by source and destination.
fn flows_of(demands: &[Demand], mesh: Mesh, lsps: u16) -> Vec<Flow> {
    let mut pairs: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
    for d in demands.iter().filter(|d| d.mesh == mesh) {
        let sum = pairs.entry((d.src, d.dst)).or_default();
        *sum = sum.saturating_add(d.bps);
    }
    // rounded up, so that the LSPs together hold at least the demand
    let flow = |((src, dst), bps): (_, u64)| Flow { src, dst, lsp_bps: bps.div_ceil(u64::from(lsps)) };
    pairs.into_iter().map(flow).collect()
}

/// `(total - used by higher classes) * reserved %` per link (EBB paper, section 4.2.1).
fn usable(graph: &Graph, used_by_higher: &[u64], class: ClassSettings) -> Vec<u64> {
    let percent = u128::from(class.reserved_percent);
    let share = |rest: u64| u64::try_from(u128::from(rest) * percent / 100).unwrap_or(rest);
    left(graph, used_by_higher).into_iter().map(share).collect()
}

/// Capacity that is not used, per link.
fn left(graph: &Graph, used: &[u64]) -> Vec<u64> {
    graph.links().zip(used).map(|(l, &u)| graph.capacity_bps(l).saturating_sub(u)).collect()
}

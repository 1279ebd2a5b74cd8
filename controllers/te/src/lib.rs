//! Traffic engineering: from a topology and demands to paths.
//!
//! In this room: the plane's graph in flat arrays, a Dijkstra that allocates nothing per search, the paper's algorithms
//! for primaries (round-robin CSPF, HPRR, multi-commodity flow over any or the K shortest paths) and for backups (RBA,
//! SRLG-RBA, FIR), the class rounds that tie them together, the resulting [`LspMesh`], and reports about it. Further
//! algorithms are further implementations of [`PrimaryAlgorithm`] and [`BackupAlgorithm`].
//! Not in this room: where topology and demands come from, labels, RPCs, clocks, randomness, any I/O at all.
//!
//! Same input, same output, whatever the order in which nodes, links and demands are listed: [`GraphBuilder`] sorts,
//! and every tie is broken by a total order on paths (cost, then hops, then link ids from the far end backwards).

mod backup;
mod choice;
mod cspf;
mod dijkstra;
mod engine;
mod graph;
mod guided;
mod hprr;
pub mod lp;
mod lsp_mesh;
pub mod mcf;
pub mod report;
mod round;
mod settings;
mod yen;

pub use backup::{BackupAlgorithm, BackupRound, Fir, NoBackup, Rba, SrlgRba};
pub use choice::{BackupChoice, PrimaryChoice, UnknownAlgorithm};
pub use cspf::Cspf;
pub use dijkstra::{PathKey, Search, UNREACHABLE, Weights};
pub use engine::{Demand, TeError, compute, compute_with};
pub use graph::{Drain, Graph, GraphBuilder, GraphError, LinkId, LinkSpec, NodeId, NodeSpec};
pub use hprr::Hprr;
pub use lsp_mesh::{Bundle, ClassReport, Lsp, LspMesh, PathId, PathStore};
pub use mcf::{KspMcf, Mcf};
pub use round::{Flow, PrimaryAlgorithm, PrimaryRound, Tally, rtt_weights};
pub use settings::{ClassSettings, Mesh, PlaneOverride, PlaneSettings, TeSettings};
pub use yen::Yen;

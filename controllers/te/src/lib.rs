//! Traffic engineering: from a topology and demands to paths.
//!
//! In this room: the plane's graph in flat arrays, a Dijkstra that allocates nothing per search, round-robin CSPF for
//! primaries, RBA for backups, the class rounds that tie them together, and the resulting [`LspMesh`]. Further
//! algorithms are further implementations of [`PrimaryAlgorithm`] and [`BackupAlgorithm`].
//! Not in this room: where topology and demands come from, labels, RPCs, clocks, randomness, any I/O at all.
//!
//! Same input, same output, whatever the order in which nodes, links and demands are listed: [`GraphBuilder`] sorts,
//! and every tie is broken by a total order on paths (cost, then hops, then link ids from the far end backwards).

mod backup;
mod cspf;
mod dijkstra;
mod engine;
mod graph;
mod lsp_mesh;
mod rba;
mod round;
mod settings;

pub use backup::{BackupAlgorithm, BackupRound};
pub use cspf::Cspf;
pub use dijkstra::{PathKey, Search, UNREACHABLE};
pub use engine::{Demand, TeError, compute, compute_with};
pub use graph::{Drain, Graph, GraphBuilder, GraphError, LinkId, LinkSpec, NodeId, NodeSpec};
pub use lsp_mesh::{Bundle, ClassReport, Lsp, LspMesh, PathId, PathStore};
pub use rba::Rba;
pub use round::{Flow, PrimaryAlgorithm, PrimaryRound, Tally};
pub use settings::{ClassSettings, Mesh, TeSettings};

//! Bandwidth deficit (EBB paper, section 6.3.2): what part of the traffic meets congestion when something fails and
//! before the controller has computed anew.
//!
//! At a failure every LSP whose primary is hit takes its backup. If that is hit too, the LSP is gone, and the source
//! spreads the bundle's traffic over the LSPs that are left, as the routers do. Queues are strict: a class finds what
//! higher classes leave. On a link that a class overloads, all its LSPs lose the same share; over a path the worst link
//! counts. What higher classes offer is taken as it is, without what they lost elsewhere: this errs on the dark side.

use serde::Serialize;

use super::cdf::{Cdf, mean};
use super::to_f64;
use crate::graph::{Drain, Graph, LinkId};
use crate::lsp_mesh::{LspMesh, PathId};
use crate::settings::Mesh;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// A physical link, both directions.
    Link,
    /// All links of a risk group.
    Srlg,
}

/// One failure and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// Kind.
    pub kind: FailureKind,
    /// The risk group's name, or the link's ends and interface.
    pub name: String,
    /// Per class, in the order of the class rounds: traffic that is lost or meets congestion over all its traffic.
    pub deficit: Vec<f64>,
}

/// Deficits over all single failures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeficitReport {
    /// Classes, in the order of the class rounds.
    pub meshes: Vec<Mesh>,
    /// Deficit per class with nothing failed.
    pub intact: Vec<f64>,
    /// Every link, then every risk group, by number.
    pub failures: Vec<Failure>,
}

impl DeficitReport {
    /// Deficits of a class over all failures of a kind.
    pub fn of(&self, mesh: Mesh, kind: FailureKind) -> Vec<f64> {
        let Some(at) = self.meshes.iter().position(|m| *m == mesh) else { return Vec::new() };
        self.failures.iter().filter(|f| f.kind == kind).map(|f| f.deficit[at]).collect()
    }

    /// Mean deficit of a class over all failures of a kind.
    pub fn mean(&self, mesh: Mesh, kind: FailureKind) -> f64 {
        mean(&self.of(mesh, kind))
    }

    /// The failure of a kind that costs a class most, and its deficit there.
    pub fn worst(&self, mesh: Mesh, kind: FailureKind) -> Option<(&Failure, f64)> {
        let at = self.meshes.iter().position(|m| *m == mesh)?;
        let own = self.failures.iter().filter(|f| f.kind == kind).map(|f| (f, f.deficit[at]));
        own.reduce(|best, f| if f.1 > best.1 { f } else { best })
    }

    /// Distribution of a class's deficit over failures of a kind.
    pub fn cdf(&self, mesh: Mesh, kind: FailureKind) -> Cdf {
        Cdf::new(self.of(mesh, kind))
    }
}

/// Deficit of every class with nothing failed, at every single-link and at every single-group failure.
pub fn deficits(graph: &Graph, mesh: &LspMesh) -> DeficitReport {
    let mut model = Model::new(graph, mesh);
    let mut failed = vec![false; graph.link_count()];
    let intact = model.deficit(&failed);
    let mut failures = Vec::new();
    for l in graph.links().filter(|&l| graph.drain(l) != Drain::Hard) {
        if graph.reverse(l).is_some_and(|r| r < l) {
            continue; // its other direction has been it
        }
        let name =
            format!("{}--{} {}", graph.name(graph.from(l)), graph.name(graph.to(l)), graph.interface(l));
        let deficit = model.with_failed(&mut failed, &[l]);
        failures.push(Failure { kind: FailureKind::Link, name, deficit });
    }
    for (name, group) in graph.srlg_names().iter().zip(0u32..) {
        let deficit = model.with_failed(&mut failed, graph.srlg_links(group));
        failures.push(Failure { kind: FailureKind::Srlg, name: name.clone(), deficit });
    }
    DeficitReport { meshes: mesh.classes.iter().map(|c| c.mesh).collect(), intact, failures }
}

/// LSPs of a bundle with the same paths.
struct Group {
    primary: Option<PathId>,
    backup: Option<PathId>,
    lsps: f64,
}

/// The mesh in the shape that failures are played on, with working memory.
struct Model<'a> {
    graph: &'a Graph,
    mesh: &'a LspMesh,
    /// Per class, its bundles: all their traffic in bit/s, and their groups.
    classes: Vec<Vec<(f64, Vec<Group>)>>,
    load: Vec<f64>,
    room: Vec<f64>,
}

impl<'a> Model<'a> {
    fn new(graph: &'a Graph, mesh: &'a LspMesh) -> Self {
        let bundles = |class: &crate::ClassReport| {
            let own = mesh.bundles.iter().filter(|b| b.mesh == class.mesh);
            own.map(|b| {
                let mut groups: Vec<Group> = Vec::new();
                for l in &b.lsps {
                    match groups.iter_mut().find(|g| (g.primary, g.backup) == (l.primary, l.backup)) {
                        Some(g) => g.lsps += 1.0,
                        None => groups.push(Group { primary: l.primary, backup: l.backup, lsps: 1.0 }),
                    }
                }
                let lsps: f64 = groups.iter().map(|g| g.lsps).sum();
                (to_f64(b.lsp_bps) * lsps, groups)
            })
            .collect()
        };
        let links = graph.link_count();
        let classes = mesh.classes.iter().map(bundles).collect();
        Self { graph, mesh, classes, load: vec![0.0; links], room: vec![0.0; links] }
    }

    fn with_failed(&mut self, failed: &mut [bool], links: &[LinkId]) -> Vec<f64> {
        let set = |failed: &mut [bool], value| {
            for &l in links {
                failed[l.ix()] = value;
                if let Some(r) = self.graph.reverse(l) {
                    failed[r.ix()] = value;
                }
            }
        };
        set(failed, true);
        let deficit = self.deficit(failed);
        set(failed, false);
        deficit
    }

    /// Deficit per class while `failed` links are down.
    fn deficit(&mut self, failed: &[bool]) -> Vec<f64> {
        let (graph, mesh) = (self.graph, self.mesh);
        for (room, l) in self.room.iter_mut().zip(graph.links()) {
            *room = to_f64(graph.capacity_bps(l));
        }
        let intact = |p: &PathId| mesh.paths.get(*p).iter().all(|l| !failed[l.ix()]);
        let active = |g: &Group| g.primary.filter(intact).or(g.backup.filter(intact));
        let mut deficits = Vec::with_capacity(self.classes.len());
        for bundles in &self.classes {
            self.load.fill(0.0);
            let mut alive: Vec<(f64, PathId)> = Vec::new();
            let mut total = 0.0;
            for (bps, groups) in bundles {
                total += bps;
                let up: f64 = groups.iter().filter(|g| active(g).is_some()).map(|g| g.lsps).sum();
                for g in groups {
                    if let Some(path) = active(g) {
                        let share = bps * g.lsps / up;
                        alive.push((share, path));
                        mesh.paths.get(path).iter().for_each(|l| self.load[l.ix()] += share);
                    }
                }
            }
            let passes = |l: &LinkId| {
                let (load, room) = (self.load[l.ix()], self.room[l.ix()]);
                if load > room { room / load } else { 1.0 }
            };
            let through = |(bps, path): &(f64, PathId)| {
                bps * mesh.paths.get(*path).iter().map(passes).fold(1.0, f64::min)
            };
            let carried: f64 = alive.iter().map(through).sum();
            // sums of many shares: the last bits are noise
            let lost = if total > 0.0 { 1.0 - carried / total } else { 0.0 };
            deficits.push(if lost < 1e-12 { 0.0 } else { lost });
            for (room, load) in self.room.iter_mut().zip(&self.load) {
                *room = (*room - load).max(0.0);
            }
        }
        deficits
    }
}

//! From the computed mesh and what the routers hold to what must be written.

use std::collections::{BTreeMap, BTreeSet};

use router_emu::label::{self, Nexthop, Sid};
use router_emu::proto::{Bundle, Lsp, MapEntry};
use te::LspMesh;

use crate::config::ControllerConfig;
use crate::fleet::{Fleet, intermediates, same_paths};
use crate::topology::Topology;

/// What is to be done about one (source, destination, mesh): its own best-effort unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Source router.
    pub source: String,
    /// The bundle with version 0.
    pub key: Sid,
    /// What to do.
    pub action: Action,
    /// Entry that the source's route-agent lacks, to be written once the bundle is live.
    pub map: Option<MapEntry>,
}

/// What to do about a unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The routers hold what is wanted: this.
    Keep(Bundle),
    /// Program a new version.
    Program(Box<Program>),
    /// Nothing can be done; why.
    Fail(String),
}

/// A new version of a bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// With the new SID.
    pub bundle: Bundle,
    /// Routers that must have the SID first.
    pub intermediates: BTreeSet<String>,
    /// The version that is live now, to be removed afterwards, with the routers that have it.
    pub old: Option<(Sid, BTreeSet<String>)>,
}

/// A bundle that no pair of the configuration wants any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Removal {
    /// Source router.
    pub source: String,
    /// Live SID.
    pub sid: Sid,
    /// Other routers that know it.
    pub holders: BTreeSet<String>,
}

/// All writes of a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Units by source router and key.
    pub units: Vec<Unit>,
    /// SIDs that are left over from aborted cycles, per router: removed before anything else, since one of them may
    /// be the number of a new version.
    pub stale: BTreeMap<String, BTreeSet<Sid>>,
    /// Bundles to remove altogether.
    pub removals: Vec<Removal>,
    /// Map entries to remove, per source router.
    pub unmap: BTreeMap<String, Vec<MapEntry>>,
    /// Routers whose lsp-agent did not answer in this cycle.
    pub silent: BTreeSet<String>,
}

/// Bundles of a computed mesh with source router and version-less SID, in the mesh's order. LSPs without a primary are
/// left out: they exist only when the pair is not connected.
pub fn bundles(
    mesh: &LspMesh,
    topology: &Topology,
    config: &ControllerConfig,
) -> Vec<(String, Sid, Vec<Lsp>)> {
    let site = |node| config.routers.iter().find(|r| r.name == topology.graph.name(node)).map(|r| r.site);
    let mut out = Vec::with_capacity(mesh.bundles.len());
    for b in &mesh.bundles {
        let (Some(src), Some(dst)) = (site(b.src), site(b.dst)) else { continue };
        let Some(code) = label::Mesh::from_code(b.mesh.code()) else { continue };
        let key = Sid { src, dst, mesh: code, version: false };
        let lsp = |&l: &te::Lsp| Lsp {
            primary: Some(topology.path(mesh.primary(l))),
            backup: l.backup.map(|_| topology.path(mesh.backup(l))),
            bandwidth_bps: b.lsp_bps,
        };
        let lsps = b.lsps.iter().filter(|l| l.primary.is_some()).map(lsp).collect();
        out.push((topology.graph.name(b.src).to_owned(), key, lsps));
    }
    out
}

impl Plan {
    /// Decides per unit, and finds what is left over.
    pub fn new(wanted: Vec<(String, Sid, Vec<Lsp>)>, fleet: &Fleet, config: &ControllerConfig) -> Self {
        let keys: BTreeSet<Sid> = wanted.iter().map(|(_, key, _)| *key).collect();
        let silent =
            config.routers.iter().filter(|r| !fleet.answered(&r.name)).map(|r| r.name.clone()).collect();
        let mut plan = Self { silent, ..Self::default() };
        for (source, key, lsps) in wanted {
            let action = decide(&source, key, lsps, fleet, config);
            let map = missing_entry(&source, key, &action, fleet);
            plan.units.push(Unit { source, key, action, map });
        }
        plan.units.sort_by(|a, b| (&a.source, a.key).cmp(&(&b.source, b.key)));
        plan.find_removals(&keys, fleet);
        plan.find_stale(fleet, config);
        plan
    }

    /// Live bundles and map entries that nobody wants.
    fn find_removals(&mut self, keys: &BTreeSet<Sid>, fleet: &Fleet) {
        for (source, live) in fleet.all_live().filter(|(_, live)| !keys.contains(&live.sid.bundle())) {
            let holders = fleet.holders(live.sid).map(str::to_owned).collect();
            self.removals.push(Removal { source: source.to_owned(), sid: live.sid, holders });
            let mesh = u32::from(live.sid.mesh.code());
            let entry = MapEntry { dst_site: live.sid.dst.into(), mesh, nhg_id: live.nhg_id };
            self.unmap.entry(source.to_owned()).or_default().push(entry);
        }
    }

    /// SIDs that are held but neither live in that place nor about to be replaced there.
    fn find_stale(&mut self, fleet: &Fleet, config: &ControllerConfig) {
        let mut needed: BTreeSet<(Sid, String)> = BTreeSet::new();
        for (_, live) in fleet.all_live() {
            needed.extend(intermediates(&live.lsps, config.max_labels).into_iter().map(|r| (live.sid, r)));
        }
        for program in self.units.iter().filter_map(Unit::program) {
            if let Some(sid) = Sid::decode(program.bundle.sid) {
                needed.extend(program.intermediates.iter().map(|r| (sid, r.clone())));
            }
        }
        for (sid, router) in fleet.all_held() {
            // a source that does not answer may be using any version
            let source = config.router_of_site(sid.src);
            let known = source.is_none_or(|s| fleet.answered(&s.name));
            if known && !needed.contains(&(sid, router.to_owned())) {
                self.stale.entry(router.to_owned()).or_default().insert(sid);
            }
        }
    }
}

impl Unit {
    /// The new version, if there is one to program.
    pub fn program(&self) -> Option<&Program> {
        match &self.action {
            Action::Program(p) => Some(p),
            _ => None,
        }
    }

    /// What is placed for this unit, with the SID that it has or gets.
    pub fn bundle(&self) -> Option<&Bundle> {
        match &self.action {
            Action::Program(p) => Some(&p.bundle),
            Action::Keep(bundle) => Some(bundle),
            Action::Fail(_) => None,
        }
    }
}

fn decide(source: &str, key: Sid, lsps: Vec<Lsp>, fleet: &Fleet, config: &ControllerConfig) -> Action {
    if lsps.is_empty() {
        return Action::Fail(format!("{key}: the topology does not connect the pair"));
    }
    if !fleet.answered(source) {
        return Action::Fail(format!("{key}: the lsp-agent of its source {source} does not answer"));
    }
    let live = fleet.live(source, key);
    let through = intermediates(&lsps, config.max_labels);
    if let Some(live) = live
        && !config.always_reprogram
        && live.healthy
        && same_paths(&live.lsps, &lsps)
        && through.iter().all(|r| !fleet.answered(r) || fleet.has_route(r, live.sid))
    {
        return Action::Keep(Bundle { sid: live.sid.encode(), lsps });
    }
    let new = live.map_or(key, |live| live.sid.flipped());
    let old = live.map(|live| (live.sid, fleet.holders(live.sid).map(str::to_owned).collect()));
    let bundle = Bundle { sid: new.encode(), lsps };
    Action::Program(Box::new(Program { bundle, intermediates: through, old }))
}

/// The entry that makes the source's route-agent use the bundle, unless it has it.
fn missing_entry(source: &str, key: Sid, action: &Action, fleet: &Fleet) -> Option<MapEntry> {
    if matches!(action, Action::Fail(_)) {
        return None;
    }
    let nhg_id = Nexthop::Group { dst: key.dst, mesh: key.mesh }.id();
    let entry = MapEntry { dst_site: key.dst.into(), mesh: key.mesh.code().into(), nhg_id };
    let has = fleet.map(source).is_some_and(|map| map.contains(&entry));
    (!has).then_some(entry)
}

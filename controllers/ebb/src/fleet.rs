//! What the routers hold: live versions, copies of SIDs, maps, the highest epoch. Read back in every cycle.

use std::collections::{BTreeMap, BTreeSet};

use router_emu::label::{Sid, segment_starts};
use router_emu::proto::{Bundle, DumpBundlesReply, Lsp, MapEntry, Path};

/// A bundle's live version as its source reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// SID with version.
    pub sid: Sid,
    /// Paths.
    pub lsps: Vec<Lsp>,
    /// All LSPs are in the kernel, on their primaries.
    pub healthy: bool,
    /// Id of the source's nexthop group.
    pub nhg_id: u32,
}

/// State of all routers that answered.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    answered: BTreeSet<String>,
    live: BTreeMap<(String, Sid), Live>,
    /// Per SID, the routers other than its source that know it, and whether their kernel has its route.
    holders: BTreeMap<Sid, BTreeMap<String, bool>>,
    maps: BTreeMap<String, Vec<MapEntry>>,
    epoch: u64,
}

impl Fleet {
    /// From the dumps by router name; routers that did not answer are not in the maps.
    pub fn new(
        bundles: BTreeMap<String, DumpBundlesReply>,
        maps: BTreeMap<String, (u64, Vec<MapEntry>)>,
    ) -> Self {
        let mut fleet = Self::default();
        for (router, reply) in bundles {
            fleet.epoch = fleet.epoch.max(reply.epoch);
            for state in reply.bundles {
                let Some(bundle) = state.bundle else { continue };
                let Some(sid) = Sid::decode(bundle.sid) else { continue };
                if state.is_source && state.live {
                    let complete =
                        state.programmed == state.wanted && state.on_backup == 0 && state.dropped == 0;
                    let live = Live { sid, lsps: bundle.lsps, healthy: complete, nhg_id: state.nhg_id };
                    fleet.live.insert((router.clone(), sid.bundle()), live);
                } else {
                    fleet.holders.entry(sid).or_default().insert(router.clone(), state.is_transit);
                }
            }
            fleet.answered.insert(router);
        }
        for (router, (epoch, map)) in maps {
            fleet.epoch = fleet.epoch.max(epoch);
            fleet.maps.insert(router, map);
        }
        fleet
    }

    /// Whether the router's lsp-agent answered.
    pub fn answered(&self, router: &str) -> bool {
        self.answered.contains(router)
    }

    /// The live version of a bundle at its source router.
    pub fn live(&self, source: &str, bundle: Sid) -> Option<&Live> {
        self.live.get(&(source.to_owned(), bundle.bundle()))
    }

    /// All live bundles, with their source routers.
    pub fn all_live(&self) -> impl Iterator<Item = (&str, &Live)> {
        self.live.iter().map(|((router, _), live)| (router.as_str(), live))
    }

    /// Routers other than the source that know a SID.
    pub fn holders(&self, sid: Sid) -> impl Iterator<Item = &str> {
        self.holders.get(&sid).into_iter().flatten().map(|(router, _)| router.as_str())
    }

    /// All SIDs that routers other than their sources know, with those routers.
    pub fn all_held(&self) -> impl Iterator<Item = (Sid, &str)> {
        self.holders.iter().flat_map(|(&sid, routers)| routers.keys().map(move |r| (sid, r.as_str())))
    }

    /// Whether a router's kernel has the route of a SID.
    pub fn has_route(&self, router: &str, sid: Sid) -> bool {
        self.holders.get(&sid).and_then(|routers| routers.get(router)).copied().unwrap_or(false)
    }

    /// The map of a router's route-agent; `None` if it did not answer.
    pub fn map(&self, router: &str) -> Option<&[MapEntry]> {
        self.maps.get(router).map(Vec::as_slice)
    }

    /// Highest epoch that any agent has seen.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Routers that must have a bundle's SID before its source may use it: the starts of all segments but the first, of
/// primaries and of backups.
pub fn intermediates(lsps: &[Lsp], max_labels: u8) -> BTreeSet<String> {
    let paths = lsps.iter().flat_map(|l| [&l.primary, &l.backup]).flatten();
    let nodes = |p: &Path| {
        let starts = segment_starts(p.hops.len(), usize::from(max_labels));
        starts.skip(1).filter_map(|i| p.hops.get(i)).map(|h| h.router.clone()).collect::<Vec<_>>()
    };
    paths.flat_map(nodes).collect()
}

/// Whether two bundles forward alike: the same paths in the same slots. Bandwidths are bookkeeping and do not count.
pub fn same_paths(a: &[Lsp], b: &[Lsp]) -> bool {
    let hops = |p: &Option<Path>| p.as_ref().map_or_else(Vec::new, |p| p.hops.clone());
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(x, y)| hops(&x.primary) == hops(&y.primary) && hops(&x.backup) == hops(&y.backup))
}

/// A bundle without its paths: all that removing it needs.
pub fn bare(sid: Sid) -> Bundle {
    Bundle { sid: sid.encode(), lsps: Vec::new() }
}

//! Routers in memory.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ebb::agents::{AgentError, Agents, Answer};
use ebb::config::ControllerConfig;
use ebb::fence::{Bid, Lease, Lock};
use prost::Message as _;
use router_emu::label::{Nexthop, Sid, segment_starts};
use router_emu::proto::{
    self, AdjacencyDatabase, Bundle, BundleResult, BundleState, KeyValue, Lsp, MapEntry, Phase,
};

/// A call as failure injection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Store,
    Bundles,
    Program(Phase),
    Map,
    ProgramMap,
    Matrix,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Work,
    /// The agent is gone: nothing is done.
    Silent,
    /// It is carried out, but the answer is lost.
    AnswerLost,
    /// The agent answers with an error; writes of bundles are refused one by one.
    Refuse,
    /// Never answers before the deadline.
    Hang,
}

type Faults = Box<dyn FnMut(&str, Call) -> Verdict + Send>;

/// One write, in order.
#[derive(Clone, Debug)]
pub struct Write {
    pub ns: u64,
    pub at: Instant,
    pub router: String,
    pub phase: Phase,
    pub sid: u32,
}

#[derive(Clone, Debug, Default)]
pub struct FakeRouter {
    /// Version-less SID to live version and paths: what a source holds.
    pub groups: BTreeMap<Sid, (Sid, Vec<Lsp>)>,
    /// SID to bundle: what an intermediate node holds.
    pub sids: BTreeMap<u32, Vec<Lsp>>,
    pub map: Vec<MapEntry>,
    pub epoch: u64,
    pub on_backup: bool,
    /// What its route-agent has counted.
    pub traffic: proto::GetTrafficReply,
}

#[derive(Default)]
pub struct Inner {
    pub routers: BTreeMap<String, FakeRouter>,
    pub store: BTreeMap<String, AdjacencyDatabase>,
    pub matrix: Option<proto::GetMatrixReply>,
    pub writes: Vec<Write>,
    pub calls: Vec<(String, Call)>,
    pub black_holes: Vec<String>,
    pub max_labels: u8,
    faults: Option<Faults>,
    clock: u64,
    store_version: u64,
}

/// All routers of a plane; clones share them.
#[derive(Clone)]
pub struct FakePlane(Arc<Mutex<Inner>>);

impl FakePlane {
    pub fn new(config: &ControllerConfig, store: BTreeMap<String, AdjacencyDatabase>) -> Self {
        let routers = config.routers.iter().map(|r| (r.name.clone(), FakeRouter::default())).collect();
        let inner =
            Inner { routers, store, max_labels: config.max_labels, store_version: 1, ..Inner::default() };
        Self(Arc::new(Mutex::new(inner)))
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub fn set_store(&self, store: BTreeMap<String, AdjacencyDatabase>) {
        let mut p = self.lock();
        p.store = store;
        p.store_version += 1;
    }

    pub fn inject(&self, faults: impl FnMut(&str, Call) -> Verdict + Send + 'static) {
        self.lock().faults = Some(Box::new(faults));
    }

    pub fn heal(&self) {
        self.lock().faults = None;
    }

    /// Live SID of a bundle.
    pub fn live(&self, source: &str, key: Sid) -> Option<Sid> {
        self.lock().routers[source].groups.get(&key).map(|g| g.0)
    }

    pub fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.lock().writes)
    }

    /// SIDs that are where no live bundle needs them, and missing ones: empty when all is as it should be.
    pub fn leftovers(&self) -> Vec<String> {
        let p = self.lock();
        let mut needed: BTreeSet<(String, u32)> = BTreeSet::new();
        for router in p.routers.values() {
            for (sid, lsps) in router.groups.values() {
                let through = ebb::fleet::intermediates(lsps, p.max_labels);
                needed.extend(through.into_iter().map(|r| (r, sid.encode())));
            }
        }
        let held: BTreeSet<(String, u32)> = p
            .routers
            .iter()
            .flat_map(|(name, r)| r.sids.keys().map(move |&sid| (name.clone(), sid)))
            .collect();
        needed.symmetric_difference(&held).map(|(r, sid)| format!("{r} {sid}")).collect()
    }

    async fn judge(&self, router: &str, call: Call) -> Verdict {
        let verdict = {
            let mut p = self.lock();
            p.calls.push((router.to_owned(), call));
            p.faults.as_mut().map_or(Verdict::Work, |f| f(router, call))
        };
        // lets other routers' calls in between
        tokio::task::yield_now().await;
        if verdict == Verdict::Hang {
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            return Verdict::Silent;
        }
        verdict
    }

    /// A read: all failures are alike.
    async fn read<T>(&self, router: &str, call: Call, get: impl FnOnce(&Inner) -> T) -> Answer<T> {
        match self.judge(router, call).await {
            Verdict::Work => Ok(get(&self.lock())),
            Verdict::Refuse => {
                Err(AgentError::Refused { router: router.into(), call: "read", message: "no".into() })
            }
            _ => Err(silent(router)),
        }
    }
}

fn silent(router: &str) -> AgentError {
    AgentError::Silent { router: router.into(), call: "call", message: "gone".into() }
}

impl Inner {
    fn fence(&mut self, router: &str, epoch: u64) -> Answer<()> {
        let own = self.routers.get_mut(router).unwrap();
        if epoch < own.epoch {
            let message = format!("epoch {epoch} is below {}", own.epoch);
            return Err(AgentError::Fenced { router: router.into(), call: "write", message });
        }
        own.epoch = epoch;
        Ok(())
    }

    fn write(&mut self, router: &str, phase: Phase, bundle: Bundle) -> BundleResult {
        self.clock += 1;
        let at = Instant::now();
        self.writes.push(Write { ns: self.clock, at, router: router.into(), phase, sid: bundle.sid });
        let error = self.apply(router, phase, bundle.clone()).err().unwrap_or_default();
        let result = BundleResult { sid: bundle.sid, ok: error.is_empty(), error, written_ns: self.clock };
        self.walk();
        result
    }

    fn apply(&mut self, router: &str, phase: Phase, bundle: Bundle) -> Result<(), String> {
        let max_labels = self.max_labels;
        let own = self.routers.get_mut(router).unwrap();
        let sid = Sid::decode(bundle.sid).ok_or("not a SID")?;
        match phase {
            Phase::Transit => {
                if ebb::fleet::intermediates(&bundle.lsps, max_labels).contains(router) {
                    own.sids.insert(bundle.sid, bundle.lsps);
                }
            }
            Phase::Source => {
                let starts =
                    |l: &Lsp| l.primary.as_ref().and_then(|p| p.hops.first()).map(|h| h.router.clone());
                if bundle.lsps.iter().any(|l| starts(l).as_deref() != Some(router)) {
                    return Err(format!("bundle does not start at {router}"));
                }
                own.groups.insert(sid.bundle(), (sid, bundle.lsps));
                own.on_backup = false;
            }
            Phase::Retire => {
                if own.groups.get(&sid.bundle()).is_some_and(|g| g.0 == sid) {
                    return Err("live".into());
                }
                own.sids.remove(&bundle.sid);
            }
            Phase::Delete => {
                own.groups.remove(&sid.bundle());
                own.sids.remove(&bundle.sid);
            }
            Phase::Unspecified => return Err("no phase".into()),
        }
        Ok(())
    }

    /// Follows packets of all live bundles from SID to SID.
    fn walk(&mut self) {
        let mut holes = Vec::new();
        for (source, router) in &self.routers {
            for (sid, lsps) in router.groups.values() {
                let mut todo: Vec<(String, &Vec<Lsp>)> = vec![(source.clone(), lsps)];
                let mut seen = BTreeSet::from([source.clone()]);
                while let Some((at, lsps)) = todo.pop() {
                    for next in next_nodes(&at, lsps, self.max_labels) {
                        if !seen.insert(next.clone()) {
                            continue;
                        }
                        match self.routers[&next].sids.get(&sid.encode()) {
                            Some(lsps) => todo.push((next, lsps)),
                            None => holes.push(format!("{sid} from {source}: {next} does not know it")),
                        }
                    }
                }
            }
        }
        self.black_holes.extend(holes);
    }
}

/// Intermediate nodes to which `at` sends packets that it steers by these primaries.
fn next_nodes(at: &str, lsps: &[Lsp], max_labels: u8) -> Vec<String> {
    let mut next = Vec::new();
    for path in lsps.iter().filter_map(|l| l.primary.as_ref()) {
        let starts: Vec<usize> = segment_starts(path.hops.len(), usize::from(max_labels)).collect();
        for pair in starts.windows(2).filter(|p| path.hops[p[0]].router == at) {
            next.push(path.hops[pair[1]].router.clone());
        }
    }
    next
}

impl Agents for FakePlane {
    async fn store(&self, router: &str) -> Answer<Vec<KeyValue>> {
        self.read(router, Call::Store, |p| {
            p.store
                .iter()
                .map(|(node, db)| KeyValue {
                    key: format!("adj:{node}"),
                    version: p.store_version,
                    originator: node.clone(),
                    value: db.encode_to_vec(),
                    ttl_ms: 1000,
                    ttl_version: 1,
                })
                .collect()
        })
        .await
    }

    async fn bundles(&self, router: &str, paths: bool) -> Answer<proto::DumpBundlesReply> {
        self.read(router, Call::Bundles, |p| {
            let own = &p.routers[router];
            let keep = |lsps: &Vec<Lsp>| if paths { lsps.clone() } else { vec![] };
            let groups = own.groups.values().map(|(sid, lsps)| {
                let n = u32::try_from(lsps.len()).unwrap();
                BundleState {
                    bundle: Some(Bundle { sid: sid.encode(), lsps: keep(lsps) }),
                    is_source: true,
                    nhg_id: Nexthop::Group { dst: sid.dst, mesh: sid.mesh }.id(),
                    wanted: n,
                    programmed: n,
                    on_backup: u32::from(own.on_backup),
                    live: true,
                    ..BundleState::default()
                }
            });
            let sids = own.sids.iter().map(|(&sid, lsps)| BundleState {
                bundle: Some(Bundle { sid, lsps: keep(lsps) }),
                is_transit: true,
                live: true,
                ..BundleState::default()
            });
            proto::DumpBundlesReply { epoch: own.epoch, bundles: groups.chain(sids).collect() }
        })
        .await
    }

    async fn program(&self, router: &str, request: proto::ProgramBundleRequest) -> Answer<Vec<BundleResult>> {
        let phase = Phase::try_from(request.phase).unwrap();
        match self.judge(router, Call::Program(phase)).await {
            Verdict::Silent | Verdict::Hang => Err(silent(router)),
            Verdict::Refuse => {
                let refuse = |b: Bundle| BundleResult {
                    sid: b.sid,
                    error: "no memory".into(),
                    ..BundleResult::default()
                };
                Ok(request.bundles.into_iter().map(refuse).collect())
            }
            verdict => {
                let mut p = self.lock();
                p.fence(router, request.epoch)?;
                let results = request.bundles.into_iter().map(|b| p.write(router, phase, b)).collect();
                if verdict == Verdict::AnswerLost { Err(silent(router)) } else { Ok(results) }
            }
        }
    }

    async fn map(&self, router: &str) -> Answer<proto::DumpRoutesReply> {
        self.read(router, Call::Map, |p| {
            let own = &p.routers[router];
            proto::DumpRoutesReply { epoch: own.epoch, map: own.map.clone(), prefixes: vec![] }
        })
        .await
    }

    async fn program_map(&self, router: &str, request: proto::ProgramMapRequest) -> Answer<()> {
        match self.judge(router, Call::ProgramMap).await {
            Verdict::Silent | Verdict::Hang => Err(silent(router)),
            Verdict::Refuse => {
                Err(AgentError::Refused { router: router.into(), call: "ProgramMap", message: "no".into() })
            }
            verdict => {
                let mut p = self.lock();
                p.fence(router, request.epoch)?;
                let own = p.routers.get_mut(router).unwrap();
                let same = |a: &MapEntry, b: &MapEntry| (a.dst_site, a.mesh) == (b.dst_site, b.mesh);
                own.map.retain(|e| !request.remove.iter().chain(&request.entries).any(|x| same(e, x)));
                own.map.extend(&request.entries);
                let dangling = request.entries.iter().any(|e| {
                    !own.groups.keys().any(|k| Nexthop::Group { dst: k.dst, mesh: k.mesh }.id() == e.nhg_id)
                });
                if dangling {
                    p.black_holes.push(format!("{router}: map entry without a group"));
                }
                if verdict == Verdict::AnswerLost { Err(silent(router)) } else { Ok(()) }
            }
        }
    }

    async fn matrix(&self) -> Answer<Option<proto::GetMatrixReply>> {
        self.read("nhg-tm", Call::Matrix, |p| p.matrix.clone()).await
    }
}

/// A lock in memory; `rival` makes another controller take it.
#[derive(Clone, Debug, Default)]
pub struct FakeLock(
    pub Arc<Mutex<(u64, bool)>>,
    /// End of the lease; none: it does not end.
    pub Option<tokio::sync::watch::Receiver<Option<Instant>>>,
);

impl FakeLock {
    pub fn rival(&self) {
        let mut l = self.0.lock().unwrap();
        *l = (l.0 + 1, true);
    }
}

impl Lock for FakeLock {
    async fn try_acquire(&mut self) -> anyhow::Result<Bid> {
        let mut l = self.0.lock().unwrap();
        if l.1 {
            return Ok(Bid::Taken(Some("the rival".into())));
        }
        l.0 += 1;
        Ok(Bid::Won(l.0))
    }

    async fn raise_above(&mut self, seen: u64) -> anyhow::Result<Option<u64>> {
        let mut l = self.0.lock().unwrap();
        if l.1 {
            return Ok(None);
        }
        l.0 = l.0.max(seen) + 1;
        Ok(Some(l.0))
    }

    fn lease(&self) -> Lease {
        self.1.clone().map_or_else(Lease::endless, Lease::until)
    }

    fn release(&mut self) {}
}

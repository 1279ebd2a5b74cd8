//! Asks all routers at once, waits for none of them longer than a deadline.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::{Either, join_all, select};
use futures::stream::FuturesUnordered;
use router_emu::proto::{DumpBundlesReply, GetMatrixReply, KeyValue};

use crate::agents::{AgentError, Agents, Answer};
use crate::config::ControllerConfig;
use crate::fleet::Fleet;
use crate::grpc::NHG_TM;
use crate::topology::merge;

/// Stores to merge: a router that has just restarted may know only itself, two rarely restart at once.
const STORES: usize = 2;
/// Time after which another router is asked for its store while the first ones keep silent.
const HEDGE: Duration = Duration::from_millis(300);

/// Time to wait for a second store once there is one: it is worth having, not worth a cycle.
const GRACE: Duration = Duration::from_secs(1);

/// How much later than the rest of the snapshot the traffic matrix may be.
const LATE: Duration = Duration::from_millis(50);

/// What the routers said.
#[derive(Debug)]
pub struct Collected {
    /// Merged store.
    pub store: BTreeMap<String, KeyValue>,
    /// Routers whose store it is, in order of their answers; empty: no topology is known.
    pub stores_from: Vec<String>,
    /// Bundles and maps.
    pub fleet: Fleet,
    /// The traffic matrix, if there is a service for it.
    pub matrix: Answer<Option<GetMatrixReply>>,
    /// What was not answered.
    pub errors: Vec<String>,
}

/// Collects everything a cycle needs. `last_good` is asked first for its store.
pub async fn collect<A: Agents>(agents: &A, config: &ControllerConfig, last_good: &[String]) -> Collected {
    let mut order: Vec<&str> = config.routers.iter().map(|r| r.name.as_str()).collect();
    order.sort_by_key(|name| last_good.iter().position(|g| g == name).unwrap_or(usize::MAX));
    let bundles = join_all(config.routers.iter().map(|r| agents.bundles(&r.name, r.is_dc)));
    let maps = join_all(config.dcs().map(|r| agents.map(&r.name)));
    let snapshot = async { futures::join!(stores(agents, &order), bundles, maps) };
    let ((stores, bundles, maps), matrix) = beside(snapshot, agents.matrix()).await;

    let (stores, mut errors) = stores;
    let (stores_from, stores): (Vec<String>, Vec<Vec<KeyValue>>) = stores.into_iter().unzip();
    let all = config.routers.iter().map(|r| r.name.clone());
    let bundles: BTreeMap<String, DumpBundlesReply> = keep(all.zip(bundles), &mut errors);
    let maps = keep(config.dcs().map(|r| r.name.clone()).zip(maps), &mut errors);
    let maps = maps.into_iter().map(|(router, reply)| (router, (reply.epoch, reply.map))).collect();
    Collected { store: merge(stores), stores_from, fleet: Fleet::new(bundles, maps), matrix, errors }
}

/// The snapshot, and the matrix if that is there by then: no cycle waits for a service that it can do without.
async fn beside<S>(
    snapshot: impl Future<Output = S>,
    matrix: impl Future<Output = Answer<Option<GetMatrixReply>>>,
) -> (S, Answer<Option<GetMatrixReply>>) {
    let (snapshot, matrix) = (pin!(snapshot), pin!(matrix));
    match select(snapshot, matrix).await {
        Either::Right((matrix, snapshot)) => (snapshot.await, matrix),
        Either::Left((snapshot, matrix)) => {
            let late = || AgentError::Silent {
                router: NHG_TM.to_owned(),
                call: "GetMatrix",
                message: "no answer by the end of the snapshot".to_owned(),
            };
            let matrix = tokio::time::timeout(LATE, matrix).await;
            (snapshot, matrix.unwrap_or_else(|_| Err(late())))
        }
    }
}

/// Stores of the first routers to answer, and what the others said until then.
///
/// Asks as many as are wanted; one more whenever one fails, or when nothing has come for a while.
async fn stores<A: Agents>(agents: &A, order: &[&str]) -> (Vec<(String, Vec<KeyValue>)>, Vec<String>) {
    let mut waiting = order.iter();
    let mut asked = FuturesUnordered::new();
    let ask = |router: &str| {
        let router = router.to_owned();
        async move { (agents.store(&router).await, router) }
    };
    asked.extend(waiting.by_ref().take(STORES).map(|r| ask(r)));
    let (mut got, mut errors) = (Vec::new(), Vec::new());
    let mut enough: Option<Instant> = None;
    while got.len() < STORES && !asked.is_empty() && enough.is_none_or(|at| Instant::now() < at) {
        match tokio::time::timeout(HEDGE, asked.next()).await {
            Ok(Some((Ok(store), router))) => {
                got.push((router, store));
                enough = enough.or(Some(Instant::now() + GRACE));
                continue;
            }
            Ok(Some((Err(e), _))) => errors.push(e.to_string()),
            Ok(None) | Err(_) => {}
        }
        asked.extend(waiting.next().map(|r| ask(r)));
    }
    (got, errors)
}

/// Keeps the answers, notes the rest.
fn keep<K: Ord, T>(
    answers: impl Iterator<Item = (K, Answer<T>)>,
    errors: &mut Vec<String>,
) -> BTreeMap<K, T> {
    let mut kept = BTreeMap::new();
    for (key, answer) in answers {
        match answer {
            Ok(value) => {
                kept.insert(key, value);
            }
            Err(e) => errors.push(e.to_string()),
        }
    }
    kept
}

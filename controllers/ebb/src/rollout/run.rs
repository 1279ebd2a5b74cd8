//! The rollout with its routers: every order is carried out in-band, everything that happens is a line on standard output.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use futures::future::join_all;
use prost::Message as _;
use router_emu::agent::monotonic_ns;
use router_emu::openr::spf;
use router_emu::proto::{AdjacencyDatabase, PushConfigRequest};
use serde_json::{Value, json};

use super::config::{RolloutConfig, Target};
use super::core::{NotPushed, Notice, Order, Pushed, Rollout, Verdict};
use super::detect::{Look, Sample};
use crate::agents::{AgentError, Agents as _};
use crate::grpc::{GrpcAgents, Reach};

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// A rollout with the way to its routers.
pub struct Runner {
    config: RolloutConfig,
    agents: GrpcAgents,
    /// Version of every router as last seen.
    versions: BTreeMap<String, u64>,
    /// Distance of every router, as far as it is known.
    distances: BTreeMap<String, u64>,
    next_look: u64,
}

impl Runner {
    /// Reaches the routers over their loopbacks.
    pub fn new(config: RolloutConfig) -> Self {
        let reach = config.routers.iter().map(|r| (r.name.clone(), Reach::Loopback(r.loopback))).collect();
        let timeout = Duration::from_millis(config.rpc_timeout_ms);
        Self {
            agents: GrpcAgents::with_reach(reach, timeout),
            config,
            versions: BTreeMap::new(),
            distances: BTreeMap::new(),
            next_look: 0,
        }
    }

    /// Carries the rollout out; how it ended.
    pub async fn run(mut self) -> Verdict {
        let mut rollout = Rollout::new(self.config.clone());
        self.measure().await;
        loop {
            match rollout.order() {
                Order::Look => {
                    let look = self.look().await;
                    say(&rollout.looked(monotonic_ns(), look));
                }
                Order::Push(routers) => {
                    let before = self.versions.clone();
                    rollout.pushing(monotonic_ns());
                    let results = self.push(&routers).await;
                    say(&rollout.pushed(monotonic_ns(), results, &before));
                }
                Order::Confirm(routers) => {
                    let results = self.confirm(&routers).await;
                    say(&rollout.confirmed(monotonic_ns(), &results));
                }
                Order::Rollback(routers) => {
                    self.roll_back(&routers).await;
                    rollout.rolled_back();
                }
                Order::End(verdict) => {
                    tell("end", ended(&verdict));
                    return verdict;
                }
            }
        }
    }

    /// How far the routers of each plane are from its router of our site.
    async fn measure(&mut self) {
        for entry in self.config.routers.iter().filter(|r| r.site == self.config.site) {
            let values = match self.agents.store(&entry.name).await {
                Ok(values) => values,
                Err(e) => {
                    tracing::warn!("distances in plane {} are not known: {e}", entry.plane);
                    continue;
                }
            };
            let read = values.iter().filter_map(|v| AdjacencyDatabase::decode(v.value.as_slice()).ok());
            let databases = read.map(|database| (database.node.clone(), database)).collect();
            let routes = spf::routes(&entry.name, &databases);
            self.distances.extend(routes.into_values().map(|route| (route.node, route.distance)));
        }
    }

    /// Looks at all routers at once, when the time for it has come.
    async fn look(&mut self) -> Look {
        let wait = Duration::from_nanos(self.next_look.saturating_sub(monotonic_ns()));
        tokio::time::sleep(wait).await;
        self.next_look = monotonic_ns() + self.config.poll_ms * MS;
        let each = self.config.routers.iter().map(|r| self.sample(r));
        let look: Look = join_all(each).await.into_iter().collect();
        for (router, sample) in &look {
            if let Some(sample) = sample {
                self.versions.insert(router.clone(), sample.version);
            }
        }
        look
    }

    async fn sample(&self, router: &Target) -> (String, Option<Sample>) {
        let name = router.name.as_str();
        let asked = async {
            let (config, neighbors, bundles, traffic) = futures::try_join!(
                self.agents.config(name),
                self.agents.neighbors(name),
                self.agents.bundles(name, false),
                self.agents.traffic(name),
            )?;
            let established =
                neighbors.iter().filter(|n| matches!(n.state.as_str(), "ESTABLISHED" | "RESTART"));
            let live = bundles.bundles.iter().filter(|b| b.is_source && b.live);
            Ok::<_, AgentError>(Sample {
                version: config.running,
                unconfirmed: config.unconfirmed > 0,
                adjacencies: established.count().try_into().unwrap_or(u64::MAX),
                paths: live.map(|b| u64::from(b.programmed)).sum(),
                packets: traffic.counters.iter().map(|c| c.packets).sum(),
            })
        };
        let sample = asked.await.inspect_err(|e| tracing::warn!(router = name, "{}", e.plain())).ok();
        (name.to_owned(), sample)
    }

    /// Pushes to all planes at once, in each to the farthest router first: a change that closes interfaces closes no way
    /// to a router that has not got it yet.
    async fn push(&self, routers: &[String]) -> BTreeMap<String, Pushed> {
        let mut planes: BTreeMap<u8, Vec<&Target>> = BTreeMap::new();
        for target in self.config.routers.iter().filter(|r| routers.contains(&r.name)) {
            planes.entry(target.plane).or_default().push(target);
        }
        for targets in planes.values_mut() {
            targets.sort_by_key(|t| std::cmp::Reverse(self.distances.get(&t.name).copied().unwrap_or(0)));
        }
        let each = planes.into_values().map(|targets| async move {
            let requests = join_all(targets.iter().map(|t| self.prepare(t))).await;
            // nothing is sent to a plane of which one router objects
            if let Some((name, why)) = requests.iter().find_map(|(name, r)| Some((name, r.as_ref().err()?))) {
                return vec![(name.clone(), Err(NotPushed { sent: false, why: why.clone() }))];
            }
            let mut results = Vec::new();
            for (name, request) in requests {
                let Ok((old, request)) = request else { continue };
                let pushed = self.agents.push_config(&name, request).await;
                results.push((
                    name,
                    pushed
                        .map(|state| (old, state.running))
                        .map_err(|e| NotPushed { sent: true, why: e.plain() }),
                ));
            }
            results
        });
        join_all(each).await.into_iter().flatten().collect()
    }

    /// What a router is to run, checked by itself; with the version that runs.
    async fn prepare(&self, target: &Target) -> (String, Result<(u64, PushConfigRequest), String>) {
        let name = target.name.clone();
        let prepared = async {
            let state = self.agents.config(&name).await.map_err(|e| e.plain())?;
            let mut config: Value = serde_json::from_str(&state.config_json).map_err(|e| e.to_string())?;
            for edit in &self.config.edits {
                edit.apply(&mut config)?;
            }
            let request = PushConfigRequest {
                config_json: config.to_string(),
                writer: self.config.writer.clone(),
                comment: self.config.comment.clone(),
                expect_version: state.running,
                confirm_within_ms: self.config.confirm_within_ms,
                check_only: false,
            };
            let check = PushConfigRequest { check_only: true, ..request.clone() };
            self.agents.push_config(&name, check).await.map_err(|e| e.plain())?;
            Ok((state.running, request))
        };
        let prepared = prepared.await;
        (name, prepared)
    }

    async fn confirm(&self, routers: &[String]) -> BTreeMap<String, Result<(), String>> {
        let each = routers.iter().map(|name| async move {
            let confirmed = async {
                let version = self.agents.config(name).await?.running;
                self.agents.confirm_config(name, version, &self.config.writer).await
            };
            (name.clone(), confirmed.await.map_err(|e: AgentError| e.plain()))
        });
        join_all(each).await.into_iter().collect()
    }

    async fn roll_back(&self, routers: &[(String, u64)]) {
        let each = routers.iter().map(|(name, version)| async move {
            if let Err(e) = self.agents.rollback_config(name, *version, &self.config.writer).await {
                tracing::warn!(router = name, "{}; it goes back by itself", e.plain());
            }
        });
        join_all(each).await;
    }
}

fn say(news: &[Notice]) {
    for Notice { kind, detail } in news {
        tell(kind, json!({"detail": detail}));
    }
}

/// The end as a document: `outcome`, `detail`, and the times if something was undone.
fn ended(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Done => json!({"outcome": "done", "detail": "all routers have it and keep it"}),
        Verdict::RolledBack { detected_ms, undone_ms, recovered_ms } => json!({
            "outcome": "rolled-back", "detected_ms": detected_ms, "undone_ms": undone_ms, "recovered_ms": recovered_ms,
            "detail": format!(
                "detected after {:.1} s, undone after {:.1} s, recovered after {:.1} s",
                secs(*detected_ms), secs(*undone_ms), secs(*recovered_ms)
            ),
        }),
        Verdict::Refused(why) => {
            json!({"outcome": "refused", "detail": format!("nothing was changed: {why}")})
        }
        Verdict::NotRecovered(why) => json!({"outcome": "not-recovered", "detail": why}),
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn secs(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// One line on standard output.
fn tell(kind: &str, mut fields: Value) {
    fields["kind"] = json!(kind);
    fields["at_ns"] = json!(monotonic_ns());
    let mut out = std::io::stdout().lock();
    // a reader that has gone away misses nothing
    let _ = writeln!(out, "{fields}").and_then(|()| out.flush());
}

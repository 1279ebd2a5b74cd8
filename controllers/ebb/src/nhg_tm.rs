//! NHG-TM: the traffic-matrix service of a plane.
//!
//! It polls the routers' byte counters by its own clock, each router by a task of its own, so that one that hangs delays no
//! other; smooths them; and serves the matrix. It is a process of its own: a controller that gets no answer goes on with the
//! last matrix that it had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use router_emu::config::NHG_TM_PORT;
use router_emu::proto::nhg_tm_server::{NhgTm, NhgTmServer};
use router_emu::proto::{self, GetMatrixReply, GetMatrixRequest, SourceAge};
use serde::{Deserialize, Serialize};
use tonic::{Request, Response, Status};

use crate::config::{self, RouterEntry};
use crate::grpc::GrpcAgents;
use crate::traffic::{Scale, TrafficMatrix};

/// Configuration file (JSON) of one plane's service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NhgTmConfig {
    /// Plane number; the RPC port is 60300 + plane.
    pub plane: u8,
    /// The plane's routers; those of DC sites are polled.
    pub routers: Vec<RouterEntry>,
    /// Time between two polls of a router, milliseconds.
    #[serde(default = "default_poll_ms")]
    pub poll_ms: u64,
    /// How samples are scaled and smoothed.
    #[serde(default)]
    pub scale: Scale,
    /// Deadline of a poll, milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub rpc_timeout_ms: u64,
    /// Folder of the unix socket `nhg-tm.sock`.
    pub run_dir: PathBuf,
}

fn default_poll_ms() -> u64 {
    1_000
}
fn default_timeout_ms() -> u64 {
    2_000
}

impl NhgTmConfig {
    /// Reads and checks a configuration file; the error names the file and the place in it.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let config: Self = config::read(path)?;
        config.check().map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        Ok(config)
    }

    /// Checks what the types cannot say.
    pub fn check(&self) -> Result<(), String> {
        if self.poll_ms == 0 || self.rpc_timeout_ms == 0 {
            return Err("poll_ms and rpc_timeout_ms must be at least 1".into());
        }
        self.scale.check()
    }

    /// TCP port of the RPC.
    pub fn port(&self) -> u16 {
        NHG_TM_PORT + u16::from(self.plane)
    }

    /// Path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("nhg-tm.sock")
    }
}

/// When a router's counters were taken in last, and what is wrong since.
#[derive(Debug)]
struct Source {
    since: Instant,
    error: String,
}

#[derive(Debug)]
struct State {
    matrix: TrafficMatrix,
    sources: BTreeMap<u8, Source>,
}

/// The service; clones share their matrix.
#[derive(Clone, Debug)]
pub struct Service {
    plane: u8,
    state: Arc<Mutex<State>>,
}

impl Service {
    /// Without a sample.
    pub fn new(config: &NhgTmConfig) -> Self {
        let source = || Source { since: Instant::now(), error: "not polled yet".into() };
        let dcs = config.routers.iter().filter(|r| r.is_dc);
        let sources = dcs.map(|r| (r.site, source())).collect();
        let state = State { matrix: TrafficMatrix::default(), sources };
        Self { plane: config.plane, state: Arc::new(Mutex::new(state)) }
    }

    /// As a tonic service.
    pub fn into_server(self) -> NhgTmServer<Self> {
        NhgTmServer::new(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls all routers, for ever.
    pub async fn poll(&self, config: &NhgTmConfig, agents: &GrpcAgents) {
        let dcs = config.routers.iter().filter(|r| r.is_dc);
        join_all(dcs.map(|router| self.poll_router(config, agents, router))).await;
    }

    async fn poll_router(&self, config: &NhgTmConfig, agents: &GrpcAgents, router: &RouterEntry) {
        let mut tick = tokio::time::interval(Duration::from_millis(config.poll_ms));
        // after a hang, samples come at the usual distance again
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let answer = agents.traffic(&router.name).await;
            let mut state = self.lock();
            let error = match &answer {
                Ok(reply) => {
                    state.matrix.update(router.site, reply, config.scale);
                    String::new()
                }
                Err(e) => e.to_string(),
            };
            let Some(source) = state.sources.get_mut(&router.site) else { continue };
            if error != source.error {
                match error.as_str() {
                    "" => tracing::info!(router = %router.name, "counters are there"),
                    error => tracing::warn!("{error}"),
                }
            }
            if answer.is_ok() {
                source.since = Instant::now();
            }
            source.error = error;
        }
    }

    fn matrix(&self) -> GetMatrixReply {
        let state = self.lock();
        let demands = state.matrix.smoothed().iter().map(|(&(src, dst, mesh), &bps)| proto::Demand {
            src_site: src.into(),
            dst_site: dst.into(),
            mesh: mesh.code().into(),
            bps,
        });
        let sources = state.sources.iter().map(|(&site, source)| SourceAge {
            site: site.into(),
            age_ms: u64::try_from(source.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            error: source.error.clone(),
        });
        GetMatrixReply { plane: self.plane.into(), demands: demands.collect(), sources: sources.collect() }
    }
}

#[tonic::async_trait]
impl NhgTm for Service {
    async fn get_matrix(&self, _: Request<GetMatrixRequest>) -> Result<Response<GetMatrixReply>, Status> {
        Ok(Response::new(self.matrix()))
    }
}

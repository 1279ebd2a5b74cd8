//! The cycle: snapshot, traffic engineering, programming.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use router_emu::agent::monotonic_ns;
use router_emu::proto;
use te::LspMesh;
use tokio::sync::{mpsc, oneshot};

use crate::agents::{Agents, Answer, Leased};
use crate::collect::{Collected, collect};
use crate::config::ControllerConfig;
use crate::drains::{Drains, Row};
use crate::driver::{Driver, Outcome};
use crate::fence::{Bid, Lock};
use crate::plan::{Plan, Unit, bundles};
use crate::stats::{CycleStats, StatsSink};
use crate::topology::Topology;
use crate::traffic::{self, Pair};

/// Errors kept for `GetState`; the rest is in the log.
const ERRORS_KEPT: usize = 32;
/// Longest time between cycles until the first one in which every pair succeeded: routers may still be starting.
const START_UP: Duration = Duration::from_secs(1);
/// Pause between two tries to get the leader's lock.
const LOCK_RETRY: Duration = Duration::from_secs(1);

/// Age of a router's counters in the traffic matrix from which on cycles say so, milliseconds.
const STALE_MS: u64 = 10_000;

/// The last cycle, for whoever asks.
#[derive(Debug, Default)]
pub struct Shared(Mutex<(proto::ControllerState, Arc<Plan>)>);

impl Shared {
    /// State of the last cycle; `with_mesh` adds all paths.
    pub fn state(&self, with_mesh: bool) -> proto::ControllerState {
        let (mut state, plan) = {
            let last = self.lock();
            (last.0.clone(), Arc::clone(&last.1))
        };
        if with_mesh {
            state.mesh = plan.units.iter().filter_map(Unit::bundle).cloned().collect();
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, (proto::ControllerState, Arc<Plan>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request for a cycle; answered when it has ended, or with the reason why there is none.
pub type CycleRequest = oneshot::Sender<Result<(), String>>;

/// The controller of a plane.
#[derive(Debug)]
pub struct Controller<A, L> {
    config: ControllerConfig,
    agents: A,
    lock: L,
    sink: StatsSink,
    shared: Arc<Shared>,
    drains: Drains,
    /// Rows as read last, for cycles in which the database does not answer.
    drained: Vec<Row>,
    /// Traffic as the service told it last, for cycles in which it does not answer, and when that was.
    measured: BTreeMap<Pair, u64>,
    measured_at: Option<Instant>,
    /// Epoch while leading, and whether a cycle has confirmed it.
    epoch: Option<(u64, bool)>,
    last_good: Vec<String>,
    cycle: u64,
}

/// What a snapshot and its computation gave.
struct Computed {
    topology: Topology,
    mesh: LspMesh,
    demands: BTreeMap<Pair, u64>,
}

impl<A: Agents + Sync, L: Lock> Controller<A, L> {
    /// A controller without memory.
    pub fn new(config: ControllerConfig, agents: A, lock: L, sink: StatsSink, drains: Drains) -> Self {
        let shared = Arc::new(Shared::default());
        {
            let mut last = shared.lock();
            last.0.plane = config.plane.into();
            last.0.name.clone_from(&config.name);
        }
        Self {
            config,
            agents,
            lock,
            sink,
            shared,
            drains,
            drained: Vec::new(),
            measured: BTreeMap::new(),
            measured_at: None,
            epoch: None,
            last_good: Vec::new(),
            cycle: 0,
        }
    }

    /// Where the last cycle's state is.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The agents.
    pub fn agents(&self) -> &A {
        &self.agents
    }

    /// Runs cycles, by the clock and on request, until the senders of requests are gone.
    pub async fn run(mut self, mut requests: mpsc::Receiver<CycleRequest>) -> anyhow::Result<()> {
        let period = Duration::from_millis(self.config.cycle_ms);
        let mut next = tokio::time::Instant::now();
        let mut settled = false;
        loop {
            if self.epoch.is_none() {
                if let Err(why) = self.lead().await {
                    if !stand_by(&mut requests, &why).await {
                        return Ok(());
                    }
                    continue;
                }
                next = tokio::time::Instant::now();
            }
            let mut lease = self.lock.lease();
            let due = tokio::time::sleep_until(next);
            let request = tokio::select! {
                biased;
                () = lease.lapsed() => {
                    self.stand_down("the lease of the lead has run out");
                    continue;
                }
                request = requests.recv() => match request {
                    Some(request) => Some(request),
                    None => return Ok(()),
                },
                () = due, if !period.is_zero() => None,
            };
            let start = tokio::time::Instant::now();
            let state = self.cycle().await;
            settled |= state.pairs_failed == 0 && state.pairs_ok > 0;
            // from the start of this cycle: one that is late does not make the next one hurry
            next = if settled { start + period } else { tokio::time::Instant::now() + period.min(START_UP) };
            if let Some(request) = request {
                let led = if state.leading { Ok(()) } else { Err(state.errors.join("; ")) };
                let _ = request.send(led);
            }
        }
    }

    /// Tries to become the leader; why not, otherwise.
    async fn lead(&mut self) -> Result<(), String> {
        let why = match self.lock.try_acquire().await {
            Ok(Bid::Won(epoch)) => {
                self.epoch = Some((epoch, false));
                let mut last = self.shared.lock();
                (last.0.leading, last.0.epoch) = (true, epoch);
                last.0.errors.clear();
                tracing::info!(plane = self.config.plane, epoch, "leading");
                return Ok(());
            }
            Ok(Bid::Taken(leader)) => {
                format!(
                    "standing by: {} holds the leader's lock",
                    leader.as_deref().unwrap_or("another controller")
                )
            }
            Err(e) => format!("standing by: {e:#}"),
        };
        self.tell(&why);
        Err(why)
    }

    /// Stops leading.
    fn stand_down(&mut self, why: &str) {
        self.lock.release();
        self.epoch = None;
        self.tell(&format!("not leading any more: {why}"));
    }

    /// Says why this controller does not lead; in the log when it changes.
    fn tell(&self, why: &str) {
        let mut last = self.shared.lock();
        last.0.leading = false;
        if last.0.errors != [why] {
            tracing::info!(plane = self.config.plane, "{why}");
            last.0.errors = vec![why.to_owned()];
        }
    }

    /// One cycle. Failures are in the state; the next cycle tries again.
    pub async fn cycle(&mut self) -> proto::ControllerState {
        self.cycle += 1;
        let mut stats = CycleStats {
            plane: self.config.plane,
            cycle: self.cycle,
            started_ns: monotonic_ns(),
            ..CycleStats::default()
        };
        let start = Instant::now();
        let collected = collect(&self.agents, &self.config, &self.last_good).await;
        stats.snapshot_us = micros(start.elapsed());
        let mut errors = collected.errors.clone();
        let epoch = match self.confirm(collected.fleet.epoch()).await {
            Ok(epoch) => epoch,
            Err(e) => {
                self.stand_down(&format!("{e:#}"));
                errors.push(format!("not leading: {e:#}"));
                return self.publish(stats, Plan::default(), errors, &BTreeMap::new());
            }
        };
        stats.epoch = epoch;
        stats.routers =
            count(self.config.routers.iter().filter(|r| collected.fleet.answered(&r.name)).count());
        if let Err(e) = self.read_drains() {
            errors.push(format!("drain database: {e:#}; drains are those of an earlier cycle"));
        }
        self.read_matrix(&collected.matrix, &mut errors);
        let start = Instant::now();
        let computed = match self.compute(&collected) {
            Ok(computed) => computed,
            Err(e) => {
                errors.push(format!("nothing computed, routers keep what they have: {e:#}"));
                return self.publish(stats, Plan::default(), errors, &BTreeMap::new());
            }
        };
        errors.extend(computed.topology.warnings.iter().cloned());
        describe(&mut stats, &computed);
        let wanted = bundles(&computed.mesh, &computed.topology, &self.config);
        let plan = Plan::new(wanted, &collected.fleet, &self.config);
        stats.te_us = micros(start.elapsed());

        let start = Instant::now();
        let agents = Leased { agents: &self.agents, lease: self.lock.lease() };
        let driver = Driver {
            agents: &agents,
            epoch,
            writer: &self.config.name,
            retire_delay: self.config.retire_delay(),
        };
        let outcome = driver.run(&plan).await;
        stats.program_us = micros(start.elapsed());
        let Outcome { programmed, kept, failed, retired, .. } = outcome;
        (stats.programmed, stats.kept, stats.failed, stats.retired) = (programmed, kept, failed, retired);
        errors.extend(outcome.errors);
        self.publish(stats, plan, errors, &computed.demands)
    }

    /// The epoch to write with: above what a leader of the past has used.
    async fn confirm(&mut self, seen: u64) -> anyhow::Result<u64> {
        if self.epoch.is_none() {
            self.lead().await.map_err(anyhow::Error::msg)?;
        }
        let Some((epoch, confirmed)) = self.epoch else { anyhow::bail!("no epoch") };
        // an equal epoch is our own, unless we have never written with it
        if seen < epoch || (seen == epoch && confirmed) {
            self.epoch = Some((epoch, true));
            return Ok(epoch);
        }
        let Some(raised) = self.lock.raise_above(seen).await? else {
            anyhow::bail!("agents have seen epoch {seen}, ours is {epoch}: somebody else leads")
        };
        tracing::warn!(epoch, seen, raised, "agents have seen a higher epoch; raised ours");
        self.epoch = Some((raised, true));
        Ok(raised)
    }

    /// Takes the traffic matrix over; without an answer the one before stays.
    fn read_matrix(&mut self, answer: &Answer<Option<proto::GetMatrixReply>>, errors: &mut Vec<String>) {
        match answer {
            Ok(None) => {}
            Ok(Some(reply)) => {
                self.measured = traffic::measured(reply);
                self.measured_at = Some(Instant::now());
                for source in reply.sources.iter().filter(|s| s.age_ms > STALE_MS) {
                    let router =
                        u8::try_from(source.site).ok().and_then(|site| self.config.router_of_site(site));
                    let router = router.map_or_else(|| source.site.to_string(), |r| r.name.clone());
                    let (seconds, why) = (source.age_ms / 1000, &source.error);
                    errors.push(format!("traffic matrix: no counters of {router} for {seconds} s ({why})"));
                }
            }
            Err(e) => {
                let known = self.measured_at.map_or_else(
                    || "none is known, demands are those of the configuration".to_owned(),
                    |at| format!("the one of {} s ago is used", at.elapsed().as_secs()),
                );
                errors.push(format!("traffic matrix: {e}; {known}"));
            }
        }
    }

    fn read_drains(&mut self) -> anyhow::Result<()> {
        self.drained = self.drains.rows()?;
        Ok(())
    }

    /// Snapshot to mesh: same snapshot, same mesh.
    fn compute(&mut self, collected: &Collected) -> anyhow::Result<Computed> {
        if collected.stores_from.is_empty() {
            anyhow::bail!("no router of the plane gave out its key-value store");
        }
        self.last_good.clone_from(&collected.stores_from);
        let topology = Topology::build(&collected.store, &self.config, &self.drained)?;
        let demands = traffic::demands(&self.measured, &self.config);
        let node = |site| {
            let router = self.config.router_of_site(site);
            router.and_then(|r| topology.graph.find_node(&r.name))
        };
        let demand = |(&(src, dst, mesh), &bps): (&Pair, &u64)| {
            Some(te::Demand { src: node(src)?, dst: node(dst)?, mesh, bps })
        };
        let wanted: Vec<te::Demand> = demands.iter().filter_map(demand).collect();
        let mesh = te::compute(&topology.graph, &wanted, &self.config.te)?;
        Ok(Computed { topology, mesh, demands })
    }

    /// Makes a cycle's result known: log, statistics, state.
    fn publish(
        &mut self,
        mut stats: CycleStats,
        plan: Plan,
        errors: Vec<String>,
        demands: &BTreeMap<Pair, u64>,
    ) -> proto::ControllerState {
        stats.errors = count(errors.len());
        stats.stats_dropped = self.sink.dropped();
        self.sink.push(&stats);
        for e in errors.iter().take(ERRORS_KEPT) {
            tracing::warn!(cycle = stats.cycle, "{e}");
        }
        let s = &stats;
        tracing::info!(
            cycle = s.cycle,
            epoch = s.epoch,
            routers = s.routers,
            links = s.links,
            lsps = s.lsps,
            protected = s.protected,
            unrouted = s.unrouted,
            programmed = s.programmed,
            kept = s.kept,
            failed = s.failed,
            retired = s.retired,
            errors = s.errors,
            snapshot_us = s.snapshot_us,
            te_us = s.te_us,
            program_us = s.program_us,
            max_utilisation_permille = s.max_utilisation_permille,
            "cycle"
        );
        let demand = |(&(src, dst, mesh), &bps): (&Pair, &u64)| proto::Demand {
            src_site: src.into(),
            dst_site: dst.into(),
            mesh: mesh.code().into(),
            bps,
        };
        let state = proto::ControllerState {
            plane: stats.plane.into(),
            epoch: stats.epoch,
            cycle: stats.cycle,
            snapshot_us: stats.snapshot_us,
            te_us: stats.te_us,
            program_us: stats.program_us,
            pairs_ok: stats.programmed + stats.kept,
            pairs_failed: stats.failed,
            lsps: stats.lsps,
            unrouted: stats.unrouted,
            errors: errors.into_iter().take(ERRORS_KEPT).collect(),
            mesh: Vec::new(),
            demands: demands.iter().map(demand).collect(),
            drains: self.drained.iter().map(Row::to_wire).collect(),
            leading: self.epoch.is_some(),
            name: self.config.name.clone(),
            protected: stats.protected,
            max_utilisation_permille: stats.max_utilisation_permille,
        };
        *self.shared.lock() = (state.clone(), Arc::new(plan));
        state
    }
}

/// Waits for the next attempt to lead, and refuses cycles that are asked for meanwhile; false if nobody can ask any more.
async fn stand_by(requests: &mut mpsc::Receiver<CycleRequest>, why: &str) -> bool {
    let again = tokio::time::sleep(LOCK_RETRY);
    tokio::pin!(again);
    loop {
        tokio::select! {
            () = &mut again => return true,
            request = requests.recv() => match request {
                Some(request) => drop(request.send(Err(why.to_owned()))),
                None => return false,
            },
        }
    }
}

fn describe(stats: &mut CycleStats, computed: &Computed) {
    let Computed { topology, mesh, .. } = computed;
    stats.links = count(topology.graph.link_count());
    stats.lsps = mesh.classes.iter().map(|c| c.placed).sum();
    stats.protected = mesh.classes.iter().map(|c| c.protected).sum();
    stats.unrouted = mesh.fallbacks();
    let most = mesh.utilisation(&topology.graph).into_iter().fold(0.0, f64::max);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // saturates; a utilisation is not negative
    let permille = (most * 1000.0).round() as u32;
    stats.max_utilisation_permille = permille;
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

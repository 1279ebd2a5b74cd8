//! The lsp-agent's event loop: one task owns everything, so that nothing waits for a lock when a link fails.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message as _;
use rtnl::monitor::{self, Monitor};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::transport::Server;

use super::bundle::{Interface, Router};
use super::counters::Counters;
use super::driver::{Driver, Kernel as _, Outcome};
use super::engine::{Engine, LinkEvent, LinkState};
use super::journal::Journal;
use super::kernel::Netlink;
use super::links::Advertised;
use super::service::{Command, Service};
use super::store;
use crate::agent::{Urgency, monotonic_ns, stop_signal, watch};
use crate::config::{LSP_AGENT_PORT, RouterConfig};
use crate::events::Events;
use crate::openr::flare::{Flare, MAX_FLARE};
use crate::proto::lsp_agent_server::LspAgentServer;
use crate::proto::{self, AdjacencyDatabase, Phase};
use crate::rpc;

/// Bundles written before the loop looks for link events again: a repair must not wait for a whole cycle's programming.
const CHUNK: usize = 4;
/// Groups put in order at a time after a repair.
const SETTLE: usize = 1;
/// Left-over nexthop objects deleted at a time; each takes the kernel a grace period.
const TIDY: usize = 2;
/// Counters are not read more often than this before a re-programming.
const COUNTER_AGE: Duration = Duration::from_millis(100);

/// Runs the agent until SIGTERM; kernel state stays.
///
/// # Errors
/// No netlink, no journal folder, or ports that are taken.
pub async fn run(config: RouterConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let (commands, inbox) = mpsc::channel(64);
    let mut agent = Agent::start(&config)?;
    let adjacencies = store::subscribe(config.socket("openr"));
    let service = Service::new(commands);
    let socket = config.socket("lsp-agent");
    let server = rpc::serve(
        move || Server::builder().add_service(LspAgentServer::new(service.clone())),
        LSP_AGENT_PORT,
        &socket,
        stop.clone(),
    );
    tokio::select! {
        served = server => served,
        looped = agent.run(inbox, adjacencies) => looped,
        () = stop => Ok(()),
    }
}

/// The router as the core wants it.
pub fn router(config: &RouterConfig) -> Router {
    let interfaces = config.interfaces.iter();
    let interfaces =
        interfaces.map(|i| Interface { name: i.name.clone(), gateway: i.peer_link_local, ifindex: 0 });
    Router {
        node: config.node.clone(),
        site: config.site,
        depth: usize::from(config.max_labels),
        interfaces: interfaces.collect(),
    }
}

/// Opens the datagram socket on which openr hands over flares; that of an earlier life is replaced.
fn hear_flares(path: &Path) -> anyhow::Result<UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => UnixDatagram::bind(path),
    }
    .map_err(|e| anyhow::anyhow!("cannot hear flares on {}: {e}", path.display()))
}

struct Agent {
    driver: Driver<Netlink>,
    monitor: AsyncFd<Monitor>,
    flares: UnixDatagram,
    /// Waiting for events and answering them is urgent, nothing else is.
    urgency: Urgency,
    /// Paths in use or links changed since the journal was written.
    unremembered: bool,
    counters: Counters,
    counted: Option<Instant>,
    events: Events,
}

impl Agent {
    fn start(config: &RouterConfig) -> anyhow::Result<Self> {
        // subscribed before the first look: what happens after it is told
        let monitor = watch(Monitor::open(&[monitor::Group::Link])?)?;
        let flares = hear_flares(&config.flare_socket())?;
        let journal = Journal::open(&config.state_dir).map_err(|e| {
            anyhow::anyhow!("cannot use the state folder {}: {e}", config.state_dir.display())
        })?;
        let mut driver = Driver::new(Engine::new(router(config)), Netlink::open()?, Some(journal));
        let begun = Instant::now();
        let outcome = driver.start()?;
        let mut agent = Self {
            driver,
            monitor,
            flares,
            urgency: Urgency::default(),
            unremembered: false,
            counters: Counters::default(),
            counted: None,
            events: Events::default(),
        };
        agent.report("reconciled", "at start", agent.driver.engine.bundles().len(), begun, &outcome);
        Ok(agent)
    }

    async fn run(
        &mut self,
        mut commands: mpsc::Receiver<Command>,
        mut adjacencies: mpsc::Receiver<proto::Publication>,
    ) -> anyhow::Result<()> {
        loop {
            self.urgency.set(true);
            let command = tokio::select! {
                biased;
                ready = self.flares.readable() => {
                    // taken, together with the kernel's events, by what follows
                    ready?;
                    None
                }
                ready = self.monitor.readable_mut() => {
                    // cleared before it is drained, so that nothing that comes meanwhile is missed
                    ready?.clear_ready();
                    None
                }
                Some(publication) = adjacencies.recv() => {
                    self.advertised(&publication);
                    None
                }
                command = commands.recv() => Some(command),
                // gives way to the other tasks first: no packet is lost any more
                () = tokio::task::yield_now(), if self.unremembered => {
                    self.urgency.set(false);
                    self.driver.remember_links();
                    self.unremembered = false;
                    None
                }
                () = tokio::task::yield_now(), if self.driver.is_unsettled() => {
                    self.urgency.set(false);
                    let outcome = self.driver.settle(SETTLE)?;
                    self.counters.restarted(&outcome.replaced);
                    None
                }
                // the same, and less urgent still
                () = tokio::task::yield_now(), if self.driver.is_untidy() => {
                    self.urgency.set(false);
                    self.driver.tidy(TIDY)?;
                    None
                }
            };
            self.react(&mut adjacencies)?;
            match command {
                Some(Some(command)) => {
                    self.urgency.set(false);
                    self.answer(command, &mut adjacencies)?;
                }
                Some(None) => return Ok(()),
                None => {}
            }
        }
    }

    /// Takes all events that are there, from the kernel and from the store, and answers them with one batch.
    fn react(&mut self, adjacencies: &mut mpsc::Receiver<proto::Publication>) -> anyhow::Result<()> {
        let begun = Instant::now();
        while let Ok(publication) = adjacencies.try_recv() {
            self.advertised(&publication);
        }
        self.take_flares();
        if self.drain_monitor()? {
            self.urgency.set(false);
            let outcome = self.driver.reconcile()?;
            let bundles = self.driver.engine.bundles().len();
            self.report("reconciled", "after lost kernel events", bundles, begun, &outcome);
        }
        if self.driver.engine.has_changes() {
            let learned_ns = monotonic_ns();
            let (repair, outcome) = self.driver.repair()?;
            let (took, done_ns) = (begun.elapsed(), monotonic_ns());
            self.urgency.set(false);
            self.unremembered = true;
            self.counters.restarted(&outcome.replaced);
            for &endpoint in &repair.changed {
                let links = self.driver.engine.links();
                let kind = if links.is_up(endpoint) { "link_up" } else { "link_down" };
                let name = links.name(endpoint);
                tracing::info!(link = %name, "{kind}");
                self.events.add(learned_ns, kind, name, repair.bundles.len(), 0);
            }
            if !repair.plan.is_empty() {
                self.report_at(done_ns, "repaired", "", repair.bundles.len(), took, &outcome);
            }
        }
        Ok(())
    }

    /// Hands openr's flares to the engine.
    fn take_flares(&mut self) {
        let mut buffer = [0; MAX_FLARE + 1];
        while let Ok(length) = self.flares.try_recv(&mut buffer) {
            match Flare::decode(buffer.get(..length).unwrap_or_default()) {
                Ok(flare) => self.driver.engine.flare(&flare),
                Err(e) => tracing::warn!("flare refused: {e}"),
            }
        }
    }

    /// Hands the kernel's link events to the engine; true if some were lost.
    fn drain_monitor(&mut self) -> io::Result<bool> {
        let mut lost = false;
        while let Some(event) = self.monitor.get_mut().try_recv()? {
            let (info, gone) = match event {
                monitor::Event::Link(info) => (info, false),
                monitor::Event::LinkDeleted(info) => (info, true),
                monitor::Event::Overrun => {
                    lost = true;
                    continue;
                }
                _ => continue,
            };
            let state = match (gone, info.up && info.lower_up) {
                (true, _) => LinkState::Gone,
                (false, true) => LinkState::Up,
                (false, false) => LinkState::Down,
            };
            self.driver.engine.interface(&LinkEvent { interface: info.name, ifindex: info.ifindex, state });
        }
        Ok(lost)
    }

    /// Hands advertised adjacencies to the engine. What a snapshot does not mention stays as it was: an empty store is a
    /// restarted openr, not a failed plane.
    fn advertised(&mut self, publication: &proto::Publication) {
        for value in &publication.values {
            let Some(node) = value.key.strip_prefix(store::PREFIX) else { continue };
            match AdjacencyDatabase::decode(value.value.as_slice()) {
                Ok(database) => {
                    let adjacencies = database.adjacencies.iter();
                    let adjacencies =
                        adjacencies.map(|a| Advertised { interface: &a.interface, since_ns: a.changed_ns });
                    self.driver.engine.advertised(node, adjacencies);
                }
                Err(e) => {
                    tracing::warn!(key = %value.key, error = %e, "cannot read an advertisement: left out");
                }
            }
        }
        for node in publication.expired.iter().filter_map(|key| key.strip_prefix(store::PREFIX)) {
            self.driver.engine.advertised(node, std::iter::empty::<Advertised<'_>>());
        }
    }

    fn answer(
        &mut self,
        command: Command,
        adjacencies: &mut mpsc::Receiver<proto::Publication>,
    ) -> anyhow::Result<()> {
        // a caller that has gone away does not want the answer: sends may fail
        match command {
            Command::Program(request, reply) => drop(reply.send(self.program(request, adjacencies)?)),
            Command::Dump(request, reply) => drop(reply.send(self.driver.dump(request.with_paths))),
            Command::Counters(reply) => {
                let read = self.count();
                let counters = self.counters.totals(self.driver.engine.router().site);
                let at_ns = self.driver.kernel.now_ns();
                let answer = proto::GetCountersReply { at_ns, counters };
                drop(reply.send(read.map(|()| answer).map_err(|e| Status::internal(e.to_string()))));
            }
            Command::Watch(reply) => drop(reply.send(self.events.watch())),
        }
        Ok(())
    }

    fn program(
        &mut self,
        request: proto::ProgramBundleRequest,
        adjacencies: &mut mpsc::Receiver<proto::Publication>,
    ) -> anyhow::Result<Result<proto::ProgramBundleReply, Status>> {
        if let Err(highest) = self.driver.fence(request.epoch) {
            let message = format!(
                "epoch {} of writer {:?} is refused: this router has seen epoch {highest}, so somebody else leads",
                request.epoch, request.writer
            );
            tracing::warn!("{message}");
            self.events.add(monotonic_ns(), "fenced", message.clone(), request.bundles.len(), 0);
            return Ok(Err(Status::failed_precondition(message)));
        }
        let phase = request.phase();
        let begun = Instant::now();
        if phase == Phase::Source
            && self.counted.is_none_or(|at| at.elapsed() > COUNTER_AGE)
            && let Err(e) = self.count()
        {
            tracing::warn!(error = %e, "cannot read the counters before they start anew");
        }
        let mut results = Vec::with_capacity(request.bundles.len());
        let mut total = Outcome::default();
        let mut rest = request.bundles;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(CHUNK));
            let (part, outcome) = self.driver.program(phase, rest)?;
            self.counters.restarted(&outcome.replaced);
            results.extend(part);
            total.writes += outcome.writes;
            total.refused.extend(outcome.refused);
            self.react(adjacencies)?;
            rest = later;
        }
        let failed = results.iter().filter(|r| !r.ok).count();
        for result in results.iter().filter(|r| !r.ok) {
            tracing::warn!(sid = result.sid, error = %result.error, "{}: refused", phase.as_str_name());
        }
        let detail = format!(
            "{} by {} of epoch {}: {} done, {failed} failed",
            phase.as_str_name(),
            request.writer,
            request.epoch,
            results.len() - failed
        );
        self.report("programmed", &detail, results.len(), begun, &total);
        Ok(Ok(proto::ProgramBundleReply { results }))
    }

    fn count(&mut self) -> anyhow::Result<()> {
        let counts = self.driver.kernel.counts()?;
        self.counters.observe(counts.into_iter().map(|c| (c.member, c.packets)));
        self.counted = Some(Instant::now());
        Ok(())
    }

    fn report(&mut self, kind: &str, detail: &str, bundles: usize, begun: Instant, outcome: &Outcome) {
        self.report_at(monotonic_ns(), kind, detail, bundles, begun.elapsed(), outcome);
    }

    /// `at_ns`: when it was done, which may be a while ago: telling comes last.
    fn report_at(
        &mut self,
        at_ns: u64,
        kind: &str,
        detail: &str,
        bundles: usize,
        took: Duration,
        outcome: &Outcome,
    ) {
        let took_us = took.as_micros();
        tracing::info!(bundles, writes = outcome.writes, took_us, "{kind} {detail}");
        for (key, why) in &outcome.refused {
            tracing::error!(key, "the kernel refuses: {why}");
        }
        let text = format!("{detail}{}{} writes", if detail.is_empty() { "" } else { "; " }, outcome.writes);
        self.events.add(at_ns, kind, text, bundles, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

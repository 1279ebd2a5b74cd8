//! The route-agent's event loop: one task owns the table, the sockets and the counters.

use std::io;
use std::time::Duration;

use rtnl::monitor::{Group, Monitor};
use rtnl::nft::Counters;
use rtnl::{Socket, socket};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::transport::Server;

use super::kernel;
use super::service::{Command, Service};
use super::state::StateFile;
use super::table::Table;
use super::traffic::{self, Totals};
use crate::agent::{monotonic_ns, stop_signal, watch};
use crate::config::{ROUTE_AGENT_PORT, RouterConfig};
use crate::label::Mesh;
use crate::proto::route_agent_server::RouteAgentServer;
use crate::proto::{self, DumpRoutesReply, GetTrafficReply, MapEntry, PrefixState, ProgramMapReply};
use crate::rpc;

/// nftables table with our counting rules.
const COUNTER_TABLE: &str = "route-agent";
/// Reads of the kernel in a row before events that are lost each time are called a failure.
const ROUNDS: usize = 5;

/// Pause before everything is read again after a refusal.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the agent until SIGTERM; kernel state stays.
///
/// # Errors
/// No netlink, a state file that cannot be read, or ports that are taken.
pub async fn run(config: RouterConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let (commands, inbox) = mpsc::channel(64);
    let mut agent = Agent::start(&config)?;
    let service = Service::new(commands);
    let socket = config.socket("route-agent");
    let server = rpc::serve(
        move || Server::builder().add_service(RouteAgentServer::new(service.clone())),
        ROUTE_AGENT_PORT,
        &socket,
        stop.clone(),
    );
    tokio::select! {
        served = server => served,
        looped = agent.run(inbox) => looped,
        () = stop => Ok(()),
    }
}

struct Agent {
    site: u8,
    fabric: Option<String>,
    socket: Socket,
    monitor: AsyncFd<Monitor>,
    counters: Counters,
    table: Table,
    totals: Totals,
    state: StateFile,
    epoch: u64,
    /// Prefixes with their egress sites as the counting rules have them.
    counted: Vec<(ipnet::Ipv6Net, u8)>,
    /// A write was refused for another reason than a missing group.
    retry: bool,
}

impl Agent {
    fn start(config: &RouterConfig) -> anyhow::Result<Self> {
        // subscribed before the first read: what happens after it is told
        let monitor = watch(Monitor::open(&[Group::Route6, Group::Nexthop])?)?;
        let mut socket = Socket::open(socket::ROUTE)?;
        let fabric = config.fabric_interface.clone();
        let changed = kernel::ensure_rules(&mut socket, fabric.as_deref())?;
        tracing::info!(changed, "rules are in place");
        let (mut table, mut totals) = (Table::default(), Totals::default());
        let state = StateFile::new(&config.state_dir);
        let epoch = state.load(&mut table, &mut totals)?;
        let counters = Counters::open(COUNTER_TABLE)?;
        let mut agent = Self {
            site: config.site,
            fabric,
            socket,
            monitor,
            counters,
            table,
            totals,
            state,
            epoch,
            counted: Vec::new(),
            retry: false,
        };
        agent.read()?;
        agent.write()?;
        agent.count_by_rules()?;
        Ok(agent)
    }

    async fn run(&mut self, mut commands: mpsc::Receiver<Command>) -> anyhow::Result<()> {
        loop {
            let command = tokio::select! {
                biased;
                ready = self.monitor.readable_mut() => {
                    // cleared before it is drained, so that nothing that comes meanwhile is missed
                    ready?.clear_ready();
                    None
                }
                command = commands.recv() => Some(command),
                () = tokio::time::sleep(RETRY), if self.retry => None,
            };
            if self.drain()? || (std::mem::take(&mut self.retry) && command.is_none()) {
                self.read()?;
            }
            self.write()?;
            match command {
                Some(Some(command)) => self.answer(command)?,
                Some(None) => return Ok(()),
                None => {}
            }
        }
    }

    /// Takes all events that wait; true if some were lost.
    fn drain(&mut self) -> io::Result<bool> {
        let mut lost = false;
        while let Some(event) = self.monitor.get_mut().try_recv()? {
            lost |= kernel::take(&mut self.table, self.site, &event);
        }
        Ok(lost)
    }

    fn read(&mut self) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            kernel::read(&mut self.socket, self.site, &mut self.table)?;
            if !self.drain()? {
                return Ok(());
            }
        }
        anyhow::bail!(
            "the kernel's route events come faster than they can be read: {ROUNDS} reads in a row lost some"
        )
    }

    /// Writes what changed.
    fn write(&mut self) -> anyhow::Result<()> {
        while self.table.is_dirty() {
            let ops = self.table.plan();
            if ops.is_empty() {
                continue;
            }
            let refused = kernel::write(&mut self.socket, &mut self.table, &ops)?;
            tracing::info!(writes = ops.len(), refused = refused.len(), "routes written");
            for error in refused {
                tracing::error!(%error, "the kernel refuses; everything is read again in {RETRY:?}");
                self.retry = true;
            }
        }
        self.count_by_rules()
    }

    /// Brings the counting rules to the prefixes and their egress sites.
    fn count_by_rules(&mut self) -> anyhow::Result<()> {
        let prefixes: Vec<_> = self.table.prefixes().collect();
        if prefixes == self.counted {
            return Ok(());
        }
        let wanted = traffic::rules(self.fabric.as_deref(), prefixes.iter().copied());
        let there = self.counters.read()?;
        let changes = self.totals.converge(&wanted, &there);
        if !changes.is_empty() {
            self.counters.change(&changes)?;
            self.totals.removed(&changes, &there);
            self.save();
        }
        self.counted = prefixes;
        Ok(())
    }

    fn answer(&mut self, command: Command) -> anyhow::Result<()> {
        // a caller that has gone away does not want the answer: sends may fail
        match command {
            Command::Program(request, reply) => {
                let outcome = self.program(&request);
                if outcome.is_ok() {
                    self.write()?;
                }
                drop(reply.send(outcome));
            }
            Command::Dump(reply) => drop(reply.send(self.dump())),
            Command::Traffic(reply) => {
                let read = self.counters.read();
                let answer =
                    read.map(|c| GetTrafficReply { at_ns: monotonic_ns(), counters: self.totals.totals(&c) });
                drop(reply.send(answer.map_err(|e| Status::internal(e.to_string()))));
            }
        }
        Ok(())
    }

    fn program(&mut self, request: &proto::ProgramMapRequest) -> Result<ProgramMapReply, Status> {
        if request.epoch < self.epoch {
            let message = format!(
                "epoch {} of writer {:?} is refused: this router has seen epoch {}, so somebody else leads",
                request.epoch, request.writer, self.epoch
            );
            tracing::warn!("{message}");
            return Err(Status::failed_precondition(message));
        }
        let entries = request.entries.iter().map(|e| (e, Some(e.nhg_id)));
        let entries = entries.chain(request.remove.iter().map(|e| (e, None)));
        let entries: Vec<_> =
            entries.map(|(entry, group)| Ok((key(entry)?, group))).collect::<Result<_, Status>>()?;
        self.epoch = request.epoch;
        tracing::info!(writer = %request.writer, epoch = request.epoch, entries = entries.len(), "map programmed");
        for ((site, mesh), group) in entries {
            self.table.set_map(site, mesh, group);
        }
        self.save();
        Ok(ProgramMapReply {})
    }

    fn dump(&self) -> DumpRoutesReply {
        let map = self.table.map().iter().map(|(&(site, mesh), &nhg_id)| MapEntry {
            dst_site: site.into(),
            mesh: mesh.code().into(),
            nhg_id,
        });
        let prefixes = self.table.prefixes().map(|(prefix, site)| PrefixState {
            prefix: prefix.to_string(),
            egress_site: site.into(),
            meshes: self.table.meshes(prefix).map(|mesh| mesh.code().into()).collect(),
        });
        DumpRoutesReply { epoch: self.epoch, map: map.collect(), prefixes: prefixes.collect() }
    }

    fn save(&self) {
        if let Err(e) = self.state.save(self.epoch, &self.table, &self.totals) {
            tracing::error!(error = %e, "cannot write the state file: a restart would forget the map");
        }
    }
}

fn key(entry: &MapEntry) -> Result<(u8, Mesh), Status> {
    let site = u8::try_from(entry.dst_site).ok();
    let mesh =
        u8::try_from(entry.mesh).ok().and_then(Mesh::from_code).filter(|mesh| Mesh::ALL.contains(mesh));
    site.zip(mesh).ok_or_else(|| {
        Status::invalid_argument(format!(
            "map entry for site {} and mesh {}: sites are 0 to 255, meshes 0 to 2",
            entry.dst_site, entry.mesh
        ))
    })
}

//! The config-agent's event loop: one task owns the versions, and time is one of those who speak to it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rtnl::{Socket, socket};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Server;

use super::core::{Core, Moment, Push, Refusal, Told, disabled};
use super::driver::{Driver, Ports};
use super::journal::Journal;
use super::reload;
use super::service::{Command, Service};
use crate::agent::{monotonic_ns, stop_signal};
use crate::config::{CONFIG_AGENT_PORT, RouterConfig};
use crate::events::Events;
use crate::proto::config_agent_server::ConfigAgentServer;
use crate::proto::{ConfigState, ConfigVersion, PushConfigRequest};
use crate::rpc;

/// Pause before what could not be done is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Time for an answer to leave the router before interfaces follow what it answers.
const ANSWER: Duration = Duration::from_millis(100);
/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// Runs the agent until SIGTERM; interfaces stay as they are.
///
/// # Errors
/// No netlink, or ports that are taken.
pub async fn run(base: RouterConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let (commands, inbox) = mpsc::channel(64);
    let socket = base.socket("config-agent");
    let mut agent = Agent::start(base)?;
    let service = Service::new(commands);
    let server = rpc::serve(
        move || Server::builder().add_service(ConfigAgentServer::new(service.clone())),
        CONFIG_AGENT_PORT,
        &socket,
        stop.clone(),
    );
    tokio::select! {
        served = server => served,
        () = agent.run(inbox) => Ok(()),
        () = stop => Ok(()),
    }
}

/// The journal's folder and the kernel.
struct Router {
    state_dir: PathBuf,
    socket: Socket,
}

impl Ports for Router {
    fn save(&mut self, journal: &Journal) -> anyhow::Result<()> {
        journal.save(&self.state_dir)
    }

    fn set_link(&mut self, interface: &str, up: bool) -> anyhow::Result<bool> {
        let link = match rtnl::link::by_name(&mut self.socket, interface) {
            Ok(link) => link,
            Err(e) if e.errno == libc::ENODEV => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        if link.up == up {
            return Ok(false);
        }
        let own = rtnl::link::set_up(link.ifindex, up);
        let secured = link.kind.as_deref() == Some("macsec");
        // the other end sees the carrier of what an encrypted interface sits on, which must be up first and may go first
        let wire = link.peer_ifindex.filter(|_| secured).map(|wire| rtnl::link::set_up(wire, up));
        self.socket.all(&wire.into_iter().chain([own]).collect::<Vec<_>>())?;
        Ok(true)
    }
}

struct Agent {
    node: String,
    driver: Driver<Router>,
    events: Events,
    wanted: watch::Sender<String>,
    taken_over: watch::Receiver<String>,
}

impl Agent {
    fn start(base: RouterConfig) -> anyhow::Result<Self> {
        let saved = match Journal::load(&base.state_dir) {
            Ok(saved) => saved,
            Err(e) => {
                let aside = Journal::put_aside(&base.state_dir).context("cannot put a bad journal aside")?;
                tracing::error!("{e:#}; it is {} now, and the base runs", aside.display());
                None
            }
        };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let ports = Router { state_dir: base.state_dir.clone(), socket: Socket::open(socket::ROUTE)? };
        let (node, openr) = (base.node.clone(), base.socket("openr"));
        let (core, mut news) = Core::start(saved, base, boot.trim(), now());
        let driver = Driver::start(core, ports, &mut news);
        let (wanted, changed) = watch::channel(driver.core().running().hash());
        let taken_over = reload::start(openr, changed);
        let mut agent = Self { node, driver, events: Events::default(), wanted, taken_over };
        agent.tell(&news);
        Ok(agent)
    }

    async fn run(&mut self, mut commands: mpsc::Receiver<Command>) {
        let mut follow: Option<Instant> = None;
        loop {
            let deadline = self.driver.core().deadline();
            let deadline =
                deadline.map(|at| Instant::now() + Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            let wake = [deadline, follow].into_iter().flatten().min();
            tokio::select! {
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    let before = self.driver.problem().to_owned();
                    let news = self.driver.tick(monotonic_ns());
                    self.tell(&news);
                    let problem = self.driver.problem();
                    if problem != before && !problem.is_empty() {
                        tracing::error!("{problem}; tried again every {RETRY:?}");
                    }
                    follow = (!problem.is_empty()).then(|| Instant::now() + RETRY);
                }
                command = commands.recv() => match command {
                    Some(command) => {
                        self.answer(command);
                        if self.driver.is_behind() {
                            follow.get_or_insert_with(|| Instant::now() + ANSWER);
                        }
                    }
                    None => return,
                },
            }
        }
    }

    /// Says what happened, and to openr whether another version runs.
    fn tell(&mut self, news: &[Told]) {
        for Told { kind, detail } in news {
            tracing::info!("{kind}: {detail}");
            self.events.add(monotonic_ns(), kind, detail.clone(), 0, 0);
        }
        let hash = self.driver.core().running().hash();
        self.wanted.send_if_modified(|wanted| {
            let other = *wanted != hash;
            *wanted = hash;
            other
        });
    }

    fn answer(&mut self, command: Command) {
        // a caller that has gone away does not want the answer: sends may fail
        match command {
            Command::Get(request, reply) => drop(reply.send(self.state(request.version))),
            Command::Push(request, reply) => {
                let push = order(&request);
                drop(reply.send(self.change(&request.writer, |core| core.push(now(), &push))));
            }
            Command::Confirm(request, reply) => {
                let (version, writer) = (request.version, &request.writer);
                drop(reply.send(self.change(writer, |core| core.confirm(version, writer))));
            }
            Command::Rollback(request, reply) => {
                let (to, writer) = (request.to_version, &request.writer);
                drop(reply.send(self.change(writer, |core| core.rollback(to, writer))));
            }
            Command::Watch(reply) => drop(reply.send(self.events.watch())),
        }
    }

    fn change(
        &mut self,
        writer: &str,
        change: impl FnOnce(&mut Core) -> Result<Vec<Told>, Refusal>,
    ) -> Result<ConfigState, Status> {
        if writer.is_empty() {
            return Err(Status::invalid_argument("writer: who wants this? The history says so"));
        }
        match self.driver.change(change) {
            Ok(news) => {
                self.tell(&news);
                self.state(0)
            }
            Err(refusal) => {
                tracing::warn!(writer, "refused: {refusal}");
                let words = refusal.to_string();
                Err(match refusal {
                    Refusal::Wrong(_) => Status::invalid_argument(words),
                    Refusal::Conflict(_) => Status::failed_precondition(words),
                    Refusal::Unknown(_) => Status::not_found(words),
                    Refusal::Unwritten(_) => Status::internal(words),
                })
            }
        }
    }

    /// The state, with the configuration of `version` (0: the running one).
    fn state(&self, version: u64) -> Result<ConfigState, Status> {
        let core = self.driver.core();
        let journal = core.journal();
        let shown = match version {
            0 => core.running(),
            version => {
                let found = journal.version(version);
                let none = || Status::not_found(format!("version {version} is not kept"));
                &found.ok_or_else(none)?.config
            }
        };
        let hash = core.running().hash();
        let problem = match self.driver.problem() {
            "" if self.driver.is_behind() => "its interfaces follow",
            "" if *self.taken_over.borrow() != hash => "openr has not taken it over yet",
            problem => problem,
        };
        let history = journal.versions.iter().map(|v| ConfigVersion {
            version: v.number,
            writer: v.writer.clone(),
            comment: v.comment.clone(),
            at_unix_ms: v.at_unix_ms,
            hash: v.config.hash(),
            fate: v.fate.name().to_owned(),
        });
        let left = journal.waiting.map(|w| w.deadline_ns.saturating_sub(monotonic_ns()) / MS);
        Ok(ConfigState {
            node: self.node.clone(),
            running: journal.running,
            config_json: serde_json::to_string_pretty(shown).map_err(|e| Status::internal(e.to_string()))?,
            history: history.collect(),
            unconfirmed: journal.waiting.map_or(0, |_| journal.running),
            confirm_left_ms: left.unwrap_or(0),
            settled: problem.is_empty(),
            problem: problem.to_owned(),
            shut: disabled(core.running()).map(str::to_owned).collect(),
            hash,
        })
    }
}

fn order(request: &PushConfigRequest) -> Push {
    Push {
        text: request.config_json.clone(),
        writer: request.writer.clone(),
        comment: request.comment.clone(),
        expect: request.expect_version,
        confirm_within: request.confirm_within_ms.saturating_mul(MS),
        check_only: request.check_only,
    }
}

fn now() -> Moment {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { ns: monotonic_ns(), unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX) }
}

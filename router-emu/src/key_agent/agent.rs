//! The key-agent's event loop: one task owns the agreements, the kernel's keys and the socket.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use rtnl::link::{self, LinkInfo};
use rtnl::macsec::{Device, KEY_BYTES, Macsec};
use rtnl::{KernelError, Socket, socket};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::transport::Server;

use super::circuit::{Action, Circuit, Nanos};
use super::hello::{Hello, Member};
use super::kdf::Association;
use super::keys::{self, to_hex};
use super::port::Port;
use super::service::{Command, Service};
use crate::agent::{monotonic_ns, stop_signal};
use crate::config::{KEY_AGENT_PORT, MacsecConfig, RouterConfig};
use crate::proto::key_agent_server::KeyAgentServer;
use crate::proto::{CircuitKeys, ListCircuitsReply};
use crate::rpc;

/// How often the kernel is asked whether its keys are still those that are meant.
const RECHECK: Duration = Duration::from_secs(2);

/// Runs the agent until SIGTERM; keys stay where they are.
///
/// # Errors
/// A kernel without MACsec, interfaces or keys that are not there, ports that are taken.
pub async fn run(config: RouterConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let (commands, inbox) = mpsc::channel(64);
    let socket = config.socket("key-agent");
    let mut agent = Agent::start(&config)?;
    let service = Service::new(commands);
    let server = rpc::serve(
        move || Server::builder().add_service(KeyAgentServer::new(service.clone())),
        KEY_AGENT_PORT,
        &socket,
        stop.clone(),
    );
    tokio::select! {
        served = server => served,
        ended = agent.run(inbox) => ended,
        () = stop => Ok(()),
    }
}

/// One circuit with what its agreement is about.
struct Line {
    interface: String,
    ifindex: u32,
    wire: LinkInfo,
    given: Association,
    ick: [u8; KEY_BYTES],
    circuit: Circuit,
    /// What went wrong last, in words.
    problem: String,
    /// Hellos with a wrong check value.
    refused: u64,
}

struct Agent {
    port: Port,
    kernel: Macsec,
    /// By index of the wire.
    lines: BTreeMap<u32, Line>,
}

impl Agent {
    fn start(config: &RouterConfig) -> anyhow::Result<Self> {
        let macsec = config.macsec.clone().unwrap_or_default();
        let given = keys::load(&config.keys_file())?;
        let mut kernel = Macsec::open().context("this kernel cannot encrypt links")?;
        let mut route = Socket::open(socket::ROUTE)?;
        let port = Port::open()?;
        let mut lines = BTreeMap::new();
        for circuit in &macsec.circuits {
            let what = || format!("circuit {}", circuit.interface);
            let given =
                given.get(&circuit.interface).with_context(|| format!("{}: no key is given", what()))?;
            let given = given.read().with_context(what)?;
            let interface = link::by_name(&mut route, &circuit.interface).with_context(what)?;
            let wire = link::by_name(&mut route, &circuit.wire).with_context(what)?;
            let line = line(&mut kernel, &interface, wire, given, &macsec).with_context(what)?;
            lines.insert(line.wire.ifindex, line);
        }
        tracing::info!(circuits = lines.len(), rotate_ms = macsec.rotate, "keys are agreed");
        Ok(Self { port, kernel, lines })
    }

    async fn run(&mut self, mut commands: mpsc::Receiver<Command>) -> anyhow::Result<()> {
        let mut recheck = tokio::time::interval(RECHECK);
        loop {
            let now = monotonic_ns();
            let due = self.lines.values().map(|line| line.circuit.deadline()).min();
            let wait = due.map_or(RECHECK, |at| Duration::from_nanos(at.saturating_sub(now)));
            tokio::select! {
                () = tokio::time::sleep_until(Instant::now() + wait) => self.tick(),
                frame = self.port.receive() => {
                    let (ifindex, frame) = frame.context("the packet socket failed")?;
                    self.hear(ifindex, &frame);
                }
                _ = recheck.tick() => self.recheck(),
                command = commands.recv() => match command {
                    // a caller who is gone needs no answer
                    Some(Command::List(reply)) => drop(reply.send(self.list())),
                    None => return Ok(()),
                },
            }
        }
    }

    fn tick(&mut self) {
        let now = monotonic_ns();
        for line in self.lines.values_mut().filter(|line| line.circuit.deadline() <= now) {
            let actions = line.circuit.tick(now);
            line.carry_out(&mut self.kernel, &self.port, actions);
        }
    }

    fn hear(&mut self, ifindex: u32, frame: &[u8]) {
        let Some(line) = self.lines.get_mut(&ifindex) else { return };
        let Some(hello) = Hello::decode(frame, &line.ick) else {
            line.refused += 1;
            if line.refused.is_power_of_two() {
                tracing::warn!(circuit = line.interface, line.refused, "a hello without the circuit's key");
            }
            return;
        };
        let actions = line.circuit.hear(monotonic_ns(), &hello);
        line.carry_out(&mut self.kernel, &self.port, actions);
    }

    /// Goes by what the kernel holds: an interface may have been made anew.
    fn recheck(&mut self) {
        for line in self.lines.values_mut() {
            line.adopt(&mut self.kernel, &self.port);
        }
    }

    fn list(&self) -> ListCircuitsReply {
        let now = monotonic_ns();
        ListCircuitsReply { circuits: self.lines.values().map(|line| line.show(now)).collect() }
    }
}

fn line(
    kernel: &mut Macsec,
    interface: &LinkInfo,
    wire: LinkInfo,
    given: Association,
    macsec: &MacsecConfig,
) -> anyhow::Result<Line> {
    let device = read(kernel, interface.ifindex)?;
    let member: Member = rand::random();
    let rotate = Duration::from_millis(macsec.rotate);
    let (circuit, first) = Circuit::start(monotonic_ns(), &device, member, rotate);
    let line = Line {
        interface: interface.name.clone(),
        ifindex: interface.ifindex,
        wire,
        ick: given.ick(),
        given,
        circuit,
        problem: String::new(),
        refused: 0,
    };
    for action in first {
        line.one(kernel, &action)?;
    }
    Ok(line)
}

/// What an interface holds.
fn read(kernel: &mut Macsec, ifindex: u32) -> Result<Device, KernelError> {
    let text = Some("it is not a MACsec interface".to_owned());
    let missing =
        KernelError { errno: libc::ENODEV, text, doing: format!("read the keys of link {ifindex}") };
    kernel.read(ifindex)?.ok_or(missing)
}

impl Line {
    /// Does all of it. What the kernel refuses is not tried again blindly: the agreement goes on from what the kernel holds.
    fn carry_out(&mut self, kernel: &mut Macsec, port: &Port, actions: Vec<Action>) {
        let secured = self.problem.is_empty();
        for action in actions {
            if let Action::Say(hello) = &action {
                self.say(port, hello);
            } else if let Err(e) = self.one(kernel, &action) {
                tracing::error!(circuit = self.interface, "{e}");
                self.problem = e.to_string();
                self.adopt(kernel, port);
                return;
            } else if let Action::SendWith(named) = action {
                let key = to_hex(&named.key);
                tracing::debug!(circuit = self.interface, an = named.an, key, "sends with another key");
                self.problem.clear();
            }
        }
        if !secured && self.problem.is_empty() {
            tracing::info!(circuit = self.interface, "encrypted again");
        }
    }

    /// A hello that cannot leave is said again soon.
    fn say(&self, port: &Port, hello: &Hello) {
        let frame = hello.encode(self.wire.mac, &self.ick);
        if let Err(e) = port.send(self.wire.ifindex, &frame) {
            tracing::debug!(circuit = self.interface, error = %e, "a hello did not leave");
        }
    }

    fn one(&self, kernel: &mut Macsec, action: &Action) -> Result<(), KernelError> {
        let link = self.ifindex;
        match action {
            Action::Say(_) => Ok(()),
            Action::AddChannel(sci) => kernel.add_channel(link, *sci),
            Action::RemoveChannel(sci) => kernel.remove_channel(link, *sci),
            Action::AddRx(sci, named) => {
                kernel.add_rx(link, *sci, named.an, &self.given.sak(*sci, &named.key))
            }
            Action::RemoveRx(sci, an) => kernel.remove_rx(link, *sci, *an),
            Action::SendWith(named) => {
                let key = self.given.sak(self.circuit.sci(), &named.key);
                kernel.send_with(link, named.an, &key)
            }
            Action::RemoveTx(an) => kernel.remove_tx(link, *an),
        }
    }

    /// Goes on from what the kernel holds.
    fn adopt(&mut self, kernel: &mut Macsec, port: &Port) {
        let now: Nanos = monotonic_ns();
        let device = match read(kernel, self.ifindex) {
            Ok(device) => device,
            Err(e) => {
                self.problem = e.to_string();
                return;
            }
        };
        for action in self.circuit.adopt(now, &device) {
            if let Action::Say(hello) = &action {
                self.say(port, hello);
            } else if let Err(e) = self.one(kernel, &action) {
                self.problem = e.to_string();
            }
        }
    }

    fn show(&self, now: Nanos) -> CircuitKeys {
        let sends = self.circuit.sends();
        let ms = |at: Nanos| now.saturating_sub(at) / 1_000_000;
        CircuitKeys {
            interface: self.interface.clone(),
            wire: self.wire.name.clone(),
            sends: sends.is_some(),
            an: sends.map_or(0, |named| u32::from(named.an)),
            key: sends.map(|named| to_hex(&named.key)).unwrap_or_default(),
            key_age_ms: ms(self.circuit.since()),
            offers: self.circuit.offers().is_some(),
            takes: self.circuit.takes().into_iter().map(u32::from).collect(),
            rotations: self.circuit.rotations(),
            heard: self.circuit.hears(now),
            heard_ms: self.circuit.heard_at().map_or(0, ms),
            problem: self.problem.clone(),
            refused: self.refused,
        }
    }
}

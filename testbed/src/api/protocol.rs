//! Requests, replies, and the documents that people parse: status and events.

use router_emu::label::Class;
use serde::{Deserialize, Serialize};
use topologies::lab::{Lab, LinkKind, Role};

pub use super::configuration::{ConfigChange, ConfigOrder, ConfigVerb, RolloutOrder};
pub use super::faults::{
    KernelDelete, KernelPart, LinkChange, NodeChange, ProgramAction, RpcChange, RpcOrder, RpcStatus,
};
use crate::failure::Failure;

/// First frame of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Content of the lab's `token` file.
    pub token: String,
    /// What to do.
    pub request: Request,
}

/// What a client can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Answers `Done` at once: the supervisor is alive.
    Hello,
    /// Converge the lab to this one and start its programs.
    Apply {
        /// The resolved lab.
        lab: Box<Lab>,
    },
    /// What `Apply` would do.
    Plan {
        /// The resolved lab.
        lab: Box<Lab>,
    },
    /// Wait until every plane is ready or drained.
    WaitReady {
        /// Seconds to wait at most.
        timeout_s: u64,
    },
    /// One [`Status`].
    Status,
    /// The resolved lab that runs.
    Lab,
    /// Run a command in a node.
    Exec(Exec),
    /// Break or mend links.
    Link {
        /// Link names (already selected).
        links: Vec<String>,
        /// What to do with each.
        change: LinkChange,
    },
    /// Act on programs.
    Program {
        /// `(node, program)` pairs (already selected).
        programs: Vec<(String, String)>,
        /// What to do with them.
        action: ProgramAction,
    },
    /// Crash nodes, or boot them.
    Node {
        /// Node names (already selected).
        nodes: Vec<String>,
        /// What to do with each.
        change: NodeChange,
    },
    /// Break or mend the connections of controllers to agents.
    Rpc(RpcOrder),
    /// Delete something of a node's kernel behind the back of the agent that put it there.
    KernelDelete(KernelDelete),
    /// Drain or undrain planes.
    Drain(DrainPlanes),
    /// Drain or undrain links and routers.
    DrainParts(DrainParts),
    /// Show or change configurations of routers.
    Config(ConfigOrder),
    /// Roll a change of configuration out, from a host, and back if it does harm. Ends early if the client goes away.
    Rollout(RolloutOrder),
    /// Run a scenario until its end, until the client sends [`Input::Stop`], or until it goes away.
    Run {
        /// What.
        scenario: Box<scenario::model::Scenario>,
    },
    /// Run probes until their duration is over, or until the client sends [`Input::Stop`].
    Probe {
        /// What to send.
        spec: crate::probe::Spec,
    },
    /// Stream events.
    Events {
        /// Those of the lab's earlier lives, too.
        #[serde(default)]
        all: bool,
        /// Go on after those of the past.
        follow: bool,
    },
    /// Runs one controller cycle on a plane, now; answers with its state as JSON.
    Cycle {
        /// Plane number.
        plane: u8,
        /// Include the placed paths.
        with_mesh: bool,
    },
    /// The lab is about to be taken down: note it.
    Farewell,
    /// The planes' controllers and what they made of their last cycle, side by side, as JSON.
    Compare,
}

/// Planes to drain or to take back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainPlanes {
    /// Plane numbers.
    pub planes: Vec<u8>,
    /// True: drain; false: undrain.
    pub drain: bool,
    /// Drain even the last plane.
    pub force: bool,
    /// Withdraw everything, rather than de-prefer it.
    pub withdraw: bool,
    /// Seconds to wait for the counters at most, for each plane.
    pub timeout_s: u64,
}

impl DrainPlanes {
    /// Longest wait.
    pub fn limit(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.timeout_s)
    }
}

/// Links and routers to drain, by name (already selected).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DrainParts {
    /// Links.
    pub links: Vec<String>,
    /// Routers.
    pub routers: Vec<String>,
    /// How; nothing takes them back into service.
    pub mode: Option<PartMode>,
    /// Why, for people.
    pub reason: String,
}

/// How a link or a router is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartMode {
    /// No path uses it.
    Exclude,
    /// Paths use it only if there is no other way.
    Avoid,
}

/// A command in a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exec {
    /// Node name.
    pub node: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working folder; the root if it does not exist in the world.
    pub cwd: Option<String>,
    /// Rows and columns if the client has a terminal.
    pub tty: Option<(u16, u16)>,
    /// `TERM` of the client.
    pub term: Option<String>,
}

/// Chunks of input that a client may send before the command has taken the first of them ([`Reply::Taken`]).
pub const WINDOW: usize = 32;

/// What a client sends after its call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// End of standard input.
    Eof,
    /// The terminal's size changed.
    Resize(u16, u16),
    /// Deliver a signal to the command.
    Signal(i32),
    /// End a probe early and report.
    Stop,
}

/// What a server sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Something to show while waiting.
    Progress(String),
    /// The plan that was or would be carried out.
    Plan(crate::plan::Plan),
    /// Programs that were or would be started, stopped or restarted, with the reason.
    ProgramChanges(Vec<ProgramChange>),
    /// The state of the lab.
    Status(Status),
    /// The resolved lab.
    Lab(Box<Lab>),
    /// An event.
    Event(Event),
    /// What a run of a scenario tells.
    Run(Box<scenario::record::Entry>),
    /// Result of probes.
    Probe(crate::probe::Report),
    /// A JSON document of another program.
    Document(serde_json::Value),
    /// A line for a person that belongs to the result.
    Note(String),
    /// The command has taken one more chunk of its input.
    Taken,
    /// The command ended with this code; a signal is 128 + its number.
    Exited(i32),
    /// The request is done.
    Done,
    /// The request failed.
    Failed(Failure),
}

/// A change of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramChange {
    /// Node.
    pub node: String,
    /// Program.
    pub program: String,
    /// `start`, `stop` or `restart`.
    pub change: String,
    /// Why.
    pub reason: String,
}

/// State of a lab or a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// All that is wanted is there.
    Ready,
    /// On its way after `up`.
    Converging,
    /// Drained on purpose.
    Drained,
    /// Something is missing.
    Degraded,
    /// Nothing runs.
    Down,
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Health::Ready => "ready",
            Health::Converging => "converging",
            Health::Drained => "drained",
            Health::Degraded => "degraded",
            Health::Down => "down",
        })
    }
}

/// `status --format json`. Fields are only ever added; `version` changes if one is taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this document, 1.
    pub version: u32,
    /// Lab name.
    pub lab: String,
    /// `host` or `vm`.
    pub carrier: String,
    /// State of the whole.
    pub state: Health,
    /// Capacities are divided by this in the emulation.
    pub bandwidth_divisor: u64,
    /// Seconds since the supervisor started.
    pub uptime_s: u64,
    /// Planes, ascending.
    pub planes: Vec<PlaneStatus>,
    /// Nodes by name.
    pub nodes: Vec<NodeStatus>,
    /// Links by name.
    pub links: Vec<LinkStatus>,
    /// Programs by node and name.
    pub programs: Vec<ProgramStatus>,
    /// Broken connections of controllers to agents, by their ends.
    #[serde(default)]
    pub rpc: Vec<RpcStatus>,
}

/// A plane in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneStatus {
    /// Number.
    pub plane: u8,
    /// State.
    pub state: Health,
    /// Label-switched paths of all sources.
    pub lsps: LspCount,
    /// BGP sessions of the plane's routers.
    pub bgp: Count,
    /// Routes that lead a DC's prefix into a mesh, on the source routers.
    pub routes: Count,
    /// Packets and bytes that entered the plane from the fabric so far, by the route-agents' counters.
    pub traffic: TrafficTotal,
    /// Its controllers.
    #[serde(default)]
    pub controllers: Controllers,
    /// Queues of the plane's core links, by class, all summed up; most important first. Empty where links have no class
    /// queues.
    #[serde(default)]
    pub queues: Vec<ClassQueue>,
    /// Why it is not ready, in a few words; empty if it is.
    pub reason: String,
}

/// The controllers of a plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controllers {
    /// How many there are.
    pub replicas: u32,
    /// Which one leads, `h1.prn/ebb-controller`; none while nobody does.
    pub leader: Option<String>,
}

/// LSP numbers of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LspCount {
    /// DC pairs × meshes × LSPs per bundle.
    pub wanted: u32,
    /// In the kernel of their source.
    pub programmed: u32,
    /// Of those, switched to their backup path.
    pub on_backup: u32,
}

/// Wanted and present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many there should be.
    pub wanted: u32,
    /// How many are up.
    pub up: u32,
}

/// Traffic totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficTotal {
    /// Packets.
    pub packets: u64,
    /// Bytes, emulated.
    pub bytes: u64,
}

/// What the kernel counts of one class's queue since the queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassQueue {
    /// Class.
    pub class: Class,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, emulated, link headers included.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets waiting right now.
    pub waiting: u64,
}

/// The queues of one direction of a link in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndQueues {
    /// Node that sends.
    pub from: String,
    /// By class, most important first.
    pub classes: Vec<ClassQueue>,
}

/// A node in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Name.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Site.
    pub site: String,
    /// Plane, for routers.
    pub plane: Option<u8>,
    /// Address that the name resolves to.
    pub address: String,
    /// How its plane's controller has it drained, if so.
    #[serde(default)]
    pub drained: Option<PartMode>,
    /// `up`, or `crashed` on purpose.
    #[serde(default = "node_up")]
    pub state: String,
}

/// The state of a node of which nothing is said.
fn node_up() -> String {
    "up".to_owned()
}

/// Members of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCount {
    /// With a carrier, at the end that has fewer of them.
    pub up: u32,
    /// All of them.
    pub total: u32,
}

/// A link in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: LinkKind,
    /// Plane, if it belongs to one.
    pub plane: Option<u8>,
    /// `up`, `cut`, `down` because a node at one of its ends has crashed, or `shut` by the configuration of a router there.
    pub state: String,
    /// What is broken on purpose, in words; empty if nothing is.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Members that are links of their own, as the link's routers announce them.
    #[serde(default)]
    pub members: Option<MemberCount>,
    /// How its plane's controller has it drained, if so.
    #[serde(default)]
    pub drained: Option<PartMode>,
    /// Capacity of the real network, `400G`.
    pub capacity: String,
    /// What its routers announce of it, if that is less.
    #[serde(default)]
    pub capacity_left: Option<String>,
    /// Emulated rate in bit/s (0: not shaped).
    pub rate_bps: u64,
    /// Round-trip time of the real network, `24ms`.
    pub rtt: String,
    /// Shared-risk groups.
    pub srlgs: Vec<String>,
    /// Class queues of both directions, where there are any.
    #[serde(default)]
    pub queues: Vec<EndQueues>,
}

/// A program in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Node.
    pub node: String,
    /// Name.
    pub name: String,
    /// `running`, `paused` (by SIGSTOP, on purpose), `stopped` (on purpose), `waiting` (back-off before a restart),
    /// `crash-loop` (killed whenever it runs, on purpose), `crashed` (with its node, on purpose).
    pub state: String,
    /// Process id in the world.
    pub pid: Option<i32>,
    /// How often it was started again after it ended by itself.
    pub restarts: u32,
    /// How it ended last, with its last line of log.
    pub last_exit: Option<String>,
}

/// One event of a lab, one line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Nanoseconds of the world's CLOCK_MONOTONIC, the clock of probes and agents.
    pub at_ns: u64,
    /// `lab.up`, `link.cut`, `program.exited`, `plane.drained`, `lsp.repaired`, …
    pub kind: String,
    /// Node, link, plane or program that it is about.
    pub subject: String,
    /// The rest, for people.
    pub detail: String,
}

//! The documents that `testbed` prints, as `docs/status.md` describes them.

use router_emu::label::Class;
use serde::Deserialize;
use serde_json::Value;

/// `status --format json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// 1.
    pub version: u32,
    /// Name.
    pub lab: String,
    /// `host` or `vm`.
    pub carrier: String,
    /// `ready`, `converging`, `degraded`, `down`.
    pub state: String,
    /// By number.
    pub planes: Vec<Plane>,
    /// By name.
    pub nodes: Vec<Node>,
    /// By name.
    pub links: Vec<Link>,
    /// By node and name.
    pub programs: Vec<Program>,
    /// Broken connections of controllers to agents.
    pub rpc: Vec<Rpc>,
}

/// Broken connections.
#[derive(Clone, Debug, Deserialize)]
pub struct Rpc {
    /// Host that calls.
    pub from: String,
    /// Node that is called.
    pub to: String,
    /// Program that is called.
    pub program: String,
    /// `cut`, `refused`, `delay 200ms`.
    pub state: String,
}

/// A plane.
#[derive(Clone, Debug, Deserialize)]
pub struct Plane {
    /// Number.
    pub plane: u8,
    /// `ready`, `drained`, `degraded`.
    pub state: String,
    /// Label-switched paths.
    pub lsps: Lsps,
    /// What entered from the fabric.
    pub traffic: Traffic,
    /// Its controllers.
    pub controllers: Controllers,
    /// Class queues of its core links, summed up.
    pub queues: Vec<ClassQueue>,
    /// Why not ready.
    pub reason: String,
}

/// The controllers of a plane.
#[derive(Clone, Debug, Deserialize)]
pub struct Controllers {
    /// How many.
    pub replicas: u32,
    /// `h1.prn/ebb-controller`, if one leads.
    pub leader: Option<String>,
}

/// LSP counts.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Lsps {
    /// Wanted.
    pub wanted: u32,
    /// In the kernel.
    pub programmed: u32,
    /// On their backup.
    pub on_backup: u32,
}

/// Totals.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Counters of a class's queue.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ClassQueue {
    /// Class.
    pub class: Class,
    /// Sent.
    pub packets: u64,
    /// Sent.
    pub bytes: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// In the queue now.
    pub waiting: u64,
}

/// The class queues of one direction of a link.
#[derive(Clone, Debug, Deserialize)]
pub struct EndQueues {
    /// Node that sends.
    pub from: String,
    /// Most important class first.
    pub classes: Vec<ClassQueue>,
}

/// A node.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    /// Name.
    pub name: String,
    /// `router`, `aggregator`, `host`.
    pub role: String,
    /// Site.
    pub site: String,
    /// Plane of a router.
    pub plane: Option<u8>,
    /// IPv6 address.
    pub address: std::net::Ipv6Addr,
    /// As in [`Link`], for routers.
    pub drained: Option<String>,
    /// `up`, `crashed`.
    pub state: String,
}

/// A link.
#[derive(Clone, Debug, Deserialize)]
pub struct Link {
    /// Name.
    pub name: String,
    /// `core`, `attach`, `access`.
    pub kind: String,
    /// Plane.
    pub plane: Option<u8>,
    /// `up`, `cut`, `down` or `shut`.
    pub state: String,
    /// What is broken on purpose.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Members that are links of their own.
    pub members: Option<Members>,
    /// `exclude` or `avoid`, if the plane's controller has it drained.
    pub drained: Option<String>,
    /// `400G`.
    pub capacity: String,
    /// What is announced of it, if that is less.
    pub capacity_left: Option<String>,
    /// `24ms`.
    pub rtt: String,
    /// Shared-risk groups.
    pub srlgs: Vec<String>,
    /// Class queues of core links.
    pub queues: Vec<EndQueues>,
}

/// Members of a link.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Members {
    /// With a carrier.
    pub up: u32,
    /// All.
    pub total: u32,
}

/// A program.
#[derive(Clone, Debug, Deserialize)]
pub struct Program {
    /// Node.
    pub node: String,
    /// Name.
    pub name: String,
    /// `running`, `paused`, `stopped`, `waiting`, `crash-loop`, `crashed`.
    pub state: String,
    /// Process id.
    pub pid: Option<i32>,
    /// Starts after unwanted ends.
    pub restarts: u32,
}

impl Status {
    /// A plane by number.
    pub fn plane(&self, number: u8) -> anyhow::Result<&Plane> {
        let found = self.planes.iter().find(|p| p.plane == number);
        found.ok_or_else(|| anyhow::anyhow!("status has no plane {number}"))
    }

    /// A program.
    pub fn program(&self, node: &str, name: &str) -> anyhow::Result<&Program> {
        let found = self.programs.iter().find(|p| p.node == node && p.name == name);
        found.ok_or_else(|| anyhow::anyhow!("status has no program {node}/{name}"))
    }

    /// Names of nodes of a role.
    pub fn of_role(&self, role: &str) -> Vec<String> {
        self.nodes.iter().filter(|n| n.role == role).map(|n| n.name.clone()).collect()
    }

    /// What is not as it should be, one line a thing; empty if all is well.
    pub fn complaints(&self) -> String {
        let mut text = String::new();
        if self.state != "ready" {
            text += &format!("lab is {}\n", self.state);
        }
        for p in self.planes.iter().filter(|p| p.state != "ready") {
            text += &format!("plane {} is {}: {} ({:?})\n", p.plane, p.state, p.reason, p.lsps);
        }
        for l in self.links.iter().filter(|l| l.state != "up" || !l.faults.is_empty()) {
            text += &format!("link {} is {} ({})\n", l.name, l.state, l.faults.join(", "));
        }
        for n in self.nodes.iter().filter(|n| n.state != "up") {
            text += &format!("node {} is {}\n", n.name, n.state);
        }
        for r in &self.rpc {
            text += &format!("calls from {} to {} of {}: {}\n", r.from, r.program, r.to, r.state);
        }
        for p in self.programs.iter().filter(|p| p.state != "running") {
            text += &format!("program {}/{} is {}\n", p.node, p.name, p.state);
        }
        text
    }
}

/// `up --format json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Up {
    /// 1.
    pub version: u32,
    /// Wall time.
    pub seconds: f64,
    /// Whether the world is new.
    pub new: bool,
    /// Changes in the kernel.
    pub kernel_actions: u64,
    /// Changes of programs.
    pub program_changes: Vec<ProgramChange>,
    /// The lab afterwards.
    pub status: Status,
}

/// A change of a program.
#[derive(Clone, Debug, Deserialize)]
pub struct ProgramChange {
    /// Node.
    pub node: String,
    /// Program.
    pub program: String,
    /// `start`, `stop`, `restart`.
    pub change: String,
    /// Why.
    pub reason: String,
}

/// `probe --format json`.
#[derive(Clone, Debug, Deserialize)]
pub struct ProbeReport {
    /// 1.
    pub version: u32,
    /// Streams.
    pub streams: Vec<Stream>,
    /// The rest, which tests look at by name.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// A stream of a probe.
#[derive(Clone, Debug, Deserialize)]
pub struct Stream {
    /// Source host.
    pub from: String,
    /// Destination host.
    pub to: String,
    /// `icp`, `gold`, `silver`, `bronze`.
    pub class: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets that the sending host refused.
    pub send_errors: u64,
    /// When they were lost.
    pub loss_windows: Vec<LossWindow>,
}

/// A stretch of loss.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LossWindow {
    /// Nanoseconds of the world's CLOCK_MONOTONIC: when the first lost packet was sent.
    pub start: u64,
    /// Length in milliseconds.
    pub ms: f64,
    /// Lost packets.
    pub lost: u64,
}

impl ProbeReport {
    /// Sum over streams.
    pub fn sent(&self) -> u64 {
        self.streams.iter().map(|s| s.sent).sum()
    }

    /// Sum over streams.
    pub fn lost(&self) -> u64 {
        self.streams.iter().map(|s| s.lost).sum()
    }

    /// Sum over streams.
    pub fn received(&self) -> u64 {
        self.streams.iter().map(|s| s.received).sum()
    }

    /// How late the sender's timer woke it, 99 of 100 times at most, in milliseconds.
    pub fn lateness_p99_ms(&self) -> f64 {
        self.rest.get("lateness").and_then(|l| l["p99_us"].as_f64()).unwrap_or(0.0) / 1000.0
    }

    /// Packets that hosts refused to send: no route.
    pub fn refused(&self) -> u64 {
        self.streams.iter().map(|s| s.send_errors).sum()
    }

    /// The streams that lost something, one line each.
    pub fn losses(&self) -> String {
        let mut text = String::new();
        for s in self.streams.iter().filter(|s| s.lost > 0 || s.send_errors > 0) {
            text += &format!("{} -> {} {}: {} of {} lost", s.from, s.to, s.class, s.lost, s.sent);
            if s.send_errors > 0 {
                text += &format!(", {} not sent for want of a route", s.send_errors);
            }
            for w in s.loss_windows.iter().take(4) {
                text += &format!("; {} in {} ms at {}", w.lost, w.ms, w.start);
            }
            text.push('\n');
        }
        text
    }
}

/// A line of `events --format json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// `link.cut` and so on.
    pub kind: String,
    /// What it is about.
    pub subject: String,
    /// The rest.
    pub detail: String,
}

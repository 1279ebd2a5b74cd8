//! A scenario after its checks: what the engine carries out.
//!
//! Selectors and conditions stay text here, because they may name things that are only known while the run goes on
//! (`$victim`); `check` has resolved every one of them once, with the first thing that each name could stand for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use topologies::lab::Lab;
use topologies::units::{Capacity, Period, Rtt};

use crate::record::Title;

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Name, purpose, file.
    pub title: Title,
    /// Seed of all choices.
    pub seed: u64,
    /// Time between two looks at the whole lab.
    pub sample: Duration,
    /// Longest time for the lab to be whole before and after.
    pub settle: Duration,
    /// Traffic by name.
    pub traffic: BTreeMap<String, Traffic>,
    /// Events that mean harm and are expected.
    pub warnings: Vec<String>,
    /// Steps.
    pub steps: Vec<Step>,
}

/// Traffic of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Sending hosts.
    pub from: Vec<String>,
    /// Receiving hosts.
    pub to: Vec<String>,
    /// Classes.
    pub classes: Vec<String>,
    /// Packets a second of each pair and class.
    pub rate: u32,
    /// Source addresses of each.
    pub flows: u16,
    /// Payload, bytes.
    pub size: u16,
    /// Whether steps begin it; else it begins before the first one.
    pub manual: bool,
}

/// When a step begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    /// When the step before has ended.
    #[default]
    Next,
    /// At this time after the first step began.
    At(Duration),
    /// This long after the step before has ended.
    After(Duration),
    /// When a condition holds, waited for this long at most.
    When(String, Duration),
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number: `3`, `4.2`.
    pub id: String,
    /// The author's name for it.
    pub name: Option<String>,
    /// Line in the file.
    pub line: u64,
    /// When.
    pub timing: Timing,
    /// Of a fault: how long until it is taken back. Of `never`: how long it is watched.
    pub hold: Option<Duration>,
    /// What.
    pub action: Action,
}

/// What happens to links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkFault {
    /// Both ends lose their carrier.
    Cut,
    /// A member does, by number from 1.
    CutMember(u16),
    /// Another round-trip time.
    Delay(Rtt),
    /// Harm to what it carries; only what `from` sends, or both directions.
    Impair {
        /// Nodes, a selector.
        from: Option<String>,
        /// Parts per million lost, corrupted, duplicated, reordered.
        ppm: [u32; 4],
        /// Delay on top.
        delay: Period,
        /// By how much it is off.
        jitter: Period,
        /// Rate of the real network.
        rate: Option<Capacity>,
    },
    /// It comes and goes.
    Flap {
        /// Time from one cut to the next.
        period: Duration,
        /// How often.
        count: u32,
        /// By how much each cut and return may come late.
        jitter: Duration,
    },
}

/// What happens to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramFault {
    /// SIGKILL.
    Kill,
    /// Down for good.
    Stop,
    /// Down and up.
    Restart,
    /// SIGSTOP.
    Pause,
    /// Killed whenever it runs.
    CrashLoop,
}

/// What is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drain {
    /// Planes.
    Planes {
        /// Numbers.
        planes: Vec<u8>,
        /// Even the last.
        force: bool,
        /// Withdraw rather than de-prefer.
        withdraw: bool,
        /// Longest wait.
        timeout: Duration,
    },
    /// Links and routers, as selectors.
    Parts {
        /// Links.
        links: Option<String>,
        /// Routers.
        routers: Option<String>,
        /// Used where there is no other way.
        soft: bool,
    },
}

/// What connections suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RpcFault {
    /// No packet passes.
    Cut,
    /// They are reset.
    Refuse,
    /// They are late.
    Delay(Period),
    /// Nothing any more.
    Restore,
}

/// What is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// One of these links.
    Links(String),
    /// One of these nodes.
    Nodes(String),
    /// A link in the middle of a placed path.
    Hop {
        /// Plane.
        plane: u8,
        /// Source site.
        from: String,
        /// Destination site.
        to: String,
        /// Class.
        class: String,
    },
}

/// What each of is done something with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Each {
    /// Links.
    Links(String),
    /// Nodes.
    Nodes(String),
    /// Planes.
    Planes(Vec<u8>),
}

/// How a condition is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// It must come to hold in this time (none: hold at once), and then hold this long.
    Expect {
        /// Longest wait.
        within: Duration,
        /// How long.
        stable_for: Duration,
    },
    /// It must not hold, from here on.
    Never,
    /// It must hold once, from here on.
    Eventually,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing, for a time.
    Wait(Duration),
    /// Checks a condition.
    Check {
        /// The condition.
        condition: String,
        /// How.
        how: Check,
    },
    /// Chooses something and gives it a name.
    Pick {
        /// What.
        what: Pick,
        /// Name.
        name: String,
    },
    /// Begins traffic.
    Send(Vec<String>),
    /// Ends traffic.
    Silence(Vec<String>),
    /// Breaks links.
    Link {
        /// Selector.
        links: String,
        /// How.
        fault: LinkFault,
    },
    /// Mends links.
    Restore(String),
    /// Nodes lose power.
    Crash(String),
    /// They get it back.
    Boot(String),
    /// Breaks programs.
    Program {
        /// `lsp-agent` or `lsp-agent@eb01.*`.
        programs: String,
        /// How.
        fault: ProgramFault,
    },
    /// Programs run again.
    Resume(String),
    /// Breaks connections.
    Rpc {
        /// Hosts, a selector.
        from: String,
        /// Nodes, a selector.
        to: String,
        /// Only calls of this program.
        program: Option<String>,
        /// How.
        fault: RpcFault,
    },
    /// Deletes something of a kernel.
    Delete {
        /// Nodes, a selector.
        node: String,
        /// `route`, `group`, `queue`.
        what: String,
        /// Which.
        which: Option<String>,
    },
    /// Takes something out of service.
    Drain(Drain),
    /// Takes it back.
    Undrain(Drain),
    /// A cycle of a plane's controller.
    Cycle(u8),
    /// Another lab file.
    Apply {
        /// As the author wrote it.
        file: String,
        /// The lab in it.
        lab: Box<Lab>,
    },
    /// A command.
    Exec {
        /// Nodes, a selector.
        node: String,
        /// Program and arguments.
        command: Vec<String>,
        /// Exit code.
        exit: i32,
        /// What it must print.
        prints: Option<String>,
        /// Longest time.
        timeout: Duration,
    },
    /// At the same time.
    Parallel(Vec<Step>),
    /// Several times.
    Repeat(u32, Vec<Step>),
    /// For each of several things.
    Each {
        /// Of what.
        what: Each,
        /// Name of the thing in the steps.
        name: String,
        /// The steps.
        steps: Vec<Step>,
    },
    /// In order.
    Steps(Vec<Step>),
}

//! What can be broken, and mended, in a lab that runs.

use serde::{Deserialize, Serialize};
use topologies::units::{Period, Rtt};

use crate::plan::Impairment;

/// What can be done to a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkChange {
    /// Both ends lose the carrier.
    Cut,
    /// One of its members does, by number from 1.
    CutMember(u16),
    /// Everything that was done to it is undone.
    Restore,
    /// A member returns.
    RestoreMember(u16),
    /// It takes another round-trip time.
    Delay(Rtt),
    /// It takes the round-trip time that the lab file says.
    ClearDelay,
    /// What it carries is harmed in one direction or both; what harmed these directions before is replaced.
    Impair {
        /// Nodes (already selected) whose sending is harmed; empty: both directions.
        #[serde(default)]
        from: Vec<String>,
        /// How.
        harm: Impairment,
    },
    /// It is cut and restored again and again.
    Flap {
        /// Milliseconds from one cut to the next, on average; it is there for the second half of each.
        period_ms: u64,
        /// How often.
        count: u32,
        /// Milliseconds by which each cut and each return may come late; below half a period.
        #[serde(default)]
        jitter_ms: u64,
        /// What the lateness is drawn from: the same seed, the same sequence.
        #[serde(default)]
        seed: u64,
    },
}

/// What can be done to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramAction {
    /// SIGKILL; the supervisor starts it again after its back-off.
    Kill,
    /// SIGTERM (SIGKILL after two seconds) and leave it down.
    Stop,
    /// SIGKILL, now and whenever it runs again.
    CrashLoop,
    /// Start what was stopped; let live what is in a crash loop.
    Resume,
    /// Stop, then start.
    Restart,
    /// SIGSTOP: it hangs, with all its connections and locks.
    Pause,
    /// SIGCONT.
    Continue,
}

/// What can be done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeChange {
    /// It loses power: its programs are gone at once, its links lose their carrier at both ends, and what programs had
    /// put into its kernel is gone. What they keep in files stays.
    Crash,
    /// It boots.
    Restore,
}

/// Which connections between controllers and agents, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcOrder {
    /// Hosts that call (already selected).
    pub from: Vec<String>,
    /// Nodes that are called (already selected).
    pub to: Vec<String>,
    /// Only the calls of this program at those nodes; all that answer calls from elsewhere if left out.
    #[serde(default)]
    pub program: Option<String>,
    /// What to do.
    pub change: RpcChange,
}

/// See [`RpcOrder`]. A connection has one fault at most: the last one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RpcChange {
    /// Every packet is lost, both ways: a partition.
    Cut,
    /// The caller's packets are late by this much, those of connections that are open already as well.
    Delay(Period),
    /// Connections are reset: new ones at once, open ones with their next packet.
    Refuse,
    /// All is well again.
    Restore,
}

/// Broken connections in `Status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcStatus {
    /// Host that calls.
    pub from: String,
    /// Node that is called.
    pub to: String,
    /// Program that is called.
    pub program: String,
    /// `cut`, `refused`, `delay 200ms`.
    pub state: String,
}

/// Something to delete from a node's kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDelete {
    /// Node.
    pub node: String,
    /// Of which kind.
    pub part: KernelPart,
    /// Which one: part of how it is printed. Left out: any, drawn by the seed.
    #[serde(default)]
    pub which: Option<String>,
    /// What the choice among several is drawn from.
    #[serde(default)]
    pub seed: u64,
}

/// See [`KernelDelete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelPart {
    /// A route that a program put there.
    Route,
    /// A group of next hops.
    Group,
    /// The queues of an interface.
    Queue,
}

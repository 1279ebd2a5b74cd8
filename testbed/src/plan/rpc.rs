//! Broken connections of controllers to agents.

use std::collections::BTreeSet;
use std::fmt;

use ebb::fence::etcd::CLIENT_PORT;
use router_emu::config::{
    CONFIG_AGENT_PORT, FIB_AGENT_PORT, LSP_AGENT_PORT, NHG_TM_PORT, OPENR_PORT, ROUTE_AGENT_PORT,
};
use serde::{Deserialize, Serialize};
use topologies::lab::{Lab, ProgramKind};
use topologies::units::Period;

use super::queue::LATE_QUEUES;
use super::state::{Fate, Filter};

/// Port on which members of etcd speak to each other.
const ETCD_PEER_PORT: u16 = CLIENT_PORT + 1;

/// Programs that answer calls from other nodes.
pub const RPC_PROGRAMS: [(&str, ProgramKind); 7] = [
    ("config-agent", ProgramKind::ConfigAgent),
    ("etcd", ProgramKind::Etcd),
    ("fib-agent", ProgramKind::FibAgent),
    ("lsp-agent", ProgramKind::LspAgent),
    ("nhg-tm", ProgramKind::NhgTm),
    ("openr", ProgramKind::Openr),
    ("route-agent", ProgramKind::RouteAgent),
];

/// TCP ports on which a program of a node answers calls from other nodes; none if it does not run there.
pub fn ports(lab: &Lab, node: &str, program: &str) -> Vec<u16> {
    let kind = RPC_PROGRAMS.iter().find(|(name, _)| *name == program).map(|(_, kind)| *kind);
    let Some(kind) = kind.filter(|kind| lab.node(node).is_some_and(|n| n.programs.contains(kind))) else {
        return Vec::new();
    };
    match kind {
        ProgramKind::ConfigAgent => vec![CONFIG_AGENT_PORT],
        ProgramKind::FibAgent => vec![FIB_AGENT_PORT],
        ProgramKind::LspAgent => vec![LSP_AGENT_PORT],
        ProgramKind::RouteAgent => vec![ROUTE_AGENT_PORT],
        ProgramKind::Openr => vec![OPENR_PORT],
        ProgramKind::Etcd => vec![CLIENT_PORT, ETCD_PEER_PORT],
        ProgramKind::NhgTm => lab.matrices_on(node).map(|plane| NHG_TM_PORT + u16::from(plane)).collect(),
        ProgramKind::Bird | ProgramKind::EbbController | ProgramKind::KeyAgent => Vec::new(),
    }
}

/// What is wrong with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RpcHow {
    /// Every packet is lost.
    Cut,
    /// Every packet of the caller is answered with a reset.
    Refused,
    /// Packets of the caller are late.
    Delay(Period),
}

impl fmt::Display for RpcHow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("cut"),
            Self::Refused => f.write_str("refused"),
            Self::Delay(by) => write!(f, "delay {by}"),
        }
    }
}

/// Broken connections of a host to a program of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RpcFault {
    /// Host that calls.
    pub from: String,
    /// Node that is called.
    pub to: String,
    /// Program that is called.
    pub program: String,
    /// What is wrong.
    pub how: RpcHow,
}

impl RpcFault {
    /// Whether it is about the same connections.
    pub fn same_path(&self, other: &Self) -> bool {
        (&self.from, &self.to, &self.program) == (&other.from, &other.to, &other.program)
    }
}

/// The different delays of a host's connections, ascending.
pub fn delays(faults: &BTreeSet<RpcFault>, host: &str) -> Vec<Period> {
    let of_host = faults.iter().filter(|fault| fault.from == host);
    let delays = of_host.filter_map(|fault| if let RpcHow::Delay(by) = fault.how { Some(by) } else { None });
    let delays: BTreeSet<Period> = delays.collect();
    delays.into_iter().collect()
}

/// What a host's faults come to: filters, and the delays of its late queues in nanoseconds.
pub fn filters(lab: &Lab, faults: &BTreeSet<RpcFault>, host: &str) -> (BTreeSet<Filter>, [u64; LATE_QUEUES]) {
    let delays = delays(faults, host);
    let mut late = [0; LATE_QUEUES];
    for (place, delay) in late.iter_mut().zip(&delays) {
        *place = delay.0.saturating_mul(1000);
    }
    let mut filters = BTreeSet::new();
    for fault in faults.iter().filter(|fault| fault.from == host) {
        let Some(to) = lab.node(&fault.to).map(|node| node.address) else { continue };
        let fate = match fault.how {
            RpcHow::Cut => Fate::Lost,
            RpcHow::Refused => Fate::Reset,
            RpcHow::Delay(by) => {
                let place = delays.iter().take(LATE_QUEUES).position(|delay| *delay == by);
                let Some(number) = place.and_then(|place| u8::try_from(place + 1).ok()) else { continue };
                Fate::Late(number)
            }
        };
        let ports = ports(lab, &fault.to, &fault.program).into_iter();
        filters.extend(ports.map(|port| Filter { to, port, fate }));
    }
    (filters, late)
}

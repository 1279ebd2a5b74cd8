//! The kernel state of a lab: wanted or observed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::queue::Queue;

/// Everything of a lab that lives in the kernel and that the orchestrator owns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Namespaces by node name.
    pub nodes: BTreeMap<String, Node>,
}

impl State {
    /// The part of the state that concerns some nodes.
    #[must_use]
    pub fn only(&self, nodes: &BTreeSet<String>) -> Self {
        let wanted =
            |(name, node): (&String, &Node)| nodes.contains(name).then(|| (name.clone(), node.clone()));
        Self { nodes: self.nodes.iter().filter_map(wanted).collect() }
    }

    /// Where each interface index is: (node, interface). Indexes are unique in a lab.
    pub fn places(&self) -> BTreeMap<u32, (&str, &str)> {
        let mut places = BTreeMap::new();
        for (node, state) in &self.nodes {
            for (name, interface) in &state.interfaces {
                places.insert(interface.ifindex, (node.as_str(), name.as_str()));
            }
        }
        places
    }
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Whether `lo` is up and carries the owner's mark.
    pub loopback: bool,
    /// Addresses on `lo`, beyond `::1`.
    pub addresses: BTreeSet<Ipv6Net>,
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, Interface>,
    /// Settings by key, with dots (`net.ipv6.conf.all.forwarding`); the size of the label table is among them.
    pub sysctls: BTreeMap<String, String>,
    /// Routes of protocol 4.
    pub routes: BTreeSet<Route>,
    /// Label routes of protocol 4, by label.
    pub labels: BTreeMap<u32, LabelRoute>,
    /// What happens to connections that the node opens.
    pub filters: BTreeSet<Filter>,
    /// Whether all interfaces are down and nothing is there that programs put: as right after power-up. Wanted of nodes that
    /// have crashed only, but may be so of any.
    pub blank: bool,
}

impl Node {
    /// Whether an interface is up: then nobody looks whether the node is blank.
    pub fn is_alive(&self) -> bool {
        self.interfaces.values().any(|interface| interface.up)
    }
}

/// A filter of connections to an address and TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Filter {
    /// Destination.
    pub to: Ipv6Addr,
    /// Its port.
    pub port: u16,
    /// What happens to packets.
    pub fate: Fate,
}

/// What happens to packets that a filter finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// They are lost, in both directions.
    Lost,
    /// They are answered with a reset.
    Reset,
    /// They wait in the late queue of this number, see [`Queue::late_ns`].
    Late(u8),
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match self.fate {
            Fate::Lost => "lost".to_owned(),
            Fate::Reset => "reset".to_owned(),
            Fate::Late(number) => format!("late, queue {number}"),
        };
        write!(f, "[{}]:{} {fate}", self.to, self.port)
    }
}

/// One end of a veth pair, a bond of such ends, or a MACsec interface on one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Index, unique in the lab.
    pub ifindex: u32,
    /// Index of the other end, which identifies it; 0 for a bond and a MACsec interface, which have none.
    pub peer_ifindex: u32,
    /// Index of the interface that a MACsec interface sits on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u32>,
    /// Whether it is a bond.
    pub bond: bool,
    /// Index of the bond that it is a member of.
    pub master: Option<u32>,
    /// Hardware address of its own; a member of a bond sends with the bond's.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether it carries the owner's mark.
    pub marked: bool,
    /// Administrative state; a cut link is down at one end.
    pub up: bool,
    /// Addresses, the link-local one among them while the interface is up.
    pub addresses: BTreeSet<Ipv6Net>,
    /// Permanent neighbours.
    pub neighbours: BTreeMap<Ipv6Addr, Mac>,
    /// Whether labelled packets are accepted.
    pub mpls_input: bool,
    /// Shaping.
    pub queue: Option<Queue>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub prefix: Ipv6Net,
    /// Next router; `None` makes the prefix local to the node.
    pub via: Option<Ipv6Addr>,
    /// Interface, `lo` for a local prefix.
    pub interface: String,
}

/// What a static label does: pop it and send the rest out of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRoute {
    /// Next router.
    pub via: Ipv6Addr,
    /// Interface.
    pub interface: String,
}

/// A hardware address; `02:eb:00:00:03:e9` as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let bytes = bytes.and_then(|b| <[u8; 6]>::try_from(b).ok());
        bytes.map(Self).ok_or_else(|| format!("`{text}` is not a hardware address such as 02:eb:00:00:03:e9"))
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

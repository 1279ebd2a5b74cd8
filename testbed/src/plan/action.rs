//! One thing to be done to the kernel, and why.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::queue::Queue;
use super::state::{Filter, LabelRoute, Mac, Route};

/// An action of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What to do.
    pub change: Change,
    /// Why.
    pub reason: String,
    /// Whether it concerns something that the same plan creates, so that it brings rather than changes.
    pub fresh: bool,
}

/// One end of a link to be created, a bond, or a MACsec interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSpec {
    /// Node.
    pub node: String,
    /// Interface name.
    pub interface: String,
    /// Interface index.
    pub ifindex: u32,
    /// Hardware address.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
}

impl fmt::Display for EndSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

/// What can be done. Interfaces are given by name and index, so that the executor needs no look-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
#[allow(missing_docs)] // the fields are what their names say, as in `State`
pub enum Change {
    /// Remove a static label.
    RemoveLabel { node: String, label: u32 },
    /// Remove a route.
    RemoveRoute { node: String, route: Route, ifindex: u32 },
    /// Remove a neighbour entry.
    RemoveNeighbour { node: String, interface: String, ifindex: u32, ip: Ipv6Addr },
    /// Remove an address (`lo` has index 1).
    RemoveAddress { node: String, interface: String, ifindex: u32, address: Ipv6Net },
    /// Remove the queues of an interface.
    RemoveQueue { node: String, interface: String, ifindex: u32 },
    /// Remove everything that programs put: routes, next hops, labels, rules, tables of nftables.
    Wipe { node: String },
    /// Take an interface down.
    LinkDown { node: String, interface: String, ifindex: u32 },
    /// Remove a veth pair by one of its ends, or a bond.
    RemoveLink { node: String, interface: String, ifindex: u32 },
    /// Remove a namespace.
    RemoveNamespace { node: String },
    /// Create a namespace, bring its `lo` up and mark it.
    CreateNamespace { node: String },
    /// Mark an existing namespace's `lo` and bring it up.
    RepairLoopback { node: String },
    /// Write a setting.
    SetSysctl { node: String, key: String, value: String },
    /// Create a veth pair.
    CreateLink { a: EndSpec, b: EndSpec },
    /// Create a bond without members.
    CreateBond { end: EndSpec },
    /// Create a MACsec interface without keys on another one, which stays silent but for it.
    CreateMacsec { end: EndSpec, over: u32 },
    /// Make an interface a member of a bond, mark it, and leave it up or down. The kernel brings it up first, for which what
    /// an encrypted one sits on (`over`) must be up.
    JoinBond { node: String, interface: String, ifindex: u32, bond: u32, over: Option<u32>, up: bool },
    /// Put the owner's mark on an interface.
    MarkLink { node: String, interface: String, ifindex: u32 },
    /// Change an interface's MTU.
    SetMtu { node: String, interface: String, ifindex: u32, mtu: u32 },
    /// Bring an interface up.
    LinkUp { node: String, interface: String, ifindex: u32 },
    /// Add an address (`lo` has index 1).
    AddAddress { node: String, interface: String, ifindex: u32, address: Ipv6Net },
    /// Add or replace a permanent neighbour entry.
    SetNeighbour { node: String, interface: String, ifindex: u32, ip: Ipv6Addr, mac: Mac },
    /// Add a route.
    AddRoute { node: String, route: Route, ifindex: u32 },
    /// Create or change the queues of an interface; `from` is what is there.
    SetQueue { node: String, interface: String, ifindex: u32, mtu: u32, from: Option<Queue>, to: Queue },
    /// Size the label table.
    SetLabelTable { node: String, size: String },
    /// Accept labelled packets on an interface, or no longer.
    SetMplsInput { node: String, interface: String, on: bool },
    /// Add or replace a static label.
    SetLabel { node: String, label: u32, route: LabelRoute, ifindex: u32 },
    /// Make these the filters of connections.
    SetFilters { node: String, filters: BTreeSet<Filter> },
}

/// When an action takes place: everything of a phase is done before the next begins.
///
/// Label tables come after all links are up, because the kernel walks a namespace's whole table at every link
/// event (kernel cookbook, section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Labels, routes, neighbours, addresses and queues that go.
    Clear,
    /// Interfaces that go down.
    Down,
    /// What programs put into kernels of nodes without power.
    Wipe,
    /// Links that go.
    RemoveLinks,
    /// Namespaces that go.
    RemoveNamespaces,
    /// Namespaces that come.
    CreateNamespaces,
    /// Settings that interfaces inherit.
    Settings,
    /// Links that come.
    CreateLinks,
    /// Interfaces marked, changed and brought up.
    Links,
    /// Addresses, neighbours, routes.
    Addresses,
    /// Queues.
    Queues,
    /// Label tables and input.
    Mpls,
    /// Static labels.
    Labels,
    /// Filters of connections.
    Filters,
}

impl Phase {
    /// Heading in a printed plan.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Clear => "Clear",
            Self::Down => "Take down",
            Self::Wipe => "Wipe",
            Self::RemoveLinks => "Remove links",
            Self::RemoveNamespaces => "Remove namespaces",
            Self::CreateNamespaces => "Create namespaces",
            Self::Settings => "Settings",
            Self::CreateLinks => "Create links",
            Self::Links => "Interfaces",
            Self::Addresses => "Addresses, neighbours, routes",
            Self::Queues => "Queues",
            Self::Mpls => "Label tables",
            Self::Labels => "Static labels",
            Self::Filters => "Filters of connections",
        }
    }
}

impl Change {
    /// When it takes place.
    pub const fn phase(&self) -> Phase {
        match self {
            Self::RemoveLabel { .. }
            | Self::RemoveRoute { .. }
            | Self::RemoveNeighbour { .. }
            | Self::RemoveAddress { .. }
            | Self::RemoveQueue { .. } => Phase::Clear,
            Self::LinkDown { .. } => Phase::Down,
            Self::Wipe { .. } => Phase::Wipe,
            Self::RemoveLink { .. } => Phase::RemoveLinks,
            Self::RemoveNamespace { .. } => Phase::RemoveNamespaces,
            Self::CreateNamespace { .. } => Phase::CreateNamespaces,
            Self::RepairLoopback { .. } | Self::SetSysctl { .. } => Phase::Settings,
            Self::CreateLink { .. } | Self::CreateBond { .. } | Self::CreateMacsec { .. } => {
                Phase::CreateLinks
            }
            Self::JoinBond { .. } | Self::MarkLink { .. } | Self::SetMtu { .. } | Self::LinkUp { .. } => {
                Phase::Links
            }
            Self::AddAddress { .. } | Self::SetNeighbour { .. } | Self::AddRoute { .. } => Phase::Addresses,
            Self::SetQueue { .. } => Phase::Queues,
            Self::SetLabelTable { .. } | Self::SetMplsInput { .. } => Phase::Mpls,
            Self::SetLabel { .. } => Phase::Labels,
            Self::SetFilters { .. } => Phase::Filters,
        }
    }

    /// The node concerned; the `a` end's for a link to be created.
    pub fn node(&self) -> &str {
        match self {
            Self::CreateLink { a: end, .. } | Self::CreateBond { end } | Self::CreateMacsec { end, .. } => {
                &end.node
            }
            Self::RemoveLabel { node, .. }
            | Self::RemoveRoute { node, .. }
            | Self::RemoveNeighbour { node, .. }
            | Self::RemoveAddress { node, .. }
            | Self::RemoveQueue { node, .. }
            | Self::LinkDown { node, .. }
            | Self::RemoveLink { node, .. }
            | Self::RemoveNamespace { node }
            | Self::CreateNamespace { node }
            | Self::RepairLoopback { node }
            | Self::SetSysctl { node, .. }
            | Self::JoinBond { node, .. }
            | Self::MarkLink { node, .. }
            | Self::SetMtu { node, .. }
            | Self::LinkUp { node, .. }
            | Self::AddAddress { node, .. }
            | Self::SetNeighbour { node, .. }
            | Self::AddRoute { node, .. }
            | Self::SetQueue { node, .. }
            | Self::SetLabelTable { node, .. }
            | Self::SetMplsInput { node, .. }
            | Self::SetLabel { node, .. }
            | Self::SetFilters { node, .. }
            | Self::Wipe { node } => node,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoveLabel { node, label } => write!(f, "label {label} in {node}"),
            Self::RemoveRoute { node, route, .. } | Self::AddRoute { node, route, .. } => {
                write!(f, "route {} in {node} ", route.prefix)?;
                match route.via {
                    Some(via) => write!(f, "via {via} on {}", route.interface),
                    None => write!(f, "local"),
                }
            }
            Self::RemoveNeighbour { node, interface, ip, .. }
            | Self::SetNeighbour { node, interface, ip, .. } => {
                write!(f, "neighbour {ip} on {node}:{interface}")
            }
            Self::RemoveAddress { node, interface, address, .. }
            | Self::AddAddress { node, interface, address, .. } => {
                write!(f, "address {address} on {node}:{interface}")
            }
            Self::RemoveQueue { node, interface, .. } => write!(f, "queue on {node}:{interface}"),
            Self::LinkDown { node, interface, .. } => write!(f, "interface {node}:{interface} down"),
            Self::LinkUp { node, interface, .. } => write!(f, "interface {node}:{interface} up"),
            Self::RemoveLink { node, interface, ifindex } => {
                write!(f, "link at {node}:{interface} (index {ifindex})")
            }
            Self::RemoveNamespace { node } | Self::CreateNamespace { node } => write!(f, "namespace {node}"),
            Self::RepairLoopback { node } => write!(f, "lo of {node} up and marked"),
            Self::SetSysctl { node, key, value } => write!(f, "{key} = {value} in {node}"),
            Self::CreateLink { a, b } => {
                write!(f, "link {a} (index {}) -- {b} (index {}), MTU {}", a.ifindex, b.ifindex, a.mtu)
            }
            Self::CreateBond { end } => write!(f, "bond {end} (index {}), MTU {}", end.ifindex, end.mtu),
            Self::CreateMacsec { end, over } => {
                write!(f, "MACsec {end} (index {}) over index {over}, MTU {}", end.ifindex, end.mtu)
            }
            Self::JoinBond { node, interface, bond, up, .. } => {
                let down = if *up { "" } else { ", down" };
                write!(f, "interface {node}:{interface} member of index {bond}{down}")
            }
            Self::MarkLink { node, interface, .. } => write!(f, "owner's mark on {node}:{interface}"),
            Self::SetMtu { node, interface, mtu, .. } => write!(f, "MTU {mtu} on {node}:{interface}"),
            Self::SetQueue { node, interface, to, .. } => write!(f, "queue on {node}:{interface}: {to}"),
            Self::SetLabelTable { node, size } => write!(f, "label table of {size} in {node}"),
            Self::SetMplsInput { node, interface, on } => {
                write!(
                    f,
                    "labelled packets {} on {node}:{interface}",
                    if *on { "accepted" } else { "refused" }
                )
            }
            Self::SetLabel { node, label, route, .. } => {
                write!(f, "label {label} in {node}: pop, out of {}", route.interface)
            }
            Self::SetFilters { node, filters } => {
                let each: Vec<String> = filters.iter().map(ToString::to_string).collect();
                let each = if each.is_empty() { "none".to_owned() } else { each.join("; ") };
                write!(f, "connections of {node} filtered: {each}")
            }
            Self::Wipe { node } => write!(f, "what programs put into the kernel of {node}"),
        }
    }
}

//! The resolved lab: what the generators make of a lab file, with every address, index and label decided.
//!
//! Everything downstream (plan, programs, probes, status) reads this and nothing else. All lists are sorted
//! by name, so equal input gives equal output.

use std::net::Ipv6Addr;
use std::time::Duration;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::units::{Capacity, Rtt};

/// A whole lab, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// Name of the lab: `[a-z0-9-]`, at most 32 characters.
    pub name: String,
    /// Divisor from a real capacity to the emulated one: 400G at 20000 is 20 Mbit/s.
    pub bandwidth_divisor: u64,
    /// Whether links really delay packets by half their RTT each way (`true`), or the RTT is only declared to
    /// the control plane (`false`).
    pub emulate_delay: bool,
    /// Sites by name.
    pub sites: Vec<Site>,
    /// Planes, ascending.
    pub planes: Vec<Plane>,
    /// Nodes by name.
    pub nodes: Vec<Node>,
    /// Links by name.
    pub links: Vec<Link>,
    /// What makes sure that one controller of a plane leads.
    pub lock: Lock,
    /// Settings of the traffic-engineering controllers.
    pub te: TeSettings,
    /// Detection of silent failures on core links, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdSettings>,
    /// Encryption of core links, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macsec: Option<MacsecSettings>,
    /// Demand that the controllers assume even before counters have seen any, per pair and class.
    pub demands: Vec<DemandFloor>,
}

/// A data-centre region or a midpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Short name, `prn`.
    pub name: String,
    /// Site id as it stands in labels, 1 to 254.
    pub id: u8,
    /// What kind of site it is.
    pub kind: SiteKind,
}

/// Whether a site originates traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// A region with data centres: routers, a fabric aggregator, hosts.
    Dc,
    /// Only connectivity: routers.
    Midpoint,
}

/// One of the parallel networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plane {
    /// Number from 1.
    pub id: u8,
    /// Hosts on which the replicas of the plane's controller run, in order; there is at least one, and a host can stand
    /// here more than once.
    pub controller_hosts: Vec<String>,
    /// Program of its controllers if it is not the testbed's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_program: Option<String>,
    /// Algorithms of its controller.
    pub algorithms: Algorithms,
}

/// The lock by which one controller of a plane leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lock {
    /// A file that all replicas see.
    #[default]
    Embedded,
    /// An etcd cluster.
    Etcd {
        /// Hosts of its members, by name.
        members: Vec<String>,
    },
}

/// Traffic-engineering algorithms, by the names that the controllers know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Algorithms {
    /// For primary paths: gold, silver, bronze.
    pub primary: [String; 3],
    /// For backup paths.
    pub backup: String,
}

impl Default for Algorithms {
    fn default() -> Self {
        Self { primary: ["cspf", "cspf", "cspf"].map(str::to_owned), backup: "rba".to_owned() }
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Backbone router, one per site and plane: `eb01.prn`.
    Router,
    /// Fabric aggregator, one per DC: `fa.prn`.
    Aggregator,
    /// Host behind an aggregator: `h1.prn`.
    Host,
}

/// A namespace of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Full name, `eb01.prn`; at most 15 characters so that it can name a namespace and fit prompts.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Site name.
    pub site: String,
    /// Site id.
    pub site_id: u8,
    /// Plane, for routers.
    pub plane: Option<u8>,
    /// The address that the node's name resolves to: router `fd00:P::S`, aggregator `2001:db8:S::fa`,
    /// host k `2001:db8:S:k::1`. It lives on `lo`.
    pub address: Ipv6Addr,
    /// Prefixes for which every address is local to the node (a host's probe sources), as local routes.
    pub local_prefixes: Vec<Ipv6Net>,
    /// Static routes: host default, aggregator to hosts.
    pub routes: Vec<StaticRoute>,
    /// Interfaces by name.
    pub interfaces: Vec<Interface>,
    /// Size of the MPLS label table (`net.mpls.platform_labels`); 0 where MPLS is off.
    pub platform_labels: u32,
    /// Programs that run in the node, by name.
    pub programs: Vec<ProgramKind>,
}

/// A route that the orchestrator installs (protocol 4, static).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticRoute {
    /// Destination.
    pub prefix: Ipv6Net,
    /// Next hop.
    pub via: Ipv6Addr,
    /// Outgoing interface.
    pub interface: String,
}

/// One end of a link inside its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name, at most 15 bytes: `to-chi`, `fa`, `eb01`, `h1`.
    pub name: String,
    /// Interface index, unique in the whole lab (equal numbers on both ends of a veth make carrier events slow).
    pub ifindex: u32,
    /// Hardware address, derived from the index: `02:eb:` + index in four bytes; as usual text in JSON.
    #[serde(with = "crate::index::mac_text")]
    pub mac: [u8; 6],
    /// Link-local address, EUI-64 of the MAC; set with `nodad`.
    pub link_local: Ipv6Addr,
    /// Further addresses (aggregator links have a /127).
    pub addresses: Vec<Ipv6Net>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Name of the link.
    pub link: String,
    /// Node at the other end.
    pub peer_node: String,
    /// Interface at the other end.
    pub peer_interface: String,
    /// Its hardware address (text in JSON), for the permanent neighbour entry.
    #[serde(with = "crate::index::mac_text")]
    pub peer_mac: [u8; 6],
    /// Its link-local address.
    pub peer_link_local: Ipv6Addr,
    /// Whether this is a backbone link: MPLS input on, queues, Open/R.
    pub core: bool,
    /// Static interface label (core interfaces): `1000 * k + far site id` for the k-th parallel link, from 1.
    pub static_label: Option<u32>,
    /// Shaped rate in bit/s of the emulation (core interfaces).
    pub rate_bps: Option<u64>,
    /// One-way delay to emulate, if any; `5ms` in JSON.
    #[serde(with = "crate::units::optional_duration")]
    pub delay: Option<Duration>,
    /// Where the link's circuits are links of their own: this end of each, in order; the interface itself then is a
    /// bond of them. Empty for a link that is one veth pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Where the link is encrypted: the interface below, on which the frames travel. That of a bundle is empty, its
    /// members have theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
}

/// What an encrypted interface sits on: one end of a veth pair that nothing else uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Name, at most 15 bytes: `ct-chi`.
    pub name: String,
    /// Interface index, unique in the whole lab.
    pub ifindex: u32,
    /// Hardware address, derived from the index; as usual text in JSON.
    #[serde(with = "crate::index::mac_text")]
    pub mac: [u8; 6],
    /// MTU in bytes: the interface's own and what encryption adds.
    pub mtu: u32,
    /// Index of the other end.
    pub peer_ifindex: u32,
}

/// One end of one circuit of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Name, at most 15 bytes: `to-chi_2`.
    pub name: String,
    /// Interface index, unique in the whole lab.
    pub ifindex: u32,
    /// Hardware address, derived from the index; as usual text in JSON.
    #[serde(with = "crate::index::mac_text")]
    pub mac: [u8; 6],
    /// Index of the other end.
    pub peer_ifindex: u32,
    /// Where the circuit is encrypted: the interface below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// `a--b` of the node names in order, with `.2` and so on for parallels: `eb01.atn--eb01.prn`.
    pub name: String,
    /// Kind.
    pub kind: LinkKind,
    /// Plane, for core and attachment links.
    pub plane: Option<u8>,
    /// One end.
    pub a: End,
    /// The other end.
    pub b: End,
    /// Real capacity (not scaled).
    pub capacity: Capacity,
    /// Real round-trip time.
    pub rtt: Rtt,
    /// Physical circuits in the bundle.
    pub members: u16,
    /// Whether each circuit is a link of its own, under a bond at both ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bonded: bool,
    /// Shared-risk groups, sorted.
    pub srlgs: Vec<String>,
}

/// Where a link ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct End {
    /// Node name.
    pub node: String,
    /// Interface name on it.
    pub interface: String,
}

/// What a link connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// Router to router of the same plane.
    Core,
    /// Aggregator to a plane's router.
    Attach,
    /// Host to aggregator.
    Access,
}

/// Programs that the lab runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramKind {
    /// BIRD, for BGP.
    Bird,
    /// Link-state agent.
    Openr,
    /// Installs Open/R's routes.
    FibAgent,
    /// Label-switched paths and local repair.
    LspAgent,
    /// Prefix and class to nexthop group.
    RouteAgent,
    /// The router's configuration, version by version.
    ConfigAgent,
    /// Keys of encrypted links.
    KeyAgent,
    /// The plane's traffic-engineering controller.
    EbbController,
    /// A member of the lock service.
    Etcd,
    /// The traffic-matrix service of a plane.
    NhgTm,
}

/// Traffic-engineering settings of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeSettings {
    /// Time between the starts of two controller cycles; `5s` in JSON.
    #[serde(with = "crate::units::duration")]
    pub cycle: Duration,
    /// LSPs per site pair and mesh.
    pub lsps_per_bundle: u8,
    /// Largest label stack.
    pub max_labels: u8,
    /// Share of the remaining capacity that a class may use, percent: gold, silver, bronze.
    pub reserved_percent: [u8; 3],
    /// Whether every cycle programs all bundles, changed or not.
    pub reprogram_always: bool,
}

/// Bidirectional forwarding detection on the core links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BfdSettings {
    /// How often both ends send; whole milliseconds, `20ms` in JSON.
    #[serde(with = "crate::units::duration")]
    pub interval: Duration,
    /// Packets in a row that may be missed.
    pub multiplier: u8,
}

/// Encryption of the core links (MACsec).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacsecSettings {
    /// How long a key is used; `30s` in JSON.
    #[serde(with = "crate::units::duration")]
    pub rotate: Duration,
}

/// Demand floor for one ordered pair of DCs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandFloor {
    /// Source site name.
    pub from: String,
    /// Destination site name.
    pub to: String,
    /// `gold`, `silver` or `bronze`.
    pub mesh: String,
    /// Demand in the real network's units, over all planes.
    pub rate: Capacity,
}

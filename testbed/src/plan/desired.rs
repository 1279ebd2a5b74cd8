//! From a resolved lab to the kernel state it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::Ipv6Net;
use topologies::lab::{Interface as LabInterface, Lab, Member, Node as LabNode, Role, Wire};

use super::faults::Faults;
use super::impair::Impairment;
use super::queue::Queue;
use super::rpc;
use super::state::{Interface, LabelRoute, Mac, Node, Route, State};

/// Packets that may wait in each band of a core interface.
pub const BAND_PACKETS: u32 = 50;
/// Size of a namespace's label table.
pub const PLATFORM_LABELS: &str = "net.mpls.platform_labels";
/// Prefix length of link-local addresses.
const LINK_LOCAL_LENGTH: u8 = 64;

/// Settings of every namespace: key, value in nodes that forward, value in hosts. They are written before
/// interfaces exist, which inherit the `default` ones.
const SETTINGS: [(&str, &str, &str); 12] = [
    ("net.ipv6.conf.all.forwarding", "1", "0"),
    ("net.ipv6.conf.default.accept_ra", "0", "0"),
    // Without detection of duplicate addresses an address works at once; both keys are consulted.
    ("net.ipv6.conf.all.accept_dad", "0", "0"),
    ("net.ipv6.conf.default.accept_dad", "0", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0", "0"),
    ("net.ipv6.conf.default.accept_redirects", "0", "0"),
    ("net.ipv6.conf.all.keep_addr_on_down", "1", "1"),
    ("net.ipv6.conf.default.keep_addr_on_down", "1", "1"),
    // A route over a link without carrier gives way to another one, if there is one.
    ("net.ipv6.conf.default.ignore_routes_with_linkdown", "1", "1"),
    // Addresses, protocol and ports, hashed anew at every hop. The usual policy for ports (1) takes over the hash that the
    // sender's socket gave the packet, which crosses a veth: all nodes would then choose alike, whatever their seed.
    ("net.ipv6.fib_multipath_hash_policy", "3", "3"),
    ("net.ipv6.fib_multipath_hash_fields", "55", "55"),
    // In spite of the name it governs IPv6 too; 1 sends a route event per dependent route and nexthop change.
    ("net.ipv4.nexthop_compat_mode", "0", "0"),
];

/// Seed of the hash that chooses among next hops (Linux 6.11; in spite of the name it governs IPv6 too).
const HASH_SEED: &str = "net.ipv4.fib_multipath_hash_seed";

/// A seed of the node's own. All namespaces of a kernel hash alike by default: the flows that an aggregator sends into one
/// plane would all be on the same half of every bundle there.
fn hash_seed(address: std::net::Ipv6Addr) -> u32 {
    let words = address.segments().map(u32::from);
    // aggregators differ in the middle of their addresses, routers at the beginning and the end
    let fold = |parity: usize| words.iter().skip(parity).step_by(2).fold(0, |sum, word| sum ^ word);
    // never 0, which means "no seed"
    (fold(0) << 16 | fold(1)).max(1)
}

/// What the kernel at hand can do, so that the rest of a lab can be built on one that lacks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// MPLS: label table, input, static labels.
    pub mpls: bool,
    /// Priority bands on core interfaces; without them the token bucket has one queue.
    pub bands: bool,
    /// Emulated delay.
    pub delay: bool,
    /// Bundles of links; without them a bundle is one link.
    pub bonds: bool,
    /// Filters of connections.
    pub filters: bool,
    /// Encrypted links; without them a link is not.
    pub macsec: bool,
}

impl Options {
    /// Everything that a lab can ask for.
    pub const fn full() -> Self {
        Self { mpls: true, bands: true, delay: true, bonds: true, filters: true, macsec: true }
    }

    /// Everything but label switching.
    pub const fn without_mpls() -> Self {
        Self { mpls: false, ..Self::full() }
    }

    /// Addresses, routes and rates only: what any kernel has.
    pub const fn basic() -> Self {
        Self { mpls: false, bands: false, delay: false, bonds: false, filters: false, macsec: false }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::full()
    }
}

/// Keys of all settings that a [`State`] may hold; a kernel observes exactly these.
pub fn managed_sysctls() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(key, ..)| *key).chain([HASH_SEED, PLATFORM_LABELS])
}

/// The state that a lab needs, with its faults: links and members that are cut are administratively down at their `a`
/// end; those of nodes that have crashed are at that node's.
pub fn desired(lab: &Lab, faults: &Faults, options: Options) -> State {
    let ends: BTreeMap<(&str, &str), &LabInterface> = lab
        .nodes
        .iter()
        .flat_map(|n| n.interfaces.iter().map(|i| ((n.name.as_str(), i.name.as_str()), i)))
        .collect();
    let near: BTreeSet<(&str, &str)> =
        lab.links.iter().map(|link| (link.a.node.as_str(), link.a.interface.as_str())).collect();
    let mut nodes = BTreeMap::new();
    for node in &lab.nodes {
        let mut state = bare_node(node, options);
        state.blank = faults.crashed.contains(&node.name);
        for interface in &node.interfaces {
            let peer = (interface.peer_node.as_str(), interface.peer_interface.as_str());
            let peer = ends.get(&peer).copied();
            let members = if options.bonds { interface.members.as_slice() } else { &[] };
            let near = near.contains(&(node.name.as_str(), interface.name.as_str()));
            let up = !(state.blank || near && faults.cut.contains(&interface.link));
            let mut wanted = wanted_interface(interface, peer, up, options);
            wanted.queue = hurt(lab, &node.name, interface, wanted.queue, faults, options);
            let wire = interface.wire.iter().filter(|_| options.macsec);
            state.interfaces.extend(wire.map(|wire| (wire.name.clone(), wanted_wire(wire, up))));
            state.interfaces.insert(interface.name.clone(), wanted);
            for (number, member) in (1..).zip(members) {
                let up = !(state.blank || near && faults.is_member_cut(&interface.link, number));
                let wire = member.wire.iter().filter(|_| options.macsec);
                state.interfaces.extend(wire.map(|wire| (wire.name.clone(), wanted_wire(wire, up))));
                state.interfaces.insert(member.name.clone(), wanted_member(interface, member, up, options));
            }
        }
        if options.filters && node.role == Role::Host {
            broken_connections(lab, node, &mut state, faults, options);
        }
        state.routes = routes(node, &state);
        if options.mpls && node.platform_labels > 0 {
            state.labels = node.interfaces.iter().filter_map(label).collect();
        }
        nodes.insert(node.name.clone(), state);
    }
    State { nodes }
}

/// The queue of a node's interface with what faults do to it.
fn hurt(
    lab: &Lab,
    node: &str,
    interface: &LabInterface,
    queue: Option<Queue>,
    faults: &Faults,
    options: Options,
) -> Option<Queue> {
    let harm = faults.harm(&interface.link, node);
    let mut queue = match queue {
        None if harm.is_none() => return None,
        queue => queue.unwrap_or_default(),
    };
    let Impairment { delay, rate, .. } = harm;
    if options.delay {
        if let Some(rtt) = faults.rtts.get(&interface.link) {
            queue.delay_ns = nanoseconds(rtt.one_way());
        }
        queue.delay_ns = queue.delay_ns.saturating_add(nanoseconds(delay.into()));
        queue.harm = harm.harm();
    }
    let members = if options.bonds { interface.members.len() } else { 0 };
    queue.rate_bps = faults.rate_left(&interface.link, members, queue.rate_bps);
    if let Some(rate) = rate.map(|rate| rate.0 / lab.bandwidth_divisor.max(1)) {
        if queue.rate_bps == 0 {
            queue.limit = limit(rate, interface.mtu);
        }
        queue.rate_bps = if queue.rate_bps == 0 { rate } else { rate.min(queue.rate_bps) };
    }
    (queue != Queue::default()).then_some(queue)
}

/// Filters and late queues of a host whose connections are broken.
fn broken_connections(lab: &Lab, node: &LabNode, state: &mut Node, faults: &Faults, options: Options) {
    let (filters, late_ns) = rpc::filters(lab, &faults.rpc, &node.name);
    state.filters = filters;
    if !options.delay || late_ns == [0; _] {
        return;
    }
    for interface in state.interfaces.values_mut().filter(|interface| interface.queue.is_none()) {
        interface.queue = Some(Queue { late_ns, ..Queue::default() });
    }
}

/// Takes backbone interfaces out of service that their routers' configurations keep down: node, interface.
pub fn shut(state: &mut State, interfaces: &BTreeSet<(String, String)>) {
    for (node, name) in interfaces {
        let Some(node) = state.nodes.get_mut(node) else { continue };
        let Some(interface) = node.interfaces.get_mut(name) else { continue };
        interface.up = false;
        // as for a cut
        interface.neighbours.clear();
        interface.addresses.retain(|address| !address.addr().is_unicast_link_local());
        // the other end sees it by the carrier, which is the wire's
        let over = interface.over;
        node.interfaces.values_mut().filter(|i| Some(i.ifindex) == over).for_each(|wire| wire.up = false);
    }
}

/// A namespace without interfaces.
fn bare_node(node: &LabNode, options: Options) -> Node {
    let forwards = node.role != Role::Host;
    let value = |(key, router, host): &(&str, &str, &str)| {
        ((*key).to_owned(), (if forwards { *router } else { *host }).to_owned())
    };
    let mut sysctls: BTreeMap<String, String> = SETTINGS.iter().map(value).collect();
    let seed = if forwards { hash_seed(node.address) } else { 0 };
    sysctls.insert(HASH_SEED.to_owned(), seed.to_string());
    if options.mpls && node.platform_labels > 0 {
        sysctls.insert(PLATFORM_LABELS.to_owned(), node.platform_labels.to_string());
    }
    let addresses = BTreeSet::from([Ipv6Net::from(node.address)]);
    Node { loopback: true, addresses, sysctls, ..Node::default() }
}

/// One interface; `peer` is the other end of its link.
fn wanted_interface(
    interface: &LabInterface,
    peer: Option<&LabInterface>,
    up: bool,
    options: Options,
) -> Interface {
    let mut addresses: BTreeSet<Ipv6Net> = interface.addresses.iter().copied().collect();
    let mut neighbours = BTreeMap::new();
    let bond = options.bonds && !interface.members.is_empty();
    let over = interface.wire.as_ref().filter(|_| options.macsec && !bond).map(|wire| wire.ifindex);
    // The kernel drops both when the interface goes down, and gives neither back.
    if up {
        addresses.extend(Ipv6Net::new(interface.link_local, LINK_LOCAL_LENGTH));
        neighbours.insert(interface.peer_link_local, Mac(interface.peer_mac));
        for address in peer.into_iter().flat_map(|p| &p.addresses) {
            neighbours.insert(address.addr(), Mac(interface.peer_mac));
        }
    }
    Interface {
        ifindex: interface.ifindex,
        peer_ifindex: peer.filter(|_| !bond && over.is_none()).map_or(0, |p| p.ifindex),
        over,
        bond,
        master: None,
        mac: Mac(interface.mac),
        mtu: interface.mtu,
        marked: true,
        up,
        addresses,
        neighbours,
        mpls_input: options.mpls && interface.core,
        queue: queue(interface, options),
    }
}

/// One member of a bond: everything but the wire is the bond's.
fn wanted_member(bond: &LabInterface, member: &Member, up: bool, options: Options) -> Interface {
    let over = member.wire.as_ref().filter(|_| options.macsec).map(|wire| wire.ifindex);
    Interface {
        peer_ifindex: if over.is_some() { 0 } else { member.peer_ifindex },
        over,
        master: Some(bond.ifindex),
        ..bare(member.ifindex, member.mac, bond.mtu, up)
    }
}

/// What an encrypted interface sits on. It goes up and down with it: that is how the other end sees it.
fn wanted_wire(wire: &Wire, up: bool) -> Interface {
    Interface { peer_ifindex: wire.peer_ifindex, ..bare(wire.ifindex, wire.mac, wire.mtu, up) }
}

/// An interface that carries frames and nothing else.
fn bare(ifindex: u32, mac: [u8; 6], mtu: u32, up: bool) -> Interface {
    Interface {
        ifindex,
        peer_ifindex: 0,
        over: None,
        bond: false,
        master: None,
        mac: Mac(mac),
        mtu,
        marked: true,
        up,
        addresses: BTreeSet::new(),
        neighbours: BTreeMap::new(),
        mpls_input: false,
        queue: None,
    }
}

/// The queue of an interface, if it is shaped.
fn queue(interface: &LabInterface, options: Options) -> Option<Queue> {
    let rate_bps = interface.rate_bps?;
    let delay = interface.delay.filter(|_| options.delay).unwrap_or_default();
    Some(Queue {
        rate_bps,
        limit: limit(rate_bps, interface.mtu),
        band_packets: options.bands.then_some(BAND_PACKETS),
        delay_ns: nanoseconds(delay),
        ..Queue::default()
    })
}

/// Bytes that may wait without bands: a twentieth of a second's worth, but never less than a few full frames.
fn limit(rate_bps: u64, mtu: u32) -> u32 {
    u32::try_from((rate_bps / 8 / 20).max(4 * u64::from(mtu))).unwrap_or(u32::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Static and local routes; none over an interface that is down, where the kernel would not keep them.
fn routes(node: &LabNode, state: &Node) -> BTreeSet<Route> {
    let up = |name: &str| state.interfaces.get(name).is_some_and(|i| i.up);
    let forwarded = node.routes.iter().filter(|r| up(&r.interface)).map(|r| Route {
        prefix: r.prefix.trunc(),
        via: Some(r.via),
        interface: r.interface.clone(),
    });
    let local = node.local_prefixes.iter().map(|p| Route {
        prefix: p.trunc(),
        via: None,
        interface: "lo".to_owned(),
    });
    forwarded.chain(local).collect()
}

/// The static label of an interface. It stays while the interface is down: the kernel keeps it as dead, and it
/// works again when the link does.
fn label(interface: &LabInterface) -> Option<(u32, LabelRoute)> {
    let route = LabelRoute { via: interface.peer_link_local, interface: interface.name.clone() };
    interface.static_label.map(|label| (label, route))
}

//! From the checked specification to the lab: every name, address, index and label, by the table "Numbers that must
//! agree" of `docs/architecture.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use ipnet::Ipv6Net;

use crate::index;
use crate::lab::{
    End, Interface, Lab, Link, LinkKind, Lock, Member, Node, Plane, ProgramKind, Role, Site, SiteKind,
    StaticRoute, Wire,
};
use crate::spec::{
    LinkValues, Spec, SpecLink, SpecSite, aggregator_name, core_interface, host_name, member_interface,
    parallel_suffix, router_name, wire_interface,
};
use crate::units::{Capacity, Rtt};

/// Core links carry the label stack and the fabric's jumbo frames.
const CORE_MTU: u32 = 9216;
/// Attachment and access links.
const EDGE_MTU: u32 = 9000;
/// What encryption adds to a frame: SecTAG with SCI and EtherType 16, check value 16.
const MACSEC_OVERHEAD: u32 = 32;
/// Nominal capacity of attachment and access links. They are not shaped: the backbone is the bottleneck.
const EDGE_CAPACITY: Capacity = Capacity(10_000_000_000_000);
/// First dynamic label: bit 19 set.
const FIRST_DYNAMIC_LABEL: u32 = 1 << 19;

/// Makes the lab. Equal specifications give equal labs.
pub(crate) fn generate(spec: &Spec) -> Lab {
    let planes = u8::try_from(spec.controllers.len()).unwrap_or(u8::MAX);
    let mut links: Vec<Link> = (1..=planes).flat_map(|plane| core_links(spec, plane)).collect();
    links.extend(
        spec.sites.iter().filter(|site| site.kind == SiteKind::Dc).flat_map(|site| edge_links(site, planes)),
    );
    links.sort_by(|a, b| a.name.cmp(&b.name));
    let interfaces = interfaces(spec, &links);
    let mut nodes: Vec<Node> = spec.sites.iter().flat_map(|site| site_nodes(spec, site, planes)).collect();
    for node in &mut nodes {
        node.interfaces = interfaces.get(&node.name).cloned().unwrap_or_default();
        node.routes = routes(node);
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let site = |site: &SpecSite| Site { name: site.name.clone(), id: site.id, kind: site.kind };
    Lab {
        name: spec.name.clone(),
        bandwidth_divisor: spec.divisor,
        emulate_delay: spec.emulate_delay,
        sites: spec.sites.iter().map(site).collect(),
        planes: (1..=planes)
            .zip(&spec.controllers)
            .map(|(id, controller)| Plane {
                id,
                controller_hosts: replica_hosts(spec, &controller.host),
                controller_program: controller.program.clone(),
                algorithms: controller.algorithms.clone(),
            })
            .collect(),
        nodes,
        links,
        lock: spec.lock.clone(),
        te: spec.te.clone(),
        bfd: spec.bfd.clone(),
        macsec: spec.macsec.clone(),
        demands: spec.demands.clone(),
    }
}

/// Hosts of a plane's controllers, the first of which is given: one data centre after the other, in each of them one host
/// after the other.
fn replica_hosts(spec: &Spec, first: &str) -> Vec<String> {
    let dcs: Vec<&SpecSite> = spec.sites.iter().filter(|site| site.hosts > 0).collect();
    let (number, site) = first.strip_prefix('h').and_then(|f| f.split_once('.')).unwrap_or_default();
    let number = number.parse::<usize>().unwrap_or(1).saturating_sub(1);
    let Some(start) = dcs.iter().position(|dc| dc.name == site) else { return vec![first.to_owned()] };
    let host = |replica: usize| {
        let dc = dcs[(start + replica) % dcs.len()];
        let round = (number + replica / dcs.len()) % usize::from(dc.hosts);
        host_name(u16::try_from(round + 1).unwrap_or(1), &dc.name)
    };
    (0..usize::from(spec.replicas)).map(host).collect()
}

/// The core links of a plane.
fn core_links(spec: &Spec, plane: u8) -> impl Iterator<Item = Link> {
    let values = move |link: &SpecLink| link.planes.get(usize::from(plane) - 1).cloned().flatten();
    spec.links.iter().filter_map(move |link| values(link).map(|values| core_link(link, values, plane)))
}

fn core_link(link: &SpecLink, values: LinkValues, plane: u8) -> Link {
    let (a, b) = (router_name(plane, &link.a), router_name(plane, &link.b));
    Link {
        name: format!("{a}--{b}{}", parallel_suffix(link.parallel)),
        kind: LinkKind::Core,
        plane: Some(plane),
        a: End { node: a, interface: core_interface(&link.b, link.parallel) },
        b: End { node: b, interface: core_interface(&link.a, link.parallel) },
        capacity: values.capacity,
        rtt: values.rtt,
        members: values.members,
        bonded: values.bonded && values.members > 1,
        srlgs: values.srlgs,
    }
}

/// The links around a data centre's aggregator: to its routers and to its hosts.
fn edge_links(site: &SpecSite, planes: u8) -> Vec<Link> {
    let aggregator = aggregator_name(&site.name);
    let link = |kind, plane, low: (String, &str), high: (String, &str)| Link {
        name: format!("{}--{}", low.0, high.0),
        kind,
        plane,
        a: End { node: low.0, interface: low.1.to_owned() },
        b: End { node: high.0, interface: high.1.to_owned() },
        capacity: EDGE_CAPACITY,
        rtt: Rtt(0),
        members: 1,
        bonded: false,
        srlgs: Vec::new(),
    };
    // Names order as eb.. < fa.. < h.., so the ends are already in order.
    let attach = (1..=planes).map(|plane| {
        let router = (router_name(plane, &site.name), "fa");
        link(LinkKind::Attach, Some(plane), router, (aggregator.clone(), &format!("eb{plane:02}")))
    });
    let access = (1..=site.hosts).map(|number| {
        let host = (host_name(number, &site.name), "fa");
        link(LinkKind::Access, None, (aggregator.clone(), &format!("h{number}")), host)
    });
    attach.chain(access).collect()
}

/// The nodes of a site, without interfaces and routes.
fn site_nodes(spec: &Spec, site: &SpecSite, planes: u8) -> Vec<Node> {
    let mut nodes: Vec<Node> = (1..=planes).map(|plane| router(spec, site, plane)).collect();
    if site.kind == SiteKind::Dc {
        let address = host_address(site.id, 0, 0xfa);
        let mut aggregator = node(aggregator_name(&site.name), Role::Aggregator, site, address);
        aggregator.programs = vec![ProgramKind::Bird];
        nodes.push(aggregator);
        nodes.extend((1..=site.hosts).map(|number| host(spec, site, number)));
    }
    nodes
}

fn node(name: String, role: Role, site: &SpecSite, address: Ipv6Addr) -> Node {
    Node {
        name,
        role,
        site: site.name.clone(),
        site_id: site.id,
        plane: None,
        address,
        local_prefixes: Vec::new(),
        routes: Vec::new(),
        interfaces: Vec::new(),
        platform_labels: 0,
        programs: Vec::new(),
    }
}

fn router(spec: &Spec, site: &SpecSite, plane: u8) -> Node {
    let address = Ipv6Addr::new(0xfd00, u16::from(plane), 0, 0, 0, 0, 0, u16::from(site.id));
    let mut router = node(router_name(plane, &site.name), Role::Router, site, address);
    router.plane = Some(plane);
    // The table must end after the highest binding SID: one per destination, mesh and version of each source site.
    let highest = spec.sites.iter().map(|site| u32::from(site.id)).max().unwrap_or(0);
    router.platform_labels = FIRST_DYNAMIC_LABEL + ((highest + 1) << 11);
    router.programs = vec![
        ProgramKind::Bird,
        ProgramKind::ConfigAgent,
        ProgramKind::FibAgent,
        ProgramKind::LspAgent,
        ProgramKind::Openr,
        ProgramKind::RouteAgent,
    ];
    if spec.macsec.is_some() {
        // by name
        router.programs.insert(3, ProgramKind::KeyAgent);
    }
    router
}

fn host(spec: &Spec, site: &SpecSite, number: u16) -> Node {
    let mut host = node(host_name(number, &site.name), Role::Host, site, host_address(site.id, number, 1));
    let probes = Ipv6Addr::new(0x2001, 0xdb8, u16::from(site.id), number, 1, 0, 0, 0);
    host.local_prefixes = vec![prefix(probes, 80)];
    // One entry however many controllers run here; `Lab::planes` says which.
    if spec.controllers.iter().any(|c| replica_hosts(spec, &c.host).contains(&host.name)) {
        host.programs.push(ProgramKind::EbbController);
    }
    if matches!(&spec.lock, Lock::Etcd { members } if members.contains(&host.name)) {
        host.programs.push(ProgramKind::Etcd);
    }
    if spec.controllers.iter().any(|c| c.host == host.name) {
        host.programs.push(ProgramKind::NhgTm);
    }
    host
}

/// `2001:db8:<site>:<subnet>::<last>`, all in hexadecimal.
fn host_address(site: u8, subnet: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, u16::from(site), subnet, 0, 0, 0, last)
}

/// A prefix; every caller's length is a constant within 128.
fn prefix(address: Ipv6Addr, length: u8) -> Ipv6Net {
    Ipv6Net::new(address, length).unwrap_or_else(|_| Ipv6Net::from(address))
}

/// Interfaces by node, each sorted by name.
fn interfaces(spec: &Spec, links: &[Link]) -> BTreeMap<String, Vec<Interface>> {
    let ends: BTreeSet<End> = links.iter().flat_map(|link| [link.a.clone(), link.b.clone()]).collect();
    let members: BTreeSet<End> =
        links.iter().flat_map(|link| link.ends().map(|end| member_ends(link, end)).concat()).collect();
    let secured = |link: &&Link| spec.macsec.is_some() && link.kind == LinkKind::Core;
    let circuits =
        links.iter().filter(secured).flat_map(|link| link.ends().map(|end| circuits(link, end)).concat());
    let wires = circuits.map(|end| wire_end(&end)).collect();
    let indexes = index::assign(&ends, &members, &wires);
    let ids: BTreeMap<&str, u8> = spec.sites.iter().map(|site| (site.name.as_str(), site.id)).collect();
    let mut by_node: BTreeMap<String, Vec<Interface>> = BTreeMap::new();
    for link in links {
        for (own, peer) in [(&link.a, &link.b), (&link.b, &link.a)] {
            let (Some(own_index), Some(peer_index)) = (indexes.get(own), indexes.get(peer)) else { continue };
            let site_of = |end: &End| {
                end.node.split_once('.').and_then(|(_, site)| ids.get(site)).copied().unwrap_or(0)
            };
            let mut interface =
                interface(spec, link, own, peer, [*own_index, *peer_index], [site_of(own), site_of(peer)]);
            interface.members = link_members(link, own, peer, &indexes);
            interface.wire = wire(own, peer, &indexes);
            by_node.entry(own.node.clone()).or_default().push(interface);
        }
    }
    for list in by_node.values_mut() {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    by_node
}

/// The ends of a bundle's circuits at one of its ends; none if they are only a number.
fn member_ends(link: &Link, end: &End) -> Vec<End> {
    let count = if link.bonded { link.members } else { 0 };
    let member = |number| End { node: end.node.clone(), interface: member_interface(&end.interface, number) };
    (1..=count).map(member).collect()
}

/// The interfaces at one end of a link that frames leave by: its members, or itself.
fn circuits(link: &Link, end: &End) -> Vec<End> {
    let members = member_ends(link, end);
    if members.is_empty() { vec![end.clone()] } else { members }
}

/// What an encrypted end sits on.
fn wire_end(end: &End) -> End {
    End { node: end.node.clone(), interface: wire_interface(&end.interface) }
}

/// The same as its own interface; nothing if the end is not encrypted, or is a bundle of members.
fn wire(own: &End, peer: &End, indexes: &BTreeMap<End, u32>) -> Option<Wire> {
    let (own, peer) = (wire_end(own), wire_end(peer));
    let (ifindex, peer_ifindex) = (*indexes.get(&own)?, *indexes.get(&peer)?);
    let mtu = CORE_MTU + MACSEC_OVERHEAD;
    Some(Wire { name: own.interface, ifindex, mac: index::mac(ifindex), mtu, peer_ifindex })
}

/// The members of one end of a link.
fn link_members(link: &Link, own: &End, peer: &End, indexes: &BTreeMap<End, u32>) -> Vec<Member> {
    let pairs = member_ends(link, own).into_iter().zip(member_ends(link, peer));
    let member = |(own, peer): (End, End)| {
        let (ifindex, peer_ifindex) = (*indexes.get(&own)?, *indexes.get(&peer)?);
        let wire = wire(&own, &peer, indexes);
        Some(Member { name: own.interface, ifindex, mac: index::mac(ifindex), peer_ifindex, wire })
    };
    pairs.filter_map(member).collect()
}

/// One end of a link. Pairs are own and peer.
fn interface(
    spec: &Spec,
    link: &Link,
    own: &End,
    peer: &End,
    indexes: [u32; 2],
    sites: [u8; 2],
) -> Interface {
    let [mac, peer_mac] = indexes.map(index::mac);
    let core = link.kind == LinkKind::Core;
    let parallel = own.interface.rsplit_once('.').and_then(|(_, n)| n.parse().ok()).unwrap_or(1_u32);
    let delay = link.rtt.one_way();
    Interface {
        name: own.interface.clone(),
        ifindex: indexes[0],
        mac,
        link_local: index::link_local(mac),
        addresses: if link.kind == LinkKind::Attach {
            vec![attach_address(link, own, sites[0])]
        } else {
            Vec::new()
        },
        mtu: if core { CORE_MTU } else { EDGE_MTU },
        link: link.name.clone(),
        peer_node: peer.node.clone(),
        peer_interface: peer.interface.clone(),
        peer_mac,
        peer_link_local: index::link_local(peer_mac),
        core,
        static_label: core.then(|| 1000 * parallel + u32::from(sites[1])),
        rate_bps: core.then(|| link.capacity.0 / spec.divisor),
        delay: (core && spec.emulate_delay && delay > Duration::ZERO).then_some(delay),
        members: Vec::new(),
        wire: None,
    }
}

/// `fd00:fa:<plane>:<site>::/127`: the router has `::0`, the aggregator `::1`.
fn attach_address(link: &Link, own: &End, site: u8) -> Ipv6Net {
    let plane = u16::from(link.plane.unwrap_or(0));
    let last = u16::from(*own == link.b);
    prefix(Ipv6Addr::new(0xfd00, 0xfa, plane, u16::from(site), 0, 0, 0, last), 127)
}

/// The static routes of a node: a host's default, an aggregator's hosts.
fn routes(node: &Node) -> Vec<StaticRoute> {
    let route = |prefix, interface: &Interface| StaticRoute {
        prefix,
        via: interface.peer_link_local,
        interface: interface.name.clone(),
    };
    match node.role {
        Role::Router => Vec::new(),
        Role::Host => node.interfaces.iter().map(|i| route(prefix(Ipv6Addr::UNSPECIFIED, 0), i)).collect(),
        Role::Aggregator => node
            .interfaces
            .iter()
            .filter_map(|i| Some((i.name.strip_prefix('h')?.parse::<u16>().ok()?, i)))
            .map(|(number, i)| route(prefix(host_address(node.site_id, number, 0), 64), i))
            .collect(),
    }
}

//! Reading what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};

use rtnl::link::LinkInfo;
use rtnl::route::{Filter, Kind, Via};
use rtnl::{KernelError, Socket, addr, link, mpls, neigh, netns, route, sysctl, tc};

use super::{LO, LinuxKernel, power, queue};
use crate::apply::{PROTOCOL, Scope};
use crate::plan::{
    Filter as ConnectionFilter, Interface, LabelRoute, Mac, Node, Route, State, managed_sysctls,
};

/// Settings of a namespace: by key, the interfaces that accept labels, and filters.
type Settings = (BTreeMap<String, String>, BTreeSet<String>, BTreeSet<ConnectionFilter>);

impl LinuxKernel {
    /// Reads the namespaces in scope. Settings are read by a second thread, because they need one that can change
    /// namespaces, and they take about as long as the rest.
    pub(super) fn read(&mut self, scope: &Scope) -> Result<State, KernelError> {
        let mark = self.mark.clone();
        let mut names = Vec::new();
        let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
        let mut sockets = Vec::new();
        for (name, held) in self.held.iter_mut().filter(|(name, _)| scope.contains(name)) {
            names.push(name.clone());
            fds.push(held.fd.as_fd());
            sockets.push(&mut held.socket);
        }
        let (nodes, settings) = std::thread::scope(|threads| {
            let settings = threads.spawn(|| netns::tour(&fds, |_| read_settings()));
            let nodes: Result<Vec<Node>, KernelError> =
                sockets.iter_mut().map(|socket| read_node(socket, &mark)).collect();
            let settings = settings.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (nodes, settings)
        });
        let mut state = State::default();
        for ((name, mut node), settings) in names.into_iter().zip(nodes?).zip(settings?) {
            let (sysctls, labelled, filters) = settings?;
            (node.sysctls, node.filters) = (sysctls, filters);
            for (interface, state) in &mut node.interfaces {
                state.mpls_input = labelled.contains(interface);
            }
            state.nodes.insert(name, node);
        }
        Ok(state)
    }
}

/// Reads the settings of the calling thread's namespace.
fn read_settings() -> Result<Settings, KernelError> {
    let mut values = BTreeMap::new();
    for key in managed_sysctls() {
        if let Some(value) = sysctl::read_here(key)? {
            values.insert(key.to_owned(), value);
        }
    }
    let mut labelled = BTreeSet::new();
    // Without MPLS there is no such folder.
    for entry in fs::read_dir("/proc/sys/net/mpls/conf").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if sysctl::read_here(&format!("net/mpls/conf/{name}/input"))?.as_deref() == Some("1") {
            labelled.insert(name);
        }
    }
    Ok((values, labelled, power::read_filters()))
}

/// Reads everything that one namespace's socket tells.
fn read_node(socket: &mut Socket, mark: &str) -> Result<Node, KernelError> {
    let links = link::dump(socket)?;
    let names: BTreeMap<u32, &str> = links.iter().map(|l| (l.ifindex, l.name.as_str())).collect();
    let mut by_index: BTreeMap<u32, Interface> =
        links.iter().filter(|l| is_ours(l, mark)).map(|l| (l.ifindex, bare_interface(l, mark))).collect();
    let mut node = Node {
        loopback: links.iter().any(|l| l.ifindex == LO && l.up && l.alias.as_deref() == Some(mark)),
        ..Node::default()
    };
    for info in addr::dump(socket)? {
        let (ifindex, net) = (info.address.ifindex, info.address.net());
        if let Some(interface) = by_index.get_mut(&ifindex) {
            // The kernel makes the link-local address itself when it can.
            if info.protocol == PROTOCOL || info.address.ip == link_local(interface.mac) {
                interface.addresses.insert(net);
            }
        } else if ifindex == LO && info.protocol == PROTOCOL {
            node.addresses.insert(net);
        }
    }
    for neighbour in neigh::dump(socket)?.into_iter().filter(|n| n.permanent && n.protocol == PROTOCOL) {
        if let Some(interface) = by_index.get_mut(&neighbour.ifindex) {
            interface.neighbours.insert(neighbour.ip, Mac(neighbour.mac));
        }
    }
    for (ifindex, found) in queue::of_interfaces(&tc::dump(socket, None)?) {
        if let Some(interface) = by_index.get_mut(&ifindex) {
            interface.queue = Some(found);
        }
    }
    node.routes = read_routes(socket, &names)?;
    node.labels = read_labels(socket, &names)?;
    let named = by_index.into_iter().filter_map(|(i, state)| Some(((*names.get(&i)?).to_owned(), state)));
    node.interfaces = named.collect();
    node.blank = !node.is_alive() && power::put_by_programs(socket)?.is_empty();
    Ok(node)
}

/// Whether an interface belongs to the lab.
fn is_ours(link: &LinkInfo, mark: &str) -> bool {
    let [a, b, c, d] = link.ifindex.to_be_bytes();
    let made_by_us = link.alias.is_none() && link.mac == [0x02, 0xeb, a, b, c, d];
    matches!(link.kind.as_deref(), Some("veth" | "bond" | "macsec"))
        && (link.alias.as_deref() == Some(mark) || made_by_us)
}

/// An interface with what its link message tells.
fn bare_interface(link: &LinkInfo, mark: &str) -> Interface {
    let secured = link.kind.as_deref() == Some("macsec");
    Interface {
        ifindex: link.ifindex,
        peer_ifindex: link.peer_ifindex.filter(|_| !secured).unwrap_or_default(),
        over: link.peer_ifindex.filter(|_| secured),
        bond: link.kind.as_deref() == Some("bond"),
        master: link.master,
        mac: Mac(link.mac),
        mtu: link.mtu,
        marked: link.alias.as_deref() == Some(mark),
        up: link.up,
        addresses: BTreeSet::new(),
        neighbours: BTreeMap::new(),
        mpls_input: false,
        queue: None,
    }
}

/// Our routes: local prefixes and routes of the main table.
fn read_routes(socket: &mut Socket, names: &BTreeMap<u32, &str>) -> Result<BTreeSet<Route>, KernelError> {
    let filter = Filter { protocol: Some(PROTOCOL), table: None };
    let mut routes = BTreeSet::new();
    for found in route::dump(socket, filter)? {
        let local = found.kind == Kind::Local && found.table == route::TABLE_LOCAL;
        let forwarded = found.kind == Kind::Unicast && found.table == route::TABLE_MAIN;
        let Via::Hops(hops) = found.via else { continue };
        for hop in hops.into_iter().filter(|_| local || forwarded) {
            let interface = names.get(&hop.oif).map_or_else(String::new, |name| (*name).to_owned());
            let via = hop.gateway.filter(|_| forwarded);
            routes.insert(Route { prefix: found.dst, via, interface });
        }
    }
    Ok(routes)
}

/// Our labels.
fn read_labels(
    socket: &mut Socket,
    names: &BTreeMap<u32, &str>,
) -> Result<BTreeMap<u32, LabelRoute>, KernelError> {
    let ours = mpls::dump(socket)?.into_iter().filter(|r| r.protocol == PROTOCOL);
    let read = |found: mpls::LabelRoute| {
        let route = match found.hops.as_slice() {
            [hop] if hop.push.is_empty() => LabelRoute {
                via: hop.via,
                interface: names.get(&hop.oif).map_or_else(String::new, |name| (*name).to_owned()),
            },
            // Not one of ours any more: equal to nothing wanted, so that it is replaced.
            _ => LabelRoute { via: Ipv6Addr::UNSPECIFIED, interface: String::new() },
        };
        (found.label, route)
    };
    Ok(ours.map(read).collect())
}

/// The link-local address that the kernel makes of a hardware address (RFC 4291, appendix A).
fn link_local(mac: Mac) -> Ipv6Addr {
    let mut bytes = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    let (company, device) = mac.0.split_at(3);
    bytes[8..11].copy_from_slice(company);
    bytes[13..].copy_from_slice(device);
    bytes[8] ^= 2; // the universal bit is inverted
    Ipv6Addr::from(bytes)
}

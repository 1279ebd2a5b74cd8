//! The Linux kernel behind the [`Kernel`] trait: operations as routing-netlink messages.

use std::collections::BTreeMap;

use rtnl::nexthop::{Entry, Group, Member, Object};
use rtnl::{Request, Socket, link, mpls, nexthop};

use super::driver::Kernel;
use super::engine::Snapshot;
use super::state::{Exit, Known, Op, Share};
use crate::agent::monotonic_ns;
use crate::config::PROTO_LSP;
use crate::label::{Nexthop, Sid};

/// A netlink socket in the router's namespace.
pub struct Netlink {
    socket: Socket,
    requests: Vec<Request>,
}

impl Netlink {
    /// Opens the socket in the namespace of the calling thread.
    pub fn open() -> anyhow::Result<Self> {
        Ok(Self { socket: Socket::open(rtnl::socket::ROUTE)?, requests: Vec::new() })
    }

    /// Packets by group member since the group was written; nothing where the kernel keeps no counters.
    pub fn counts(&mut self) -> anyhow::Result<Vec<nexthop::MemberCount>> {
        match nexthop::counts(&mut self.socket) {
            Err(e) if e.errno == libc::EINVAL || e.is_unsupported() => Ok(Vec::new()),
            counts => Ok(counts?),
        }
    }
}

impl Kernel for Netlink {
    fn write(&mut self, ops: &[&Op]) -> anyhow::Result<Vec<Result<(), String>>> {
        self.requests.clear();
        self.requests.extend(ops.iter().map(|op| request(op)));
        let results = self.socket.batch(&self.requests)?;
        let settle = |(op, result): (&&Op, Result<(), rtnl::KernelError>)| match (op, result) {
            (Op::DelSid(_) | Op::DelGroup(_) | Op::DelMember(_), Err(e)) if e.is_absent() => Ok(()),
            (_, result) => result.map_err(|e| e.to_string()),
        };
        Ok(ops.iter().zip(results).map(settle).collect())
    }

    fn look(&mut self) -> anyhow::Result<Snapshot> {
        let links = link::dump(&mut self.socket)?;
        let interfaces: BTreeMap<_, _> =
            links.into_iter().map(|l| (l.name, (l.ifindex, l.up && l.lower_up))).collect();
        let mut known = Known::default();
        for entry in nexthop::dump(&mut self.socket)? {
            match (entry, Nexthop::decode) {
                (Entry::Object(o), decode) if o.protocol == PROTO_LSP && decode(o.id).is_some() => {
                    let gateway = o.gateway.unwrap_or(std::net::Ipv6Addr::UNSPECIFIED);
                    known.members.insert(o.id, Exit { ifindex: o.oif, gateway, labels: o.labels.into() });
                }
                (Entry::Group(g), decode) if g.protocol == PROTO_LSP && decode(g.id).is_some() => {
                    known.groups.insert(
                        g.id,
                        g.members.into_iter().map(|m| (m.id, m.weight.saturating_add(1))).collect(),
                    );
                }
                _ => {}
            }
        }
        for route in mpls::dump(&mut self.socket)? {
            if route.protocol == PROTO_LSP && Sid::decode(route.label).is_some() {
                let exits = route.hops.into_iter();
                let exits = exits.map(|h| Exit { ifindex: h.oif, gateway: h.via, labels: h.push.into() });
                known.sids.insert(route.label, exits.collect());
            }
        }
        Ok(Snapshot { interfaces, known })
    }

    fn now_ns(&mut self) -> u64 {
        monotonic_ns()
    }
}

/// The message of an operation.
pub fn request(op: &Op) -> Request {
    match op {
        Op::PutMember(id, exit) => nexthop::set(&Object {
            id: *id,
            protocol: PROTO_LSP,
            oif: exit.ifindex,
            gateway: Some(exit.gateway),
            labels: exit.labels.to_vec(),
        }),
        Op::PutGroup(id, members) => {
            let member = |&(id, lsps): &Share| Member { id, weight: lsps.saturating_sub(1) };
            let members = members.iter().map(member).collect();
            nexthop::set_group(&Group { id: *id, protocol: PROTO_LSP, members })
        }
        Op::PutSid(label, exits) => {
            let hop = |e: &Exit| mpls::LabelHop { via: e.gateway, oif: e.ifindex, push: e.labels.to_vec() };
            let hops = exits.iter().map(hop).collect();
            mpls::set(&mpls::LabelRoute { label: *label, protocol: PROTO_LSP, hops })
        }
        Op::DelSid(label) => mpls::delete(*label),
        Op::DelGroup(id) | Op::DelMember(id) => nexthop::delete(*id),
    }
}

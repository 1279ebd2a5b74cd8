//! MPLS label routes (`AF_MPLS`).
//!
//! A label route has next hops of its own (nexthop objects are refused by the kernel), duplicates allowed. A hop
//! that pushes nothing pops the label and forwards what is beneath.

use std::net::Ipv6Addr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::route::{self, HEADER, RTA_DST, RTA_MULTIPATH, RTA_OIF};
use crate::wire;
use crate::{KernelError, Mode, Request, Socket};

/// `AF_MPLS`.
const AF_MPLS: u8 = 28;
/// MPLS knows one table only.
const TABLE_MAIN: u8 = 254;
/// Bits of a label.
const LABEL_BITS: u8 = 20;
const RTA_VIA: u16 = 18;
const RTA_NEWDST: u16 = 19;

/// One way out of a label route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelHop {
    /// Next router.
    pub via: Ipv6Addr,
    /// Outgoing interface index.
    pub oif: u32,
    /// Labels that replace the popped one, outermost first; empty to forward what is beneath it.
    pub push: Vec<u32>,
}

/// What a router does with a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelRoute {
    /// Incoming label, 16 to 1048574, below the namespace's `platform_labels`.
    pub label: u32,
    /// Who installed it (`RTPROT_*`).
    pub protocol: u8,
    /// Ways out; several are used in turn by flow hash (labels and inner addresses).
    pub hops: Vec<LabelHop>,
}

/// Installs a label route or replaces what the label did, at once.
pub fn set(route: &LabelRoute) -> Request {
    let doing = format!("set label {} ({} next hops)", route.label, route.hops.len());
    Request::typed(&RouteNetlinkMessage::NewRoute(message(route)), Mode::Replace, doing)
}

/// Removes a label route.
pub fn delete(label: u32) -> Request {
    let route = LabelRoute { label, protocol: 0, hops: Vec::new() };
    let doing = format!("remove label {label}");
    Request::typed(&RouteNetlinkMessage::DelRoute(message(&route)), Mode::Change, doing)
}

/// The typed message.
fn message(route: &LabelRoute) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Mpls;
    message.header.destination_prefix_length = LABEL_BITS;
    message.header.table = TABLE_MAIN;
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    let destination = route::typed_stack(&[route.label]).into_iter().map(RouteAddress::Mpls);
    message.attributes = destination.map(RouteAttribute::Destination).collect();
    match route.hops.as_slice() {
        [] => {}
        [hop] => {
            message.attributes.extend(hop_attributes(hop));
            message.attributes.push(RouteAttribute::Oif(hop.oif));
        }
        many => message.attributes.push(RouteAttribute::MultiPath(many.iter().map(hop_message).collect())),
    }
    message
}

/// Labels and next router of a hop.
fn hop_attributes(hop: &LabelHop) -> Vec<RouteAttribute> {
    let mut attributes = Vec::new();
    if !hop.push.is_empty() {
        attributes.push(RouteAttribute::NewDestination(route::typed_stack(&hop.push)));
    }
    attributes.push(RouteAttribute::Via(RouteVia::Inet6(hop.via)));
    attributes
}

/// A hop within a multipath attribute.
fn hop_message(hop: &LabelHop) -> RouteNextHop {
    let mut message = RouteNextHop::default();
    message.interface_index = hop.oif;
    message.attributes = hop_attributes(hop);
    message
}

/// Reads a hop; nothing if it has no IPv6 next router.
fn decode_hop(oif: u32, attributes: wire::AttrIter<'_>) -> Option<LabelHop> {
    let mut hop = LabelHop { via: Ipv6Addr::UNSPECIFIED, oif, push: Vec::new() };
    for (kind, value) in attributes {
        match kind {
            RTA_OIF => hop.oif = wire::u32_at(value, 0)?,
            RTA_NEWDST => hop.push = wire::parse_labels(value),
            // struct rtvia: address family, then the address
            RTA_VIA if i32::from(wire::u16_at(value, 0)?) == libc::AF_INET6 => {
                hop.via = wire::ip6(value.get(2..)?)?;
            }
            _ => {}
        }
    }
    (!hop.via.is_unspecified()).then_some(hop)
}

/// Decodes the body of `RTM_NEWROUTE` or `RTM_DELROUTE`; nothing for other families than MPLS. Hops over
/// anything but IPv6 are left out.
pub fn decode(body: &[u8]) -> Option<LabelRoute> {
    if *body.first()? != AF_MPLS {
        return None;
    }
    let attributes = wire::attrs_after(body, HEADER);
    let label = *wire::parse_labels(wire::find(attributes, RTA_DST)?).first()?;
    let hops = match wire::find(attributes, RTA_MULTIPATH) {
        Some(list) => {
            let hops = route::multipath(list).into_iter();
            hops.filter_map(|(oif, _, _, a)| decode_hop(oif, a)).collect()
        }
        None => decode_hop(0, attributes).into_iter().collect(),
    };
    Some(LabelRoute { label, protocol: *body.get(5)?, hops })
}

/// Reads all label routes of the socket's namespace, ascending; none where the kernel has no MPLS.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket) -> Result<Vec<LabelRoute>, KernelError> {
    let mut header = [0; HEADER];
    header[0] = AF_MPLS;
    let request = Request::dump(route::GET, &header, "list MPLS label routes");
    match socket.dump(&request, |m| decode(m.body)) {
        Err(e) if e.is_unsupported() => Ok(Vec::new()),
        Ok(mut routes) => {
            routes.sort_by_key(|r| r.label);
            Ok(routes)
        }
        Err(e) => Err(e),
    }
}

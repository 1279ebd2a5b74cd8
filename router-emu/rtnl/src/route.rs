//! IPv6 routes.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use netlink_packet_route::route::{
    MplsLabel, RouteAddress, RouteAttribute, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage,
    RouteMplsIpTunnel, RouteNextHop, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::wire;
use crate::{KernelError, Mode, Request, Socket};

/// `RTM_NEWROUTE`.
pub const NEW: u16 = 24;
/// `RTM_DELROUTE`.
pub const DEL: u16 = 25;
/// `RTM_GETROUTE`.
pub const GET: u16 = 26;

/// The main table.
pub const TABLE_MAIN: u32 = 254;
/// The table of local addresses.
pub const TABLE_LOCAL: u32 = 255;
/// Metric that the kernel gives a route added with metric 0.
pub const DEFAULT_METRIC: u32 = 1024;
/// Flag of a next hop whose device is gone or down (`RTNH_F_DEAD`).
pub const HOP_DEAD: u8 = 1;
/// Flag of a next hop whose device has no carrier (`RTNH_F_LINKDOWN`).
pub const HOP_LINKDOWN: u8 = 16;

/// Length of `struct rtmsg`.
pub(crate) const HEADER: usize = 12;
/// Length of `struct rtnexthop`.
const HOP_HEADER: usize = 8;
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
pub(crate) const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTM_F_CLONED: u32 = 0x200;

/// What a route does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Forward.
    #[default]
    Unicast,
    /// Deliver to this machine.
    Local,
    /// Drop silently.
    Blackhole,
    /// Refuse with "unreachable".
    Unreachable,
    /// Refuse with "prohibited".
    Prohibit,
    /// Anything else, by number.
    Other(u8),
}

impl From<Kind> for u8 {
    fn from(kind: Kind) -> u8 {
        match kind {
            Kind::Unicast => 1,
            Kind::Local => 2,
            Kind::Blackhole => 6,
            Kind::Unreachable => 7,
            Kind::Prohibit => 8,
            Kind::Other(n) => n,
        }
    }
}

impl From<u8> for Kind {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Unicast,
            2 => Self::Local,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            n => Self::Other(n),
        }
    }
}

/// One way out of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Next router, if not directly connected.
    pub gateway: Option<Ipv6Addr>,
    /// Outgoing interface index; 0 lets the kernel choose.
    pub oif: u32,
    /// Share minus one: 0 is weight 1.
    pub weight: u8,
    /// MPLS labels to push, outermost first.
    pub labels: Vec<u32>,
    /// `RTNH_F_*` as read from the kernel; not sent.
    pub flags: u8,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// Nowhere (unreachable, blackhole).
    None,
    /// One or more hops of the route's own. IPv6 refuses duplicates among them.
    Hops(Vec<Hop>),
    /// A nexthop object or group.
    Object(u32),
}

/// An IPv6 route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Destination.
    pub dst: Ipv6Net,
    /// Table; [`TABLE_MAIN`] is the usual one.
    pub table: u32,
    /// Metric; 0 becomes [`DEFAULT_METRIC`] in the kernel.
    pub metric: u32,
    /// Who installed it (`RTPROT_*`).
    pub protocol: u8,
    /// What it does.
    pub kind: Kind,
    /// Where it leads.
    pub via: Via,
}

impl Route {
    /// A unicast route in the main table over one hop.
    pub fn unicast(dst: Ipv6Net, protocol: u8, gateway: Ipv6Addr, oif: u32) -> Self {
        let hop = Hop { gateway: Some(gateway), oif, ..Hop::default() };
        Self {
            dst,
            table: TABLE_MAIN,
            metric: DEFAULT_METRIC,
            protocol,
            kind: Kind::Unicast,
            via: Via::Hops(vec![hop]),
        }
    }
}

/// Installs a route; [`Mode::Replace`] replaces the route with the same destination, table and metric at once,
/// without a moment in which there is none.
pub fn add(route: &Route, mode: Mode) -> Request {
    let verb = if mode == Mode::Replace { "set" } else { "add" };
    let doing = format!("{verb} route {} in table {} {}", route.dst, route.table, via_text(&route.via));
    Request::typed(&RouteNetlinkMessage::NewRoute(message(route)), mode, doing)
}

/// Deletes a route; everything given must match, and metric 0 or [`Via::None`] match any.
pub fn delete(route: &Route) -> Request {
    let doing = format!("delete route {} from table {}", route.dst, route.table);
    Request::typed(&RouteNetlinkMessage::DelRoute(message(route)), Mode::Change, doing)
}

/// The end of an error's sentence.
fn via_text(via: &Via) -> String {
    match via {
        Via::None => "without a next hop".to_owned(),
        Via::Object(id) => format!("over nexthop object {id}"),
        Via::Hops(hops) => {
            let each = hops.iter().map(|h| match h.gateway {
                Some(gateway) => format!("{gateway} on link {}", h.oif),
                None => format!("link {}", h.oif),
            });
            format!("over {}", each.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The typed message.
fn message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = route.dst.prefix_len();
    message.header.table = u8::try_from(route.table).unwrap_or_default();
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::from(u8::from(route.kind));
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(RouteAddress::Inet6(route.dst.addr())));
    attributes.push(RouteAttribute::Table(route.table));
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    match &route.via {
        Via::None => {}
        Via::Object(id) => attributes.push(RouteAttribute::NhId(*id)),
        Via::Hops(hops) => match hops.as_slice() {
            [hop] => {
                if hop.oif != 0 {
                    attributes.push(RouteAttribute::Oif(hop.oif));
                }
                attributes.extend(hop_attributes(hop));
            }
            many => attributes.push(RouteAttribute::MultiPath(many.iter().map(hop_message).collect())),
        },
    }
    message
}

/// Gateway and labels of a hop.
fn hop_attributes(hop: &Hop) -> Vec<RouteAttribute> {
    let mut attributes = Vec::new();
    if let Some(gateway) = hop.gateway {
        attributes.push(RouteAttribute::Gateway(RouteAddress::Inet6(gateway)));
    }
    if !hop.labels.is_empty() {
        let stack = RouteMplsIpTunnel::Destination(typed_stack(&hop.labels));
        attributes.push(RouteAttribute::EncapType(RouteLwEnCapType::Mpls));
        attributes.push(RouteAttribute::Encap(vec![RouteLwTunnelEncap::Mpls(stack)]));
    }
    attributes
}

/// A hop within a multipath attribute.
fn hop_message(hop: &Hop) -> RouteNextHop {
    let mut message = RouteNextHop::default();
    message.interface_index = hop.oif;
    message.hops = hop.weight;
    message.attributes = hop_attributes(hop);
    message
}

/// A label stack in the packet crate's types, bottom flag on the last.
pub(crate) fn typed_stack(labels: &[u32]) -> Vec<MplsLabel> {
    let last = labels.len().saturating_sub(1);
    let entry = |(i, label): (usize, &u32)| MplsLabel {
        label: *label,
        traffic_class: 0,
        bottom_of_stack: i == last,
        ttl: 0,
    };
    labels.iter().enumerate().map(entry).collect()
}

/// A multipath hop before its attributes are understood: interface, weight, flags, attributes.
pub(crate) type RawHop<'a> = (u32, u8, u8, wire::AttrIter<'a>);

/// Splits `RTA_MULTIPATH` into hops; ends at the first that does not fit.
pub(crate) fn multipath(mut rest: &[u8]) -> Vec<RawHop<'_>> {
    let mut hops = Vec::new();
    while let (Some(length), Some(flags), Some(weight), Some(oif)) =
        (wire::u16_at(rest, 0), rest.get(2), rest.get(3), wire::u32_at(rest, 4))
    {
        let length = usize::from(length);
        let Some(attributes) = rest.get(HOP_HEADER..length) else { break };
        hops.push((oif, *weight, *flags, wire::attrs(attributes)));
        rest = rest.get(wire::align(length)..).unwrap_or_default();
    }
    hops
}

/// Reads a hop's gateway and labels.
fn decode_hop(oif: u32, weight: u8, flags: u8, attributes: wire::AttrIter<'_>) -> Hop {
    let mut hop = Hop { oif, weight, flags, ..Hop::default() };
    let mut encap_type = 0;
    let mut encap: &[u8] = &[];
    for (kind, value) in attributes {
        match kind {
            RTA_OIF => hop.oif = wire::u32_at(value, 0).unwrap_or_default(),
            RTA_GATEWAY => hop.gateway = wire::ip6(value),
            RTA_ENCAP_TYPE => encap_type = wire::u16_at(value, 0).unwrap_or_default(),
            RTA_ENCAP => encap = value,
            _ => {}
        }
    }
    if encap_type == 1 {
        hop.labels = wire::find(wire::attrs(encap), 1).map(wire::parse_labels).unwrap_or_default();
    }
    hop
}

/// Decodes the body of `RTM_NEWROUTE` or `RTM_DELROUTE`; nothing for other families than IPv6, and nothing for
/// entries that the kernel cloned for itself.
pub fn decode(body: &[u8]) -> Option<Route> {
    let cloned = wire::u32_at(body, 8)? & RTM_F_CLONED != 0;
    if i32::from(*body.first()?) != libc::AF_INET6 || cloned {
        return None;
    }
    let attributes = wire::attrs_after(body, HEADER);
    let dst = wire::find(attributes, RTA_DST).and_then(wire::ip6).unwrap_or(Ipv6Addr::UNSPECIFIED);
    let number = |kind| wire::find(attributes, kind).and_then(|v| wire::u32_at(v, 0));
    let flags = body.get(8).copied().unwrap_or_default();
    let via = if let Some(id) = number(RTA_NH_ID) {
        Via::Object(id)
    } else if let Some(list) = wire::find(attributes, RTA_MULTIPATH) {
        let hops = multipath(list).into_iter();
        Via::Hops(hops.map(|(oif, weight, flags, a)| decode_hop(oif, weight, flags, a)).collect())
    } else {
        let hop = decode_hop(0, 0, flags, attributes);
        if hop.oif == 0 && hop.gateway.is_none() { Via::None } else { Via::Hops(vec![hop]) }
    };
    Some(Route {
        dst: Ipv6Net::new(dst, *body.get(1)?).ok()?,
        table: number(RTA_TABLE).unwrap_or_else(|| u32::from(body.get(4).copied().unwrap_or_default())),
        metric: number(RTA_PRIORITY).unwrap_or_default(),
        protocol: *body.get(5)?,
        kind: Kind::from(*body.get(7)?),
        via,
    })
}

/// Which routes a dump brings; `None` is all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this table.
    pub table: Option<u32>,
    /// Only this protocol.
    pub protocol: Option<u8>,
}

/// Reads IPv6 routes. The kernel does the filtering; a table that does not exist is an empty one.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket, filter: Filter) -> Result<Vec<Route>, KernelError> {
    let mut header = [0; HEADER];
    header[0] = 10; // AF_INET6
    header[5] = filter.protocol.unwrap_or_default();
    let mut body = wire::Attrs::after(&header);
    if let Some(table) = filter.table {
        body.u32(RTA_TABLE, table);
    }
    let request = Request::dump(GET, body.as_bytes(), "list IPv6 routes");
    let wanted = |r: &Route| {
        filter.table.is_none_or(|t| t == r.table) && filter.protocol.is_none_or(|p| p == r.protocol)
    };
    match socket.dump(&request, |m| decode(m.body).filter(|r| wanted(r))) {
        Err(e) if e.errno == libc::ENOENT => Ok(Vec::new()),
        other => other,
    }
}

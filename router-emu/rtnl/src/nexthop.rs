//! Nexthop objects and groups (`RTM_NEWNEXTHOP` and family; kernel `include/uapi/linux/nexthop.h`).
//!
//! Objects are soft: the kernel deletes all objects of a device that loses its carrier, shrinks the groups that
//! had them, and sends no message about either. Treat a link-down event as the loss of everything on it.

use std::net::Ipv6Addr;

use crate::wire::{self, Attrs};
use crate::{KernelError, Mode, Request, Socket};

/// `RTM_NEWNEXTHOP`.
pub const NEW: u16 = 104;
/// `RTM_DELNEXTHOP`.
pub const DEL: u16 = 105;
/// `RTM_GETNEXTHOP`.
pub const GET: u16 = 106;

/// Length of `struct nhmsg`.
const HEADER: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_GROUPS: u16 = 9;
const NHA_OP_FLAGS: u16 = 14;
const NHA_GROUP_STATS: u16 = 15;
const NHA_GROUP_STATS_ENTRY_ID: u16 = 1;
const NHA_GROUP_STATS_ENTRY_PACKETS: u16 = 2;
/// `NHA_OP_FLAG_DUMP_STATS`.
const DUMP_STATS: u32 = 1;
/// `LWTUNNEL_ENCAP_MPLS`.
const ENCAP_MPLS: u16 = 1;
/// `MPLS_IPTUNNEL_DST`.
const MPLS_STACK: u16 = 1;
const AF_UNSPEC: u8 = 0;
const AF_INET6: u8 = 10;

/// One way out, as an object of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Id, unique in the namespace, not 0.
    pub id: u32,
    /// Who installed it (`RTPROT_*`).
    pub protocol: u8,
    /// Outgoing interface index.
    pub oif: u32,
    /// Next router, if any.
    pub gateway: Option<Ipv6Addr>,
    /// MPLS labels to push, outermost first; empty for none.
    pub labels: Vec<u32>,
}

/// A set of objects among which flows are spread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Id, from the same space as the objects'.
    pub id: u32,
    /// Who installed it (`RTPROT_*`).
    pub protocol: u8,
    /// Members, each at most once.
    pub members: Vec<Member>,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Object id.
    pub id: u32,
    /// Weight minus one: 0 is weight 1.
    pub weight: u8,
}

impl Group {
    /// A group of equal members.
    pub fn equal(id: u32, protocol: u8, members: impl IntoIterator<Item = u32>) -> Self {
        Self { id, protocol, members: members.into_iter().map(|id| Member { id, weight: 0 }).collect() }
    }
}

/// What an id stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// A single way out.
    Object(Object),
    /// A group.
    Group(Group),
}

impl Entry {
    /// The id.
    pub fn id(&self) -> u32 {
        match self {
            Self::Object(o) => o.id,
            Self::Group(g) => g.id,
        }
    }

    /// Who installed it.
    pub fn protocol(&self) -> u8 {
        match self {
            Self::Object(o) => o.protocol,
            Self::Group(g) => g.protocol,
        }
    }
}

/// `struct nhmsg`.
fn header(family: u8, protocol: u8) -> [u8; HEADER] {
    [family, 0, protocol, 0, 0, 0, 0, 0]
}

/// Creates or replaces an object; groups that hold it use the new content at once.
pub fn set(object: &Object) -> Request {
    let mut body = Attrs::after(&header(AF_INET6, object.protocol));
    body.u32(NHA_ID, object.id).u32(NHA_OIF, object.oif);
    if let Some(gateway) = object.gateway {
        body.ip(NHA_GATEWAY, gateway);
    }
    if !object.labels.is_empty() {
        body.u16(NHA_ENCAP_TYPE, ENCAP_MPLS);
        body.nest(NHA_ENCAP, |encap| {
            encap.put(MPLS_STACK, &wire::label_stack(&object.labels));
        });
    }
    let doing = format!("set nexthop {} over link {} with labels {:?}", object.id, object.oif, object.labels);
    Request::new(NEW, Mode::Replace.flags(), body.as_bytes(), doing)
}

/// Creates or replaces a group with the complete list of members. A member that does not exist makes the kernel
/// refuse the whole message and keep the old group.
pub fn set_group(group: &Group) -> Request {
    let mut body = Attrs::after(&header(AF_UNSPEC, group.protocol));
    let mut members = Vec::with_capacity(group.members.len() * 8);
    for member in &group.members {
        members.extend_from_slice(&member.id.to_ne_bytes());
        members.extend_from_slice(&[member.weight, 0, 0, 0]);
    }
    body.u32(NHA_ID, group.id).put(NHA_GROUP, &members);
    let doing = format!("set nexthop group {} with {} members", group.id, group.members.len());
    Request::new(NEW, Mode::Replace.flags(), body.as_bytes(), doing)
}

/// Deletes an object or a group; routes over it go too.
pub fn delete(id: u32) -> Request {
    let mut body = Attrs::after(&header(AF_UNSPEC, 0));
    body.u32(NHA_ID, id);
    Request::new(DEL, 0, body.as_bytes(), format!("delete nexthop {id}"))
}

/// Decodes the body of `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
pub fn decode(body: &[u8]) -> Option<Entry> {
    let protocol = *body.get(2)?;
    let attributes = wire::attrs_after(body, HEADER);
    let id = wire::u32_at(wire::find(attributes, NHA_ID)?, 0)?;
    if let Some(list) = wire::find(attributes, NHA_GROUP) {
        let member = |m: &[u8]| Some(Member { id: wire::u32_at(m, 0)?, weight: *m.get(4)? });
        let members = list.chunks_exact(8).filter_map(member).collect();
        return Some(Entry::Group(Group { id, protocol, members }));
    }
    let mut object = Object { id, protocol, oif: 0, gateway: None, labels: Vec::new() };
    let (mut encap_type, mut encap): (u16, &[u8]) = (0, &[]);
    for (kind, value) in attributes {
        match kind {
            NHA_OIF => object.oif = wire::u32_at(value, 0)?,
            NHA_GATEWAY => object.gateway = wire::ip6(value),
            NHA_ENCAP_TYPE => encap_type = wire::u16_at(value, 0)?,
            NHA_ENCAP => encap = value,
            _ => {}
        }
    }
    if encap_type == ENCAP_MPLS {
        object.labels =
            wire::find(wire::attrs(encap), MPLS_STACK).map(wire::parse_labels).unwrap_or_default();
    }
    Some(Entry::Object(object))
}

/// Reads all objects and groups of the socket's namespace, ascending by id.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket) -> Result<Vec<Entry>, KernelError> {
    let request = Request::dump(GET, &header(AF_UNSPEC, 0), "list nexthops");
    let mut entries = socket.dump(&request, |m| decode(m.body))?;
    entries.sort_by_key(Entry::id);
    Ok(entries)
}

/// Packets that left by one member of a group since the group (or the member in it) was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberCount {
    /// Group id.
    pub group: u32,
    /// Member id.
    pub member: u32,
    /// Packets.
    pub packets: u64,
}

/// Decodes the counters in the body of a group's `RTM_NEWNEXTHOP`.
pub fn decode_counts(body: &[u8]) -> Vec<MemberCount> {
    let attributes = wire::attrs_after(body, HEADER);
    let id = wire::find(attributes, NHA_ID).and_then(|v| wire::u32_at(v, 0));
    let (Some(group), Some(list)) = (id, wire::find(attributes, NHA_GROUP_STATS)) else { return Vec::new() };
    let entry = |(_, value)| {
        let fields = wire::attrs(value);
        let member = wire::u32_at(wire::find(fields, NHA_GROUP_STATS_ENTRY_ID)?, 0)?;
        let packets = wire::uint(wire::find(fields, NHA_GROUP_STATS_ENTRY_PACKETS)?)?;
        Some(MemberCount { group, member, packets })
    };
    wire::attrs(list).filter_map(entry).collect()
}

/// Reads the packet counters of all groups (Linux 6.9 and newer; there are no byte counters).
///
/// # Errors
/// The kernel's refusal (EINVAL on older kernels) or a failure of the socket.
pub fn counts(socket: &mut Socket) -> Result<Vec<MemberCount>, KernelError> {
    let mut body = Attrs::after(&header(AF_UNSPEC, 0));
    body.put(NHA_GROUPS, &[]).u32(NHA_OP_FLAGS, DUMP_STATS);
    let request = Request::dump(GET, body.as_bytes(), "read nexthop group counters");
    let groups = socket.dump(&request, |m| Some(decode_counts(m.body)))?;
    Ok(groups.into_iter().flatten().collect())
}

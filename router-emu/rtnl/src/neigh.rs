//! IPv6 neighbour entries.

use std::net::Ipv6Addr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::wire;
use crate::{KernelError, Mode, Request, Socket};

/// `RTM_NEWNEIGH`.
pub const NEW: u16 = 28;
/// `RTM_DELNEIGH`.
pub const DEL: u16 = 29;
/// `RTM_GETNEIGH`.
pub const GET: u16 = 30;

/// Length of `struct ndmsg`.
const HEADER: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_PROTOCOL: u16 = 12;
const NUD_PERMANENT: u16 = 0x80;

/// A neighbour entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Interface index.
    pub ifindex: u32,
    /// The neighbour's address.
    pub ip: Ipv6Addr,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Whether the entry is permanent (never probed, never times out).
    pub permanent: bool,
    /// Who owns it (`RTPROT_*`); 0 if nobody said.
    pub protocol: u8,
}

/// Adds or replaces a permanent entry. The kernel drops it when the interface goes down administratively.
pub fn set_permanent(ifindex: u32, ip: Ipv6Addr, mac: [u8; 6]) -> Request {
    set_owned(ifindex, ip, mac, 0)
}

/// Like [`set_permanent`], with a mark of who owns the entry (`NDA_PROTOCOL`).
pub fn set_owned(ifindex: u32, ip: Ipv6Addr, mac: [u8; 6], protocol: u8) -> Request {
    let mut message = message(ifindex, ip);
    message.header.state = NeighbourState::Permanent;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    if protocol != 0 {
        message.attributes.push(NeighbourAttribute::Protocol(RouteProtocol::from(protocol)));
    }
    let doing = format!("set neighbour {ip} on link {ifindex}");
    Request::typed(&RouteNetlinkMessage::NewNeighbour(message), Mode::Replace, doing)
}

/// Removes an entry.
pub fn delete(ifindex: u32, ip: Ipv6Addr) -> Request {
    let doing = format!("remove neighbour {ip} from link {ifindex}");
    Request::typed(&RouteNetlinkMessage::DelNeighbour(message(ifindex, ip)), Mode::Change, doing)
}

/// The typed message.
fn message(ifindex: u32, ip: Ipv6Addr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.ifindex = ifindex;
    message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip))];
    message
}

/// Decodes the body of `RTM_NEWNEIGH`; nothing for other families than IPv6 or without a hardware address.
pub fn decode(body: &[u8]) -> Option<Neighbour> {
    if i32::from(*body.first()?) != libc::AF_INET6 {
        return None;
    }
    let permanent = wire::u16_at(body, 8)? & NUD_PERMANENT != 0;
    let attributes = wire::attrs_after(body, HEADER);
    let ip = wire::ip6(wire::find(attributes, NDA_DST)?)?;
    let mac = wire::mac(wire::find(attributes, NDA_LLADDR)?)?;
    let protocol = wire::find(attributes, NDA_PROTOCOL).and_then(|v| v.first().copied()).unwrap_or_default();
    Some(Neighbour { ifindex: wire::u32_at(body, 4)?, ip, mac, permanent, protocol })
}

/// Reads all IPv6 neighbour entries of the socket's namespace that have a hardware address.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket) -> Result<Vec<Neighbour>, KernelError> {
    let mut body = [0; HEADER];
    body[0] = 10; // AF_INET6
    socket.dump(&Request::dump(GET, &body, "list neighbours"), |m| decode(m.body))
}

//! IPv6 addresses of interfaces.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, AddressScope,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::wire;
use crate::{KernelError, Mode, Request, Socket};

/// `RTM_NEWADDR`.
pub const NEW: u16 = 20;
/// `RTM_DELADDR`.
pub const DEL: u16 = 21;
/// `RTM_GETADDR`.
pub const GET: u16 = 22;

/// Length of `struct ifaddrmsg`.
const HEADER: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
const IFA_F_TENTATIVE: u32 = 0x40;
const IFA_F_PERMANENT: u32 = 0x80;

/// An address on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Interface index.
    pub ifindex: u32,
    /// The address.
    pub ip: Ipv6Addr,
    /// Prefix length, 0 to 128.
    pub prefix_len: u8,
}

impl Address {
    /// The address with its prefix length, host bits kept.
    pub fn net(&self) -> Ipv6Net {
        Ipv6Net::new_assert(self.ip, self.prefix_len.min(128))
    }
}

/// Adds an address without duplicate address detection (usable at once), or confirms it if it is there.
/// Link-local addresses get link scope.
pub fn add(address: &Address) -> Request {
    let doing = format!("add address {} to link {}", address.net(), address.ifindex);
    Request::typed(&RouteNetlinkMessage::NewAddress(message(address)), Mode::Replace, doing)
}

/// Like [`add`], with a mark of who owns the address (`IFA_PROTO`, the numbers of route protocols from 4 on).
pub fn add_owned(address: &Address, protocol: u8) -> Request {
    let mut message = message(address);
    message.attributes.push(AddressAttribute::Protocol(AddressProtocol::from(protocol)));
    let doing = format!("add address {} to link {}", address.net(), address.ifindex);
    Request::typed(&RouteNetlinkMessage::NewAddress(message), Mode::Replace, doing)
}

/// Removes an address.
pub fn delete(address: &Address) -> Request {
    let doing = format!("remove address {} from link {}", address.net(), address.ifindex);
    Request::typed(&RouteNetlinkMessage::DelAddress(message(address)), Mode::Change, doing)
}

/// The typed message.
fn message(address: &Address) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.index = address.ifindex;
    message.header.prefix_len = address.prefix_len;
    message.header.flags = AddressHeaderFlags::Nodad;
    let link_local = address.ip.is_unicast_link_local();
    message.header.scope = if link_local { AddressScope::Link } else { AddressScope::Universe };
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V6(address.ip)),
        AddressAttribute::Address(IpAddr::V6(address.ip)),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    message
}

/// An address as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressInfo {
    /// The address.
    pub address: Address,
    /// Still in duplicate address detection, so not usable yet.
    pub tentative: bool,
    /// Without a lifetime.
    pub permanent: bool,
    /// Who owns it; 0 if nobody said, 1 to 3 for the kernel itself.
    pub protocol: u8,
}

/// Decodes the body of `RTM_NEWADDR` or `RTM_DELADDR`; nothing for other families than IPv6.
pub fn decode(body: &[u8]) -> Option<AddressInfo> {
    if i32::from(*body.first()?) != libc::AF_INET6 {
        return None;
    }
    let (mut ip, mut local) = (None, None);
    let mut flags = u32::from(*body.get(2)?);
    let mut protocol = 0;
    for (kind, value) in wire::attrs_after(body, HEADER) {
        match kind {
            IFA_ADDRESS => ip = wire::ip6(value),
            IFA_LOCAL => local = wire::ip6(value),
            IFA_FLAGS => flags = wire::u32_at(value, 0)?,
            IFA_PROTO => protocol = *value.first()?,
            _ => {}
        }
    }
    let ifindex = wire::u32_at(body, 4)?;
    let prefix_len = Some(*body.get(1)?).filter(|l| *l <= 128)?;
    Some(AddressInfo {
        address: Address { ifindex, ip: local.or(ip)?, prefix_len },
        tentative: flags & IFA_F_TENTATIVE != 0,
        permanent: flags & IFA_F_PERMANENT != 0,
        protocol,
    })
}

/// Reads all IPv6 addresses of the socket's namespace.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket) -> Result<Vec<AddressInfo>, KernelError> {
    let mut body = [0; HEADER];
    body[0] = 10; // AF_INET6
    socket.dump(&Request::dump(GET, &body, "list addresses"), |m| decode(m.body))
}

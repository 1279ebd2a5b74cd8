//! Links: veth pairs with both ends created where they belong, bonds, changes, dumps.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BondMode, BondXmitHashPolicy, In6AddrGenMode, InfoBond, InfoData, InfoKind,
    InfoVeth, LinkAttribute, LinkFlags, LinkInfo as InfoAttribute, LinkMessage, Prop,
};

use crate::wire::{self, Message};
use crate::{KernelError, Mode, Request, Socket};

/// `RTM_NEWLINK`.
pub const NEW: u16 = 16;
/// `RTM_DELLINK`.
pub const DEL: u16 = 17;
/// `RTM_GETLINK`.
pub const GET: u16 = 18;

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BOND_SLAVE_PERM_HWADDR: u16 = 4;
/// `RTEXT_FILTER_SKIP_STATS`: the counters are the larger half of a link message.
const SKIP_STATS: u32 = 1 << 3;

const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 1 << 6;
const IFF_LOWER_UP: u32 = 1 << 16;

/// One end of a veth pair to be created, or a bond.
#[derive(Clone, Copy, Debug)]
pub struct LinkEnd<'a> {
    /// Namespace in which it is created.
    pub netns: BorrowedFd<'a>,
    /// Name, at most 15 bytes.
    pub name: &'a str,
    /// Interface index; must be free in its namespace, and should differ from the other end's: the kernel
    /// rate-limits carrier events of a veth whose index equals its peer's to one a second.
    pub ifindex: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
}

/// Creates a veth pair with both ends in their final namespaces, down (an end cannot be created up: ENOTCONN),
/// with one queue each way.
pub fn create_veth(a: &LinkEnd<'_>, b: &LinkEnd<'_>) -> Request {
    let mut message = end_message(a);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        InfoAttribute::Kind(InfoKind::Veth),
        InfoAttribute::Data(InfoData::Veth(InfoVeth::Peer(end_message(b)))),
    ]));
    let doing =
        format!("create the veth pair {} (index {}) and {} (index {})", a.name, a.ifindex, b.name, b.ifindex);
    Request::typed(&RouteNetlinkMessage::NewLink(message), Mode::Create, doing)
}

/// How often a bond looks at its members by itself, milliseconds. It decides only when the bond's own carrier follows
/// theirs: what is sent avoids a member from the moment the kernel tells of its carrier.
const BOND_LOOKS_MS: u32 = 100;

/// Creates a bond without members in its final namespace, down.
///
/// Mode `balance-xor`: of the modes that keep a flow on one member it is the only one that stops using a member with the
/// carrier event itself, not with the next look at it, and it waits for no partner. Policy `encap3+4`: the only one
/// that tells flows apart behind a label, because it takes the hash that the packet already has (its sender's, or that
/// of its flow label); all others see two hardware addresses and no more.
pub fn create_bond(end: &LinkEnd<'_>) -> Request {
    let mut message = end_message(end);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        InfoAttribute::Kind(InfoKind::Bond),
        InfoAttribute::Data(InfoData::Bond(vec![
            InfoBond::Mode(BondMode::BalanceXor),
            InfoBond::MiiMon(BOND_LOOKS_MS),
            InfoBond::XmitHashPolicy(BondXmitHashPolicy::Encap34),
        ])),
    ]));
    let doing = format!("create the bond {} (index {})", end.name, end.ifindex);
    Request::typed(&RouteNetlinkMessage::NewLink(message), Mode::Create, doing)
}

/// Makes a link a member of a bond, or a member of none (`bond` 0). It must be down, and comes up with this; its
/// hardware address becomes the bond's.
pub fn set_master(ifindex: u32, bond: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes.push(LinkAttribute::Controller(bond));
    let doing = format!("make link {ifindex} a member of link {bond}");
    Request::typed(&RouteNetlinkMessage::SetLink(message), Mode::Change, doing)
}

/// The message of one end, without its kind.
fn end_message(end: &LinkEnd<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = end.ifindex;
    message.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::NetNsFd(end.netns.as_raw_fd()),
        LinkAttribute::Mtu(end.mtu),
        LinkAttribute::Address(end.mac.to_vec()),
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
    ];
    message
}

/// What to change about a link; `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Administrative state.
    pub up: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Alias (`ifalias`), which we use as owner's mark; at most 255 bytes.
    pub alias: Option<String>,
    /// Hardware address.
    pub mac: Option<[u8; 6]>,
}

/// Changes a link.
pub fn set(ifindex: u32, change: &Change) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    let mut words = Vec::new();
    if let Some(up) = change.up {
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        words.push(if up { "up".to_owned() } else { "down".to_owned() });
    }
    if let Some(mtu) = change.mtu {
        message.attributes.push(LinkAttribute::Mtu(mtu));
        words.push(format!("MTU {mtu}"));
    }
    if let Some(alias) = &change.alias {
        message.attributes.push(LinkAttribute::IfAlias(alias.clone()));
        words.push(format!("alias {alias}"));
    }
    if let Some(mac) = change.mac {
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        words.push("a hardware address".to_owned());
    }
    let doing = format!("set link {ifindex} to {}", words.join(", "));
    Request::typed(&RouteNetlinkMessage::SetLink(message), Mode::Change, doing)
}

/// Sets a link up or down.
pub fn set_up(ifindex: u32, up: bool) -> Request {
    set(ifindex, &Change { up: Some(up), ..Change::default() })
}

/// Keeps the kernel from giving a link an IPv6 address by itself: nothing is then sent on it but what a program sends. To
/// be said before the link is up.
pub fn silence(ifindex: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
    let doing = format!("keep link {ifindex} without an address");
    Request::typed(&RouteNetlinkMessage::SetLink(message), Mode::Change, doing)
}

/// Gives a link a further name, of up to 127 bytes.
pub fn add_altname(ifindex: u32, name: &str) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes.push(LinkAttribute::PropList(vec![Prop::AltIfName(name.to_owned())]));
    let doing = format!("give link {ifindex} the further name {name}");
    Request::typed(&RouteNetlinkMessage::NewLinkProp(message), Mode::Append, doing)
}

/// Deletes a link (and with it a veth's other end).
pub fn delete(ifindex: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    Request::typed(&RouteNetlinkMessage::DelLink(message), Mode::Change, format!("delete link {ifindex}"))
}

/// A link as the kernel shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkInfo {
    /// Interface index.
    pub ifindex: u32,
    /// Name.
    pub name: String,
    /// Hardware address; zero if it has none of six bytes. Of a bond's member its own, not the bond's.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Operational (`IFF_RUNNING`).
    pub running: bool,
    /// Carrier (`IFF_LOWER_UP`).
    pub lower_up: bool,
    /// Alias, our owner's mark.
    pub alias: Option<String>,
    /// Further names.
    pub altnames: Vec<String>,
    /// Kind: `veth`, `bond`, `macsec`.
    pub kind: Option<String>,
    /// For a veth, the index of the other end in its own namespace; for a MACsec interface, of the one below.
    pub peer_ifindex: Option<u32>,
    /// Local id of the other end's namespace, if it is another one.
    pub peer_netnsid: Option<i32>,
    /// Index of the bond that it is a member of.
    pub master: Option<u32>,
    /// Carrier changes since creation.
    pub carrier_changes: u32,
}

impl LinkInfo {
    /// Whether packets can pass, as far as the kernel knows.
    pub fn has_carrier(&self) -> bool {
        self.up && self.running && self.lower_up
    }
}

/// Decodes the body of `RTM_NEWLINK` or `RTM_DELLINK`.
pub fn decode(body: &[u8]) -> Option<LinkInfo> {
    let flags = wire::u32_at(body, 8)?;
    let mut link = LinkInfo {
        ifindex: wire::u32_at(body, 4)?,
        up: flags & IFF_UP != 0,
        running: flags & IFF_RUNNING != 0,
        lower_up: flags & IFF_LOWER_UP != 0,
        ..LinkInfo::default()
    };
    let mut own_mac = None;
    for (kind, value) in wire::attrs_after(body, HEADER) {
        match kind {
            IFLA_ADDRESS => link.mac = wire::mac(value).unwrap_or_default(),
            IFLA_IFNAME => link.name = wire::text(value),
            IFLA_MTU => link.mtu = wire::u32_at(value, 0)?,
            IFLA_LINK => link.peer_ifindex = wire::u32_at(value, 0),
            IFLA_MASTER => link.master = wire::u32_at(value, 0),
            IFLA_IFALIAS => link.alias = Some(wire::text(value)),
            IFLA_CARRIER_CHANGES => link.carrier_changes = wire::u32_at(value, 0)?,
            IFLA_LINK_NETNSID => link.peer_netnsid = wire::u32_at(value, 0).map(u32::cast_signed),
            IFLA_LINKINFO => {
                link.kind = wire::find(wire::attrs(value), IFLA_INFO_KIND).map(wire::text);
                let slave = wire::find(wire::attrs(value), IFLA_INFO_SLAVE_DATA);
                let address = slave.and_then(|s| wire::find(wire::attrs(s), IFLA_BOND_SLAVE_PERM_HWADDR));
                own_mac = address.and_then(wire::mac);
            }
            IFLA_PROP_LIST => {
                let names = wire::attrs(value).filter(|(k, _)| *k == IFLA_ALT_IFNAME);
                link.altnames = names.map(|(_, name)| wire::text(name)).collect();
            }
            _ => {}
        }
    }
    link.mac = own_mac.unwrap_or(link.mac);
    Some(link)
}

/// Reads all links of the socket's namespace, ascending by index.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket) -> Result<Vec<LinkInfo>, KernelError> {
    let mut body = wire::Attrs::after(&[0; HEADER]);
    body.u32(IFLA_EXT_MASK, SKIP_STATS);
    let request = Request::dump(GET, body.as_bytes(), "list links");
    let mut links = socket.dump(&request, |m: Message<'_>| decode(m.body))?;
    links.sort_by_key(|link| link.ifindex);
    Ok(links)
}

/// Finds a link by name.
///
/// # Errors
/// ENODEV if there is none of that name; the kernel's refusal or a failure of the socket.
pub fn by_name(socket: &mut Socket, name: &str) -> Result<LinkInfo, KernelError> {
    let mut body = wire::Attrs::after(&[0; HEADER]);
    body.str(IFLA_IFNAME, name).u32(IFLA_EXT_MASK, SKIP_STATS);
    let doing = format!("look up link {name}");
    let request = Request::new(GET, 0, body.as_bytes(), doing.clone());
    let found = socket.get(&request, |m| decode(m.body))?;
    found.ok_or(KernelError { errno: libc::ENODEV, text: None, doing })
}

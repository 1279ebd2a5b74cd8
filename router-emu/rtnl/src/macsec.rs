//! MACsec interfaces (IEEE 802.1AE) and the keys in them.
//!
//! The interface is a link of routing netlink, its channels and associations are objects of the generic netlink family
//! `macsec` (Linux `include/uapi/linux/if_macsec.h` and `drivers/net/macsec.c`). The kernel never gives a key back, but
//! it keeps the 16 bytes by which its owner calls it.

use crate::wire::{self, Attrs};
use crate::{KernelError, Request, Socket, link, socket};

/// Bytes that a frame grows by: SecTAG of 6 bytes with its SCI of 8, the EtherType under it, and an ICV of 16. The MTU
/// of the interface below must be larger by this.
pub const OVERHEAD: u32 = 32;
/// Frames by which one may come late and still be taken: two processors that send in turn can overtake each other.
pub const REPLAY_WINDOW: u32 = 1024;
/// Length of a key, bytes (GCM-AES-128).
pub const KEY_BYTES: usize = 16;
/// Associations of a channel: AN 0 to 3.
pub const ASSOCIATIONS: u8 = 4;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_MACSEC_WINDOW: u16 = 5;
const IFLA_MACSEC_ENCODING_SA: u16 = 6;
const IFLA_MACSEC_ENCRYPT: u16 = 7;
const IFLA_MACSEC_PROTECT: u16 = 8;
const IFLA_MACSEC_INC_SCI: u16 = 9;
const IFLA_MACSEC_REPLAY_PROTECT: u16 = 12;
const IFLA_MACSEC_VALIDATION: u16 = 13;
/// `MACSEC_VALIDATE_STRICT`: what is not protected, or not by a known key, is dropped.
const STRICT: u8 = 2;

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and its attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`.
const HEADER: usize = 4;

const GET: u8 = 0;
const ADD_RX_CHANNEL: u8 = 1;
const DEL_RX_CHANNEL: u8 = 2;
const ADD_TX_SA: u8 = 4;
const DEL_TX_SA: u8 = 5;
const UPD_TX_SA: u8 = 6;
const ADD_RX_SA: u8 = 7;
const DEL_RX_SA: u8 = 8;
const UPD_RX_SA: u8 = 9;

const ATTR_IFINDEX: u16 = 1;
const ATTR_RX_CHANNEL: u16 = 2;
const ATTR_SA: u16 = 3;
const ATTR_SECY: u16 = 4;
const ATTR_TX_SA_LIST: u16 = 5;
const ATTR_RX_CHANNEL_LIST: u16 = 6;
const SECY_SCI: u16 = 1;
const SECY_ENCODING_SA: u16 = 2;
const RX_CHANNEL_SCI: u16 = 1;
const RX_CHANNEL_ACTIVE: u16 = 2;
const RX_CHANNEL_SA_LIST: u16 = 3;
const SA_AN: u16 = 1;
const SA_ACTIVE: u16 = 2;
const SA_PN: u16 = 3;
const SA_KEY: u16 = 4;
const SA_KEY_ID: u16 = 5;

/// Secure channel identifier: hardware address and port number, in network order (IEEE 802.1AE, 8.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sci(pub [u8; 8]);

impl Sci {
    /// What the kernel gives an interface of this hardware address: port 1.
    pub fn of(mac: [u8; 6]) -> Self {
        let mut bytes = [0, 0, 0, 0, 0, 0, 0, 1];
        bytes[..6].copy_from_slice(&mac);
        Self(bytes)
    }
}

/// Name of a key, chosen by its owner.
pub type KeyId = [u8; 16];

/// A key with its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub id: KeyId,
    /// The key itself.
    pub secret: [u8; KEY_BYTES],
}

/// A MACsec interface to be created.
#[derive(Clone, Copy, Debug)]
pub struct Secured<'a> {
    /// Name, at most 15 bytes.
    pub name: &'a str,
    /// Index of its own.
    pub ifindex: u32,
    /// Index of the interface on which its frames travel.
    pub over: u32,
    /// Hardware address; it stands in the SCI.
    pub mac: [u8; 6],
    /// MTU in bytes, at most that of the interface below less [`OVERHEAD`].
    pub mtu: u32,
}

/// Creates a MACsec interface without keys, down: until it gets one, nothing leaves it. Frames are encrypted, carry
/// their SCI, and are taken only with a valid check value. To be sent in the namespace of the interface below.
pub fn create(secured: &Secured<'_>) -> Request {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&secured.ifindex.to_ne_bytes());
    let mut body = Attrs::after(&header);
    body.str(IFLA_IFNAME, secured.name)
        .u32(IFLA_LINK, secured.over)
        .u32(IFLA_MTU, secured.mtu)
        .put(IFLA_ADDRESS, &secured.mac)
        .nest(IFLA_LINKINFO, |info| {
            info.str(IFLA_INFO_KIND, "macsec").nest(IFLA_INFO_DATA, |data| {
                data.u8(IFLA_MACSEC_ENCRYPT, 1)
                    .u8(IFLA_MACSEC_PROTECT, 1)
                    .u8(IFLA_MACSEC_INC_SCI, 1)
                    .u8(IFLA_MACSEC_VALIDATION, STRICT)
                    .u32(IFLA_MACSEC_WINDOW, REPLAY_WINDOW)
                    .u8(IFLA_MACSEC_REPLAY_PROTECT, 1);
            });
        });
    let flags = crate::Mode::Create.flags();
    let doing = format!("create the MACsec interface {} over link {}", secured.name, secured.over);
    Request::new(link::NEW, flags, body.as_bytes(), doing)
}

/// Makes an interface send with the key of this association. A request of routing netlink.
pub fn send_with(ifindex: u32, an: u8) -> Request {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let mut body = Attrs::after(&header);
    body.nest(IFLA_LINKINFO, |info| {
        info.str(IFLA_INFO_KIND, "macsec").nest(IFLA_INFO_DATA, |data| {
            data.u8(IFLA_MACSEC_ENCODING_SA, an);
        });
    });
    Request::new(link::NEW, 0, body.as_bytes(), format!("send on link {ifindex} with association {an}"))
}

/// An association as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Association {
    /// Number, 0 to 3.
    pub an: u8,
    /// Whether it is in use.
    pub active: bool,
    /// Name of its key.
    pub key: KeyId,
    /// Number of the next frame.
    pub next: u64,
}

/// A receive channel: one who sends to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Who.
    pub sci: Sci,
    /// Its associations, by number.
    pub associations: Vec<Association>,
}

/// What is in a MACsec interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Index of the interface.
    pub ifindex: u32,
    /// Identifier under which it sends.
    pub sci: Sci,
    /// Association with which it sends, if there is a key in it.
    pub sends_with: u8,
    /// Associations for sending, by number.
    pub tx: Vec<Association>,
    /// Receive channels.
    pub rx: Vec<Channel>,
}

/// The keys of one namespace's interfaces.
pub struct Macsec {
    generic: Socket,
    route: Socket,
    family: u16,
}

impl Macsec {
    /// Opens the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel has no MACsec ([`KernelError::is_absent`]), or refuses a socket.
    pub fn open() -> Result<Self, KernelError> {
        let mut generic = Socket::open(socket::GENERIC)?;
        let mut body = Attrs::after(&[GET_FAMILY, 1, 0, 0]);
        body.str(FAMILY_NAME, "macsec");
        let doing = "find the kernel's MACsec";
        let request = Request::new(CONTROL, 0, body.as_bytes(), doing);
        let id = generic.get(&request, |m| {
            wire::find(wire::attrs_after(m.body, HEADER), FAMILY_ID).and_then(|id| wire::u16_at(id, 0))
        })?;
        let absent = || KernelError { errno: libc::ENOENT, text: None, doing: doing.to_owned() };
        Ok(Self { generic, route: Socket::open(socket::ROUTE)?, family: id.ok_or_else(absent)? })
    }

    /// What is in an interface; nothing if there is no MACsec interface of this index.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn read(&mut self, ifindex: u32) -> Result<Option<Device>, KernelError> {
        let request = Request::dump(self.family, &[GET, 0, 0, 0], "list MACsec interfaces");
        let devices = self.generic.dump(&request, |m| decode(m.body.get(HEADER..)?))?;
        Ok(devices.into_iter().find(|device| device.ifindex == ifindex))
    }

    /// Adds a channel to receive from; one that is there already is no error.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn add_channel(&mut self, ifindex: u32, sci: Sci) -> Result<(), KernelError> {
        let request = self.rx_channel(ADD_RX_CHANNEL, ifindex, sci, "add a receive channel");
        self.generic.request(&request).or_else(|e| if e.exists() { Ok(()) } else { Err(e) })
    }

    /// Removes a receive channel with its keys.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn remove_channel(&mut self, ifindex: u32, sci: Sci) -> Result<(), KernelError> {
        let request = self.rx_channel(DEL_RX_CHANNEL, ifindex, sci, "remove a receive channel");
        self.generic.request(&request)
    }

    /// Adds a key to receive with, in an association that has none.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn add_rx(&mut self, ifindex: u32, sci: Sci, an: u8, key: &Key) -> Result<(), KernelError> {
        let request = self.association(ADD_RX_SA, ifindex, Some(sci), an, Some(key), "add a key to receive");
        self.generic.request(&request)
    }

    /// Removes a key to receive with.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn remove_rx(&mut self, ifindex: u32, sci: Sci, an: u8) -> Result<(), KernelError> {
        let doing = "remove a key to receive";
        // the kernel removes only what is out of use
        let stop = self.association(UPD_RX_SA, ifindex, Some(sci), an, None, doing);
        let remove = self.association(DEL_RX_SA, ifindex, Some(sci), an, None, doing);
        self.generic.all(&[stop, remove])
    }

    /// Adds a key to send with, in an association that has none, and sends with it from now on.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn send_with(&mut self, ifindex: u32, an: u8, key: &Key) -> Result<(), KernelError> {
        let add = self.association(ADD_TX_SA, ifindex, None, an, Some(key), "add a key to send");
        self.generic.request(&add)?;
        self.route.request(&send_with(ifindex, an))
    }

    /// Removes a key to send with.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn remove_tx(&mut self, ifindex: u32, an: u8) -> Result<(), KernelError> {
        let doing = "remove a key to send";
        let stop = self.association(UPD_TX_SA, ifindex, None, an, None, doing);
        let remove = self.association(DEL_TX_SA, ifindex, None, an, None, doing);
        self.generic.all(&[stop, remove])
    }

    fn rx_channel(&self, command: u8, ifindex: u32, sci: Sci, doing: &str) -> Request {
        let mut body = Attrs::after(&[command, 0, 0, 0]);
        body.u32(ATTR_IFINDEX, ifindex).nest(ATTR_RX_CHANNEL, |channel| {
            channel.put(RX_CHANNEL_SCI, &sci.0);
            if command == ADD_RX_CHANNEL {
                channel.u8(RX_CHANNEL_ACTIVE, 1);
            }
        });
        Request::new(self.family, 0, body.as_bytes(), format!("{doing} on link {ifindex}"))
    }

    /// A request about an association; with a key it is in use, without it is not.
    fn association(
        &self,
        command: u8,
        ifindex: u32,
        sci: Option<Sci>,
        an: u8,
        key: Option<&Key>,
        doing: &str,
    ) -> Request {
        let mut body = Attrs::after(&[command, 0, 0, 0]);
        body.u32(ATTR_IFINDEX, ifindex);
        if let Some(sci) = sci {
            body.nest(ATTR_RX_CHANNEL, |channel| {
                channel.put(RX_CHANNEL_SCI, &sci.0);
            });
        }
        body.nest(ATTR_SA, |sa| {
            sa.u8(SA_AN, an);
            if let Some(key) = key {
                sa.u8(SA_ACTIVE, 1).u32(SA_PN, 1).put(SA_KEY, &key.secret).put(SA_KEY_ID, &key.id);
            } else if matches!(command, UPD_RX_SA | UPD_TX_SA) {
                sa.u8(SA_ACTIVE, 0);
            }
        });
        Request::new(
            self.family,
            0,
            body.as_bytes(),
            format!("{doing} with association {an} on link {ifindex}"),
        )
    }
}

/// Decodes the attributes of one interface.
fn decode(attributes: &[u8]) -> Option<Device> {
    let find = |kind| wire::find(wire::attrs(attributes), kind);
    let secy = find(ATTR_SECY)?;
    let list = |kind| wire::attrs(find(kind).unwrap_or_default());
    Some(Device {
        ifindex: wire::u32_at(find(ATTR_IFINDEX)?, 0)?,
        sci: sci(wire::find(wire::attrs(secy), SECY_SCI)?)?,
        sends_with: *wire::find(wire::attrs(secy), SECY_ENCODING_SA)?.first()?,
        tx: list(ATTR_TX_SA_LIST).filter_map(|(_, sa)| association(sa)).collect(),
        rx: list(ATTR_RX_CHANNEL_LIST).filter_map(|(_, channel)| self::channel(channel)).collect(),
    })
}

fn sci(bytes: &[u8]) -> Option<Sci> {
    bytes.try_into().ok().map(Sci)
}

fn channel(attributes: &[u8]) -> Option<Channel> {
    let find = |kind| wire::find(wire::attrs(attributes), kind);
    let list = wire::attrs(find(RX_CHANNEL_SA_LIST).unwrap_or_default());
    let associations = list.filter_map(|(_, sa)| association(sa)).collect();
    Some(Channel { sci: sci(find(RX_CHANNEL_SCI)?)?, associations })
}

fn association(attributes: &[u8]) -> Option<Association> {
    let find = |kind| wire::find(wire::attrs(attributes), kind);
    Some(Association {
        an: *find(SA_AN)?.first()?,
        active: find(SA_ACTIVE).and_then(|a| a.first().copied()) == Some(1),
        key: find(SA_KEY_ID)?.try_into().ok()?,
        next: find(SA_PN).and_then(wire::uint)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_interface_is_read_with_its_keys() {
        let sa = |list: &mut Attrs, an: u8, next: u32| {
            list.nest(1, |sa| {
                sa.u8(SA_AN, an).u32(SA_PN, next).put(SA_KEY_ID, &[an; 16]).u8(SA_ACTIVE, 1);
            });
        };
        let mut dump = Attrs::new();
        dump.u32(ATTR_IFINDEX, 7)
            .nest(ATTR_SECY, |secy| {
                secy.put(SECY_SCI, &[2, 0, 0, 0, 0, 9, 0, 1]).u8(SECY_ENCODING_SA, 2);
            })
            .nest(ATTR_TX_SA_LIST, |list| sa(list, 2, 90))
            .nest(ATTR_RX_CHANNEL_LIST, |list| {
                list.nest(1, |channel| {
                    channel.put(RX_CHANNEL_SCI, &[1; 8]).nest(RX_CHANNEL_SA_LIST, |list| {
                        sa(list, 1, 5);
                        sa(list, 2, 1);
                    });
                });
            });
        let device = decode(dump.as_bytes()).unwrap();
        assert_eq!((device.ifindex, device.sci, device.sends_with), (7, Sci::of([2, 0, 0, 0, 0, 9]), 2));
        assert_eq!(device.tx, [Association { an: 2, active: true, key: [2; 16], next: 90 }]);
        let numbers: Vec<u8> = device.rx[0].associations.iter().map(|a| a.an).collect();
        assert_eq!((device.rx[0].sci, numbers), (Sci([1; 8]), vec![1, 2]));
    }

    proptest! {
        #[test]
        fn no_answer_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&body);
        }
    }
}

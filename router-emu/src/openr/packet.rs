//! Discovery packets: what neighbours say to each other on a link.
//!
//! A packet is `EB 5A`, version, type, total length (two bytes), then the body; integers are big-endian, names
//! are one length byte and UTF-8. Every length is checked, nothing may follow the body.

use thiserror::Error;

/// Version of the encoding. A packet of another version is refused.
pub const VERSION: u8 = 1;
/// Largest packet that is accepted, bytes.
pub const MAX_PACKET: usize = 1400;

const MAGIC: [u8; 2] = [0xEB, 0x5A];
const HEADER: usize = 6;
const HELLO: u8 = 1;
const HANDSHAKE: u8 = 2;
const HEARTBEAT: u8 = 3;
const SOLICIT: u8 = 1;
const RESTARTING: u8 = 2;
const ESTABLISHED: u8 = 1;

/// Who sends: the same in every packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Router name.
    pub node: String,
    /// Interface that the packet left by.
    pub interface: String,
    /// Plane number: routers of different planes never become neighbours.
    pub plane: u8,
    /// Drawn anew at every start of the program; tells a restart from a lost packet.
    pub instance: u64,
}

/// A neighbour as a hello reflects it, for the round-trip time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Neighbour's name.
    pub node: String,
    /// Neighbour's instance.
    pub instance: u64,
    /// `sent_ns` of the last hello heard from it, its clock.
    pub their_sent_ns: u64,
    /// When that hello arrived, clock of the sender of this packet.
    pub arrived_ns: u64,
}

/// Multicast, periodic: I am here, and this is whom I hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Grows by one a hello.
    pub seq: u64,
    /// When the packet was handed to the kernel, sender's clock, nanoseconds.
    pub sent_ns: u64,
    /// The sender wants a hello back at once.
    pub solicit: bool,
    /// The sender is about to end and means to return: keep its adjacency.
    pub restarting: bool,
    /// Whom the sender hears on this interface.
    pub heard: Vec<Heard>,
}

/// What two neighbours agree on before the link counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// For whom the packet is.
    pub to_node: String,
    /// Instance for which it is.
    pub to_instance: u64,
    /// The sender counts the link already.
    pub established: bool,
    /// Silence after which the sender must be given up, milliseconds.
    pub hold_ms: u32,
    /// How long to keep the adjacency while the sender restarts, milliseconds.
    pub restart_ms: u32,
    /// TCP port of the sender's store.
    pub store_port: u16,
}

/// Body of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Discovery and round-trip time.
    Hello(Hello),
    /// Parameters.
    Handshake(Handshake),
    /// Still here.
    Heartbeat {
        /// Grows by one a heartbeat.
        seq: u64,
    },
}

/// A whole packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sends.
    pub from: Sender,
    /// What it says.
    pub body: Body,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// Shorter than what it announces.
    #[error("the packet ends in the middle of a field (offset {0})")]
    Truncated(usize),
    /// First bytes are not ours.
    #[error("not a discovery packet: the first two bytes are not EB 5A")]
    Magic,
    /// Encoding of another release.
    #[error("packet version {0}, this program speaks {VERSION}: run the same release on both ends")]
    Version(u8),
    /// Unknown type.
    #[error("unknown packet type {0}")]
    Type(u8),
    /// Length field and datagram disagree, or bytes follow the body.
    #[error("the length field or the body does not match the {0} bytes that arrived")]
    Length(usize),
    /// A name is empty or not UTF-8.
    #[error("a name is empty or not UTF-8 (offset {0})")]
    Name(usize),
    /// Flag bits that this version does not define.
    #[error("undefined flag bits in {0:#04x}")]
    Flags(u8),
}

impl Packet {
    /// The packet's bytes.
    ///
    /// Names longer than 255 bytes are cut, more than 255 neighbours are left out: neither passes the
    /// configuration's own checks.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.push(match self.body {
            Body::Hello(_) => HELLO,
            Body::Handshake(_) => HANDSHAKE,
            Body::Heartbeat { .. } => HEARTBEAT,
        });
        out.extend_from_slice(&[0, 0]);
        put_name(&mut out, &self.from.node);
        put_name(&mut out, &self.from.interface);
        out.push(self.from.plane);
        out.extend_from_slice(&self.from.instance.to_be_bytes());
        match &self.body {
            Body::Hello(hello) => put_hello(&mut out, hello),
            Body::Handshake(handshake) => put_handshake(&mut out, handshake),
            Body::Heartbeat { seq } => out.extend_from_slice(&seq.to_be_bytes()),
        }
        let length = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
        out[4..HEADER].copy_from_slice(&length);
        out
    }

    /// Reads a packet; anything that is not exactly one packet of this version is an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        let mut input = Input { bytes, at: 0 };
        if input.array::<2>()? != MAGIC {
            return Err(PacketError::Magic);
        }
        match input.u8()? {
            VERSION => {}
            other => return Err(PacketError::Version(other)),
        }
        let kind = input.u8()?;
        if usize::from(input.u16()?) != bytes.len() || bytes.len() > MAX_PACKET {
            return Err(PacketError::Length(bytes.len()));
        }
        let from = Sender {
            node: input.name()?,
            interface: input.name()?,
            plane: input.u8()?,
            instance: input.u64()?,
        };
        let body = match kind {
            HELLO => Body::Hello(take_hello(&mut input)?),
            HANDSHAKE => Body::Handshake(take_handshake(&mut input)?),
            HEARTBEAT => Body::Heartbeat { seq: input.u64()? },
            other => return Err(PacketError::Type(other)),
        };
        if input.at != bytes.len() {
            return Err(PacketError::Length(bytes.len()));
        }
        Ok(Self { from, body })
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    let mut end = name.len().min(255);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    out.push(u8::try_from(end).unwrap_or(u8::MAX));
    out.extend_from_slice(&name.as_bytes()[..end]);
}

fn put_hello(out: &mut Vec<u8>, hello: &Hello) {
    out.push(if hello.solicit { SOLICIT } else { 0 } | if hello.restarting { RESTARTING } else { 0 });
    out.extend_from_slice(&hello.seq.to_be_bytes());
    out.extend_from_slice(&hello.sent_ns.to_be_bytes());
    let count = hello.heard.len().min(255);
    out.push(u8::try_from(count).unwrap_or(u8::MAX));
    for heard in &hello.heard[..count] {
        put_name(out, &heard.node);
        out.extend_from_slice(&heard.instance.to_be_bytes());
        out.extend_from_slice(&heard.their_sent_ns.to_be_bytes());
        out.extend_from_slice(&heard.arrived_ns.to_be_bytes());
    }
}

fn put_handshake(out: &mut Vec<u8>, handshake: &Handshake) {
    put_name(out, &handshake.to_node);
    out.extend_from_slice(&handshake.to_instance.to_be_bytes());
    out.push(if handshake.established { ESTABLISHED } else { 0 });
    out.extend_from_slice(&handshake.hold_ms.to_be_bytes());
    out.extend_from_slice(&handshake.restart_ms.to_be_bytes());
    out.extend_from_slice(&handshake.store_port.to_be_bytes());
}

fn take_hello(input: &mut Input<'_>) -> Result<Hello, PacketError> {
    let flags = input.flags(SOLICIT | RESTARTING)?;
    let seq = input.u64()?;
    let sent_ns = input.u64()?;
    let count = input.u8()?;
    let mut heard = Vec::new();
    for _ in 0..count {
        heard.push(Heard {
            node: input.name()?,
            instance: input.u64()?,
            their_sent_ns: input.u64()?,
            arrived_ns: input.u64()?,
        });
    }
    Ok(Hello { seq, sent_ns, solicit: flags & SOLICIT != 0, restarting: flags & RESTARTING != 0, heard })
}

fn take_handshake(input: &mut Input<'_>) -> Result<Handshake, PacketError> {
    Ok(Handshake {
        to_node: input.name()?,
        to_instance: input.u64()?,
        established: input.flags(ESTABLISHED)? != 0,
        hold_ms: input.u32()?,
        restart_ms: input.u32()?,
        store_port: input.u16()?,
    })
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let found = rest.first_chunk::<N>().ok_or(PacketError::Truncated(self.at))?;
        self.at += N;
        Ok(*found)
    }

    fn u8(&mut self) -> Result<u8, PacketError> {
        self.array::<1>().map(|[b]| b)
    }

    fn u16(&mut self) -> Result<u16, PacketError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, PacketError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, PacketError> {
        self.array().map(u64::from_be_bytes)
    }

    fn flags(&mut self, known: u8) -> Result<u8, PacketError> {
        let flags = self.u8()?;
        if flags & !known == 0 { Ok(flags) } else { Err(PacketError::Flags(flags)) }
    }

    fn name(&mut self) -> Result<String, PacketError> {
        let start = self.at;
        let length = usize::from(self.u8()?);
        let bytes = self.bytes.get(self.at..self.at + length).ok_or(PacketError::Truncated(self.at))?;
        self.at += length;
        match std::str::from_utf8(bytes) {
            Ok(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(PacketError::Name(start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sender() -> impl Strategy<Value = Sender> {
        ("[a-z0-9.]{1,40}", "[a-z0-9.-]{1,15}", any::<u8>(), any::<u64>())
            .prop_map(|(node, interface, plane, instance)| Sender { node, interface, plane, instance })
    }

    fn heard() -> impl Strategy<Value = Heard> {
        ("\\PC{1,20}", any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
            |(node, instance, their_sent_ns, arrived_ns)| Heard { node, instance, their_sent_ns, arrived_ns },
        )
    }

    fn body() -> impl Strategy<Value = Body> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), any::<bool>(), any::<bool>(), prop::collection::vec(heard(), 0..4))
                .prop_map(|(seq, sent_ns, solicit, restarting, heard)| Body::Hello(Hello {
                    seq,
                    sent_ns,
                    solicit,
                    restarting,
                    heard
                })),
            ("[a-z0-9.]{1,40}", any::<u64>(), any::<bool>(), any::<u32>(), any::<u32>(), any::<u16>())
                .prop_map(|(to_node, to_instance, established, hold_ms, restart_ms, store_port)| {
                    Body::Handshake(Handshake {
                        to_node,
                        to_instance,
                        established,
                        hold_ms,
                        restart_ms,
                        store_port,
                    })
                }),
            any::<u64>().prop_map(|seq| Body::Heartbeat { seq }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(from in sender(), body in body()) {
            let packet = Packet { from, body };
            prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
        }

        #[test]
        fn every_shorter_or_longer_packet_is_refused(from in sender(), body in body(), extra in any::<u8>()) {
            let mut bytes = Packet { from, body }.encode();
            for end in 0..bytes.len() {
                prop_assert!(Packet::decode(&bytes[..end]).is_err());
            }
            bytes.push(extra);
            prop_assert!(Packet::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(
            kind in 0u8..5, mut bytes in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            let _ = Packet::decode(&bytes);
            let mut framed = vec![0xEB, 0x5A, VERSION, kind, 0, 0];
            framed.append(&mut bytes);
            let length = u16::try_from(framed.len()).unwrap().to_be_bytes();
            framed[4..6].copy_from_slice(&length);
            if let Ok(packet) = Packet::decode(&framed) {
                prop_assert_eq!(packet.encode(), framed);
            }
        }
    }

    #[test]
    fn another_version_is_named_in_the_error() {
        let mut bytes = Packet {
            from: Sender { node: "eb01.prn".into(), interface: "to-atn".into(), plane: 1, instance: 7 },
            body: Body::Heartbeat { seq: 1 },
        }
        .encode();
        bytes[2] = 9;
        assert_eq!(Packet::decode(&bytes), Err(PacketError::Version(9)));
        assert!(PacketError::Version(9).to_string().contains("same release"));
    }
}

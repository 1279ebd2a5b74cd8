//! The netlink byte layout: message headers and attributes, written and read without panics.

use std::net::Ipv6Addr;

/// Length of `struct nlmsghdr`.
pub const HEADER_LEN: usize = 16;
/// Bit that marks an attribute as holding attributes.
pub const NESTED: u16 = 0x8000;
/// Bits of an attribute's type field that are flags.
const TYPE_FLAGS: u16 = 0xc000;

/// `NLM_F_REQUEST`.
pub const F_REQUEST: u16 = 0x1;
/// `NLM_F_MULTI`.
pub const F_MULTI: u16 = 0x2;
/// `NLM_F_ACK`.
pub const F_ACK: u16 = 0x4;
/// `NLM_F_DUMP_INTR`: the dump is inconsistent, something changed meanwhile.
pub const F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_CAPPED`: the acknowledgement does not repeat the request.
pub const F_CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: the acknowledgement carries attributes.
pub const F_ACK_TLVS: u16 = 0x200;
/// `NLM_F_DUMP` (ROOT and MATCH).
pub const F_DUMP: u16 = 0x300;
/// `NLM_F_REPLACE`.
pub const F_REPLACE: u16 = 0x100;
/// `NLM_F_EXCL`.
pub const F_EXCL: u16 = 0x200;
/// `NLM_F_CREATE`.
pub const F_CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub const F_APPEND: u16 = 0x800;

/// `NLMSG_ERROR`.
pub const MSG_ERROR: u16 = 2;
/// `NLMSG_DONE`.
pub const MSG_DONE: u16 = 3;
/// `NLMSG_OVERRUN`.
pub const MSG_OVERRUN: u16 = 4;

/// Rounds up to the four-byte alignment of netlink.
pub const fn align(len: usize) -> usize {
    (len + 3) & !3
}

/// Writes attributes one after the other.
#[derive(Clone, Debug, Default)]
pub struct Attrs {
    bytes: Vec<u8>,
}

impl Attrs {
    /// No attributes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts with a fixed header in front of the attributes.
    pub fn after(header: &[u8]) -> Self {
        let mut bytes = header.to_vec();
        bytes.resize(align(bytes.len()), 0);
        Self { bytes }
    }

    /// Appends an attribute with a raw value (at most 65531 bytes; the length field has no more).
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(align(self.bytes.len()), 0);
        self
    }

    /// Appends a byte.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.put(kind, &[value])
    }

    /// Appends a number in host order.
    pub fn u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a number in host order.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a number in network order.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Appends a number in network order.
    pub fn be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Appends a number in host order.
    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a string with its terminating zero.
    pub fn str(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Appends an IPv6 address.
    pub fn ip(&mut self, kind: u16, value: Ipv6Addr) -> &mut Self {
        self.put(kind, &value.octets())
    }

    /// Appends an attribute that holds attributes, with the nested flag set.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attrs)) -> &mut Self {
        self.nest_plain(kind | NESTED, fill)
    }

    /// Appends an attribute that holds attributes, without the nested flag (traffic control predates it).
    pub fn nest_plain(&mut self, kind: u16, fill: impl FnOnce(&mut Attrs)) -> &mut Self {
        let mut inner = Attrs::new();
        fill(&mut inner);
        self.put(kind, &inner.bytes)
    }

    /// The bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Iterates over attributes; ends at the first that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct AttrIter<'a> {
    rest: &'a [u8],
}

/// Reads the attributes in `bytes`.
pub fn attrs(bytes: &[u8]) -> AttrIter<'_> {
    AttrIter { rest: bytes }
}

/// Reads the attributes behind a fixed header of `header` bytes; none if the message is shorter.
pub fn attrs_after(bytes: &[u8], header: usize) -> AttrIter<'_> {
    AttrIter { rest: bytes.get(align(header)..).unwrap_or_default() }
}

// Two words, and looked through several times for several kinds.
#[allow(clippy::copy_iterator)]
impl<'a> Iterator for AttrIter<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.rest, 0)?);
        let kind = u16_at(self.rest, 2)? & !TYPE_FLAGS;
        let value = self.rest.get(4..length)?;
        self.rest = self.rest.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The first attribute of a kind.
pub fn find(mut attributes: AttrIter<'_>, kind: u16) -> Option<&[u8]> {
    attributes.find(|(k, _)| *k == kind).map(|(_, value)| value)
}

/// A `u16` in host order at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A `u32` in host order at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A `u64` in host order at an offset.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A `u32` in network order at an offset.
pub fn be32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A `u64` in network order at an offset.
pub fn be64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A number of four or eight bytes in host order (the kernel's "uint").
pub fn uint(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => u32_at(bytes, 0).map(u64::from),
        8 => u64_at(bytes, 0),
        _ => None,
    }
}

/// A zero-terminated string; broken UTF-8 is replaced.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// An IPv6 address of exactly 16 bytes.
pub fn ip6(bytes: &[u8]) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
}

/// A hardware address of exactly 6 bytes.
pub fn mac(bytes: &[u8]) -> Option<[u8; 6]> {
    <[u8; 6]>::try_from(bytes).ok()
}

/// A message within a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Sequence number of the request it answers.
    pub seq: u32,
    /// What follows the netlink header.
    pub body: &'a [u8],
}

/// Iterates over the messages of a datagram; ends at the first that does not fit.
#[derive(Clone, Debug)]
pub struct MessageIter<'a> {
    rest: &'a [u8],
}

/// Reads the messages in a datagram.
pub fn messages(datagram: &[u8]) -> MessageIter<'_> {
    MessageIter { rest: datagram }
}

impl<'a> Iterator for MessageIter<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(u32_at(self.rest, 0)?).ok()?;
        let message = Message {
            kind: u16_at(self.rest, 4)?,
            flags: u16_at(self.rest, 6)?,
            seq: u32_at(self.rest, 8)?,
            body: self.rest.get(HEADER_LEN..length)?,
        };
        self.rest = self.rest.get(align(length)..).unwrap_or_default();
        Some(message)
    }
}

/// One entry of an MPLS label stack (RFC 3032): label, bottom flag; class and TTL zero, as netlink wants it.
pub fn label_entry(label: u32, bottom: bool) -> [u8; 4] {
    ((label << 12) | (u32::from(bottom) << 8)).to_be_bytes()
}

/// A label stack, outermost first, bottom flag on the last.
pub fn label_stack(labels: &[u32]) -> Vec<u8> {
    let last = labels.len().saturating_sub(1);
    labels.iter().enumerate().flat_map(|(i, label)| label_entry(*label, i == last)).collect()
}

/// The labels of a stack, outermost first; ends after the bottom entry.
pub fn parse_labels(bytes: &[u8]) -> Vec<u32> {
    let mut labels = Vec::new();
    for entry in bytes.chunks_exact(4) {
        let word = be32_at(entry, 0).unwrap_or_default();
        labels.push(word >> 12);
        if word & 0x100 != 0 {
            break;
        }
    }
    labels
}

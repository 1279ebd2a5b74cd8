//! A message ready to be sent, with the words that an error about it will use.

use netlink_packet_core::NetlinkSerializable;
use netlink_packet_route::RouteNetlinkMessage;

use crate::wire::{self, HEADER_LEN};

/// What to do about an object that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Create it; fail with EEXIST if it is there.
    Create,
    /// Create it or replace what is there.
    Replace,
    /// Change or delete what is there; no creation.
    Change,
    /// Add another beside what is there (multipath by appending).
    Append,
}

impl Mode {
    /// Netlink flags of the mode.
    pub const fn flags(self) -> u16 {
        match self {
            Self::Create => wire::F_CREATE | wire::F_EXCL,
            Self::Replace => wire::F_CREATE | wire::F_REPLACE,
            Self::Change => 0,
            Self::Append => wire::F_CREATE | wire::F_APPEND,
        }
    }
}

/// An encoded netlink message; sequence number and acknowledgement flag are filled in when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    bytes: Vec<u8>,
    doing: String,
}

impl Request {
    /// Wraps a body (family header and attributes) of a message type.
    pub fn new(kind: u16, flags: u16, body: &[u8], doing: impl Into<String>) -> Self {
        let length = HEADER_LEN + body.len();
        let mut bytes = Vec::with_capacity(wire::align(length));
        bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(flags | wire::F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(body);
        bytes.resize(wire::align(length), 0);
        Self { bytes, doing: doing.into() }
    }

    /// Encodes a typed message.
    pub fn typed(message: &RouteNetlinkMessage, mode: Mode, doing: impl Into<String>) -> Self {
        let mut body = vec![0; message.buffer_len()];
        message.serialize(&mut body);
        Self::new(message.message_type(), mode.flags(), &body, doing)
    }

    /// A request for a dump.
    pub fn dump(kind: u16, body: &[u8], doing: impl Into<String>) -> Self {
        Self::new(kind, wire::F_DUMP, body, doing)
    }

    /// What an error about this message says: "add link to-chi".
    pub fn doing(&self) -> &str {
        &self.doing
    }

    /// The message, netlink header first, padded to four bytes; sequence number zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the message to a datagram with a sequence number and extra flags.
    pub(crate) fn append_to(&self, datagram: &mut Vec<u8>, seq: u32, extra_flags: u16) {
        let start = datagram.len();
        datagram.extend_from_slice(&self.bytes);
        let flags = wire::u16_at(&self.bytes, 6).unwrap_or_default() | extra_flags;
        if let Some(field) = datagram.get_mut(start + 6..start + 8) {
            field.copy_from_slice(&flags.to_ne_bytes());
        }
        if let Some(field) = datagram.get_mut(start + 8..start + 12) {
            field.copy_from_slice(&seq.to_ne_bytes());
        }
    }
}

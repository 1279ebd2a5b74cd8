//! The one frame that the two ends of a circuit exchange.
//!
//! ```text
//! Ethernet: 01:80:c2:00:00:03 (this wire only), own address, EtherType 88b5 (local experiments, IEEE 802)
//! version 1, flags, SCI 8, member 12, number 4, heard: member 12, number 4,
//! sends: AN 1, key 16; offers: AN 1, key 16; count of keys that are taken 1, each AN 1, key 16; ICV 16
//! ```
//! Numbers are in network order; what a flag says is not there is zero. The ICV is an AES-CMAC of all that is before it, the
//! Ethernet header too.

use rtnl::macsec::{ASSOCIATIONS, KEY_BYTES, KeyId, Sci};

use super::kdf::{self, ICV_BYTES};

/// EtherType of the frame: local experimental 1.
pub const ETHER_TYPE: u16 = 0x88b5;
/// Destination: the group address that no bridge passes on (IEEE 802.1X, table 11-1).
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 3];
/// Longest frame.
pub const MAX_FRAME: usize = HEADER + FIXED + ASSOCIATIONS as usize * NAMED + ICV_BYTES;

const VERSION: u8 = 1;
const HEADER: usize = 14;
/// Bytes between the Ethernet header and the keys that are taken.
const FIXED: usize = 2 + 8 + 16 + 16 + 2 * NAMED + 1;
const NAMED: usize = 17;
const HEARD: u8 = 1;
const SENDS: u8 = 2;
const OFFERS: u8 = 4;

/// One life of an agent at one end of a circuit.
pub type Member = [u8; 12];

/// A key by association and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Association, 0 to 3.
    pub an: u8,
    /// Name of the key.
    pub key: KeyId,
}

/// What an end says of itself, all of it every time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Identifier under which it sends.
    pub sci: Sci,
    /// Who says it.
    pub member: Member,
    /// Counts what this member has said, from 1.
    pub number: u32,
    /// The last that it has heard of the other end.
    pub heard: Option<(Member, u32)>,
    /// The key with which it sends.
    pub sends: Option<Named>,
    /// The key with which it would like to send.
    pub offers: Option<Named>,
    /// Keys of the other end that it takes, at most four.
    pub takes: Vec<Named>,
}

impl Hello {
    /// As a frame from a hardware address, with its check value.
    pub fn encode(&self, from: [u8; 6], ick: &[u8; KEY_BYTES]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(MAX_FRAME);
        frame.extend_from_slice(&GROUP);
        frame.extend_from_slice(&from);
        frame.extend_from_slice(&ETHER_TYPE.to_be_bytes());
        let flag = |there: bool, bit: u8| if there { bit } else { 0 };
        let flags = flag(self.heard.is_some(), HEARD)
            | flag(self.sends.is_some(), SENDS)
            | flag(self.offers.is_some(), OFFERS);
        frame.extend_from_slice(&[VERSION, flags]);
        frame.extend_from_slice(&self.sci.0);
        frame.extend_from_slice(&self.member);
        frame.extend_from_slice(&self.number.to_be_bytes());
        let (member, number) = self.heard.unwrap_or_default();
        frame.extend_from_slice(&member);
        frame.extend_from_slice(&number.to_be_bytes());
        let none = Named { an: 0, key: [0; 16] };
        let takes = self.takes.iter().take(usize::from(ASSOCIATIONS));
        let mut put = |named: &Named| {
            frame.push(named.an);
            frame.extend_from_slice(&named.key);
        };
        put(&self.sends.unwrap_or(none));
        put(&self.offers.unwrap_or(none));
        frame.push(u8::try_from(takes.len()).unwrap_or(ASSOCIATIONS));
        for named in takes {
            frame.push(named.an);
            frame.extend_from_slice(&named.key);
        }
        let icv = kdf::mac(ick, &frame);
        frame.extend_from_slice(&icv);
        frame
    }

    /// Reads a frame; nothing if it is none of ours, or its check value is wrong. What follows the check value is
    /// padding.
    pub fn decode(frame: &[u8], ick: &[u8; KEY_BYTES]) -> Option<Self> {
        let count = usize::from(*frame.get(HEADER + FIXED - 1)?);
        if count > usize::from(ASSOCIATIONS) {
            return None;
        }
        let end = HEADER + FIXED + count * NAMED;
        let (said, icv) = (frame.get(..end)?, frame.get(end..end + ICV_BYTES)?);
        if !kdf::is_right(ick, said, icv) {
            return None;
        }
        let mut reader = Reader { rest: said.get(12..)? };
        if reader.take::<2>()? != ETHER_TYPE.to_be_bytes() || reader.take::<1>()? != [VERSION] {
            return None;
        }
        let [flags] = reader.take()?;
        let sci = Sci(reader.take()?);
        let (member, number) = reader.member()?;
        let (heard, sends, offers) = (reader.member()?, reader.named()?, reader.named()?);
        let _count: [u8; 1] = reader.take()?;
        let takes = (0..count).map(|_| reader.named()).collect::<Option<Vec<_>>>()?;
        Some(Self {
            sci,
            member,
            number,
            heard: (flags & HEARD != 0).then_some(heard),
            sends: (flags & SENDS != 0).then_some(sends),
            offers: (flags & OFFERS != 0).then_some(offers),
            takes,
        })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*first)
    }

    fn member(&mut self) -> Option<(Member, u32)> {
        Some((self.take()?, u32::from_be_bytes(self.take()?)))
    }

    fn named(&mut self) -> Option<Named> {
        let [an] = self.take()?;
        (an < ASSOCIATIONS).then_some(())?;
        Some(Named { an, key: self.take()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named() -> impl Strategy<Value = Named> {
        (0..ASSOCIATIONS, any::<KeyId>()).prop_map(|(an, key)| Named { an, key })
    }

    fn hello() -> impl Strategy<Value = Hello> {
        let who = (any::<[u8; 8]>(), any::<Member>(), any::<u32>(), any::<Option<(Member, u32)>>());
        let keys = (
            proptest::option::of(named()),
            proptest::option::of(named()),
            prop::collection::vec(named(), 0..=4),
        );
        (who, keys).prop_map(|((sci, member, number, heard), (sends, offers, takes))| Hello {
            sci: Sci(sci),
            member,
            number,
            heard,
            sends,
            offers,
            takes,
        })
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard_with_the_right_key_only(hello in hello(), at in 0..200_usize, bit in 0..8_u32) {
            let mut frame = hello.encode([2; 6], &[5; 16]);
            prop_assert!(frame.len() <= MAX_FRAME);
            prop_assert_eq!(Hello::decode(&frame, &[5; 16]), Some(hello.clone()));
            prop_assert_eq!(Hello::decode(&frame, &[6; 16]), None);
            let padded = [&frame[..], &[0; 9]].concat();
            prop_assert_eq!(Hello::decode(&padded, &[5; 16]), Some(hello));
            let at = at % frame.len();
            frame[at] ^= 1 << bit;
            prop_assert_eq!(Hello::decode(&frame, &[5; 16]), None);
        }

        #[test]
        fn no_frame_panics(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Hello::decode(&frame, &[5; 16]), None);
        }
    }
}

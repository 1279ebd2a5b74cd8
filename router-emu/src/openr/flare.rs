//! The notice of a lost link that runs ahead of the flooded store: one small datagram, relayed hop by hop.
//!
//! What it says is what the store says a moment later, and only the store is reliable: a flare may be lost, and nobody
//! asks for it again. It is for those who hold a backup path in advance and lose packets until they hear of the loss.
//! The idea is that of fast notification (draft-csaszar-rtgwg-ipfrr-fn): tell everybody before computing anything.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

const MAGIC: [u8; 2] = [0xEB, 0xF1];
const VERSION: u8 = 1;
/// Longest name of a router or an interface, bytes.
const LONGEST_NAME: usize = 64;
/// Longest datagram.
pub const MAX_FLARE: usize = FIXED + 2 * (1 + LONGEST_NAME);
/// Magic, version, plane, hops, instance, sequence number, time.
const FIXED: usize = 2 + 1 + 1 + 1 + 8 + 8 + 8;
/// How far a flare travels; beyond the longest path of any plane.
pub const HOPS: u8 = 32;
/// Flares of one router that are remembered.
const REMEMBERED: usize = 64;

/// "My interface has gone down."
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flare {
    /// Plane.
    pub plane: u8,
    /// Hops that it may still travel.
    pub hops: u8,
    /// Of the sender's program, drawn at its start.
    pub instance: u64,
    /// Grows with every flare of an instance.
    pub seq: u64,
    /// When the sender learned of it, nanoseconds of its monotonic clock: the clock of `Adjacency.changed_ns`.
    pub lost_ns: u64,
    /// Router whose link is lost.
    pub router: String,
    /// Its interface.
    pub interface: String,
}

/// Why bytes are not a flare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FlareError {
    /// Shorter or longer than it says.
    #[error("{0} bytes are not the length of a flare with these names")]
    Length(usize),
    /// First bytes are not ours.
    #[error("not a flare: the first two bytes are not EB F1")]
    Magic,
    /// Encoding of another release.
    #[error("flare version {0}, this program speaks {VERSION}: run the same release on all routers")]
    Version(u8),
    /// A name is empty, too long or not UTF-8.
    #[error("a name is empty, longer than {LONGEST_NAME} bytes or not UTF-8")]
    Name,
}

impl Flare {
    /// The datagram. Names longer than [`LONGEST_NAME`] do not pass the configuration's own checks.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_FLARE);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.plane, self.hops]);
        for number in [self.instance, self.seq, self.lost_ns] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for name in [&self.router, &self.interface] {
            let bytes = name.as_bytes();
            let bytes = bytes.get(..LONGEST_NAME).unwrap_or(bytes);
            out.push(u8::try_from(bytes.len()).unwrap_or(0));
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Reads a datagram; anything that is not exactly one flare of this version is an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, FlareError> {
        let short = FlareError::Length(bytes.len());
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or(short)?;
        let [m0, m1, version, plane, hops, numbers @ ..] = fixed;
        if [*m0, *m1] != MAGIC {
            return Err(FlareError::Magic);
        }
        if *version != VERSION {
            return Err(FlareError::Version(*version));
        }
        let mut numbers =
            numbers.chunks_exact(8).map(|c| c.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)));
        let mut number = || numbers.next().ok_or(short);
        let (instance, seq, lost_ns) = (number()?, number()?, number()?);
        let (router, rest) = name(rest).ok_or(short)?;
        let (interface, rest) = name(rest).ok_or(short)?;
        if !rest.is_empty() {
            return Err(short);
        }
        Ok(Self {
            plane: *plane,
            hops: *hops,
            instance,
            seq,
            lost_ns,
            router: router?,
            interface: interface?,
        })
    }
}

/// A name and what follows it; nothing if the bytes end within it.
fn name(bytes: &[u8]) -> Option<(Result<String, FlareError>, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let good = (1..=LONGEST_NAME).contains(&name.len());
    let text = std::str::from_utf8(name).ok().filter(|_| good).map(str::to_owned);
    Some((text.ok_or(FlareError::Name), rest))
}

/// Which flares have been here.
#[derive(Debug, Default)]
pub struct Seen {
    /// By router: its instance and the last sequence numbers.
    routers: BTreeMap<String, (u64, VecDeque<u64>)>,
}

impl Seen {
    /// Whether a flare is here for the first time; it is remembered.
    pub fn is_new(&mut self, flare: &Flare) -> bool {
        let (instance, seqs) = self.routers.entry(flare.router.clone()).or_default();
        if *instance != flare.instance {
            *instance = flare.instance;
            seqs.clear();
        }
        if seqs.contains(&flare.seq) {
            return false;
        }
        if seqs.len() == REMEMBERED {
            seqs.pop_front();
        }
        seqs.push_back(flare.seq);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn flare()(
            plane in any::<u8>(), hops in any::<u8>(), instance in any::<u64>(), seq in any::<u64>(),
            lost_ns in any::<u64>(), router in "[a-z0-9.]{1,64}", interface in "\\PC{1,16}"
        ) -> Flare {
            Flare { plane, hops, instance, seq, lost_ns, router, interface }
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(flare in flare()) {
            let bytes = flare.encode();
            prop_assert!(bytes.len() <= MAX_FLARE);
            prop_assert_eq!(Flare::decode(&bytes), Ok(flare));
        }

        #[test]
        fn every_shorter_or_longer_datagram_is_refused(flare in flare(), extra in any::<u8>()) {
            let mut bytes = flare.encode();
            for end in 0..bytes.len() {
                prop_assert!(Flare::decode(&bytes[..end]).is_err());
            }
            bytes.push(extra);
            prop_assert!(Flare::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Flare::decode(&bytes);
            for (at, byte) in [0xEB, 0xF1, VERSION].into_iter().enumerate().take(bytes.len()) {
                bytes[at] = byte;
            }
            if let Ok(flare) = Flare::decode(&bytes) {
                prop_assert_eq!(flare.encode(), bytes);
            }
        }
    }

    fn numbered(instance: u64, seq: u64) -> Flare {
        let (router, interface) = ("eb01.prn".to_owned(), "to-chi".to_owned());
        Flare { plane: 1, hops: HOPS, instance, seq, lost_ns: 5, router, interface }
    }

    #[test]
    fn a_flare_is_new_once_and_a_restarted_router_begins_anew() {
        let mut seen = Seen::default();
        assert!(seen.is_new(&numbered(7, 1)));
        assert!(!seen.is_new(&Flare { hops: 3, ..numbered(7, 1) }), "it came by another way");
        assert!(seen.is_new(&numbered(7, 2)));
        assert!(seen.is_new(&numbered(9, 1)));
        assert!(!seen.is_new(&numbered(9, 1)));
    }

    #[test]
    fn another_version_is_named_in_the_error() {
        let mut bytes = numbered(1, 1).encode();
        bytes[2] = 9;
        assert_eq!(Flare::decode(&bytes), Err(FlareError::Version(9)));
        assert!(FlareError::Version(9).to_string().contains("same release"));
    }
}

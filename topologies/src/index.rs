//! Interface indexes, and the addresses made from them.
//!
//! An index is a hash of the end's node and interface, not a position: an edit of one link leaves the indexes of
//! all others alone, so that a running lab can be edited without rebuilding it. Two ends that hash alike are told
//! apart by hashing again, in order of name; only then can an edit move another end's index.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use crate::lab::End;

/// Smallest index; below it the kernel numbers interfaces on its own.
pub const FIRST: u32 = 1001;
/// Largest index: six digits stay readable.
pub const LAST: u32 = 999_999;

/// Gives every end its own index from `FIRST` to `LAST`: first those of links, then those of their members, then of what
/// encrypted ones sit on, so that none of these moves one before it. Needs far fewer ends than there are indexes.
pub(crate) fn assign(
    links: &BTreeSet<End>,
    members: &BTreeSet<End>,
    wires: &BTreeSet<End>,
) -> BTreeMap<End, u32> {
    let mut used = BTreeSet::new();
    let mut indexes = BTreeMap::new();
    for end in links.iter().chain(members).chain(wires) {
        let index =
            (0..u64::from(u32::MAX)).map(|attempt| candidate(end, attempt)).find(|index| used.insert(*index));
        indexes.insert(end.clone(), index.unwrap_or(LAST));
    }
    indexes
}

/// The index of an end at an attempt.
fn candidate(end: &End, attempt: u64) -> u32 {
    let range = u64::from(LAST - FIRST + 1);
    // Names cannot contain a zero byte, so it separates them.
    let bytes = end.node.bytes().chain([0]).chain(end.interface.bytes()).chain(attempt.to_be_bytes());
    let hash = mix(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) // FNV-1a, 64 bits
    }));
    u32::try_from(hash % range).map_or(LAST, |offset| FIRST + offset)
}

/// Spreads a hash over all its bits; FNV alone leaves similar names close to each other.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Hardware address of an index: `02:eb:` (locally administered) and the index in four bytes.
pub(crate) fn mac(ifindex: u32) -> [u8; 6] {
    let [a, b, c, d] = ifindex.to_be_bytes();
    [0x02, 0xeb, a, b, c, d]
}

/// Link-local address of a hardware address (RFC 4291, appendix A: `ff:fe` in the middle, universal bit inverted).
pub(crate) fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let pair = |high, low| u16::from_be_bytes([high, low]);
    let [first, second] = [pair(mac[0] ^ 0x02, mac[1]), pair(mac[2], 0xff)];
    Ipv6Addr::new(0xfe80, 0, 0, 0, first, second, pair(0xfe, mac[3]), pair(mac[4], mac[5]))
}

/// Serde of a hardware address as `02:eb:00:00:03:e9`; for `#[serde(with)]`.
pub(crate) mod mac_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    // Serde fixes the signature.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub fn serialize<S: Serializer>(mac: &[u8; 6], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&mac.map(|byte| format!("{byte:02x}")).join(":"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 6], D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        mac.ok_or_else(|| D::Error::custom(format!("`{text}` is not a hardware address (02:eb:00:00:03:e9)")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(node: &str, interface: &str) -> End {
        End { node: node.to_owned(), interface: interface.to_owned() }
    }

    #[test]
    fn addresses_follow_from_the_index() {
        assert_eq!(mac(1001), [0x02, 0xeb, 0, 0, 0x03, 0xe9]);
        assert_eq!(link_local(mac(1001)).to_string(), "fe80::eb:ff:fe00:3e9");
        assert_eq!(link_local([0x02, 0xeb, 0x12, 0x34, 0x56, 0x78]).to_string(), "fe80::eb:12ff:fe34:5678");
    }

    #[test]
    fn indexes_are_unique_stable_and_in_range() {
        let many: BTreeSet<End> = (0..200)
            .flat_map(|n| (0..50).map(move |i| end(&format!("eb{n:03}.x"), &format!("to-{i}"))))
            .collect();
        let all = assign(&many, &BTreeSet::new(), &BTreeSet::new());
        let distinct: BTreeSet<u32> = all.values().copied().collect();
        assert_eq!(distinct.len(), 10_000);
        assert!(distinct.iter().all(|index| (FIRST..=LAST).contains(index)));
        // An edit that adds and removes ends moves next to none of the others.
        let mut edited = many.clone();
        edited.retain(|end| end.node != "eb007.x");
        edited.insert(end("aaa.x", "to-b"));
        let again = assign(&edited, &BTreeSet::new(), &BTreeSet::new());
        let moved = again.iter().filter(|(end, index)| all.get(end).is_some_and(|old| old != *index)).count();
        assert!(moved <= 5, "{moved} moved");
    }

    #[test]
    fn members_move_no_link() {
        let many = |letter: char| -> BTreeSet<End> {
            (0..20_000).map(|n| end(&format!("{letter}{n:05}.x"), "to-b")).collect()
        };
        // many enough that some hash alike
        let (links, members) = (many('z'), many('a'));
        let none = BTreeSet::new();
        let (before, after) = (assign(&links, &none, &none), assign(&links, &members, &many('b')));
        assert!(before.iter().all(|(end, index)| after.get(end) == Some(index)));
        assert_eq!(after.values().collect::<BTreeSet<_>>().len(), 60_000);
    }

    #[test]
    fn first_indexes_never_change() {
        // A change of the hash would renumber every running lab.
        let ends = BTreeSet::from([end("eb01.prn", "to-atn"), end("h1.prn", "fa")]);
        let indexes: Vec<u32> = assign(&ends, &BTreeSet::new(), &BTreeSet::new()).into_values().collect();
        assert_eq!(indexes, [509_439, 460_418]);
    }
}

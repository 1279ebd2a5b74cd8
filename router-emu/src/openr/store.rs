//! The versioned map that every router holds a copy of.
//!
//! Of two values for a key the greater of (version, originator, value) wins everywhere, so copies agree
//! whatever the order in which they hear. Nothing is deleted: a value dies when its originator stops
//! refreshing it. Not in this room: who is told (see [`super::flood`]).

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;

use super::spark::{MS, Nanos};
use super::sync::{Digest, Entry};

/// A value as held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Version, from 1.
    pub version: u64,
    /// Router that wrote it.
    pub originator: String,
    /// Content.
    pub bytes: Vec<u8>,
    /// Counts refreshes of this version.
    pub ttl_version: u64,
    /// When it dies.
    pub expires: Nanos,
}

impl Value {
    fn rank(&self) -> (u64, &str, &[u8]) {
        (self.version, &self.originator, &self.bytes)
    }

    /// A short stand-in for the content in comparisons between routers of one release.
    pub fn hash(&self) -> u64 {
        // SipHash with fixed keys: the same on every router that runs this program
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.bytes);
        hasher.finish()
    }
}

/// What a merge changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Keys with a new value.
    pub changed: Vec<String>,
    /// Keys whose life was extended.
    pub refreshed: Vec<String>,
}

/// A router's copy.
#[derive(Clone, Debug, Default)]
pub struct Store {
    values: BTreeMap<String, Value>,
}

impl Store {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// All values whose key starts with `prefix`, by key.
    pub fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.values
            .range(prefix.to_owned()..)
            .take_while(move |(k, _)| k.starts_with(prefix))
            .map(|(k, v)| (k.as_str(), v))
    }

    /// Writes an own value with the next version above whatever is held.
    pub fn write(&mut self, now: Nanos, key: &str, originator: &str, bytes: Vec<u8>, ttl_ms: u64) {
        let version = self.values.get(key).map_or(0, |v| v.version).saturating_add(1);
        let value = Value {
            version,
            originator: originator.to_owned(),
            bytes,
            ttl_version: 1,
            expires: now + ttl_ms * MS,
        };
        self.values.insert(key.to_owned(), value);
    }

    /// Extends the life of an own value; whether there is one.
    pub fn refresh(&mut self, now: Nanos, key: &str, ttl_ms: u64) -> bool {
        let Some(value) = self.values.get_mut(key) else { return false };
        value.ttl_version += 1;
        value.expires = now + ttl_ms * MS;
        true
    }

    /// Takes what a neighbour says, by the rule of the greater value.
    pub fn merge(&mut self, now: Nanos, entries: Vec<Entry>) -> Merged {
        let mut merged = Merged::default();
        for entry in entries {
            if entry.ttl_ms == 0 {
                continue;
            }
            let expires = now.saturating_add(entry.ttl_ms.saturating_mul(MS));
            let held = self.values.get_mut(&entry.key);
            let Some(bytes) = entry.value else {
                // life only: for exactly the value that is held
                if let Some(held) = held
                    && (held.version, held.originator.as_str()) == (entry.version, entry.originator.as_str())
                    && entry.ttl_version > held.ttl_version
                {
                    held.ttl_version = entry.ttl_version;
                    held.expires = expires;
                    merged.refreshed.push(entry.key);
                }
                continue;
            };
            let heard = Value {
                version: entry.version,
                originator: entry.originator,
                bytes,
                ttl_version: entry.ttl_version,
                expires,
            };
            match held {
                Some(held) if heard.rank() < held.rank() => {}
                Some(held) if heard.rank() == held.rank() => {
                    if heard.ttl_version > held.ttl_version {
                        *held = heard;
                        merged.refreshed.push(entry.key);
                    }
                }
                _ => {
                    self.values.insert(entry.key.clone(), heard);
                    merged.changed.push(entry.key);
                }
            }
        }
        merged
    }

    /// Removes what has died; the keys.
    pub fn expire(&mut self, now: Nanos) -> Vec<String> {
        let dead: Vec<String> =
            self.values.iter().filter(|(_, v)| v.expires <= now).map(|(k, _)| k.clone()).collect();
        for key in &dead {
            self.values.remove(key);
        }
        dead
    }

    /// When the next value dies.
    pub fn next_expiry(&self) -> Option<Nanos> {
        self.values.values().map(|v| v.expires).min()
    }

    /// A key's value as it is told to neighbours; `None` if it is about to die. One millisecond of life is
    /// lost per hop, so that no value circles for ever.
    pub fn entry(&self, now: Nanos, key: &str, with_value: bool) -> Option<Entry> {
        let value = self.values.get(key)?;
        let ttl_ms = value.expires.saturating_sub(now) / MS;
        (ttl_ms > 1).then(|| Entry {
            key: key.to_owned(),
            version: value.version,
            originator: value.originator.clone(),
            value: with_value.then(|| value.bytes.clone()),
            ttl_ms: ttl_ms - 1,
            ttl_version: value.ttl_version,
        })
    }

    /// One line per key, for the comparison with a neighbour.
    pub fn digests(&self) -> Vec<Digest> {
        self.values
            .iter()
            .map(|(key, value)| Digest {
                key: key.clone(),
                version: value.version,
                originator: value.originator.clone(),
                hash: value.hash(),
                ttl_version: value.ttl_version,
            })
            .collect()
    }

    /// What a neighbour with these digests lacks: whole values, or only the longer life.
    pub fn missing_from(&self, now: Nanos, theirs: &[Digest]) -> Vec<Entry> {
        let theirs: BTreeMap<&str, &Digest> = theirs.iter().map(|d| (d.key.as_str(), d)).collect();
        self.values
            .iter()
            .filter_map(|(key, value)| {
                let with_value = match theirs.get(key.as_str()) {
                    None => true,
                    Some(d) => {
                        let (mine, other) =
                            ((value.version, value.originator.as_str()), (d.version, d.originator.as_str()));
                        if mine < other {
                            return None;
                        }
                        // equal names with another content: both send, the greater content wins
                        let differs = mine > other || value.hash() != d.hash;
                        if !differs && value.ttl_version <= d.ttl_version {
                            return None;
                        }
                        differs
                    }
                };
                self.entry(now, key, with_value)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(key: &str, version: u64, originator: &str, value: &[u8]) -> Entry {
        Entry {
            key: key.into(),
            version,
            originator: originator.into(),
            value: Some(value.to_vec()),
            ttl_ms: 1000,
            ttl_version: 1,
        }
    }

    #[test]
    fn higher_version_then_originator_then_value_wins() {
        let mut store = Store::default();
        for (version, originator, value, wins) in [
            (1, "b", "x", true),
            (1, "a", "z", false),
            (1, "b", "y", true),
            (1, "b", "x", false),
            (1, "c", "a", true),
            (2, "a", "a", true),
            (1, "z", "z", false),
        ] {
            let merged = store.merge(0, vec![entry("k", version, originator, value.as_bytes())]);
            assert_eq!(!merged.changed.is_empty(), wins, "{version} {originator} {value}");
        }
    }

    #[test]
    fn a_value_lives_as_long_as_it_is_refreshed() {
        let mut store = Store::default();
        store.merge(0, vec![entry("k", 1, "a", b"v")]);
        let longer = Entry { value: None, ttl_version: 2, ttl_ms: 5000, ..entry("k", 1, "a", b"") };
        assert_eq!(store.merge(500 * MS, vec![longer.clone()]).refreshed, ["k"]);
        assert!(store.merge(600 * MS, vec![longer]).refreshed.is_empty(), "the same refresh twice");
        assert!(store.expire(5499 * MS).is_empty());
        assert_eq!(store.expire(5500 * MS), ["k"]);
        assert!(store.get("k").is_none());
    }

    #[test]
    fn life_shrinks_at_every_hop() {
        let mut store = Store::default();
        let mut hops = 0;
        let mut heard = entry("k", 1, "a", b"v");
        heard.ttl_ms = 8;
        while hops < 100 && store.merge(0, vec![heard.clone()]).changed.len() == 1 {
            hops += 1;
            match std::mem::take(&mut store).entry(0, "k", true) {
                Some(next) => heard = next,
                None => break,
            }
        }
        assert_eq!(hops, 8);
    }

    #[test]
    fn an_own_write_goes_above_what_is_held() {
        let mut store = Store::default();
        store.merge(0, vec![entry("adj:a", 41, "a", b"old")]);
        store.write(0, "adj:a", "a", b"new".to_vec(), 1000);
        assert_eq!(store.get("adj:a").map(|v| v.version), Some(42));
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let one =
            (0u8..4, 1u64..4, 0u8..3, 0u8..3, 1u64..4).prop_map(|(key, version, originator, value, ttl)| {
                Entry {
                    ttl_version: ttl,
                    ..entry(&format!("k{key}"), version, &format!("n{originator}"), &[value])
                }
            });
        prop::collection::vec(one, 1..40)
    }

    proptest! {
        #[test]
        fn the_order_of_delivery_does_not_matter(entries in entries(), seed in any::<u64>()) {
            use rand::{SeedableRng as _, seq::SliceRandom as _};
            let mut shuffled = entries.clone();
            shuffled.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed));
            let (mut a, mut b) = (Store::default(), Store::default());
            a.merge(0, entries);
            b.merge(0, shuffled);
            prop_assert_eq!(a.values, b.values);
        }

        #[test]
        fn one_exchange_of_digests_makes_two_copies_equal(left in entries(), right in entries()) {
            let (mut a, mut b) = (Store::default(), Store::default());
            a.merge(0, left);
            b.merge(0, right);
            let (to_b, to_a) = (a.missing_from(0, &b.digests()), b.missing_from(0, &a.digests()));
            a.merge(0, to_a);
            b.merge(0, to_b);
            prop_assert_eq!(a.digests(), b.digests());
            prop_assert!(a.missing_from(0, &b.digests()).is_empty());
        }
    }
}

//! When shortest paths are computed, and whether anything came of it.
//!
//! Changes are collected: the computation waits `spf_min` after the last change and at most `spf_max` after
//! the first, so that a burst of news costs one computation.

use std::sync::Arc;

use prost::Message as _;

use super::spark::Nanos;
use super::spf::{self, Databases, RouteTable};
use super::store::Store;
use crate::proto::AdjacencyDatabase;

/// Prefix of the keys that hold adjacencies.
pub const ADJ_PREFIX: &str = "adj:";

/// The computation and its timers.
#[derive(Debug)]
pub struct Decision {
    me: String,
    least: Nanos,
    most: Nanos,
    dirty: Option<(Nanos, Nanos)>,
    current: Option<Arc<RouteTable>>,
}

impl Decision {
    /// `least`, `most`: the debounce.
    pub fn new(me: &str, least: Nanos, most: Nanos) -> Self {
        Self { me: me.to_owned(), least, most: most.max(least), dirty: None, current: None }
    }

    /// Another debounce.
    pub fn set_debounce(&mut self, least: Nanos, most: Nanos) {
        (self.least, self.most) = (least, most.max(least));
    }

    /// Something in the store changed.
    pub fn touch(&mut self, now: Nanos) {
        let first = self.dirty.map_or(now, |(first, _)| first);
        self.dirty = Some((first, now));
    }

    /// When to compute.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.dirty.map(|(first, last)| (last + self.least).min(first + self.most))
    }

    /// Computes if it is due; the routes if they are others than before.
    pub fn tick(&mut self, now: Nanos, store: &Store) -> Option<Arc<RouteTable>> {
        if self.next_deadline()? > now {
            return None;
        }
        self.dirty = None;
        let table = spf::routes(&self.me, &databases(store));
        if self.current.as_deref() == Some(&table) {
            return None;
        }
        let table = Arc::new(table);
        self.current = Some(Arc::clone(&table));
        Some(table)
    }
}

/// All adjacency databases of a store. One that cannot be decoded, or that speaks for another router than its
/// key, is left out and named in the log.
pub fn databases(store: &Store) -> Databases {
    store
        .range(ADJ_PREFIX)
        .filter_map(|(key, value)| match AdjacencyDatabase::decode(value.bytes.as_slice()) {
            Ok(database) if key.strip_prefix(ADJ_PREFIX) == Some(&database.node) => {
                Some((database.node.clone(), database))
            }
            Ok(database) => {
                tracing::warn!(key, node = database.node, "key and content disagree: ignored");
                None
            }
            Err(e) => {
                tracing::warn!(key, originator = value.originator, "adjacencies cannot be decoded: {e}");
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openr::spark::MS;

    #[test]
    fn a_burst_is_computed_once_and_not_put_off_for_ever() {
        let store = Store::default();
        let mut decision = Decision::new("a", 10 * MS, 250 * MS);
        decision.touch(0);
        assert_eq!(decision.next_deadline(), Some(10 * MS));
        for at in (5..=245).step_by(5) {
            decision.touch(at * MS);
            assert!(decision.tick(at * MS, &store).is_none());
        }
        assert_eq!(decision.next_deadline(), Some(250 * MS));
        assert!(decision.tick(250 * MS, &store).is_some(), "the first table is news even if empty");
        decision.touch(300 * MS);
        assert!(decision.tick(310 * MS, &store).is_none(), "the same table again is none");
    }
}

//! Traffic by egress site and mesh: which counting rules there must be, and totals that never fall.
//!
//! One rule counts one prefix in one mesh, at the interface to the fabric. A prefix that moves to another site gets new
//! rules; what the old ones had counted is kept with the site that it was counted for.

use std::collections::BTreeMap;

use ipnet::Ipv6Net;
use rtnl::nft::{Change, Counter, CounterRule};

use crate::label::Mesh;
use crate::proto::TrafficCounter;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of IPv6.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, counter: &Counter) {
        self.packets += counter.packets;
        self.bytes += counter.bytes;
    }
}

/// What the rules that are gone had counted.
#[derive(Debug, Default)]
pub struct Totals {
    before: BTreeMap<(u8, Mesh), Count>,
}

impl Totals {
    /// Sets what a state file remembers.
    pub fn resume(&mut self, before: BTreeMap<(u8, Mesh), Count>) {
        self.before = before;
    }

    /// What the rules that are gone had counted.
    pub const fn before(&self) -> &BTreeMap<(u8, Mesh), Count> {
        &self.before
    }

    /// Changes that bring the rules in the kernel to the wanted ones; rules that stay keep counting.
    pub fn converge(&self, wanted: &[CounterRule], counters: &[Counter]) -> Vec<Change> {
        let mut missing: BTreeMap<&str, &CounterRule> = wanted.iter().map(|r| (r.tag.as_str(), r)).collect();
        let left = counters.iter().filter(|c| missing.remove(c.tag.as_str()).is_none());
        let mut changes: Vec<Change> = left.map(|c| Change::Delete(c.handle)).collect();
        changes.extend(missing.into_values().cloned().map(Change::Add));
        changes
    }

    /// Takes over what the rules had counted that `changes` has removed.
    pub fn removed(&mut self, changes: &[Change], counters: &[Counter]) {
        for counter in counters.iter().filter(|c| changes.contains(&Change::Delete(c.handle))) {
            if let Some(key) = parse_tag(&counter.tag) {
                self.before.entry(key).or_default().add(counter);
            }
        }
    }

    /// Totals, ascending by site and mesh.
    pub fn totals(&self, counters: &[Counter]) -> Vec<TrafficCounter> {
        let mut totals = self.before.clone();
        for counter in counters {
            if let Some(key) = parse_tag(&counter.tag) {
                totals.entry(key).or_default().add(counter);
            }
        }
        let totals = totals.into_iter().map(|((site, mesh), count)| TrafficCounter {
            dst_site: site.into(),
            mesh: mesh.code().into(),
            bytes: count.bytes,
            packets: count.packets,
        });
        totals.collect()
    }
}

/// The rules for prefixes with their egress sites; none without an interface to the fabric.
pub fn rules(fabric: Option<&str>, prefixes: impl Iterator<Item = (Ipv6Net, u8)>) -> Vec<CounterRule> {
    let Some(fabric) = fabric else { return Vec::new() };
    let rules = prefixes.flat_map(|(prefix, site)| {
        Mesh::ALL.into_iter().map(move |mesh| CounterRule {
            iif: Some(fabric.to_owned()),
            dst: Some(prefix),
            dscp: Some(mesh.dscp().0..=mesh.dscp().1),
            tag: format!("{site} {} {prefix}", mesh.code()),
        })
    });
    rules.collect()
}

fn parse_tag(tag: &str) -> Option<(u8, Mesh)> {
    let mut words = tag.split(' ');
    let site = words.next()?.parse().ok()?;
    Some((site, Mesh::from_code(words.next()?.parse().ok()?)?))
}

#[cfg(test)]
mod unit {
    use super::*;

    fn counter(handle: u64, tag: &str, packets: u64) -> Counter {
        Counter { handle, tag: tag.to_owned(), packets, bytes: packets * 100 }
    }

    #[test]
    fn moved_prefixes_leave_their_counts_behind() {
        let net: Ipv6Net = "2001:db8:9::/48".parse().unwrap();
        let wanted = rules(Some("fa"), [(net, 5)].into_iter());
        assert_eq!(wanted.len(), 3);
        assert_eq!((wanted[2].tag.as_str(), wanted[2].dscp.clone()), ("5 2 2001:db8:9::/48", Some(32..=63)));
        assert!(rules(None, [(net, 5)].into_iter()).is_empty());

        let mut totals = Totals::default();
        let there = [counter(1, "3 2 2001:db8:9::/48", 10), counter(2, "5 2 2001:db8:9::/48", 4)];
        let changes = totals.converge(&wanted, &there);
        assert_eq!(changes[0], Change::Delete(1));
        assert!(
            changes.len() == 3 && matches!(&changes[1], Change::Add(rule) if rule.tag.starts_with("5 0 "))
        );
        totals.removed(&changes, &there);
        let read: Vec<_> = totals.totals(&[counter(2, "5 2 2001:db8:9::/48", 6)]);
        let read: Vec<_> = read.iter().map(|t| (t.dst_site, t.mesh, t.packets, t.bytes)).collect();
        assert_eq!(read, [(3, 2, 10, 1000), (5, 2, 6, 600)]);
    }
}

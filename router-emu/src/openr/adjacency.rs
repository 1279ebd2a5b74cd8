//! What this router announces of itself: its links that count, with their attributes and drains.
//!
//! A lost link is announced at once, and so is a bundle that has lost some of its members: it stays, with the capacity
//! that is left. New links, members that return and round-trip times are collected for a moment, because they come in
//! groups and nobody is hurt by their delay.

use std::collections::BTreeMap;

use super::drain::Drains;
use super::rtt;
use super::spark::{MS, Nanos, Peer};
use crate::config::{CoreInterface, RouterConfig};
use crate::proto::{Adjacency, AdjacencyDatabase};

/// How long good news is collected.
pub const UP_THROTTLE: Nanos = 100 * MS;

#[derive(Debug)]
struct Link {
    peer: Peer,
    announced: bool,
    /// When it came about.
    since: Nanos,
}

/// The router's own adjacencies.
#[derive(Debug)]
pub struct Adjacencies {
    config: RouterConfig,
    links: BTreeMap<String, Link>,
    /// Members with a carrier, of those bundles that have been heard of.
    members: BTreeMap<String, u16>,
    /// Drains in force.
    pub drains: Drains,
    announce_at: Option<Nanos>,
}

impl Adjacencies {
    /// No links yet.
    pub fn new(config: RouterConfig, drains: Drains) -> Self {
        Self { config, links: BTreeMap::new(), members: BTreeMap::new(), drains, announce_at: None }
    }

    /// Links have other attributes from now on.
    pub fn configure(&mut self, config: RouterConfig) {
        self.config = config;
    }

    /// A link counts; it is announced with the next round of good news.
    pub fn up(&mut self, now: Nanos, interface: &str, peer: Peer) {
        self.links.insert(interface.to_owned(), Link { peer, announced: false, since: now });
        self.later(now);
    }

    /// A neighbour has restarted: the link stays announced.
    pub fn restarted(&mut self, now: Nanos, interface: &str, peer: Peer) {
        match self.links.get_mut(interface) {
            Some(link) => link.peer = Peer { rtt_us: link.peer.rtt_us, ..peer },
            None => self.up(now, interface, peer),
        }
    }

    /// A round-trip time changed.
    pub fn rtt(&mut self, now: Nanos, interface: &str, rtt_us: u64) {
        if let Some(link) = self.links.get_mut(interface) {
            link.peer.rtt_us = rtt_us;
            self.later(now);
        }
    }

    /// So many members of a bundle have a carrier; whether it has lost some while it was announced, so that this must be
    /// said now.
    pub fn members(&mut self, now: Nanos, interface: &str, up: u16) -> bool {
        let total =
            self.config.interfaces.iter().find(|core| core.name == interface).map_or(0, |core| core.members);
        let before = self.members.insert(interface.to_owned(), up).unwrap_or(total);
        let announced = self.links.get(interface).is_some_and(|link| link.announced);
        // without a member there is no link, which is said in another way
        if !announced || up == before || up == 0 {
            return false;
        }
        if up > before {
            self.later(now);
        }
        up < before
    }

    /// What is left of an interface's capacity, bit/s, and its members: with a carrier, and all of them.
    fn capacity(&self, core: &CoreInterface) -> (u64, u16, u16) {
        let total = core.members;
        let up = self.members.get(&core.name).map_or(total, |up| *up.min(&total));
        if up == total || up == 0 {
            return (core.capacity_bps, up, total);
        }
        (core.capacity_bps / u64::from(total) * u64::from(up), up, total)
    }

    /// A link counts no more; whether it was announced, so that it must be withdrawn now.
    pub fn down(&mut self, interface: &str) -> bool {
        self.links.remove(interface).is_some_and(|link| link.announced)
    }

    /// When good news is due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.announce_at
    }

    /// Whether good news is due; the database holds it from now on.
    pub fn tick(&mut self, now: Nanos) -> bool {
        if self.announce_at.is_none_or(|at| at > now) {
            return false;
        }
        self.announce_all();
        true
    }

    /// Announces everything with the next database, without waiting.
    pub fn announce_all(&mut self) {
        self.announce_at = None;
        for link in self.links.values_mut() {
            link.announced = true;
        }
    }

    /// The database to announce. An adjacency that `before` had in the same form keeps its time of change, unless it came
    /// about later: `before` may be of an earlier life, which lost the link, said so by a flare, and ended before it
    /// could withdraw the adjacency. Whoever heard that flare waits for an adjacency that is younger.
    pub fn database(&self, now: Nanos, before: Option<&AdjacencyDatabase>) -> AdjacencyDatabase {
        let adjacencies = self
            .config
            .interfaces
            .iter()
            .filter_map(|core| {
                let link = self.links.get(&core.name).filter(|link| link.announced)?;
                let drain = self.drains.link(&core.name);
                let (capacity_bps, members_up, members) = self.capacity(core);
                let mut adjacency = Adjacency {
                    neighbor: link.peer.node.clone(),
                    interface: core.name.clone(),
                    remote_interface: link.peer.interface.clone(),
                    next_hop: link.peer.address.to_string(),
                    rtt_us: link.peer.rtt_us,
                    metric: rtt::metric(link.peer.rtt_us),
                    capacity_bps,
                    members: u32::from(members),
                    members_up: u32::from(members_up),
                    srlgs: core.srlgs.clone(),
                    static_label: core.label,
                    overloaded: drain.overloaded,
                    metric_increment: drain.metric_increment,
                    changed_ns: 0,
                };
                let old = before.and_then(|b| b.adjacencies.iter().find(|a| a.interface == core.name));
                let old = old.filter(|old| old.changed_ns >= link.since);
                adjacency.changed_ns = old.map_or(now, |old| old.changed_ns);
                if old.is_some_and(|old| *old != adjacency) {
                    adjacency.changed_ns = now;
                }
                Some(adjacency)
            })
            .collect();
        AdjacencyDatabase {
            node: self.config.node.clone(),
            plane: u32::from(self.config.plane),
            site: u32::from(self.config.site),
            site_name: self.config.site_name.clone(),
            is_dc: self.config.is_dc,
            loopback: self.config.loopback.to_string(),
            overloaded: self.drains.node.overloaded,
            metric_increment: self.drains.node.metric_increment,
            adjacencies,
        }
    }

    fn later(&mut self, now: Nanos) {
        self.announce_at.get_or_insert(now + UP_THROTTLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjacency_is_never_older_than_the_life_that_announces_it() {
        let config: RouterConfig = serde_json::from_str(
            r#"{"node": "a", "plane": 1, "site": 1, "site_name": "a", "is_dc": true, "loopback": "::1",
                "run_dir": "/r", "state_dir": "/s", "max_labels": 3, "openr": {}, "interfaces": [
                {"name": "to-b", "label": 1002, "peer_link_local": "fe80::2", "capacity_bps": 1, "declared_rtt_us": 1, "srlgs": []}]}"#,
        )
        .unwrap();
        let peer = || Peer {
            node: "b".into(),
            interface: "to-a".into(),
            address: "fe80::2".parse().unwrap(),
            store_port: 1,
            rtt_us: 500,
        };
        let changed = |database: &AdjacencyDatabase| database.adjacencies[0].changed_ns;
        let mut first = Adjacencies::new(config.clone(), Drains::default());
        first.up(100, "to-b", peer());
        first.announce_all();
        let before = first.database(110, None);
        assert_eq!(changed(&before), 110);
        assert_eq!(changed(&first.database(200, Some(&before))), 110, "nothing has changed");
        let mut second = Adjacencies::new(config, Drains::default());
        second.up(300, "to-b", peer());
        second.announce_all();
        let again = second.database(310, Some(&before));
        assert_eq!(changed(&again), 310, "the first life may have flared at 250");
        assert_eq!(changed(&second.database(400, Some(&again))), 310);
    }
}

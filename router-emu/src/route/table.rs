//! The core of the route-agent: BIRD's routes, the map and the groups that exist in; routes to write out.
//!
//! BIRD cannot put the BGP next hop of a route into the kernel, so it leaves a prefix in one table for each egress site
//! that announces it. A prefix in several tables goes to the site that BIRD itself prefers: its route in the fallback
//! table leads over that site's next hops. If that does not tell them apart (the same way to both, or no fallback route
//! yet), the lowest site id is taken, on every router alike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::label::Mesh;

/// Ways out of a BIRD route: gateway and interface index.
pub type Hops = Vec<(Option<Ipv6Addr>, u32)>;

/// A write to the kernel: in the mesh's table, at the LSP metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Create or replace the route to a nexthop group.
    Put(Ipv6Net, Mesh, u32),
    /// Delete the route.
    Delete(Ipv6Net, Mesh),
}

/// Where BIRD left a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Hand-over table of an egress site.
    Site(u8),
    /// The fallback table.
    Fallback,
}

/// Everything the agent knows.
#[derive(Debug, Default)]
pub struct Table {
    candidates: BTreeMap<Ipv6Net, BTreeMap<u8, Hops>>,
    fallback: BTreeMap<Ipv6Net, Hops>,
    map: BTreeMap<(u8, Mesh), u32>,
    groups: BTreeSet<u32>,
    installed: BTreeMap<(Ipv6Net, Mesh), u32>,
    dirty: BTreeSet<Ipv6Net>,
}

impl Table {
    /// Takes a route of BIRD's, new or replaced.
    pub fn learn(&mut self, source: Source, prefix: Ipv6Net, mut hops: Hops) {
        hops.sort();
        match source {
            Source::Site(site) => drop(self.candidates.entry(prefix).or_default().insert(site, hops)),
            Source::Fallback => drop(self.fallback.insert(prefix, hops)),
        }
        self.dirty.insert(prefix);
    }

    /// Takes note that a route of BIRD's is gone.
    pub fn unlearn(&mut self, source: Source, prefix: Ipv6Net) {
        match source {
            Source::Site(site) => {
                if let Some(sites) = self.candidates.get_mut(&prefix) {
                    sites.remove(&site);
                    if sites.is_empty() {
                        self.candidates.remove(&prefix);
                    }
                }
            }
            Source::Fallback => drop(self.fallback.remove(&prefix)),
        }
        self.dirty.insert(prefix);
    }

    /// Forgets all routes of BIRD's, all groups and all that is installed, before they are read anew.
    pub fn forget_kernel(&mut self) {
        self.dirty.extend(self.candidates.keys().copied());
        self.candidates.clear();
        self.fallback.clear();
        self.groups.clear();
        self.installed.clear();
    }

    /// The map from (egress site, mesh) to group.
    pub const fn map(&self) -> &BTreeMap<(u8, Mesh), u32> {
        &self.map
    }

    /// Sets one entry of the map, or removes it.
    pub fn set_map(&mut self, site: u8, mesh: Mesh, group: Option<u32>) {
        let before = match group {
            Some(group) => self.map.insert((site, mesh), group),
            None => self.map.remove(&(site, mesh)),
        };
        if before != group {
            self.touch_site(site);
        }
    }

    /// Takes note of a group in the kernel.
    pub fn group_exists(&mut self, group: u32) {
        if self.groups.insert(group) {
            self.touch_group(group);
        }
    }

    /// Takes note that a group is not in the kernel; its routes are gone with it.
    pub fn group_gone(&mut self, group: u32) {
        self.groups.remove(&group);
        self.touch_group(group);
    }

    /// Takes note of a route of ours in the kernel.
    pub fn found(&mut self, prefix: Ipv6Net, mesh: Mesh, group: u32) {
        self.installed.insert((prefix, mesh), group);
        self.dirty.insert(prefix);
    }

    /// Takes note that a route of ours has gone; it is written again while its group exists. Saying so of a route that
    /// has been written again meanwhile costs one more write and nothing else.
    pub fn lost(&mut self, prefix: Ipv6Net, mesh: Mesh) {
        self.installed.remove(&(prefix, mesh));
        self.dirty.insert(prefix);
    }

    /// Takes note of a write that was carried out.
    pub fn written(&mut self, op: Op) {
        match op {
            Op::Put(prefix, mesh, group) => drop(self.installed.insert((prefix, mesh), group)),
            Op::Delete(prefix, mesh) => drop(self.installed.remove(&(prefix, mesh))),
        }
    }

    /// The site by which a prefix leaves the plane.
    pub fn egress(&self, prefix: &Ipv6Net) -> Option<u8> {
        let sites = self.candidates.get(prefix)?;
        let preferred = self.fallback.get(prefix).and_then(|hops| sites.iter().find(|(_, own)| *own == hops));
        preferred.or_else(|| sites.first_key_value()).map(|(site, _)| *site)
    }

    /// Prefixes with their egress site, ascending.
    pub fn prefixes(&self) -> impl Iterator<Item = (Ipv6Net, u8)> {
        self.candidates.keys().filter_map(|prefix| Some((*prefix, self.egress(prefix)?)))
    }

    /// Meshes in which a prefix has a route.
    pub fn meshes(&self, prefix: Ipv6Net) -> impl Iterator<Item = Mesh> {
        Mesh::ALL.into_iter().filter(move |mesh| self.installed.contains_key(&(prefix, *mesh)))
    }

    /// Whether anything may have to be written.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes for everything that changed since the last call: gold first, new routes before deletes.
    pub fn plan(&mut self) -> Vec<Op> {
        let dirty = std::mem::take(&mut self.dirty);
        let (mut puts, mut deletes) = (Vec::new(), Vec::new());
        for mesh in Mesh::BY_PRIORITY {
            for &prefix in &dirty {
                let wanted = self.egress(&prefix).and_then(|site| self.map.get(&(site, mesh)));
                let wanted = wanted.filter(|group| self.groups.contains(group));
                match (wanted, self.installed.get(&(prefix, mesh))) {
                    (Some(wanted), there) if there != Some(wanted) => {
                        puts.push(Op::Put(prefix, mesh, *wanted));
                    }
                    (None, Some(_)) => deletes.push(Op::Delete(prefix, mesh)),
                    _ => {}
                }
            }
        }
        puts.append(&mut deletes);
        puts
    }

    fn touch_site(&mut self, site: u8) {
        let sites = self.candidates.iter().filter(|(_, sites)| sites.contains_key(&site));
        self.dirty.extend(sites.map(|(prefix, _)| *prefix));
    }

    fn touch_group(&mut self, group: u32) {
        let sites: BTreeSet<u8> =
            self.map.iter().filter(|(_, g)| **g == group).map(|((site, _), _)| *site).collect();
        for site in sites {
            self.touch_site(site);
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use proptest::prelude::*;

    fn net(site: u8) -> Ipv6Net {
        format!("2001:db8:{site:x}::/48").parse().unwrap()
    }

    fn via(n: u32) -> Hops {
        vec![(Some(Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(n))), n)]
    }

    fn settle(table: &mut Table) -> Vec<Op> {
        let ops = table.plan();
        ops.iter().for_each(|op| table.written(*op));
        ops
    }

    #[test]
    fn a_route_needs_prefix_map_and_group() {
        let mut table = Table::default();
        table.learn(Source::Site(3), net(3), via(1));
        assert_eq!(settle(&mut table), []);
        table.set_map(3, Mesh::Gold, Some(7));
        table.set_map(3, Mesh::Bronze, Some(8));
        assert_eq!(settle(&mut table), []);
        table.group_exists(8);
        assert_eq!(settle(&mut table), [Op::Put(net(3), Mesh::Bronze, 8)]);
        table.group_exists(7);
        assert_eq!(settle(&mut table), [Op::Put(net(3), Mesh::Gold, 7)]);
        table.group_exists(7);
        assert_eq!(settle(&mut table), []);
        table.lost(net(3), Mesh::Gold);
        assert_eq!(settle(&mut table), [Op::Put(net(3), Mesh::Gold, 7)]);
        table.group_gone(7);
        assert_eq!(settle(&mut table), [Op::Delete(net(3), Mesh::Gold)]);
        table.unlearn(Source::Site(3), net(3));
        assert_eq!(settle(&mut table), [Op::Delete(net(3), Mesh::Bronze)]);
    }

    #[test]
    fn of_two_sites_the_one_that_bird_uses_wins() {
        let mut table = Table::default();
        let prefix = net(9);
        table.learn(Source::Site(5), prefix, via(5));
        table.learn(Source::Site(3), prefix, via(3));
        assert_eq!(table.egress(&prefix), Some(3), "no word from BIRD: the lower one");
        table.learn(Source::Fallback, prefix, via(5));
        assert_eq!(table.egress(&prefix), Some(5));
        table.learn(Source::Site(3), prefix, via(5));
        assert_eq!(table.egress(&prefix), Some(3), "the same way to both: the lower one");
        table.unlearn(Source::Site(3), prefix);
        table.learn(Source::Fallback, prefix, via(4));
        assert_eq!(table.egress(&prefix), Some(5), "no candidate fits: what is there");
    }

    #[test]
    fn a_prefix_that_moves_is_replaced_in_one_write() {
        let mut table = Table::default();
        for site in [3, 5] {
            table.set_map(site, Mesh::Silver, Some(site.into()));
            table.group_exists(site.into());
        }
        table.learn(Source::Site(3), net(9), via(3));
        settle(&mut table);
        table.learn(Source::Site(5), net(9), via(5));
        table.unlearn(Source::Site(3), net(9));
        assert_eq!(settle(&mut table), [Op::Put(net(9), Mesh::Silver, 5)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn(u8, u8, u32),
        Unlearn(u8, u8),
        Map(u8, u8, Option<u32>),
        Group(u32, bool),
        Lost(u8, u8),
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4u8, 0..4u8, 0..3u32).prop_map(|(s, p, h)| Step::Learn(s, p, h)),
            (0..4u8, 0..4u8).prop_map(|(s, p)| Step::Unlearn(s, p)),
            (1..4u8, 0..3u8, prop::option::of(0..4u32)).prop_map(|(s, m, g)| Step::Map(s, m, g)),
            (0..4u32, any::<bool>()).prop_map(|(g, there)| Step::Group(g, there)),
            (0..4u8, 0..3u8).prop_map(|(p, m)| Step::Lost(p, m)),
            Just(Step::Restart),
        ]
    }

    fn source(n: u8) -> Source {
        if n == 0 { Source::Fallback } else { Source::Site(n) }
    }

    proptest! {
        /// The routes that were written are those that a table built at once would want.
        #[test]
        fn any_history_ends_as_if_it_had_been_told_at_once(steps in prop::collection::vec(step(), 0..40)) {
            let mut table = Table::default();
            let mut kernel: BTreeMap<(Ipv6Net, Mesh), u32> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Learn(s, p, h) => table.learn(source(s), net(p), via(h)),
                    Step::Unlearn(s, p) => table.unlearn(source(s), net(p)),
                    Step::Map(s, m, g) => table.set_map(s, Mesh::from_code(m).unwrap(), g),
                    Step::Group(g, true) => table.group_exists(g),
                    Step::Group(g, false) => {
                        kernel.retain(|_, group| *group != g);
                        table.group_gone(g);
                    }
                    Step::Lost(p, m) => {
                        let mesh = Mesh::from_code(m).unwrap();
                        kernel.remove(&(net(p), mesh));
                        table.lost(net(p), mesh);
                    }
                    Step::Restart => {
                        let (candidates, fallback) = (table.candidates.clone(), table.fallback.clone());
                        let groups = table.groups.clone();
                        table.forget_kernel();
                        for (prefix, sites) in candidates {
                            sites.into_iter().for_each(|(site, hops)| table.learn(Source::Site(site), prefix, hops));
                        }
                        fallback.into_iter().for_each(|(prefix, hops)| table.learn(Source::Fallback, prefix, hops));
                        groups.into_iter().for_each(|g| table.group_exists(g));
                        kernel.iter().for_each(|((prefix, mesh), g)| table.found(*prefix, *mesh, *g));
                    }
                }
                for op in settle(&mut table) {
                    match op {
                        Op::Put(prefix, mesh, group) => {
                            prop_assert!(table.groups.contains(&group), "a route to a group that is not there");
                            kernel.insert((prefix, mesh), group);
                        }
                        Op::Delete(prefix, mesh) => drop(kernel.remove(&(prefix, mesh))),
                    }
                }
                prop_assert!(table.plan().is_empty());
            }
            for (prefix, site) in table.prefixes() {
                for mesh in Mesh::ALL {
                    let wanted = table.map.get(&(site, mesh)).filter(|g| table.groups.contains(g));
                    prop_assert_eq!(kernel.remove(&(prefix, mesh)), wanted.copied());
                }
            }
            prop_assert!(kernel.is_empty(), "left over: {:?}", kernel);
        }
    }
}

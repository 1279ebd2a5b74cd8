//! Finding things in a resolved lab. Lists are sorted by name, so single look-ups search by halves.

use std::collections::{BTreeMap, BTreeSet};

use crate::lab::{End, Interface, Lab, Link, LinkKind, Lock, Node, Plane, Role, Site, SiteKind};
use crate::units::Capacity;

impl Lab {
    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok().map(|i| &self.nodes[i])
    }

    /// The link of a name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.binary_search_by(|link| link.name.as_str().cmp(name)).ok().map(|i| &self.links[i])
    }

    /// An interface by node and name.
    pub fn interface(&self, node: &str, interface: &str) -> Option<&Interface> {
        self.node(node)?.interface(interface)
    }

    /// The interface of a link's end.
    pub fn end(&self, end: &End) -> Option<&Interface> {
        self.interface(&end.node, &end.interface)
    }

    /// The site of a name.
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.iter().find(|site| site.name == name)
    }

    /// The site of a number.
    pub fn site_by_id(&self, id: u8) -> Option<&Site> {
        self.sites.iter().find(|site| site.id == id)
    }

    /// The plane of a number.
    pub fn plane(&self, id: u8) -> Option<&Plane> {
        self.planes.iter().find(|plane| plane.id == id)
    }

    /// The routers of a plane, by name.
    pub fn routers(&self, plane: u8) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.role == Role::Router && node.plane == Some(plane))
    }

    /// The router of a plane at a site.
    pub fn router(&self, plane: u8, site: &str) -> Option<&Node> {
        self.node(&crate::spec::router_name(plane, site))
    }

    /// The aggregator of a site, if it is a data centre.
    pub fn aggregator(&self, site: &str) -> Option<&Node> {
        self.node(&crate::spec::aggregator_name(site))
    }

    /// All hosts, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.role == Role::Host)
    }

    /// The data centres, by name.
    pub fn dcs(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.kind == SiteKind::Dc)
    }

    /// The core links of a plane, by name.
    pub fn core_links(&self, plane: u8) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.kind == LinkKind::Core && link.plane == Some(plane))
    }

    /// The links at a node, by name.
    pub fn links_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Link> {
        self.links.iter().filter(move |link| link.touches(node))
    }

    /// The controllers that run on a host: plane, and number among the plane's replicas, from 1.
    pub fn controllers_on<'a>(&'a self, host: &'a str) -> impl Iterator<Item = (u8, u8)> + 'a {
        self.planes.iter().flat_map(move |plane| {
            let replicas = (1..).zip(&plane.controller_hosts);
            replicas.filter(move |(_, at)| *at == host).map(|(replica, _)| (plane.id, replica))
        })
    }

    /// The planes whose traffic matrix is made on a host: that of their first controller.
    pub fn matrices_on<'a>(&'a self, host: &'a str) -> impl Iterator<Item = u8> + 'a {
        let here = move |plane: &&Plane| plane.controller_hosts.first().is_some_and(|first| first == host);
        self.planes.iter().filter(here).map(|plane| plane.id)
    }

    /// Hosts of the members of the lock service; none if there is no such service.
    pub fn etcd_members(&self) -> &[String] {
        match &self.lock {
            Lock::Embedded => &[],
            Lock::Etcd { members } => members,
        }
    }

    /// The parts of a plane: sites that its core links connect, however far apart. One part is the rule.
    pub fn parts(&self, plane: u8) -> Vec<BTreeSet<&str>> {
        let mut parts: Vec<BTreeSet<&str>> =
            self.sites.iter().map(|s| BTreeSet::from([s.name.as_str()])).collect();
        for link in self.core_links(plane) {
            let ends: BTreeSet<&str> =
                link.ends().iter().filter_map(|end| Some(self.node(&end.node)?.site.as_str())).collect();
            let (touched, apart): (Vec<_>, Vec<_>) = parts.into_iter().partition(|p| !p.is_disjoint(&ends));
            parts = apart;
            parts.push(touched.into_iter().flatten().collect());
        }
        parts
    }

    /// Whether some plane leads from one site to another.
    pub fn connects(&self, from: &str, to: &str) -> bool {
        from == to
            || self.planes.iter().any(|p| self.parts(p.id).iter().any(|s| s.contains(from) && s.contains(to)))
    }

    /// Shared-risk groups with the names of their links.
    pub fn srlgs(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for link in &self.links {
            for group in &link.srlgs {
                groups.entry(group).or_default().insert(&link.name);
            }
        }
        groups
    }

    /// Emulated rate of a real capacity, in bit/s.
    pub fn emulated(&self, capacity: Capacity) -> u64 {
        capacity.0 / self.bandwidth_divisor.max(1)
    }

    /// Real rate that an emulated one in bit/s stands for.
    pub fn real(&self, emulated: u64) -> Capacity {
        Capacity(emulated.saturating_mul(self.bandwidth_divisor))
    }
}

impl Node {
    /// The interface of a name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}

impl Link {
    /// Whether a node is at one end.
    pub fn touches(&self, node: &str) -> bool {
        self.a.node == node || self.b.node == node
    }

    /// The ends seen from a node: its own and the far one.
    pub fn ends_from(&self, node: &str) -> Option<(&End, &End)> {
        if self.a.node == node {
            Some((&self.a, &self.b))
        } else if self.b.node == node {
            Some((&self.b, &self.a))
        } else {
            None
        }
    }

    /// Both ends.
    pub fn ends(&self) -> [&End; 2] {
        [&self.a, &self.b]
    }
}

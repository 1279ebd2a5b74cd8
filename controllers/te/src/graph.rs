//! The topology as flat arrays, in a canonical order.

use std::collections::BTreeMap;
use std::ops::Range;

use thiserror::Error;

/// Index of a node in its graph; nodes are sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Index of a directed link in its graph; links are sorted by (source, destination, interface).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl NodeId {
    /// As an array index.
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// As an array index.
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// Drain state of a link (EBB paper, section 3.3.1: depending on the entry, excluded or de-preferred).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// In service.
    #[default]
    None,
    /// De-preferred: this many microseconds are added to its cost. The true round-trip time stays what it is.
    Soft(u32),
    /// Excluded: no primary, no backup, no fallback uses it.
    Hard,
}

/// A node as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSpec {
    /// Unique name.
    pub name: String,
    /// Overload bit: paths may begin and end here, but not pass through.
    pub no_transit: bool,
}

/// One direction of a link as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Name of the node it leaves.
    pub from: String,
    /// Name of the node it reaches.
    pub to: String,
    /// Interface on `from`; unique on that node.
    pub interface: String,
    /// Interface on `to`: names the opposite direction of the same physical link.
    pub remote_interface: String,
    /// Round-trip time, microseconds.
    pub rtt_us: u32,
    /// Capacity, bit/s.
    pub capacity_bps: u64,
    /// Shared-risk groups by name.
    pub srlgs: Vec<String>,
    /// Drain state of this direction.
    pub drain: Drain,
}

/// Why a graph could not be built.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GraphError {
    /// Two nodes have one name.
    #[error("node {0:?} is listed twice; node names must be unique in a plane")]
    DuplicateNode(String),
    /// A link names a node that is not listed.
    #[error("link {from:?} {interface:?} names the node {missing:?}, which is not listed")]
    UnknownNode {
        /// Source of the link.
        from: String,
        /// Interface of the link.
        interface: String,
        /// The name that is not listed.
        missing: String,
    },
    /// Two links leave one node by one interface.
    #[error("node {from:?} has two links on interface {interface:?}; an interface carries one link")]
    DuplicateInterface {
        /// Node.
        from: String,
        /// Interface.
        interface: String,
    },
    /// A link from a node to itself.
    #[error("node {0:?} has a link to itself")]
    SelfLoop(String),
    /// More nodes or links than 32-bit indices hold.
    #[error("the graph has more nodes or links than a 32-bit index holds")]
    TooLarge,
}

/// Collects nodes and links in any order.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    nodes: Vec<NodeSpec>,
    links: Vec<LinkSpec>,
}

impl GraphBuilder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node.
    pub fn node(&mut self, node: NodeSpec) -> &mut Self {
        self.nodes.push(node);
        self
    }

    /// Adds one direction of a link.
    pub fn link(&mut self, link: LinkSpec) -> &mut Self {
        self.links.push(link);
        self
    }

    /// Sorts everything and lays it out.
    pub fn build(mut self) -> Result<Graph, GraphError> {
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(w) = self.nodes.windows(2).find(|w| w[0].name == w[1].name) {
            return Err(GraphError::DuplicateNode(w[0].name.clone()));
        }
        self.links.sort_by(|a, b| (&a.from, &a.to, &a.interface).cmp(&(&b.from, &b.to, &b.interface)));
        u32::try_from(self.nodes.len().max(self.links.len())).map_err(|_| GraphError::TooLarge)?;
        let by_interface = self.index_interfaces()?;
        let ends = self.resolve_ends()?;
        Ok(Graph::lay_out(self, &by_interface, &ends))
    }

    /// (node, interface) to link index, refusing doubles.
    fn index_interfaces(&self) -> Result<BTreeMap<(String, String), u32>, GraphError> {
        let mut map = BTreeMap::new();
        for (l, id) in self.links.iter().zip(0u32..) {
            if map.insert((l.from.clone(), l.interface.clone()), id).is_some() {
                return Err(GraphError::DuplicateInterface {
                    from: l.from.clone(),
                    interface: l.interface.clone(),
                });
            }
        }
        Ok(map)
    }

    fn resolve_ends(&self) -> Result<Vec<(NodeId, NodeId)>, GraphError> {
        let ids: BTreeMap<&str, NodeId> =
            self.nodes.iter().zip(0u32..).map(|(n, i)| (n.name.as_str(), NodeId(i))).collect();
        let find = |l: &LinkSpec, name: &str| {
            ids.get(name).copied().ok_or_else(|| GraphError::UnknownNode {
                from: l.from.clone(),
                interface: l.interface.clone(),
                missing: name.to_owned(),
            })
        };
        let mut ends = Vec::with_capacity(self.links.len());
        for l in &self.links {
            if l.from == l.to {
                return Err(GraphError::SelfLoop(l.from.clone()));
            }
            ends.push((find(l, &l.from)?, find(l, &l.to)?));
        }
        Ok(ends)
    }
}

/// A directed graph: parallel arrays indexed by [`NodeId`] and [`LinkId`]. Links of one node are neighbours in memory.
#[derive(Clone, Debug)]
pub struct Graph {
    names: Vec<String>,
    no_transit: Vec<bool>,
    first_link: Vec<u32>,
    from: Vec<NodeId>,
    to: Vec<NodeId>,
    interface: Vec<String>,
    remote_interface: Vec<String>,
    rtt_us: Vec<u32>,
    capacity_bps: Vec<u64>,
    drain: Vec<Drain>,
    reverse: Vec<Option<LinkId>>,
    physical: Vec<u32>,
    physical_count: usize,
    srlg_names: Vec<String>,
    srlg_first: Vec<u32>,
    srlg_of: Vec<u32>,
    srlg_links: Vec<Vec<LinkId>>,
}

impl Graph {
    fn lay_out(
        builder: GraphBuilder,
        by_interface: &BTreeMap<(String, String), u32>,
        ends: &[(NodeId, NodeId)],
    ) -> Self {
        let GraphBuilder { nodes, links } = builder;
        let mut first_link = vec![0u32; nodes.len() + 1];
        for &(from, _) in ends {
            first_link[from.ix() + 1] += 1;
        }
        for i in 1..first_link.len() {
            first_link[i] += first_link[i - 1];
        }
        let reverse: Vec<Option<LinkId>> = links
            .iter()
            .map(|l| {
                let back = *by_interface.get(&(l.to.clone(), l.remote_interface.clone()))?;
                let other = &links[back as usize];
                (other.to == l.from && other.remote_interface == l.interface).then_some(LinkId(back))
            })
            .collect();
        let (physical, physical_count) = number_physical(&reverse);
        let srlgs = Srlgs::collect(&links);
        Self {
            names: nodes.iter().map(|n| n.name.clone()).collect(),
            no_transit: nodes.iter().map(|n| n.no_transit).collect(),
            first_link,
            from: ends.iter().map(|e| e.0).collect(),
            to: ends.iter().map(|e| e.1).collect(),
            rtt_us: links.iter().map(|l| l.rtt_us).collect(),
            capacity_bps: links.iter().map(|l| l.capacity_bps).collect(),
            drain: links.iter().map(|l| l.drain).collect(),
            reverse,
            physical,
            physical_count,
            srlg_names: srlgs.names,
            srlg_first: srlgs.first,
            srlg_of: srlgs.of,
            srlg_links: srlgs.links,
            interface: links.iter().map(|l| l.interface.clone()).collect(),
            remote_interface: links.into_iter().map(|l| l.remote_interface).collect(),
        }
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.names.len()
    }

    /// Number of directed links.
    pub fn link_count(&self) -> usize {
        self.from.len()
    }

    /// Number of physical links: a link and its opposite direction are one, and fail together.
    pub fn physical_count(&self) -> usize {
        self.physical_count
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0u32..).take(self.link_count()).map(LinkId)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0u32..).take(self.node_count()).map(NodeId)
    }

    /// The node of that name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        let at = self.names.binary_search_by(|n| n.as_str().cmp(name)).ok()?;
        u32::try_from(at).ok().map(NodeId)
    }

    /// Name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        &self.names[node.ix()]
    }

    /// Whether paths may not pass through a node.
    pub fn no_transit(&self, node: NodeId) -> bool {
        self.no_transit[node.ix()]
    }

    /// Links that leave a node, as a range of link indices.
    pub fn out(&self, node: NodeId) -> Range<usize> {
        self.first_link[node.ix()] as usize..self.first_link[node.ix() + 1] as usize
    }

    /// Node that a link leaves.
    pub fn from(&self, link: LinkId) -> NodeId {
        self.from[link.ix()]
    }

    /// Node that a link reaches.
    pub fn to(&self, link: LinkId) -> NodeId {
        self.to[link.ix()]
    }

    /// Interface by which a link leaves its node.
    pub fn interface(&self, link: LinkId) -> &str {
        &self.interface[link.ix()]
    }

    /// Interface at which a link arrives.
    pub fn remote_interface(&self, link: LinkId) -> &str {
        &self.remote_interface[link.ix()]
    }

    /// Round-trip time, microseconds.
    pub fn rtt_us(&self, link: LinkId) -> u32 {
        self.rtt_us[link.ix()]
    }

    /// Capacity, bit/s.
    pub fn capacity_bps(&self, link: LinkId) -> u64 {
        self.capacity_bps[link.ix()]
    }

    /// Drain state; a link whose opposite direction is hard-drained is hard-drained too.
    pub fn drain(&self, link: LinkId) -> Drain {
        match self.reverse(link).map(|r| self.drain[r.ix()]) {
            Some(Drain::Hard) => Drain::Hard,
            _ => self.drain[link.ix()],
        }
    }

    /// Opposite direction of the same physical link.
    pub fn reverse(&self, link: LinkId) -> Option<LinkId> {
        self.reverse[link.ix()]
    }

    /// Number of the physical link, below [`Self::physical_count`].
    pub fn physical(&self, link: LinkId) -> usize {
        self.physical[link.ix()] as usize
    }

    /// Shared-risk groups of a link, as numbers, ascending.
    pub fn srlgs(&self, link: LinkId) -> &[u32] {
        &self.srlg_of[self.srlg_first[link.ix()] as usize..self.srlg_first[link.ix() + 1] as usize]
    }

    /// Members of a shared-risk group.
    pub fn srlg_links(&self, srlg: u32) -> &[LinkId] {
        &self.srlg_links[srlg as usize]
    }

    /// Names of shared-risk groups, by number.
    pub fn srlg_names(&self) -> &[String] {
        &self.srlg_names
    }

    /// Round-trip time of a path, microseconds.
    pub fn path_rtt_us(&self, path: &[LinkId]) -> u64 {
        path.iter().map(|&l| u64::from(self.rtt_us(l))).sum()
    }
}

/// Numbers physical links in the order of their lower link index.
fn number_physical(reverse: &[Option<LinkId>]) -> (Vec<u32>, usize) {
    let mut physical = vec![0u32; reverse.len()];
    let mut next = 0u32;
    for (i, back) in reverse.iter().enumerate() {
        match back {
            Some(r) if r.ix() < i => physical[i] = physical[r.ix()],
            _ => {
                physical[i] = next;
                next += 1;
            }
        }
    }
    (physical, next as usize)
}

/// Shared-risk groups both ways round.
struct Srlgs {
    names: Vec<String>,
    first: Vec<u32>,
    of: Vec<u32>,
    links: Vec<Vec<LinkId>>,
}

impl Srlgs {
    fn collect(links: &[LinkSpec]) -> Self {
        let numbers: BTreeMap<&str, u32> = links
            .iter()
            .flat_map(|l| l.srlgs.iter().map(String::as_str))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .zip(0u32..)
            .collect();
        let mut first = vec![0u32];
        let mut of: Vec<u32> = Vec::new();
        let mut members = vec![Vec::new(); numbers.len()];
        let mut end = 0u32;
        for (l, id) in links.iter().zip(0u32..) {
            let mut own: Vec<u32> = l.srlgs.iter().filter_map(|s| numbers.get(s.as_str()).copied()).collect();
            own.sort_unstable();
            own.dedup();
            for &s in &own {
                members[s as usize].push(LinkId(id));
                end += 1;
            }
            of.extend(own);
            first.push(end);
        }
        Self { names: numbers.keys().map(|&n| n.to_owned()).collect(), first, of, links: members }
    }
}

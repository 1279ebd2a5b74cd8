//! The core of the lsp-agent: bundles and events in, kernel writes out. No input or output of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::bundle::{Active, Bundle, Role, Router};
use super::links::{Advertised, Endpoint, Links};
use super::state::{Known, Op, Plan, Want};
use crate::label::{Nexthop, Sid};
use crate::openr::flare::Flare;
use crate::proto;

/// What a look at the kernel finds.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Interfaces by name: index, and whether the interface is up with a carrier.
    pub interfaces: BTreeMap<String, (u32, bool)>,
    /// Our objects.
    pub known: Known,
}

/// What became of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// Name.
    pub interface: String,
    /// Index.
    pub ifindex: u32,
    /// What happened.
    pub state: LinkState,
}

/// State of an interface after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Administratively up, with a carrier.
    Up,
    /// Administratively down, or without a carrier.
    Down,
    /// Removed.
    Gone,
}

/// The answer to link events: what to write, and whom it concerns.
#[derive(Debug, Default)]
pub struct Repair {
    /// Writes.
    pub plan: Plan,
    /// Keys of the bundles that use a changed link.
    pub bundles: Vec<u32>,
    /// Endpoints that changed, in order of arrival.
    pub changed: Vec<Endpoint>,
}

/// State of one router's label switching.
#[derive(Debug)]
pub struct Engine {
    router: Router,
    links: Links,
    bundles: BTreeMap<u32, Bundle>,
    /// Keys of the bundles with a path over an endpoint, by endpoint.
    users: Vec<BTreeSet<u32>>,
    known: Known,
    epoch: u64,
    changed: Vec<Endpoint>,
}

impl Engine {
    /// A router without bundles.
    pub fn new(router: Router) -> Self {
        Self {
            router,
            links: Links::default(),
            bundles: BTreeMap::new(),
            users: Vec::new(),
            known: Known::default(),
            epoch: 0,
            changed: Vec::new(),
        }
    }

    /// The router.
    pub const fn router(&self) -> &Router {
        &self.router
    }

    /// The links.
    pub const fn links(&self) -> &Links {
        &self.links
    }

    /// The links, to restore what a journal says.
    pub const fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// What the kernel holds as far as known.
    pub const fn known(&self) -> &Known {
        &self.known
    }

    /// Bundles by key.
    pub const fn bundles(&self) -> &BTreeMap<u32, Bundle> {
        &self.bundles
    }

    /// Highest epoch seen.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Checks a writer's epoch; true if it is higher than all before and has to be remembered.
    ///
    /// # Errors
    /// The highest epoch seen, if the writer's is lower: somebody else leads now.
    pub const fn fence(&mut self, epoch: u64) -> Result<bool, u64> {
        if epoch < self.epoch {
            return Err(self.epoch);
        }
        let higher = epoch > self.epoch;
        self.epoch = epoch;
        Ok(higher)
    }

    /// Works out this router's part of a bundle without keeping it.
    ///
    /// # Errors
    /// Why the bundle cannot be, as a sentence.
    pub fn compile(&mut self, wire: proto::Bundle) -> Result<Bundle, String> {
        Bundle::compile(wire, &self.router, &mut self.links)
    }

    /// Takes up a bundle and returns the one whose place it takes. A bundle without a role here is not kept.
    pub fn put(&mut self, bundle: Bundle) -> Option<Bundle> {
        let before = self.remove(bundle.key());
        if bundle.role != Role::None {
            let key = bundle.key();
            for endpoint in bundle.endpoints().filter_map(|e| usize::try_from(e).ok()) {
                if self.users.len() <= endpoint {
                    self.users.resize_with(endpoint + 1, BTreeSet::new);
                }
                if let Some(users) = self.users.get_mut(endpoint) {
                    users.insert(key);
                }
            }
            self.bundles.insert(key, bundle);
        }
        before
    }

    /// Forgets a bundle.
    pub fn remove(&mut self, key: u32) -> Option<Bundle> {
        let bundle = self.bundles.remove(&key)?;
        for endpoint in bundle.endpoints().filter_map(|e| usize::try_from(e).ok()) {
            if let Some(users) = self.users.get_mut(endpoint) {
                users.remove(&key);
            }
        }
        Some(bundle)
    }

    /// The live bundle of a destination and mesh at this source.
    pub fn live(&self, sid: Sid) -> Option<&Bundle> {
        self.bundles
            .get(&Nexthop::Group { dst: sid.dst, mesh: sid.mesh }.id())
            .filter(|b| b.sid.src == sid.src)
    }

    /// Sets the paths in use of a bundle, as a journal remembers them.
    pub fn resume(&mut self, key: u32, active: &[Active]) {
        if let Some(bundle) = self.bundles.get_mut(&key)
            && bundle.active.len() == active.len()
        {
            bundle.active.copy_from_slice(active);
            bundle.choose(&self.links);
        }
    }

    /// Adds to `plan` what a bundle needs; for a key without a bundle, what has to go.
    pub fn plan(&self, key: u32, plan: &mut Plan) {
        plan.add(self.want(key), &self.known);
    }

    fn want(&self, key: u32) -> Want {
        match self.bundles.get(&key) {
            Some(bundle) => bundle.want(&self.router, &self.links),
            None if Sid::decode(key).is_some() => Want::Transit { label: key, exits: Vec::new() },
            None => Want::Source { group: key, members: Vec::new() },
        }
    }

    /// Takes a router's advertised adjacencies; none if the router is gone.
    pub fn advertised<'a, A: Into<Advertised<'a>>>(
        &mut self,
        node: &str,
        adjacencies: impl IntoIterator<Item = A>,
    ) {
        self.links.advertise(node, adjacencies, &mut self.changed);
    }

    /// Takes the notice of a lost link that runs ahead of the advertisement.
    pub fn flare(&mut self, flare: &Flare) {
        self.links.flare(&flare.router, &flare.interface, flare.lost_ns, &mut self.changed);
    }

    /// Takes an event of an own interface. Interfaces that are not in the configuration are ignored.
    pub fn interface(&mut self, event: &LinkEvent) {
        let Some(own) = self.router.interfaces.iter_mut().find(|i| i.name == event.interface) else { return };
        let moved = own.ifindex != event.ifindex;
        if moved && own.ifindex != 0 {
            self.known.forget_removed_interface(own.ifindex);
        }
        match event.state {
            LinkState::Up => own.ifindex = event.ifindex,
            LinkState::Down => {
                own.ifindex = event.ifindex;
                self.known.forget_interface(event.ifindex);
            }
            LinkState::Gone => {
                own.ifindex = 0;
                self.known.forget_removed_interface(event.ifindex);
            }
        }
        let up = event.state == LinkState::Up;
        let before = self.changed.len();
        self.links.set_carrier(&self.router.node, &event.interface, up, &mut self.changed);
        if self.changed.len() == before && (moved || !up) {
            // no change of state, but the kernel has dropped objects: look at the users all the same
            let id = self.links.endpoint(&self.router.node, &event.interface);
            self.changed.push(id);
        }
    }

    /// Whether link events wait for an answer.
    pub const fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Answers all link events since the last call: every bundle on a changed link chooses again. After first aid, SID
    /// routes come first (others' traffic), then groups by importance of their mesh.
    pub fn repair(&mut self) -> Repair {
        let changed = std::mem::take(&mut self.changed);
        let users = changed.iter().filter_map(|&e| self.users.get(usize::try_from(e).ok()?)).flatten();
        let mut keys: Vec<u32> = users.copied().collect();
        keys.sort_unstable_by_key(|&key| (rank(key), key));
        keys.dedup();
        let mut plan = Plan::default();
        for key in &keys {
            if let Some(bundle) = self.bundles.get_mut(key) {
                bundle.choose(&self.links);
            }
            let want = self.want(*key);
            plan.divert(&want, &self.known);
            plan.add(want, &self.known);
        }
        Repair { plan, bundles: keys, changed }
    }

    /// Compares everything wanted with what the kernel was found to hold. Objects of ours that nobody wants go.
    pub fn reconcile(&mut self, snapshot: Snapshot) -> Plan {
        let mut changed = Vec::new();
        for own in &mut self.router.interfaces {
            let (ifindex, up) = snapshot.interfaces.get(&own.name).copied().unwrap_or((0, false));
            own.ifindex = ifindex;
            self.links.set_carrier(&self.router.node, &own.name, up, &mut changed);
        }
        self.changed.clear();
        self.known = snapshot.known;
        let mut keys: Vec<u32> = self.bundles.keys().copied().collect();
        keys.extend(self.known.sids.keys());
        keys.extend(self.known.groups.keys());
        keys.extend(self.known.members.keys().map(|id| id & !0xff));
        keys.sort_unstable_by_key(|&key| (rank(key), key));
        keys.dedup();
        let mut plan = Plan::default();
        for bundle in self.bundles.values_mut() {
            bundle.choose(&self.links);
        }
        for key in keys {
            self.plan(key, &mut plan);
        }
        plan
    }

    /// Takes note of a write that the kernel carried out.
    pub fn written(&mut self, op: &Op) {
        self.known.apply(op);
    }
}

/// Order of repair: SID routes, then gold, silver, bronze.
pub(super) fn rank(key: u32) -> u32 {
    match Nexthop::decode(key) {
        Some(Nexthop::Group { mesh, .. } | Nexthop::Member { mesh, .. }) => match mesh.code() {
            0 => 4,
            1 => 3,
            2 => 1,
            _ => 2,
        },
        None => 0,
    }
}

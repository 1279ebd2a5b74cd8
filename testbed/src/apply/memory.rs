//! A kernel in memory: the same rules as Linux where a plan can break them, without Linux.

use std::collections::{BTreeMap, BTreeSet};

use rtnl::KernelError;

use super::{ApplyError, Kernel, Progress, Scope};
use crate::plan::{Action, Change, EndSpec, Interface, Node, Plan, State};

/// The setting that sizes a label table.
const PLATFORM_LABELS: &str = "net.mpls.platform_labels";
/// Longest interface name.
const MAX_NAME: usize = 15;

/// A kernel in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryKernel {
    /// What is there of the lab.
    pub state: State,
    /// Names of namespaces that belong to somebody else.
    pub foreign: BTreeSet<String>,
}

impl MemoryKernel {
    /// An empty kernel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Carries out one change or refuses it as Linux would.
    fn change(&mut self, change: &Change) -> Result<(), KernelError> {
        let refuse = |errno: i32| KernelError { errno, text: None, doing: change.to_string() };
        match change {
            Change::CreateNamespace { node } => {
                if self.foreign.contains(node) || self.state.nodes.contains_key(node) {
                    return Err(refuse(libc::EEXIST));
                }
                self.state.nodes.insert(node.clone(), Node { loopback: true, ..Node::default() });
                Ok(())
            }
            Change::RemoveNamespace { node } => {
                let removed = self.state.nodes.remove(node).ok_or_else(|| refuse(libc::ENOENT))?;
                let ends: BTreeSet<u32> = removed.interfaces.values().map(|i| i.ifindex).collect();
                self.drop_ends(|i| ends.contains(&i.peer_ifindex));
                self.drop_bare();
                Ok(())
            }
            Change::CreateLink { a, b } => self.create_link(a, b).map_err(refuse),
            Change::CreateBond { end } => self.create_bond(end).map_err(refuse),
            Change::CreateMacsec { end, over } => self.create_macsec(end, *over).map_err(refuse),
            Change::RemoveLink { node, ifindex, .. } => {
                let there = self.state.nodes.get(node).is_some_and(|n| interface_at(n, *ifindex).is_some());
                if !there {
                    return Err(refuse(libc::ENODEV));
                }
                self.drop_ends(|i| i.ifindex == *ifindex || i.peer_ifindex == *ifindex);
                self.drop_bare();
                let interfaces =
                    self.state.nodes.get_mut(node).into_iter().flat_map(|n| n.interfaces.values_mut());
                for member in interfaces.filter(|i| i.master == Some(*ifindex)) {
                    member.master = None;
                }
                Ok(())
            }
            _ => {
                let node = self.state.nodes.get_mut(change.node()).ok_or_else(|| refuse(libc::ENOENT))?;
                change_node(node, change).map_err(refuse)
            }
        }
    }

    /// Whether an interface can be created: its place is there and free, its name and index are possible.
    fn check_new(&self, end: &EndSpec) -> Result<(), i32> {
        let node = self.state.nodes.get(&end.node).ok_or(libc::EINVAL)?;
        let taken = node.interfaces.contains_key(&end.interface) || interface_at(node, end.ifindex).is_some();
        if taken || end.interface == "lo" {
            return Err(libc::EEXIST);
        }
        if end.interface.is_empty() || end.interface.len() > MAX_NAME || end.ifindex == 0 {
            return Err(libc::EINVAL);
        }
        Ok(())
    }

    /// Creates both ends, or neither.
    fn create_link(&mut self, a: &EndSpec, b: &EndSpec) -> Result<(), i32> {
        self.check_new(a)?;
        self.check_new(b)?;
        if a.node == b.node && a.interface == b.interface {
            return Err(libc::EEXIST);
        }
        self.insert(a, Some(b));
        self.insert(b, Some(a));
        Ok(())
    }

    /// Creates a bond.
    fn create_bond(&mut self, end: &EndSpec) -> Result<(), i32> {
        self.check_new(end)?;
        self.insert(end, None);
        Ok(())
    }

    /// Creates a MACsec interface on one that is there and leaves room for what it adds.
    fn create_macsec(&mut self, end: &EndSpec, over: u32) -> Result<(), i32> {
        self.check_new(end)?;
        let node = self.state.nodes.get_mut(&end.node).ok_or(libc::EINVAL)?;
        let below = interface_at(node, over).ok_or(libc::ENODEV)?;
        if below.mtu < end.mtu + rtnl::macsec::OVERHEAD {
            return Err(libc::ERANGE);
        }
        self.insert(end, None);
        let made = self.state.nodes.get_mut(&end.node).and_then(|n| n.interfaces.get_mut(&end.interface));
        if let Some(made) = made {
            (made.bond, made.over) = (false, Some(over));
        }
        Ok(())
    }

    /// Removes MACsec interfaces that have lost what they sat on.
    fn drop_bare(&mut self) {
        let there: BTreeSet<u32> =
            self.state.nodes.values().flat_map(|n| n.interfaces.values().map(|i| i.ifindex)).collect();
        self.drop_ends(|i| i.over.is_some_and(|wire| !there.contains(&wire)));
    }

    /// Puts a new interface in its place; without a peer it is a bond.
    fn insert(&mut self, end: &EndSpec, peer: Option<&EndSpec>) {
        let interface = Interface {
            ifindex: end.ifindex,
            peer_ifindex: peer.map_or(0, |peer| peer.ifindex),
            over: None,
            bond: peer.is_none(),
            master: None,
            mac: end.mac,
            mtu: end.mtu,
            marked: true,
            up: false,
            addresses: BTreeSet::new(),
            neighbours: BTreeMap::new(),
            mpls_input: false,
            queue: None,
        };
        if let Some(node) = self.state.nodes.get_mut(&end.node) {
            node.interfaces.insert(end.interface.clone(), interface);
        }
    }

    /// Removes interfaces, with the routes and labels over them.
    fn drop_ends(&mut self, goes: impl Fn(&Interface) -> bool) {
        for node in self.state.nodes.values_mut() {
            node.interfaces.retain(|_, interface| !goes(interface));
            let interfaces = &node.interfaces;
            node.routes.retain(|r| r.interface == "lo" || interfaces.contains_key(&r.interface));
            node.labels.retain(|_, r| interfaces.contains_key(&r.interface));
        }
    }
}

/// The interface of an index.
fn interface_at(node: &Node, ifindex: u32) -> Option<&Interface> {
    node.interfaces.values().find(|i| i.ifindex == ifindex)
}

/// A change within one namespace; the error is an errno.
fn change_node(node: &mut Node, change: &Change) -> Result<(), i32> {
    match change {
        Change::RepairLoopback { .. } => node.loopback = true,
        Change::SetSysctl { key, value, .. } => {
            node.sysctls.insert(key.clone(), value.clone());
        }
        Change::SetLabelTable { size, .. } => {
            let limit: u32 = size.parse().map_err(|_| libc::EINVAL)?;
            node.sysctls.insert(PLATFORM_LABELS.to_owned(), size.clone());
            node.labels.retain(|label, _| *label < limit);
        }
        Change::RemoveLabel { label, .. } => {
            node.labels.remove(label).ok_or(libc::ESRCH)?;
        }
        Change::SetLabel { label, route, ifindex, .. } => {
            let size = node.sysctls.get(PLATFORM_LABELS).and_then(|v| v.parse().ok()).unwrap_or(0u32);
            if *label < 16 || *label >= size {
                return Err(libc::EINVAL);
            }
            let input = interface_at(node, *ifindex).ok_or(libc::ENODEV)?.mpls_input;
            if !input {
                return Err(libc::EINVAL);
            }
            node.labels.insert(*label, route.clone());
        }
        Change::Wipe { .. } => {
            if node.is_alive() {
                return Err(libc::EBUSY);
            }
            node.blank = true;
        }
        Change::SetFilters { filters, .. } => node.filters.clone_from(filters),
        Change::AddRoute { route, ifindex, .. } => {
            if *ifindex != 1 && !interface_at(node, *ifindex).ok_or(libc::ENODEV)?.up {
                return Err(libc::ENETDOWN);
            }
            if !node.routes.insert(route.clone()) {
                return Err(libc::EEXIST);
            }
        }
        Change::RemoveRoute { route, .. } => {
            if !node.routes.remove(route) {
                return Err(libc::ESRCH);
            }
        }
        Change::AddAddress { ifindex: 1, address, .. } => {
            node.addresses.insert(*address);
        }
        Change::RemoveAddress { ifindex: 1, address, .. } => {
            if !node.addresses.remove(address) {
                return Err(libc::EADDRNOTAVAIL);
            }
        }
        other => {
            change_interface(node, other)?;
            // whoever has an interface may have programs
            node.blank &= !node.is_alive();
        }
    }
    Ok(())
}

/// A change of one interface.
fn change_interface(node: &mut Node, change: &Change) -> Result<(), i32> {
    let (Change::JoinBond { interface, .. }
    | Change::RemoveNeighbour { interface, .. }
    | Change::RemoveAddress { interface, .. }
    | Change::RemoveQueue { interface, .. }
    | Change::LinkDown { interface, .. }
    | Change::MarkLink { interface, .. }
    | Change::SetMtu { interface, .. }
    | Change::LinkUp { interface, .. }
    | Change::AddAddress { interface, .. }
    | Change::SetNeighbour { interface, .. }
    | Change::SetQueue { interface, .. }
    | Change::SetMplsInput { interface, .. }) = change
    else {
        return Err(libc::EINVAL);
    };
    let name = interface.clone();
    if let Change::JoinBond { bond, .. } = change
        && !interface_at(node, *bond).ok_or(libc::ENODEV)?.bond
    {
        return Err(libc::EOPNOTSUPP);
    }
    let over = node.interfaces.get(&name).and_then(|i| i.over);
    // one that joins to be down has its wire up meanwhile, if the change says what that is
    let needs_wire = match change {
        Change::LinkUp { .. } => true,
        Change::JoinBond { over: told, up, .. } => *up || *told != over,
        _ => false,
    };
    if let (true, Some(wire)) = (needs_wire, over)
        && !interface_at(node, wire).ok_or(libc::ENODEV)?.up
    {
        return Err(libc::ENETDOWN);
    }
    let state = node.interfaces.get_mut(&name).ok_or(libc::ENODEV)?;
    match change {
        // a member has no addresses of its own: Linux would not let the bond's peer answer them
        Change::AddAddress { .. } if state.master.is_some() => return Err(libc::EINVAL),
        Change::JoinBond { bond, up, .. } => {
            state.master = Some(*bond);
            state.marked = true;
            state.up = *up;
        }
        Change::RemoveNeighbour { ip, .. } => {
            state.neighbours.remove(ip).ok_or(libc::ENOENT)?;
        }
        Change::SetNeighbour { ip, mac, .. } => {
            if !state.up {
                return Err(libc::ENETDOWN);
            }
            state.neighbours.insert(*ip, *mac);
        }
        Change::RemoveAddress { address, .. } if !state.addresses.remove(address) => {
            return Err(libc::EADDRNOTAVAIL);
        }
        Change::AddAddress { address, .. } => {
            state.addresses.insert(*address);
        }
        Change::RemoveQueue { .. } => {
            state.queue.take().ok_or(libc::ENOENT)?;
        }
        Change::SetQueue { to, .. } => {
            let kept = state.queue.and_then(|old| old.changed_to(to));
            state.queue = Some(kept.unwrap_or(*to));
        }
        Change::MarkLink { .. } => state.marked = true,
        Change::SetMtu { mtu, .. } => state.mtu = *mtu,
        Change::LinkUp { .. } => state.up = true,
        Change::SetMplsInput { on, .. } => state.mpls_input = *on,
        Change::LinkDown { .. } => {
            state.up = false;
            state.neighbours.clear();
            state.addresses.retain(|a| !a.addr().is_unicast_link_local());
            node.routes.retain(|route| route.interface != name);
        }
        _ => {}
    }
    Ok(())
}

impl Kernel for MemoryKernel {
    fn observe(&mut self, scope: &Scope) -> Result<State, ApplyError> {
        let nodes = self.state.nodes.iter().filter(|(name, _)| scope.contains(name));
        Ok(State { nodes: nodes.map(|(name, node)| (name.clone(), node.clone())).collect() })
    }

    fn apply(&mut self, plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<(), ApplyError> {
        let total = plan.actions.len();
        let mut done = 0;
        for step in plan.actions.chunk_by(|a, b| a.change.phase() == b.change.phase()) {
            let next = step.first().map_or("", |a| a.change.phase().title());
            progress(Progress { done, total, next });
            let failed: Vec<(&Action, KernelError)> =
                step.iter().filter_map(|a| Some((a, self.change(&a.change).err()?))).collect();
            if let Some((action, source)) = failed.first() {
                let (action, source) = (Some(Box::new((*action).clone())), source.clone());
                return Err(ApplyError { action, source, others: failed.len() - 1 });
            }
            done += step.len();
        }
        progress(Progress { done, total, next: "" });
        Ok(())
    }
}

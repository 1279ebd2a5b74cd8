//! The comparison of two states.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, Change, EndSpec};
use super::desired::PLATFORM_LABELS;
use super::display::Plan;
use super::state::{Interface, Node, State};

/// Index of `lo` in every namespace.
const LO: u32 = 1;

/// The actions that turn `observed` into `desired`, in order; none if they agree.
///
/// An interface is kept if its index, hardware address and other end are as wanted; else its link is removed and
/// made anew. What the kernel drops by itself with a removed or downed interface is not removed one by one.
pub fn diff(desired: &State, observed: &State) -> Plan {
    let mut diff = Diff { desired, observed, fresh: false, actions: Vec::new() };
    let base = diff.links_and_namespaces();
    for (name, wanted) in &desired.nodes {
        let empty = Node::default();
        diff.node(name, wanted, base.nodes.get(name).unwrap_or(&empty));
    }
    diff.actions.sort_by_key(|action| action.change.phase()); // stable: by node within a phase
    Plan { actions: diff.actions }
}

/// The comparison under way.
struct Diff<'a> {
    desired: &'a State,
    observed: &'a State,
    /// Whether what is being compared is created by this plan.
    fresh: bool,
    actions: Vec<Action>,
}

impl Diff<'_> {
    /// Notes an action.
    fn push(&mut self, change: Change, reason: impl Into<String>) {
        self.actions.push(Action { change, reason: reason.into(), fresh: self.fresh });
    }

    /// Namespaces and links that come and go. Returns what will be there of the observed state after the
    /// removals: the base against which the rest is compared.
    fn links_and_namespaces(&mut self) -> State {
        let (desired, observed) = (self.desired, self.observed);
        for name in desired.nodes.keys().filter(|n| !observed.nodes.contains_key(*n)) {
            self.push(Change::CreateNamespace { node: name.clone() }, "in the lab, not on the machine");
        }
        for name in observed.nodes.keys().filter(|n| !desired.nodes.contains_key(*n)) {
            self.push(Change::RemoveNamespace { node: name.clone() }, "no longer in the lab");
        }
        let gone = self.removed_links();
        let mut base = State::default();
        for (name, node) in observed.nodes.iter().filter(|(n, _)| desired.nodes.contains_key(*n)) {
            base.nodes.insert(name.clone(), without(node, &gone));
        }
        self.created_links(&base);
        base
    }

    /// Links that go, removed by one end each; returns the indexes of both ends of all of them. A link between two
    /// namespaces that go needs no action: it goes with them, and much faster.
    fn removed_links(&mut self) -> BTreeSet<u32> {
        let (desired, observed) = (self.desired, self.observed);
        let places = observed.places();
        let mut gone = BTreeSet::new();
        for (name, node) in &observed.nodes {
            let stays = desired.nodes.contains_key(name);
            for (interface, found) in &node.interfaces {
                // goes with what it sits on, which comes before it in order of name
                if found.over.is_some_and(|wire| gone.contains(&wire)) {
                    gone.insert(found.ifindex);
                    continue;
                }
                let wanted = desired.nodes.get(name).and_then(|n| n.interfaces.get(interface));
                let Some(reason) = why_removed(wanted, found) else { continue };
                let peer = places.get(&found.peer_ifindex);
                let pair = !found.bond && found.over.is_none();
                let peer_stays = pair && peer.is_none_or(|(node, _)| desired.nodes.contains_key(*node));
                let fresh = !gone.contains(&found.ifindex);
                gone.insert(found.ifindex);
                gone.extend(pair.then_some(found.peer_ifindex));
                if fresh && (stays || peer_stays) {
                    let (node, interface, ifindex) = (name.clone(), interface.clone(), found.ifindex);
                    self.push(Change::RemoveLink { node, interface, ifindex }, reason);
                }
            }
        }
        // a pair that goes by its later end takes what sits on the earlier one along
        let all = observed.nodes.values().flat_map(|node| node.interfaces.values());
        let along: Vec<u32> =
            all.filter(|i| i.over.is_some_and(|wire| gone.contains(&wire))).map(|i| i.ifindex).collect();
        gone.extend(along);
        gone
    }

    /// Links that come: wanted interfaces that the base does not have, one action a pair, and bonds.
    fn created_links(&mut self, base: &State) {
        let desired = self.desired;
        let places = desired.places();
        let spec = |node: &str, name: &str, i: &Interface| EndSpec {
            node: node.to_owned(),
            interface: name.to_owned(),
            ifindex: i.ifindex,
            mac: i.mac,
            mtu: i.mtu,
        };
        for (node, state) in &desired.nodes {
            let there = base.nodes.get(node);
            for (name, wanted) in &state.interfaces {
                if wanted.bond && there.is_none_or(|n| !n.interfaces.contains_key(name)) {
                    let end = spec(node, name, wanted);
                    self.push(Change::CreateBond { end }, "in the lab, not on the machine");
                }
                if let Some(over) =
                    wanted.over.filter(|_| there.is_none_or(|n| !n.interfaces.contains_key(name)))
                {
                    let end = spec(node, name, wanted);
                    self.push(Change::CreateMacsec { end, over }, "in the lab, not on the machine");
                }
                // Each pair once: from the end that comes first by name.
                let Some((peer_node, peer_name)) = places.get(&wanted.peer_ifindex).copied() else {
                    continue;
                };
                let first = (node.as_str(), name.as_str()) < (peer_node, peer_name);
                if !first || there.is_some_and(|n| n.interfaces.contains_key(name)) {
                    continue;
                }
                let peer = desired.nodes.get(peer_node).and_then(|n| n.interfaces.get(peer_name));
                if let Some(peer) = peer {
                    let (a, b) = (spec(node, name, wanted), spec(peer_node, peer_name, peer));
                    self.push(Change::CreateLink { a, b }, "in the lab, not on the machine");
                }
            }
        }
    }

    /// Everything within one wanted namespace.
    fn node(&mut self, name: &str, wanted: &Node, found: &Node) {
        let fresh = !self.observed.nodes.contains_key(name);
        if !fresh && wanted.loopback && !found.loopback {
            self.push(Change::RepairLoopback { node: name.to_owned() }, "down or without the owner's mark");
        }
        self.fresh = fresh;
        self.sysctls(name, wanted, found);
        self.addresses(name, "lo", LO, &wanted.addresses, &found.addresses, true);
        for (interface, state) in &wanted.interfaces {
            let there = found.interfaces.get(interface);
            self.fresh = there.is_none();
            self.interface(name, interface, state, there);
        }
        self.fresh = fresh;
        self.routes(name, wanted, found);
        self.labels(name, wanted, found);
        self.power(name, wanted, found);
        self.fresh = false;
    }

    /// What a loss of power takes; filters.
    fn power(&mut self, name: &str, wanted: &Node, found: &Node) {
        if wanted.blank && !found.blank {
            self.push(Change::Wipe { node: name.to_owned() }, "the node has crashed");
        }
        if wanted.filters != found.filters {
            let change = Change::SetFilters { node: name.to_owned(), filters: wanted.filters.clone() };
            self.push(change, format!("there are {}", found.filters.len()));
        }
    }

    /// Settings; the label table has a phase of its own.
    fn sysctls(&mut self, name: &str, wanted: &Node, found: &Node) {
        for (key, value) in &wanted.sysctls {
            let there = found.sysctls.get(key);
            if there == Some(value) {
                continue;
            }
            let reason = there.map_or_else(|| "wanted".to_owned(), |old| format!("it is {old}"));
            let node = name.to_owned();
            let change = if key == PLATFORM_LABELS {
                Change::SetLabelTable { node, size: value.clone() }
            } else {
                Change::SetSysctl { node, key: key.clone(), value: value.clone() }
            };
            self.push(change, reason);
        }
    }

    /// Addresses of an interface; `up` is false if it is about to go down, which drops some by itself.
    fn addresses(
        &mut self,
        node: &str,
        interface: &str,
        ifindex: u32,
        wanted: &BTreeSet<ipnet::Ipv6Net>,
        found: &BTreeSet<ipnet::Ipv6Net>,
        up: bool,
    ) {
        let place = || (node.to_owned(), interface.to_owned());
        for address in found.difference(wanted).filter(|a| up || !a.addr().is_unicast_link_local()) {
            let (node, interface) = place();
            let change = Change::RemoveAddress { node, interface, ifindex, address: *address };
            self.push(change, "no longer in the lab");
        }
        for address in wanted.difference(found) {
            let (node, interface) = place();
            self.push(Change::AddAddress { node, interface, ifindex, address: *address }, "missing");
        }
    }

    /// One wanted interface; `found` is `None` if its link is about to be created.
    fn interface(&mut self, node: &str, name: &str, wanted: &Interface, found: Option<&Interface>) {
        let fresh = fresh_interface(wanted);
        let old = found.unwrap_or(&fresh);
        let ifindex = wanted.ifindex;
        let place = || (node.to_owned(), name.to_owned());
        if !old.marked && wanted.marked && wanted.master == old.master {
            let (node, interface) = place();
            self.push(Change::MarkLink { node, interface, ifindex }, "without the owner's mark");
        }
        if old.mtu != wanted.mtu {
            let (node, interface) = place();
            let change = Change::SetMtu { node, interface, ifindex, mtu: wanted.mtu };
            self.push(change, format!("it is {}", old.mtu));
        }
        let joins = wanted.master.filter(|_| old.master != wanted.master);
        if let Some(bond) = joins {
            let (node, interface) = place();
            let reason = if found.is_some() { "it is member of none, or of another" } else { "new" };
            self.push(
                Change::JoinBond { node, interface, ifindex, bond, over: wanted.over, up: wanted.up },
                reason,
            );
        } else if old.up != wanted.up {
            let (node, interface) = place();
            if wanted.up {
                let reason = if found.is_some() { "it is down" } else { "new" };
                self.push(Change::LinkUp { node, interface, ifindex }, reason);
            } else {
                self.push(Change::LinkDown { node, interface, ifindex }, "the link is cut");
            }
        }
        let going_down = old.up && !wanted.up && joins.is_none();
        self.addresses(node, name, ifindex, &wanted.addresses, &old.addresses, !going_down);
        self.neighbours(node, name, wanted, old, going_down);
        self.queue(node, name, wanted, old);
        if old.mpls_input != wanted.mpls_input {
            let (node, interface) = place();
            let on = wanted.mpls_input;
            self.push(
                Change::SetMplsInput { node, interface, on },
                if on { "a core interface" } else { "not core" },
            );
        }
    }

    /// Permanent neighbours of an interface.
    fn neighbours(&mut self, node: &str, name: &str, wanted: &Interface, old: &Interface, going_down: bool) {
        let (ifindex, place) = (wanted.ifindex, || (node.to_owned(), name.to_owned()));
        for ip in old.neighbours.keys().filter(|ip| !going_down && !wanted.neighbours.contains_key(*ip)) {
            let (node, interface) = place();
            let change = Change::RemoveNeighbour { node, interface, ifindex, ip: *ip };
            self.push(change, "no longer in the lab");
        }
        for (ip, mac) in wanted.neighbours.iter().filter(|(ip, mac)| old.neighbours.get(*ip) != Some(*mac)) {
            let (node, interface) = place();
            let reason =
                old.neighbours.get(ip).map_or_else(|| "missing".to_owned(), |m| format!("it is {m}"));
            self.push(Change::SetNeighbour { node, interface, ifindex, ip: *ip, mac: *mac }, reason);
        }
    }

    /// The queues of an interface.
    fn queue(&mut self, node: &str, name: &str, wanted: &Interface, old: &Interface) {
        let (node, interface, ifindex) = (node.to_owned(), name.to_owned(), wanted.ifindex);
        match (old.queue, wanted.queue) {
            (from, Some(to)) if from.is_none_or(|from| !from.serves(&to)) => {
                let reason = from.map_or_else(|| "missing".to_owned(), |q| format!("it is {q}"));
                self.push(Change::SetQueue { node, interface, ifindex, mtu: wanted.mtu, from, to }, reason);
            }
            (Some(_), None) => {
                self.push(Change::RemoveQueue { node, interface, ifindex }, "no longer shaped");
            }
            _ => {}
        }
    }

    /// Routes of a namespace.
    fn routes(&mut self, name: &str, wanted: &Node, found: &Node) {
        let index = |node: &Node, interface: &str| match interface {
            "lo" => LO,
            _ => node.interfaces.get(interface).map_or(0, |i| i.ifindex),
        };
        for route in found.routes.difference(&wanted.routes) {
            let over = wanted.interfaces.get(&route.interface);
            let was_up = found.interfaces.get(&route.interface).is_some_and(|i| i.up);
            if was_up && over.is_some_and(|i| !i.up) {
                continue; // goes with the interface
            }
            let ifindex = index(found, &route.interface);
            let change = Change::RemoveRoute { node: name.to_owned(), route: route.clone(), ifindex };
            self.push(change, "no longer in the lab");
        }
        for route in wanted.routes.difference(&found.routes) {
            let ifindex = index(wanted, &route.interface);
            let change = Change::AddRoute { node: name.to_owned(), route: route.clone(), ifindex };
            self.push(change, "missing");
        }
    }

    /// Static labels of a namespace.
    fn labels(&mut self, name: &str, wanted: &Node, found: &Node) {
        for label in found.labels.keys().filter(|label| !wanted.labels.contains_key(*label)) {
            self.push(Change::RemoveLabel { node: name.to_owned(), label: *label }, "no longer in the lab");
        }
        for (label, route) in wanted.labels.iter().filter(|(l, r)| found.labels.get(*l) != Some(*r)) {
            let reason = found.labels.get(label).map_or_else(
                || "missing".to_owned(),
                |old| format!("it leads out of {} via {}", old.interface, old.via),
            );
            let ifindex = wanted.interfaces.get(&route.interface).map_or(0, |i| i.ifindex);
            let (node, label, route) = (name.to_owned(), *label, route.clone());
            self.push(Change::SetLabel { node, label, route, ifindex }, reason);
        }
    }
}

/// Why an observed interface's link has to go; `None` if it stays.
fn why_removed(wanted: Option<&Interface>, found: &Interface) -> Option<String> {
    let Some(wanted) = wanted else { return Some("no longer in the lab".to_owned()) };
    if wanted.bond != found.bond {
        let kind = |bond| if bond { "a bond" } else { "one link" };
        Some(format!("it is {}, wanted {}", kind(found.bond), kind(wanted.bond)))
    } else if found.master.is_some() && wanted.master != found.master {
        Some("it is a member of another bond".to_owned())
    } else if wanted.ifindex != found.ifindex {
        Some(format!("its index is {}, wanted {}", found.ifindex, wanted.ifindex))
    } else if wanted.mac != found.mac {
        Some(format!("its hardware address is {}, wanted {}", found.mac, wanted.mac))
    } else if wanted.over != found.over {
        let how = |over: Option<u32>| {
            over.map_or("not encrypted".to_owned(), |o| format!("encrypted over index {o}"))
        };
        Some(format!("it is {}, wanted {}", how(found.over), how(wanted.over)))
    } else if wanted.peer_ifindex != found.peer_ifindex {
        Some(format!("its other end has index {}, wanted {}", found.peer_ifindex, wanted.peer_ifindex))
    } else {
        None
    }
}

/// An interface as it is right after its creation: named and numbered as wanted, with nothing on it.
fn fresh_interface(wanted: &Interface) -> Interface {
    Interface {
        marked: wanted.up, // bringing it up marks it too
        master: None,
        up: false,
        addresses: BTreeSet::new(),
        neighbours: BTreeMap::new(),
        mpls_input: false,
        queue: None,
        ..wanted.clone()
    }
}

/// A namespace after some links are gone, with what the kernel drops along with them.
fn without(node: &Node, gone: &BTreeSet<u32>) -> Node {
    let mut node = node.clone();
    node.interfaces.retain(|_, interface| !gone.contains(&interface.ifindex));
    for interface in node.interfaces.values_mut() {
        interface.master = interface.master.filter(|bond| !gone.contains(bond));
    }
    let interfaces = &node.interfaces;
    node.routes.retain(|route| route.interface == "lo" || interfaces.contains_key(&route.interface));
    node.labels.retain(|_, route| interfaces.contains_key(&route.interface));
    node
}

//! Carrying out a plan: few, large sends, in an order that no namespace can mind.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rtnl::link::LinkEnd;
use rtnl::route::{Hop, Kind, Route as KernelRoute, Via};
use rtnl::{
    KernelError, Mode, Request, Socket, addr, link, macsec, mpls, neigh, netns, route, socket, sysctl, tc,
};

use super::{Held, LO, LinuxKernel, queue};
use crate::apply::{ApplyError, PROTOCOL, Progress};
use crate::plan::{Action, Change, EndSpec, Phase, Plan, Route};

/// Steps of an execution: phases that no other namespace waits for go out together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Clearing, taking down and removing links.
    Remove,
    /// Removing namespaces.
    RemoveNamespaces,
    /// Creating namespaces and writing settings.
    Namespaces,
    /// Creating links.
    Links,
    /// Everything on interfaces.
    Interfaces,
    /// Label tables and input.
    Mpls,
    /// Labels.
    Labels,
    /// What programs put there.
    Wipe,
    /// Filters of connections.
    Filters,
}

impl Step {
    fn of(phase: Phase) -> Self {
        match phase {
            Phase::Clear | Phase::Down | Phase::RemoveLinks => Self::Remove,
            Phase::RemoveNamespaces => Self::RemoveNamespaces,
            Phase::CreateNamespaces | Phase::Settings => Self::Namespaces,
            Phase::CreateLinks => Self::Links,
            Phase::Links | Phase::Addresses | Phase::Queues => Self::Interfaces,
            Phase::Mpls => Self::Mpls,
            Phase::Labels => Self::Labels,
            Phase::Wipe => Self::Wipe,
            Phase::Filters => Self::Filters,
        }
    }
}

/// Failures of a step, each with the index of its action in the step.
pub(super) type Failures = Vec<(usize, KernelError)>;

impl LinuxKernel {
    /// Carries out a plan.
    pub(super) fn execute(
        &mut self,
        plan: &Plan,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ApplyError> {
        let total = plan.actions.len();
        let mut done = 0;
        let step_of = |action: &Action| Step::of(action.change.phase());
        for actions in plan.actions.chunk_by(|a, b| step_of(a) == step_of(b)) {
            let Some(first) = actions.first() else { continue };
            progress(Progress { done, total, next: first.change.phase().title() });
            let mut failures = match step_of(first) {
                Step::RemoveNamespaces => self.remove_namespaces(actions),
                Step::Namespaces => self.namespaces(actions)?,
                Step::Links => {
                    let mut failures = self.create_links(actions)?;
                    // what sits on a pair comes after it, in its namespace
                    if failures.is_empty() {
                        failures = self.batches(actions)?;
                    }
                    failures
                }
                Step::Mpls => self.settings(actions)?,
                Step::Wipe => self.wipe(actions),
                Step::Filters => self.filters(actions)?,
                Step::Remove | Step::Interfaces | Step::Labels => self.batches(actions)?,
            };
            failures.sort_by_key(|(index, _)| *index);
            if let Some((index, source)) = failures.first() {
                let action = actions.get(*index).cloned().map(Box::new);
                return Err(ApplyError { action, source: source.clone(), others: failures.len() - 1 });
            }
            done += actions.len();
        }
        progress(Progress { done, total, next: "" });
        Ok(())
    }

    /// Takes names away and closes descriptors; the kernel removes the namespaces when nothing uses them.
    fn remove_namespaces(&mut self, actions: &[Action]) -> Failures {
        let mut failures = Failures::new();
        for (index, action) in actions.iter().enumerate() {
            let node = action.change.node();
            self.held.remove(node);
            if let Err(e) = netns::unbind(&self.path(node)) {
                failures.push((index, e));
            }
        }
        failures
    }

    /// Creates namespaces, marks them, names them, and writes the settings of all.
    fn namespaces(&mut self, actions: &[Action]) -> Result<Failures, ApplyError> {
        let mut failures = Failures::new();
        let mut fresh = Vec::new();
        for (index, action) in actions.iter().enumerate() {
            let Change::CreateNamespace { node } = &action.change else { continue };
            // A namespace of that name that we do not hold is somebody else's.
            if netns::open(&self.path(node)).is_ok_and(|fd| netns::is_namespace(&fd)) {
                let text = Some(format!("a namespace of this name does not belong to {}", self.mark));
                let doing = format!("create namespace {node}");
                failures.push((index, KernelError { errno: libc::EEXIST, text, doing }));
            } else {
                fresh.push((index, node.clone()));
            }
        }
        let fds = netns::create_many(fresh.len())?;
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let sockets = netns::tour(&borrowed, |_| Socket::open(socket::ROUTE))?;
        for (((index, node), fd), socket) in fresh.into_iter().zip(fds).zip(sockets) {
            if let Err(e) = self.adopt(&node, fd, socket?) {
                failures.push((index, e));
            }
        }
        failures.extend(self.settings(actions)?);
        Ok(failures)
    }

    /// Marks a new namespace, then gives it its name: a named one is always a marked one.
    fn adopt(&mut self, node: &str, fd: OwnedFd, mut socket: Socket) -> Result<(), KernelError> {
        socket.request(&link::set(LO, &self.marked(Some(true))))?;
        netns::bind(fd.as_fd(), &self.path(node))?;
        self.held.insert(node.to_owned(), Held { fd, socket });
        Ok(())
    }

    /// The change that marks a link and perhaps brings it up.
    fn marked(&self, up: Option<bool>) -> link::Change {
        link::Change { up, alias: Some(self.mark.clone()), ..link::Change::default() }
    }

    /// Writes settings, one visit a namespace, and repairs loopbacks.
    fn settings(&mut self, actions: &[Action]) -> Result<Failures, ApplyError> {
        let mut failures = Failures::new();
        let mut by_node: BTreeMap<&str, Vec<(usize, String, &str)>> = BTreeMap::new();
        for (index, action) in actions.iter().enumerate() {
            let node = action.change.node();
            if let Change::RepairLoopback { .. } = &action.change {
                let request = link::set(LO, &self.marked(Some(true)));
                let result = self.held_mut(node).and_then(|held| held.socket.request(&request));
                failures.extend(result.err().map(|e| (index, e)));
            } else if let Some((key, value)) = setting(&action.change) {
                by_node.entry(node).or_default().push((index, key, value));
            }
        }
        let mut fds = Vec::new();
        let mut work = Vec::new();
        for (node, settings) in &by_node {
            match self.held.get(*node) {
                Some(held) => {
                    fds.push(held.fd.as_fd());
                    work.push(settings);
                }
                None => failures.extend(settings.iter().map(|(index, ..)| (*index, no_namespace(node)))),
            }
        }
        let write = |(index, key, value): &(usize, String, &str)| {
            sysctl::write_here(key, value).err().map(|e| (*index, e))
        };
        let visit =
            |i: usize| work.get(i).into_iter().flat_map(|w| w.iter().filter_map(write)).collect::<Vec<_>>();
        failures.extend(netns::tour(&fds, visit)?.into_iter().flatten());
        Ok(failures)
    }

    /// Creates veth pairs, both ends where they belong, and bonds.
    fn create_links(&mut self, actions: &[Action]) -> Result<Failures, ApplyError> {
        let mut failures = Failures::new();
        let mut requests = Vec::new();
        let mut indexes = Vec::new();
        for (index, action) in actions.iter().enumerate() {
            let request = match &action.change {
                Change::CreateLink { a, b } => {
                    self.end(a).and_then(|a| Ok(link::create_veth(&a, &self.end(b)?)))
                }
                Change::CreateBond { end } => self.end(end).map(|end| link::create_bond(&end)),
                _ => continue,
            };
            match request {
                Ok(request) => {
                    requests.push(request);
                    indexes.push(index);
                }
                Err(e) => failures.push((index, e)),
            }
        }
        let results = self.home.batch(&requests).map_err(|e| KernelError::from_io("create links", &e))?;
        failures.extend(indexes.into_iter().zip(results).filter_map(|(i, r)| Some((i, r.err()?))));
        Ok(failures)
    }

    /// One end of a pair, or a bond, with its namespace.
    fn end<'a>(&'a self, spec: &'a EndSpec) -> Result<LinkEnd<'a>, KernelError> {
        let held = self.held.get(&spec.node).ok_or_else(|| no_namespace(&spec.node))?;
        Ok(LinkEnd {
            netns: held.fd.as_fd(),
            name: &spec.interface,
            ifindex: spec.ifindex,
            mac: spec.mac.0,
            mtu: spec.mtu,
        })
    }

    /// Sends the requests of a step, one batch a namespace.
    fn batches(&mut self, actions: &[Action]) -> Result<Failures, ApplyError> {
        let mut failures = Failures::new();
        let mut by_node: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, action) in actions.iter().enumerate() {
            by_node.entry(action.change.node()).or_default().push(index);
        }
        for (node, indexes) in by_node {
            let mut requests = Vec::new();
            let mut owners = Vec::new();
            for index in indexes {
                let Some(action) = actions.get(index) else { continue };
                let before = requests.len();
                self.requests(&action.change, &mut requests);
                owners.resize(owners.len() + requests.len() - before, index);
            }
            let Ok(held) = self.held_mut(node) else {
                failures.extend(owners.first().map(|index| (*index, no_namespace(node))));
                continue;
            };
            let results = held.socket.batch(&requests).map_err(|e| KernelError::from_io(node, &e))?;
            let failed = owners.iter().zip(results).filter_map(|(index, r)| Some((*index, r.err()?)));
            let mut seen = BTreeSet::new();
            let failed: Failures = failed.filter(|(index, _)| seen.insert(*index)).collect();
            self.discard_half_made_queues(actions, &failed);
            failures.extend(failed);
        }
        Ok(failures)
    }

    /// A queue tree without its classifier would look whole: better none.
    fn discard_half_made_queues(&mut self, actions: &[Action], failed: &Failures) {
        for (index, _) in failed {
            if let Some(Change::SetQueue { node, ifindex, .. }) = actions.get(*index).map(|a| &a.change) {
                let request = tc::delete(*ifindex, tc::ROOT);
                // Nothing to add to the failure that is already being reported.
                let _ = self.held_mut(node).and_then(|held| held.socket.request(&request));
            }
        }
    }

    /// The open namespace of a node.
    pub(super) fn held_mut(&mut self, node: &str) -> Result<&mut Held, KernelError> {
        self.held.get_mut(node).ok_or_else(|| no_namespace(node))
    }

    /// The requests of a change within one namespace.
    fn requests(&self, change: &Change, requests: &mut Vec<Request>) {
        match change {
            Change::RemoveLabel { label, .. } => requests.push(mpls::delete(*label)),
            Change::RemoveRoute { route, ifindex, .. } => {
                requests.push(route::delete(&kernel_route(route, *ifindex)));
            }
            Change::AddRoute { route, ifindex, .. } => {
                // Appending makes routes of the same prefix one multipath route.
                requests.push(route::add(&kernel_route(route, *ifindex), Mode::Append));
            }
            Change::RemoveNeighbour { ifindex, ip, .. } => requests.push(neigh::delete(*ifindex, *ip)),
            Change::SetNeighbour { ifindex, ip, mac, .. } => {
                requests.push(neigh::set_owned(*ifindex, *ip, mac.0, PROTOCOL));
            }
            Change::RemoveAddress { ifindex, address, .. } => {
                requests.push(addr::delete(&kernel_address(*ifindex, *address)));
            }
            Change::AddAddress { ifindex, address, .. } => {
                requests.push(addr::add_owned(&kernel_address(*ifindex, *address), PROTOCOL));
            }
            Change::RemoveQueue { ifindex, .. } => requests.push(tc::delete(*ifindex, tc::ROOT)),
            Change::SetQueue { ifindex, mtu, from, to, .. } => {
                requests.extend(queue::requests(*ifindex, *mtu, from.as_ref(), to));
            }
            Change::LinkDown { ifindex, .. } => requests.push(link::set_up(*ifindex, false)),
            Change::LinkUp { ifindex, .. } => requests.push(link::set(*ifindex, &self.marked(Some(true)))),
            Change::CreateMacsec { end, over } => {
                let EndSpec { interface, ifindex, mac, mtu, .. } = end;
                let secured = macsec::Secured {
                    name: interface,
                    ifindex: *ifindex,
                    over: *over,
                    mac: mac.0,
                    mtu: *mtu,
                };
                requests.extend([link::silence(*over), macsec::create(&secured)]);
            }
            Change::JoinBond { ifindex, bond, over, up, .. } => {
                // the kernel takes only members that are down, and brings them up
                let wire = over.filter(|_| !up);
                requests.extend(wire.map(|wire| link::set_up(wire, true)));
                requests.push(link::set(*ifindex, &self.marked(Some(false))));
                requests.push(link::set_master(*ifindex, *bond));
                requests.extend((!up).then(|| link::set_up(*ifindex, false)));
                requests.extend(wire.map(|wire| link::set_up(wire, false)));
            }
            Change::MarkLink { ifindex, .. } => requests.push(link::set(*ifindex, &self.marked(None))),
            Change::SetMtu { ifindex, mtu, .. } => {
                requests
                    .push(link::set(*ifindex, &link::Change { mtu: Some(*mtu), ..link::Change::default() }));
            }
            Change::RemoveLink { ifindex, .. } => requests.push(link::delete(*ifindex)),
            Change::SetLabel { label, route, ifindex, .. } => {
                let hop = mpls::LabelHop { via: route.via, oif: *ifindex, push: Vec::new() };
                let route = mpls::LabelRoute { label: *label, protocol: PROTOCOL, hops: vec![hop] };
                requests.push(mpls::set(&route));
            }
            Change::RemoveNamespace { .. }
            | Change::CreateNamespace { .. }
            | Change::RepairLoopback { .. }
            | Change::SetSysctl { .. }
            | Change::CreateLink { .. }
            | Change::CreateBond { .. }
            | Change::SetLabelTable { .. }
            | Change::SetMplsInput { .. }
            | Change::Wipe { .. }
            | Change::SetFilters { .. } => {}
        }
    }
}

/// Key and value of a change that is a setting. Slashes, because interface names can have dots.
fn setting(change: &Change) -> Option<(String, &str)> {
    match change {
        Change::SetSysctl { key, value, .. } => Some((key.clone(), value)),
        Change::SetLabelTable { size, .. } => Some(("net.mpls.platform_labels".to_owned(), size)),
        Change::SetMplsInput { interface, on, .. } => {
            Some((format!("net/mpls/conf/{interface}/input"), if *on { "1" } else { "0" }))
        }
        _ => None,
    }
}

/// A route as the kernel wants it.
fn kernel_route(route: &Route, ifindex: u32) -> KernelRoute {
    let local = route.via.is_none();
    KernelRoute {
        dst: route.prefix,
        table: if local { route::TABLE_LOCAL } else { route::TABLE_MAIN },
        metric: route::DEFAULT_METRIC,
        protocol: PROTOCOL,
        kind: if local { Kind::Local } else { Kind::Unicast },
        via: Via::Hops(vec![Hop { gateway: route.via, oif: ifindex, ..Hop::default() }]),
    }
}

/// An address as the kernel wants it.
fn kernel_address(ifindex: u32, address: ipnet::Ipv6Net) -> addr::Address {
    addr::Address { ifindex, ip: address.addr(), prefix_len: address.prefix_len() }
}

/// The error of a namespace that is not there.
pub(super) fn no_namespace(node: &str) -> KernelError {
    let text = Some("the node has no namespace".to_owned());
    KernelError { errno: libc::ENOENT, text, doing: format!("enter the namespace of {node}") }
}

//! A bundle as this router sees it: its part of every path, and which path of each LSP is in use.
//!
//! [`Bundle::compile`] turns the paths of the wire message into small numbers once, so that a failure is handled
//! without touching a name.

use std::net::Ipv6Addr;
use std::sync::Arc;

use super::links::{Endpoint, Links};
use super::order::Order;
use super::state::{Exit, Want};
use crate::label::{LABEL_FIRST, MAX_SLOTS, Nexthop, SID_BASE, Segment, Sid, split};
use crate::proto;

/// What a bundle must be told about the router.
#[derive(Clone, Debug)]
pub struct Router {
    /// Name, `eb01.prn`.
    pub node: String,
    /// Site id.
    pub site: u8,
    /// Largest label stack.
    pub depth: usize,
    /// Backbone interfaces, in configuration order.
    pub interfaces: Vec<Interface>,
}

/// A backbone interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Link-local address of the far end.
    pub gateway: Ipv6Addr,
    /// Kernel index; 0 while the interface does not exist.
    pub ifindex: u32,
}

/// What this router does for a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is the source: nexthop group.
    Source,
    /// It is an intermediate node of at least one path: SID route.
    Transit,
    /// Nothing: packets cross it on static labels, or not at all.
    None,
}

/// Which path of an LSP is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// The primary path.
    Primary,
    /// The backup path, until the bundle is programmed again.
    Backup,
    /// Neither is usable.
    Dropped,
}

impl Active {
    /// One letter for the journal.
    pub const fn letter(self) -> char {
        match self {
            Self::Primary => 'P',
            Self::Backup => 'B',
            Self::Dropped => 'D',
        }
    }

    /// The reverse of [`Active::letter`].
    pub const fn from_letter(letter: char) -> Option<Self> {
        match letter {
            'P' => Some(Self::Primary),
            'B' => Some(Self::Backup),
            'D' => Some(Self::Dropped),
            _ => None,
        }
    }
}

/// This router's part of one path.
#[derive(Clone, Debug)]
struct Part {
    /// Hop at which the segment that starts here begins.
    hop: usize,
    /// Index into [`Router::interfaces`].
    interface: usize,
    labels: Arc<[u32]>,
    /// Whether packets could come back here this way (see [`Order`]).
    circles: bool,
}

#[derive(Clone, Debug)]
struct Path {
    /// Both ends of each hop.
    hops: Box<[(Endpoint, Endpoint)]>,
    /// Intermediate nodes: router number and hops from there to the destination.
    stops: Box<[(u32, usize)]>,
    part: Option<Part>,
}

impl Path {
    fn usable_from(&self, hop: usize, links: &Links) -> bool {
        self.hops.iter().skip(hop).all(|&(near, far)| links.is_up(near) && links.is_up(far))
    }
}

#[derive(Clone, Debug)]
struct Lsp {
    primary: Path,
    backup: Option<Path>,
}

/// One bundle of one version.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Its SID.
    pub sid: Sid,
    /// What this router does for it.
    pub role: Role,
    /// The message it came in: journal and dumps give it out again.
    pub wire: proto::Bundle,
    /// Path in use, by LSP.
    pub active: Vec<Active>,
    lsps: Vec<Lsp>,
    /// By LSP: how many LSPs, itself included, have its primary and backup path, if it is the first of them; else 0.
    shares: Vec<u8>,
}

impl Bundle {
    /// Checks a bundle and works out this router's part; all LSPs start on their best usable path.
    ///
    /// # Errors
    /// A sentence that names the LSP and the hop that cannot be.
    pub fn compile(wire: proto::Bundle, router: &Router, links: &mut Links) -> Result<Self, String> {
        let sid = Sid::decode(wire.sid)
            .ok_or_else(|| format!("{} is not a binding SID: bit 19 is clear", wire.sid))?;
        if wire.lsps.is_empty() || wire.lsps.len() > MAX_SLOTS {
            return Err(format!(
                "bundle {sid} has {} LSPs; 1 to {MAX_SLOTS} can be numbered",
                wire.lsps.len()
            ));
        }
        let mut lsps = Vec::with_capacity(wire.lsps.len());
        for (slot, lsp) in wire.lsps.iter().enumerate() {
            let mut path = |path: &Option<proto::Path>, which: &str| {
                let hops = path.as_ref().map(|p| p.hops.as_slice()).filter(|hops| !hops.is_empty());
                let compiled = hops.map(|hops| compile_path(hops, wire.sid, router, links)).transpose();
                compiled.map_err(|why| format!("bundle {sid}, LSP {slot}, {which} path: {why}"))
            };
            let primary = path(&lsp.primary, "primary")?
                .ok_or_else(|| format!("bundle {sid}, LSP {slot}: the primary path has no hops"))?;
            lsps.push(Lsp { primary, backup: path(&lsp.backup, "backup")? });
        }
        let role = role(sid, &lsps, router)?;
        mark_circles(&mut lsps, links.router(&router.node));
        let (active, shares) = (vec![Active::Primary; lsps.len()], shares(&wire.lsps));
        let mut bundle = Self { sid, role, wire, active, lsps, shares };
        bundle.choose(links);
        Ok(bundle)
    }

    /// Key under which the router keeps it: group id for a source (one live version), label elsewhere.
    pub fn key(&self) -> u32 {
        match self.role {
            Role::Source => Nexthop::Group { dst: self.sid.dst, mesh: self.sid.mesh }.id(),
            Role::Transit | Role::None => self.sid.encode(),
        }
    }

    /// Every endpoint on any of its paths, with repetitions.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        paths(&self.lsps).flat_map(|path| path.hops.iter().flat_map(|&(near, far)| [near, far]))
    }

    /// Chooses the path of each LSP anew from the links: an LSP leaves the path it is on only if that fails.
    pub fn choose(&mut self, links: &Links) {
        for (lsp, active) in self.lsps.iter().zip(&mut self.active) {
            let primary = || lsp.primary.usable_from(0, links);
            let backup = || lsp.backup.as_ref().is_some_and(|path| path.usable_from(0, links));
            *active = match *active {
                Active::Backup if backup() => Active::Backup,
                _ if primary() => Active::Primary,
                _ if backup() => Active::Backup,
                _ => Active::Dropped,
            };
        }
    }

    /// What the kernel must have for the bundle here; a router without a role must have no SID route.
    pub fn want(&self, router: &Router, links: &Links) -> Want {
        match self.role {
            Role::None => Want::Transit { label: self.sid.encode(), exits: Vec::new() },
            Role::Source => {
                let members = self.in_use().filter_map(|(slot, backup, path)| {
                    let lsps = self.shares.get(slot).copied().filter(|lsps| *lsps > 0)?;
                    let slot = u8::try_from(slot).ok()?;
                    let id = Nexthop::Member {
                        dst: self.sid.dst,
                        mesh: self.sid.mesh,
                        version: self.sid.version,
                        backup,
                        slot,
                    };
                    Some((id.id(), exit(path, router)?.1, lsps))
                });
                Want::Source { group: self.key(), members: members.collect() }
            }
            Role::Transit => {
                Want::Transit { label: self.sid.encode(), exits: self.transit_exits(router, links) }
            }
        }
    }

    /// Exits of a transit router: of the LSPs whose path in use is cut into segments here. If there is none, of every
    /// path that is whole from here on: backups are then in place before they are needed, and packets that are on their
    /// way over a path that the source has just left still arrive. Ways on which packets could come back are the last
    /// resort.
    fn transit_exits(&self, router: &Router, links: &Links) -> Vec<Exit> {
        let in_use = |circles: bool| {
            let parts = self.in_use().filter_map(move |(_, _, path)| exit(path, router));
            parts.filter(move |(part, _)| part.circles == circles).map(|(_, exit)| exit).collect::<Vec<_>>()
        };
        let whole = || {
            let parts = paths(&self.lsps).filter_map(|path| Some((path, exit(path, router)?)));
            let whole = parts.filter(|(path, (part, _))| !part.circles && path.usable_from(part.hop, links));
            whole.map(|(_, (_, exit))| exit).collect::<Vec<_>>()
        };
        let mut exits = in_use(false);
        if exits.is_empty() {
            exits = whole();
        }
        if exits.is_empty() {
            exits = in_use(true);
        }
        exits
    }

    /// Slots of LSPs on their (primary, backup, no) path.
    pub fn tally(&self) -> (usize, usize, usize) {
        let count = |which| self.active.iter().filter(|a| **a == which).count();
        (count(Active::Primary), count(Active::Backup), count(Active::Dropped))
    }

    fn in_use(&self) -> impl Iterator<Item = (usize, bool, &Path)> {
        self.lsps.iter().zip(&self.active).enumerate().filter_map(|(slot, (lsp, active))| match active {
            Active::Primary => Some((slot, false, &lsp.primary)),
            Active::Backup => lsp.backup.as_ref().map(|path| (slot, true, path)),
            Active::Dropped => None,
        })
    }
}

/// LSPs with the same two paths, counted at the first of them.
fn shares(lsps: &[proto::Lsp]) -> Vec<u8> {
    let same = |a: &proto::Lsp, b: &proto::Lsp| a.primary == b.primary && a.backup == b.backup;
    let count = |(i, lsp): (usize, &proto::Lsp)| {
        if lsps.iter().take(i).any(|earlier| same(earlier, lsp)) {
            return 0;
        }
        u8::try_from(lsps.iter().skip(i).filter(|later| same(later, lsp)).count()).unwrap_or(u8::MAX)
    };
    lsps.iter().enumerate().map(count).collect()
}

fn paths(lsps: &[Lsp]) -> impl Iterator<Item = &Path> {
    lsps.iter().flat_map(|lsp| std::iter::once(&lsp.primary).chain(&lsp.backup))
}

fn mark_circles(lsps: &mut [Lsp], own: u32) {
    let mut order = Order::default();
    paths(lsps).for_each(|path| order.add(&path.stops));
    for path in lsps.iter_mut().flat_map(|lsp| std::iter::once(&mut lsp.primary).chain(&mut lsp.backup)) {
        let next = path.stops.iter().skip_while(|(router, _)| *router != own).nth(1);
        if let (Some(part), Some((next, _))) = (&mut path.part, next) {
            part.circles = order.circles(own, *next);
        }
    }
}

fn exit<'a>(path: &'a Path, router: &Router) -> Option<(&'a Part, Exit)> {
    let part = path.part.as_ref()?;
    let interface = router.interfaces.get(part.interface).filter(|i| i.ifindex != 0)?;
    let exit =
        Exit { ifindex: interface.ifindex, gateway: interface.gateway, labels: Arc::clone(&part.labels) };
    Some((part, exit))
}

fn compile_path(hops: &[proto::Hop], sid: u32, router: &Router, links: &mut Links) -> Result<Path, String> {
    for (i, hop) in hops.iter().enumerate() {
        if !(LABEL_FIRST..SID_BASE).contains(&hop.label) {
            return Err(format!(
                "hop {i} ({} {}) has label {}, which is not a static label",
                hop.router, hop.interface, hop.label
            ));
        }
        if let Some(next) = hops.get(i + 1)
            && next.router != hop.neighbor
        {
            return Err(format!(
                "hop {i} leads to {}, but hop {} starts at {}",
                hop.neighbor,
                i + 1,
                next.router
            ));
        }
        if hops.iter().take(i).any(|before| before.router == hop.router) {
            return Err(format!("it visits {} twice", hop.router));
        }
    }
    let labels: Vec<u32> = hops.iter().map(|hop| hop.label).collect();
    let segments = split(&labels, sid, router.depth);
    let start = |segment: &Segment| hops.get(segment.start).map(|hop| hop.router.as_str());
    let stops = segments.iter().skip(1).filter_map(|s| Some((links.router(start(s)?), hops.len() - s.start)));
    let stops = stops.collect();
    let own = segments.into_iter().find(|segment| start(segment) == Some(router.node.as_str()));
    let part = own.map(|segment| own_part(hops, segment, router)).transpose()?;
    let hops = hops.iter().map(|hop| {
        let near = links.endpoint(&hop.router, &hop.interface);
        (near, links.endpoint(&hop.neighbor, &hop.remote_interface))
    });
    Ok(Path { hops: hops.collect(), stops, part })
}

fn own_part(hops: &[proto::Hop], segment: Segment, router: &Router) -> Result<Part, String> {
    let name = hops.get(segment.start).map_or("", |hop| hop.interface.as_str());
    let interface = router.interfaces.iter().position(|i| i.name == name).ok_or_else(|| {
        format!(
            "hop {} leaves {} by {name}, which is not one of its backbone interfaces",
            segment.start, router.node
        )
    })?;
    Ok(Part { hop: segment.start, interface, labels: segment.labels.into(), circles: false })
}

fn role(sid: Sid, lsps: &[Lsp], router: &Router) -> Result<Role, String> {
    let parts =
        || lsps.iter().flat_map(|l| std::iter::once(&l.primary).chain(&l.backup)).map(|p| p.part.as_ref());
    let starts_here = |part: Option<&Part>| part.is_some_and(|p| p.hop == 0);
    if sid.src == router.site {
        if !parts().all(starts_here) {
            return Err(format!(
                "bundle {sid} is from this site, but not all its paths start at {}",
                router.node
            ));
        }
        return Ok(Role::Source);
    }
    if parts().any(starts_here) {
        return Err(format!(
            "bundle {sid} is not from site {}, but a path of it starts at {}",
            router.site, router.node
        ));
    }
    Ok(if parts().any(|part| part.is_some()) { Role::Transit } else { Role::None })
}

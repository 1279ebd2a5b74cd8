//! What the kernel holds for us, as values: nexthop objects, groups and SID routes, and the operations on them.
//!
//! [`Known`] is the agent's idea of the kernel's content. It is soft: the kernel removes objects by itself when an
//! interface goes down and says nothing, so [`Known::forget_interface`] repeats what it did.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::label::{Nexthop, Sid};

/// One way out of this router: interface, far end's link-local address, labels to push (outermost first, may be none).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exit {
    /// Interface index.
    pub ifindex: u32,
    /// Link-local address of the far end.
    pub gateway: Ipv6Addr,
    /// Labels, outermost first.
    pub labels: Arc<[u32]>,
}

/// A member of a group and its weight, the number of LSPs that it stands for. LSPs of a bundle with the same primary and
/// the same backup path fail and return together: one object for all of them makes a repair one write, and a link that
/// goes down has few objects for the kernel to flush.
pub type Share = (u32, u8);

/// One write to the kernel. All are idempotent (create or replace; a delete of what is not there is fine).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Create or replace a nexthop object.
    PutMember(u32, Exit),
    /// Create or replace a group with this complete list of members.
    PutGroup(u32, Vec<Share>),
    /// Create or replace the route of a SID; duplicate exits carry weight.
    PutSid(u32, Vec<Exit>),
    /// Delete a SID's route.
    DelSid(u32),
    /// Delete a group; the kernel drops the routes that point to it.
    DelGroup(u32),
    /// Delete a nexthop object.
    DelMember(u32),
}

impl Op {
    /// Key of the bundle that the operation belongs to: the SID's label, or the group's id.
    pub fn key(&self) -> u32 {
        match self {
            Self::PutSid(label, _) | Self::DelSid(label) => *label,
            Self::PutMember(id, _) | Self::PutGroup(id, _) | Self::DelGroup(id) | Self::DelMember(id) => {
                id & !0xff
            }
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sid = |label: u32| Sid::decode(label).map_or_else(|| label.to_string(), |s| s.to_string());
        let nexthop = |id: u32| match Nexthop::decode(id) {
            Some(Nexthop::Group { dst, mesh }) => format!("group {id:#x} (>{dst} {mesh})"),
            Some(Nexthop::Member { dst, mesh, version, backup, slot }) => {
                let path = if backup { "backup" } else { "primary" };
                format!("nexthop {id:#x} (>{dst} {mesh} v{} slot {slot} {path})", u8::from(version))
            }
            None => format!("nexthop {id:#x}"),
        };
        match self {
            Self::PutMember(id, exit) => {
                write!(
                    f,
                    "write {} via {} dev #{} labels {:?}",
                    nexthop(*id),
                    exit.gateway,
                    exit.ifindex,
                    exit.labels
                )
            }
            Self::PutGroup(id, members) => write!(f, "write {} of {} members", nexthop(*id), members.len()),
            Self::PutSid(label, exits) => {
                write!(f, "write route of SID {} with {} exits", sid(*label), exits.len())
            }
            Self::DelSid(label) => write!(f, "delete route of SID {}", sid(*label)),
            Self::DelGroup(id) | Self::DelMember(id) => write!(f, "delete {}", nexthop(*id)),
        }
    }
}

/// Our objects in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Nexthop objects by id.
    pub members: BTreeMap<u32, Exit>,
    /// Groups by id: their members, in order.
    pub groups: BTreeMap<u32, Vec<Share>>,
    /// Exits of SID routes by label.
    pub sids: BTreeMap<u32, Vec<Exit>>,
}

impl Known {
    /// Takes note of an operation that the kernel carried out.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::PutMember(id, exit) => drop(self.members.insert(*id, exit.clone())),
            Op::PutGroup(id, members) => drop(self.groups.insert(*id, members.clone())),
            Op::PutSid(label, exits) => drop(self.sids.insert(*label, exits.clone())),
            Op::DelSid(label) => drop(self.sids.remove(label)),
            Op::DelGroup(id) => drop(self.groups.remove(id)),
            Op::DelMember(id) => {
                self.members.remove(id);
                self.prune();
            }
        }
    }

    /// Repeats what the kernel does when an interface loses its carrier or goes down: its nexthop objects vanish,
    /// groups shrink, empty groups vanish. Label routes stay.
    pub fn forget_interface(&mut self, ifindex: u32) {
        self.members.retain(|_, exit| exit.ifindex != ifindex);
        self.prune();
    }

    /// Repeats what the kernel does when an interface is removed: as [`Known::forget_interface`], and label routes
    /// lose their exits through it.
    pub fn forget_removed_interface(&mut self, ifindex: u32) {
        self.forget_interface(ifindex);
        self.sids.retain(|_, exits| {
            exits.retain(|exit| exit.ifindex != ifindex);
            !exits.is_empty()
        });
    }

    fn prune(&mut self) {
        let members = &self.members;
        self.groups.retain(|_, list| {
            list.retain(|(id, _)| members.contains_key(id));
            !list.is_empty()
        });
    }
}

/// What a router must have for one bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Source: the group and its members. No members: no group.
    Source {
        /// Group id.
        group: u32,
        /// Members in slot order: id, exit, number of LSPs.
        members: Vec<(u32, Exit, u8)>,
    },
    /// Intermediate node: the SID's route. No exits: no route.
    Transit {
        /// The SID.
        label: u32,
        /// Exits, one for each LSP.
        exits: Vec<Exit>,
    },
}

/// Writes that bring the kernel to what is wanted: what must exist first, and what is left over after it.
///
/// A repair has a part before both. Replacing a group makes the kernel wait for its readers, several times longer than
/// all else together; replacing a member in place does not. So the members that lead over a failed link are first
/// pointed elsewhere, in all bundles, and the groups are put in order when no packet is lost any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Members that are about to leave their group, with the exit of those that come.
    pub urgent: Vec<Op>,
    /// Creates and replaces, in an order in which every group names only members that exist.
    pub install: Vec<Op>,
    /// Deletes.
    pub cleanup: Vec<Op>,
}

impl Plan {
    /// Adds the difference between `want` and `known` for one bundle.
    pub fn add(&mut self, want: Want, known: &Known) {
        match want {
            Want::Source { group, members } => self.add_source(group, members, known),
            Want::Transit { label, exits } if exits.is_empty() => {
                if known.sids.contains_key(&label) {
                    self.cleanup.push(Op::DelSid(label));
                }
            }
            Want::Transit { label, exits } => {
                if known.sids.get(&label) != Some(&exits) {
                    self.install.push(Op::PutSid(label, exits));
                }
            }
        }
    }

    fn add_source(&mut self, group: u32, members: Vec<(u32, Exit, u8)>, known: &Known) {
        let list: Vec<Share> = members.iter().map(|(id, _, lsps)| (*id, *lsps)).collect();
        for (id, exit, _) in members {
            if known.members.get(&id) != Some(&exit) {
                self.install.push(Op::PutMember(id, exit));
            }
        }
        if list.is_empty() {
            if known.groups.contains_key(&group) {
                self.cleanup.push(Op::DelGroup(group));
            }
        } else if known.groups.get(&group) != Some(&list) {
            self.install.push(Op::PutGroup(group, list.clone()));
        }
        let ours = known.members.range(group..=group | 0xff).map(|(id, _)| *id);
        self.cleanup.extend(ours.filter(|id| !list.iter().any(|(kept, _)| kept == id)).map(Op::DelMember));
    }

    /// Adds first aid for one bundle: every member of the present group that is not wanted any more gets the exit of the
    /// wanted member of its slot or, if there is none, of another one. To be called before [`Plan::add`].
    pub fn divert(&mut self, want: &Want, known: &Known) {
        let Want::Source { group, members } = want else { return };
        let present = known.groups.get(group).into_iter().flatten();
        for (i, (id, _)) in
            present.enumerate().filter(|(_, (id, _))| !members.iter().any(|(wanted, ..)| wanted == id))
        {
            let same_slot = members.iter().find(|(wanted, ..)| wanted & 0x3f == id & 0x3f);
            let Some((_, exit, _)) = same_slot.or_else(|| members.get(i % members.len().max(1))) else {
                continue;
            };
            if known.members.get(id) != Some(exit) {
                self.urgent.push(Op::PutMember(*id, exit.clone()));
            }
        }
    }

    /// All writes in order.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.urgent.iter().chain(&self.install).chain(&self.cleanup)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.install.is_empty() && self.cleanup.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Mesh;

    fn exit(ifindex: u32, labels: &[u32]) -> Exit {
        Exit { ifindex, gateway: "fe80::1".parse().unwrap(), labels: labels.into() }
    }

    fn member(slot: u8, backup: bool) -> u32 {
        Nexthop::Member { dst: 3, mesh: Mesh::Gold, version: false, backup, slot }.id()
    }

    #[test]
    fn members_come_before_their_group_and_deletes_last() {
        let group = Nexthop::Group { dst: 3, mesh: Mesh::Gold }.id();
        let mut known = Known::default();
        let mut plan = Plan::default();
        let before = vec![(member(0, false), exit(1, &[16]), 1), (member(1, false), exit(2, &[17]), 15)];
        plan.add(Want::Source { group, members: before }, &known);
        plan.ops().for_each(|op| known.apply(op));

        known.forget_interface(1);
        assert_eq!(known.groups[&group], [(member(1, false), 15)]);
        let after = vec![(member(0, true), exit(2, &[18]), 1), (member(1, true), exit(3, &[19]), 15)];
        let list: Vec<Share> = after.iter().map(|m| (m.0, m.2)).collect();
        let mut plan = Plan::default();
        plan.divert(&Want::Source { group, members: after.clone() }, &known);
        plan.add(Want::Source { group, members: after.clone() }, &known);
        assert_eq!(
            plan.ops().cloned().collect::<Vec<_>>(),
            [
                Op::PutMember(member(1, false), after[1].1.clone()),
                Op::PutMember(after[0].0, after[0].1.clone()),
                Op::PutMember(after[1].0, after[1].1.clone()),
                Op::PutGroup(group, list),
                Op::DelMember(member(1, false)),
            ]
        );
        plan.ops().for_each(|op| known.apply(op));
        let mut again = Plan::default();
        again.add(Want::Source { group, members: after }, &known);
        assert!(again.is_empty());
    }

    #[test]
    fn an_empty_source_loses_its_group_and_an_empty_transit_its_route() {
        let group = Nexthop::Group { dst: 3, mesh: Mesh::Gold }.id();
        let mut known = Known::default();
        known.apply(&Op::PutMember(member(0, false), exit(1, &[])));
        known.apply(&Op::PutGroup(group, vec![(member(0, false), 1)]));
        known.apply(&Op::PutSid(526_364, vec![exit(1, &[]), exit(1, &[])]));
        let mut plan = Plan::default();
        plan.add(Want::Source { group, members: vec![] }, &known);
        plan.add(Want::Transit { label: 526_364, exits: vec![] }, &known);
        assert!(plan.install.is_empty());
        assert_eq!(plan.cleanup, [Op::DelGroup(group), Op::DelMember(member(0, false)), Op::DelSid(526_364)]);
        assert_eq!(plan.cleanup[1].to_string(), "delete nexthop 0x10000e01 (>3 gold v0 slot 0 primary)");
    }

    #[test]
    fn a_removed_interface_takes_label_exits_with_it() {
        let mut known = Known::default();
        known.apply(&Op::PutSid(526_364, vec![exit(1, &[]), exit(2, &[])]));
        known.apply(&Op::PutSid(526_365, vec![exit(1, &[])]));
        known.forget_interface(1);
        assert_eq!(known.sids.len(), 2);
        known.forget_removed_interface(1);
        assert_eq!(known.sids, BTreeMap::from([(526_364, vec![exit(2, &[])])]));
    }
}

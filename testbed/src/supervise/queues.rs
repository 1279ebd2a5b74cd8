//! Counters of the class queues, read from the kernel and put beside links and planes.

use std::collections::BTreeMap;
use std::path::Path;

use router_emu::label::Class;
use rtnl::tc::Stats;
use topologies::lab::{End, Lab, Link, LinkKind, Role};

use crate::api::protocol::{ClassQueue, EndQueues, Status};
use crate::apply::linux;

/// Counters of the lab's class queues at one moment, by (node, interface).
#[derive(Clone, Debug, Default)]
pub struct Queues(BTreeMap<(String, String), [Stats; 4]>);

impl Queues {
    /// Asks the kernel; blocks for about a millisecond per router.
    pub fn read(lab: &Lab) -> anyhow::Result<Self> {
        let routers = lab.nodes.iter().filter(|n| n.role == Role::Router).map(|n| n.name.as_str());
        Ok(Self(linux::class_queues(Path::new("/run/netns"), routers)?))
    }

    /// Puts the counters beside the links and planes of a status.
    pub fn fill(&self, lab: &Lab, status: &mut Status) {
        for (link, shown) in lab.links.iter().zip(&mut status.links) {
            shown.queues = self.of_link(link);
        }
        for plane in &mut status.planes {
            plane.queues = self.of_plane(lab, plane.plane);
        }
    }

    /// Both directions of a link.
    fn of_link(&self, link: &Link) -> Vec<EndQueues> {
        let end = |end: &End| {
            let stats = self.0.get(&(end.node.clone(), end.interface.clone()))?;
            Some(EndQueues { from: end.node.clone(), classes: by_class(stats) })
        };
        [&link.a, &link.b].into_iter().filter_map(end).collect()
    }

    /// All core links of a plane together.
    fn of_plane(&self, lab: &Lab, plane: u8) -> Vec<ClassQueue> {
        let core = lab.links.iter().filter(|l| l.kind == LinkKind::Core && l.plane == Some(plane));
        let mut sums: Vec<ClassQueue> = Vec::new();
        for queues in core.flat_map(|link| self.of_link(link)) {
            if sums.is_empty() {
                sums = queues.classes;
                continue;
            }
            for (sum, one) in sums.iter_mut().zip(queues.classes) {
                sum.packets += one.packets;
                sum.bytes += one.bytes;
                sum.dropped += one.dropped;
                sum.waiting += one.waiting;
            }
        }
        sums
    }
}

fn by_class(stats: &[Stats; 4]) -> Vec<ClassQueue> {
    let one = |(class, s): (Class, &Stats)| ClassQueue {
        class,
        packets: s.packets,
        bytes: s.bytes,
        dropped: s.drops.into(),
        waiting: s.queued.into(),
    };
    Class::ALL.into_iter().zip(stats).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_two_directions_and_planes_the_sum() {
        let (lab, _) = Lab::from_str(topologies::builtin("ebb-small").unwrap(), "lab.yaml").unwrap();
        let link = lab.links.iter().find(|l| l.kind == LinkKind::Core && l.plane == Some(1)).unwrap();
        let stats = |drops| [0, 1, 2, 3].map(|k| Stats { packets: 10 + k, drops, ..Stats::default() });
        let key = |end: &End| (end.node.clone(), end.interface.clone());
        let queues = Queues([(key(&link.a), stats(5)), (key(&link.b), stats(7))].into());
        let ends = queues.of_link(link);
        assert_eq!(ends.len(), 2);
        assert_eq!((ends[1].from.as_str(), ends[1].classes[3].class), (link.b.node.as_str(), Class::Bronze));
        let sum = queues.of_plane(&lab, 1);
        assert_eq!(
            sum.iter().map(|q| (q.packets, q.dropped)).collect::<Vec<_>>(),
            [(20, 12), (22, 12), (24, 12), (26, 12)]
        );
        assert_eq!(queues.of_plane(&lab, 2), []);
    }
}

//! Packets by LSP, monotonic although the kernel starts anew with every group that is written.

use std::collections::{BTreeMap, BTreeSet};

use crate::label::{Nexthop, Sid};
use crate::proto::LspCounter;

#[derive(Debug, Default)]
struct Count {
    /// Packets of earlier groups.
    before: u64,
    /// Last reading of the present group.
    last: u64,
}

/// Totals by member id. A member's id stands for one LSP path of one version of a bundle for ever.
#[derive(Debug, Default)]
pub struct Counters {
    counts: BTreeMap<u32, Count>,
}

impl Counters {
    /// Takes a reading: member id and packets since its group was written.
    pub fn observe(&mut self, readings: impl IntoIterator<Item = (u32, u64)>) {
        for (id, packets) in readings {
            let count = self.counts.entry(id).or_default();
            if packets < count.last {
                count.before += count.last;
            }
            count.last = packets;
        }
    }

    /// Takes note that groups were written: their counters are back at zero.
    pub fn restarted(&mut self, groups: &BTreeSet<u32>) {
        for group in groups {
            for count in self.counts.range_mut(group..=&(group | 0xff)).map(|(_, count)| count) {
                count.before += count.last;
                count.last = 0;
            }
        }
    }

    /// All totals of a source site's router.
    pub fn totals(&self, src: u8) -> Vec<LspCounter> {
        let total = |(&id, count): (&u32, &Count)| match Nexthop::decode(id)? {
            Nexthop::Member { dst, mesh, version, backup, slot } => {
                let sid = Sid { src, dst, mesh, version }.encode();
                Some(LspCounter { sid, slot: slot.into(), backup, packets: count.before + count.last })
            }
            Nexthop::Group { .. } => None,
        };
        self.counts.iter().filter_map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Mesh;

    #[test]
    fn totals_never_fall() {
        let (dst, mesh) = (3, Mesh::Gold);
        let id = Nexthop::Member { dst, mesh, version: true, backup: false, slot: 2 }.id();
        let mut counters = Counters::default();
        let read = |counters: &Counters| counters.totals(1)[0].packets;
        counters.observe([(id, 10)]);
        // seen by the reading itself
        counters.observe([(id, 4)]);
        assert_eq!(read(&counters), 14);
        // told by the agent, and more than before in the new group
        counters.restarted(&BTreeSet::from([Nexthop::Group { dst, mesh }.id()]));
        assert_eq!(read(&counters), 14);
        counters.observe([(id, 9)]);
        let total = counters.totals(1);
        let sid = Sid { src: 1, dst, mesh, version: true }.encode();
        assert_eq!(total, [LspCounter { sid, slot: 2, backup: false, packets: 23 }]);
    }
}

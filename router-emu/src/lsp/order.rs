//! Keeping packets of a bundle out of circles.
//!
//! An intermediate node spreads a bundle's packets over the exits of all LSPs that are cut there: which LSP a packet
//! came by is forgotten. If one LSP is cut at M1 and then at M2, and another at M2 and then at M1, a flow can go round
//! for ever. The paper does not say what it does about it. Here every router leaves out the same exits: those that lie
//! on a circle of the bundle's paths, in use or not, and do not bring the packet nearer to the destination.

use std::collections::{BTreeMap, BTreeSet};

/// The intermediate nodes of a bundle and the segments between them.
#[derive(Debug, Default)]
pub struct Order {
    /// Fewest hops to the destination by any path.
    remaining: BTreeMap<u32, usize>,
    segments: BTreeSet<(u32, u32)>,
}

impl Order {
    /// Adds the intermediate nodes of one path in order: router number and hops to the destination.
    pub fn add(&mut self, stops: &[(u32, usize)]) {
        for &(router, remaining) in stops {
            let least = self.remaining.entry(router).or_insert(remaining);
            *least = remaining.min(*least);
        }
        self.segments.extend(stops.windows(2).filter_map(|pair| Some((pair.first()?.0, pair.last()?.0))));
    }

    /// Whether the segment from one intermediate node to another is to be left out.
    ///
    /// Around a circle the remaining hops cannot fall all the way, so every circle has a segment that is left out; and
    /// the shortest path from a node always has one that is not.
    pub fn circles(&self, from: u32, to: u32) -> bool {
        self.remaining.get(&to) >= self.remaining.get(&from) && self.reaches(to, from)
    }

    fn reaches(&self, from: u32, to: u32) -> bool {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            let next = self.segments.range((at, 0)..=(at, u32::MAX)).map(|(_, next)| *next);
            open.extend(next.filter(|next| seen.insert(*next)));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_orders_keep_the_way_that_is_nearer() {
        let mut order = Order::default();
        order.add(&[(1, 5), (2, 2)]);
        assert!(!order.circles(1, 2));
        order.add(&[(2, 6), (1, 3)]);
        assert!(!order.circles(1, 2) && order.circles(2, 1));
    }

    #[test]
    fn a_detour_that_does_not_come_back_is_kept() {
        let mut order = Order::default();
        order.add(&[(1, 4)]);
        order.add(&[(1, 7), (2, 4)]);
        assert!(!order.circles(1, 2));
    }
}

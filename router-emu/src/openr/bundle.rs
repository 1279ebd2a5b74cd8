//! Which links are members of which bundle, and which of them have a carrier.
//!
//! The kernel's bond takes note of its members' carriers too, but its own carrier follows them only with its next look.

use std::collections::BTreeMap;

use rtnl::link::LinkInfo;

/// Members by index: the index of their bundle, and whether they have a carrier.
#[derive(Debug, Default)]
pub struct Bundles(BTreeMap<u32, (u32, bool)>);

impl Bundles {
    /// A link is as the kernel says. Gives the bundles that are another now: the one it is in, the one it was in.
    pub fn told(&mut self, info: &LinkInfo) -> Vec<u32> {
        let now = info.master.map(|bundle| (bundle, info.has_carrier()));
        let before = match now {
            Some(state) => self.0.insert(info.ifindex, state),
            None => self.0.remove(&info.ifindex),
        };
        if before == now {
            return Vec::new();
        }
        let mut touched: Vec<u32> = [before, now].into_iter().flatten().map(|(bundle, _)| bundle).collect();
        touched.dedup();
        touched
    }

    /// A link is gone. Gives the bundle that it was in.
    pub fn gone(&mut self, ifindex: u32) -> Option<u32> {
        self.0.remove(&ifindex).map(|(bundle, _)| bundle)
    }

    /// How many members of a bundle have a carrier; nothing if it is no bundle.
    pub fn up(&self, bundle: u32) -> Option<u16> {
        let members = || self.0.values().filter(|(of, _)| *of == bundle);
        members().next()?;
        u16::try_from(members().filter(|(_, carrier)| *carrier).count()).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(ifindex: u32, master: Option<u32>, up: bool) -> LinkInfo {
        LinkInfo { ifindex, master, up, running: up, lower_up: up, ..LinkInfo::default() }
    }

    #[test]
    fn members_come_lose_their_carrier_move_and_go() {
        let mut bundles = Bundles::default();
        assert_eq!((bundles.told(&link(1, None, true)), bundles.up(7)), (vec![], None));
        assert_eq!(bundles.told(&link(1, Some(7), true)), [7]);
        assert_eq!(bundles.told(&link(2, Some(7), false)), [7]);
        assert_eq!(bundles.up(7), Some(1));
        assert_eq!(bundles.told(&link(2, Some(7), false)), [0; 0], "the same news again");
        assert_eq!(bundles.told(&link(2, Some(7), true)), [7]);
        assert_eq!(bundles.told(&link(1, Some(8), true)), [7, 8]);
        assert_eq!((bundles.up(7), bundles.up(8)), (Some(1), Some(1)));
        assert_eq!((bundles.gone(1), bundles.gone(1), bundles.up(8)), (Some(8), None, None));
        // up by its owner's word but without a carrier
        let dark = LinkInfo { lower_up: false, ..link(2, Some(7), true) };
        assert_eq!((bundles.told(&dark), bundles.up(7)), (vec![7], Some(0)));
    }

    proptest! {
        /// Whatever the news, the count is that of the last word about each link, and silence means that nothing changed.
        #[test]
        fn the_last_word_counts(news in prop::collection::vec((1u32..5, prop::option::of(7u32..9), any::<bool>()), 0..40)) {
            let mut bundles = Bundles::default();
            let mut last = BTreeMap::new();
            for (ifindex, master, up) in news {
                let before = [7, 8].map(|b| bundles.up(b));
                let touched = bundles.told(&link(ifindex, master, up));
                last.insert(ifindex, (master, up));
                for (bundle, before) in [7, 8].into_iter().zip(before) {
                    let of = |(m, _): &&(Option<u32>, bool)| *m == Some(bundle);
                    let members = last.values().filter(of).count();
                    let carriers = last.values().filter(of).filter(|(_, up)| *up).count();
                    prop_assert_eq!(bundles.up(bundle), (members > 0).then_some(u16::try_from(carriers).unwrap()));
                    prop_assert!(touched.contains(&bundle) || bundles.up(bundle) == before);
                }
            }
        }
    }
}

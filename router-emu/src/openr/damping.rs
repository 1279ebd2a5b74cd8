//! Damping of a link that goes up and down: each loss in a row doubles the time for which it is kept out.
//!
//! A loss counts at once. A return may have to wait: after a single loss not at all, after a second one until `first` has
//! passed since it, after each further one twice as long, at most `most`. A link that has stayed for `most` is forgiven:
//! its next loss is a single one. As in Open/R's link monitor (exponential back-off), which makes the single loss wait too.

use super::spark::Nanos;

/// How long links are kept out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// After a second loss in a row; 0 for no damping.
    pub first: Nanos,
    /// At most.
    pub most: Nanos,
}

/// The past of one link.
#[derive(Clone, Debug, Default)]
pub struct Damping {
    backoff: Backoff,
    /// Losses in a row.
    losses: u32,
    /// Until when it is held.
    until: Nanos,
    /// Since when it has been there.
    since: Option<Nanos>,
}

impl Damping {
    /// A link without a past.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, ..Self::default() }
    }

    /// The link is there.
    pub fn came(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// The link is lost. A link that was not there cannot be.
    pub fn lost(&mut self, now: Nanos) {
        let Some(since) = self.since.take() else { return };
        let Backoff { first, most } = self.backoff;
        let forgiven = now.saturating_sub(since) >= most;
        self.losses = if forgiven { 1 } else { self.losses.saturating_add(1) };
        let doubled = self.losses.checked_sub(2).map_or(0, |times| {
            1_u64.checked_shl(times).map_or(Nanos::MAX, |factor| first.saturating_mul(factor))
        });
        self.until = now.saturating_add(doubled.min(most));
    }

    /// Until when the link is kept out although it is there; nothing if it is not held.
    pub fn held_until(&self, now: Nanos) -> Option<Nanos> {
        (self.until > now).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::openr::spark::MS;

    const BACKOFF: Backoff = Backoff { first: 1_000 * MS, most: 8_000 * MS };

    /// Loses a link at these times, which comes back a little later each time; how long it is held each time.
    fn holds(backoff: Backoff, losses: &[Nanos]) -> Vec<Nanos> {
        let mut damping = Damping::new(backoff);
        damping.came(0);
        let lose = |at: &Nanos| {
            damping.lost(*at);
            damping.came(*at + 1);
            damping.held_until(*at + 1).map_or(0, |until| until - at)
        };
        losses.iter().map(lose).collect()
    }

    #[test]
    fn each_loss_costs_twice_as_much_up_to_a_limit() {
        let losses: Vec<Nanos> = (0..6).map(|i| 20_000 * MS + i * 300 * MS).collect();
        assert_eq!(holds(BACKOFF, &losses), [0, 1_000, 2_000, 4_000, 8_000, 8_000].map(|ms| ms * MS));
        let many: Vec<Nanos> = (1..200).map(|i| i * 300 * MS).collect();
        assert_eq!(holds(BACKOFF, &many).last(), Some(&BACKOFF.most));
    }

    #[test]
    fn a_hold_counts_from_the_loss_and_not_from_the_return() {
        let mut damping = Damping::new(BACKOFF);
        damping.came(0);
        damping.lost(60_000 * MS);
        damping.came(60_010 * MS);
        assert_eq!(damping.held_until(60_010 * MS), None, "a single loss");
        damping.lost(60_500 * MS);
        damping.came(61_400 * MS);
        assert_eq!(damping.held_until(61_400 * MS), Some(61_500 * MS));
        assert_eq!(damping.held_until(61_500 * MS), None);
    }

    #[test]
    fn a_link_that_stays_is_forgiven() {
        let at = |ms: Nanos| ms * MS;
        assert_eq!(
            holds(BACKOFF, &[at(10_000), at(10_300), at(18_000), at(40_000)]),
            [0, 1_000, 2_000, 0].map(at)
        );
    }

    #[test]
    fn without_a_first_hold_nothing_is_damped() {
        assert_eq!(holds(Backoff { first: 0, most: 8_000 * MS }, &[1, 5, 9]), [0; 3]);
    }

    #[test]
    fn what_is_not_there_is_not_lost_again() {
        let mut damping = Damping::new(BACKOFF);
        damping.lost(5);
        assert_eq!(damping.held_until(5), None, "it never was there");
        damping.came(6);
        damping.lost(7 * MS);
        damping.came(8 * MS);
        damping.lost(9 * MS);
        damping.lost(900 * MS);
        assert_eq!(damping.held_until(950 * MS), Some(1_009 * MS));
    }

    proptest! {
        /// Whatever the times: a single loss holds nothing, the next one holds for `first`, each further one twice as long up
        /// to the most, unless the link has stayed for `most` in between.
        #[test]
        fn holds_grow_until_forgiven(gaps in prop::collection::vec(2u64..20_000, 1..40)) {
            let mut at = 0;
            let losses: Vec<Nanos> = gaps.iter().map(|gap| { at += gap * MS; at }).collect();
            let holds = holds(BACKOFF, &losses);
            prop_assert_eq!(holds[0], 0);
            for (pair, times) in holds.windows(2).zip(losses.windows(2)) {
                let stayed = times[1] - times[0] - 1;
                let expected =
                    if stayed >= BACKOFF.most { 0 } else { (pair[0] * 2).clamp(BACKOFF.first, BACKOFF.most) };
                prop_assert_eq!(pair[1], expected);
            }
        }
    }
}

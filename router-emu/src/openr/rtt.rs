//! The round-trip time of a link, smoothed so that noise never floods the network.
//!
//! Samples go through a minimum over the last 10 (queueing and scheduling only ever add), and a step detector:
//! a change counts when the short window leaves the published value by 5 %, or the long one (60 samples)
//! by 2 %, and in both cases by at least 500 µs. Windows and thresholds as Open/R's configuration has them. A step is told
//! once it is over: a sample from the middle of it (one direction changed before the other) is not.

use std::collections::VecDeque;

const SHORT_WINDOW: usize = 10;
const LONG_WINDOW: usize = 60;
const SHORT_PERCENT: u64 = 5;
const LONG_PERCENT: u64 = 2;
const LEAST_STEP_US: u64 = 500;

/// Filter of one neighbour's samples. All times in microseconds.
#[derive(Clone, Debug)]
pub struct RttFilter {
    declared_us: u64,
    samples: VecDeque<u64>,
    published_us: Option<u64>,
}

impl RttFilter {
    /// `declared_us`: what the emulated wire should have and does not; 0 where the wire really delays.
    pub fn new(declared_us: u64) -> Self {
        Self { declared_us, samples: VecDeque::with_capacity(LONG_WINDOW), published_us: None }
    }

    /// Another declared part; the new published round-trip time if it changed. What was measured stays.
    pub fn declare(&mut self, declared_us: u64) -> Option<u64> {
        let (before, was) = (self.published_us(), self.declared_us);
        self.declared_us = declared_us;
        self.published_us = self.published_us.map(|published| published.saturating_sub(was) + declared_us);
        let now = self.published_us();
        (now != before).then_some(now)
    }

    /// Takes a sample; the new published round-trip time if it changed.
    pub fn sample(&mut self, rtt_us: u64) -> Option<u64> {
        if self.samples.len() == LONG_WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back(rtt_us);
        let short = self.estimate(SHORT_WINDOW);
        let Some(published) = self.published_us else {
            self.published_us = Some(short);
            return Some(short);
        };
        let fresh = if left(published, short, SHORT_PERCENT) {
            if left(short, self.estimate(SHORT_WINDOW / 2), SHORT_PERCENT) {
                return None;
            }
            short
        } else {
            let long = self.estimate(LONG_WINDOW);
            if !left(published, long, LONG_PERCENT) {
                return None;
            }
            long
        };
        // the old level must not pull the long window back to itself
        let old = self.samples.len().saturating_sub(SHORT_WINDOW);
        self.samples.drain(..old);
        self.published_us = Some(fresh);
        Some(fresh)
    }

    /// What is published now: declared plus measured, microseconds; declared alone before the first sample.
    pub fn published_us(&self) -> u64 {
        self.published_us.unwrap_or(self.declared_us)
    }

    /// Declared part plus the least measured value of the last `window` samples.
    ///
    /// Where a delay is declared the measured part is machine noise unless proven otherwise: it counts in whole
    /// milliseconds, and only once a full short window agrees.
    fn estimate(&self, window: usize) -> u64 {
        let least = self.samples.iter().rev().take(window).min().copied().unwrap_or(0);
        if self.declared_us == 0 {
            return least;
        }
        let proven = if self.samples.len() >= SHORT_WINDOW { least / 1000 * 1000 } else { 0 };
        self.declared_us + proven
    }
}

fn left(published: u64, now: u64, percent: u64) -> bool {
    let step = published.abs_diff(now);
    step >= LEAST_STEP_US && step * 100 > published * percent
}

/// Open/R's metric of a round-trip time: a tenth of a millisecond a unit, at least 1.
pub fn metric(rtt_us: u64) -> u32 {
    u32::try_from(rtt_us / 100).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_sample_is_published_and_noise_is_not() {
        let mut filter = RttFilter::new(0);
        assert_eq!(filter.sample(24_000), Some(24_000));
        for noise in [24_300, 31_000, 24_100, 29_000, 25_900, 24_001] {
            assert_eq!(filter.sample(noise), None);
        }
        assert_eq!(filter.published_us(), 24_000);
    }

    #[test]
    fn a_short_link_may_double_its_time_without_a_word() {
        let mut filter = RttFilter::new(0);
        filter.sample(120);
        assert!((0..100).all(|_| filter.sample(240).is_none()));
    }

    #[test]
    fn a_rise_is_published_once_after_a_short_window() {
        let mut filter = RttFilter::new(0);
        for _ in 0..60 {
            filter.sample(10_000);
        }
        let changes: Vec<_> = (0..200).filter_map(|i| filter.sample(30_000).map(|v| (i, v))).collect();
        assert_eq!(changes, [(9, 30_000)]);
    }

    #[test]
    fn a_sample_from_the_middle_of_a_step_is_not_published() {
        let mut filter = RttFilter::new(0);
        for _ in 0..60 {
            filter.sample(11_000);
        }
        let samples = [26_000].into_iter().chain(std::iter::repeat_n(41_000, 100));
        let changes: Vec<_> =
            samples.enumerate().filter_map(|(i, us)| Some((i, filter.sample(us)?))).collect();
        assert_eq!(changes, [(10, 41_000)]);
    }

    #[test]
    fn a_fall_is_published_at_once() {
        let mut filter = RttFilter::new(0);
        for _ in 0..60 {
            filter.sample(30_000);
        }
        assert_eq!(filter.sample(10_000), Some(10_000));
    }

    #[test]
    fn a_slow_drift_is_published_by_the_long_window() {
        let mut filter = RttFilter::new(0);
        for _ in 0..60 {
            filter.sample(100_000);
        }
        // 3 %: too little for the short window, enough for the long one
        let changes: Vec<_> = (0..200).filter_map(|i| filter.sample(103_000).map(|v| (i, v))).collect();
        assert_eq!(changes, [(59, 103_000)]);
    }

    #[test]
    fn noise_on_a_declared_delay_never_shows() {
        let mut filter = RttFilter::new(24_000);
        assert_eq!(filter.sample(3_700), Some(24_000));
        for sample in [900, 5_000, 300, 1_200, 800] {
            assert_eq!(filter.sample(sample), None);
        }
        for _ in 0..100 {
            assert_eq!(filter.sample(990), None);
        }
        assert_eq!(filter.published_us(), 24_000);
    }

    #[test]
    fn a_real_delay_on_top_of_a_declared_one_counts_in_milliseconds() {
        let mut filter = RttFilter::new(24_000);
        let changes: Vec<_> = (0..20).filter_map(|_| filter.sample(10_432)).collect();
        assert_eq!(changes, [24_000, 34_000]);
    }

    #[test]
    fn the_metric_is_tenths_of_milliseconds_and_never_zero() {
        assert_eq!(metric(0), 1);
        assert_eq!(metric(199), 1);
        assert_eq!(metric(24_000), 240);
        assert_eq!(metric(u64::MAX), u32::MAX);
    }

    proptest! {
        #[test]
        fn what_is_published_lies_within_what_was_measured(samples in prop::collection::vec(0u64..200_000, 1..300)) {
            let mut filter = RttFilter::new(0);
            for sample in &samples {
                filter.sample(*sample);
            }
            let (least, most) = (samples.iter().min().unwrap(), samples.iter().max().unwrap());
            prop_assert!((*least..=*most).contains(&filter.published_us()));
        }
    }
}

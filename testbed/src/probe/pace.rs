//! When the packets of the streams are due: absolute deadlines, and no burst after a delay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stream that has fallen behind by more than this gives the rest up instead of catching up.
const MAX_BACKLOG_NS: u64 = 500_000_000;

/// Deadlines of many streams on one clock, nanoseconds.
#[derive(Debug)]
pub struct Schedule {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    intervals: Vec<u64>,
    /// When each stream's next packet should go out if nothing were ever late.
    ideal: Vec<u64>,
    slipped: u64,
}

impl Schedule {
    /// Streams with these intervals; the first packets spread over the first interval of each, so that streams
    /// of equal rate do not send together.
    pub fn new(start_ns: u64, intervals: &[u64]) -> Self {
        let count = intervals.len().max(1) as u64;
        let ideal: Vec<u64> =
            intervals.iter().zip(0u64..).map(|(interval, n)| start_ns + interval * n / count).collect();
        let heap = ideal.iter().enumerate().map(|(stream, due)| Reverse((*due, stream))).collect();
        Self { heap, intervals: intervals.to_vec(), ideal, slipped: 0 }
    }

    /// Time between wake-ups that is short enough for the fastest stream: a quarter of its interval, between
    /// 0.1 and 1 ms. What is due within it is sent together.
    pub fn quantum_ns(&self) -> u64 {
        self.intervals.iter().min().map_or(1_000_000, |i| (i / 4).clamp(100_000, 1_000_000))
    }

    /// The next deadline.
    pub fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// A stream that is due at `until_ns` or before, with `now_ns` the time it is; its next packet is then due one
    /// interval later. Behind its time a stream sends at twice its rate until it has caught up.
    pub fn pop(&mut self, until_ns: u64, now_ns: u64) -> Option<usize> {
        let (due, stream) = self.heap.peek().map(|Reverse(x)| *x)?;
        if due > until_ns {
            return None;
        }
        let interval = self.intervals[stream];
        let ideal = &mut self.ideal[stream];
        *ideal += interval;
        if now_ns > *ideal + MAX_BACKLOG_NS {
            let missed = (now_ns - *ideal) / interval;
            self.slipped += missed;
            *ideal += missed * interval;
        }
        let next = (*ideal).max(now_ns + interval / 2);
        self.heap.pop();
        self.heap.push(Reverse((next, stream)));
        Some(stream)
    }

    /// Packets that were never sent because the machine stood still for too long.
    pub fn slipped(&self) -> u64 {
        self.slipped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_delay_makes_no_burst() {
        let mut s = Schedule::new(0, &[1_000]);
        // 20 packets behind
        let mut now = 20_000;
        assert_eq!(s.pop(now, now), Some(0));
        assert_eq!(s.pop(now, now), None);
        let mut sent = 1;
        while s.next_due().unwrap() <= 60_000 {
            now = now.max(s.next_due().unwrap());
            assert_eq!(s.pop(now, now), Some(0));
            assert_eq!(s.pop(now, now), None, "two at {now}");
            sent += 1;
        }
        // and the schedule is kept in the long run
        assert!((60..=61).contains(&sent), "{sent}");
        assert_eq!(s.slipped(), 0);
    }

    #[test]
    fn a_standstill_is_given_up() {
        let mut s = Schedule::new(0, &[1_000_000]);
        assert_eq!(s.pop(2_000_000_000, 2_000_000_000), Some(0));
        assert_eq!(s.next_due(), Some(2_000_500_000));
        assert_eq!(s.slipped(), 1_999);
        assert_eq!(s.pop(2_000_500_000, 2_000_500_000), Some(0));
        assert_eq!(s.next_due(), Some(2_001_000_000));
    }

    proptest! {
        #[test]
        fn rates_are_kept(intervals in prop::collection::vec(1_000u64..100_000, 1..10)) {
            let mut s = Schedule::new(0, &intervals);
            let mut sent = vec![0u64; intervals.len()];
            let end = 1_000_000;
            while let Some(due) = s.next_due().filter(|d| *d < end) {
                while let Some(stream) = s.pop(due, due) {
                    sent[stream] += 1;
                }
            }
            for (n, interval) in sent.iter().zip(&intervals) {
                let want = end / interval;
                prop_assert!(n.abs_diff(want) <= 1, "{} for {}", n, want);
            }
        }
    }
}

//! Tests of the loss accounting.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// One packet per millisecond; `lost` says which never arrive.
fn stream(flows: u16, packets: u64, lost: impl Fn(u64) -> bool) -> LossTracker {
    let mut tracker = LossTracker::new(flows, MS);
    for n in 0..packets {
        let sequence = tracker.sent(n * MS);
        if !lost(n) {
            tracker.received(sequence, n * MS + 200_000, Some(60));
        }
    }
    tracker.finish();
    tracker
}

#[test]
fn one_flow_reports_runs() {
    let t = stream(1, 100, |n| (10..17).contains(&n) || n == 40 || n == 99);
    let want = [
        LossWindow { start: 10 * MS, ms: 7.0, lost: 7, flows: 1 },
        LossWindow { start: 40 * MS, ms: 1.0, lost: 1, flows: 1 },
        LossWindow { start: 99 * MS, ms: 1.0, lost: 1, flows: 1 },
    ];
    assert_eq!(t.windows(), want);
    let c = t.counters();
    assert_eq!((c.sent, c.received, c.lost, c.duplicates, c.reordered), (100, 91, 9, 0, 0));
}

/// An outage of 20 ms that hits 4 of 10 flows is one window of its length, although other flows deliver in it.
#[test]
fn many_flows_report_the_outage() {
    let t = stream(10, 200, |n| (50..70).contains(&n) && n % 10 < 4);
    assert_eq!(t.windows(), [LossWindow { start: 50 * MS, ms: 14.0, lost: 8, flows: 4 }]);
    // a second outage after all flows have delivered again is a window of its own
    let t = stream(10, 200, |n| n == 50 || n == 61);
    assert_eq!(t.windows().len(), 2);
}

#[test]
fn duplicates_reordering_late_and_unknown() {
    let mut t = LossTracker::new(2, MS);
    for n in 0..6 {
        t.sent(n * MS);
    }
    for n in [2, 0, 1, 3, 3, 99] {
        t.received(n, 7 * MS, None);
    }
    t.unsent(5);
    t.settle(100 * MS);
    t.received(4, 200 * MS, None);
    let c = t.counters();
    assert_eq!((c.sent, c.received, c.lost), (5, 4, 1));
    assert_eq!((c.duplicates, c.reordered, c.late, c.send_errors), (1, 1, 1, 1));
}

#[test]
fn hop_limit_changes_count_per_flow() {
    let mut t = LossTracker::new(2, MS);
    for (n, hops) in [60, 57, 60, 57, 58, 57, 60, 57].into_iter().enumerate() {
        let sequence = t.sent(n as u64 * MS);
        t.received(sequence, n as u64 * MS, Some(hops));
    }
    assert_eq!(t.counters().path_changes, 2);
}

#[test]
fn preview_leaves_the_tracker_alone() {
    let mut t = LossTracker::new(1, MS);
    for n in 0..10 {
        t.sent(n * MS);
    }
    let p = t.preview(5 * MS);
    assert_eq!((p.counters().lost, p.windows().len()), (5, 1));
    assert_eq!((t.counters().lost, t.pending()), (0, 10));
    t.finish();
    assert_eq!(t.counters().lost, 10);
}

proptest! {
    /// Every packet is accounted for once, whatever arrives in whatever order and whenever the settling happens.
    #[test]
    fn the_books_balance(
        flows in 1u16..8,
        fate in prop::collection::vec((0u8..4, 0u64..30), 1..200),
        settles in prop::collection::vec(0u64..300, 0..5),
    ) {
        let mut t = LossTracker::new(flows, MS);
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for (n, (copies, delay)) in fate.iter().enumerate() {
            t.sent(n as u64 * MS);
            if *copies == 3 {
                t.unsent(n as u64);
            } else {
                for _ in 0..*copies {
                    arrivals.push(((n as u64 + delay) * MS, n as u64));
                }
            }
        }
        arrivals.sort_unstable();
        let mut settles = settles;
        settles.sort_unstable();
        for (at, n) in &arrivals {
            while settles.first().is_some_and(|s| s * MS <= *at) {
                // packets at most 40 ms old wait, and none is late by more than 30
                let s = settles.remove(0) * MS;
                t.settle(s.saturating_sub(40 * MS));
            }
            t.received(*n, *at, Some(60));
        }
        t.finish();
        let c = t.counters();
        let count = |copies: u8| fate.iter().filter(|f| f.0 == copies).count() as u64;
        prop_assert_eq!(c.sent + c.send_errors, fate.len() as u64);
        prop_assert_eq!(c.received + c.lost, c.sent);
        prop_assert_eq!(c.lost, count(0));
        prop_assert_eq!(c.duplicates, count(2));
        prop_assert_eq!(c.send_errors, count(3));
        prop_assert_eq!((c.late, c.path_changes), (0, 0));
        prop_assert_eq!(t.windows().iter().map(|w| w.lost).sum::<u64>(), c.lost);
        prop_assert_eq!(t.latency().total(), c.received);
        for pair in t.windows().windows(2) {
            prop_assert!(pair[0].start < pair[1].start);
        }
    }

    /// With one flow the windows are exactly the runs.
    #[test]
    fn one_flow_is_runs(lost in prop::collection::vec(any::<bool>(), 1..200)) {
        let t = stream(1, lost.len() as u64, |n| lost[usize::try_from(n).unwrap()]);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (n, gone) in lost.iter().enumerate() {
            let n = n as u64;
            match runs.last_mut() {
                Some(run) if *gone && run.0 + run.1 == n => run.1 += 1,
                _ if *gone => runs.push((n, 1)),
                _ => {}
            }
        }
        let got: Vec<(u64, u64)> = t.windows().iter().map(|w| (w.start / MS, w.lost)).collect();
        prop_assert_eq!(got, runs);
    }

    /// An outage that hits some flows for its whole length is one window, at most two rounds off at either end.
    #[test]
    fn an_outage_is_one_window(flows in 1u16..40, hit in 1u16..40, start in 100u64..200, length in 80u64..300) {
        let hit = hit.min(flows);
        let t = stream(flows, 700, |n| (start..start + length).contains(&n) && n % u64::from(flows) < u64::from(hit));
        prop_assert_eq!(t.windows().len(), 1);
        let w = &t.windows()[0];
        let slack = u64::from(flows);
        prop_assert!(w.start / MS >= start && w.start / MS <= start + slack);
        let ms = milliseconds(length * MS);
        prop_assert!(w.ms <= ms && w.ms + milliseconds(2 * slack * MS) >= ms);
    }
}

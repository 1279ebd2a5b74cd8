//! Two routers with BFD over a bad line, in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::packet::{LENGTH, State};
use super::session::{Nanos, Settings, Verdict};
use super::table::{Output, Table};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

/// A line between two tables; packets may be lost, late and out of order.
struct Line {
    now: Nanos,
    ends: [Table; 2],
    /// Arrival, order, receiver, bytes.
    flying: BinaryHeap<Reverse<(Nanos, u64, usize, [u8; LENGTH])>>,
    sent: u64,
    packets: u64,
    /// By direction (receiver).
    broken: [bool; 2],
    least_delay: Nanos,
    spread: Nanos,
    /// Of 256 packets.
    lost: u64,
    verdicts: Vec<(Nanos, usize, Verdict)>,
}

impl Line {
    fn new(settings: [Settings; 2], seed: u64) -> Self {
        let mut ends = [
            Table::new(settings[0], 1, seed | 1 << 33),
            Table::new(settings[1], 1, seed.rotate_left(17) | 1 << 34),
        ];
        for end in &mut ends {
            end.set_active(SECOND, 0, true);
        }
        Self {
            now: SECOND,
            ends,
            flying: BinaryHeap::new(),
            sent: seed,
            packets: 0,
            broken: [false; 2],
            least_delay: MS,
            spread: 0,
            lost: 0,
            verdicts: Vec::new(),
        }
    }

    fn act(&mut self, end: usize, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Verdict(_, verdict) => self.verdicts.push((self.now, end, verdict)),
                Output::Send(_, bytes) => {
                    self.sent = self.sent.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                    self.packets += 1;
                    let dice = self.sent >> 20;
                    let far = 1 - end;
                    if self.broken[far] || dice % 256 < self.lost {
                        continue;
                    }
                    let delay = self.least_delay + (dice >> 8) % (self.spread + 1);
                    self.flying.push(Reverse((self.now + delay, self.sent, far, bytes)));
                }
            }
        }
    }

    fn run_until(&mut self, end: Nanos) {
        for k in 0..2 {
            let mut out = Vec::new();
            self.ends[k].run(self.now, &mut out);
            self.act(k, out);
        }
        let mut steps = 0;
        loop {
            let packet = self.flying.peek().map(|Reverse((at, ..))| *at);
            let timer = self.ends.iter().filter_map(Table::next_deadline).min();
            let Some(next) = packet.into_iter().chain(timer).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            steps += 1;
            assert!(steps < 1_000_000, "a deadline that is never met");
            while let Some(Reverse((at, _, to, bytes))) = self.flying.peek().copied()
                && at <= self.now
            {
                self.flying.pop();
                let mut out = Vec::new();
                self.ends[to].receive(self.now, 0, &bytes, &mut out).unwrap();
                self.act(to, out);
            }
            for k in 0..2 {
                let mut out = Vec::new();
                self.ends[k].run(self.now, &mut out);
                self.act(k, out);
            }
        }
        self.now = end;
    }

    fn both_up(&self) -> bool {
        self.ends.iter().all(|e| e.state(0) == Some(State::Up))
    }

    fn breaks(&self) -> Vec<(Nanos, usize)> {
        let broken = self.verdicts.iter().filter(|(_, _, v)| matches!(v, Verdict::Broken(_)));
        broken.map(|(at, end, _)| (*at, *end)).collect()
    }
}

prop_compose! {
    fn settings()(tx in 5_u64..60, rx in 5_u64..60, multiplier in 1_u8..6) -> Settings {
        Settings { tx: tx * MS, rx: rx * MS, multiplier }
    }
}

/// How long `b` waits for `a`.
fn detection(a: Settings, b: Settings) -> Nanos {
    u64::from(a.multiplier) * a.tx.max(b.rx)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_break_is_found_within_the_detection_time_and_never_without_one(
        a in settings(), b in settings(), seed in any::<u64>(), delay in 0_u64..200, directions in 1_usize..4,
    ) {
        let mut line = Line::new([a, b], seed);
        line.least_delay = delay * MS / 10;
        line.run_until(4 * SECOND);
        prop_assert!(line.both_up(), "{:?}", line.verdicts);
        // however variable the delay, as long as it stays below what the shortest detection time leaves
        let slack = [(a, b), (b, a)].map(|(a, b)| detection(a, b) - a.tx.max(b.rx)
            + if a.multiplier == 1 { a.tx.max(b.rx) / 10 } else { 0 });
        line.spread = slack[0].min(slack[1]) * 9 / 10;
        line.run_until(10 * SECOND);
        prop_assert_eq!(line.breaks(), vec![], "false alarm");
        let cut = line.now;
        for direction in 0..2 {
            line.broken[direction] = directions & (1 << direction) != 0;
        }
        line.run_until(cut + 5 * SECOND);
        let breaks = line.breaks();
        prop_assert_eq!(breaks.len(), 2, "{:?}", breaks);
        // the end that hears nothing has to notice by itself, the other is told or notices as well
        for (at, end) in breaks {
            let (near, far) = if end == 0 { (b, a) } else { (a, b) };
            let flight = line.least_delay + line.spread;
            let limit = if line.broken[end] { detection(near, far) } else { detection(far, near) + flight };
            prop_assert!(at <= cut + limit + flight, "{} ms after the cut, end {end}", (at - cut) / MS);
        }
        // and back
        line.broken = [false; 2];
        line.spread = 0;
        line.run_until(cut + 10 * SECOND);
        prop_assert!(line.both_up());
    }

    #[test]
    fn losses_only_delay_the_start(seed in any::<u64>(), lost in 0_u64..100) {
        let fast = Settings { tx: 20 * MS, rx: 20 * MS, multiplier: 50 };
        let mut line = Line::new([fast, fast], seed);
        line.lost = lost;
        line.run_until(61 * SECOND);
        prop_assert!(line.both_up());
        prop_assert_eq!(line.breaks(), vec![]);
    }

    #[test]
    fn nothing_that_happens_makes_it_panic_or_busy(
        events in prop::collection::vec((0_u8..6, any::<u32>(), prop::collection::vec(any::<u8>(), 24)), 0..300),
    ) {
        let settings = Settings { tx: 7 * MS, rx: 9 * MS, multiplier: 2 };
        let mut table = Table::new(settings, 2, u64::MAX);
        let (mut now, mut out) = (SECOND, Vec::new());
        for (kind, number, mut bytes) in events {
            let session = usize::try_from(number % 3).unwrap();
            match kind {
                0 => table.set_active(now, session, number & 4 != 0),
                1 => {
                    // likely to be taken: right version and length, known or unknown number of the session
                    (bytes[0], bytes[1], bytes[3]) = (bytes[0] & 0x1F | 0x20, bytes[1] & 0xF2, 24);
                    let named = if number & 8 == 0 { 0 } else { 0xFF };
                    bytes[8..12].fill(named);
                    let _ = table.receive(now, session, &bytes, &mut out);
                }
                2 => table.unattended(now, session, &mut out),
                3 => table.retry(session, now + u64::from(number)),
                4 if number % 64 == 0 => table.switch_off(now),
                _ => now += u64::from(number),
            }
            for _ in 0..100 {
                table.run(now, &mut out);
                now = table.next_deadline().filter(|at| *at <= now).unwrap_or(now);
            }
            prop_assert!(table.next_deadline().is_none_or(|at| at > now), "a deadline that is never met");
            prop_assert!(out.len() < 20, "{} outputs of one event", out.len());
            out.clear();
        }
    }
}

#[test]
fn a_packet_of_another_session_or_interface_changes_nothing() {
    let settings = Settings { tx: 20 * MS, rx: 20 * MS, multiplier: 3 };
    let mut line = Line::new([settings; 2], 5);
    line.run_until(3 * SECOND);
    assert!(line.both_up());
    let mut out = Vec::new();
    let mut two = Table::new(settings, 2, 6 | 7 << 32);
    for session in 0..2 {
        two.set_active(0, session, true);
    }
    two.run(0, &mut out);
    let Output::Send(1, mut bytes) = out[1] else { panic!("{out:?}") };
    bytes[1] = 2 << 6;
    for named in [7_u32, 9] {
        bytes[8..12].copy_from_slice(&named.to_be_bytes());
        out.clear();
        // number 7 is that of interface 0, number 9 is nobody's
        two.receive(1, 1, &bytes, &mut out).unwrap();
        assert_eq!((out.as_slice(), two.state(1)), (&[][..], Some(State::Down)));
    }
    bytes[8..12].copy_from_slice(&8_u32.to_be_bytes());
    two.receive(1, 1, &bytes, &mut out).unwrap();
    assert_eq!(out, [Output::Verdict(1, Verdict::Passes)]);
}

#[test]
fn a_pair_sends_little_more_than_its_rate() {
    let settings = Settings { tx: 20 * MS, rx: 20 * MS, multiplier: 3 };
    let mut line = Line::new([settings; 2], 9);
    line.run_until(5 * SECOND);
    let before = line.packets;
    line.run_until(25 * SECOND);
    let mean = 20 * SECOND / ((line.packets - before) / 2);
    assert!((16 * MS..=19 * MS).contains(&mean), "{mean} ns between packets");
}

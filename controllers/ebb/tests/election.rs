//! Elections in a world without time of its own: calls that are late or lost, processes that are stopped for a while, clocks
//! that run unevenly. At no moment may two controllers hold a valid lease, and epochs only rise.
#![allow(clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use ebb::fence::Bid;
use ebb::fence::elector::{Action, At, Call, Elector, Event, LeaseId, Reply, Seen};
use proptest::prelude::*;

const TTL: Duration = Duration::from_secs(6);
const MARGIN: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(800);
const RETRY: Duration = Duration::from_secs(1);
/// Disturbances end here, ...
const CALM: Duration = Duration::from_secs(300);
/// ... and the world here.
const END: Duration = Duration::from_secs(340);

/// What etcd does with the two keys.
#[derive(Default)]
struct Service {
    leases: BTreeMap<LeaseId, At>,
    leader: Option<(usize, LeaseId)>,
    epoch: u64,
    revision: i64,
    granted: LeaseId,
}

impl Service {
    fn call(&mut self, now: At, who: usize, call: &Call) -> Reply {
        self.leases.retain(|_, end| *end > now);
        let leases = &self.leases;
        self.leader = self.leader.filter(|(_, lease)| leases.contains_key(lease));
        match *call {
            Call::Read => Reply::Seen(Seen {
                leader: self.leader.map(|(who, _)| who.to_string()),
                epoch: self.epoch,
                revision: self.revision,
            }),
            Call::Grant(ttl) => {
                self.granted += 1;
                self.leases.insert(self.granted, now + ttl);
                Reply::Granted(self.granted, ttl)
            }
            Call::Claim { lease, revision, epoch } => {
                let free = self.leader.is_none() && self.leases.contains_key(&lease);
                let done = free && self.revision == revision;
                if done {
                    self.leader = Some((who, lease));
                    (self.epoch, self.revision) = (epoch, self.revision + 1);
                }
                Reply::Done(done)
            }
            Call::Raise { lease, revision, epoch } => {
                let done = self.leader == Some((who, lease)) && self.revision == revision;
                if done {
                    (self.epoch, self.revision) = (epoch, self.revision + 1);
                }
                Reply::Done(done)
            }
            Call::KeepAlive(lease) => {
                let end = self.leases.get_mut(&lease);
                Reply::Alive(end.map(|end| {
                    *end = now + TTL;
                    TTL
                }))
            }
            Call::Revoke(lease) => {
                self.leases.remove(&lease);
                self.leader = self.leader.filter(|(_, of)| *of != lease);
                Reply::Revoked
            }
        }
    }
}

#[derive(Clone, Debug)]
enum What {
    /// A call reaches the service; the answer comes then, or never.
    Arrives(u64, Call, Option<At>),
    /// To the elector.
    Happens(Event),
}

struct Process {
    elector: Elector,
    /// Its clock runs that much faster, parts in a thousand.
    drift: i32,
    stopped_until: At,
    led: bool,
}

impl Process {
    /// Real time to its own.
    fn own(&self, real: At) -> At {
        real * u32::try_from(1000 + self.drift).unwrap() / 1000
    }

    fn real(&self, own: At) -> At {
        own * 1000 / u32::try_from(1000 + self.drift).unwrap()
    }
}

struct World {
    dice: u64,
    service: Service,
    processes: Vec<Process>,
    queue: BinaryHeap<Reverse<(At, u64, usize)>>,
    what: BTreeMap<u64, What>,
    highest: u64,
    won: usize,
    /// Chance in a hundred that a message is lost.
    loss: u64,
}

impl World {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    fn delay(&mut self) -> Duration {
        let most = if self.roll(10) == 0 { 1200 } else { 100 };
        Duration::from_millis(self.roll(most))
    }

    fn at(&mut self, at: At, who: usize, what: What) {
        let id = u64::try_from(self.what.len()).unwrap();
        self.what.insert(id, what);
        self.queue.push(Reverse((at, id, who)));
    }

    fn send(&mut self, now: At, who: usize, turn: u64, call: Call) {
        let calm = now > CALM;
        let lost = |roll: u64, loss: u64| !calm && roll < loss;
        let (there, back) = (self.delay(), self.delay());
        let (roll_there, roll_back) = (self.roll(100), self.roll(100));
        let silent = What::Happens(Event::Answer(turn, Err("no answer".into())));
        let in_time = there + back < TIMEOUT && !lost(roll_back, self.loss);
        let comes = !lost(roll_there, self.loss);
        if turn > 0 && !(comes && in_time) {
            self.at(now + TIMEOUT, who, silent);
        }
        if comes {
            self.at(
                now + there,
                who,
                What::Arrives(turn, call, (turn > 0 && in_time).then(|| now + there + back)),
            );
        }
    }

    /// No two may write; returns who may.
    fn leaders(&self, now: At) -> Vec<usize> {
        let leads = |p: &Process| p.elector.until().is_some_and(|until| p.own(now) < until);
        (0..self.processes.len()).filter(|&i| leads(&self.processes[i])).collect()
    }

    fn step(&mut self, now: At, who: usize, event: Event) {
        let own = self.processes[who].own(now);
        for action in self.processes[who].elector.step(own, event) {
            match action {
                Action::Call(turn, call) => self.send(now, who, turn, call),
                Action::GiveBack(lease) => self.send(now, who, 0, Call::Revoke(lease)),
                Action::Bid(Ok(Bid::Won(epoch))) => {
                    assert!(epoch > self.highest, "epoch {epoch} after {}", self.highest);
                    self.highest = epoch;
                    self.won += 1;
                    self.processes[who].led = true;
                    let (roll, later) = (self.roll(4), Duration::from_millis(self.roll(20_000)));
                    match roll {
                        0 if now < CALM => self.at(now + later, who, What::Happens(Event::Resign)),
                        1 => self.at(now + later, who, What::Happens(Event::RaiseAbove(epoch + 10))),
                        _ => {}
                    }
                }
                Action::Bid(_) => self.at(now + RETRY, who, What::Happens(Event::Campaign)),
                Action::Raised(Ok(Some(epoch))) => {
                    assert!(epoch > self.highest, "raised to {epoch} after {}", self.highest);
                    self.highest = epoch;
                }
                Action::Raised(_) => {}
            }
        }
        let process = &mut self.processes[who];
        if process.led && process.elector.until().is_none() {
            process.led = false;
            self.at(now + RETRY, who, What::Happens(Event::Campaign));
        }
        let process = &self.processes[who];
        if let Some(wake) = process.elector.wake() {
            // never before the own clock shows that time
            let wake = process.real(wake).max(now) + Duration::from_millis(1);
            self.at(wake, who, What::Happens(Event::Wake));
        }
    }

    /// Runs until `enough` says so or the world ends.
    fn run(&mut self, enough: impl Fn(&Self) -> bool) {
        while let Some(Reverse((now, id, who))) = self.queue.pop() {
            if now > END {
                return;
            }
            match self.what[&id].clone() {
                What::Arrives(turn, call, answer) => {
                    let reply = self.service.call(now, who, &call);
                    if let Some(at) = answer {
                        self.at(at, who, What::Happens(Event::Answer(turn, Ok(reply))));
                    }
                }
                What::Happens(event) => {
                    let until = self.processes[who].stopped_until;
                    if now < until {
                        self.at(until, who, What::Happens(event));
                        continue;
                    }
                    if now < CALM && self.roll(200) == 0 {
                        let long = Duration::from_millis(self.roll(12_000));
                        self.processes[who].stopped_until = now + long;
                    }
                    self.step(now, who, event);
                }
            }
            let leaders = self.leaders(now);
            assert!(leaders.len() < 2, "at {now:?} both {leaders:?} may write");
            if enough(self) {
                return;
            }
        }
    }
}

fn world(seed: u64, replicas: usize, loss: u64, drifts: &[i32]) -> World {
    let process = |i: usize| Process {
        elector: Elector::new(TTL, MARGIN),
        drift: drifts[i % drifts.len()],
        stopped_until: At::ZERO,
        led: false,
    };
    let mut world = World {
        dice: seed,
        service: Service::default(),
        processes: (0..replicas).map(process).collect(),
        queue: BinaryHeap::new(),
        what: BTreeMap::new(),
        highest: 0,
        won: 0,
        loss,
    };
    (0..replicas).for_each(|who| world.at(At::ZERO, who, What::Happens(Event::Campaign)));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_leader_at_a_time_and_rising_epochs(
        seed in any::<u64>(),
        replicas in 1_usize..7,
        loss in 0_u64..40,
        drifts in prop::collection::vec(-20_i32..20, 1..4),
    ) {
        let mut world = world(seed, replicas, loss, &drifts);
        world.run(|_| false);
        prop_assert_eq!(world.leaders(END).len(), 1, "nobody leads after half a minute without disturbances");
        prop_assert!(world.won > 0);
    }
}

/// Input: a leader that is stopped for longer than its lease, and goes on. Output: it knows at once that it does not lead, its
/// successor has a higher epoch.
#[test]
fn a_leader_that_was_stopped_stands_down() {
    let mut world = world(7, 3, 0, &[0]);
    world.run(|w| w.won == 1);
    let epoch = world.highest;
    let led = world.processes.iter_mut().find(|p| p.led).unwrap();
    led.stopped_until = Duration::from_secs(30);
    world.run(|w| w.won == 2);
    assert_eq!(world.highest, epoch + 1);
    // no two at a time is checked at every step, also when the first one goes on
    world.run(|_| false);
}

//! Two ends of a circuit, their kernels, and a wire that loses, repeats and delays; agents are killed between any two
//! actions. What is watched is what matters: a frame that leaves must be taken.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use rtnl::macsec::{Association, Channel, Device, Sci};

use super::circuit::{Action, CALM, Circuit, GRACE, HURRIED, Nanos};
use super::hello::Hello;

const ROTATE: Duration = Duration::from_secs(5);
const SECOND: Nanos = 1_000_000_000;

/// What a kernel does with the keys of one interface.
#[derive(Clone)]
struct Kernel(Device);

impl Kernel {
    fn new(end: u8) -> Self {
        Self(Device { ifindex: 1, sci: Sci([end; 8]), sends_with: 0, tx: Vec::new(), rx: Vec::new() })
    }

    fn channel(&mut self, sci: Sci) -> &mut Vec<Association> {
        &mut self.0.rx.iter_mut().find(|c| c.sci == sci).expect("a channel that is there").associations
    }

    /// As Linux would; what it would refuse is a panic.
    fn carry_out(&mut self, action: &Action) {
        let add = |list: &mut Vec<Association>, an, key| {
            assert!(list.iter().all(|a| a.an != an), "association {an} is taken");
            list.push(Association { an, active: true, key, next: 1 });
        };
        let remove = |list: &mut Vec<Association>, an| {
            let before = list.len();
            list.retain(|a| a.an != an);
            assert!(list.len() < before, "association {an} is not there");
        };
        match action {
            Action::Say(_) => {}
            Action::AddChannel(sci) => {
                assert!(self.0.rx.iter().all(|c| c.sci != *sci));
                self.0.rx.push(Channel { sci: *sci, associations: Vec::new() });
            }
            Action::RemoveChannel(sci) => self.0.rx.retain(|c| c.sci != *sci),
            Action::AddRx(sci, named) => add(self.channel(*sci), named.an, named.key),
            Action::RemoveRx(sci, an) => remove(self.channel(*sci), *an),
            Action::SendWith(named) => {
                add(&mut self.0.tx, named.an, named.key);
                self.0.sends_with = named.an;
            }
            Action::RemoveTx(an) => remove(&mut self.0.tx, *an),
        }
    }

    fn key(&self) -> Option<&Association> {
        self.0.tx.iter().find(|a| a.an == self.0.sends_with)
    }
}

/// An agent at an end: nothing while it is dead.
struct End {
    kernel: Kernel,
    circuit: Option<Circuit>,
}

/// The whole circuit.
struct Sim {
    now: Nanos,
    ends: [End; 2],
    /// Frames under way to each end.
    wire: [VecDeque<Hello>; 2],
    /// All that were ever said, for those who play old ones again.
    old: [Vec<Hello>; 2],
    lives: u8,
    /// Actions that the next agent to act survives; it dies then.
    fuse: Option<usize>,
}

impl Sim {
    fn new() -> Self {
        let end = |n| End { kernel: Kernel::new(n), circuit: None };
        let mut sim = Self {
            now: SECOND,
            ends: [end(1), end(2)],
            wire: Default::default(),
            old: Default::default(),
            lives: 0,
            fuse: None,
        };
        sim.start(0);
        sim.start(1);
        sim
    }

    fn start(&mut self, end: usize) {
        if self.ends[end].circuit.is_some() {
            return;
        }
        self.lives += 1;
        let device = self.ends[end].kernel.0.clone();
        let (circuit, actions) = Circuit::start(self.now, &device, [self.lives; 12], ROTATE);
        self.ends[end].circuit = Some(circuit);
        self.carry_out(end, actions);
    }

    fn carry_out(&mut self, end: usize, actions: Vec<Action>) {
        for action in actions {
            match &mut self.fuse {
                Some(0) => {
                    (self.fuse, self.ends[end].circuit) = (None, None);
                    return;
                }
                Some(left) => *left -= 1,
                None => {}
            }
            if let Action::Say(hello) = &action {
                self.wire[1 - end].push_back(hello.clone());
                self.old[1 - end].push(hello.clone());
            }
            let kernel = &mut self.ends[end].kernel;
            let sent = kernel.key().is_some();
            kernel.carry_out(&action);
            assert!(
                !sent || kernel.key().is_some(),
                "end {end} has no key left to send with: nothing leaves"
            );
            self.check();
        }
    }

    /// What an end sends must be taken by the other.
    fn check(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let Some(sent) = self.ends[from].kernel.key() else { continue };
            let channels = &self.ends[to].kernel.0.rx;
            let channel = channels.iter().find(|c| c.sci == self.ends[from].kernel.0.sci);
            let taken = channel.and_then(|c| c.associations.iter().find(|a| a.an == sent.an));
            assert_eq!(taken.map(|a| a.key), Some(sent.key), "end {to} does not take what {from} sends");
        }
    }

    fn tick(&mut self, end: usize) {
        let now = self.now;
        let actions = self.ends[end].circuit.as_mut().map(|c| c.tick(now)).unwrap_or_default();
        self.carry_out(end, actions);
    }

    fn hear(&mut self, end: usize, hello: &Hello) {
        let now = self.now;
        let actions = self.ends[end].circuit.as_mut().map(|c| c.hear(now, hello)).unwrap_or_default();
        self.carry_out(end, actions);
    }

    fn deliver(&mut self) {
        for _ in 0..50 {
            for end in [0, 1] {
                if let Some(hello) = self.wire[end].pop_front() {
                    self.hear(end, &hello);
                }
            }
        }
    }

    /// Time goes on with both agents alive and a good wire.
    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.now += HURRIED / 2;
            for end in [0, 1] {
                self.start(end);
                self.tick(end);
            }
            self.deliver();
        }
    }

    fn rotations(&self) -> [u64; 2] {
        [0, 1].map(|end| self.ends[end].circuit.as_ref().map_or(0, Circuit::rotations))
    }
}

#[test]
fn two_agents_agree_at_once_and_change_keys_for_ever() {
    let mut sim = Sim::new();
    sim.tick(0);
    sim.tick(1);
    sim.deliver();
    assert!(sim.ends.iter().all(|end| end.kernel.key().is_some()), "a few frames and no time are enough");
    sim.run(60 * SECOND);
    assert!(sim.rotations().iter().all(|n| (9..=12).contains(n)), "{:?}", sim.rotations());
    // one key to send with; the key that is taken, or two of them around a change
    for end in &sim.ends {
        assert_eq!(end.kernel.0.tx.len(), 1);
        assert!((1..=2).contains(&end.kernel.0.rx[0].associations.len()));
    }
}

#[test]
fn keys_are_never_used_twice() {
    let mut sim = Sim::new();
    let mut seen = [Vec::new(), Vec::new()];
    for round in 0..200 {
        sim.run(SECOND / 2);
        if round % 17 == 0 {
            sim.ends[round % 2].circuit = None;
        }
        for (end, seen) in sim.ends.iter().zip(&mut seen) {
            seen.extend(end.kernel.key().map(|a| a.key));
        }
    }
    for mut seen in seen {
        seen.dedup();
        let different: std::collections::BTreeSet<_> = seen.iter().collect();
        assert!(different.len() == seen.len() && seen.len() > 10, "a key that was left is back");
    }
}

#[test]
fn a_neighbour_that_is_gone_costs_no_key() {
    let mut sim = Sim::new();
    sim.run(3 * SECOND);
    sim.ends[1].circuit = None;
    let before = sim.ends[0].kernel.key().copied();
    for _ in 0..200 {
        sim.now += HURRIED;
        sim.tick(0);
    }
    assert_eq!(sim.ends[0].kernel.key().copied(), before, "what the other end takes is used on");
    sim.run(2 * CALM);
    assert_ne!(sim.ends[0].kernel.key().copied(), before, "and changed when it is back");
}

#[test]
fn an_interface_that_is_made_anew_gets_keys_again() {
    for end in [0, 1] {
        let mut sim = Sim::new();
        sim.run(8 * SECOND);
        sim.ends[end].kernel = Kernel::new(u8::try_from(end + 1).unwrap());
        let (now, device) = (sim.now, sim.ends[end].kernel.0.clone());
        let actions = sim.ends[end].circuit.as_mut().unwrap().adopt(now, &device);
        assert_eq!(actions, []);
        // until they have agreed the other end sends with a key that nobody takes: nothing to check
        sim.ends[1 - end].kernel.0.tx.clear();
        let device = sim.ends[1 - end].kernel.0.clone();
        sim.ends[1 - end].circuit.as_mut().unwrap().adopt(now, &device);
        sim.run(CALM);
        assert!(sim.ends.iter().all(|end| end.kernel.key().is_some()));
    }
}

#[test]
fn what_was_said_before_moves_nothing() {
    let mut sim = Sim::new();
    sim.run(7 * SECOND);
    sim.ends[0].circuit = None;
    sim.run(7 * SECOND);
    sim.ends[1].circuit = None;
    sim.run(7 * SECOND);
    let keys =
        |sim: &Sim| [0, 1].map(|end| (sim.ends[end].kernel.0.tx.clone(), sim.ends[end].kernel.0.rx.clone()));
    let before = keys(&sim);
    for end in [0, 1] {
        for hello in sim.old[end].clone() {
            sim.hear(end, &hello);
        }
    }
    assert_eq!(keys(&sim), before);
    sim.wire = Default::default();
    sim.run(7 * SECOND);
    assert!(sim.rotations().iter().all(|n| *n >= 2), "they still agree: {:?}", sim.rotations());
}

/// What happens to the circuit.
#[derive(Clone, Debug)]
enum Step {
    Pass(Nanos),
    Tick(usize),
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    /// An old one again, by its place among all.
    Replay(usize, usize),
    Swap(usize),
    /// The next agent that acts dies after so many actions.
    Light(usize),
    Kill(usize),
    Start(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let end = 0..2_usize;
    prop_oneof![
        3 => (1..3 * SECOND).prop_map(Step::Pass),
        4 => end.clone().prop_map(Step::Tick),
        8 => end.clone().prop_map(Step::Deliver),
        1 => end.clone().prop_map(Step::Lose),
        1 => end.clone().prop_map(Step::Repeat),
        1 => (end.clone(), 0..1000_usize).prop_map(|(end, at)| Step::Replay(end, at)),
        1 => end.clone().prop_map(Step::Swap),
        1 => (0..5_usize).prop_map(Step::Light),
        1 => end.clone().prop_map(Step::Kill),
        4 => end.prop_map(Step::Start),
    ]
}

impl Sim {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Pass(time) => self.now += time,
            Step::Tick(end) => self.tick(end),
            Step::Deliver(end) => {
                if let Some(hello) = self.wire[end].pop_front() {
                    self.hear(end, &hello);
                }
            }
            Step::Lose(end) => drop(self.wire[end].pop_front()),
            Step::Repeat(end) => {
                if let Some(hello) = self.wire[end].front().cloned() {
                    self.hear(end, &hello);
                }
            }
            Step::Replay(end, at) => {
                let hello = self.old[end].get(at % self.old[end].len().max(1)).cloned();
                if let Some(hello) = hello {
                    self.hear(end, &hello);
                }
            }
            Step::Swap(end) => {
                if self.wire[end].len() > 1 {
                    self.wire[end].swap(0, 1);
                }
            }
            Step::Light(actions) => self.fuse = Some(actions),
            Step::Kill(end) => self.ends[end].circuit = None,
            Step::Start(end) => self.start(end),
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is lost, repeated, turned round, played again, and whoever is killed at which action: what leaves is taken,
    /// and with a good wire and both agents alive keys change again.
    #[test]
    fn nothing_that_leaves_is_lost(steps in prop::collection::vec(step(), 0..250)) {
        let mut sim = Sim::new();
        for step in &steps {
            sim.step(step);
        }
        sim.fuse = None;
        sim.run(2 * CALM);
        prop_assert!(sim.ends.iter().all(|end| end.kernel.key().is_some()));
        let before = sim.rotations();
        sim.run(2 * SECOND * ROTATE.as_secs() + GRACE);
        let after = sim.rotations();
        prop_assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
    }
}

//! A whole plane in memory: random paths, random failures told to each router in its own time. After everything has
//! been told, every packet of the source reaches the destination over links that are up, with at most three labels.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::memory::{Memory, driver, lsp, path_with};
use crate::label::{LABEL_MAX, Mesh, Nexthop, SID_BASE, Sid};
use crate::lsp::driver::Driver;
use crate::lsp::state::{Exit, Known, Plan};
use crate::proto::{self, Phase};

const ROUTERS: usize = 10;

/// Names sort before each other as their numbers do.
fn name(router: usize) -> String {
    format!("r{router:02}")
}

/// Full mesh; the label of "out to router k" is 16 + k on every router.
fn static_label(_: &str, far: &str) -> u32 {
    16 + far[1..].parse::<u32>().unwrap()
}

struct Plane {
    routers: Vec<Driver<Memory>>,
    /// Links that are cut, lower router first.
    cut: BTreeSet<(usize, usize)>,
    /// Routers that have not been told yet, with what: (router that advertises, its neighbours).
    untold: Vec<(usize, usize)>,
}

impl Plane {
    fn new() -> Self {
        let routers = (0..ROUTERS).map(|r| {
            let others: Vec<String> = (0..ROUTERS).filter(|o| *o != r).map(name).collect();
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            driver(&name(r), u8::try_from(r).unwrap(), &others, None)
        });
        Self { routers: routers.collect(), cut: BTreeSet::new(), untold: Vec::new() }
    }

    fn up(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Cuts or restores a link; only its two routers see it at once.
    fn toggle(&mut self, a: usize, b: usize) {
        let link = (a.min(b), a.max(b));
        if !self.cut.remove(&link) {
            self.cut.insert(link);
        }
        let up = self.up(a, b);
        for (near, far) in [(a, b), (b, a)] {
            let event = self.routers[near].kernel.set(&format!("to-{}", name(far)), up);
            self.routers[near].engine.interface(&event);
            self.routers[near].repair().unwrap();
            self.untold.extend((0..ROUTERS).map(|told| (told, near)));
        }
    }

    /// Tells a router what another one advertises now; it may have missed what was true in between.
    fn tell(&mut self, told: usize, about: usize) {
        let up: Vec<String> = (0..ROUTERS)
            .filter(|o| *o != about && self.up(*o, about))
            .map(|o| format!("to-{}", name(o)))
            .collect();
        let driver = &mut self.routers[told];
        driver.engine.advertised(&name(about), up.iter().map(String::as_str));
        driver.repair().unwrap();
        self.untold.retain(|pair| *pair != (told, about));
    }

    fn settle(&mut self) {
        while let Some((told, about)) = self.untold.pop() {
            self.tell(told, about);
        }
    }

    fn program(&mut self, phase: Phase, bundle: &proto::Bundle, only: impl Fn(usize) -> bool) {
        for r in (0..ROUTERS).filter(|r| only(*r)) {
            let (results, _) = self.routers[r].program(phase, vec![bundle.clone()]).unwrap();
            assert!(results[0].ok, "{}", results[0].error);
        }
    }

    fn program_all(&mut self, bundle: &proto::Bundle) {
        let sid = Sid::decode(bundle.sid).unwrap();
        self.program(Phase::Transit, bundle, |r| r != usize::from(sid.src));
        self.check_all();
        self.program(Phase::Source, bundle, |r| r == usize::from(sid.src));
        self.check_all();
        let old = proto::Bundle { sid: sid.flipped().encode(), lsps: Vec::new() };
        self.program(Phase::Retire, &old, |_| true);
    }

    /// What is wanted is what the kernel has, on every router.
    fn check_kernels(&mut self) {
        for driver in &mut self.routers {
            while driver.is_unsettled() {
                driver.settle(1).unwrap();
            }
            driver.tidy(usize::MAX).unwrap();
            let mut plan = Plan::default();
            driver.engine.bundles().keys().for_each(|key| driver.engine.plan(*key, &mut plan));
            assert!(plan.is_empty(), "{}: {plan:?}", driver.engine.router().node);
            assert_eq!(driver.kernel.truth, *driver.engine.known());
            dangling(&driver.kernel.truth);
        }
    }

    /// Every group of every source carries all its packets to the end.
    fn check_all(&mut self) {
        // first aid alone must do, and the order after it
        self.check_packets();
        self.check_kernels();
        self.check_packets();
    }

    fn check_packets(&self) {
        for (r, driver) in self.routers.iter().enumerate() {
            for (&group, members) in &driver.kernel.truth.groups {
                let Some(Nexthop::Group { dst, .. }) = Nexthop::decode(group) else {
                    panic!("group {group:#x}")
                };
                for (id, _) in members {
                    self.walk(r, usize::from(dst), &driver.kernel.truth.members[id], 0);
                }
            }
        }
    }

    fn walk(&self, at: usize, dst: usize, exit: &Exit, hops: usize) {
        assert!(exit.labels.len() <= 3 && hops < 64);
        let name_of =
            &self.routers[at].kernel.interfaces.iter().find(|(_, v)| v.0 == exit.ifindex).unwrap().0;
        let mut at = {
            let next: usize = name_of["to-r".len()..].parse().unwrap();
            assert!(self.up(at, next), "a packet over the cut link {at}-{next}");
            next
        };
        let mut hops = hops + 1;
        for &label in exit.labels.iter() {
            assert!(label <= LABEL_MAX);
            if label >= SID_BASE {
                let exits = self.routers[at].kernel.truth.sids.get(&label);
                let exits = exits.unwrap_or_else(|| panic!("{label} is unknown at {at}"));
                return exits.iter().for_each(|exit| self.walk(at, dst, exit, hops));
            }
            let next = usize::try_from(label - 16).unwrap();
            assert!(self.up(at, next), "a packet over the cut link {at}-{next}");
            (at, hops) = (next, hops + 1);
        }
        assert_eq!(at, dst);
    }
}

fn dangling(known: &Known) {
    let missing = known.groups.values().flatten().find(|(id, _)| !known.members.contains_key(id));
    assert_eq!(missing, None);
}

/// A path from 0 to `dst` over distinct routers chosen by `picks`.
fn path(dst: usize, picks: &[Index]) -> proto::Path {
    let mut free: Vec<usize> = (1..ROUTERS).filter(|r| *r != dst).collect();
    let mut routers = vec![0];
    for pick in picks.iter().take(free.len()) {
        routers.push(free.remove(pick.index(free.len())));
    }
    routers.push(dst);
    let names: Vec<String> = routers.into_iter().map(name).collect();
    path_with(&names.iter().map(String::as_str).collect::<Vec<_>>(), static_label)
}

fn bundle_strategy() -> impl Strategy<Value = Vec<(Vec<Index>, Option<Vec<Index>>)>> {
    let picks = || prop::collection::vec(any::<Index>(), 0..8);
    prop::collection::vec((picks(), prop::option::of(picks())), 1..6)
}

#[derive(Clone, Debug)]
enum Step {
    Program(usize, Vec<(Vec<Index>, Option<Vec<Index>>)>),
    Toggle(Index, Index),
    Tell(Index),
    Settle,
    Race(usize, Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..4usize, bundle_strategy()).prop_map(|(dst, b)| Step::Program(dst, b)),
        4 => any::<(Index, Index)>().prop_map(|(a, b)| Step::Toggle(a, b)),
        6 => any::<Index>().prop_map(Step::Tell),
        1 => Just(Step::Settle),
        1 => (0..6usize, any::<Index>()).prop_map(|(after, far)| Step::Race(after, far)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn packets_arrive_after_any_history(steps in prop::collection::vec(step(), 1..24)) {
        let mut plane = Plane::new();
        let mut versions: BTreeMap<usize, bool> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Program(dst, paths) => {
                    plane.settle();
                    let version = versions.entry(dst).or_insert(true);
                    *version = !*version;
                    let sid = Sid { src: 0, dst: u8::try_from(dst).unwrap(), mesh: Mesh::Gold, version: *version };
                    let lsps = paths.iter().map(|(p, b)| lsp(path(dst, p), b.as_ref().map(|b| path(dst, b))));
                    plane.program_all(&proto::Bundle { sid: sid.encode(), lsps: lsps.collect() });
                }
                Step::Toggle(a, b) => {
                    let (a, b) = (a.index(ROUTERS), b.index(ROUTERS));
                    if a != b { plane.toggle(a, b) }
                }
                Step::Tell(which) => {
                    if !plane.untold.is_empty() {
                        let (told, about) = plane.untold[which.index(plane.untold.len())];
                        plane.tell(told, about);
                    }
                }
                Step::Settle => {
                    plane.settle();
                    plane.check_all();
                }
                Step::Race(after, far) => {
                    // the source's kernel loses a link in the middle of its next write; the event comes later
                    let far = 1 + far.index(ROUTERS - 1);
                    if plane.up(0, far) {
                        plane.routers[0].kernel.race = Some((after, format!("to-{}", name(far))));
                        plane.toggle(if far == 1 { 2 } else { 1 }, 0);
                        plane.routers[0].kernel.race = None;
                        if plane.routers[0].kernel.interfaces[&format!("to-{}", name(far))].1 {
                            continue;
                        }
                        plane.toggle(0, far);
                    }
                }
            }
            for driver in &plane.routers {
                dangling(&driver.kernel.truth);
            }
        }
        plane.settle();
        plane.check_all();
    }
}

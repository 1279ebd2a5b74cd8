//! Rollouts on a network in memory: two planes of three routers, time by the look.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use proptest::prelude::*;
use router_emu::config_agent::edit::Edit;
use serde_json::json;

use super::config::{RolloutConfig, Target};
use super::core::{NotPushed, Order, Rollout, Verdict};
use super::detect::{Alarm, Detector, Limits, Look, Sample};

const SECOND: u64 = 1_000_000_000;

fn config(canary: bool) -> RolloutConfig {
    let target = |plane: u8, site: u8| Target {
        name: format!("eb0{plane}.{site}"),
        plane,
        site,
        loopback: Ipv6Addr::LOCALHOST,
    };
    RolloutConfig {
        writer: "ops".into(),
        comment: String::new(),
        site: 1,
        routers: [1, 2].iter().flat_map(|plane| (1..=3).map(move |site| target(*plane, site))).collect(),
        edits: vec![Edit { path: "interfaces.*.enabled".into(), value: json!(false) }],
        canary,
        soak_ms: 5_000,
        confirm_within_ms: 20_000,
        poll_ms: 1_000,
        rpc_timeout_ms: 1_000,
        recover_within_ms: 60_000,
        limits: Limits::default(),
    }
}

#[test]
fn a_file_that_cannot_work_is_refused_with_words() {
    assert_eq!(config(true).check(), Ok(()));
    let short = RolloutConfig { confirm_within_ms: 5_000, ..config(true) };
    let words = "confirm_within_ms is 5000: routers would go back before the 5000 ms of watching are over";
    assert_eq!(short.check().unwrap_err(), words);
    assert_eq!(config(true).stages().len(), 2);
    assert_eq!(config(false).stages().iter().map(Vec::len).collect::<Vec<_>>(), [6]);
}

/// What the change does to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    None,
    /// Links and paths of routers that have it are gone; only routers of site 1 still answer.
    Links,
    /// Traffic is, and nothing else.
    Traffic,
    /// Only in planes from this on.
    LinksFromPlane(u8),
}

/// A network in which every router has one version or another.
struct Network {
    harm: Harm,
    now: u64,
    version: BTreeMap<String, u64>,
    unconfirmed: BTreeMap<String, u64>,
    packets: BTreeMap<String, u64>,
    /// Seconds that paths need to come back.
    slow: u64,
    healthy_since: u64,
    ever: BTreeMap<String, bool>,
    /// Routers that refuse, and whether the change was sent to them.
    refuses: BTreeMap<String, bool>,
}

impl Network {
    fn new(harm: Harm, config: &RolloutConfig) -> Self {
        Self {
            harm,
            now: 100 * SECOND,
            version: config.routers.iter().map(|r| (r.name.clone(), 1)).collect(),
            unconfirmed: BTreeMap::new(),
            packets: BTreeMap::new(),
            slow: 3,
            healthy_since: 0,
            ever: BTreeMap::new(),
            refuses: BTreeMap::new(),
        }
    }

    fn harmed(&self, target: &Target) -> bool {
        let has = self.version[&target.name] > 1;
        has && match self.harm {
            Harm::None => false,
            Harm::Links | Harm::Traffic => true,
            Harm::LinksFromPlane(first) => target.plane >= first,
        }
    }

    /// A second passes; those that wait too long go back.
    fn pass(&mut self, config: &RolloutConfig) {
        self.now += SECOND;
        let due: Vec<String> =
            self.unconfirmed.iter().filter(|(_, at)| **at <= self.now).map(|(r, _)| r.clone()).collect();
        for router in due {
            self.unconfirmed.remove(&router);
            self.version.insert(router, 1);
        }
        for target in &config.routers {
            let blocked = self.harmed(target);
            *self.packets.entry(target.name.clone()).or_default() += if blocked { 0 } else { 200 };
        }
        if config.routers.iter().any(|r| self.harmed(r)) {
            self.healthy_since = self.now + self.slow * SECOND;
        }
    }

    fn look(&self, config: &RolloutConfig) -> Look {
        let links = !matches!(self.harm, Harm::Traffic);
        let mut look = Look::new();
        for target in &config.routers {
            let harmed = links && self.harmed(target);
            let paths = if harmed || links && self.now < self.healthy_since { 0 } else { 32 };
            let sample = Sample {
                version: self.version[&target.name],
                unconfirmed: self.unconfirmed.contains_key(&target.name),
                adjacencies: if harmed { 0 } else { 2 },
                paths,
                packets: self.packets.get(&target.name).copied().unwrap_or(0),
            };
            look.insert(target.name.clone(), (!harmed || target.site == 1).then_some(sample));
        }
        look
    }

    /// Runs a rollout to its end; the kinds of what it said.
    fn run(&mut self, config: &RolloutConfig) -> (Verdict, Vec<&'static str>) {
        let mut rollout = Rollout::new(config.clone());
        let mut said = Vec::new();
        for _ in 0..500 {
            let news = match rollout.order() {
                Order::End(verdict) => return (verdict, said),
                Order::Look => {
                    self.pass(config);
                    rollout.looked(self.now, self.look(config))
                }
                Order::Push(routers) => {
                    let before = self.version.clone();
                    rollout.pushing(self.now);
                    let mut results = BTreeMap::new();
                    for router in routers {
                        if let Some(sent) = self.refuses.get(&router).copied() {
                            results.insert(router, Err(NotPushed { sent, why: "no".to_owned() }));
                            continue;
                        }
                        self.version.insert(router.clone(), 2);
                        self.unconfirmed
                            .insert(router.clone(), self.now + config.confirm_within_ms * SECOND / 1000);
                        self.ever.insert(router.clone(), true);
                        results.insert(router, Ok((1, 2)));
                    }
                    rollout.pushed(self.now, results, &before)
                }
                Order::Confirm(routers) => {
                    let results = routers.iter().map(|r| {
                        let left = self.unconfirmed.remove(r);
                        (r.clone(), left.map(drop).ok_or_else(|| "it went back".to_owned()))
                    });
                    rollout.confirmed(self.now, &results.collect())
                }
                Order::Rollback(routers) => {
                    for (router, to) in routers {
                        self.unconfirmed.remove(&router);
                        self.version.insert(router, to);
                    }
                    rollout.rolled_back();
                    Vec::new()
                }
            };
            said.extend(news.iter().map(|n| n.kind));
        }
        panic!("it never ends; {said:?}");
    }

    fn plane_saw_it(&self, plane: u8) -> bool {
        self.ever.keys().any(|router| router.starts_with(&format!("eb0{plane}.")))
    }
}

#[test]
fn a_good_change_reaches_all_planes_one_after_the_other() {
    let config = config(true);
    let mut network = Network::new(Harm::None, &config);
    let (verdict, said) = network.run(&config);
    assert_eq!((verdict, said), (Verdict::Done, vec!["baseline", "pushed", "kept", "pushed", "kept"]));
    assert!(network.version.values().all(|v| *v == 2) && network.unconfirmed.is_empty());
}

#[test]
fn a_canary_that_dies_keeps_the_other_planes_from_seeing_it() {
    let config = config(true);
    for harm in [Harm::Links, Harm::Traffic] {
        let mut network = Network::new(harm, &config);
        let (verdict, said) = network.run(&config);
        assert_eq!(said, ["baseline", "pushed", "alarm", "undone", "recovered"], "{harm:?}");
        let Verdict::RolledBack { detected_ms, undone_ms, recovered_ms } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(detected_ms <= undone_ms && undone_ms <= recovered_ms && detected_ms <= 3_000, "{verdict:?}");
        assert!(network.plane_saw_it(1) && !network.plane_saw_it(2));
        assert!(network.version.values().all(|v| *v == 1));
    }
}

#[test]
fn without_a_canary_routers_out_of_reach_go_back_by_themselves() {
    let config = config(false);
    let mut network = Network::new(Harm::Links, &config);
    let (verdict, _) = network.run(&config);
    // those of site 1 are told, the others wait for their time to be over
    let Verdict::RolledBack { detected_ms, undone_ms, recovered_ms } = verdict else { panic!("{verdict:?}") };
    assert_eq!((detected_ms, undone_ms), (1_000, 20_000));
    assert!(recovered_ms >= 23_000, "{recovered_ms}: paths take three seconds to come back");
    assert!(network.version.values().all(|v| *v == 1));
}

#[test]
fn what_shows_late_takes_back_what_was_kept() {
    let config = config(true);
    let mut network = Network::new(Harm::LinksFromPlane(2), &config);
    let (verdict, said) = network.run(&config);
    assert_eq!(said, ["baseline", "pushed", "kept", "pushed", "alarm", "undone", "recovered"]);
    assert!(matches!(verdict, Verdict::RolledBack { .. }));
    assert!(network.version.values().all(|v| *v == 1), "plane 1 had kept it");
}

#[test]
fn what_does_not_come_back_is_said() {
    let config = config(true);
    let mut network = Network::new(Harm::Links, &config);
    network.slow = 10_000;
    let (verdict, _) = network.run(&config);
    assert_eq!(verdict, Verdict::NotRecovered("plane 1: 0 of 96 label-switched paths".into()));
}

#[test]
fn a_change_that_no_router_takes_is_refused_and_one_that_a_later_plane_refuses_is_undone() {
    let config = config(true);
    let mut network = Network::new(Harm::None, &config);
    network.refuses = ["eb01.1", "eb01.2", "eb01.3"].map(|r| (r.to_owned(), false)).into();
    assert_eq!(network.run(&config), (Verdict::Refused("eb01.1: no".into()), vec!["baseline"]));
    let mut network = Network::new(Harm::None, &config);
    network.refuses = BTreeMap::from([("eb02.2".to_owned(), true)]);
    let (verdict, said) = network.run(&config);
    assert!(matches!(verdict, Verdict::RolledBack { .. }), "{verdict:?}");
    assert_eq!(said, ["baseline", "pushed", "kept", "pushed", "alarm", "undone", "recovered"]);
    assert!(network.version.values().all(|v| *v == 1));
}

#[test]
fn a_network_that_is_not_whole_is_left_alone() {
    let config = config(true);
    let mut network = Network::new(Harm::Links, &config);
    network.version.insert("eb01.2".into(), 2);
    let (verdict, said) = network.run(&config);
    assert_eq!(said, Vec::<&str>::new());
    assert_eq!(verdict, Verdict::Refused("eb01.2 did not answer before anything was changed".into()));
    let mut network = Network::new(Harm::None, &config);
    network.unconfirmed.insert("eb02.1".into(), u64::MAX);
    let words = "a configuration of eb02.1 waits for somebody's confirmation";
    assert_eq!(network.run(&config).0, Verdict::Refused(words.into()));
}

#[allow(clippy::unnecessary_wraps)] // a look has an answer or none
fn sample(adjacencies: u64, paths: u64, packets: u64) -> Option<Sample> {
    Some(Sample { version: 1, unconfirmed: false, adjacencies, paths, packets })
}

fn look(samples: [Option<Sample>; 2]) -> Look {
    ["a", "b"].into_iter().map(str::to_owned).zip(samples).collect()
}

fn detector(limits: Limits) -> Detector {
    let planes = ["a", "b"].into_iter().map(|r| (r.to_owned(), 1)).collect();
    let first = (0, look([sample(5, 50, 0), sample(5, 50, 0)]));
    let second = (SECOND, look([sample(5, 50, 100), sample(5, 50, 100)]));
    Detector::new(limits, planes, &first, &second).unwrap()
}

#[test]
fn a_single_silence_and_a_single_pause_are_no_alarm() {
    let mut detector = detector(Limits::default());
    assert_eq!(detector.judge(2 * SECOND, &look([sample(5, 50, 200), None])), []);
    assert_eq!(detector.judge(3 * SECOND, &look([sample(5, 50, 300), sample(5, 50, 300)])), []);
    assert_eq!(detector.judge(4 * SECOND, &look([sample(5, 50, 300), sample(5, 50, 300)])), []);
    assert_eq!(detector.judge(5 * SECOND, &look([sample(5, 50, 400), sample(5, 50, 400)])), []);
    let tolerated = look([sample(4, 40, 500), sample(4, 45, 500)]);
    assert_eq!(detector.judge(6 * SECOND, &tolerated), []);
    assert_eq!(detector.as_before(&tolerated).unwrap_err(), "plane 1: 8 of 10 adjacencies");
    let lost = detector.judge(7 * SECOND, &look([sample(2, 50, 600), sample(5, 50, 600)]));
    assert_eq!(lost, [Alarm { plane: 1, detail: "7 of 10 adjacencies".into() }]);
}

proptest! {
    /// However small the steps of traffic are, an alarm says that something is below its limit, and a network that stays
    /// as it was never gives one.
    #[test]
    fn alarms_have_a_reason(looks in prop::collection::vec((0..=10_u64, 0..=100_u64, 0..400_u64), 1..20)) {
        let mut detector = detector(Limits::default());
        let (mut packets, mut bad) = (200, false);
        for (k, (adjacencies, paths, more)) in looks.into_iter().enumerate() {
            packets += more;
            bad |= adjacencies < 8 || paths < 80 || more < 60;
            let half = |n: u64, k: u64| n / 2 + n % 2 * k;
            let samples = [0, 1].map(|k| sample(half(adjacencies, k), half(paths, k), half(packets, k)));
            let alarms = detector.judge((2 + k as u64) * SECOND, &look(samples));
            prop_assert!(bad || alarms.is_empty(), "{:?}", alarms);
            if adjacencies < 8 {
                prop_assert!(!alarms.is_empty());
            }
        }
    }
}

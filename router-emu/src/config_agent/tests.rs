//! What may be said, which version runs, and what a program that is killed at any moment leaves behind.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::check;
use super::core::{Core, KEPT, Moment, Push, Refusal, Told, disabled};
use super::driver::{Driver, Ports};
use super::journal::{FILE, Fate, Journal};
use crate::config::{CoreInterface, OpenrTimers, RouterConfig};

const SECOND: u64 = 1_000_000_000;

fn base() -> RouterConfig {
    let interface = |name: &str, label| CoreInterface {
        name: name.to_owned(),
        label,
        peer_link_local: Ipv6Addr::LOCALHOST,
        members: 1,
        capacity_bps: 400_000_000_000,
        declared_rtt_us: 10_000,
        srlgs: vec!["duct".into()],
        enabled: true,
    };
    RouterConfig {
        node: "eb01.prn".into(),
        plane: 1,
        site: 1,
        site_name: "prn".into(),
        is_dc: true,
        loopback: Ipv6Addr::LOCALHOST,
        run_dir: "/run".into(),
        state_dir: "/run/state".into(),
        fabric_interface: Some("fa".into()),
        interfaces: vec![interface("to-atn", 1002), interface("to-chi", 1003)],
        max_labels: 3,
        openr: OpenrTimers::default(),
        macsec: None,
    }
}

fn text(change: impl FnOnce(&mut RouterConfig)) -> String {
    let mut config = base();
    change(&mut config);
    serde_json::to_string(&config).unwrap()
}

fn findings(text: &str) -> Vec<String> {
    check::read(&base(), text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn what_may_change_live_is_taken() {
    let text = text(|c| {
        c.interfaces[1].capacity_bps = 200_000_000_000;
        c.interfaces[1].srlgs = vec!["duct".into(), "river".into()];
        c.interfaces[0].declared_rtt_us = 0;
        c.interfaces[0].enabled = false;
        c.openr.bfd.enabled = true;
        c.openr.hello = 5_000;
    });
    let config = check::read(&base(), &text).unwrap();
    assert_eq!(disabled(&config).collect::<Vec<_>>(), ["to-atn"]);
}

#[test]
fn what_cannot_change_is_named_by_its_path() {
    let why = "cannot change while the router runs; edit what it was made with, and make it anew";
    let text = text(|c| {
        c.site = 9;
        c.node = "eb01.lla".into();
        c.interfaces[1].label = 7;
        c.max_labels = 5;
    });
    let want = ["interfaces.to-chi.label", "max_labels", "node", "site"].map(|path| format!("{path}: {why}"));
    assert_eq!(findings(&text), want);
    let fewer = self::text(|c| drop(c.interfaces.pop()));
    assert_eq!(findings(&fewer), [format!("interfaces: {why}")]);
}

#[test]
fn wrong_types_names_and_ranges_are_named_by_their_paths() {
    let good = text(|_| ());
    let wrong = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        findings(&good.replacen(from, to, 1))
    };
    assert_eq!(
        wrong("\"capacity_bps\":400000000000", "\"capacity_bps\":\"400G\""),
        ["interfaces.to-atn.capacity_bps: invalid type: string \"400G\", expected u64"]
    );
    let unknown = wrong("\"spf_min\"", "\"spf_mini\"");
    assert!(
        unknown[0].starts_with("openr.spf_mini: unknown field `spf_mini`, expected one of"),
        "{unknown:?}"
    );
    assert!(findings("{").first().unwrap().starts_with("not JSON: "));
    let text = text(|c| {
        c.interfaces[0].capacity_bps = 0;
        c.interfaces[0].srlgs = vec!["a".into(), "a".into()];
        c.openr.bfd.tx = 1;
        c.openr.bfd.multiplier = 1;
        c.openr.keepalive = 20_000;
        c.openr.spf_min = 300;
    });
    assert_eq!(
        findings(&text),
        [
            "interfaces.to-atn.capacity_bps: 0 is not from 1 to 10000000000000000",
            "interfaces.to-atn.srlgs: names a group twice",
            "openr.bfd.tx: 1 is not from 5 to 10000",
            "openr.bfd.multiplier: 1 is not from 3 to 50",
            "openr.hold: 30000 ms are over before three keepalives of 20000 ms: links would come and go",
            "openr.spf_min: 300 ms are more than openr.spf_max, 250 ms",
        ]
    );
}

fn at(seconds: u64) -> Moment {
    Moment { ns: seconds * SECOND, unix_ms: seconds * 1000 }
}

fn core() -> Core {
    Core::start(None, base(), "boot", at(0)).0
}

fn push(text: String, confirm_seconds: u64) -> Push {
    let (writer, comment) = ("ops".to_owned(), "why".to_owned());
    Push { text, writer, comment, confirm_within: confirm_seconds * SECOND, ..Push::default() }
}

fn capacity(gigabits: u64) -> String {
    text(|c| c.interfaces[0].capacity_bps = gigabits * 1_000_000_000)
}

fn runs(core: &Core) -> (u64, u64) {
    (core.journal().running, core.running().interfaces[0].capacity_bps / 1_000_000_000)
}

#[test]
fn what_is_not_confirmed_in_time_is_taken_back() {
    let mut core = core();
    let news = core.push(at(10), &push(capacity(100), 30)).unwrap();
    assert_eq!(news[0].detail, "version 2 by ops (why), to be confirmed within 30s");
    assert_eq!((runs(&core), core.deadline()), ((2, 100), Some(40 * SECOND)));
    assert_eq!(core.tick(40 * SECOND - 1), None);
    assert_eq!(
        core.tick(40 * SECOND).unwrap().detail,
        "version 1 instead of 2: it was not confirmed in time"
    );
    assert_eq!((runs(&core), core.deadline()), ((1, 400), None));
    assert_eq!(core.journal().version(2).unwrap().fate, Fate::Expired);
    assert!(core.confirm(2, "ops").unwrap_err().to_string().contains("2 is expired"));
    // numbers are never given twice
    core.push(at(50), &push(capacity(200), 0)).unwrap();
    assert_eq!(runs(&core), (3, 200));
}

#[test]
fn what_is_confirmed_stays_and_rolls_back_by_word() {
    let mut core = core();
    core.push(at(1), &push(capacity(100), 30)).unwrap();
    core.confirm(2, "ops").unwrap();
    assert!(core.confirm(2, "ops").unwrap().is_empty(), "twice is fine");
    assert_eq!((core.tick(u64::MAX), runs(&core)), (None, (2, 100)));
    core.push(at(2), &push(capacity(50), 0)).unwrap();
    core.rollback(0, "ops").unwrap();
    assert_eq!((runs(&core), core.journal().version(3).unwrap().fate), ((2, 100), Fate::RolledBack));
    core.rollback(1, "ops").unwrap();
    assert_eq!(runs(&core), (1, 400));
    core.rollback(3, "ops").unwrap();
    assert_eq!((runs(&core), core.journal().version(3).unwrap().fate), ((3, 50), Fate::Kept));
    let unknown = core.rollback(77, "ops").unwrap_err();
    assert_eq!(unknown.to_string(), "no version 77 to go back to; kept are 1, 2, 3");
}

#[test]
fn two_writers_do_not_run_over_each_other() {
    let mut core = core();
    core.push(at(1), &push(capacity(100), 30)).unwrap();
    let refused = core.push(at(2), &push(capacity(50), 0)).unwrap_err();
    let words = "version 2 by ops waits for its confirmation; confirm it or roll back to 1 first";
    assert_eq!(refused, Refusal::Conflict(words.into()));
    core.confirm(2, "ops").unwrap();
    let late = core.push(at(3), &Push { expect: 1, ..push(capacity(50), 0) }).unwrap_err();
    assert!(late.to_string().starts_with("version 2 runs, not 1: somebody else"), "{late}");
    assert!(core.push(at(4), &Push { check_only: true, ..push(capacity(50), 0) }).unwrap().is_empty());
    assert!(core.push(at(5), &push(capacity(100), 30)).unwrap().is_empty(), "it is what runs");
    assert_eq!((runs(&core), core.deadline()), ((2, 100), None));
}

#[test]
fn a_changed_base_and_a_new_boot_end_what_waits() {
    let mut core = core();
    core.push(at(1), &push(capacity(100), 30)).unwrap();
    let saved = core.journal().clone();
    let (same, news) = Core::start(Some(saved.clone()), base(), "boot", at(2));
    assert_eq!((runs(&same), news), ((2, 100), vec![]));
    let (rebooted, _) = Core::start(Some(saved.clone()), base(), "another", at(2));
    assert_eq!(runs(&rebooted), (1, 400));
    let other = RouterConfig { max_labels: 4, ..base() };
    let (mut fresh, news) = Core::start(Some(saved), other.clone(), "boot", at(2));
    assert_eq!((fresh.running(), news[0].kind), (&other, "adopted"));
    assert_eq!(fresh.journal().version(2).unwrap().fate, Fate::Expired);
    let refused = fresh.rollback(1, "ops").unwrap_err().to_string();
    assert!(refused.starts_with("max_labels: cannot change"), "{refused}");
}

#[test]
fn only_the_last_versions_are_kept_and_what_is_needed() {
    let mut core = core();
    for k in 0..40 {
        core.push(at(k), &push(capacity(100 + k), 0)).unwrap();
    }
    core.push(at(50), &push(capacity(50), 10)).unwrap();
    let kept: Vec<u64> = core.journal().versions.iter().map(|v| v.number).collect();
    assert_eq!((kept.len(), kept.last(), core.journal().running), (KEPT, Some(&42), 42));
    core.tick(u64::MAX).unwrap();
    assert_eq!(core.running().interfaces[0].capacity_bps, 139_000_000_000);
}

#[test]
fn a_journal_is_read_back_and_a_bad_one_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Journal::load(folder.path()).unwrap(), None);
    let core = core();
    core.journal().save(folder.path()).unwrap();
    assert_eq!(Journal::load(folder.path()).unwrap().as_ref(), Some(core.journal()));
    std::fs::write(folder.path().join(FILE), "{\"boot\":").unwrap();
    let error = Journal::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("config-agent.json:1:"), "{error}");
    Journal::put_aside(folder.path()).unwrap();
    assert_eq!(Journal::load(folder.path()).unwrap(), None);
}

/// A router that dies when its fuel is used up: nothing is done after that.
#[derive(Clone, Debug, Default)]
struct Memory {
    disk: Option<Vec<u8>>,
    down: BTreeMap<String, bool>,
    fuel: Option<usize>,
    broken_disk: bool,
}

impl Memory {
    fn burn(&mut self) -> anyhow::Result<()> {
        match &mut self.fuel {
            Some(0) => anyhow::bail!("killed"),
            Some(fuel) => *fuel -= 1,
            None => {}
        }
        Ok(())
    }
}

impl Ports for &mut Memory {
    fn save(&mut self, journal: &Journal) -> anyhow::Result<()> {
        self.burn()?;
        anyhow::ensure!(!self.broken_disk, "no space left");
        self.disk = Some(serde_json::to_vec(journal)?);
        Ok(())
    }

    fn set_link(&mut self, interface: &str, up: bool) -> anyhow::Result<bool> {
        self.burn()?;
        Ok(self.down.insert(interface.to_owned(), !up).unwrap_or(false) == up)
    }
}

fn started(memory: &mut Memory, now: Moment) -> Driver<&mut Memory> {
    let saved = memory.disk.as_ref().map(|bytes| serde_json::from_slice(bytes).unwrap());
    let (core, mut news) = Core::start(saved, base(), "boot", now);
    Driver::start(core, memory, &mut news)
}

#[test]
fn a_full_disk_refuses_pushes_and_does_not_keep_the_router_from_going_back() {
    let mut memory = Memory::default();
    let mut driver = started(&mut memory, at(0));
    driver.change(|core| core.push(at(1), &push(off(&[0, 1]), 10))).unwrap();
    driver.tick(SECOND);
    assert_eq!(memory.down.values().filter(|down| **down).count(), 2);
    memory.broken_disk = true;
    let mut driver = started(&mut memory, at(2));
    let refused = driver.change(|core| core.confirm(2, "ops")).unwrap_err();
    assert_eq!(refused.to_string(), "not begun: no space left");
    let news = driver.tick(11 * SECOND);
    assert_eq!(news.iter().map(|n| n.kind).collect::<Vec<_>>(), ["expired", "interface", "interface"]);
    assert_eq!(driver.problem(), "no space left; no space left");
    assert!(memory.down.values().all(|down| !down));
}

/// The base with some interfaces shut.
fn off(which: &[usize]) -> String {
    text(|c| which.iter().for_each(|k| c.interfaces[*k].enabled = false))
}

/// Something that somebody does.
#[derive(Clone, Debug)]
enum Step {
    Push { off: Vec<usize>, confirm: bool },
    Confirm,
    Rollback,
    Wait(u64),
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let which = prop::sample::subsequence(vec![0, 1], 0..=2);
    prop_oneof![
        (which, any::<bool>()).prop_map(|(off, confirm)| Step::Push { off, confirm }),
        Just(Step::Confirm),
        Just(Step::Rollback),
        (1..20_u64).prop_map(Step::Wait),
        Just(Step::Kill),
    ]
}

/// Carries a step out; whether the answer was good.
fn carry_out(driver: &mut Driver<&mut Memory>, seconds: u64, step: &Step) -> bool {
    let change = |driver: &mut Driver<&mut Memory>,
                  what: &dyn Fn(&mut Core) -> Result<Vec<Told>, Refusal>| {
        let good = driver.change(|core| what(core)).is_ok();
        driver.tick(seconds * SECOND);
        good
    };
    match step {
        Step::Push { off: which, confirm } => {
            let order = push(off(which), if *confirm { 10 } else { 0 });
            change(driver, &|core| core.push(at(seconds), &order))
        }
        Step::Confirm => change(driver, &|core| core.confirm(core.journal().running, "ops")),
        Step::Rollback => change(driver, &|core| core.rollback(0, "ops")),
        Step::Wait(_) | Step::Kill => {
            driver.tick(seconds * SECOND);
            true
        }
    }
}

/// Interfaces that the configuration shuts which will stand once nobody says anything more.
fn standing(core: &Core) -> Vec<String> {
    let journal = core.journal();
    let number = journal.waiting.map_or(journal.running, |w| w.back_to);
    disabled(&journal.version(number).unwrap().config).map(str::to_owned).collect()
}

proptest! {
    /// Whatever is done, and wherever in it the program is killed: once it has been started again and time has passed, what
    /// runs is what stood before the step or what stood after it, nothing waits, and the interfaces are as it says.
    #[test]
    fn a_kill_at_any_moment_leaves_one_of_two_states(
        steps in prop::collection::vec((step(), prop::option::weighted(0.4, 0..6_usize)), 1..12)
    ) {
        let mut memory = Memory::default();
        let mut seconds = 0;
        drop(started(&mut memory, at(0)));
        for (step, fuel) in steps {
            if let Step::Wait(more) = step {
                seconds += more;
            }
            let before = standing(started(&mut memory, at(seconds)).core());
            memory.fuel = fuel;
            let mut driver = started(&mut memory, at(seconds));
            let good = carry_out(&mut driver, seconds, &step);
            let after = standing(driver.core());
            drop(driver);
            memory.fuel = None;

            // another life, long after: on a copy, for the story goes on without it
            let mut later = memory.clone();
            let mut driver = started(&mut later, at(seconds));
            driver.tick(u64::MAX);
            prop_assert!(driver.core().journal().waiting.is_none());
            let stands = standing(driver.core());
            if good {
                prop_assert_eq!(&stands, &after);
            }
            prop_assert!(stands == before || stands == after, "{:?}: {:?}, {:?}, {:?}", step, before, stands, after);
            let down: Vec<String> = later.down.iter().filter(|(_, down)| **down).map(|(n, _)| n.clone()).collect();
            prop_assert_eq!(down, stands);
        }
    }
}

//! Programming, failures and restarts of one router against the kernel in memory.

use super::memory::{Memory, driver, lsp, path_with};
use crate::label::{Mesh, Nexthop, Sid};
use crate::lsp::bundle::Active;
use crate::lsp::driver::{Driver, Outcome};
use crate::lsp::engine::{Engine, Repair};
use crate::lsp::journal::Journal;
use crate::lsp::state::Op;
use crate::proto::{self, Phase};

fn sid(version: bool) -> Sid {
    Sid { src: 1, dst: 2, mesh: Mesh::Gold, version }
}

fn label(_: &str, b: &str) -> u32 {
    1000 + u32::from(b.as_bytes()[0])
}

fn path(routers: &str) -> proto::Path {
    path_with(&routers.split(' ').collect::<Vec<_>>(), label)
}

/// Four LSPs from a to z: over b, over c, each with the other as backup.
fn bundle(version: bool) -> proto::Bundle {
    let (b, c) = (path("a b z"), path("a c z"));
    let lsps = vec![
        lsp(b.clone(), Some(c.clone())),
        lsp(c.clone(), Some(b.clone())),
        lsp(b.clone(), None),
        lsp(c, Some(b)),
    ];
    proto::Bundle { sid: sid(version).encode(), lsps }
}

fn ok(driver: &mut Driver<Memory>, phase: Phase, bundle: proto::Bundle) {
    let (results, _) = driver.program(phase, vec![bundle]).unwrap();
    assert!(results[0].ok, "{}", results[0].error);
    driver.tidy(usize::MAX).unwrap();
    assert_eq!(driver.kernel.truth, *driver.engine.known());
}

/// First aid, and then the groups.
fn repair(driver: &mut Driver<Memory>) -> (Repair, Outcome) {
    let answer = driver.repair().unwrap();
    while driver.is_unsettled() {
        driver.settle(1).unwrap();
    }
    driver.tidy(usize::MAX).unwrap();
    answer
}

fn active(driver: &Driver<Memory>) -> String {
    driver.engine.live(sid(false)).unwrap().active.iter().map(|a| a.letter()).collect()
}

fn source() -> Driver<Memory> {
    driver("a", 1, &["b", "c", "d"], None)
}

#[test]
fn a_new_version_is_whole_before_the_group_turns_to_it_and_the_old_goes_last() {
    let mut driver = source();
    ok(&mut driver, Phase::Source, bundle(false));
    driver.kernel.written.clear();
    ok(&mut driver, Phase::Source, bundle(true));
    let written = &driver.kernel.written;
    let swap = written.iter().position(|op| matches!(op, Op::PutGroup(..))).unwrap();
    assert!(written[..swap].iter().all(|op| matches!(op, Op::PutMember(..))) && swap == 3);
    assert!(written[swap + 1..].iter().all(|op| matches!(op, Op::DelMember(..))) && written.len() == 7);
    // the same again changes nothing
    driver.kernel.written.clear();
    ok(&mut driver, Phase::Source, bundle(true));
    assert!(driver.kernel.written.is_empty());
}

#[test]
fn backup_is_taken_kept_and_left_only_by_programming() {
    let mut driver = source();
    ok(&mut driver, Phase::Source, bundle(false));
    assert_eq!(active(&driver), "PPPP");
    driver.engine.advertised("b", ["to-a"]);
    let (answer, outcome) = repair(&mut driver);
    assert_eq!((active(&driver).as_str(), answer.bundles.len(), outcome.writes), ("BPDP", 1, 2));
    assert_eq!(driver.kernel.truth, *driver.engine.known());
    driver.engine.advertised("b", ["to-a", "to-z"]);
    repair(&mut driver);
    // what was dropped comes back, what is on its backup stays there
    assert_eq!(active(&driver), "BPPP");
    ok(&mut driver, Phase::Source, bundle(false));
    assert_eq!(active(&driver), "PPPP");
}

/// LSPs that the kernel's group stands for.
fn lsps(driver: &Driver<Memory>, group: u32) -> u32 {
    driver.kernel.truth.groups.get(&group).into_iter().flatten().map(|(_, lsps)| u32::from(*lsps)).sum()
}

#[test]
fn own_interface_down_takes_its_objects_and_the_last_path_takes_the_group() {
    let mut driver = source();
    ok(&mut driver, Phase::Source, bundle(false));
    let group = Nexthop::Group { dst: 2, mesh: Mesh::Gold }.id();
    for (name, left) in [("to-b", 3), ("to-c", 0)] {
        let event = driver.kernel.set(name, false);
        driver.engine.interface(&event);
        repair(&mut driver);
        assert_eq!(lsps(&driver, group), left);
        assert_eq!(driver.kernel.truth, *driver.engine.known());
    }
    assert_eq!(active(&driver), "DDDD");
    let event = driver.kernel.set("to-c", true);
    driver.engine.interface(&event);
    repair(&mut driver);
    assert_eq!(lsps(&driver, group), 3);
    assert_eq!(active(&driver), "BPDP");
    assert_eq!(driver.kernel.looks, 1);
}

#[test]
fn a_race_with_the_kernel_is_seen_and_answered() {
    for after in 0..4 {
        let mut driver = source();
        driver.kernel.race = Some((after, "to-b".to_owned()));
        ok(&mut driver, Phase::Source, bundle(false));
        assert_eq!(active(&driver), "BPDP", "race after {after} writes");
        assert!(driver.kernel.looks > 1);
        // the event that arrives late changes nothing more
        let event = driver.kernel.set("to-b", false);
        driver.engine.interface(&event);
        repair(&mut driver);
        assert_eq!(driver.kernel.truth, *driver.engine.known());
    }
}

#[test]
fn a_refused_bundle_leaves_the_old_one_live_and_others_alone() {
    let mut driver = source();
    ok(&mut driver, Phase::Source, bundle(false));
    let before = driver.kernel.truth.clone();
    driver.kernel.broken.insert(Nexthop::Group { dst: 2, mesh: Mesh::Gold }.id());
    let other = proto::Bundle { sid: Sid { dst: 3, ..sid(false) }.encode(), ..bundle(false) };
    let (results, _) = driver.program(Phase::Source, vec![bundle(true), other]).unwrap();
    assert!(!results[0].ok && results[0].error.contains("Cannot allocate memory"), "{}", results[0].error);
    assert!(results[1].ok, "{}", results[1].error);
    assert_eq!(driver.engine.live(sid(false)).unwrap().sid, sid(false));
    for (id, members) in &before.groups {
        assert_eq!(driver.kernel.truth.groups[id], *members);
    }
}

#[test]
fn only_the_version_that_is_not_live_can_be_retired() {
    let mut driver = source();
    ok(&mut driver, Phase::Source, bundle(true));
    let (results, _) = driver.program(Phase::Retire, vec![bundle(true)]).unwrap();
    assert_eq!(
        results[0].error,
        "version 1 of bundle 526357(1>2 gold v1) is live: program the other version first"
    );
    ok(&mut driver, Phase::Retire, bundle(false));
    ok(&mut driver, Phase::Delete, bundle(false));
    assert_eq!(driver.kernel.truth, crate::lsp::state::Known::default());
    assert!(driver.engine.bundles().is_empty());
}

#[test]
fn transit_keeps_two_versions_until_one_is_retired() {
    let long = |version| proto::Bundle {
        sid: sid(version).encode(),
        lsps: vec![lsp(path("a b c d e z"), Some(path("a c d m e z")))],
    };
    let mut primary = driver("d", 4, &["e", "m"], None);
    let mut backup = driver("m", 5, &["e"], None);
    for version in [false, true] {
        ok(&mut primary, Phase::Transit, long(version));
        ok(&mut backup, Phase::Transit, long(version));
    }
    assert_eq!(primary.kernel.truth.sids.len(), 2);
    assert_eq!(backup.kernel.truth.sids.len(), 2, "backup routers are ready before they are needed");
    ok(&mut primary, Phase::Retire, long(false));
    assert_eq!(primary.kernel.truth.sids.keys().copied().collect::<Vec<_>>(), [sid(true).encode()]);
    assert_eq!(primary.engine.bundles().len(), 1);
    let (results, _) = backup.program(Phase::Source, vec![long(true)]).unwrap();
    assert_eq!(results[0].error, "bundle 526357(1>2 gold v1) does not start at m");
}

#[test]
fn impossible_bundles_are_refused_with_the_place() {
    let mut driver = source();
    let mut refuse = |change: fn(&mut proto::Bundle)| {
        let mut wrong = bundle(false);
        change(&mut wrong);
        driver.program(Phase::Source, vec![wrong]).unwrap().0[0].error.clone()
    };
    let prefix = "bundle 526356(1>2 gold v0), LSP 1, primary path: ";
    assert_eq!(refuse(|b| b.sid = 17), "17 is not a binding SID: bit 19 is clear");
    assert_eq!(refuse(|b| b.lsps.clear()), "bundle 526356(1>2 gold v0) has 0 LSPs; 1 to 63 can be numbered");
    assert_eq!(
        refuse(|b| b.lsps[1].primary = None),
        "bundle 526356(1>2 gold v0), LSP 1: the primary path has no hops"
    );
    assert!(
        refuse(|b| b.lsps[1].primary.as_mut().unwrap().hops[0].interface = "to-q".into()).starts_with(prefix)
    );
    assert!(
        refuse(|b| b.lsps[1].primary.as_mut().unwrap().hops[1].label = 3)
            .contains("hop 1 (c to-z) has label 3")
    );
    assert!(
        refuse(|b| b.lsps[1].primary.as_mut().unwrap().hops[1].router = "q".into())
            .contains("hop 0 leads to c, but hop 1 starts at q")
    );
    assert!(driver.kernel.truth.groups.is_empty());
}

#[test]
fn a_restart_finds_everything_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let journal = || Some(Journal::open(folder.path()).unwrap());
    let mut driver = driver("a", 1, &["b", "c", "d"], journal());
    driver.fence(7).unwrap();
    ok(&mut driver, Phase::Source, bundle(true));
    driver.engine.advertised("b", ["to-a"]);
    repair(&mut driver);
    driver.remember_links();
    driver.tidy(usize::MAX).unwrap();
    let orphan = Nexthop::Member { dst: 9, mesh: Mesh::Bronze, version: false, backup: false, slot: 0 }.id();
    let mut kernel = std::mem::take(&mut driver.kernel);
    let right = kernel.truth.clone();
    let stray = right.members.values().next().unwrap().clone();
    kernel.truth.members.insert(orphan, stray.clone());
    kernel.truth.sids.insert(sid(false).encode(), vec![stray]);
    kernel.written.clear();

    let engine = Engine::new(driver.engine.router().clone());
    let mut again = Driver::new(engine, kernel, journal());
    again.start().unwrap();
    again.tidy(1).unwrap();
    assert_eq!(again.kernel.written, [Op::DelSid(sid(false).encode()), Op::DelMember(orphan)]);
    assert_eq!(again.kernel.truth, right);
    assert_eq!(active(&again), "BPDP");
    assert_eq!(again.fence(6), Err(7));
    let dump = again.dump(true);
    assert_eq!(dump.bundles[0].bundle, Some(bundle(true)));
    let state = &dump.bundles[0];
    assert_eq!((state.wanted, state.programmed, state.on_backup, state.dropped), (4, 3, 1, 1));
    assert!(state.is_source && state.live && !state.is_transit);
    assert_eq!(again.engine.live(sid(true)).unwrap().active[0], Active::Backup);
}

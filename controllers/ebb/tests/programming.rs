//! Cycles against routers in memory: order, versions, failures, restarts, fencing.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::ring::{connect, cut, name};
use common::{Call, FakeLock, FakePlane, Verdict, config, controller, ring};
use ebb::config::ControllerConfig;
use ebb::controller::Controller;
use ebb::drains::Drains;
use ebb::stats::StatsSink;
use router_emu::label::{Mesh, Sid};
use router_emu::proto::Phase;

/// Ring of ten, DCs r00, r05: two pairs, each with a primary and a backup of five links.
fn plane() -> (ControllerConfig, FakePlane) {
    let c = config(10, 5);
    let p = FakePlane::new(&c, ring(10, &[]));
    (c, p)
}

fn key(src: u8, dst: u8, mesh: Mesh) -> Sid {
    Sid { src, dst, mesh, version: false }
}

fn version(p: &FakePlane, src: usize, dst: u8, mesh: Mesh) -> Option<bool> {
    p.live(&name(src), key(u8::try_from(src + 1).unwrap(), dst, mesh)).map(|s| s.version)
}

/// In the last cycle's writes, every transit write of a SID came before the source's, and its twin's removal after.
fn assert_make_before_break(p: &FakePlane) {
    let writes = p.take_writes();
    for s in writes.iter().filter(|w| w.phase == Phase::Source) {
        let twin = Sid::decode(s.sid).unwrap().flipped().encode();
        for w in &writes {
            match w.phase {
                Phase::Transit if w.sid == s.sid => assert!(w.ns < s.ns, "{w:?} after {s:?}"),
                Phase::Retire if w.sid == twin => assert!(w.ns > s.ns, "{w:?} before {s:?}"),
                _ => {}
            }
        }
    }
    assert_eq!(p.lock().black_holes, Vec::<String>::new());
}

#[tokio::test]
async fn the_first_cycle_programs_everything_and_the_second_nothing() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed, s.lsps, s.unrouted), (6, 0, 96, 0), "{:?}", s.errors);
    assert_make_before_break(&p);
    assert_eq!(p.leftovers(), Vec::<String>::new());
    assert_eq!(version(&p, 0, 6, Mesh::Gold), Some(false));
    assert_eq!(p.lock().routers[&name(0)].map.len(), 3);
    assert!(!p.lock().routers[&name(3)].sids.is_empty(), "five links need an intermediate node");

    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0));
    assert!(p.take_writes().is_empty(), "nothing has changed");
    let mesh = ctl.shared().state(true).mesh;
    assert_eq!(mesh.len(), 6);
    assert_eq!(mesh[0].lsps.len(), 16);
}

/// P1.
#[tokio::test]
async fn reprogramming_alternates_versions_in_make_before_break_order() {
    let (mut c, p) = plane();
    c.always_reprogram = true;
    let mut ctl = controller(&c, &p);
    for round in 0..6 {
        let s = ctl.cycle().await;
        assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0), "{:?}", s.errors);
        for mesh in Mesh::ALL {
            assert_eq!(version(&p, 0, 6, mesh), Some(round % 2 == 1));
        }
        assert_make_before_break(&p);
        assert_eq!(p.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn old_versions_stay_for_the_delay() {
    let (mut c, p) = plane();
    (c.always_reprogram, c.retire_delay_ms) = (true, 60);
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    p.take_writes();
    ctl.cycle().await;
    let writes = p.take_writes();
    let last_source = writes.iter().filter(|w| w.phase == Phase::Source).map(|w| w.at).max().unwrap();
    let first_retire = writes.iter().filter(|w| w.phase == Phase::Retire).map(|w| w.at).min().unwrap();
    assert!(first_retire - last_source >= Duration::from_millis(60));
}

/// P2, for every way to fail: the pairs through the dead node stay as they are, the others succeed.
#[tokio::test]
async fn a_failed_intermediate_leaves_its_sources_alone() {
    for verdict in [Verdict::Silent, Verdict::AnswerLost, Verdict::Refuse] {
        // DCs r00, r04, r08 of twelve: r00 to r04 is four links, with no intermediate on the primary
        let mut c = config(12, 4);
        c.always_reprogram = true;
        let p = FakePlane::new(&c, ring(12, &[]));
        let mut ctl = controller(&c, &p);
        ctl.cycle().await;
        let before: BTreeMap<_, _> =
            p.lock().routers.iter().map(|(n, r)| (n.clone(), r.groups.clone())).collect();
        let bad = name(3);
        let at = bad.clone();
        p.inject(move |r, call| match call {
            Call::Program(Phase::Transit) if r == at => verdict,
            _ => Verdict::Work,
        });
        let s = ctl.cycle().await;
        assert!(s.pairs_failed > 0 && s.pairs_ok > 0, "{s:?}");
        assert!(
            s.errors.iter().any(|e| e.contains(&bad) && e.contains("is left as it is")),
            "{:?}",
            s.errors
        );
        for (router, groups) in &before {
            for (k, (sid, lsps)) in groups {
                let touched = p.live(router, *k) != Some(*sid);
                let through_bad = ebb::fleet::intermediates(lsps, 3).contains(&bad);
                assert_eq!(touched, !through_bad, "{k} at {router}, {verdict:?}");
            }
        }
        assert_make_before_break(&p);
        p.heal();
        let s = ctl.cycle().await;
        assert_eq!(s.pairs_failed, 0, "{:?}", s.errors);
        assert_make_before_break(&p);
        assert_eq!(p.leftovers(), Vec::<String>::new(), "{verdict:?}");
    }
}

/// Every call, every way to fail, one router at a time and all at once: no black hole, and one good cycle repairs.
#[tokio::test]
async fn any_call_may_fail_in_any_way() {
    let calls = [
        Call::Store,
        Call::Bundles,
        Call::Program(Phase::Transit),
        Call::Program(Phase::Source),
        Call::Program(Phase::Retire),
        Call::Map,
        Call::ProgramMap,
        Call::Matrix,
    ];
    for bad_call in calls {
        for verdict in [Verdict::Silent, Verdict::AnswerLost, Verdict::Refuse] {
            for bad in [Some(name(0)), Some(name(2)), Some(name(3)), None] {
                let (mut c, p) = plane();
                c.always_reprogram = true;
                let mut ctl = controller(&c, &p);
                for healthy_first in [true, false] {
                    if healthy_first {
                        ctl.cycle().await;
                    }
                    let at = bad.clone();
                    p.inject(move |r, call| {
                        let hit = call == bad_call && at.as_deref().is_none_or(|b| b == r);
                        if hit { verdict } else { Verdict::Work }
                    });
                    ctl.cycle().await;
                    p.heal();
                }
                let s = ctl.cycle().await;
                let case = format!("{bad_call:?} {verdict:?} {bad:?}");
                assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0), "{case}: {:?}", s.errors);
                assert_eq!(p.leftovers(), Vec::<String>::new(), "{case}");
                assert_eq!(p.lock().black_holes, Vec::<String>::new(), "{case}");
                assert_eq!(p.lock().routers[&name(0)].map.len(), 3, "{case}");
            }
        }
    }
}

/// P4: a new process knows nothing, and needs nothing.
#[tokio::test]
async fn a_controller_without_memory_continues_from_the_routers() {
    let (mut c, p) = plane();
    c.always_reprogram = true;
    let mut first = controller(&c, &p);
    first.cycle().await;
    drop(first);
    p.take_writes();
    let epoch_before = p.lock().routers[&name(0)].epoch;

    let mut second = controller(&c, &p);
    let s = second.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0), "{:?}", s.errors);
    assert!(s.epoch > epoch_before, "its lock had lost the epoch; the routers had not");
    assert_eq!(version(&p, 0, 6, Mesh::Gold), Some(true), "the other version than the one found");
    assert_make_before_break(&p);
    assert_eq!(p.leftovers(), Vec::<String>::new());

    let mut calm = ControllerConfig { always_reprogram: false, ..c };
    calm.name = "third".into();
    let mut third = controller(&calm, &p);
    let s = third.cycle().await;
    assert_eq!(s.pairs_ok, 6);
    assert!(p.take_writes().is_empty(), "same topology, same paths: nothing to write");
}

#[tokio::test]
async fn a_fenced_leader_stops_writing() {
    let (mut c, p) = plane();
    c.always_reprogram = true;
    let lock = FakeLock::default();
    let mut ctl =
        Controller::new(c, p.clone(), lock.clone(), StatsSink::none(), Drains::in_memory().unwrap());
    ctl.cycle().await;
    p.take_writes();
    // a rival takes over while this one sleeps through its cycle: agents know, the lock knows
    lock.rival();
    p.inject(|_, call| {
        assert!(!matches!(call, Call::Program(_)), "written after being fenced");
        Verdict::Work
    });
    for r in p.lock().routers.values_mut() {
        r.epoch = 77;
    }
    let s = ctl.cycle().await;
    assert!(s.errors.iter().any(|e| e.contains("somebody else leads")), "{:?}", s.errors);
    assert!(p.take_writes().is_empty());
    let s = ctl.cycle().await;
    assert!(s.errors.iter().any(|e| e.contains("holds the leader's lock")), "{:?}", s.errors);
}

#[tokio::test]
async fn a_leader_fenced_in_the_middle_touches_no_source() {
    let (mut c, p) = plane();
    c.always_reprogram = true;
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    p.take_writes();
    let taken_over = p.clone();
    let mut done = false;
    p.inject(move |_, call| {
        if matches!(call, Call::Program(Phase::Transit)) {
            done = true;
        }
        if done {
            let plane = taken_over.clone();
            // the lock of the plane is held by the caller: do it right after
            tokio::spawn(async move {
                for r in plane.lock().routers.values_mut() {
                    r.epoch = 77;
                }
            });
        }
        Verdict::Work
    });
    let s = ctl.cycle().await;
    assert!(s.pairs_failed > 0);
    assert!(p.take_writes().iter().all(|w| w.phase != Phase::Source));
    p.heal();
    let s = ctl.cycle().await;
    assert!(
        s.epoch > 77 && s.pairs_failed == 0,
        "the lock is still ours, so the epoch was from a lost memory"
    );
}

#[tokio::test]
async fn bundles_on_backup_are_programmed_again() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    p.take_writes();
    p.lock().routers.get_mut(&name(0)).unwrap().on_backup = true;
    ctl.cycle().await;
    assert!(p.take_writes().iter().any(|w| w.phase == Phase::Source && w.router == name(0)));
    assert!(!p.lock().routers[&name(0)].on_backup);
    assert_eq!(version(&p, 5, 1, Mesh::Gold), Some(false), "the other source is as it was");
}

#[tokio::test]
async fn a_lost_sid_route_is_noticed() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    for r in p.lock().routers.values_mut() {
        r.sids.clear();
    }
    let s = ctl.cycle().await;
    assert_eq!(s.pairs_failed, 0);
    assert_eq!(p.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn cut_links_and_returning_links_move_paths() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    let uses = |p: &FakePlane, a: usize, b: usize| {
        p.lock().routers[&name(0)].groups.values().any(|(_, lsps)| {
            lsps.iter().any(|l| {
                [&l.primary, &l.backup]
                    .into_iter()
                    .flatten()
                    .any(|path| path.hops.iter().any(|h| h.router == name(a) && h.neighbor == name(b)))
            })
        })
    };
    assert!(uses(&p, 1, 2));
    let mut store = ring(10, &[]);
    cut(&mut store, 1, 2);
    p.set_store(store);
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0));
    assert!(!uses(&p, 1, 2));
    assert_make_before_break(&p);

    // cut in two: what is programmed stays, the pairs fail
    let mut store = ring(10, &[]);
    cut(&mut store, 1, 2);
    cut(&mut store, 7, 8);
    p.set_store(store);
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed, s.unrouted), (0, 6, 96));
    assert!(s.errors[0].contains("does not connect"), "{:?}", s.errors);
    assert!(p.take_writes().is_empty());

    let mut store = ring(10, &[]);
    connect(&mut store, 0, 5, 10);
    p.set_store(store);
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0));
    assert_eq!(p.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pair_that_is_gone_is_removed() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    let mut smaller = c.clone();
    smaller.te.classes.retain(|class| class.mesh != te::Mesh::Bronze);
    let mut ctl = controller(&smaller, &p);
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (4, 0), "{:?}", s.errors);
    assert_eq!(version(&p, 0, 6, Mesh::Bronze), None);
    assert_eq!(p.lock().routers[&name(0)].map.len(), 2);
    assert_eq!(p.leftovers(), Vec::<String>::new());
    assert_eq!(p.lock().black_holes, Vec::<String>::new());
}

#[tokio::test]
async fn a_dead_router_does_not_hold_up_the_store() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    p.inject(|r, call| if call == Call::Store && r == name(0) { Verdict::Hang } else { Verdict::Work });
    let start = Instant::now();
    let s = ctl.cycle().await;
    assert_eq!(s.pairs_failed, 0);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    p.lock().calls.clear();
    ctl.cycle().await;
    let asked: Vec<_> = p.lock().calls.iter().filter(|c| c.1 == Call::Store).map(|c| c.0.clone()).collect();
    assert!(!asked.contains(&name(0)), "those that answered are asked first: {asked:?}");

    // one router left: its store will do
    p.inject(|r, call| if call == Call::Store && r != name(4) { Verdict::Hang } else { Verdict::Work });
    let start = Instant::now();
    let s = ctl.cycle().await;
    assert_eq!(s.pairs_failed, 0);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());

    p.inject(|_, call| if call == Call::Store { Verdict::Silent } else { Verdict::Work });
    let s = ctl.cycle().await;
    assert!(s.errors.iter().any(|e| e.contains("routers keep what they have")), "{:?}", s.errors);
}

#[tokio::test]
async fn same_snapshot_same_mesh() {
    let mut c = config(12, 3);
    c.demands = vec![ebb::config::DemandFloor {
        src_site: 1,
        dst_site: 4,
        mesh: te::Mesh::Gold,
        bps: 900_000_000_000,
    }];
    let mesh = |c: ControllerConfig| async move {
        let p = FakePlane::new(&c, ring(12, &[(0, 6), (3, 9), (1, 7)]));
        let mut ctl = controller(&c, &p);
        ctl.cycle().await;
        ctl.shared().state(true).mesh
    };
    let mut shuffled = c.clone();
    shuffled.routers.reverse();
    assert_eq!(mesh(c.clone()).await, mesh(c).await);
    assert_eq!(mesh(shuffled.clone()).await, mesh(shuffled).await);
}

/// Until everything has worked once, cycles follow each other quickly; then by the clock.
#[tokio::test]
async fn at_the_start_cycles_come_quickly_until_the_plane_is_programmed() {
    let (mut c, p) = plane();
    c.cycle_ms = 3_600_000;
    let mut silent_cycles = 2 * c.routers.len();
    p.inject(move |_, call| {
        if call == Call::Bundles && silent_cycles > 0 {
            silent_cycles -= 1;
            return Verdict::Silent;
        }
        Verdict::Work
    });
    let ctl = controller(&c, &p);
    let shared = ctl.shared();
    let (requests, asked) = tokio::sync::mpsc::channel(1);
    let running = tokio::spawn(ctl.run(asked));
    let deadline = Instant::now() + Duration::from_secs(20);
    while shared.state(false).pairs_ok < 6 {
        assert!(Instant::now() < deadline, "{:?}", shared.state(false));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(shared.state(false).cycle, 3);
    let (done, ended) = tokio::sync::oneshot::channel();
    requests.send(done).await.unwrap();
    ended.await.unwrap().unwrap();
    assert_eq!(shared.state(false).cycle, 4);
    assert!(shared.state(false).leading);
    drop(requests);
    running.await.unwrap().unwrap();
}

/// What an aborted cycle leaves behind goes, wherever it is: a version that is not live, a live one in the wrong place.
#[tokio::test]
async fn left_over_sids_are_removed() {
    let (c, p) = plane();
    let mut ctl = controller(&c, &p);
    ctl.cycle().await;
    p.take_writes();
    let live = p.live(&name(0), key(1, 6, Mesh::Gold)).unwrap();
    let lsps = p.lock().routers[&name(0)].groups[&live.bundle()].1.clone();
    let nobody = key(77, 78, Mesh::Gold);
    for (router, sid) in
        [(name(3), live.flipped()), (name(4), live), (name(9), live.flipped()), (name(9), nobody)]
    {
        p.lock().routers.get_mut(&router).unwrap().sids.insert(sid.encode(), lsps.clone());
    }
    assert_eq!(p.leftovers().len(), 4);
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (6, 0));
    assert!(p.take_writes().iter().all(|w| w.phase == Phase::Retire), "nothing is programmed for it");
    assert_eq!(p.leftovers(), Vec::<String>::new());

    // a source that does not answer may be using any version: its SIDs are left alone
    p.lock().routers.get_mut(&name(3)).unwrap().sids.insert(live.flipped().encode(), lsps);
    p.inject(|r, call| if call == Call::Bundles && r == name(0) { Verdict::Silent } else { Verdict::Work });
    ctl.cycle().await;
    assert_eq!(p.leftovers().len(), 1);
    assert!(p.take_writes().is_empty());
    p.heal();
    ctl.cycle().await;
    assert_eq!(p.leftovers(), Vec::<String>::new());
}

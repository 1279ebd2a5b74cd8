//! A leader whose lease ends while it writes.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Call, FakeLock, FakePlane, Verdict, config, controller, ring};
use router_emu::proto::Phase;

/// Input: a lease that runs out when the first SID has been installed. Output: nothing is written after that, no source is
/// touched, and the controller stands by; the next leader converges.
#[tokio::test]
async fn a_leader_whose_lease_runs_out_stops_writing() {
    let mut c = config(10, 5);
    let p = FakePlane::new(&c, ring(10, &[]));
    c.cycle_ms = 3_600_000;
    let (keeper, until) = tokio::sync::watch::channel(Some(Instant::now() + Duration::from_secs(3600)));
    let rival = FakeLock::default();
    let lock = FakeLock(rival.0.clone(), Some(until));
    let thief = rival.clone();
    p.inject(move |_, call| {
        if call == Call::Program(Phase::Transit) {
            thief.rival();
            keeper.send_replace(None);
        }
        Verdict::Work
    });
    let drains = ebb::drains::Drains::in_memory().unwrap();
    let sink = ebb::stats::StatsSink::none();
    let ctl = ebb::controller::Controller::new(c.clone(), p.clone(), lock, sink, drains);
    let shared = ctl.shared();
    let (requests, asked) = tokio::sync::mpsc::channel(1);
    let running = tokio::spawn(ctl.run(asked));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !shared.state(false).errors.iter().any(|e| e.contains("the rival")) {
        assert!(Instant::now() < deadline, "{:?}", shared.state(false));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!shared.state(false).leading);
    let writes = p.take_writes();
    assert!(!writes.is_empty() && writes.iter().all(|w| w.phase == Phase::Transit), "{writes:?}");
    // whoever stands by runs no cycle, and says who leads
    let (done, ended) = tokio::sync::oneshot::channel();
    requests.send(done).await.unwrap();
    assert_eq!(ended.await.unwrap().unwrap_err(), "standing by: the rival holds the leader's lock");
    drop(requests);
    running.await.unwrap().unwrap();
    p.heal();
    let mut next = controller(&c, &p);
    // the agents have seen the epoch of the one before
    assert_eq!(next.cycle().await.pairs_failed, 0);
    assert_eq!(p.leftovers(), Vec::<String>::new());
    assert_eq!(p.lock().black_holes, Vec::<String>::new());
}

//! Whatever went wrong before, one good cycle converges, nothing is left over, and no packet ever met a black hole.
#![allow(clippy::unwrap_used)]

mod common;

use common::ring::{cut, name};
use common::{Call, FakePlane, Verdict, config, controller, ring};
use proptest::prelude::*;

/// One troubled cycle.
#[derive(Clone, Debug)]
struct Trouble {
    /// Seed of the failures.
    seed: u64,
    /// Calls per hundred that fail.
    percent: u64,
    /// A router that is dead for the whole cycle.
    dead: Option<usize>,
    /// Links that are cut during it.
    cuts: Vec<usize>,
    /// The controller is restarted before it.
    restart: bool,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    (
        any::<u64>(),
        0..60u64,
        prop::option::of(0..12usize),
        prop::collection::vec(0..12usize, 0..2),
        any::<bool>(),
    )
        .prop_map(|(seed, percent, dead, cuts, restart)| Trouble { seed, percent, dead, cuts, restart })
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

async fn run(troubles: Vec<Trouble>, chords: Vec<(usize, usize)>, always: bool) {
    let mut c = config(12, 4);
    c.always_reprogram = always;
    let p = FakePlane::new(&c, ring(12, &chords));
    let fresh = || controller(&c, &p);
    let mut ctl = fresh();
    for t in troubles {
        if t.restart {
            ctl = fresh();
        }
        let mut store = ring(12, &chords);
        let links: Vec<_> = (0..12).map(|i| (i, (i + 1) % 12)).chain(chords.iter().copied()).collect();
        t.cuts.iter().map(|&i| links[i % links.len()]).for_each(|(a, b)| cut(&mut store, a, b));
        p.set_store(store);
        let (mut seed, dead) = (t.seed, t.dead.map(name));
        p.inject(move |router, call| {
            if dead.as_deref() == Some(router) {
                return Verdict::Silent;
            }
            if call == Call::Store || next(&mut seed) % 100 >= t.percent {
                return Verdict::Work;
            }
            [Verdict::Silent, Verdict::AnswerLost, Verdict::Refuse]
                [usize::try_from(next(&mut seed) % 3).unwrap()]
        });
        ctl.cycle().await;
    }
    p.heal();
    p.set_store(ring(12, &chords));
    let s = ctl.cycle().await;
    assert_eq!((s.pairs_ok, s.pairs_failed), (18, 0), "{:?}", s.errors);
    assert_eq!(p.leftovers(), Vec::<String>::new());
    assert_eq!(p.lock().black_holes, Vec::<String>::new());
    for dc in [0, 4, 8] {
        assert_eq!(p.lock().routers[&name(dc)].map.len(), 6);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn one_good_cycle_repairs_everything(
        troubles in prop::collection::vec(trouble(), 0..6),
        chords in prop::collection::vec((0..12usize, 2..10usize), 0..6),
        always in any::<bool>(),
    ) {
        let chords = chords.into_iter().map(|(i, step)| (i, (i + step) % 12)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(troubles, chords, always));
    }
}

//! How long the core takes from an event to the batch that goes to the kernel. Printed, not judged.

use std::time::Instant;

use super::memory::{driver, lsp, path_with};
use crate::label::{Mesh, Sid};
use crate::proto::{self, Phase};

fn label(_: &str, b: &str) -> u32 {
    1000 + u32::from(b.as_bytes()[0])
}

/// 100 bundles of 16 LSPs; half of the LSPs cross one remote link, in 34 sites of three meshes.
#[test]
#[ignore = "a measurement: run it by name, with --nocapture"]
fn event_to_batch_of_a_hundred_bundles() {
    let path = |routers: &str| path_with(&routers.split(' ').collect::<Vec<_>>(), label);
    let mut driver = driver("a", 1, &["b", "c", "d", "e"], None);
    let mut bundles = Vec::new();
    for i in 0..100u8 {
        let mesh = Mesh::ALL[usize::from(i) % 3];
        let sid = Sid { src: 1, dst: 2 + i / 3, mesh, version: false };
        let lsps = (0..16).map(|slot| {
            let (p, b) =
                if slot % 2 == 0 { ("a b f g h z", "a d i j k z") } else { ("a c f l m z", "a e i j k z") };
            let mut primary = path(p);
            // each LSP a member of its own
            primary.hops[4].label += slot;
            lsp(primary, Some(path(b)))
        });
        bundles.push(proto::Bundle { sid: sid.encode(), lsps: lsps.collect() });
    }
    let (results, _) = driver.program(Phase::Source, bundles.clone()).unwrap();
    assert!(results.iter().all(|r| r.ok));
    let mut took = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        driver.engine.advertised("f", ["to-a", "to-b", "to-c", "to-l"]);
        let repair = driver.engine.repair();
        took.push(start.elapsed());
        assert_eq!((repair.bundles.len(), repair.plan.install.len()), (100, 900));
        repair.plan.ops().for_each(|op| driver.engine.written(op));
        driver.engine.advertised("f", ["to-a", "to-b", "to-c", "to-l", "to-g"]);
        driver.engine.repair();
        driver.program(Phase::Source, bundles.clone()).unwrap();
    }
    took.sort();
    println!("event to plan, 100 bundles, 1800 writes: median {:?}, most {:?}", took[25], took[49]);
}

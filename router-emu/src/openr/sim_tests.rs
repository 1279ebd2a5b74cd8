//! Whole networks of agents in simulated time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;

use super::action::Event;
use super::sim::{Sim, WORK};
use super::spark::{MS, Nanos};
use crate::proto::AdjacencyDatabase;

/// A plane with four data centres and two midpoints, one-way latencies of real distances.
fn small_plane() -> Sim {
    Sim::new(&[
        ("prn", "chi", 12 * MS),
        ("prn", "lla", 40 * MS),
        ("prn", "atn", 20 * MS),
        ("atn", "chi", 9 * MS),
        ("atn", "lon", 35 * MS),
        ("frc", "chi", 8 * MS),
        ("frc", "atn", 6 * MS),
        ("frc", "lon", 34 * MS),
        ("lla", "lon", 10 * MS),
        ("lla", "lon", 10 * MS),
    ])
}

fn database(sim: &Sim, at: &str, of: &str) -> Option<AdjacencyDatabase> {
    let router = &sim.routers[at];
    let snapshot = router.core.as_ref()?.snapshot(sim.now + router.offset, "adj:");
    let value = snapshot.values.into_iter().find(|v| v.key == format!("adj:{of}"))?;
    AdjacencyDatabase::decode(value.value.as_slice()).ok()
}

fn same_stores(sim: &Sim) -> bool {
    let mut copies = sim.routers.values().filter_map(|r| {
        let values = r.core.as_ref()?.snapshot(sim.now + r.offset, "").values;
        Some(values.into_iter().map(|v| (v.key, v.version, v.originator, v.value)).collect::<Vec<_>>())
    });
    let first = copies.next();
    copies.all(|c| Some(&c) == first.as_ref())
}

/// When each router's subscribers heard that a router no longer has an interface.
fn withdrawn_at(sim: &Sim, since: Nanos, node: &str, interface: &str) -> BTreeMap<String, Nanos> {
    let gone = |(at, publication): &(Nanos, crate::proto::Publication)| {
        let value = publication.values.iter().find(|v| v.key == format!("adj:{node}"))?;
        let database = AdjacencyDatabase::decode(value.value.as_slice()).ok()?;
        (*at >= since && database.adjacencies.iter().all(|a| a.interface != interface)).then(|| *at - since)
    };
    sim.routers.iter().filter_map(|(n, r)| Some((n.clone(), r.published.iter().find_map(gone)?))).collect()
}

#[test]
fn a_plane_finds_itself_and_measures_its_links() {
    let mut sim = small_plane();
    sim.start_all();
    let took = sim.wait(5_000 * MS, Sim::full);
    println!("all routes everywhere after {} ms", took / MS);
    assert!(took < 1_000 * MS, "{} ms", took / MS);
    sim.run_until(sim.now + 10_000 * MS);
    assert!(same_stores(&sim));
    let prn = database(&sim, "lon", "prn").unwrap();
    let chi = prn.adjacencies.iter().find(|a| a.neighbor == "chi").unwrap();
    assert_eq!((chi.rtt_us, chi.metric, chi.remote_interface.as_str()), (24_000, 240, "to-prn"));
    let table = sim.table("prn");
    let to_lon = table.values().find(|r| r.node == "lon").unwrap();
    assert_eq!(to_lon.distance, 1000);
    let lla_lon: Vec<_> = sim.table("lla").values().filter(|r| r.node == "lon").cloned().collect();
    assert_eq!(lla_lon[0].first_hops.len(), 2, "parallel links are both used");
}

#[test]
fn a_cut_is_flooded_in_path_latency_and_little_more() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 5_000 * MS);
    let start = sim.now;
    sim.set_wire(sim.wire_between("prn", "chi"), false);
    sim.run_until(start + 1_000 * MS);
    // both ends tell; what counts for a router is the earlier of the two
    let (prn, chi) = (withdrawn_at(&sim, start, "prn", "to-chi"), withdrawn_at(&sim, start, "chi", "to-prn"));
    let limits = [("prn", 0), ("chi", 0), ("frc", 8), ("atn", 9), ("lla", 40), ("lon", 42)];
    for (node, path_ms) in limits {
        let at = prn[node].min(chi[node]);
        println!("{node}: told after {} µs, path latency {path_ms} ms", at / 1000);
        assert!(at <= path_ms * MS + 4 * WORK, "{node}: {} µs", at / 1000);
    }
    let routes = sim.routers["lla"].routes.last().unwrap().0 - start;
    println!("lla: routes after {} µs", routes / 1000);
    assert!(sim.full());
}

#[test]
fn a_returned_link_is_used_again_after_the_throttle() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 5_000 * MS);
    let wire = sim.wire_between("prn", "chi");
    let distance = |sim: &Sim| sim.table("prn").values().find(|r| r.node == "chi").unwrap().distance;
    assert_eq!(distance(&sim), 240);
    sim.set_wire(wire, false);
    sim.wait(1_000 * MS, |sim| distance(sim) > 240);
    sim.set_wire(wire, true);
    let took = sim.wait(1_000 * MS, |sim| distance(sim) == 240);
    println!("link back after {} ms", took / MS);
}

#[test]
fn a_bundle_that_loses_members_stays_with_less_capacity() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 5_000 * MS);
    let seen = |sim: &Sim| {
        let db = database(sim, "lla", "prn").unwrap();
        let a = db.adjacencies.into_iter().find(|a| a.interface == "to-chi").unwrap();
        (a.capacity_bps / 1_000_000_000, a.members_up, a.members)
    };
    assert_eq!(seen(&sim), (400, 4, 4));
    let members = |sim: &mut Sim, up| sim.handle("prn", Event::Members { interface: "to-chi".into(), up });
    let start = sim.now;
    members(&mut sim, 3);
    // a loss is told at once: by the flood's own time, which is below the throttle of good news
    let took = sim.wait(80 * MS, |sim| seen(sim) == (300, 3, 4));
    println!("less capacity heard after {} ms", took / MS);
    members(&mut sim, 1);
    sim.wait(80 * MS, |sim| seen(sim) == (100, 1, 4));
    // the last one: the link itself is lost, which is said by its carrier
    members(&mut sim, 0);
    sim.run_until(sim.now + 200 * MS);
    assert_eq!(seen(&sim), (100, 1, 4));
    members(&mut sim, 2);
    members(&mut sim, 4);
    sim.wait(300 * MS, |sim| seen(sim) == (400, 4, 4));
    sim.run_until(sim.now + 1_000 * MS);
    assert!(withdrawn_at(&sim, start, "prn", "to-chi").is_empty(), "the adjacency was withdrawn");
    let heard: Vec<u64> = sim.routers["lla"]
        .published
        .iter()
        .filter(|(at, p)| *at >= start && p.values.iter().any(|v| v.key == "adj:prn"))
        .filter_map(|(_, p)| AdjacencyDatabase::decode(p.values.first()?.value.as_slice()).ok())
        .filter_map(|db| {
            Some(db.adjacencies.iter().find(|a| a.interface == "to-chi")?.capacity_bps / 1_000_000_000)
        })
        .collect();
    assert_eq!(heard, [300, 100, 400], "two members that return together are one piece of news");
}

#[test]
fn a_flapping_link_is_announced_and_withdrawn_twice_at_most() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 20_000 * MS);
    let (wire, start) = (sim.wire_between("prn", "chi"), sim.now);
    for flap in 0..10 {
        sim.run_until(start + flap * 500 * MS);
        sim.set_wire(wire, false);
        sim.run_until(start + flap * 500 * MS + 250 * MS);
        sim.set_wire(wire, true);
    }
    let stays = sim.now;
    let has_link = |p: &crate::proto::Publication| {
        let value = p.values.iter().find(|v| v.key == "adj:prn")?;
        let db = AdjacencyDatabase::decode(value.value.as_slice()).ok()?;
        Some(db.adjacencies.iter().any(|a| a.interface == "to-chi"))
    };
    let news = |sim: &Sim| -> Vec<(Nanos, bool)> {
        let since = sim.routers["lla"].published.iter().filter(|(at, _)| *at >= start);
        let mut news: Vec<(Nanos, bool)> = since.filter_map(|(at, p)| Some((*at, has_link(p)?))).collect();
        news.dedup_by_key(|(_, there)| *there);
        news
    };
    let said: Vec<bool> = news(&sim).into_iter().map(|(_, there)| there).collect();
    assert_eq!(said, [false, true, false], "ten losses");
    // it stays, and comes back by itself within the longest hold
    let back = sim.wait(9_000 * MS, |sim| news(sim).last().is_some_and(|(_, there)| *there));
    println!("back {} ms after it stays", back / MS);
    assert!(sim.now - stays > 2_000 * MS, "it came back after {} ms", back / MS);
    assert!(sim.full());
}

#[test]
fn a_killed_and_restarted_program_changes_no_route() {
    for goodbye in [true, false] {
        let mut sim = small_plane();
        sim.start_all();
        sim.wait(5_000 * MS, Sim::full);
        sim.run_until(sim.now + 20_000 * MS);
        let before: Vec<_> = sim.routers.keys().map(|n| sim.table(n)).collect();
        let counts: Vec<_> = sim.routers.values().map(|r| r.routes.len()).collect();
        if goodbye {
            sim.handle("chi", Event::Goodbye);
            sim.run_until(sim.now + MS);
        }
        sim.kill("chi");
        sim.run_until(sim.now + 15_000 * MS);
        sim.start("chi");
        sim.run_until(sim.now + 60_000 * MS);
        let after: Vec<_> = sim.routers.keys().map(|n| sim.table(n)).collect();
        assert_eq!(before, after);
        for ((name, router), count) in sim.routers.iter().zip(counts) {
            let expected = count + usize::from(name == "chi");
            assert_eq!(
                router.routes.len(),
                expected,
                "{name} computed other routes in between (goodbye {goodbye})"
            );
        }
        assert!(same_stores(&sim));
    }
}

#[test]
fn a_program_that_does_not_return_is_given_up_after_the_hold_time() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 10_000 * MS);
    sim.kill("chi");
    let has_chi = |sim: &Sim| sim.table("prn").values().any(|r| r.node == "chi");
    sim.run_until(sim.now + 25_000 * MS);
    assert!(has_chi(&sim), "held");
    sim.run_until(sim.now + 10_000 * MS);
    assert!(!has_chi(&sim), "given up");
}

#[test]
fn a_link_lost_while_the_program_was_dead_is_not_announced_by_the_next_life() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 10_000 * MS);
    sim.kill("chi");
    sim.set_wire(sim.wire_between("prn", "chi"), false);
    sim.run_until(sim.now + 5_000 * MS);
    sim.start("chi");
    sim.run_until(sim.now + 5_000 * MS);
    let chi = database(&sim, "lon", "chi").unwrap();
    assert_eq!(chi.adjacencies.iter().map(|a| a.neighbor.as_str()).collect::<Vec<_>>(), ["atn", "frc"]);
    assert!(same_stores(&sim));
}

#[test]
fn the_session_moves_to_the_parallel_link() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    let wire = sim.wire_between("lla", "lon");
    sim.set_wire(wire, false);
    sim.run_until(sim.now + 1_000 * MS);
    // cut everything else of lla: news can reach it over the second link to lon only
    sim.set_wire(sim.wire_between("prn", "lla"), false);
    sim.run_until(sim.now + 1_000 * MS);
    let start = sim.now;
    sim.set_wire(sim.wire_between("frc", "atn"), false);
    sim.run_until(start + 500 * MS);
    let told = withdrawn_at(&sim, start, "frc", "to-atn");
    println!("lla told after {} ms", told["lla"] / MS);
    assert!(told["lla"] <= 44 * MS + 5 * WORK);
}

#[test]
fn drains_are_announced_followed_and_kept() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 5_000 * MS);
    let via_chi = |sim: &Sim| {
        sim.table("prn").values().any(|r| r.node != "chi" && r.first_hops.iter().any(|(_, i)| i == "to-chi"))
    };
    assert!(via_chi(&sim));
    sim.handle("chi", Event::SetDrain { interface: String::new(), overloaded: true, metric_increment: 0 });
    sim.run_until(sim.now + 1_000 * MS);
    assert!(!via_chi(&sim) && sim.full(), "chi is reached, not crossed");
    sim.kill("chi");
    sim.start("chi");
    sim.run_until(sim.now + 5_000 * MS);
    assert!(!via_chi(&sim), "the drain survived the restart");
    sim.handle("chi", Event::SetDrain { interface: String::new(), overloaded: false, metric_increment: 0 });
    sim.run_until(sim.now + 1_000 * MS);
    assert!(via_chi(&sim));
}

#[test]
fn an_idle_network_is_quiet() {
    let mut sim = small_plane();
    sim.start_all();
    sim.run_until(sim.now + 60_000 * MS);
    let before: usize = sim.routers.values().map(|r| r.handled).sum();
    sim.run_until(sim.now + 600_000 * MS);
    let events = sim.routers.values().map(|r| r.handled).sum::<usize>() - before;
    let per_minute = events / 10 / sim.routers.len();
    println!("{per_minute} events per minute and router");
    assert!(per_minute < 360);
    assert!(sim.full() && same_stores(&sim), "refreshes keep everything alive");
    assert!(
        sim.routers.values().all(|r| r.published.iter().all(|(at, _)| *at < 30_000 * MS)),
        "nothing to tell"
    );
}

#[test]
fn lost_discovery_packets_only_delay() {
    let mut sim = small_plane();
    sim.lose_every = 3;
    sim.start_all();
    let took = sim.wait(10_000 * MS, Sim::full);
    println!("every third discovery packet lost: {} ms", took / MS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sequence_of_cuts_kills_and_partitions_ends_in_agreement(
        steps in prop::collection::vec((0u8..4, 0usize..10, 1u64..3_000), 1..25)
    ) {
        let mut sim = small_plane();
        sim.start_all();
        let names: Vec<String> = sim.routers.keys().cloned().collect();
        for (what, which, pause_ms) in steps {
            match what {
                0 => sim.set_wire(which, false),
                1 if !sim.wires[which].up => sim.set_wire(which, true),
                2 => sim.kill(&names[which % names.len()]),
                3 if sim.routers[&names[which % names.len()]].core.is_none() => sim.start(&names[which % names.len()]),
                _ => {}
            }
            sim.run_until(sim.now + pause_ms * MS);
        }
        for wire in 0..sim.wires.len() {
            if !sim.wires[wire].up {
                sim.set_wire(wire, true);
            }
        }
        for name in &names {
            if sim.routers[name].core.is_none() {
                sim.start(name);
            }
        }
        sim.run_until(sim.now + 60_000 * MS);
        prop_assert!(sim.full(), "a route is missing");
        prop_assert!(same_stores(&sim), "the stores differ");
        for name in &names {
            let links = sim.wires.iter().filter(|w| w.ends.iter().any(|(n, _)| n == name)).count();
            prop_assert_eq!(database(&sim, "lon", name).map(|d| d.adjacencies.len()), Some(links), "{}", name);
        }
    }
}

#[test]
fn another_configuration_is_announced_and_costs_no_adjacency() {
    let mut sim = small_plane();
    sim.start_all();
    sim.wait(5_000 * MS, Sim::full);
    sim.run_until(sim.now + 3_000 * MS);
    let links = |sim: &Sim| database(sim, "lon", "prn").map(|d| d.adjacencies).unwrap_or_default();
    let before = links(&sim);
    let mut config = sim.routers["prn"].config.clone();
    config.interfaces[0].capacity_bps = 100;
    config.interfaces[0].srlgs = vec!["river".into()];
    config.interfaces[1].declared_rtt_us = 7_000;
    config.openr.hello = 1_000;
    config.openr.hold = 5_000;
    let changed = [config.interfaces[0].name.clone(), config.interfaces[1].name.clone()];
    sim.handle("prn", Event::Configure(Box::new(config)));
    sim.wait(500 * MS, |sim| links(sim).iter().any(|a| a.capacity_bps == 100));
    let after = links(&sim);
    for (old, new) in before.iter().zip(&after) {
        let mut want = old.clone();
        if new.interface == changed[0] {
            (want.capacity_bps, want.srlgs) = (100, vec!["river".into()]);
        }
        if new.interface == changed[1] {
            want.rtt_us += 7_000;
            want.metric += 70;
        }
        want.changed_ns = new.changed_ns;
        assert_eq!(*new, want);
    }
    assert_eq!((before.len(), after.len()), (3, 3));
    // neighbours bear a killed router's silence for as long as it says now
    sim.kill("prn");
    sim.run_until(sim.now + 8_000 * MS);
    let gone = |sim: &Sim, at: &str| {
        !database(sim, "lon", at).unwrap().adjacencies.iter().any(|a| a.neighbor == "prn")
    };
    assert!(gone(&sim, "atn") && gone(&sim, "chi") && gone(&sim, "lla"));
}

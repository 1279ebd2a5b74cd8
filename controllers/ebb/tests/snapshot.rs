//! From synthetic stores to graphs: two-way links, drains, labels, merging.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::ring::{config, connect, name, ring};
use ebb::drains::{Mode, Row, Subject};
use ebb::topology::{AVOID_US, Topology, merge};
use proptest::prelude::*;
use prost::Message as _;
use router_emu::proto::{AdjacencyDatabase, KeyValue};
use te::Drain;

fn key(node: &str, version: u64, value: Vec<u8>) -> KeyValue {
    KeyValue {
        key: format!("adj:{node}"),
        version,
        originator: node.into(),
        value,
        ttl_ms: 1,
        ttl_version: 1,
    }
}

fn store(dbs: &BTreeMap<String, AdjacencyDatabase>) -> BTreeMap<String, KeyValue> {
    merge([dbs.iter().map(|(n, db)| key(n, 1, db.encode_to_vec())).collect()])
}

fn build(dbs: &BTreeMap<String, AdjacencyDatabase>) -> Topology {
    Topology::build(&store(dbs), &config(dbs.len(), 2), &[]).unwrap()
}

/// "from interface to" of all links.
fn links(t: &Topology) -> Vec<String> {
    let g = &t.graph;
    g.links().map(|l| format!("{} {} {}", g.name(g.from(l)), g.interface(l), g.name(g.to(l)))).collect()
}

fn drain_of(t: &Topology, from: usize, to: usize) -> Drain {
    let g = &t.graph;
    let l = g.links().find(|&l| g.name(g.from(l)) == name(from) && g.name(g.to(l)) == name(to)).unwrap();
    g.drain(l)
}

#[test]
fn links_have_costs_labels_and_both_directions() {
    let mut dbs = ring(3, &[]);
    connect(&mut dbs, 0, 1, 7);
    dbs.get_mut(&name(0)).unwrap().adjacencies[0].srlgs = vec!["trench".into()];
    let t = build(&dbs);
    assert_eq!(t.warnings, Vec::<String>::new());
    assert_eq!(
        links(&t),
        [
            "eb01.r00 to-r01 eb01.r01",
            "eb01.r00 to-r01.2 eb01.r01",
            "eb01.r00 to-r02 eb01.r02",
            "eb01.r01 to-r00 eb01.r00",
            "eb01.r01 to-r00.2 eb01.r00",
            "eb01.r01 to-r02 eb01.r02",
            "eb01.r02 to-r00 eb01.r00",
            "eb01.r02 to-r01 eb01.r01",
        ]
    );
    assert_eq!(t.labels, [1002, 2002, 1003, 1001, 2001, 1003, 1001, 1002]);
    assert_eq!(t.graph.physical_count(), 4);
    let rtts: Vec<u32> = t.graph.links().map(|l| t.graph.rtt_us(l)).collect();
    assert_eq!(rtts[..3], [10_000, 700, 10_000]);
    let shared: Vec<bool> = t.graph.links().map(|l| !t.graph.srlgs(l).is_empty()).collect();
    assert_eq!(
        shared,
        [true, false, false, true, false, false, false, false],
        "a risk of one end is a risk of both"
    );
    let all: Vec<te::LinkId> = t.graph.links().collect();
    let hop = &t.path(&all[1..2]).hops[0];
    assert_eq!(
        (
            hop.router.as_str(),
            hop.interface.as_str(),
            hop.label,
            hop.neighbor.as_str(),
            hop.remote_interface.as_str()
        ),
        ("eb01.r00", "to-r01.2", 2002, "eb01.r01", "to-r00.2")
    );
}

#[test]
fn a_link_that_one_end_does_not_see_is_no_link() {
    let mut dbs = ring(3, &[]);
    dbs.get_mut(&name(1)).unwrap().adjacencies.retain(|a| a.neighbor != name(0));
    assert_eq!(build(&dbs).graph.link_count(), 4);
    // a router that has left the store takes its links with it, but stays a node
    dbs.remove(&name(1));
    let t = Topology::build(&store(&dbs), &config(3, 2), &[]).unwrap();
    assert_eq!((t.graph.node_count(), t.graph.link_count()), (3, 2));
}

#[test]
fn drains_of_links_and_nodes() {
    let mut dbs = ring(4, &[]);
    dbs.get_mut(&name(0)).unwrap().adjacencies[0].overloaded = true;
    dbs.get_mut(&name(1)).unwrap().adjacencies.iter_mut().for_each(|a| {
        if a.neighbor == name(2) {
            a.metric_increment = 50;
        }
    });
    dbs.get_mut(&name(3)).unwrap().overloaded = true;
    let t = build(&dbs);
    assert_eq!((drain_of(&t, 0, 1), drain_of(&t, 1, 0)), (Drain::Hard, Drain::Hard));
    assert_eq!((drain_of(&t, 1, 2), drain_of(&t, 2, 1)), (Drain::Soft(5_000), Drain::Soft(5_000)));
    assert_eq!(drain_of(&t, 2, 3), Drain::None);
    assert!(t.graph.no_transit(t.graph.find_node(&name(3)).unwrap()));
    dbs.get_mut(&name(2)).unwrap().metric_increment = 7;
    let t = build(&dbs);
    assert_eq!((drain_of(&t, 2, 3), drain_of(&t, 3, 2)), (Drain::Soft(700), Drain::Soft(700)));
    assert_eq!(drain_of(&t, 1, 2), Drain::Soft(5_700));
}

#[test]
fn what_cannot_be_used_is_left_out_with_words() {
    let mut dbs = ring(3, &[]);
    dbs.get_mut(&name(0)).unwrap().adjacencies[0].static_label = 3;
    let mut s = store(&dbs);
    s.insert("adj:eb01.new".into(), key("eb01.new", 1, vec![]));
    s.insert(format!("adj:{}", name(2)), key(&name(2), 1, vec![0xff]));
    s.insert("prefix:x".into(), key("x", 1, vec![]));
    let t = Topology::build(&s, &config(3, 2), &[]).unwrap();
    assert_eq!(t.warnings.len(), 3, "{:?}", t.warnings);
    assert!(t.warnings[0].contains("eb01.new is in the store but not in the configuration"));
    assert!(t.warnings[1].contains("cannot be decoded"));
    assert!(t.warnings[2].contains("static label 3 is outside of 16 to 524287"));
}

#[test]
fn the_newer_key_wins_in_any_order() {
    let newer = || vec![key("a", 2, vec![1])];
    let older = || vec![key("a", 1, vec![9]), key("b", 1, vec![])];
    for stores in [[newer(), older()], [older(), newer()]] {
        let merged = merge(stores);
        assert_eq!(merged["adj:a"].version, 2);
        assert!(merged.contains_key("adj:b"));
    }
}

proptest! {
    /// Whatever routers put into the store, building ends, with a graph or with words.
    #[test]
    fn any_bytes_are_survived(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 4)) {
        let s = merge([values.into_iter().enumerate().map(|(i, v)| key(&name(i), 1, v)).collect()]);
        prop_assert!(Topology::build(&s, &config(4, 2), &[]).is_ok());
    }

    #[test]
    fn any_adjacencies_are_survived(
        raw in prop::collection::vec((0..4usize, 0..4usize, 0..3u32, 0..3u32, any::<u32>(), any::<u32>(), any::<u32>()), 0..40)
    ) {
        let mut dbs = ring(4, &[]);
        for (from, to, a, b, metric, label, increment) in raw {
            dbs.get_mut(&name(from)).unwrap().adjacencies.push(router_emu::proto::Adjacency {
                neighbor: name(to),
                interface: format!("if{a}"),
                remote_interface: format!("if{b}"),
                metric,
                static_label: label,
                metric_increment: increment,
                ..Default::default()
            });
        }
        let t = Topology::build(&store(&dbs), &config(4, 2), &[]).unwrap();
        prop_assert!(t.graph.links().all(|l| t.graph.reverse(l).is_some()));
    }
}

#[test]
fn rows_of_the_drain_database() {
    let mut dbs = ring(5, &[]);
    dbs.get_mut(&name(1)).unwrap().adjacencies.iter_mut().for_each(|a| a.metric_increment = 50);
    let row = |router: usize, interface: Option<&str>, mode| Row {
        subject: Subject { router: name(router), interface: interface.map(str::to_owned) },
        mode,
        reason: "work".into(),
        since_ms: 1,
    };
    let rows = [
        row(0, Some("to-r01"), Mode::Avoid),
        row(2, Some("to-r01"), Mode::Exclude),
        row(3, None, Mode::Exclude),
        row(4, None, Mode::Avoid),
        row(77, None, Mode::Avoid),
    ];
    let t = Topology::build(&store(&dbs), &config(5, 2), &rows).unwrap();
    // either end's row counts, and adds to what Open/R says
    assert_eq!(
        (drain_of(&t, 0, 1), drain_of(&t, 1, 0)),
        (Drain::Soft(AVOID_US + 5_000), Drain::Soft(AVOID_US + 5_000))
    );
    assert_eq!((drain_of(&t, 1, 2), drain_of(&t, 2, 1)), (Drain::Hard, Drain::Hard));
    assert!(t.graph.no_transit(t.graph.find_node(&name(3)).unwrap()));
    assert!(!t.graph.no_transit(t.graph.find_node(&name(4)).unwrap()));
    assert_eq!((drain_of(&t, 2, 3), drain_of(&t, 3, 4)), (Drain::None, Drain::Soft(AVOID_US)));
    assert_eq!(t.warnings, ["eb01.r77 is drained but not of this plane"]);
}

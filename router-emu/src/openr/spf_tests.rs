//! Shortest paths against enumeration, and the drain rules one by one.

use proptest::prelude::*;

use super::*;

/// Links: (a, b, metric a→b, metric b→a). The k-th link joins interfaces `l<k>` of both.
fn network(count: usize, links: &[(usize, usize, u32, u32)]) -> Databases {
    let mut databases: Databases = (0..count)
        .map(|i| {
            let database = AdjacencyDatabase {
                node: format!("n{i}"),
                loopback: format!("fd00::{i:x}"),
                ..AdjacencyDatabase::default()
            };
            (database.node.clone(), database)
        })
        .collect();
    for (k, (a, b, there, back)) in links.iter().enumerate() {
        for (from, to, metric) in [(a, b, there), (b, a, back)] {
            databases.get_mut(&format!("n{from}")).unwrap().adjacencies.push(Adjacency {
                neighbor: format!("n{to}"),
                interface: format!("l{k}"),
                remote_interface: format!("l{k}"),
                next_hop: format!("fe80::{k:x}:{to:x}"),
                metric: *metric,
                ..Adjacency::default()
            });
        }
    }
    databases
}

fn hops(table: &RouteTable, node: &str) -> Option<(u64, Vec<String>)> {
    let route = table.values().find(|r| r.node == node)?;
    Some((route.distance, route.first_hops.iter().map(|(_, interface)| interface.clone()).collect()))
}

/// Distance and first interfaces by walking every simple path.
fn brute(databases: &Databases, me: &str, goal: &str) -> Option<(u64, BTreeSet<String>)> {
    fn walk(
        databases: &Databases,
        at: &str,
        goal: &str,
        cost: u64,
        first: Option<&str>,
        seen: &mut Vec<String>,
        best: &mut Option<(u64, BTreeSet<String>)>,
    ) {
        if at == goal {
            let first = first.unwrap_or_default().to_owned();
            match best {
                Some((least, set)) if *least == cost => {
                    set.insert(first);
                }
                Some((least, _)) if *least < cost => {}
                _ => *best = Some((cost, BTreeSet::from([first]))),
            }
            return;
        }
        let database = &databases[at];
        if database.overloaded && seen.len() > 1 {
            return;
        }
        for (adjacency, step) in usable(database, databases) {
            if seen.contains(&adjacency.neighbor) {
                continue;
            }
            seen.push(adjacency.neighbor.clone());
            let first = first.or(Some(&adjacency.interface));
            walk(databases, &adjacency.neighbor, goal, cost + step, first, seen, best);
            seen.pop();
        }
    }
    let mut best = None;
    walk(databases, me, goal, 0, None, &mut vec![me.to_owned()], &mut best);
    best
}

proptest! {
    #[test]
    fn distances_and_all_first_hops_are_those_of_enumeration(
        count in 2usize..7,
        raw in prop::collection::vec((0usize..7, 0usize..7, 1u32..5, 1u32..5), 1..12),
        drained_node in 0usize..8, drained_link in 0usize..14, increment in 0u32..3,
    ) {
        let links: Vec<_> = raw.into_iter().map(|(a, b, x, y)| (a % count, b % count, x, y)).filter(|l| l.0 != l.1).collect();
        let mut databases = network(count, &links);
        if let Some(database) = databases.get_mut(&format!("n{drained_node}")) {
            database.overloaded = true;
        }
        if let Some(database) = databases.get_mut("n1") {
            database.metric_increment = increment;
            for adjacency in database.adjacencies.iter_mut().filter(|a| a.interface == format!("l{drained_link}")) {
                adjacency.overloaded = true;
            }
        }
        let table = routes("n0", &databases);
        for i in 1..count {
            let found = hops(&table, &format!("n{i}")).map(|(d, h)| (d, h.into_iter().collect::<BTreeSet<_>>()));
            prop_assert_eq!(found, brute(&databases, "n0", &format!("n{i}")), "to n{}", i);
        }
    }
}

#[test]
fn equal_paths_and_parallel_links_are_all_used() {
    let databases = network(4, &[(0, 1, 10, 10), (0, 1, 10, 10), (0, 2, 10, 10), (1, 3, 5, 5), (2, 3, 5, 5)]);
    let table = routes("n0", &databases);
    assert_eq!(hops(&table, "n3"), Some((15, vec!["l0".into(), "l1".into(), "l2".into()])));
}

#[test]
fn a_link_that_one_end_denies_is_not_used() {
    let mut databases = network(2, &[(0, 1, 1, 1)]);
    databases.get_mut("n1").unwrap().adjacencies.clear();
    assert!(routes("n0", &databases).is_empty());
}

#[test]
fn the_far_end_must_name_this_very_link() {
    let mut databases = network(2, &[(0, 1, 1, 1), (0, 1, 7, 7)]);
    databases.get_mut("n1").unwrap().adjacencies.remove(0);
    assert_eq!(hops(&routes("n0", &databases), "n1"), Some((7, vec!["l1".into()])));
}

#[test]
fn the_far_end_must_name_us() {
    let mut databases = network(3, &[(0, 1, 1, 1)]);
    databases.get_mut("n1").unwrap().adjacencies[0].neighbor = "n2".into();
    assert!(routes("n0", &databases).is_empty());
}

#[test]
fn a_hard_drained_router_is_an_end_and_no_way() {
    let mut databases = network(3, &[(0, 1, 1, 1), (1, 2, 1, 1), (0, 2, 50, 50)]);
    databases.get_mut("n1").unwrap().overloaded = true;
    let table = routes("n0", &databases);
    assert_eq!(hops(&table, "n1"), Some((1, vec!["l0".into()])));
    assert_eq!(hops(&table, "n2"), Some((50, vec!["l2".into()])));
    assert_eq!(
        hops(&routes("n1", &databases), "n2"),
        Some((1, vec!["l1".into()])),
        "its own traffic still leaves"
    );
}

#[test]
fn a_soft_drained_router_is_used_if_nothing_else_is_there() {
    let mut databases = network(3, &[(0, 1, 1, 1), (1, 2, 1, 1), (0, 2, 50, 50)]);
    databases.get_mut("n1").unwrap().metric_increment = 1000;
    assert_eq!(hops(&routes("n0", &databases), "n2"), Some((50, vec!["l2".into()])));
    databases.get_mut("n2").unwrap().adjacencies.retain(|a| a.neighbor == "n1");
    assert_eq!(hops(&routes("n0", &databases), "n2"), Some((2002, vec!["l0".into()])));
}

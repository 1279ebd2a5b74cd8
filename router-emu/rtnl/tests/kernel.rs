//! The real kernel, in fresh namespaces: every request is sent, read back and undone.
//!
//! Skipped with a printed reason where the caller may not make namespaces.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::{LEFT_MAC, RIGHT_MAC, ip, net, pair};
use ipnet::Ipv6Net;
use rtnl::monitor::{Event, Group, Monitor};
use rtnl::nexthop::{Entry, Member, Object};
use rtnl::route::{Filter, Hop, Kind, Route, Via};
use rtnl::rule::Rule;
use rtnl::{Mode, Socket, addr, link, mpls, neigh, netns, nexthop, route, rule, socket, sysctl};

/// Waits until `found` finds something among the monitor's events.
fn wait_for<T>(monitor: &mut Monitor, mut found: impl FnMut(&Event) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        while let Some(event) = monitor.try_recv().unwrap() {
            if let Some(item) = found(&event) {
                return item;
            }
        }
        assert!(Instant::now() < deadline, "no such event within 5 s");
        let mut polled = [nix::poll::PollFd::new(monitor.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut polled, 100u16).unwrap();
    }
}

#[test]
fn a_veth_pair_is_born_in_place_with_everything_chosen() {
    let Some(mut pair) = pair() else { return };
    let alias = link::Change { alias: Some("testbed:t".to_owned()), ..link::Change::default() };
    pair.socket
        .all(&[link::set(1001, &alias), link::add_altname(1001, "a-name-longer-than-fifteen-bytes")])
        .unwrap();
    let links = link::dump(&mut pair.socket).unwrap();
    let names: Vec<_> = links.iter().map(|l| (l.ifindex, l.name.as_str())).collect();
    assert_eq!(names, [(1, "lo"), (1001, "left")]);
    let left = &links[1];
    assert_eq!((left.mac, left.mtu, left.up, left.peer_ifindex), (LEFT_MAC, 9216, true, Some(1002)));
    assert_eq!(left.alias.as_deref(), Some("testbed:t"));
    assert_eq!(left.altnames, ["a-name-longer-than-fifteen-bytes"]);
    assert_eq!(left.kind.as_deref(), Some("veth"));
    assert!(left.peer_netnsid.is_some());
    assert_eq!(link::by_name(&mut pair.socket, "left").unwrap().ifindex, 1001);
    let absent = link::by_name(&mut pair.socket, "nothing").unwrap_err();
    assert!(absent.is_absent(), "{absent}");
    pair.socket.request(&link::delete(1001)).unwrap();
    let mut other = Socket::open_in(pair.right.as_fd(), socket::ROUTE).unwrap();
    assert_eq!(link::dump(&mut other).unwrap().len(), 1);
}

#[test]
fn addresses_and_neighbours_come_back_as_given() {
    let Some(mut pair) = pair() else { return };
    let global = addr::Address { ifindex: 1001, ip: ip("fd00:fa:1:1::"), prefix_len: 127 };
    let local = addr::Address { ifindex: 1001, ip: ip("fe80::eb:ff:fe00:3e9"), prefix_len: 64 };
    pair.socket.all(&[addr::add(&global), addr::add(&local), addr::add(&local)]).unwrap();
    pair.socket.request(&neigh::set_permanent(1001, ip("fe80::eb:ff:fe00:3ea"), RIGHT_MAC)).unwrap();
    let found = addr::dump(&mut pair.socket).unwrap();
    for wanted in [global, local] {
        let info = found.iter().find(|i| i.address == wanted).unwrap();
        assert!(!info.tentative && info.permanent);
    }
    let neighbours = neigh::dump(&mut pair.socket).unwrap();
    let permanent: Vec<_> = neighbours.into_iter().filter(|n| n.permanent).collect();
    let wanted = neigh::Neighbour {
        ifindex: 1001,
        ip: ip("fe80::eb:ff:fe00:3ea"),
        mac: RIGHT_MAC,
        permanent: true,
        protocol: 0,
    };
    assert_eq!(permanent, [wanted]);
    pair.socket.all(&[neigh::delete(1001, wanted.ip), addr::delete(&global)]).unwrap();
    assert!(neigh::dump(&mut pair.socket).unwrap().iter().all(|n| !n.permanent));
    assert!(addr::dump(&mut pair.socket).unwrap().iter().all(|i| i.address != global));
}

#[test]
fn a_batch_reports_each_failure_and_goes_on() {
    let Some(mut pair) = pair() else { return };
    let via = ip("fe80::eb:ff:fe00:3ea");
    let good = |i: u16| {
        let dst = Ipv6Net::new_assert(Ipv6Addr::from([0x2001, 0xdb8, i, 0, 0, 0, 0, 0]), 48);
        route::add(&Route::unicast(dst, 99, via, 1001), Mode::Create)
    };
    let mut requests: Vec<_> = (0..500).map(good).collect();
    requests.insert(250, route::add(&Route::unicast(net("2001:db9::/32"), 99, via, 4711), Mode::Create));
    requests.insert(300, good(7));
    let results = pair.socket.batch(&requests).unwrap();
    let failed: Vec<_> =
        results.iter().enumerate().filter_map(|(i, r)| Some((i, r.clone().err()?))).collect();
    assert_eq!(failed.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [250, 300]);
    assert_eq!(failed[0].1.errno, libc::ENODEV);
    assert!(failed[0].1.to_string().starts_with("cannot add route 2001:db9::/32 in table 254 over fe80::eb"));
    assert!(failed[1].1.exists());
    let filter = Filter { protocol: Some(99), ..Filter::default() };
    assert_eq!(route::dump(&mut pair.socket, filter).unwrap().len(), 500);
}

#[test]
fn routes_of_every_kind_round_trip() {
    let Some(mut pair) = pair() else { return };
    pair.socket.request(&nexthop::set(&object(2300))).unwrap();
    let hop = |tail: u16| Hop {
        gateway: Some(Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, tail])),
        oif: 1001,
        ..Hop::default()
    };
    let base = Route::unicast(net("2001:db8:1::/48"), 4, ip("fe80::1"), 1001);
    let routes = [
        base.clone(),
        Route { dst: net("::/0"), ..base.clone() },
        Route {
            dst: net("2001:db8:2::/48"),
            table: 1003,
            metric: 10,
            via: Via::Hops(vec![hop(1), hop(2)]),
            ..base.clone()
        },
        Route { dst: net("2001:db8:3::/48"), via: Via::Object(2300), table: 102, metric: 10, ..base.clone() },
    ];
    for wanted in &routes {
        pair.socket.request(&route::add(wanted, Mode::Create)).unwrap();
        pair.socket.request(&route::add(wanted, Mode::Replace)).unwrap();
        let filter = Filter { table: Some(wanted.table), protocol: Some(4) };
        let found = route::dump(&mut pair.socket, filter).unwrap();
        assert!(found.contains(wanted), "{wanted:?} not in {found:?}");
    }
    let local = Route {
        kind: Kind::Local,
        dst: net("2001:db8:3:1:1::/80"),
        via: Via::Hops(vec![Hop { oif: 1, ..Hop::default() }]),
        ..base.clone()
    };
    let unreachable =
        Route { kind: Kind::Unreachable, dst: net("2001:db8:9::/48"), via: Via::None, ..base.clone() };
    for wanted in [&local, &unreachable] {
        pair.socket.request(&route::add(wanted, Mode::Create)).unwrap();
        let found = route::dump(&mut pair.socket, Filter { protocol: Some(4), table: None }).unwrap();
        assert!(
            found.iter().any(|r| r.dst == wanted.dst && r.kind == wanted.kind),
            "{wanted:?} not in {found:?}"
        );
    }
    for gone in &routes {
        pair.socket.request(&route::delete(gone)).unwrap();
    }
    pair.socket.all(&[route::delete(&local), route::delete(&unreachable)]).unwrap();
    assert_eq!(route::dump(&mut pair.socket, Filter { protocol: Some(4), table: None }).unwrap(), []);
    assert_eq!(route::dump(&mut pair.socket, Filter { table: Some(4000), protocol: None }).unwrap(), []);
}

fn object(id: u32) -> Object {
    Object { id, protocol: 201, oif: 1001, gateway: Some(ip("fe80::eb:ff:fe00:3ea")), labels: Vec::new() }
}

#[test]
fn nexthop_groups_are_replaced_read_and_counted() {
    let Some(mut pair) = pair() else { return };
    pair.socket.all(&[1, 2, 3].map(|id| nexthop::set(&object(id)))).unwrap();
    let group = nexthop::Group {
        id: 9,
        protocol: 201,
        members: vec![Member { id: 1, weight: 0 }, Member { id: 3, weight: 2 }],
    };
    pair.socket.all(&[nexthop::set_group(&group), nexthop::set_group(&group)]).unwrap();
    let entries = nexthop::dump(&mut pair.socket).unwrap();
    assert_eq!(entries.iter().map(Entry::id).collect::<Vec<_>>(), [1, 2, 3, 9]);
    assert_eq!(entries[0], Entry::Object(object(1)));
    assert_eq!(entries[3], Entry::Group(group));
    let counts = nexthop::counts(&mut pair.socket).unwrap();
    assert_eq!(
        counts.iter().map(|c| (c.group, c.member, c.packets)).collect::<Vec<_>>(),
        [(9, 1, 0), (9, 3, 0)]
    );
    let missing =
        pair.socket.request(&nexthop::set_group(&nexthop::Group::equal(10, 201, [1, 77]))).unwrap_err();
    assert_eq!(missing.text.as_deref(), Some("Invalid nexthop id"));
    pair.socket.all(&[nexthop::delete(9), nexthop::delete(1)]).unwrap();
    assert_eq!(nexthop::dump(&mut pair.socket).unwrap().len(), 2);
    let labelled = Object { labels: vec![1004, 1002, 526_364], ..object(5) };
    match pair.socket.request(&nexthop::set(&labelled)) {
        Ok(()) => {
            let entries = nexthop::dump(&mut pair.socket).unwrap();
            assert!(entries.contains(&Entry::Object(labelled)));
        }
        Err(e) => println!("skipped labels: this kernel has no MPLS: {e}"),
    }
}

#[test]
fn rules_classify_by_dscp_with_a_mask() {
    let Some(mut pair) = pair() else { return };
    let rules = [
        Rule {
            priority: 100,
            table: 102,
            protocol: 201,
            iif: Some("left".into()),
            dscp: Some((0x20, 0x20)),
            fwmark: None,
        },
        Rule { priority: 101, table: 1005, protocol: 201, iif: None, dscp: Some((48, 0x3f)), fwmark: None },
        Rule { priority: 102, table: 100, protocol: 201, iif: None, dscp: None, fwmark: Some((1, 0xff)) },
        Rule { priority: 40000, table: 200, protocol: 201, ..Rule::default() },
    ];
    for (index, wanted) in rules.iter().enumerate() {
        match pair.socket.request(&rule::add(wanted)) {
            Ok(()) => {}
            Err(e) if index == 0 => return println!("skipped: no DSCP mask in this kernel: {e}"),
            Err(e) => panic!("{e}"),
        }
        assert!(rule::dump(&mut pair.socket).unwrap().contains(wanted), "{wanted:?}");
        assert!(pair.socket.request(&rule::add(wanted)).unwrap_err().exists());
    }
    for gone in &rules {
        pair.socket.request(&rule::delete(gone)).unwrap();
    }
    assert!(rule::dump(&mut pair.socket).unwrap().iter().all(|r| r.protocol != 201));
}

#[test]
fn label_routes_round_trip_where_the_kernel_has_mpls() {
    let Some(mut pair) = pair() else { return };
    let settings = [("net.mpls.platform_labels", "532480"), ("net.mpls.conf.left.input", "1")];
    if sysctl::write(pair.left.as_fd(), &settings).unwrap().iter().any(Result::is_err) {
        assert_eq!(mpls::dump(&mut pair.socket).unwrap(), []);
        return println!("skipped: this kernel has no MPLS");
    }
    let via = ip("fe80::eb:ff:fe00:3ea");
    let hop = |push: &[u32]| mpls::LabelHop { via, oif: 1001, push: push.to_vec() };
    let routes = [
        mpls::LabelRoute { label: 1002, protocol: 4, hops: vec![hop(&[])] },
        mpls::LabelRoute {
            label: 526_364,
            protocol: 201,
            hops: vec![hop(&[]), hop(&[1003]), hop(&[1003]), hop(&[1004, 1005])],
        },
    ];
    for wanted in &routes {
        pair.socket.all(&[mpls::set(wanted), mpls::set(wanted)]).unwrap();
    }
    assert_eq!(mpls::dump(&mut pair.socket).unwrap(), routes);
    pair.socket.all(&[mpls::delete(1002), mpls::delete(526_364)]).unwrap();
    assert_eq!(mpls::dump(&mut pair.socket).unwrap(), []);
}

#[test]
fn the_monitor_tells_of_a_cut_and_of_routes() {
    let Some(mut pair) = pair() else { return };
    let mut monitor =
        Monitor::open_in(pair.left.as_fd(), &[Group::Link, Group::Route6, Group::Nexthop]).unwrap();
    let wanted = Route { table: 1003, ..Route::unicast(net("2001:db8:3::/48"), 12, ip("fe80::1"), 1001) };
    pair.socket
        .all(&[route::add(&wanted, Mode::Create), nexthop::set(&object(4)), nexthop::delete(4)])
        .unwrap();
    let table = wait_for(&mut monitor, |e| match e {
        Event::Route6(r) if r.protocol == 12 => Some(r.table),
        _ => None,
    });
    assert_eq!(table, 1003);
    wait_for(&mut monitor, |e| (*e == Event::Nexthop(Entry::Object(object(4)))).then_some(()));
    wait_for(&mut monitor, |e| matches!(e, Event::NexthopDeleted(n) if n.id() == 4).then_some(()));
    let mut other = Socket::open_in(pair.right.as_fd(), socket::ROUTE).unwrap();
    let start = Instant::now();
    other.request(&link::set_up(1002, false)).unwrap();
    wait_for(&mut monitor, |e| {
        matches!(e, Event::Link(l) if l.name == "left" && l.up && !l.lower_up).then_some(())
    });
    println!("carrier loss seen after {:?}", start.elapsed());
    other.request(&link::delete(1002)).unwrap();
    wait_for(&mut monitor, |e| matches!(e, Event::LinkDeleted(l) if l.ifindex == 1001).then_some(()));
    assert_eq!(monitor.try_recv().unwrap_or(None).filter(|e| *e == Event::Overrun), None);
}

#[test]
fn a_namespace_lives_by_its_name() {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: making namespaces needs root");
    }
    let path = std::env::temp_dir().join(format!("rtnl-test-{}", std::process::id()));
    let made = netns::create().unwrap();
    sysctl::write(made.as_fd(), &[("net.ipv6.conf.default.mtu", "1400")]).unwrap().remove(0).unwrap();
    netns::bind(made.as_fd(), &path).unwrap();
    drop(made);
    let again = netns::open(&path).unwrap();
    assert!(netns::is_namespace(&again));
    assert_eq!(
        sysctl::read(again.as_fd(), &["net.ipv6.conf.default.mtu", "net.no.such"]).unwrap(),
        [Some("1400".into()), None]
    );
    netns::unbind(&path).unwrap();
    netns::unbind(&path).unwrap();
    assert!(!path.exists());
    let refused = sysctl::write(again.as_fd(), &[("net.no.such", "1")]).unwrap().remove(0).unwrap_err();
    assert_eq!(refused.to_string(), "cannot set net.no.such to 1: No such file or directory");
    let inside =
        netns::tour(&[again.as_fd()], |_| std::fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_ne!(inside[0], std::fs::read_link("/proc/self/ns/net").unwrap());
}

//! The real kernel, in fresh namespaces: every request is sent, read back and undone.
//!
//! Skipped with a printed reason where the caller may not make namespaces.

#![allow(clippy::unwrap_used)]

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use rtnl::monitor::{Event, Group, Monitor};
use rtnl::nexthop::{Entry, Member, Object};
use rtnl::route::{Filter, Hop, Kind, Route, Via};
use rtnl::rule::Rule;
use rtnl::{Mode, Socket, addr, link, mpls, neigh, netns, nexthop, nft, route, rule, socket, sysctl, tc};

/// Two namespaces joined by a veth pair (`left` 1001, `right` 1002), both ends up, and a socket in the first.
struct Pair {
    left: OwnedFd,
    right: OwnedFd,
    socket: Socket,
}

const LEFT_MAC: [u8; 6] = [0x02, 0xeb, 0, 0, 0x03, 0xe9];
const RIGHT_MAC: [u8; 6] = [0x02, 0xeb, 0, 0, 0x03, 0xea];

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

/// Makes the pair, or says why the test is skipped.
fn pair() -> Option<Pair> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: making namespaces needs root");
        return None;
    }
    let (left, right) = (netns::create().unwrap(), netns::create().unwrap());
    for namespace in [&left, &right] {
        let settings = [
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv6.conf.all.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.keep_addr_on_down", "1"),
            ("net.ipv6.conf.all.keep_addr_on_down", "1"),
        ];
        for result in sysctl::write(namespace.as_fd(), &settings).unwrap() {
            result.unwrap();
        }
    }
    let a = link::VethEnd { netns: left.as_fd(), name: "left", ifindex: 1001, mac: LEFT_MAC, mtu: 9216 };
    let b = link::VethEnd { netns: right.as_fd(), name: "right", ifindex: 1002, mac: RIGHT_MAC, mtu: 9216 };
    Socket::open(socket::ROUTE).unwrap().request(&link::create_veth(&a, &b)).unwrap();
    let mut socket = Socket::open_in(left.as_fd(), socket::ROUTE).unwrap();
    socket.all(&[link::set_up(1, true), link::set_up(1001, true)]).unwrap();
    let mut other = Socket::open_in(right.as_fd(), socket::ROUTE).unwrap();
    other.all(&[link::set_up(1, true), link::set_up(1002, true)]).unwrap();
    Some(Pair { left, right, socket })
}

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

#[test]
fn queues_are_set_replaced_read_and_removed() {
    let Some(mut pair) = pair() else { return };
    let tbf = tc::Tbf { rate_bps: 20_000_000, burst: 9300, limit: 200_000 };
    let faster = tc::Tbf { rate_bps: 100_000_000_000, burst: 64_000, ..tbf };
    for wanted in [tbf, faster, tbf] {
        pair.socket.request(&tc::tbf(1001, tc::ROOT, tc::handle(1, 0), &wanted)).unwrap();
        let queues = tc::dump(&mut pair.socket, Some(1001)).unwrap();
        let tc::Details::Tbf(found) = queues[0].details else { panic!("{queues:?}") };
        assert_eq!((found.rate_bps, found.limit), (wanted.rate_bps, wanted.limit));
        // The kernel keeps the bucket as a time in units of 64 ns: 0.16 bytes at 20 Mbit/s, 800 at 100 Gbit/s.
        let unit = u32::try_from(wanted.rate_bps / 8 * 64 / 1_000_000_000).unwrap() + 2;
        assert!(wanted.burst.abs_diff(found.burst) <= unit, "{found:?}");
    }
    match pair.socket.request(&tc::prio(
        1001,
        tc::handle(1, 1),
        tc::handle(2, 0),
        &tc::Prio::last_by_default(4),
    )) {
        Err(e) => println!("skipped prio: this kernel has none: {e}"),
        Ok(()) => {
            let program = tc::classify::program(&tc::classify::Classes::backbone(2));
            pair.socket.request(&tc::bpf_filter(1001, tc::handle(2, 0), &program)).unwrap();
            for band in 1..=4 {
                pair.socket
                    .request(&tc::pfifo(1001, tc::handle(2, band), tc::handle(0x20 + band, 0), 50))
                    .unwrap();
            }
            let queues = tc::dump(&mut pair.socket, Some(1001)).unwrap();
            assert_eq!(queues.iter().filter(|q| q.details == tc::Details::Pfifo(50)).count(), 4);
        }
    }
    pair.socket.request(&tc::pfifo(1001, tc::handle(1, 1), tc::handle(5, 0), 50)).unwrap();
    let queues = tc::dump(&mut pair.socket, None).unwrap();
    assert!(queues.iter().any(|q| q.details == tc::Details::Pfifo(50) && q.parent == tc::handle(1, 1)));
    pair.socket.request(&tc::delete(1001, tc::ROOT)).unwrap();
    assert!(tc::dump(&mut pair.socket, Some(1001)).unwrap().iter().all(|q| q.kind == "noqueue"));
    let netem = tc::Netem { delay_ns: 12_000_000, limit: 1000, loss_ppm: 1000, ..tc::Netem::default() };
    match pair.socket.request(&tc::netem(1001, tc::ROOT, tc::handle(1, 0), &netem)) {
        Err(e) => println!("skipped netem: this kernel has none: {e}"),
        Ok(()) => {
            let queues = tc::dump(&mut pair.socket, Some(1001)).unwrap();
            assert_eq!(queues[0].details, tc::Details::Netem(netem));
            pair.socket.request(&tc::delete(1001, tc::ROOT)).unwrap();
        }
    }
}

/// Sends `count` packets of a code point to an address, from the first namespace.
fn send(from: &OwnedFd, to: &str, dscp: u8, count: usize) {
    netns::enter(from.as_fd(), || {
        let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
        let class = i32::from(dscp) << 2;
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv6TClass, &class).unwrap();
        for _ in 0..count {
            socket.send_to(&[0; 200], (to, 9)).unwrap();
        }
    })
    .unwrap();
}

#[test]
fn the_classifier_finds_the_band_behind_real_labels() {
    let Some(mut pair) = pair() else { return };
    let tbf = tc::Tbf { rate_bps: 100_000_000, burst: 9300, limit: 200_000 };
    let netem = tc::Netem { delay_ns: 20_000_000, limit: 1000, ..tc::Netem::default() };
    let prio = tc::prio(1001, tc::handle(1, 1), tc::handle(2, 0), &tc::Prio::last_by_default(4));
    let program = tc::classify::program(&tc::classify::Classes::backbone(2));
    let tree = [
        tc::netem(1001, tc::ROOT, tc::handle(3, 0), &netem),
        tc::tbf(1001, tc::handle(3, 1), tc::handle(1, 0), &tbf),
        prio,
        tc::bpf_filter(1001, tc::handle(2, 0), &program),
    ];
    if let Err(e) = pair.socket.all(&tree) {
        return println!("skipped: this kernel lacks a queue kind: {e}");
    }
    let leaf = |band| tc::pfifo(1001, tc::handle(2, band), tc::handle(0x20 + band, 0), 50);
    pair.socket.all(&[leaf(1), leaf(2), leaf(3), leaf(4)]).unwrap();
    let own = addr::Address { ifindex: 1001, ip: ip("2001:db8:1::1"), prefix_len: 128 };
    pair.socket.all(&[addr::add(&own), neigh::set_permanent(1001, ip("fe80::1"), RIGHT_MAC)]).unwrap();
    let packets = |pair: &mut Pair| -> [u64; 4] {
        let queues = tc::dump(&mut pair.socket, Some(1001)).unwrap();
        [1, 2, 3, 4]
            .map(|band| queues.iter().find(|q| q.handle == tc::handle(0x20 + band, 0)).unwrap().stats.packets)
    };
    let stacks: [&[u32]; 4] = [&[], &[1002], &[1002, 1003], &[1002, 1003, 526_364]];
    for (number, labels) in stacks.into_iter().enumerate() {
        let hop = Hop { gateway: Some(ip("fe80::1")), oif: 1001, labels: labels.to_vec(), ..Hop::default() };
        let dst = net(&format!("2001:db8:{number}9::/48"));
        let route = Route { via: Via::Hops(vec![hop]), ..Route::unicast(dst, 201, ip("fe80::1"), 1001) };
        if let Err(e) = pair.socket.request(&route::add(&route, Mode::Create)) {
            println!("skipped {} labels: this kernel has no MPLS: {e}", labels.len());
            continue;
        }
        let before = packets(&mut pair);
        let to = format!("2001:db8:{number}9::1");
        for (dscp, count) in [(63, 1), (48, 1), (47, 3), (32, 1), (31, 5), (8, 2), (7, 6), (0, 7)] {
            send(&pair.left, &to, dscp, count);
        }
        // The kernel's own chatter may join: neighbour discovery band 1, multicast reports (which begin with a
        // hop-by-hop header) band 4.
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let after = packets(&mut pair);
            let sent = [0, 1, 2, 3].map(|i: usize| after[i] - before[i]);
            if sent[0] >= 2 && sent[1..3] == [4, 7] && (13..20).contains(&sent[3]) {
                break;
            }
            assert!(Instant::now() < deadline, "{sent:?} behind {labels:?}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn counters_count_by_interface_prefix_and_class_and_survive_changes() {
    let Some(mut pair) = pair() else { return };
    let mut far = Socket::open_in(pair.right.as_fd(), socket::ROUTE).unwrap();
    // The far end is a host: forwarding, it would send what comes back round and round.
    sysctl::write(pair.right.as_fd(), &[("net.ipv6.conf.all.forwarding", "0")]).unwrap().remove(0).unwrap();
    let source = addr::Address { ifindex: 1002, ip: ip("2001:db8:1::1"), prefix_len: 64 };
    let gateway = addr::Address { ifindex: 1001, ip: ip("2001:db8:1::fe"), prefix_len: 64 };
    let onward = Route::unicast(net("2001:db8:3::/48"), 4, source.ip, 1001);
    far.all(&[addr::add(&source), neigh::set_permanent(1002, gateway.ip, LEFT_MAC)]).unwrap();
    far.request(&route::add(&Route::unicast(net("2001:db8:3::/48"), 4, gateway.ip, 1002), Mode::Create))
        .unwrap();
    pair.socket
        .all(&[
            addr::add(&gateway),
            neigh::set_permanent(1001, source.ip, RIGHT_MAC),
            route::add(&onward, Mode::Create),
        ])
        .unwrap();
    let rule = |tag: &str, iif: &str, dst: &str, dscp| nft::CounterRule {
        iif: Some(iif.to_owned()),
        dst: Some(net(dst)),
        dscp: Some(dscp),
        tag: tag.to_owned(),
    };
    let mut counters = nft::Counters::open_in(pair.left.as_fd(), "ebb").unwrap();
    let rules = [
        rule("3/2", "left", "2001:db8:3::/48", 32..=63),
        rule("3/1", "left", "2001:db8:3::/48", 8..=31),
        rule("3/0", "left", "2001:db8:3::/48", 0..=7),
        rule("4/2", "left", "2001:db8:4::/48", 0..=63),
        rule("no", "other", "::/0", 0..=63),
        rule("one", "left", "2001:db8:3::1/128", 0..=63),
    ];
    counters.converge(&rules).unwrap();
    let send = |class: i32| {
        netns::enter(pair.right.as_fd(), || {
            let socket = std::net::UdpSocket::bind("[2001:db8:1::1]:0").unwrap();
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv6TClass, &class).unwrap();
            for _ in 0..10 {
                socket.send_to(&[0; 200], "[2001:db8:3::1]:9").unwrap();
            }
        })
        .unwrap();
    };
    for dscp in [7, 8, 31, 32, 63] {
        send(dscp << 2);
    }
    let count = |counters: &mut nft::Counters, tag: &str| {
        let all = counters.read().unwrap();
        all.into_iter().find(|c| c.tag == tag).map(|c| (c.packets, c.bytes)).unwrap()
    };
    assert_eq!(count(&mut counters, "3/2"), (20, 20 * 248));
    assert_eq!(count(&mut counters, "3/1"), (20, 20 * 248));
    assert_eq!(count(&mut counters, "3/0"), (10, 10 * 248));
    assert_eq!(count(&mut counters, "one"), (50, 50 * 248));
    assert_eq!(count(&mut counters, "4/2").0 + count(&mut counters, "no").0, 0);
    // Another set: what stays keeps its counts, also for a second owner that opens the same table.
    let mut again = nft::Counters::open_in(pair.left.as_fd(), "ebb").unwrap();
    again.converge(&[rules[0].clone(), rule("9/2", "left", "2001:db8:9::/48", 32..=63)]).unwrap();
    assert_eq!(again.read().unwrap().len(), 2);
    send(48 << 2);
    assert_eq!(count(&mut again, "3/2").0, 30);
    // A refused change changes nothing.
    let refused = again.change(&[nft::Change::Add(rules[1].clone()), nft::Change::Delete(4711)]).unwrap_err();
    assert!(refused.is_absent(), "{refused}");
    assert_eq!(again.read().unwrap().len(), 2);
    again.replace(&rules).unwrap();
    assert_eq!((again.read().unwrap().len(), count(&mut again, "3/2")), (6, (0, 0)));
    again.remove().unwrap();
    assert_eq!(counters.read().unwrap_or_default(), []);
}

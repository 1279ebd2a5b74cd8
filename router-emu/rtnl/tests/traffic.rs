//! Queues, the classifier and traffic counters on the real kernel, with real packets where it matters.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use common::{LEFT_MAC, Pair, RIGHT_MAC, ip, net, pair};
use rtnl::route::{Hop, Route, Via};
use rtnl::{Mode, Socket, addr, neigh, netns, nft, route, socket, sysctl, tc};

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

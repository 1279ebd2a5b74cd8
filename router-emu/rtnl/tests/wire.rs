//! The byte layouts: golden bytes of what is encoded, reading back of what was written, and no panic on anything.

#![allow(clippy::unwrap_used)]

use std::net::Ipv6Addr;
use std::os::fd::AsFd as _;

use ipnet::Ipv6Net;
use proptest::prelude::*;
use rtnl::mpls::{LabelHop, LabelRoute};
use rtnl::nexthop::{Entry, Group, Member, Object};
use rtnl::route::{Hop, Kind, Route, Via};
use rtnl::rule::{self, Rule};
use rtnl::{Mode, Request, addr, link, monitor, mpls, neigh, nexthop, nft, route, tc, wire};

/// Hexadecimal, sixteen bytes a line, so that a difference can be found by eye.
fn hex(request: &Request) -> String {
    let line = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
    request.bytes().chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

fn body(request: &Request) -> &[u8] {
    &request.bytes()[wire::HEADER_LEN..]
}

fn via() -> Ipv6Addr {
    "fe80::eb:ff:fe00:3ea".parse().unwrap()
}

#[test]
fn a_nexthop_with_three_labels() {
    let object = Object {
        id: 2315,
        protocol: 201,
        oif: 1120,
        gateway: Some(via()),
        labels: vec![1004, 1002, 526_364],
    };
    insta::assert_snapshot!(hex(&nexthop::set(&object)));
    insta::assert_snapshot!(hex(&nexthop::set_group(&Group::equal(2399, 201, [2300, 2315]))));
}

#[test]
fn a_label_route_that_pops_and_one_that_spreads() {
    let hop = |push: &[u32]| LabelHop { via: via(), oif: 1120, push: push.to_vec() };
    insta::assert_snapshot!(hex(&mpls::set(&LabelRoute { label: 1002, protocol: 4, hops: vec![hop(&[])] })));
    let spread = LabelRoute { label: 526_364, protocol: 201, hops: vec![hop(&[]), hop(&[1003, 1004])] };
    insta::assert_snapshot!(hex(&mpls::set(&spread)));
}

#[test]
fn a_bond_and_its_member() {
    let here = std::fs::File::open("/dev/null").unwrap();
    let end = link::LinkEnd {
        netns: here.as_fd(),
        name: "to-chi",
        ifindex: 1001,
        mac: [0x02, 0xeb, 0, 0, 0x03, 0xe9],
        mtu: 9216,
    };
    let created = link::create_bond(&end);
    // the number of the descriptor is the process's own
    let info: Vec<_> = wire::attrs_after(body(&created), 16).filter(|(kind, _)| *kind != 28).collect();
    let line = |(kind, value): &(u16, &[u8])| {
        let value: Vec<_> = value.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{kind}: {}", value.join(" "))
    };
    insta::assert_snapshot!(info.iter().map(line).collect::<Vec<_>>().join("\n"));
    insta::assert_snapshot!(hex(&link::set_master(1002, 1001)));
}

#[test]
fn a_member_keeps_its_own_address_beside_the_bonds() {
    let (own, bonds) = ([2, 0xeb, 0, 0, 3, 0xea], [2, 0xeb, 0, 0, 3, 0xe9]);
    let mut message = wire::Attrs::after(&[0; 16]);
    message.put(1, &bonds).u32(10, 1001).nest(18, |info| {
        info.nest(5, |slave| {
            slave.put(4, &own);
        });
    });
    let link = link::decode(message.as_bytes()).unwrap();
    assert_eq!((link.mac, link.master), (own, Some(1001)));
}

#[test]
fn a_dscp_rule() {
    let rule = Rule {
        priority: 100,
        table: 102,
        protocol: 201,
        iif: Some("fa".into()),
        dscp: Some((0x20, 0x20)),
        fwmark: None,
    };
    insta::assert_snapshot!(hex(&rule::add(&rule)));
}

#[test]
fn queues() {
    let tbf = tc::Tbf { rate_bps: 20_000_000, burst: 9300, limit: 9300 };
    insta::assert_snapshot!(hex(&tc::tbf(1120, tc::ROOT, tc::handle(1, 0), &tbf)));
    let prio = tc::Prio::last_by_default(4);
    insta::assert_snapshot!(hex(&tc::prio(1120, tc::handle(1, 1), tc::handle(2, 0), &prio)));
    let netem = tc::Netem {
        delay_ns: 12_000_000,
        jitter_ns: 64_000,
        loss_ppm: 10_000,
        corrupt_ppm: 20_000,
        duplicate_ppm: 30_000,
        reorder_ppm: 250_000,
        limit: 1000,
        rate_bps: Some(8_000_000),
    };
    insta::assert_snapshot!(hex(&tc::netem(1120, tc::ROOT, tc::handle(3, 0), &netem)));
    assert_eq!(tc::Netem::decode(&netem.encode()), Some(netem));
    assert_eq!(tc::Prio::decode(&prio.encode()), Some(prio));
}

#[test]
fn dscp_ranges_split_into_the_fewest_masks() {
    assert_eq!(rule::dscp_masks(0..=7), [(0, 0x38)]);
    assert_eq!(rule::dscp_masks(8..=31), [(8, 0x38), (16, 0x30)]);
    assert_eq!(rule::dscp_masks(32..=63), [(32, 0x20)]);
    assert_eq!(rule::dscp_masks(0..=63), [(0, 0)]);
    assert_eq!(rule::dscp_masks(63..=63), [(63, 0x3f)]);
}

fn any_ip() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

fn labels() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(16u32..1_048_575, 0..4)
}

prop_compose! {
    fn any_net()(ip in any_ip(), len in 0u8..=128) -> Ipv6Net {
        Ipv6Net::new(ip, len).unwrap().trunc()
    }
}

prop_compose! {
    fn any_hop()(gateway in any_ip(), oif in 1u32.., weight in any::<u8>(), labels in labels()) -> Hop {
        Hop { gateway: Some(gateway), oif, weight, labels, flags: 0 }
    }
}

fn any_via() -> impl Strategy<Value = Via> {
    prop_oneof![
        Just(Via::None),
        any::<u32>().prop_map(Via::Object),
        any_hop().prop_map(|hop| Via::Hops(vec![Hop { weight: 0, ..hop }])),
        prop::collection::vec(any_hop(), 2..9).prop_map(Via::Hops),
    ]
}

proptest! {
    #[test]
    fn a_route_reads_back(dst in any_net(), table in 1u32.., metric in 1u32.., protocol in any::<u8>(), kind in any::<u8>(), via in any_via()) {
        let route = Route { dst, table, metric, protocol, kind: Kind::from(kind), via };
        prop_assert_eq!(route::decode(body(&route::add(&route, Mode::Replace))), Some(route));
    }

    #[test]
    fn a_label_route_reads_back(
        label in 16u32..1_048_575,
        protocol in any::<u8>(),
        hops in prop::collection::vec((1u128.., 1u32.., labels()), 1..17),
    ) {
        let hops = hops.into_iter().map(|(via, oif, push)| LabelHop { via: Ipv6Addr::from(via), oif, push }).collect();
        let route = LabelRoute { label, protocol, hops };
        prop_assert_eq!(mpls::decode(body(&mpls::set(&route))), Some(route));
    }

    #[test]
    fn a_nexthop_reads_back(id in 1u32.., protocol in any::<u8>(), oif in 1u32.., gateway in any_ip(), labels in labels()) {
        let object = Object { id, protocol, oif, gateway: Some(gateway), labels };
        prop_assert_eq!(nexthop::decode(body(&nexthop::set(&object))), Some(Entry::Object(object)));
    }

    #[test]
    fn a_group_reads_back(id in 1u32.., protocol in any::<u8>(), members in prop::collection::vec((any::<u32>(), any::<u8>()), 0..40)) {
        let members = members.into_iter().map(|(id, weight)| Member { id, weight }).collect();
        let group = Group { id, protocol, members };
        prop_assert_eq!(nexthop::decode(body(&nexthop::set_group(&group))), Some(Entry::Group(group)));
    }

    #[test]
    fn a_rule_reads_back(priority in 1u32.., table in 1u32.., protocol in any::<u8>(), iif in prop::option::of("[a-z]{1,15}"), dscp in prop::option::of((0u8..64, 0u8..64)), mark in prop::option::of((1u32.., any::<u32>()))) {
        let rule = Rule { priority, table, protocol, iif, dscp, fwmark: mark };
        prop_assert_eq!(rule::decode(body(&rule::add(&rule))), Some(rule));
    }

    #[test]
    fn an_address_and_a_neighbour_read_back(ifindex in any::<u32>(), ip in any_ip(), prefix_len in 0u8..=128, mac in any::<[u8; 6]>()) {
        let address = addr::Address { ifindex, ip, prefix_len };
        prop_assert_eq!(addr::decode(body(&addr::add(&address))).map(|i| i.address), Some(address));
        let neighbour = neigh::Neighbour { ifindex, ip, mac, permanent: true, protocol: 0 };
        prop_assert_eq!(neigh::decode(body(&neigh::set_permanent(ifindex, ip, mac))), Some(neighbour));
    }

    #[test]
    fn dscp_masks_match_exactly_the_range(start in 0u8..64, length in 0u8..64) {
        let end = (start + length).min(63);
        let pairs = rule::dscp_masks(start..=end);
        for dscp in 0..64 {
            let matches = pairs.iter().filter(|(value, mask)| dscp & mask == *value).count();
            prop_assert_eq!(matches, usize::from((start..=end).contains(&dscp)));
        }
    }

    #[test]
    fn no_decoder_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        decode_everything(&bytes);
    }

    /// Random bytes seldom get past the first check: damage good messages instead.
    #[test]
    fn no_decoder_panics_on_damaged_messages(
        which in 0usize..6,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let hop = |tail: u128| Hop { gateway: Some(Ipv6Addr::from(tail)), oif: 7, weight: 1, labels: vec![16, 17], flags: 0 };
        let route = Route { dst: "2001:db8::/32".parse().unwrap(), table: 7, metric: 1, protocol: 4, kind: Kind::Unicast, via: Via::Hops(vec![hop(1), hop(2)]) };
        let object = Object { id: 1, protocol: 1, oif: 1, gateway: Some(via()), labels: vec![99, 100] };
        let label_hop = LabelHop { via: via(), oif: 1, push: vec![77] };
        let label = LabelRoute { label: 16, protocol: 1, hops: vec![label_hop.clone(), label_hop] };
        let request = match which {
            0 => route::add(&route, Mode::Replace),
            1 => nexthop::set(&object),
            2 => nexthop::set_group(&Group::equal(1, 1, [1, 2, 3])),
            3 => mpls::set(&label),
            4 => rule::add(&Rule { iif: Some("x".into()), dscp: Some((1, 1)), ..Rule::default() }),
            _ => tc::netem(1, 2, 3, &tc::Netem::default()),
        };
        let mut bytes = request.bytes().to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        decode_everything(&bytes);
        decode_everything(bytes.get(wire::HEADER_LEN..).unwrap_or_default());
    }
}

fn decode_everything(bytes: &[u8]) {
    let _ = (link::decode(bytes), addr::decode(bytes), neigh::decode(bytes), route::decode(bytes));
    let _ = (mpls::decode(bytes), nexthop::decode(bytes), nexthop::decode_counts(bytes), rule::decode(bytes));
    let _ = (tc::decode(bytes), nft::decode(bytes), monitor::decode(bytes), wire::parse_labels(bytes));
    let _ = (tc::Tbf::decode(bytes), tc::Prio::decode(bytes), tc::Netem::decode(bytes));
}

//! "Numbers that must agree" of `docs/architecture.md`, held row by row on the ready-made labs.

#![allow(clippy::unwrap_used, clippy::format_push_string)] // tests, and their helpers

use std::collections::BTreeSet;

use topologies::lab::{Lab, LinkKind, ProgramKind, Role};
use topologies::{builtin, labs};

fn lab() -> Lab {
    labs::load("ebb-small").unwrap().0
}

fn text(value: &impl ToString) -> String {
    value.to_string()
}

#[test]
fn addresses() {
    let lab = lab();
    assert_eq!(text(&lab.node("eb02.lla").unwrap().address), "fd00:2::4");
    assert_eq!(text(&lab.node("fa.prn").unwrap().address), "2001:db8:1::fa");
    let host = lab.node("h1.prn").unwrap();
    assert_eq!(text(&host.address), "2001:db8:1:1::1");
    assert_eq!(host.local_prefixes.iter().map(text).collect::<Vec<_>>(), ["2001:db8:1:1:1::/80"]);
    // Site 10 and host 10 are hexadecimal in addresses.
    let large = labs::load("ebb-6x4").unwrap().0;
    assert_eq!(text(&large.node("eb04.nyc").unwrap().address), "fd00:4::a");
    let many =
        builtin("ebb-small").unwrap().replace("prn: {id: 1, kind: dc}", "prn: {id: 1, kind: dc, hosts: 12}");
    let many = Lab::from_str(&many, "x.yaml").unwrap().0;
    assert_eq!(text(&many.node("h10.prn").unwrap().address), "2001:db8:1:a::1");
    let route = many.node("fa.prn").unwrap().routes.iter().find(|route| route.interface == "h10").unwrap();
    assert_eq!(text(&route.prefix), "2001:db8:1:a::/64");
}

#[test]
fn interfaces() {
    let lab = lab();
    let core = lab.interface("eb01.atn", "to-prn").unwrap();
    assert_eq!(
        (core.mtu, core.core, core.static_label, core.rate_bps),
        (9216, true, Some(1001), Some(20_000_000))
    );
    assert!(core.addresses.is_empty() && core.delay.is_none());
    assert_eq!(lab.interface("eb01.prn", "to-chi").unwrap().static_label, Some(1005));
    let router = lab.interface("eb02.frc", "fa").unwrap();
    assert_eq!(router.addresses.iter().map(text).collect::<Vec<_>>(), ["fd00:fa:2:3::/127"]);
    assert_eq!((router.mtu, router.core, router.static_label, router.rate_bps), (9000, false, None, None));
    let aggregator = lab.interface("fa.frc", "eb02").unwrap();
    assert_eq!(aggregator.addresses.iter().map(text).collect::<Vec<_>>(), ["fd00:fa:2:3::1/127"]);
    let names: Vec<&str> = lab.node("fa.frc").unwrap().interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["eb01", "eb02", "h1"]);
    let names: Vec<&str> = lab.node("eb01.chi").unwrap().interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["to-atn", "to-frc", "to-lon", "to-prn"]);
}

#[test]
fn both_ends_know_each_other() {
    for name in ["ebb-small", "ebb-6x4"] {
        let lab = labs::load(name).unwrap().0;
        let mut seen = BTreeSet::new();
        for node in &lab.nodes {
            for own in &node.interfaces {
                assert!(seen.insert(own.ifindex) && own.ifindex >= 1001);
                let peer = lab.interface(&own.peer_node, &own.peer_interface).unwrap();
                assert_eq!((&peer.peer_node, &peer.peer_interface), (&node.name, &own.name));
                assert_eq!((own.peer_mac, own.peer_link_local), (peer.mac, peer.link_local));
                assert_eq!((own.mtu, own.rate_bps, &own.link), (peer.mtu, peer.rate_bps, &peer.link));
                let bytes = own.ifindex.to_be_bytes();
                assert_eq!(own.mac, [0x02, 0xeb, bytes[0], bytes[1], bytes[2], bytes[3]]);
                let link = lab.link(&own.link).unwrap();
                assert_eq!(link.core(), own.core);
                assert_eq!(lab.end(link.ends_from(&node.name).unwrap().0), Some(own));
            }
        }
        assert_eq!(seen.len(), lab.links.len() * 2);
        assert!(
            lab.links.is_sorted_by(|a, b| a.name < b.name) && lab.nodes.is_sorted_by(|a, b| a.name < b.name)
        );
    }
}

/// What the tests ask of a link.
trait IsCore {
    fn core(&self) -> bool;
}

impl IsCore for topologies::lab::Link {
    fn core(&self) -> bool {
        self.kind == LinkKind::Core
    }
}

#[test]
fn links() {
    let lab = lab();
    let link = lab.link("eb01.atn--eb01.prn").unwrap();
    assert_eq!((link.a.node.as_str(), link.a.interface.as_str()), ("eb01.atn", "to-prn"));
    assert_eq!((link.kind, link.plane, link.members), (LinkKind::Core, Some(1), 4));
    assert_eq!(lab.link("eb02.prn--fa.prn").unwrap().kind, LinkKind::Attach);
    assert_eq!(lab.link("fa.prn--h1.prn").unwrap().plane, None);
    assert_eq!(lab.emulated(link.capacity), 20_000_000);
    assert_eq!(lab.real(20_000_000), link.capacity);
    assert_eq!(lab.links.len(), 2 * 10 + 2 * 4 + 4);
}

#[test]
fn routes_lead_to_the_neighbour() {
    let lab = lab();
    let host = lab.node("h1.lla").unwrap();
    assert_eq!(host.routes.len(), 1);
    assert_eq!((text(&host.routes[0].prefix), host.routes[0].interface.as_str()), ("::/0".to_owned(), "fa"));
    assert_eq!(host.routes[0].via, lab.interface("fa.lla", "h1").unwrap().link_local);
    let aggregator = lab.node("fa.lla").unwrap();
    assert_eq!(text(&aggregator.routes[0].prefix), "2001:db8:4:1::/64");
    assert_eq!(aggregator.routes[0].via, lab.interface("h1.lla", "fa").unwrap().link_local);
    assert!(lab.routers(1).all(|router| router.routes.is_empty()));
}

#[test]
fn programs_and_label_tables() {
    let lab = lab();
    let router = [
        ProgramKind::Bird,
        ProgramKind::ConfigAgent,
        ProgramKind::FibAgent,
        ProgramKind::LspAgent,
        ProgramKind::Openr,
        ProgramKind::RouteAgent,
    ];
    for node in &lab.nodes {
        let controlled = lab.controllers_on(&node.name).count();
        match node.role {
            Role::Router => {
                assert_eq!((&node.programs[..], node.platform_labels), (&router[..], 524_288 + (7 << 11)));
            }
            Role::Aggregator => {
                assert_eq!((&node.programs[..], node.platform_labels), (&[ProgramKind::Bird][..], 0));
            }
            Role::Host => assert_eq!(node.programs.len(), 2 * controlled.min(1)),
        }
    }
    // Plane p: first host of the p-th data centre by name.
    let hosts: Vec<&str> =
        lab.planes.iter().flat_map(|plane| &plane.controller_hosts).map(String::as_str).collect();
    assert_eq!(hosts, ["h1.atn", "h1.frc"]);
    let eight = builtin("ebb-small").unwrap().replace("planes: 2", "planes: 8");
    let eight = Lab::from_str(&eight, "x.yaml").unwrap().0;
    assert_eq!(eight.plane(5).unwrap().controller_hosts, ["h1.atn"]);
    assert_eq!(eight.controllers_on("h1.atn").collect::<Vec<_>>(), [(1, 1), (5, 1)]);
}

#[test]
fn emulated_delay_is_half_the_rtt_each_way() {
    let delayed = builtin("ebb-small").unwrap().replace("delay: declared", "delay: emulated");
    let delayed = Lab::from_str(&delayed, "x.yaml").unwrap().0;
    let core = delayed.interface("eb01.prn", "to-chi").unwrap();
    assert_eq!(core.delay, Some(std::time::Duration::from_micros(11_500)));
    assert_eq!(delayed.interface("eb01.prn", "fa").unwrap().delay, None);
}

#[test]
fn demands() {
    let small = lab();
    assert_eq!(small.demands.len(), 4 * 3 * 3);
    assert!(small.demands.iter().all(|demand| text(&demand.rate) == "10G"));
    let large = labs::load("ebb-6x4").unwrap().0;
    let rate = |from: &str, to: &str, mesh: &str| {
        let found = large
            .demands
            .iter()
            .find(|d| (d.from.as_str(), d.to.as_str(), d.mesh.as_str()) == (from, to, mesh));
        text(&found.unwrap().rate)
    };
    assert_eq!(rate("prn", "frc", "bronze"), "30G"); // 900G over 30 ordered pairs
    assert_eq!(rate("frc", "prn", "bronze"), "60G");
    let weighted =
        builtin("ebb-6x4").unwrap().replace("atn: {id: 2, kind: dc}", "atn: {id: 2, kind: dc, weight: 5}");
    let weighted = Lab::from_str(&weighted, "x.yaml").unwrap().0;
    let total: u64 = weighted.demands.iter().filter(|d| d.mesh == "gold").map(|d| d.rate.0).sum();
    assert!((899_999_000_000..=900_000_000_000).contains(&total), "{total}");
}

#[test]
fn members() {
    let text = builtin("ebb-small").unwrap();
    let real = Lab::from_str(&text.replace("delay: declared", "lag: emulated\ndelay: declared"), "x.yaml")
        .unwrap()
        .0;
    let declared = lab();
    let interface = real.interface("eb01.atn", "to-prn").unwrap();
    let names: Vec<&str> = interface.members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["to-prn_1", "to-prn_2", "to-prn_3", "to-prn_4"]);
    let mut indexes = BTreeSet::new();
    for node in &real.nodes {
        for interface in &node.interfaces {
            assert_eq!(interface.members.len(), if interface.core { 4 } else { 0 });
            assert!(indexes.insert(interface.ifindex));
            let far = real.interface(&interface.peer_node, &interface.peer_interface).unwrap();
            for (own, peer) in interface.members.iter().zip(&far.members) {
                assert!(indexes.insert(own.ifindex), "{} is taken", own.ifindex);
                assert_eq!((own.peer_ifindex, peer.peer_ifindex), (peer.ifindex, own.ifindex));
            }
            // a bundle has its members beside everything that the link had
            let as_declared = declared.interface(&node.name, &interface.name).unwrap();
            let bare = topologies::lab::Interface { members: Vec::new(), ..interface.clone() };
            assert_eq!(bare, *as_declared);
        }
    }
    // a bundle of one is a link
    let one = text.replace("rtt: 120ms, members: 4}", "rtt: 120ms, members: 1, lag: emulated}");
    let one = Lab::from_str(&one, "x.yaml").unwrap().0;
    assert!(one.nodes.iter().flat_map(|n| &n.interfaces).all(|i| i.members.is_empty()));
    // one link may say otherwise
    let only = text.replace("rtt: 120ms, members: 4}", "rtt: 120ms, members: 4, lag: emulated}");
    let only = Lab::from_str(&only, "x.yaml").unwrap().0;
    assert_eq!(only.links.iter().filter(|l| l.bonded).count(), 2);
}

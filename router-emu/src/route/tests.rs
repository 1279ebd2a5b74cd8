//! The program against the real kernel: rules, routes, groups that come and go, counters.

use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;

use ipnet::Ipv6Net;
use rtnl::monitor::{Event, Group as Watch, Monitor};
use rtnl::nexthop::{Group, Object};
use rtnl::route::{Filter, Hop, Kind, Route, Via};
use rtnl::{Mode, Socket, addr, netns, nexthop, route, rule};
use tonic::transport::Channel;

use super::agent;
use crate::config::{FALLBACK_TABLE, HANDOVER_TABLE, PROTO_BIRD, PROTO_LSP};
use crate::label::{Mesh, Nexthop};
use crate::lsp::tests::lab::{self, Pair};
use crate::proto::route_agent_client::RouteAgentClient;
use crate::proto::{self, MapEntry, ProgramMapRequest};
use crate::rpc;

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn bird(pair: &Pair, table: u32, prefix: &str, interface: &str) -> Route {
    let hop = Hop { gateway: Some(pair.gateway(interface)), oif: pair.ifindex(interface), ..Hop::default() };
    let via = Via::Hops(vec![hop]);
    Route { dst: net(prefix), table, metric: 32, protocol: PROTO_BIRD, kind: Kind::Unicast, via }
}

/// Creates a group of one member, as the lsp-agent does.
fn make_group(pair: &Pair, socket: &mut Socket, dst: u8, mesh: Mesh) -> u32 {
    let group = Nexthop::Group { dst, mesh }.id();
    let (gateway, oif) = (Some(pair.gateway("to-b")), pair.ifindex("to-b"));
    let member = Object { id: group + 1, protocol: PROTO_LSP, oif, gateway, labels: vec![] };
    socket
        .all(&[nexthop::set(&member), nexthop::set_group(&Group::equal(group, PROTO_LSP, [group + 1]))])
        .unwrap();
    group
}

/// Our routes: (prefix, table, group).
fn ours(socket: &mut Socket) -> Vec<(Ipv6Net, u32, u32)> {
    let routes = route::dump(socket, Filter { table: None, protocol: Some(PROTO_LSP) }).unwrap();
    let mut routes: Vec<_> = routes
        .into_iter()
        .map(|r| match r.via {
            Via::Object(id) => (r.dst, r.table, id),
            via => panic!("a route of ours by {via:?}"),
        })
        .collect();
    routes.sort();
    routes
}

async fn wait_ours(socket: &mut Socket, want: &[(Ipv6Net, u32, u32)]) {
    let socket = std::cell::RefCell::new(socket);
    let last = std::cell::RefCell::new(Vec::new());
    let what = format!("routes {want:?}");
    lab::wait(&what, || async {
        *last.borrow_mut() = ours(&mut socket.borrow_mut());
        (*last.borrow() == want).then_some(())
    })
    .await;
}

async fn program(
    client: &mut RouteAgentClient<Channel>,
    epoch: u64,
    entries: &[(u8, Mesh)],
) -> Result<(), tonic::Status> {
    let entries = entries.iter().map(|&(dst, mesh)| MapEntry {
        dst_site: dst.into(),
        mesh: mesh.code().into(),
        nhg_id: Nexthop::Group { dst, mesh }.id(),
    });
    let request = ProgramMapRequest {
        epoch,
        writer: "test".to_owned(),
        entries: entries.collect(),
        remove: Vec::new(),
    };
    client.program_map(request).await.map(drop)
}

async fn connect(config: &crate::config::RouterConfig) -> RouteAgentClient<Channel> {
    lab::wait("the agent's answer", || async {
        let mut client = RouteAgentClient::new(rpc::unix_channel(config.socket("route-agent")));
        client.dump_routes(proto::DumpRoutesRequest {}).await.ok().map(|_| client)
    })
    .await
}

#[test]
fn routes_follow_bird_the_map_and_the_groups() {
    let Some(pair) = lab::pair(&["to-b", "fa"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = pair.config(folder.path(), Some("fa"));
    pair.inside(|| async {
        let mut socket = pair.socket(false);
        let three = bird(&pair, HANDOVER_TABLE + 3, "2001:db8:3::/48", "to-b");
        socket.request(&route::add(&three, Mode::Replace)).unwrap();
        let first = tokio::spawn(agent::run(config.clone()));
        let mut client = connect(&config).await;
        program(&mut client, 2, &[(3, Mesh::Gold), (3, Mesh::Bronze), (5, Mesh::Gold)]).await.unwrap();
        assert_eq!(ours(&mut socket), []);
        let gold = make_group(&pair, &mut socket, 3, Mesh::Gold);
        let route_three = (net("2001:db8:3::/48"), 102, gold);
        wait_ours(&mut socket, &[route_three]).await;

        // the group goes with its routes and comes back
        socket.request(&nexthop::delete(gold)).unwrap();
        wait_ours(&mut socket, &[]).await;
        make_group(&pair, &mut socket, 3, Mesh::Gold);
        wait_ours(&mut socket, &[route_three]).await;

        // a second site announces the prefix, and BIRD prefers it
        let other = make_group(&pair, &mut socket, 5, Mesh::Gold);
        let five = bird(&pair, HANDOVER_TABLE + 5, "2001:db8:3::/48", "fa");
        socket.request(&route::add(&five, Mode::Replace)).unwrap();
        let chosen = bird(&pair, FALLBACK_TABLE, "2001:db8:3::/48", "fa");
        socket.request(&route::add(&chosen, Mode::Replace)).unwrap();
        wait_ours(&mut socket, &[(route_three.0, 102, other)]).await;
        socket.request(&route::delete(&five)).unwrap();
        wait_ours(&mut socket, &[route_three]).await;

        let refused = program(&mut client, 1, &[]).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        check_rules(&mut socket);

        // a restart touches nothing
        first.abort();
        drop(first.await);
        let mut watch = Monitor::open(&[Watch::Route6]).unwrap();
        let second = tokio::spawn(agent::run(config.clone()));
        let mut client = connect(&config).await;
        let dump = client.dump_routes(proto::DumpRoutesRequest {}).await.unwrap().into_inner();
        assert_eq!((dump.epoch, dump.map.len(), dump.prefixes[0].meshes.as_slice()), (2, 3, [2].as_slice()));
        while let Some(event) = watch.try_recv().unwrap() {
            assert!(
                !matches!(event, Event::Route6(_) | Event::Route6Deleted(_)),
                "a restart has written {event:?}"
            );
        }
        count(&pair, &mut client).await;
        // the prefix is withdrawn
        socket.request(&route::delete(&three)).unwrap();
        wait_ours(&mut socket, &[]).await;
        let kept = traffic(&mut client).await;
        assert!(kept.iter().any(|c| (c.dst_site, c.mesh, c.packets) == (3, 2, 20)), "{kept:?}");
        second.abort();
        drop(second.await);
    });
}

fn check_rules(socket: &mut Socket) {
    let rules: Vec<_> = rule::dump(socket).unwrap().into_iter().filter(|r| r.protocol == PROTO_LSP).collect();
    let short: Vec<_> = rules.iter().map(|r| (r.priority, r.table, r.iif.as_deref(), r.dscp)).collect();
    assert_eq!(
        short,
        [
            (100, 100, Some("fa"), Some((0, 0x38))),
            (101, 101, Some("fa"), Some((8, 0x38))),
            (102, 101, Some("fa"), Some((16, 0x30))),
            (103, 102, Some("fa"), Some((32, 0x20))),
            (40_000, 200, None, None),
        ]
    );
}

async fn traffic(client: &mut RouteAgentClient<Channel>) -> Vec<proto::TrafficCounter> {
    client.get_traffic(proto::GetTrafficRequest {}).await.unwrap().into_inner().counters
}

/// Sends packets of two classes from the fabric and finds them counted.
async fn count(pair: &Pair, client: &mut RouteAgentClient<Channel>) {
    let mut far = pair.socket(true);
    let source: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let default = Route::unicast(net("2001:db8:3::/48"), 4, pair.near_address("fa"), pair.ifindex("fa") + 1);
    let lo = addr::Address { ifindex: 1, ip: source, prefix_len: 128 };
    far.all(&[addr::add(&lo), route::add(&default, Mode::Replace)]).unwrap();
    netns::enter(pair.far.as_fd(), || {
        let sender = UdpSocket::bind((source, 0)).unwrap();
        for class in [32u32, 48, 0] {
            socket2::SockRef::from(&sender).set_tclass_v6(class << 2).unwrap();
            for _ in 0..10 {
                sender.send_to(&[0; 52], "[2001:db8:3::1]:9").unwrap();
            }
        }
    })
    .unwrap();
    let client = std::cell::RefCell::new(client);
    lab::wait("20 gold and 10 bronze packets", || async {
        let counters = traffic(&mut client.borrow_mut()).await;
        let of =
            |mesh| counters.iter().find(|c| (c.dst_site, c.mesh) == (3, mesh)).map(|c| (c.packets, c.bytes));
        (of(2) == Some((20, 2000)) && of(0) == Some((10, 1000)) && of(1) == Some((0, 0))).then_some(())
    })
    .await;
}

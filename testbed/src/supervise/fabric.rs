//! What the data centres' side of the lab sees: the aggregators' choice of planes, and who reaches whom.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use ipnet::Ipv6Net;
use router_emu::config::PROTO_BIRD;
use rtnl::route::{Filter, Via};
use rtnl::{Socket, netns, route};
use topologies::lab::{Lab, Role, SiteKind};

use super::exec::netns_path;

/// Source addresses of each host in the matrix: enough for both of two planes to be asked.
const SOURCES: u16 = 4;
/// Longest wait for the matrix.
const ANSWER: Duration = Duration::from_secs(2);
/// Kernel table of the aggregators' BGP routes (RT_TABLE_MAIN).
const MAIN: u32 = 254;

/// `fa.A for site B`, for every aggregator that has no next hop into `plane` towards another site.
pub fn sites_without_plane(lab: &Lab, plane: u8) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    for aggregator in lab.nodes.iter().filter(|n| n.role == Role::Aggregator) {
        let routers = aggregator
            .interfaces
            .iter()
            .filter(|i| lab.node(&i.peer_node).is_some_and(|p| p.plane == Some(plane)));
        let gateways: Vec<Ipv6Addr> = routers
            .filter_map(|i| lab.node(&i.peer_node)?.interfaces.iter().find(|p| p.name == i.peer_interface))
            .flat_map(|peer| peer.addresses.iter().map(Ipv6Net::addr))
            .collect();
        let namespace = netns::open(&netns_path(&aggregator.name))?;
        let mut socket = Socket::open_in(std::os::fd::AsFd::as_fd(&namespace), libc::NETLINK_ROUTE as isize)?;
        let routes = route::dump(&mut socket, Filter { table: Some(MAIN), protocol: Some(PROTO_BIRD) })?;
        let parts = lab.parts(plane);
        let led_to =
            |site: &str| parts.iter().any(|p| p.contains(site) && p.contains(aggregator.site.as_str()));
        let others = lab.sites.iter().filter(|s| s.kind == SiteKind::Dc && s.name != aggregator.site);
        for site in others.filter(|s| led_to(&s.name)) {
            let prefix =
                Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, u16::from(site.id), 0, 0, 0, 0, 0), 48);
            let chosen = routes.iter().filter(|r| r.dst == prefix).any(|r| match &r.via {
                Via::Hops(hops) => hops.iter().any(|h| h.gateway.is_some_and(|g| gateways.contains(&g))),
                _ => false,
            });
            if !chosen {
                missing.push(format!("{} for site {}", aggregator.name, site.name));
            }
        }
    }
    Ok(missing)
}

/// Pairs of hosts, `h1.prn to h1.lla`, of which one did not answer the other's echo requests, though links lead there.
pub async fn unreached(whole: &Lab) -> anyhow::Result<Vec<String>> {
    let lab = whole.clone();
    let matrix = move || {
        let dscp = crate::probe::Class::Gold.probe_dscp();
        crate::probe::reach(&lab, Path::new("/run/netns"), dscp, SOURCES, ANSWER)
    };
    let report = tokio::task::spawn_blocking(matrix).await??;
    let site = |host: &str| whole.node(host).map_or("", |n| n.site.as_str());
    let silent =
        report.pairs.iter().filter(|p| p.rtt_us.is_none() && whole.connects(site(&p.from), site(&p.to)));
    Ok(silent.map(|p| format!("{} to {}", p.from, p.to)).collect())
}

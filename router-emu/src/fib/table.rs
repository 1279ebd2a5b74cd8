//! Wanted routes against the kernel's: the least set of changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use rtnl::route::{HOP_DEAD, Hop, Kind, Route, TABLE_MAIN, Via};

use crate::config::PROTO_OPENR;
use crate::proto::{UnicastNextHop, UnicastRoute};

/// Metric where the caller gives none.
pub const DEFAULT_METRIC: u32 = 1024;

/// A route as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Kernel metric.
    pub metric: u32,
    /// Gateway and interface of each next hop.
    pub hops: BTreeSet<(Ipv6Addr, String)>,
}

/// Routes as they were asked for.
pub type WantedTable = BTreeMap<Ipv6Net, Wanted>;

/// What matters of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index.
    pub ifindex: u32,
    /// Administratively up: without it the kernel refuses next hops.
    pub up: bool,
    /// Has a carrier.
    pub carrier: bool,
}

/// Interfaces by name.
pub type Interfaces = BTreeMap<String, Interface>;

/// A change of the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add the route or replace the one of the same prefix and metric.
    Set(Route),
    /// Delete exactly this route.
    Delete(Route),
}

impl Change {
    /// Destination.
    pub fn prefix(&self) -> Ipv6Net {
        match self {
            Self::Set(route) | Self::Delete(route) => route.dst,
        }
    }
}

/// Reads a route of the RPC; the error is for the caller.
pub fn parse(route: &UnicastRoute) -> Result<(Ipv6Net, Wanted), String> {
    let prefix: Ipv6Net = route.prefix.parse().map_err(|e| format!("is no IPv6 prefix: {e}"))?;
    if prefix.trunc() != prefix {
        return Err(format!("has bits beyond its length; did you mean {}?", prefix.trunc()));
    }
    let hop = |hop: &UnicastNextHop| match hop.address.parse() {
        Ok(address) if !hop.interface.is_empty() => Ok((address, hop.interface.clone())),
        Ok(_) => Err(format!("has a next hop {} without an interface", hop.address)),
        Err(e) => Err(format!("has a next hop {:?} that is no IPv6 address: {e}", hop.address)),
    };
    let hops = route.next_hops.iter().map(hop).collect::<Result<BTreeSet<_>, _>>()?;
    let metric = if route.metric == 0 { DEFAULT_METRIC } else { route.metric };
    Ok((prefix, Wanted { metric, hops }))
}

/// The kernel route of a wanted one: over its next hops with a carrier, or, if none has one, over those whose
/// interface is up at all. The error says why there is none.
pub fn kernel_route(prefix: Ipv6Net, wanted: &Wanted, interfaces: &Interfaces) -> Result<Route, String> {
    if wanted.hops.is_empty() {
        return Err("has no next hop".to_owned());
    }
    let known = |with_carrier: bool| -> Vec<Hop> {
        let hop = |(gateway, name): &(Ipv6Addr, String)| {
            let interface = interfaces.get(name).filter(|i| i.up && (i.carrier || !with_carrier))?;
            Some(Hop { gateway: Some(*gateway), oif: interface.ifindex, ..Hop::default() })
        };
        wanted.hops.iter().filter_map(hop).collect()
    };
    let hops = Some(known(true)).filter(|hops| !hops.is_empty()).unwrap_or_else(|| known(false));
    if hops.is_empty() {
        let names: BTreeSet<&str> = wanted.hops.iter().map(|(_, name)| name.as_str()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!("waits for an interface to come up: {names}"));
    }
    Ok(Route {
        dst: prefix,
        table: TABLE_MAIN,
        metric: wanted.metric,
        protocol: PROTO_OPENR,
        kind: Kind::Unicast,
        via: Via::Hops(hops),
    })
}

/// Changes that lead from the kernel's routes of our protocol to the wanted ones, additions first, and the
/// prefixes that cannot be installed now. A route that is right is not touched.
pub fn plan(
    wanted: &WantedTable,
    kernel: &[Route],
    interfaces: &Interfaces,
) -> (Vec<Change>, BTreeMap<Ipv6Net, String>) {
    let mut changes = Vec::new();
    let mut waiting = BTreeMap::new();
    for (prefix, want) in wanted {
        match kernel_route(*prefix, want, interfaces) {
            Ok(route) if kernel.iter().any(|have| same(have, &route)) => {}
            Ok(route) => changes.push(Change::Set(route)),
            Err(why) => {
                waiting.insert(*prefix, why);
            }
        }
    }
    for have in kernel {
        let keep = wanted.get(&have.dst).is_some_and(|want| want.metric == have.metric);
        if !keep {
            changes.push(Change::Delete(Route { via: Via::None, ..have.clone() }));
        }
    }
    (changes, waiting)
}

/// What the kernel has, as if it had been asked for: the start of a restarted agent. Next hops over interfaces
/// without a name are left out.
pub fn read_back(kernel: &[Route], interfaces: &Interfaces) -> WantedTable {
    let names: BTreeMap<u32, &str> = interfaces.iter().map(|(name, i)| (i.ifindex, name.as_str())).collect();
    let mut table = WantedTable::new();
    for route in kernel {
        let Via::Hops(hops) = &route.via else { continue };
        let hops = hops.iter().filter_map(|hop| Some((hop.gateway?, (*names.get(&hop.oif)?).to_owned())));
        let wanted =
            table.entry(route.dst).or_insert_with(|| Wanted { metric: route.metric, hops: BTreeSet::new() });
        // of two metrics for a prefix the better one is used
        wanted.metric = wanted.metric.min(route.metric);
        wanted.hops.extend(hops);
    }
    table
}

/// Whether a kernel route leads where another should, dead next hops apart.
fn same(have: &Route, want: &Route) -> bool {
    (have.dst, have.table, have.metric) == (want.dst, want.table, want.metric)
        && hops(have).is_some_and(|h| Some(h) == hops(want))
}

fn hops(route: &Route) -> Option<BTreeSet<(Option<Ipv6Addr>, u32)>> {
    let Via::Hops(hops) = &route.via else { return None };
    Some(hops.iter().filter(|h| h.flags & HOP_DEAD == 0).map(|h| (h.gateway, h.oif)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interfaces() -> Interfaces {
        let interface = |ifindex, up, carrier| Interface { ifindex, up, carrier };
        Interfaces::from([
            ("to-a".into(), interface(1001, true, true)),
            ("to-b".into(), interface(1002, true, true)),
            ("to-c".into(), interface(1003, true, false)),
            ("to-d".into(), interface(1004, false, false)),
        ])
    }

    fn asked(prefix: &str, hops: &[(&str, &str)]) -> UnicastRoute {
        let next_hops = hops
            .iter()
            .map(|(a, i)| UnicastNextHop { address: (*a).into(), interface: (*i).into() })
            .collect();
        UnicastRoute { prefix: prefix.into(), next_hops, metric: 0 }
    }

    fn one(hops: &[(&str, &str)]) -> WantedTable {
        WantedTable::from([parse(&asked("fd00:1::3/128", hops)).unwrap()])
    }

    fn sets(changes: &[Change]) -> Vec<Route> {
        changes.iter().filter_map(|c| if let Change::Set(r) = c { Some(r.clone()) } else { None }).collect()
    }

    #[test]
    fn what_is_wrong_with_a_route_is_said() {
        for (prefix, hops, words) in [
            ("fd00::/129", &[][..], "no IPv6 prefix"),
            ("fd00:1::3/64", &[], "did you mean fd00:1::/64"),
            ("fd00:1::3/128", &[("fe80::x", "to-a")], "no IPv6 address"),
            ("fd00:1::3/128", &[("fe80::1", "")], "without an interface"),
        ] {
            let error = parse(&asked(prefix, hops)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn next_hops_with_a_carrier_are_preferred_and_dead_interfaces_wait() {
        let route = |hops: &[(&str, &str)]| {
            let (prefix, wanted) = parse(&asked("fd00:1::3/128", hops)).unwrap();
            kernel_route(prefix, &wanted, &interfaces())
        };
        let oifs = |route: Route| match route.via {
            Via::Hops(hops) => hops.iter().map(|h| h.oif).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let (a, c, d) = (("fe80::1", "to-a"), ("fe80::3", "to-c"), ("fe80::4", "to-d"));
        assert_eq!(oifs(route(&[a, c, d]).unwrap()), [1001]);
        assert_eq!(oifs(route(&[c, d]).unwrap()), [1003]);
        assert!(route(&[d]).unwrap_err().contains("to-d"));
        assert!(route(&[]).unwrap_err().contains("no next hop"));
    }

    #[test]
    fn a_route_that_is_right_is_not_touched() {
        let wanted = one(&[("fe80::2", "to-b"), ("fe80::1", "to-a")]);
        let (changes, _) = plan(&wanted, &[], &interfaces());
        let mut kernel = sets(&changes);
        assert!(plan(&wanted, &kernel, &interfaces()).0.is_empty());
        // the kernel lists hops in its own order and marks dead ones
        if let Via::Hops(hops) = &mut kernel[0].via {
            hops.reverse();
            hops.push(Hop {
                gateway: Some("fe80::9".parse().unwrap()),
                oif: 9,
                flags: HOP_DEAD,
                ..Hop::default()
            });
        }
        assert!(plan(&wanted, &kernel, &interfaces()).0.is_empty());
    }

    #[test]
    fn a_route_with_another_metric_goes_and_so_does_an_unwanted_one() {
        let wanted = one(&[("fe80::1", "to-a")]);
        let good = sets(&plan(&wanted, &[], &interfaces()).0).remove(0);
        let other_metric = Route { metric: 77, ..good.clone() };
        let unwanted = Route { dst: "fd00:1::9/128".parse().unwrap(), ..good.clone() };
        let (changes, _) = plan(&wanted, &[good, other_metric, unwanted], &interfaces());
        let deleted: Vec<_> = changes.iter().map(|c| (matches!(c, Change::Delete(_)), c.prefix())).collect();
        assert_eq!(
            deleted,
            [(true, "fd00:1::3/128".parse().unwrap()), (true, "fd00:1::9/128".parse().unwrap())]
        );
    }

    proptest! {
        #[test]
        fn applying_a_plan_leaves_nothing_to_do(
            before in prop::collection::btree_map(0u16..9, prop::collection::btree_set((1u16..4, 0usize..4), 1..4), 0..9),
            after in prop::collection::btree_map(0u16..9, prop::collection::btree_set((1u16..4, 0usize..4), 1..4), 0..9),
        ) {
            let names = ["to-a", "to-b", "to-c", "to-d"];
            let table = |raw: std::collections::BTreeMap<u16, BTreeSet<(u16, usize)>>| -> WantedTable {
                raw.into_iter().map(|(p, hops)| {
                    let prefix = Ipv6Net::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, p), 128).unwrap();
                    let hops = hops.into_iter().map(|(g, i)| (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, g), names[i].to_owned()));
                    (prefix, Wanted { metric: 1024, hops: hops.collect() })
                }).collect()
            };
            let (before, after) = (table(before), table(after));
            let mut kernel = sets(&plan(&before, &[], &interfaces()).0);
            let (changes, waiting) = plan(&after, &kernel, &interfaces());
            for change in changes {
                match change {
                    Change::Set(route) => {
                        kernel.retain(|have| have.dst != route.dst);
                        kernel.push(route);
                    }
                    Change::Delete(route) => kernel.retain(|have| have.dst != route.dst || have.metric != route.metric),
                }
            }
            prop_assert!(plan(&after, &kernel, &interfaces()).0.is_empty());
            prop_assert!(kernel.iter().all(|route| after.contains_key(&route.dst)));
            prop_assert!(waiting.keys().all(|p| after.contains_key(p)));
        }
    }
}

//! The route-agent's side of the kernel: routes to groups, BIRD's routes, classification rules.

use rtnl::monitor::Event;
use rtnl::nexthop::Entry;
use rtnl::route::{Filter, Kind, Route, Via};
use rtnl::rule::{Rule, dscp_masks};
use rtnl::{KernelError, Mode, Request, Socket, nexthop, route, rule};

use super::table::{Hops, Op, Source, Table};
use crate::config::{FALLBACK_TABLE, HANDOVER_TABLE, MESH_TABLE, PROTO_BIRD, PROTO_LSP};
use crate::label::{Mesh, Nexthop};

/// Metric of LSP routes.
const METRIC: u32 = 10;
/// Priority of the first classification rule.
const FIRST_RULE: u32 = 100;
/// Priority of the rule to the fallback table: after main.
const FALLBACK_RULE: u32 = 40_000;

/// Reads everything into a table: BIRD's routes, groups, our routes.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn read(socket: &mut Socket, own_site: u8, table: &mut Table) -> Result<(), KernelError> {
    table.forget_kernel();
    for route in route::dump(socket, Filter { table: None, protocol: Some(PROTO_BIRD) })? {
        learn(table, own_site, &route);
    }
    for entry in nexthop::dump(socket)? {
        group(table, &entry, true);
    }
    for route in route::dump(socket, Filter { table: None, protocol: Some(PROTO_LSP) })? {
        if let (Some(mesh), Via::Object(id)) = (mesh_of(&route), &route.via) {
            table.found(route.dst, mesh, *id);
        }
    }
    Ok(())
}

/// Takes an event into a table; true if events were lost and everything has to be read again.
pub fn take(table: &mut Table, own_site: u8, event: &Event) -> bool {
    match event {
        Event::Route6(route) => learn(table, own_site, route),
        Event::Route6Deleted(route) => {
            if let Some(source) = source_of(route, own_site) {
                table.unlearn(source, route.dst);
            } else if let Some(mesh) = mesh_of(route) {
                table.lost(route.dst, mesh);
            }
        }
        Event::Nexthop(entry) => group(table, entry, true),
        Event::NexthopDeleted(entry) => group(table, entry, false),
        Event::Overrun => return true,
        _ => {}
    }
    false
}

/// Carries out writes and takes note of what succeeded; the kernel's words for what did not and will not by itself.
///
/// A route that is refused as invalid means that its group has just gone: that is noted, and the route waits for it.
///
/// # Errors
/// A failure of the socket.
pub fn write(socket: &mut Socket, table: &mut Table, ops: &[Op]) -> anyhow::Result<Vec<KernelError>> {
    let requests: Vec<Request> = ops.iter().map(|op| request(*op)).collect();
    let mut refused = Vec::new();
    for (op, result) in ops.iter().zip(socket.batch(&requests)?) {
        match (op, result) {
            (_, Ok(())) => table.written(*op),
            (Op::Delete(..), Err(e)) if e.is_absent() => table.written(*op),
            (Op::Put(_, _, group), Err(e)) if e.errno == libc::EINVAL || e.is_absent() => {
                tracing::debug!(error = %e, "waits for its group");
                table.group_gone(*group);
            }
            (_, Err(e)) => refused.push(e),
        }
    }
    Ok(refused)
}

/// Brings our rules to what is wanted; those that are there stay. The number of changes.
///
/// # Errors
/// The first refusal.
pub fn ensure_rules(socket: &mut Socket, fabric: Option<&str>) -> Result<usize, KernelError> {
    let wanted = rules(fabric);
    let there: Vec<Rule> = rule::dump(socket)?.into_iter().filter(|r| r.protocol == PROTO_LSP).collect();
    let missing = wanted.iter().filter(|r| !there.contains(r)).map(rule::add);
    let extra = there.iter().filter(|r| !wanted.contains(r)).map(rule::delete);
    let requests: Vec<Request> = missing.chain(extra).collect();
    socket.all(&requests)?;
    Ok(requests.len())
}

/// The rules of a router: what comes from the fabric goes to its mesh's table; what has no route in main falls back to
/// BIRD's routes over the IGP.
pub fn rules(fabric: Option<&str>) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(fabric) = fabric {
        for mesh in Mesh::ALL {
            let (first, last) = mesh.dscp();
            let table = mesh.table();
            let iif = || Some(fabric.to_owned());
            rules.extend(dscp_masks(first..=last).into_iter().map(|dscp| Rule {
                table,
                iif: iif(),
                dscp: Some(dscp),
                protocol: PROTO_LSP,
                ..Rule::default()
            }));
        }
        for (priority, rule) in (FIRST_RULE..).zip(&mut rules) {
            rule.priority = priority;
        }
    }
    let fallback =
        Rule { priority: FALLBACK_RULE, table: FALLBACK_TABLE, protocol: PROTO_LSP, ..Rule::default() };
    rules.push(fallback);
    rules
}

fn request(op: Op) -> Request {
    let route = |dst, mesh: Mesh, via| Route {
        dst,
        table: mesh.table(),
        metric: METRIC,
        protocol: PROTO_LSP,
        kind: Kind::Unicast,
        via,
    };
    match op {
        Op::Put(prefix, mesh, group) => route::add(&route(prefix, mesh, Via::Object(group)), Mode::Replace),
        Op::Delete(prefix, mesh) => route::delete(&route(prefix, mesh, Via::None)),
    }
}

fn learn(table: &mut Table, own_site: u8, route: &Route) {
    let Some(source) = source_of(route, own_site) else { return };
    let hops: Hops = match &route.via {
        Via::Hops(hops) => hops.iter().map(|hop| (hop.gateway, hop.oif)).collect(),
        Via::None | Via::Object(_) => Hops::new(),
    };
    table.learn(source, route.dst, hops);
}

fn group(table: &mut Table, entry: &Entry, there: bool) {
    let known = matches!(Nexthop::decode(entry.id()), Some(Nexthop::Group { .. }));
    match entry {
        Entry::Group(group) if known && there => table.group_exists(group.id),
        // a deleted group is told without its members
        Entry::Group(_) | Entry::Object(_) if known && !there => table.group_gone(entry.id()),
        _ => {}
    }
}

fn source_of(route: &Route, own_site: u8) -> Option<Source> {
    if route.protocol != PROTO_BIRD {
        return None;
    }
    if route.table == FALLBACK_TABLE {
        return Some(Source::Fallback);
    }
    let site = u8::try_from(route.table.checked_sub(HANDOVER_TABLE)?).ok()?;
    (site != own_site).then_some(Source::Site(site))
}

fn mesh_of(route: &Route) -> Option<Mesh> {
    if route.protocol != PROTO_LSP {
        return None;
    }
    let mesh = Mesh::from_code(u8::try_from(route.table.checked_sub(MESH_TABLE)?).ok()?);
    mesh.filter(|mesh| Mesh::ALL.contains(mesh))
}

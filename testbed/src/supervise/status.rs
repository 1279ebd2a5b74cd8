//! The state of the lab, asked from its agents over their unix sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use prost::Message as _;
use router_emu::proto::lsp_agent_client::LspAgentClient;
use router_emu::proto::openr_ctrl_client::OpenrCtrlClient;
use router_emu::proto::route_agent_client::RouteAgentClient;
use router_emu::proto::{
    Adjacency, AdjacencyDatabase, DrainMode, DrainRow, DumpBundlesRequest, DumpRequest, DumpRoutesRequest,
    GetTrafficReply, GetTrafficRequest, KeyValue,
};
use router_emu::rpc::unix_channel;
use topologies::lab::{End, Lab, LinkKind, Role, SiteKind};
use topologies::units::Capacity;

use super::drain::Drained;
use super::files::{self, run_dir};
use super::leader;
use crate::api::protocol::{
    Controllers, Count, Health, LinkStatus, LspCount, MemberCount, NodeStatus, PartMode, PlaneStatus,
    ProgramStatus, Status, TrafficTotal,
};
use crate::bird;
use crate::carrier::Carrier;
use crate::plan::{Faults, bonded_members};

/// Longest wait for one agent's answer.
pub const ANSWER: Duration = Duration::from_millis(1500);
/// Meshes: gold, silver, bronze.
const MESHES: u32 = 3;

/// What one router's agents answered.
#[derive(Clone, Debug, Default)]
struct RouterView {
    lsps: LspCount,
    routes: u32,
    bgp: u32,
    traffic: TrafficTotal,
    answered: bool,
    /// Why the running configuration is not in force, if so.
    unsettled: Option<String>,
    /// Interfaces that the running configuration keeps down; unknown if its config-agent does not answer.
    shut: Option<Vec<String>>,
}

async fn ask(node: &str) -> RouterView {
    let mut view = RouterView::default();
    let dir = run_dir(node);
    let lsps = async {
        let mut agent = LspAgentClient::new(unix_channel(dir.join("lsp-agent.sock")));
        agent.dump_bundles(DumpBundlesRequest { with_paths: false }).await
    };
    let routes = async {
        let mut agent = RouteAgentClient::new(unix_channel(dir.join("route-agent.sock")));
        let routes = agent.dump_routes(DumpRoutesRequest {}).await?;
        let traffic = agent.get_traffic(GetTrafficRequest {}).await?;
        Ok::<_, tonic::Status>((routes, traffic))
    };
    let config = super::config::state(node, 0);
    let control = bird::Control::new(dir.join(bird::SOCKET_FILE), ANSWER);
    let (lsps, routes, config, sessions) = tokio::join!(
        tokio::time::timeout(ANSWER, lsps),
        tokio::time::timeout(ANSWER, routes),
        tokio::time::timeout(ANSWER, config),
        control.protocols()
    );
    match config {
        Ok(Ok(state)) => {
            view.unsettled = (!state.settled).then_some(state.problem);
            view.shut = Some(state.shut);
        }
        _ => view.unsettled = Some("its config-agent does not answer".to_owned()),
    }
    if let Ok(Ok(reply)) = lsps {
        view.answered = true;
        for bundle in reply.into_inner().bundles.iter().filter(|b| b.is_source && b.live) {
            view.lsps.wanted += bundle.wanted;
            view.lsps.programmed += bundle.programmed;
            view.lsps.on_backup += bundle.on_backup;
        }
    }
    if let Ok(Ok((routes, traffic))) = routes {
        let prefixes = routes.into_inner().prefixes;
        view.routes = prefixes.iter().map(|p| u32::try_from(p.meshes.len()).unwrap_or(0)).sum();
        view.traffic = sum(&traffic.into_inner());
    } else {
        view.answered = false;
    }
    if let Ok(protocols) = sessions {
        let up = protocols.iter().filter(|p| p.proto == "BGP" && p.up()).count();
        view.bgp = u32::try_from(up).unwrap_or(u32::MAX);
    }
    view
}

/// Packets and bytes that have entered the plane from the fabric; `None` if a router did not answer.
pub async fn plane_traffic(lab: &Lab, plane: u8) -> Option<TrafficTotal> {
    let mut total = TrafficTotal::default();
    for view in join_all(routers(lab, plane).into_iter().map(|n| ask_traffic(n.name.clone()))).await {
        let view = view?;
        total.packets += view.packets;
        total.bytes += view.bytes;
    }
    Some(total)
}

async fn ask_traffic(node: String) -> Option<TrafficTotal> {
    let mut agent = RouteAgentClient::new(unix_channel(run_dir(&node).join("route-agent.sock")));
    let reply = tokio::time::timeout(ANSWER, agent.get_traffic(GetTrafficRequest {})).await.ok()?.ok()?;
    Some(sum(&reply.into_inner()))
}

fn sum(reply: &GetTrafficReply) -> TrafficTotal {
    reply.counters.iter().fold(TrafficTotal::default(), |total, counter| TrafficTotal {
        packets: total.packets + counter.packets,
        bytes: total.bytes + counter.bytes,
    })
}

fn routers(lab: &Lab, plane: u8) -> Vec<&topologies::lab::Node> {
    lab.nodes.iter().filter(|n| n.role == Role::Router && n.plane == Some(plane)).collect()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What a plane should have with every link up. One that is in parts by its lab file has less: BGP sessions and prefixes
/// inside each part, LSPs where its controller reaches the routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    lsps: u32,
    bgp: u32,
    routes: u32,
}

impl Wanted {
    fn of(lab: &Lab, plane: u8) -> Self {
        let ordered_pairs = |n: usize| count(n) * count(n).saturating_sub(1);
        let dcs = lab.sites.iter().filter(|s| s.kind == SiteKind::Dc).map(|s| s.name.as_str());
        let dcs: BTreeSet<&str> = dcs.collect();
        let controllers = lab.plane(plane).into_iter().flat_map(|p| &p.controller_hosts);
        let homes: BTreeSet<&str> =
            controllers.filter_map(|host| Some(lab.node(host)?.site.as_str())).collect();
        let parts = lab.parts(plane);
        let bgp = count(dcs.len()) + parts.iter().map(|part| ordered_pairs(part.len())).sum::<u32>();
        // where a controller is; with replicas in several parts any of them may lead
        let led = parts.iter().filter(|part| !part.is_disjoint(&homes));
        let routes =
            led.map(|part| ordered_pairs(part.intersection(&dcs).count()) * MESHES).min().unwrap_or(0);
        Self { lsps: routes * u32::from(lab.te.lsps_per_bundle), bgp, routes }
    }
}

/// Status of a plane, and its interfaces that configurations keep down: node, interface.
async fn plane(lab: &Lab, id: u8, drained: bool, known: &Known<'_>) -> (PlaneStatus, Vec<(String, String)>) {
    let programs = &known.programs;
    let routers = routers(lab, id);
    let views = join_all(routers.iter().map(|r| ask(&r.name))).await;
    let wanted = Wanted::of(lab, id);
    let mut lsps = LspCount { wanted: wanted.lsps, ..LspCount::default() };
    let mut bgp = Count { wanted: wanted.bgp, up: 0 };
    let mut routes = Count { wanted: wanted.routes, up: 0 };
    let mut traffic = TrafficTotal::default();
    let mut silent = Vec::new();
    let (mut unsettled, mut shut) = (None, Vec::new());
    for (router, view) in routers.iter().zip(&views) {
        lsps.programmed += view.lsps.programmed;
        lsps.on_backup += view.lsps.on_backup;
        bgp.up += view.bgp;
        routes.up += view.routes;
        traffic.packets += view.traffic.packets;
        traffic.bytes += view.traffic.bytes;
        if !view.answered {
            silent.push(router.name.as_str());
        }
        if let Some(why) = &view.unsettled {
            unsettled.get_or_insert_with(|| format!("configuration of {}: {why}", router.name));
        }
        let names = view.shut.clone().unwrap_or_else(|| files::shut_by(lab, router));
        shut.extend(names.into_iter().map(|name| (router.name.clone(), name)));
    }
    let down: Vec<String> = programs
        .iter()
        .filter(|p| p.state != "running" && routers.iter().any(|r| r.name == p.node))
        .map(|p| format!("{}/{}", p.node, p.name))
        .collect();
    let reason = if !down.is_empty() {
        format!("not running: {}", few(&down))
    } else if !silent.is_empty() {
        format!("no answer from {}", few(&silent))
    } else if bgp.up < bgp.wanted {
        format!("{} of {} BGP sessions", bgp.up, bgp.wanted)
    } else if lsps.programmed < lsps.wanted {
        format!("{} LSPs missing", lsps.wanted - lsps.programmed)
    } else if routes.up < routes.wanted {
        format!("{} of {} prefix routes", routes.up, routes.wanted)
    } else if lsps.on_backup > 0 {
        format!("{} LSPs on their backup path", lsps.on_backup)
    } else {
        unsettled.unwrap_or_default()
    };
    let state = match (drained, reason.is_empty()) {
        (true, _) => Health::Drained,
        (false, true) => Health::Ready,
        (false, false) => Health::Degraded,
    };
    let controllers = Controllers::default();
    (
        PlaneStatus { plane: id, state, lsps, bgp, routes, traffic, controllers, queues: Vec::new(), reason },
        shut,
    )
}

/// At most three names.
fn few<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(3).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(3);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// What the supervisor knows without asking.
pub struct Known<'a> {
    /// What the world is.
    pub carrier: Carrier,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// What is broken on purpose.
    pub faults: &'a Faults,
    /// Planes drained on purpose.
    pub drained: &'a Drained,
    /// Whether `up` is still under way.
    pub converging: bool,
    /// Programs.
    pub programs: Vec<ProgramStatus>,
}

/// The whole status but for the queues, which are [`super::queues::Queues`]'s.
pub async fn status(lab: &Lab, known: Known<'_>) -> Status {
    let planes = lab.planes.iter().map(|p| plane(lab, p.id, known.drained.contains_key(&p.id), &known));
    let controllers = lab.planes.iter().map(|p| leader::views(lab, p.id));
    let bundles = lab.planes.iter().map(|p| bundles(lab, p.id));
    let (planes, controllers, bundles) =
        tokio::join!(join_all(planes), join_all(controllers), join_all(bundles));
    let bundles: Bundles = bundles.into_iter().flatten().collect();
    let (mut planes, shut): (Vec<PlaneStatus>, Vec<_>) = planes.into_iter().unzip();
    let shut: BTreeSet<(String, String)> = shut.into_iter().flatten().collect();
    let mut drains: Vec<DrainRow> = Vec::new();
    for (plane, views) in planes.iter_mut().zip(&controllers) {
        let leader = leader::leading(views);
        plane.controllers.replicas = count(views.len());
        plane.controllers.leader = leader.map(|(replica, _)| replica.name());
        drains.extend(leader.into_iter().flat_map(|(_, state)| state.drains.clone()));
    }
    let fine = planes.iter().all(|p| matches!(p.state, Health::Ready | Health::Drained));
    let state = match (fine, known.converging) {
        (true, false) => Health::Ready,
        (_, true) => Health::Converging,
        (false, false) => Health::Degraded,
    };
    Status {
        version: 1,
        lab: lab.name.clone(),
        carrier: known.carrier.to_string(),
        state,
        bandwidth_divisor: lab.bandwidth_divisor,
        uptime_s: known.uptime_s,
        planes,
        nodes: lab.nodes.iter().map(|n| node_status(n, &drains, known.faults)).collect(),
        links: lab.links.iter().map(|l| link_status(lab, l, &known, &shut, &drains, &bundles)).collect(),
        programs: known.programs,
        rpc: super::faults::rpc_status(known.faults),
    }
}

/// How a router, or an end of a link, is drained.
fn drained(drains: &[DrainRow], router: &str, interface: &str) -> Option<PartMode> {
    match drains.iter().find(|row| row.router == router && row.interface == interface)?.mode() {
        DrainMode::Exclude => Some(PartMode::Exclude),
        DrainMode::Avoid => Some(PartMode::Avoid),
        DrainMode::None => None,
    }
}

fn node_status(node: &topologies::lab::Node, drains: &[DrainRow], faults: &Faults) -> NodeStatus {
    NodeStatus {
        name: node.name.clone(),
        role: node.role,
        site: node.site.clone(),
        plane: node.plane,
        address: node.address.to_string(),
        drained: drained(drains, &node.name, ""),
        state: if faults.crashed.contains(&node.name) { "crashed" } else { "up" }.to_owned(),
    }
}

/// What a plane's routers announce of their bundles, by router and interface.
type Bundles = BTreeMap<(String, String), Adjacency>;

/// Asks one router of the plane for what all of them announce; routers that do not answer are passed over.
async fn bundles(lab: &Lab, plane: u8) -> Bundles {
    let bonded = lab.core_links(plane).any(|link| link.bonded);
    for router in routers(lab, plane).into_iter().filter(|_| bonded) {
        let mut openr = OpenrCtrlClient::new(unix_channel(run_dir(&router.name).join("openr.sock")));
        let question = openr.dump(DumpRequest { key_prefix: "adj:".to_owned() });
        let Ok(Ok(reply)) = tokio::time::timeout(ANSWER, question).await else { continue };
        let decode = |value: &KeyValue| AdjacencyDatabase::decode(value.value.as_slice()).ok();
        let databases: Vec<_> = reply.into_inner().values.iter().filter_map(decode).collect();
        let of_node = |AdjacencyDatabase { node, adjacencies, .. }: AdjacencyDatabase| {
            adjacencies.into_iter().map(move |a| ((node.clone(), a.interface.clone()), a))
        };
        return databases.into_iter().flat_map(of_node).collect();
    }
    Bundles::new()
}

/// Members of a link and the capacity that is left of it: what the end with less announces. An end that announces nothing
/// has no member up.
fn members(link: &topologies::lab::Link, bundles: &Bundles) -> Option<(MemberCount, Capacity)> {
    let total = u32::from(bonded_members(link));
    let end = |end: &End| {
        let adjacency = bundles.get(&(end.node.clone(), end.interface.clone()));
        adjacency.map_or((0, 0), |a| (a.members_up, a.capacity_bps))
    };
    let (up, bps) = link.ends().map(end).into_iter().min()?;
    (total > 0).then_some((MemberCount { up, total }, Capacity(bps)))
}

fn link_status(
    lab: &Lab,
    link: &topologies::lab::Link,
    known: &Known<'_>,
    shut: &BTreeSet<(String, String)>,
    drains: &[DrainRow],
    bundles: &Bundles,
) -> LinkStatus {
    let (members, left) = members(link, bundles).unzip();
    let kept_down = |end: &End| shut.contains(&(end.node.clone(), end.interface.clone()));
    let state = if known.faults.cut.contains(&link.name) {
        "cut"
    } else if link.ends().iter().any(|end| known.faults.crashed.contains(&end.node)) {
        "down"
    } else if kept_down(&link.a) || kept_down(&link.b) {
        "shut"
    } else {
        "up"
    };
    LinkStatus {
        name: link.name.clone(),
        kind: link.kind,
        plane: link.plane,
        state: state.to_owned(),
        faults: known.faults.of_link(&link.name),
        members,
        drained: [&link.a, &link.b].iter().find_map(|end| drained(drains, &end.node, &end.interface)),
        capacity: link.capacity.to_string(),
        capacity_left: left.filter(|left| *left < link.capacity).map(|left| left.to_string()),
        rate_bps: if link.kind == LinkKind::Core {
            link.capacity.0 / lab.bandwidth_divisor.max(1)
        } else {
            0
        },
        rtt: link.rtt.to_string(),
        srlgs: link.srlgs.clone(),
        queues: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "between: [a, b], capacity: 400G, rtt: 1ms";

    fn lab(overrides: &str) -> Lab {
        let text = format!(
            "name: t\nplanes: 2\nsites:\n  a: {{id: 1, kind: dc}}\n  b: {{id: 2, kind: dc}}\n  m: {{id: 3, kind: midpoint}}\n\
             links:\n  - {{{LINK}}}\n  - {{between: [b, m], capacity: 400G, rtt: 1ms}}\n{overrides}"
        );
        Lab::from_str(&text, "t.yaml").unwrap().0
    }

    /// Input: two data centres and a midpoint in a row, then the same with the data centres apart in plane 2.
    /// Output: all pairs; in plane 2 nothing between the parts, so that the lab can be ready.
    #[test]
    fn a_plane_in_parts_is_not_asked_for_more_than_it_can_have() {
        let whole = Wanted { lsps: 96, bgp: 3 * 2 + 2, routes: 6 };
        assert_eq!(Wanted::of(&lab(""), 2), whole);
        let apart = lab("overrides:\n  2: {links: [{between: [a, b], absent: true}]}\n");
        assert_eq!(Wanted::of(&apart, 1), whole);
        assert_eq!(Wanted::of(&apart, 2), Wanted { lsps: 0, bgp: 2 + 2, routes: 0 });
        assert!(apart.connects("a", "b"), "by plane 1");
    }
}

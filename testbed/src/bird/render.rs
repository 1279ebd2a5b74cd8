//! The text of BIRD's configuration, from the lab and nothing else.

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;

use router_emu::config::{FALLBACK_TABLE, HANDOVER_TABLE, PROTO_OPENR};
use thiserror::Error;
use topologies::lab::{Interface, Lab, Node, Role, SiteKind};

use super::{CONF_FILE, DRAIN_FILE, Drain, PLANE_AS, SITE_AS, SOCKET_FILE};

/// What every DC prefix lies in: a site's /48, or anything in it down to a host's /64.
const DC_PREFIXES: &str = "[ 2001:db8::/32{48,64} ]";

/// The files of one BIRD, to be written into the same folder under [`CONF_FILE`] and [`DRAIN_FILE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BirdFiles {
    /// Main configuration. It includes [`DRAIN_FILE`] on routers.
    pub bird_conf: String,
    /// Drain state; aggregators have none.
    pub drain_conf: Option<String>,
}

/// Why a node has no BIRD configuration.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// Hosts do not speak BGP.
    #[error("node {node} is a {role:?}: only routers and aggregators run BIRD")]
    NoBgp {
        /// Node.
        node: String,
        /// What it is.
        role: Role,
    },
    /// The resolved lab contradicts itself.
    #[error("node {node}: {what}; the lab's generator and this renderer disagree")]
    Inconsistent {
        /// Node.
        node: String,
        /// What is missing.
        what: String,
    },
}

fn inconsistent(node: &Node, what: impl Into<String>) -> RenderError {
    RenderError::Inconsistent { node: node.name.clone(), what: what.into() }
}

/// Configuration of the BIRD of `node`, with a router in drain state `drain`.
///
/// # Errors
/// [`RenderError`] for a host, or for a lab in which a link's far end does not exist.
pub fn render(lab: &Lab, node: &Node, drain: Drain) -> Result<BirdFiles, RenderError> {
    match node.role {
        Role::Router => Ok(BirdFiles { bird_conf: router(lab, node)?, drain_conf: Some(drain.conf()) }),
        Role::Aggregator => Ok(BirdFiles { bird_conf: aggregator(lab, node)?, drain_conf: None }),
        Role::Host => Err(RenderError::NoBgp { node: node.name.clone(), role: node.role }),
    }
}

/// Arguments of `bird` in folder `dir` (absolute): in the foreground, logging to stderr. `recover` asks for
/// graceful restart: right after BIRD died while its routes and its neighbours stayed; wrong at the first start,
/// where it would delay the first route until every neighbour is up.
pub fn command_line(dir: &Path, recover: bool) -> Vec<String> {
    let mut args = vec![
        "-f".to_string(),
        "-c".to_string(),
        dir.join(CONF_FILE).display().to_string(),
        "-s".to_string(),
        dir.join(SOCKET_FILE).display().to_string(),
    ];
    if recover {
        args.push("-R".to_string());
    }
    args
}

/// Head that routers and aggregators share.
fn head(node: &Node, plane: u8) -> String {
    format!(
        "# {name}: made by testbed from the lab file, rewritten at every `up`\n\
         log stderr all;\n\
         router id 10.{plane}.{site}.1;\n\
         graceful restart wait 20;\n\
         timeformat protocol iso long ms;\n\
         ipv6 table master6;\n\
         protocol device {{ scan time 60; }}\n",
        name = node.name,
        site = node.site_id,
    )
}

/// What all BGP sessions have in common: quick retries, because the lab cuts links on purpose, and graceful
/// restart, because it kills BIRD on purpose.
const SESSION: &str = "  connect delay time 1; connect retry time 3; error wait time 1, 5; hold time 90;\n  \
                         graceful restart on;\n";

/// Options of every kernel protocol: routes outlive BIRD, and a restarted BIRD takes them over.
const KERNEL: &str = "scan time 60; graceful restart on; persist on;";

/// The global addresses of the link behind `interface`: own and far end's.
fn link_addresses(
    lab: &Lab,
    node: &Node,
    interface: &Interface,
) -> Result<(Ipv6Addr, Ipv6Addr), RenderError> {
    let own = interface.addresses.first().map(ipnet::Ipv6Net::addr);
    let peer = lab
        .interface(&interface.peer_node, &interface.peer_interface)
        .and_then(|i| i.addresses.first().map(ipnet::Ipv6Net::addr));
    own.zip(peer).ok_or_else(|| {
        inconsistent(node, format!("no global address on both ends of interface {}", interface.name))
    })
}

fn peer_role(lab: &Lab, interface: &Interface) -> Option<Role> {
    lab.node(&interface.peer_node).map(|n| n.role)
}

fn router(lab: &Lab, node: &Node) -> Result<String, RenderError> {
    let plane = node.plane.ok_or_else(|| inconsistent(node, "a router without a plane"))?;
    let asn = PLANE_AS + u32::from(plane);
    let fabric = node.interfaces.iter().find(|i| peer_role(lab, i) == Some(Role::Aggregator));
    let mut text = head(node, plane);
    let _ = writeln!(text, "include \"{DRAIN_FILE}\";\n");
    text += &router_tables(node, plane);
    let mut peers: Vec<&Node> = lab.routers(plane).filter(|n| n.name != node.name).collect();
    peers.sort_by_key(|n| n.site_id);
    if let Some(fabric) = fabric {
        for peer in peers.iter().filter(|p| is_dc(lab, &p.site)) {
            text += &handover(peer);
        }
        text += &fabric_session(lab, node, fabric, plane, asn)?;
    }
    let _ = write!(
        text,
        "\n# --- the routers of plane {plane}, in full mesh\n\
         template bgp plane {{\n  local {own} as {asn};\n{SESSION}  \
           ipv6 {{\n    table master6; next hop self; import all;\n    \
             export where source = RTS_BGP && proto = \"fa\";\n  }};\n}}\n",
        own = node.address,
    );
    for peer in peers {
        let _ = writeln!(
            text,
            "protocol bgp 'ib.{site}' from plane {{ neighbor {address} as {asn}; }}",
            site = peer.site,
            address = peer.address
        );
    }
    Ok(text)
}

fn is_dc(lab: &Lab, site: &str) -> bool {
    lab.site(site).is_some_and(|s| s.kind == SiteKind::Dc)
}

/// A router's tables: main for what it learns from the IGP and for its own site's prefixes, table 200 for the rest.
fn router_tables(node: &Node, plane: u8) -> String {
    format!(
        "# --- main table: learn the IGP's loopbacks, install only what the own site's aggregator announces\n\
         protocol kernel kmain {{\n  learn; {KERNEL}\n  ipv6 {{\n    table master6;\n    \
             import where krt_source = {PROTO_OPENR} && net ~ [ fd00:{plane:x}::/64+ ];\n    \
             export filter {{\n      if source != RTS_BGP || proto != \"fa\" then reject;\n      \
             krt_prefsrc = {own};\n      accept;\n    }};\n  }};\n}}\n\
         \n# --- table {FALLBACK_TABLE}: prefixes of other sites over the IGP, used where no label-switched path is\n\
         ipv6 table remote6;\n\
         protocol pipe 'pipe.remote' {{\n  table master6; peer table remote6; import none;\n  \
             export where source = RTS_BGP && proto ~ \"ib.*\";\n}}\n\
         protocol kernel kfallback {{\n  kernel table {FALLBACK_TABLE}; {KERNEL}\n  ipv6 {{\n    \
             table remote6; import none;\n    \
             export filter {{\n      if dest != RTD_UNICAST then reject;\n      \
             krt_prefsrc = {own};\n      accept;\n    }};\n  }};\n}}\n",
        own = node.address,
    )
}

/// Hand-over to the route-agent: a kernel table for each egress site. BIRD's table behind it holds every candidate
/// and the kernel protocol takes the best one if it leads to this site, so that a prefix stands in one table only.
fn handover(peer: &Node) -> String {
    format!(
        "\n# --- table {table}: prefixes that leave the plane at {site}\n\
         ipv6 table site{id};\n\
         protocol pipe 'pipe.{site}' {{ table remote6; peer table site{id}; import none; export all; }}\n\
         protocol kernel 'k.{site}' {{\n  kernel table {table}; {KERNEL}\n  ipv6 {{\n    \
             table site{id}; import none;\n    \
             export where dest = RTD_UNICAST && bgp_next_hop = {loopback};\n  }};\n}}\n",
        table = HANDOVER_TABLE + u32::from(peer.site_id),
        site = peer.site,
        id = peer.site_id,
        loopback = peer.address,
    )
}

/// A DC router's session with its aggregator. The plane's loopbacks are announced unless everything is withdrawn, since
/// the controllers reach a drained plane through them; a prefix whose egress the IGP cannot reach is not.
fn fabric_session(
    lab: &Lab,
    node: &Node,
    fabric: &Interface,
    plane: u8,
    asn: u32,
) -> Result<String, RenderError> {
    let (own, peer) = link_addresses(lab, node, fabric)?;
    let peer_as = SITE_AS + u32::from(node.site_id);
    Ok(format!(
        "\n# --- the aggregator of the site\n\
         protocol static loopbacks {{ ipv6 {{ table master6; }}; route fd00:{plane:x}::/64 unreachable; }}\n\
         filter to_fa {{\n  \
           if DRAINED = 1 then reject;\n  \
           if proto = \"loopbacks\" then accept;\n  \
           if source != RTS_BGP || proto = \"fa\" || dest != RTD_UNICAST then reject;\n  \
           if DRAINED = 2 then bgp_community.add((65535,0));\n  \
           if DRAINED = 3 then {{ bgp_path.prepend({asn}); bgp_path.prepend({asn}); bgp_path.prepend({asn}); }}\n  \
           accept;\n}}\n\
         protocol bgp fa {{\n  local {own} as {asn}; neighbor {peer} as {peer_as};\n{SESSION}  \
           ipv6 {{ table master6; import where net ~ {DC_PREFIXES}; export filter to_fa; }};\n}}\n",
    ))
}

fn aggregator(lab: &Lab, node: &Node) -> Result<String, RenderError> {
    let site = node.site_id;
    let asn = SITE_AS + u32::from(site);
    let prefix = format!("2001:db8:{site:x}::/48");
    let mut text = head(node, 0);
    let _ = write!(
        text,
        "\n# --- the site's prefix: announced, never installed (the hosts' routes in the kernel are not BIRD's)\n\
         protocol static own {{ ipv6 {{ table master6; }}; route {prefix} unreachable; }}\n\
         protocol kernel kmain {{\n  {KERNEL} merge paths on limit 16;\n  ipv6 {{\n    table master6; import none;\n    \
             export filter {{\n      if source != RTS_BGP then reject;\n      krt_prefsrc = {address};\n      \
             accept;\n    }};\n  }};\n}}\n\
         \n# --- one router in each plane; only the own prefix goes out, so no plane hears another through here\n\
         template bgp eb {{\n  local as {asn};\n{SESSION}}}\n",
        address = node.address,
    );
    let mut routers = Vec::new();
    for interface in &node.interfaces {
        let Some(router) = lab.node(&interface.peer_node).filter(|n| n.role == Role::Router) else {
            continue;
        };
        let plane = router.plane.ok_or_else(|| inconsistent(router, "a router without a plane"))?;
        routers.push((plane, interface));
    }
    routers.sort_by_key(|(plane, interface)| (*plane, interface.name.clone()));
    for (plane, interface) in routers {
        let (own, peer) = link_addresses(lab, node, interface)?;
        let _ = write!(
            text,
            "protocol bgp '{name}' from eb {{\n  local {own} as {asn}; neighbor {peer} as {peer_as};\n  \
               ipv6 {{\n    table master6;\n    import filter {{\n      \
               if net = fd00:{plane:x}::/64 then accept;\n      \
               if net !~ {DC_PREFIXES} || net ~ [ {prefix}+ ] then reject;\n      \
               if (65535,0) ~ bgp_community then bgp_local_pref = 0;\n      \
               accept;\n    }};\n    export where proto = \"own\";\n  }};\n}}\n",
            name = interface.name,
            peer_as = PLANE_AS + u32::from(plane),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::probe::testlab;

    fn text(lab: &Lab, name: &str) -> String {
        let node = lab.node(name).unwrap();
        render(lab, node, Drain::Normal).unwrap().bird_conf
    }

    #[test]
    fn dc_router() {
        insta::assert_snapshot!(text(&testlab::small(), "eb02.prn"));
    }

    #[test]
    fn midpoint_router() {
        insta::assert_snapshot!(text(&testlab::small(), "eb01.chi"));
    }

    #[test]
    fn fabric_aggregator() {
        insta::assert_snapshot!(text(&testlab::small(), "fa.lla"));
    }

    #[test]
    fn hosts_have_none() {
        let lab = testlab::small();
        let host = lab.hosts().next().unwrap();
        let error = render(&lab, host, Drain::Normal).unwrap_err();
        assert_eq!(error.to_string(), "node h1.lla is a Host: only routers and aggregators run BIRD");
    }

    /// The real BIRD parses every file, in every drain state.
    #[test]
    fn bird_accepts_all_files() {
        let bird = std::env::var("TESTBED_BIRD").unwrap_or_else(|_| "bird".to_string());
        if Command::new(&bird).arg("--version").output().is_err() {
            eprintln!("skipped: no {bird} on this machine");
            return;
        }
        let lab = testlab::small();
        let dir = tempfile::tempdir().unwrap();
        for node in lab.nodes.iter().filter(|n| n.role != Role::Host) {
            for drain in [Drain::Normal, Drain::Withdraw, Drain::GracefulShutdown, Drain::Prepend] {
                let files = render(&lab, node, drain).unwrap();
                std::fs::write(dir.path().join(CONF_FILE), &files.bird_conf).unwrap();
                std::fs::write(dir.path().join(DRAIN_FILE), files.drain_conf.unwrap_or_default()).unwrap();
                let out =
                    Command::new(&bird).arg("-p").arg("-c").arg(dir.path().join(CONF_FILE)).output().unwrap();
                let errors = String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success(), "{} ({drain}): {errors}\n{}", node.name, files.bird_conf);
            }
        }
    }
}

//! For a terminal.

use std::fmt::Write as _;

use topologies::lab::{Lab, LinkKind, Node, Role, SiteKind};

use super::{planes, shows_node};

/// The lab as text: the sites, then each plane as a list of its links with what they are.
pub fn text(lab: &Lab, plane: Option<u8>) -> String {
    let dcs = lab.dcs().count();
    let mut text = format!(
        "{}: {} data centres, {} midpoints, {} planes; 1 bit/s is emulated as 1/{}\n",
        lab.name,
        dcs,
        lab.sites.len() - dcs,
        lab.planes.len(),
        lab.bandwidth_divisor
    );
    text += "\nsites\n";
    for site in &lab.sites {
        let kind = if site.kind == SiteKind::Dc { "dc" } else { "midpoint" };
        let names: Vec<&str> = lab
            .nodes
            .iter()
            .filter(|n| n.site == site.name && shows_node(n, plane))
            .map(|n| n.name.as_str())
            .collect();
        let _ = writeln!(text, "  {:<6} {:<8} id {:<4}{}", site.name, kind, site.id, names.join("  "));
    }
    for plane in planes(lab, plane) {
        let controller = lab.plane(plane).map_or_else(String::new, |p| p.controller_hosts.join(", "));
        let _ = writeln!(text, "\nplane {plane}, controller on {controller}");
        for router in lab.routers(plane) {
            neighbours(lab, router, &mut text);
        }
    }
    let groups = lab.srlgs();
    if !groups.is_empty() {
        text += "\nshared-risk groups\n";
        for (group, links) in groups {
            let shown =
                links.iter().filter_map(|l| lab.link(l)).filter(|l| plane.is_none() || l.plane == plane);
            // once per pair of sites: the planes repeat it
            let mut pairs: Vec<String> = shown
                .filter_map(|l| Some(format!("{}-{}", lab.node(&l.a.node)?.site, lab.node(&l.b.node)?.site)))
                .collect();
            pairs.sort();
            pairs.dedup();
            let _ = writeln!(text, "  {group:<16} {}", pairs.join("  "));
        }
    }
    text
}

/// A router with a branch for every link.
fn neighbours(lab: &Lab, router: &Node, text: &mut String) {
    let mut rows: Vec<(bool, String, String)> = Vec::new();
    for link in lab.links_of(&router.name) {
        let Some((own, far)) = link.ends_from(&router.name) else { continue };
        let core = link.kind == LinkKind::Core;
        let far_role = lab.node(&far.node).map(|n| n.role);
        let mut facts = if core {
            format!("{:>5}  {:>6}", link.capacity.to_string(), link.rtt.to_string())
        } else {
            String::new()
        };
        if link.members > 1 && core {
            let _ = write!(facts, "  {} members", link.members);
        }
        if !link.srlgs.is_empty() {
            let _ = write!(facts, "  {}", link.srlgs.join(", "));
        }
        let line = format!("{:<10} {:<10} {facts}", own.interface, far.node);
        rows.push((far_role != Some(Role::Router), own.interface.clone(), line.trim_end().to_string()));
    }
    // the backbone first, then the aggregator
    rows.sort();
    let count = rows.len();
    for (n, (_, _, line)) in rows.into_iter().enumerate() {
        let head = if n == 0 { router.name.as_str() } else { "" };
        let branch = match (n, count) {
            (0, 1) => "───",
            (0, _) => "─┬─",
            (n, count) if n + 1 == count => " └─",
            _ => " ├─",
        };
        let _ = writeln!(text, "  {head:<9}{branch} {line}");
    }
}

//! Draining links and routers: rows in the drain database of the plane's controller, and a cycle that takes them up.

use std::collections::BTreeMap;

use anyhow::Context as _;
use router_emu::proto::{ControllerState, DrainMode, DrainRequest, DrainRow, Hop};
use topologies::lab::{Lab, Role};

use super::leader;
use crate::api::protocol::{DrainParts, PartMode};
use crate::api::server::Writer;
use crate::failure::{Code, Failure};

/// Something to drain, with its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name in the lab.
    pub name: String,
    /// Plane whose controller is told.
    pub plane: u8,
    row: DrainRow,
}

/// What the request names, by plane.
///
/// # Errors
/// Something that is no backbone link and no router.
pub fn resolve(lab: &Lab, request: &DrainParts) -> anyhow::Result<BTreeMap<u8, Vec<Part>>> {
    let mut parts: BTreeMap<u8, Vec<Part>> = BTreeMap::new();
    let mut add = |name: &str, plane: Option<u8>, router: &str, interface: &str| {
        let plane = plane.ok_or_else(|| {
            Failure::new(
                Code::Usage,
                format!("{name} is not part of a plane; backbone links and routers can be drained"),
            )
        })?;
        let row = DrainRow {
            router: router.to_owned(),
            interface: interface.to_owned(),
            mode: wire(request.mode).into(),
            reason: request.reason.clone(),
            since_unix_ms: 0,
        };
        parts.entry(plane).or_default().push(Part { name: name.to_owned(), plane, row });
        anyhow::Ok(())
    };
    for name in &request.links {
        let link = lab.link(name).with_context(|| format!("no link {name}"))?;
        let core = link.kind == topologies::lab::LinkKind::Core;
        add(name, link.plane.filter(|_| core), &link.a.node, &link.a.interface)?;
    }
    for name in &request.routers {
        let node = lab.node(name).with_context(|| format!("no node {name}"))?;
        add(name, node.plane.filter(|_| node.role == Role::Router), name, "")?;
    }
    Ok(parts)
}

const fn wire(mode: Option<PartMode>) -> DrainMode {
    match mode {
        None => DrainMode::None,
        Some(PartMode::Exclude) => DrainMode::Exclude,
        Some(PartMode::Avoid) => DrainMode::Avoid,
    }
}

/// Writes the rows of one plane, runs a cycle, and says of each part who still uses it.
///
/// # Errors
/// A controller that does not answer, or pairs that could not be programmed: then packets may still come.
pub async fn apply(lab: &Lab, plane: u8, parts: &[Part], output: &Writer) -> anyhow::Result<Vec<String>> {
    let leader = leader::find(lab, plane).await?;
    let rows = parts.iter().map(|p| p.row.clone()).collect();
    let written = leader.client().drain(DrainRequest { rows }).await;
    written.map_err(|status| leader.silent(&status))?;
    output.progress(format!("plane {plane}: a cycle of its controller")).await?;
    let state = leader::cycle(lab, plane, true).await?;
    if state.pairs_failed > 0 {
        return Err(Failure::new(
            Code::Failed,
            format!(
                "plane {plane}: {} of {} bundles could not be programmed, so the old paths may still be used: {}",
                state.pairs_failed,
                state.pairs_failed + state.pairs_ok,
                state.errors.first().map_or("see the controller's log", String::as_str)
            ),
        )
        .hint("the drain stays; the next cycle tries again (`testbed cycle` runs one now)")
        .into());
    }
    Ok(parts.iter().map(|part| told(lab, part, &state)).collect())
}

fn told(lab: &Lab, part: &Part, state: &ControllerState) -> String {
    let name = &part.name;
    if part.row.mode() == DrainMode::None {
        return format!("{name}: in service again (cycle {})", state.cycle);
    }
    let users = users(lab, part, state);
    let users = if users == 0 { "no LSP uses it".to_owned() } else { format!("{users} LSPs still cross it") };
    match part.row.mode() {
        DrainMode::Avoid => format!("{name}: avoided, {users} (cycle {})", state.cycle),
        _ => format!("{name}: drained, {users} (cycle {})", state.cycle),
    }
}

/// LSPs whose primary or backup path crosses the part. Paths that only start or end at a router do not.
fn users(lab: &Lab, part: &Part, state: &ControllerState) -> usize {
    let ends =
        lab.link(&part.name).map(|l| [&l.a, &l.b].map(|end| (end.node.as_str(), end.interface.as_str())));
    let crosses = |hops: &[Hop]| match ends {
        Some(ends) => hops.iter().any(|h| ends.contains(&(h.router.as_str(), h.interface.as_str()))),
        None => hops.iter().skip(1).any(|h| h.router == part.name),
    };
    let lsps = state.mesh.iter().flat_map(|bundle| &bundle.lsps);
    lsps.filter(|lsp| lsp.primary.iter().chain(&lsp.backup).any(|path| crosses(&path.hops))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        topologies::labs::load("ebb-small").unwrap().0
    }

    fn request(links: &[&str], routers: &[&str], mode: Option<PartMode>) -> DrainParts {
        let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        DrainParts { links: own(links), routers: own(routers), mode, reason: "work".into() }
    }

    #[test]
    fn parts_go_to_the_controllers_of_their_planes() {
        let request =
            request(&["eb01.chi--eb01.frc", "eb02.chi--eb02.frc"], &["eb02.lon"], Some(PartMode::Avoid));
        let parts = resolve(&lab(), &request).unwrap();
        let names = |plane: u8| parts[&plane].iter().map(|p| p.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(1), ["eb01.chi--eb01.frc"]);
        assert_eq!(names(2), ["eb02.chi--eb02.frc", "eb02.lon"]);
        let row = &parts[&1][0].row;
        assert_eq!((row.router.as_str(), row.interface.as_str()), ("eb01.chi", "to-frc"));
        assert_eq!((row.mode(), row.reason.as_str()), (DrainMode::Avoid, "work"));
        assert_eq!(parts[&2][1].row.interface, "");
    }

    #[test]
    fn hosts_and_fabric_links_cannot_be_drained() {
        let refused = |request: &DrainParts| resolve(&lab(), request).unwrap_err().to_string();
        assert!(refused(&request(&[], &["h1.prn"], None)).starts_with("h1.prn is not part of a plane"));
        assert!(refused(&request(&[], &["fa.prn"], None)).starts_with("fa.prn is not part of a plane"));
    }

    #[test]
    fn both_directions_of_a_link_and_transit_of_a_router_count() {
        let lab = lab();
        let hop = |router: &str, interface: &str| Hop {
            router: router.into(),
            interface: interface.into(),
            ..Hop::default()
        };
        let path = |hops: &[(&str, &str)]| {
            Some(router_emu::proto::Path { hops: hops.iter().map(|(r, i)| hop(r, i)).collect() })
        };
        let lsp =
            |hops: &[(&str, &str)]| router_emu::proto::Lsp { primary: path(hops), ..Default::default() };
        let lsps = vec![
            lsp(&[("eb01.prn", "to-chi"), ("eb01.chi", "to-frc")]),
            lsp(&[("eb01.frc", "to-chi"), ("eb01.chi", "to-lla")]),
            lsp(&[("eb01.chi", "to-lla")]),
        ];
        let mesh = vec![router_emu::proto::Bundle { lsps, ..Default::default() }];
        let state = ControllerState { mesh, ..Default::default() };
        let parts =
            resolve(&lab, &request(&["eb01.chi--eb01.frc"], &["eb01.chi"], Some(PartMode::Exclude))).unwrap();
        assert_eq!(parts[&1].iter().map(|p| users(&lab, p, &state)).collect::<Vec<_>>(), [2, 2]);
    }
}

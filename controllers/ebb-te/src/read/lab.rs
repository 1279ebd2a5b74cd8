//! The lab's own format, one plane of it.

use te::{Drain, LinkSpec, Mesh, NodeSpec};
use topologies::Problem;
use topologies::lab::Lab;

use super::{Defaults, problem};
use crate::network::{Network, NetworkDemand};

/// Reads one plane of a lab. Nodes are sites; demands are the plane's even share.
pub fn lab(text: &str, file: &str, defaults: &Defaults) -> Result<Network, Vec<Problem>> {
    let (lab, warnings) = Lab::from_str(text, file).map_err(|e| e.0)?;
    let plane = defaults.plane;
    if lab.plane(plane).is_none() {
        let message = format!("lab {} has no plane {plane}", lab.name);
        return Err(vec![problem(file, 0, message, format!("planes are 1 to {}", lab.planes.len()))]);
    }
    let mut network = Network {
        name: format!("{} plane {plane}", lab.name),
        reserved_percent: Some(lab.te.reserved_percent),
        lsps: Some(u16::from(lab.te.lsps_per_bundle)),
        sources: lab.dcs().map(|s| s.name.clone()).collect(),
        notes: warnings.iter().map(ToString::to_string).collect(),
        ..Network::default()
    };
    for router in lab.routers(plane) {
        network.nodes.push(NodeSpec { name: router.site.clone(), no_transit: false });
    }
    let site = |node: &str| lab.node(node).map_or_else(|| node.to_owned(), |n| n.site.clone());
    for link in lab.core_links(plane) {
        for (from, to) in [(&link.a, &link.b), (&link.b, &link.a)] {
            network.links.push(LinkSpec {
                from: site(&from.node),
                to: site(&to.node),
                interface: from.interface.clone(),
                remote_interface: to.interface.clone(),
                rtt_us: u32::try_from(link.rtt.0).unwrap_or(u32::MAX),
                capacity_bps: link.capacity.0,
                srlgs: link.srlgs.clone(),
                drain: Drain::None,
            });
        }
    }
    let planes = u64::try_from(lab.planes.len()).unwrap_or(1).max(1);
    network.demands = lab
        .demands
        .iter()
        .map(|d| NetworkDemand {
            from: d.from.clone(),
            to: d.to.clone(),
            mesh: Mesh::BY_PRIORITY.into_iter().find(|m| m.name() == d.mesh),
            bps: d.rate.0 / planes,
        })
        .collect();
    Ok(network)
}

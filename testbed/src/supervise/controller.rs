//! The planes' controllers: their configuration from the lab, and their answers made readable.

use std::path::{Path, PathBuf};

use ebb::config::{ControllerConfig, DemandFloor, RouterEntry};
use router_emu::label::Sid;
use router_emu::proto::{ControllerState, Path as LspPath};
use serde_json::{Value, json};
use te::{ClassSettings, Mesh, TeSettings};
use topologies::lab::{Lab, Role, SiteKind};

/// Folder of one plane's controller inside its host's run folder: a host may carry several.
fn dir(host: &Path, plane: u8) -> PathBuf {
    host.join(format!("plane{plane}"))
}

/// The controller's unix socket.
pub fn socket(host: &Path, plane: u8) -> PathBuf {
    dir(host, plane).join("ebb-controller.sock")
}

/// The configuration of the controller of `plane`, whose host has the run folder `host`.
pub fn config(lab: &Lab, plane: u8, host: &Path) -> ControllerConfig {
    let is_dc = |site: &str| lab.sites.iter().any(|s| s.name == site && s.kind == SiteKind::Dc);
    let routers = lab.nodes.iter().filter(|n| n.role == Role::Router && n.plane == Some(plane));
    let planes = u64::try_from(lab.planes.len()).unwrap_or(1).max(1);
    let site = |name: &str| lab.sites.iter().find(|s| s.name == name).map(|s| s.id);
    let demands = lab.demands.iter().filter_map(|d| {
        let mesh = Mesh::BY_PRIORITY.into_iter().find(|m| m.name() == d.mesh)?;
        // the aggregators spread every pair evenly over the planes
        Some(DemandFloor { src_site: site(&d.from)?, dst_site: site(&d.to)?, mesh, bps: d.rate.0 / planes })
    });
    let algorithms = lab.plane(plane).map(|p| p.algorithms.clone()).unwrap_or_default();
    // the lab's checks know the same names; see the test
    let primary = algorithms.primary.iter().map(|name| name.parse().unwrap_or_default());
    let classes = Mesh::BY_PRIORITY.iter().zip(lab.te.reserved_percent).zip(primary);
    ControllerConfig {
        plane,
        name: format!("ebb-controller-plane{plane}"),
        routers: routers
            .map(|r| RouterEntry {
                name: r.name.clone(),
                site: r.site_id,
                is_dc: is_dc(&r.site),
                loopback: r.address,
            })
            .collect(),
        cycle_ms: u64::try_from(lab.te.cycle.as_millis()).unwrap_or(u64::MAX),
        te: TeSettings {
            classes: classes
                .map(|((mesh, reserved_percent), algorithm)| ClassSettings {
                    mesh: *mesh,
                    reserved_percent,
                    algorithm,
                })
                .collect(),
            lsps: u16::from(lab.te.lsps_per_bundle),
            backup: algorithms.backup.parse().unwrap_or_default(),
        },
        max_labels: lab.te.max_labels,
        demands: demands.collect(),
        bandwidth_divisor: lab.bandwidth_divisor,
        sample_percent: 50,
        state_dir: dir(host, plane).join("state"),
        run_dir: dir(host, plane),
        retire_delay_ms: 500,
        rpc_timeout_ms: 5_000,
        always_reprogram: false,
    }
}

/// A controller's state with names instead of numbers.
pub fn document(lab: &Lab, state: &ControllerState) -> Value {
    let site =
        |id: u8| lab.sites.iter().find(|s| s.id == id).map_or_else(|| id.to_string(), |s| s.name.clone());
    let number = |id: u32| u8::try_from(id).map_or_else(|_| id.to_string(), site);
    let mesh_name =
        |code: u8| Mesh::from_code(code).map_or_else(|| code.to_string(), |m| m.name().to_owned());
    let bundles: Vec<Value> = state
        .mesh
        .iter()
        .filter_map(|bundle| {
            let sid = Sid::decode(bundle.sid)?;
            let lsps: Vec<Value> = bundle
                .lsps
                .iter()
                .map(|l| json!({"primary": hops(l.primary.as_ref()), "backup": hops(l.backup.as_ref()), "bps": l.bandwidth_bps}))
                .collect();
            Some(json!({
                "sid": bundle.sid, "from": site(sid.src), "to": site(sid.dst),
                "mesh": sid.mesh.name(), "version": u8::from(sid.version), "lsps": lsps,
            }))
        })
        .collect();
    let demands: Vec<Value> = state
        .demands
        .iter()
        .map(|d| {
            let mesh = u8::try_from(d.mesh).map_or_else(|_| d.mesh.to_string(), mesh_name);
            json!({"from": number(d.src_site), "to": number(d.dst_site), "mesh": mesh, "bps": d.bps})
        })
        .collect();
    json!({
        "version": 1, "plane": state.plane, "epoch": state.epoch, "cycle": state.cycle,
        "snapshot_us": state.snapshot_us, "te_us": state.te_us, "program_us": state.program_us,
        "pairs_ok": state.pairs_ok, "pairs_failed": state.pairs_failed, "lsps": state.lsps,
        "unrouted": state.unrouted, "errors": state.errors, "demands": demands, "mesh": bundles,
    })
}

/// `eb01.prn:to-atn` for every hop.
fn hops(path: Option<&LspPath>) -> Vec<String> {
    path.map(|p| p.hops.iter().map(|h| format!("{}:{}", h.router, h.interface)).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_that_a_lab_can_name_is_one_that_controllers_have() {
        let base = topologies::builtin("ebb-small").unwrap();
        for primary in ["cspf", "hprr", "mcf", "ksp-mcf", "ksp-mcf:7"] {
            for backup in ["rba", "srlg-rba", "fir", "none"] {
                let own =
                    format!("overrides:\n  1: {{algorithms: {{bronze: '{primary}'}}, backup: {backup}}}\n");
                let (lab, _) = Lab::from_str(&format!("{base}\n{own}"), "lab.yaml").unwrap();
                let te = config(&lab, 1, Path::new("/run")).te;
                assert_eq!(te.classes[2].algorithm, primary.parse().unwrap());
                assert_eq!(te.classes[0].algorithm, te::PrimaryChoice::Cspf);
                assert_eq!(te.backup, backup.parse().unwrap());
                // the other plane stays what it was
                assert_eq!(
                    config(&lab, 2, Path::new("/run")).te.classes[2].algorithm,
                    te::PrimaryChoice::Cspf
                );
            }
        }
    }
}

//! The planes' controllers: their configuration from the lab, and their answers made readable.

use std::net::SocketAddr;
use std::path::PathBuf;

use ebb::config::{ControllerConfig, DemandFloor, LockConfig, RouterEntry};
use ebb::fence::etcd::CLIENT_PORT;
use ebb::nhg_tm::NhgTmConfig;
use ebb::traffic::Scale;
use router_emu::label::Sid;
use router_emu::proto::{ControllerState, Path as LspPath};
use serde_json::{Value, json};
use te::{ClassSettings, Mesh, TeSettings};
use topologies::lab::{Lab, Node, Role, SiteKind};

use super::files::run_dir;

/// Time for which a lead is bound to a lease. etcd grants no less than one and a half times its election timeout.
const LEASE_MS: u64 = 6_000;
/// Part of it that a leader does not use.
const MARGIN_MS: u64 = 1_000;
/// Deadline of a call to one member of the lock service.
const LOCK_CALL_MS: u64 = 800;

/// One controller of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Plane.
    pub plane: u8,
    /// Number among the plane's replicas, from 1.
    pub number: u8,
    /// Host.
    pub host: String,
    /// Name of its program, unique on the host.
    pub program: String,
    /// Folder of its socket.
    pub dir: PathBuf,
}

/// The controllers of a plane.
pub fn replicas(lab: &Lab, plane: u8) -> Vec<Replica> {
    let Some(settings) = lab.plane(plane) else { return Vec::new() };
    let several = settings.controller_hosts.len() > 1;
    let replica = |(number, host): (u8, &String)| {
        let suffix = if several { format!("{plane}.{number}") } else { plane.to_string() };
        let alone = lab.controllers_on(host).count() == 1 && !several;
        Replica {
            plane,
            number,
            host: host.clone(),
            program: if alone { "ebb-controller".to_owned() } else { format!("ebb-controller-{suffix}") },
            dir: run_dir(host).join(format!("plane{suffix}")),
        }
    };
    (1..).zip(&settings.controller_hosts).map(replica).collect()
}

impl Replica {
    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("ebb-controller.sock")
    }

    /// Its name among all controllers of the lab.
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.program)
    }
}

/// How the replicas choose their leader. A member of the lock service on the replica's own host is asked first.
fn lock(lab: &Lab, host: &str) -> LockConfig {
    let mut members: Vec<&String> = lab.etcd_members().iter().collect();
    if members.is_empty() {
        return LockConfig::Embedded;
    }
    members.sort_by_key(|member| *member != host);
    let endpoint = |member: &&String| Some(SocketAddr::from((lab.node(member)?.address, CLIENT_PORT)));
    LockConfig::Etcd {
        endpoints: members.iter().filter_map(endpoint).collect(),
        lease_ms: LEASE_MS,
        margin_ms: MARGIN_MS,
        timeout_ms: LOCK_CALL_MS,
    }
}

/// The traffic-matrix service of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Name of its program, unique on the host.
    pub program: String,
    /// Where it serves.
    pub address: SocketAddr,
    /// Its configuration.
    pub config: NhgTmConfig,
}

/// The traffic-matrix service of `plane`, beside its first controller.
pub fn matrix(lab: &Lab, plane: u8) -> Option<Matrix> {
    let host = lab.plane(plane)?.controller_hosts.first()?;
    let alone = lab.matrices_on(host).count() == 1;
    let program = if alone { "nhg-tm".to_owned() } else { format!("nhg-tm-{plane}") };
    let config = NhgTmConfig {
        plane,
        routers: routers(lab, plane),
        poll_ms: 1_000,
        scale: Scale { bandwidth_divisor: lab.bandwidth_divisor, ..Scale::default() },
        rpc_timeout_ms: 2_000,
        run_dir: run_dir(host).join(&program),
    };
    let address = SocketAddr::from((lab.node(host)?.address, config.port()));
    Some(Matrix { program, address, config })
}

/// The routers of a plane as its services know them.
fn routers(lab: &Lab, plane: u8) -> Vec<RouterEntry> {
    let is_dc = |site: &str| lab.sites.iter().any(|s| s.name == site && s.kind == SiteKind::Dc);
    let routers = lab.nodes.iter().filter(|n| n.role == Role::Router && n.plane == Some(plane));
    let entry = |r: &Node| RouterEntry {
        name: r.name.clone(),
        site: r.site_id,
        is_dc: is_dc(&r.site),
        loopback: r.address,
    };
    routers.map(entry).collect()
}

/// The configuration of a controller.
pub fn config(lab: &Lab, replica: &Replica) -> ControllerConfig {
    let plane = replica.plane;
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
        replica: replica.number,
        name: replica.name(),
        routers: routers(lab, plane),
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
        matrix: matrix(lab, plane).map(|service| service.address),
        stats: None,
        state_dir: replica.dir.join("state"),
        plane_dir: run_dir(&format!("plane{plane}")),
        lock: lock(lab, &replica.host),
        run_dir: replica.dir.clone(),
        retire_delay_ms: 500,
        rpc_timeout_ms: 5_000,
        always_reprogram: lab.te.reprogram_always,
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
        "version": 1, "plane": state.plane, "leader": state.name, "epoch": state.epoch, "cycle": state.cycle,
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
                let te = config(&lab, &replicas(&lab, 1)[0]).te;
                assert_eq!(te.classes[2].algorithm, primary.parse().unwrap());
                assert_eq!(te.classes[0].algorithm, te::PrimaryChoice::Cspf);
                assert_eq!(te.backup, backup.parse().unwrap());
                // the other plane stays what it was
                assert_eq!(
                    config(&lab, &replicas(&lab, 2)[0]).te.classes[2].algorithm,
                    te::PrimaryChoice::Cspf
                );
            }
        }
    }

    #[test]
    fn replicas_have_names_ports_and_folders_of_their_own() {
        let base = topologies::builtin("ebb-small").unwrap();
        let lab = |more: &str| Lab::from_str(&format!("{base}\n{more}\n"), "lab.yaml").unwrap().0;
        let alone = lab("");
        let one = replicas(&alone, 2);
        assert_eq!((one.len(), one[0].name().as_str()), (1, "h1.frc/ebb-controller"));
        assert_eq!(config(&alone, &one[0]).lock, LockConfig::Embedded);
        let lab = lab("controllers: {replicas: 6, lock: etcd}");
        let all: Vec<Replica> = [1, 2].into_iter().flat_map(|plane| replicas(&lab, plane)).collect();
        assert_eq!(all[0].name(), "h1.atn/ebb-controller-1.1");
        assert_eq!(all[4].name(), "h1.atn/ebb-controller-1.5");
        let distinct = |what: &dyn Fn(&Replica) -> String| {
            all.iter().map(what).collect::<std::collections::BTreeSet<_>>().len() == all.len()
        };
        assert!(distinct(&|r| r.name()));
        assert!(distinct(&|r| r.dir.display().to_string()));
        assert!(distinct(&|r| format!("{} {}", r.host, config(&lab, r).port())));
        for replica in &all {
            let config = config(&lab, replica);
            config.check().unwrap();
            assert_eq!(config.plane_dir, run_dir(&format!("plane{}", replica.plane)));
            let LockConfig::Etcd { endpoints, .. } = config.lock else { panic!("no etcd") };
            assert_eq!(endpoints.len(), 3);
            let own = SocketAddr::from((lab.node(&replica.host).unwrap().address, CLIENT_PORT));
            assert!(!endpoints.contains(&own) || endpoints[0] == own);
        }
    }
}

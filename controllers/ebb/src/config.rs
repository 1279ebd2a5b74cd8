//! The controller's configuration file (JSON).

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use router_emu::config::CONTROLLER_PORT;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use te::{Mesh, TeSettings};

/// Configuration of one plane's controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    /// Plane number.
    pub plane: u8,
    /// Number among the plane's replicas, from 1; the RPC port is 60190 + 10 * replica + plane.
    #[serde(default = "first")]
    pub replica: u8,
    /// Name that agents see as the writer, and other replicas as the leader.
    pub name: String,
    /// All routers of the plane.
    pub routers: Vec<RouterEntry>,
    /// Time from the start of a cycle to the start of the next, milliseconds. 0: only when asked by RPC.
    #[serde(default = "default_cycle_ms")]
    pub cycle_ms: u64,
    /// Class rounds with their headroom, LSPs per bundle.
    #[serde(default)]
    pub te: TeSettings,
    /// Largest label stack of the routers.
    #[serde(default = "default_max_labels")]
    pub max_labels: u8,
    /// Demands that are planned for even when less is measured.
    #[serde(default)]
    pub demands: Vec<DemandFloor>,
    /// Where the plane's traffic-matrix service (`nhg-tm`) is; without one, `demands` is all there is.
    #[serde(default)]
    pub matrix: Option<SocketAddr>,
    /// Folder for what this replica alone keeps.
    pub state_dir: PathBuf,
    /// File to which the statistics of cycles are appended; `cycles.jsonl` in `state_dir` by default.
    #[serde(default)]
    pub stats: Option<PathBuf>,
    /// Folder that all replicas of the plane see: the drain database `drains.db`, and the embedded lock with its epoch.
    pub plane_dir: PathBuf,
    /// What makes sure that one replica leads.
    #[serde(default)]
    pub lock: LockConfig,
    /// Folder of the unix socket `ebb-controller.sock`.
    pub run_dir: PathBuf,
    /// Time between the swap at the sources and the removal of the old version, milliseconds: packets that carry the
    /// old SID must have left the network.
    #[serde(default = "default_retire_delay_ms")]
    pub retire_delay_ms: u64,
    /// Deadline of every RPC, milliseconds.
    #[serde(default = "default_rpc_timeout_ms")]
    pub rpc_timeout_ms: u64,
    /// Program every bundle in every cycle, even if nothing about it has changed.
    #[serde(default)]
    pub always_reprogram: bool,
}

/// The lock by which one replica leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum LockConfig {
    /// A file in `plane_dir`.
    #[default]
    Embedded,
    /// An etcd cluster.
    Etcd {
        /// Where its members serve clients, the nearest first.
        endpoints: Vec<SocketAddr>,
        /// Time for which the lead is bound to a lease, milliseconds; etcd counts in whole seconds, and has a least time of
        /// its own. A leader stops writing `margin_ms` before it runs out.
        lease_ms: u64,
        /// See `lease_ms`.
        margin_ms: u64,
        /// Deadline of a call to one member, milliseconds.
        timeout_ms: u64,
    },
}

/// A router of the plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterEntry {
    /// Name, `eb01.prn`.
    pub name: String,
    /// Site id as in labels.
    pub site: u8,
    /// Whether the site is source and sink of demand.
    pub is_dc: bool,
    /// Loopback address, on which its agents serve.
    pub loopback: Ipv6Addr,
}

/// A demand that is planned for in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemandFloor {
    /// Source site id.
    pub src_site: u8,
    /// Destination site id.
    pub dst_site: u8,
    /// Mesh, by name.
    pub mesh: Mesh,
    /// Bit/s of the real network, for this plane alone.
    pub bps: u64,
}

fn default_cycle_ms() -> u64 {
    55_000
}
fn default_max_labels() -> u8 {
    3
}
fn default_retire_delay_ms() -> u64 {
    500
}
fn default_rpc_timeout_ms() -> u64 {
    2_000
}
fn first() -> u8 {
    1
}

/// Reads a configuration file; the error names the file and the place in it.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| anyhow::anyhow!("cannot read the configuration {}: {e}", path.display()))?;
    serde_json::from_str(&text)
        .map_err(|e| anyhow::anyhow!("{}:{}:{}: {e}", path.display(), e.line(), e.column()))
}

impl ControllerConfig {
    /// Reads and checks a configuration file; the error names the file and the place in it.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let config: Self = read(path)?;
        config.check().map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        Ok(config)
    }

    /// Checks what the types cannot say.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        let mut sites = BTreeSet::new();
        for r in &self.routers {
            if !names.insert(&r.name) {
                return Err(format!("routers lists {:?} twice; names must be unique", r.name));
            }
            if !sites.insert(r.site) {
                return Err(format!("two routers have site id {}; a plane has one router per site", r.site));
            }
        }
        for d in &self.demands {
            let is_dc = |site| self.routers.iter().any(|r| r.site == site && r.is_dc);
            if d.src_site == d.dst_site || !is_dc(d.src_site) || !is_dc(d.dst_site) {
                return Err(format!(
                    "demand from site {} to site {}: both ends must be different DC sites of the list of routers",
                    d.src_site, d.dst_site
                ));
            }
        }
        let positive = [
            ("max_labels", u64::from(self.max_labels)),
            ("rpc_timeout_ms", self.rpc_timeout_ms),
            ("te.lsps", u64::from(self.te.lsps)),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} is 0; it must be at least 1"));
        }
        if usize::from(self.te.lsps) > router_emu::label::MAX_SLOTS {
            let most = router_emu::label::MAX_SLOTS;
            return Err(format!("te.lsps is {}; the nexthop ids have room for {most}", self.te.lsps));
        }
        if !(1..=9).contains(&self.replica) {
            return Err(format!("replica is {}; it must be 1 to 9", self.replica));
        }
        if let LockConfig::Etcd { endpoints, lease_ms, margin_ms, timeout_ms } = &self.lock {
            if endpoints.is_empty() {
                return Err("lock.etcd has no endpoints; name the members' addresses".into());
            }
            if *timeout_ms == 0 || *lease_ms < 1000 || margin_ms.saturating_mul(2) > *lease_ms {
                return Err(format!(
                    "lock.etcd: lease_ms {lease_ms} must be 1000 at least and twice margin_ms {margin_ms}, \
                     timeout_ms {timeout_ms} must be above 0"
                ));
            }
        }
        Ok(())
    }

    /// TCP port of the controller's RPC.
    pub fn port(&self) -> u16 {
        CONTROLLER_PORT + 10 * (u16::from(self.replica).saturating_sub(1)) + u16::from(self.plane)
    }

    /// Path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("ebb-controller.sock")
    }

    /// The file of statistics.
    pub fn stats(&self) -> PathBuf {
        self.stats.clone().unwrap_or_else(|| self.state_dir.join("cycles.jsonl"))
    }

    /// Deadline of every RPC.
    pub fn rpc_timeout(&self) -> Duration {
        Duration::from_millis(self.rpc_timeout_ms)
    }

    /// Pause between swap and removal.
    pub fn retire_delay(&self) -> Duration {
        Duration::from_millis(self.retire_delay_ms)
    }

    /// Routers that are source and sink of demand.
    pub fn dcs(&self) -> impl Iterator<Item = &RouterEntry> {
        self.routers.iter().filter(|r| r.is_dc)
    }

    /// The router of a site.
    pub fn router_of_site(&self, site: u8) -> Option<&RouterEntry> {
        self.routers.iter().find(|r| r.site == site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "plane": 2, "name": "ebb-controller.p2",
        "routers": [
            {"name": "eb02.prn", "site": 1, "is_dc": true, "loopback": "fd00:2::1"},
            {"name": "eb02.lla", "site": 2, "is_dc": true, "loopback": "fd00:2::2"},
            {"name": "eb02.chi", "site": 9, "is_dc": false, "loopback": "fd00:2::9"}
        ],
        "te": {"classes": [{"mesh": "gold", "reserved_percent": 50}], "lsps": 16},
        "demands": [{"src_site": 1, "dst_site": 2, "mesh": "gold", "bps": 10000000000}],
        "matrix": "[2001:db8:1:1::1]:60302",
        "state_dir": "/var/lib/ebb", "run_dir": "/run/ebb", "plane_dir": "/srv/ebb"
    }"#;

    #[test]
    fn a_file_with_defaults() {
        let c: ControllerConfig = serde_json::from_str(TEXT).unwrap();
        c.check().unwrap();
        assert_eq!((c.port(), c.max_labels, c.retire_delay_ms, c.always_reprogram), (60202, 3, 500, false));
        assert_eq!(c.dcs().count(), 2);
        assert_eq!(c.socket(), Path::new("/run/ebb/ebb-controller.sock"));
        let again: ControllerConfig = serde_json::from_str(&serde_json::to_string(&c).unwrap()).unwrap();
        assert_eq!(c, again);
    }

    #[test]
    fn wrong_files_are_refused_with_words() {
        let wrong = |from: &str, to: &str| {
            let c: ControllerConfig = serde_json::from_str(&TEXT.replace(from, to)).unwrap();
            c.check().unwrap_err()
        };
        assert_eq!(wrong("eb02.lla", "eb02.prn"), "routers lists \"eb02.prn\" twice; names must be unique");
        assert_eq!(
            wrong("\"site\": 9", "\"site\": 2"),
            "two routers have site id 2; a plane has one router per site"
        );
        assert_eq!(
            wrong("\"dst_site\": 2", "\"dst_site\": 9"),
            "demand from site 1 to site 9: both ends must be different DC sites of the list of routers"
        );
        let lock = |lease: u64, endpoints: &str| {
            let etcd = format!(
                r#""lock": {{"etcd": {{"endpoints": [{endpoints}], "lease_ms": {lease}, "margin_ms": 1000, "timeout_ms": 500}}}},"#
            );
            let c: ControllerConfig =
                serde_json::from_str(&TEXT.replace("\"plane\": 2,", &format!("{etcd}\"plane\": 2,")))
                    .unwrap();
            c.check()
        };
        let address = r#""[2001:db8:1:1::1]:2379""#;
        assert_eq!(lock(6000, address), Ok(()));
        assert_eq!(lock(6000, "").unwrap_err(), "lock.etcd has no endpoints; name the members' addresses");
        assert!(
            lock(1500, address).unwrap_err().starts_with("lock.etcd: lease_ms 1500 must be 1000 at least")
        );
        assert_eq!(wrong("\"lsps\": 16", "\"lsps\": 64"), "te.lsps is 64; the nexthop ids have room for 63");
    }

    #[test]
    fn a_broken_file_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        std::fs::write(&path, TEXT.replace("\"plane\"", "\"plain\"")).unwrap();
        let e = ControllerConfig::load(&path).unwrap_err().to_string();
        assert!(e.starts_with(&format!("{}:2:15: unknown field `plain`", path.display())), "{e}");
    }
}

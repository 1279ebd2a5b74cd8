//! The file that says what is rolled out, and how carefully (JSON).

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::Path;

use router_emu::config_agent::edit::Edit;
use serde::{Deserialize, Serialize};

use super::detect::Limits;

/// A change of configuration on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutConfig {
    /// Who the routers' histories name.
    pub writer: String,
    /// Why.
    pub comment: String,
    /// Site id of the place from which the routers are reached: those of this site are told last.
    pub site: u8,
    /// Routers that get the change.
    pub routers: Vec<Target>,
    /// Fields that get other values.
    pub edits: Vec<Edit>,
    /// Plane by plane; false: all planes at once.
    pub canary: bool,
    /// How long the network is watched after each stage, milliseconds.
    pub soak_ms: u64,
    /// Time in which a router has to be told that it may keep the change, milliseconds; longer than the soak.
    pub confirm_within_ms: u64,
    /// From one look at the network to the next, milliseconds.
    pub poll_ms: u64,
    /// Deadline of every question, milliseconds.
    pub rpc_timeout_ms: u64,
    /// Time after an alarm in which the network has to be as it was, milliseconds.
    pub recover_within_ms: u64,
    /// When it is an alarm.
    pub limits: Limits,
}

/// A router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name.
    pub name: String,
    /// Plane.
    pub plane: u8,
    /// Site id.
    pub site: u8,
    /// Loopback.
    pub loopback: Ipv6Addr,
}

impl RolloutConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file with the place in it, or what does not fit together.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| anyhow::anyhow!("cannot read the rollout {}: {e}", path.display()))?;
        let config: Self = serde_json::from_str(&text)
            .map_err(|e| anyhow::anyhow!("{}:{}:{}: {e}", path.display(), e.line(), e.column()))?;
        config.check().map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        Ok(config)
    }

    /// What does not fit together, in words.
    ///
    /// # Errors
    /// See there.
    pub fn check(&self) -> Result<(), String> {
        if self.routers.is_empty() || self.edits.is_empty() {
            return Err("a rollout needs routers and edits".into());
        }
        let names: BTreeSet<&str> = self.routers.iter().map(|r| r.name.as_str()).collect();
        if names.len() < self.routers.len() {
            return Err("routers names one twice".into());
        }
        if self.poll_ms == 0 || self.rpc_timeout_ms == 0 {
            return Err("poll_ms and rpc_timeout_ms are not 0".into());
        }
        if self.confirm_within_ms <= self.soak_ms {
            return Err(format!(
                "confirm_within_ms is {}: routers would go back before the {} ms of watching are over",
                self.confirm_within_ms, self.soak_ms
            ));
        }
        Ok(())
    }

    /// Routers by stage: plane by plane, or all at once.
    pub fn stages(&self) -> Vec<Vec<String>> {
        let of = |plane: u8| {
            let routers = self.routers.iter().filter(|r| r.plane == plane);
            routers.map(|r| r.name.clone()).collect::<Vec<_>>()
        };
        let planes: BTreeSet<u8> = self.routers.iter().map(|r| r.plane).collect();
        let stages = planes.into_iter().map(of);
        if self.canary { stages.collect() } else { vec![stages.flatten().collect()] }
    }
}

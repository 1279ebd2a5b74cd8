//! `carrier.json`: what a state folder says about the world that lives (or died) there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Carrier;
use super::kernel::write_atomic;
use super::lock::Identity;
use super::qemu::Accel;
use crate::api::client::Endpoint;

/// A world as its keeper wrote it down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this shape.
    pub version: u32,
    /// Which carrier.
    pub carrier: Carrier,
    /// The keeper.
    pub keeper: Identity,
    /// Process 1 of the world as this machine sees it, or QEMU.
    pub child: Identity,
    /// Where the API listens.
    pub endpoint: Endpoint,
    /// Who executes the guest's instructions; vm only.
    pub accel: Option<Accel>,
    /// The guest kernel's release; vm only.
    pub kernel: Option<String>,
    /// The world's control group; host only.
    pub cgroup: Option<PathBuf>,
}

impl Record {
    /// Where it lies.
    pub fn path(state: &Path) -> PathBuf {
        state.join("carrier.json")
    }

    /// Reads it; nothing if the folder claims no world.
    pub fn load(state: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::path(state)).ok()?).ok()
    }

    /// Writes it, at once.
    pub fn store(&self, state: &Path) -> Result<()> {
        write_atomic(&Self::path(state), &serde_json::to_vec_pretty(self)?)
    }

    /// Takes the claim back: the record, and what only a living world needs.
    pub fn forget(state: &Path) {
        for name in ["carrier.json", "api.sock", "initramfs"] {
            let _ = fs::remove_file(state.join(name));
        }
    }
}

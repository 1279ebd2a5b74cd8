//! Carriers: where a lab lives.
//!
//! In this room: the two worlds a lab can live in (`host`: namespaces of this kernel; `vm`: a QEMU guest), the guest's
//! kernel and how it gets here, the keeper process that owns a world and takes it down, the probes that say what this
//! machine can carry, and what process 1 has to do first inside. Not in this room: what a lab is made of, the API, and
//! the supervisor itself; a carrier starts whatever command line it is given as process 1 of the new world.

pub mod apt;
pub mod bzimage;
mod cgroup;
pub mod choose;
pub mod clock;
pub mod cpio;
pub mod doctor;
pub mod features;
pub mod gc;
pub mod grace;
pub mod guest_exec;
mod host;
mod ifconfig;
pub mod initramfs;
pub mod inside;
pub mod keep;
pub mod keeper;
pub mod kernel;
pub mod kmod;
pub mod kvm;
pub mod lock;
pub mod modules;
pub mod qemu;
pub mod record;
mod warm;

use std::path::PathBuf;
use std::{env, fmt};

use serde::{Deserialize, Serialize};

/// The two worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Namespaces of this kernel; needs root.
    Host,
    /// A QEMU guest over a read-only view of this machine's files.
    Vm,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Vm => "vm",
        })
    }
}

impl std::str::FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "host" => Ok(Self::Host),
            "vm" => Ok(Self::Vm),
            other => Err(format!("no carrier is called `{other}`; the carriers are `host` and `vm`")),
        }
    }
}

/// The machine lacks something that the user can provide. The command line turns it into exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("{what}; {next}")]
pub struct Lacking {
    /// What is missing, and for what.
    pub what: String,
    /// What to do about it.
    pub next: String,
}

impl Lacking {
    /// An [`anyhow::Error`] of this kind; find it again with `downcast_ref::<Lacking>()`.
    pub fn error(what: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { what: what.into(), next: next.into() })
    }
}

/// Where fetched kernels and probe results are kept: `$TESTBED_CACHE`, else `$XDG_CACHE_HOME/testbed`, else `~/.cache/testbed`.
pub fn cache_dir() -> PathBuf {
    folder("TESTBED_CACHE", "XDG_CACHE_HOME", ".cache")
}

/// Where labs keep their state: `$TESTBED_STATE`, else `$XDG_STATE_HOME/testbed`, else `~/.local/state/testbed`.
pub fn state_root() -> PathBuf {
    folder("TESTBED_STATE", "XDG_STATE_HOME", ".local/state")
}

fn folder(own: &str, xdg: &str, under_home: &str) -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(path) = set(own) {
        return std::path::absolute(&path).unwrap_or(path);
    }
    let base = set(xdg)
        .filter(|p| p.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(under_home)))
        .unwrap_or_else(|| PathBuf::from("/var/tmp").join(under_home));
    base.join("testbed")
}

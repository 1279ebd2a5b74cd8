//! The versions as they outlive the program: one file, replaced by rename.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::agent::write_atomically;
use crate::config::RouterConfig;

/// Name of the file in the state folder.
pub const FILE: &str = "config-agent.json";

/// Everything that the agent must still know after it was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Boot of the machine in which times of the monotonic clock count.
    pub boot: String,
    /// Base that all versions stand on.
    pub base: RouterConfig,
    /// Versions by number, ascending; never empty, and the running one is there.
    pub versions: Vec<Version>,
    /// Number of the version that runs.
    pub running: u64,
    /// Number of the next version.
    pub next: u64,
    /// Set while the running version waits for its confirmation.
    pub waiting: Option<Waiting>,
    /// Interfaces that are down because a version said so, or may be: written before they are touched.
    pub shut: BTreeSet<String>,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Number, from 1.
    pub number: u64,
    /// Who pushed it.
    pub writer: String,
    /// Why.
    pub comment: String,
    /// When, milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// Version that ran before it; 0: none.
    pub after: u64,
    /// What became of it.
    pub fate: Fate,
    /// The configuration.
    pub config: RouterConfig,
}

/// What became of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It was meant to stay, or was confirmed.
    Kept,
    /// It waits for its confirmation.
    Unconfirmed,
    /// Somebody went back from it to an older version.
    RolledBack,
    /// It was not confirmed in time.
    Expired,
}

impl Fate {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Unconfirmed => "unconfirmed",
            Self::RolledBack => "rolled back",
            Self::Expired => "expired",
        }
    }
}

/// A confirmation that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Version to go back to.
    pub back_to: u64,
    /// When, nanoseconds of the monotonic clock.
    pub deadline_ns: u64,
}

impl Journal {
    /// A version by number.
    pub fn version(&self, number: u64) -> Option<&Version> {
        self.versions.iter().find(|v| v.number == number)
    }

    /// The configuration that runs.
    pub fn running(&self) -> &RouterConfig {
        self.version(self.running).map_or(&self.base, |v| &v.config)
    }

    /// Reads the file of an earlier life; nothing if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn load(state_dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = path(state_dir);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => anyhow::bail!("cannot read {}: {e}", path.display()),
        };
        let journal: Self = serde_json::from_slice(&text)
            .map_err(|e| anyhow::anyhow!("{}:{}:{}: {e}", path.display(), e.line(), e.column()))?;
        anyhow::ensure!(
            journal.version(journal.running).is_some(),
            "{}: version {} runs, and is not in it",
            path.display(),
            journal.running
        );
        Ok(Some(journal))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It could not be written; the old one is still there.
    pub fn save(&self, state_dir: &Path) -> anyhow::Result<()> {
        write_atomically(&path(state_dir), &serde_json::to_vec(self)?)
    }

    /// Puts a file that cannot be understood aside; where it is now.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn put_aside(state_dir: &Path) -> std::io::Result<PathBuf> {
        let (path, aside) = (path(state_dir), state_dir.join(format!("{FILE}.bad")));
        std::fs::rename(path, &aside)?;
        Ok(aside)
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

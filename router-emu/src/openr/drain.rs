//! Drains of this router and of its links, as the operator set them and as they survive a restart.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Name of the file in the agent's state folder.
pub const FILE: &str = "openr-drains.json";

/// A drain: hard (no transit), soft (dearer), or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Hard.
    pub overloaded: bool,
    /// Soft: added to the metric.
    pub metric_increment: u32,
}

/// All drains of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drains {
    /// Of the router itself.
    pub node: Drain,
    /// Of its links, by interface; undrained ones are left out.
    pub links: BTreeMap<String, Drain>,
}

impl Drains {
    /// Sets or lifts a drain; an empty interface means the router. Whether anything changed.
    pub fn set(&mut self, interface: &str, drain: Drain) -> bool {
        let before = if interface.is_empty() {
            Some(std::mem::replace(&mut self.node, drain))
        } else if drain == Drain::default() {
            self.links.remove(interface)
        } else {
            self.links.insert(interface.to_owned(), drain)
        };
        before.unwrap_or_default() != drain
    }

    /// Drain of a link.
    pub fn link(&self, interface: &str) -> Drain {
        self.links.get(interface).copied().unwrap_or_default()
    }

    /// Reads the file of an earlier life; no file means no drains.
    ///
    /// # Errors
    /// A file that cannot be read or understood: starting undrained by mistake would pull traffic onto a
    /// drained router, so the program must not guess.
    pub fn load(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => anyhow::bail!("cannot read the drains in {}: {e}", path.display()),
        };
        serde_json::from_str(&text).map_err(|e| {
            anyhow::anyhow!(
                "{}:{}:{}: {e}; remove the file to start undrained",
                path.display(),
                e.line(),
                e.column()
            )
        })
    }

    /// Writes the file.
    pub fn save(&self, state_dir: &Path) -> anyhow::Result<()> {
        crate::agent::write_atomically(&state_dir.join(FILE), &serde_json::to_vec_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_survive_a_restart_and_can_be_lifted() {
        let folder = tempfile::tempdir().unwrap();
        let mut drains = Drains::load(folder.path()).unwrap();
        assert_eq!(drains, Drains::default());
        assert!(drains.set("", Drain { overloaded: true, metric_increment: 0 }));
        assert!(drains.set("to-atn", Drain { overloaded: false, metric_increment: 500 }));
        assert!(!drains.set("to-atn", Drain { overloaded: false, metric_increment: 500 }));
        drains.save(folder.path()).unwrap();
        let mut again = Drains::load(folder.path()).unwrap();
        assert_eq!(again, drains);
        assert!(again.set("to-atn", Drain::default()));
        assert!(again.links.is_empty());
    }

    #[test]
    fn a_damaged_file_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "{\"node\":").unwrap();
        let error = Drains::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("openr-drains.json:1:") && error.contains("remove the file"), "{error}");
    }
}

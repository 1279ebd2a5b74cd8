//! Where labs keep their things on the machine.

use std::path::{Path, PathBuf};

use crate::carrier::state_root;

/// The state folder of one lab and the files in it (docs/architecture.md).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The folder of the lab `name`.
    pub fn of_lab(name: &str) -> Self {
        Self(state_root().join(name))
    }

    /// A folder given by path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// All folders that look like a lab's, by name.
    pub fn all() -> Vec<(String, Self)> {
        let mut found = Vec::new();
        let Ok(entries) = std::fs::read_dir(state_root()) else { return found };
        for entry in entries.flatten() {
            if entry.path().join("token").exists() {
                found.push((entry.file_name().to_string_lossy().into_owned(), Self(entry.path())));
            }
        }
        found.sort();
        found
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// API token, mode 0600.
    pub fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    /// API socket of the `host` carrier.
    pub fn api_socket(&self) -> PathBuf {
        self.0.join("api.sock")
    }

    /// Lock of whoever changes the lab (`up`, `down`).
    pub fn up_lock(&self) -> PathBuf {
        self.0.join("up.lock")
    }

    /// Resolved lab of the last successful apply.
    pub fn lab_json(&self) -> PathBuf {
        self.0.join("lab.json")
    }

    /// Events, one JSON object a line.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// Log file of a program.
    pub fn log(&self, node: &str, program: &str) -> PathBuf {
        self.0.join("logs").join(node).join(format!("{program}.log"))
    }
}

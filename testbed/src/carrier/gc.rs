//! What dead labs left behind: found by locks and identities, never by names, and removed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::lock::{self, FileLock, Identity, alive_lock};
use super::record::Record;
use super::{cache_dir, cgroup};

/// Something left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leftover {
    /// A state folder that claims a world, though nothing of it is alive. The claim goes, logs stay.
    Claim(PathBuf),
    /// A process of a world whose keeper is dead.
    Stray {
        /// The process.
        process: Identity,
        /// The state folder whose lock it holds.
        state: PathBuf,
    },
    /// The control group of a world whose keeper is dead.
    ControlGroup(PathBuf),
    /// A guest kernel whose preparation was killed.
    HalfKernel(PathBuf),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(state) => write!(f, "the claim of a dead lab in {}", state.display()),
            Self::Stray { process, state } => {
                write!(f, "process {} of a lab whose keeper is dead ({})", process.pid, state.display())
            }
            Self::ControlGroup(path) => write!(f, "control group {}", path.display()),
            Self::HalfKernel(path) => write!(f, "half a guest kernel in {}", path.display()),
        }
    }
}

/// Looks for leftovers of the labs under `root`; changes nothing.
pub fn find(root: &Path) -> Vec<Leftover> {
    let mut found = Vec::new();
    for state in folders(root) {
        let claim = Record::load(&state);
        if lock::is_held(&alive_lock(&state)) {
            // a keeper that has not written its record yet is just starting
            let dead = claim.is_some_and(|record| !record.keeper.alive());
            if dead {
                let strays = lock::holders(&alive_lock(&state)).into_iter();
                found.extend(strays.map(|process| Leftover::Stray { process, state: state.clone() }));
            }
        } else if claim.is_some() {
            found.push(Leftover::Claim(state));
        }
    }
    found.extend(cgroup::abandoned().into_iter().map(Leftover::ControlGroup));
    found.extend(half_kernels().into_iter().map(Leftover::HalfKernel));
    found
}

/// Finds leftovers and, unless `dry_run`, removes them. Gives what was found.
///
/// # Errors
/// A stray process cannot be ended, or a folder cannot be removed.
pub fn run(root: &Path, dry_run: bool) -> Result<Vec<Leftover>> {
    let found = find(root);
    if dry_run {
        return Ok(found);
    }
    for item in &found {
        match item {
            Leftover::Claim(state) => take_back(state),
            Leftover::Stray { process, state } => {
                if let Some(handle) = process.open() {
                    handle.signal(Signal::SIGKILL)?;
                    handle.wait(Duration::from_secs(5));
                }
                take_back(state);
            }
            Leftover::ControlGroup(path) => cgroup::remove(path),
            Leftover::HalfKernel(path) => fs::remove_dir_all(path)?,
        }
    }
    Ok(found)
}

/// Takes back the claim of a folder in which nothing is alive.
pub fn take_back(state: &Path) {
    if lock::is_held(&alive_lock(state)) {
        return;
    }
    if let Some(group) = Record::load(state).and_then(|r| r.cgroup) {
        cgroup::remove(&group);
    }
    Record::forget(state);
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_dir())
        .collect();
    found.sort();
    found
}

/// Unfinished folders in the kernel cache, if nobody is at work there.
fn half_kernels() -> Vec<PathBuf> {
    let store = cache_dir().join("kernels");
    if !store.join("lock").exists() || !matches!(FileLock::try_exclusive(&store.join("lock")), Ok(Some(_))) {
        return Vec::new();
    }
    let unfinished = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".new-"));
    folders(&store).into_iter().filter(unfinished).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_life_is_found_and_taken_back() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("lab");
        fs::create_dir(&state).unwrap();
        let dead = Identity { pid: 1, started: u64::MAX };
        let record = Record {
            version: 1,
            carrier: super::super::Carrier::Host,
            keeper: dead,
            child: dead,
            endpoint: crate::api::client::Endpoint::Unix(state.join("api.sock")),
            accel: None,
            kernel: None,
            cgroup: None,
        };
        record.store(&state).unwrap();
        fs::write(alive_lock(&state), "").unwrap();
        fs::write(state.join("events.jsonl"), "{}").unwrap();
        let mine = |found: Vec<Leftover>| {
            found.into_iter().filter(|l| matches!(l, Leftover::Claim(_))).collect::<Vec<_>>()
        };
        assert_eq!(mine(run(root.path(), true).unwrap()), [Leftover::Claim(state.clone())]);
        assert!(Record::load(&state).is_some(), "a dry run changes nothing");
        // a living world is left alone
        let lock = FileLock::try_exclusive(&alive_lock(&state)).unwrap().unwrap();
        assert!(mine(find(root.path())).is_empty());
        drop(lock);
        assert_eq!(mine(run(root.path(), false).unwrap()).len(), 1);
        assert!(mine(find(root.path())).is_empty());
        assert!(state.join("events.jsonl").exists(), "logs stay");
    }
}

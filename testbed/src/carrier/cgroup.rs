//! A control group for each world on the `host` carrier.
//!
//! Its name holds the keeper's identity, so that whoever finds it knows whether it is in use. A machine without the second
//! version of control groups, or without the right to make one, has worlds without.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::lock::Identity;

const PREFIX: &str = "testbed.";

/// Where the second version is mounted, if it is.
fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (path, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// Makes the group of the keeper `owner`; none if the machine has no place for it.
pub fn create(owner: Identity) -> Option<PathBuf> {
    let path = mount_point()?.join(format!("{PREFIX}{}.{}", owner.pid, owner.started));
    fs::create_dir(&path).ok()?;
    Some(path)
}

/// Removes an empty group; waits a moment for the kernel to notice that its last process is gone.
pub fn remove(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while fs::remove_dir(path).is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound)
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Groups whose keeper is gone.
pub fn abandoned() -> Vec<PathBuf> {
    let Some(root) = mount_point() else { return Vec::new() };
    let mut found: Vec<PathBuf> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(|e| owner(&e.file_name().to_string_lossy()).is_some_and(|o| !o.alive()))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

fn owner(name: &str) -> Option<Identity> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('.')?;
    Some(Identity { pid: pid.parse().ok()?, started: started.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_keeper() {
        assert_eq!(owner("testbed.12.345"), Some(Identity { pid: 12, started: 345 }));
        assert_eq!(owner("testbed.slice"), None);
        assert_eq!(owner("user.12.345"), None);
    }
}

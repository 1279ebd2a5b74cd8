//! What a lab could leave behind on this machine: taken before and after, the two must be equal.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::cli::read_if_there;
use crate::wait_until;

/// Things of this machine that have to do with labs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeSet<String>);

impl Inventory {
    /// Looks. Processes and sockets count if they name `state`; namespaces, interfaces, mounts and cgroups all count.
    pub fn take(state: &Path) -> Self {
        let state = state.to_string_lossy().into_owned();
        let mut found = BTreeSet::new();
        processes(&state, &mut found);
        let text = |path: &str| String::from_utf8_lossy(&read_if_there(Path::new(path))).into_owned();
        for line in text("/proc/net/unix").lines().filter(|l| l.contains(&state)) {
            found.insert(format!("socket {}", line.split_whitespace().last().unwrap_or_default()));
        }
        for line in text("/proc/self/mountinfo").lines() {
            // the first two fields are numbers that change
            found.insert(format!(
                "mount {}",
                line.split_whitespace().skip(3).take(2).collect::<Vec<_>>().join(" ")
            ));
        }
        for line in text("/proc/net/dev").lines().skip(2) {
            found.insert(format!("interface {}", line.split(':').next().unwrap_or_default().trim()));
        }
        names("netns", Path::new("/run/netns"), &mut found);
        cgroups(Path::new("/sys/fs/cgroup"), &mut found);
        Self(found)
    }

    /// What is here and was not in `before`.
    pub fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }

    /// Waits until nothing is here that was not in `self`.
    pub fn wait_for_nothing_new(&self, state: &Path, deadline: Duration) -> anyhow::Result<()> {
        wait_until(deadline, "everything of the lab to be gone", || {
            let left = Self::take(state).since(self);
            if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
        })
    }
}

/// Pids of the processes whose command line or environment names `state`, without this one.
pub fn pids(state: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    let own = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (Ok(pid), false) = (name.parse(), name == own) else { continue };
        let line = String::from_utf8_lossy(&read_if_there(&entry.path().join("cmdline"))).replace('\0', " ");
        let environment = String::from_utf8_lossy(&read_if_there(&entry.path().join("environ"))).into_owned();
        if line.contains(state) || environment.contains(state) {
            found.push((pid, line.trim().to_owned()));
        }
    }
    found
}

fn processes(state: &str, found: &mut BTreeSet<String>) {
    for (pid, line) in pids(state) {
        found.insert(format!("process {pid} {}", line.chars().take(120).collect::<String>()));
    }
}

fn names(kind: &str, dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        found.insert(format!("{kind} {}", entry.file_name().to_string_lossy()));
    }
}

/// Cgroups whose name says that they are ours, at any depth that a keeper could make them.
fn cgroups(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            if entry.file_name().to_string_lossy().contains("testbed") {
                found.insert(format!("cgroup {}", path.display()));
            }
            cgroups(&path, found);
        }
    }
}

//! What is kept when a test fails, in `tests/out/<test>/`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::Lab;

/// Commands that show what a node's kernel holds.
const LOOKS: [&str; 6] = [
    "ip -br link",
    "ip -6 rule show",
    "ip -6 route show table all",
    "ip nexthop show",
    "ip -f mpls route show",
    "ip -s -6 neigh show",
];

/// Shows the world that all nodes share: its kernel's log, its processes with what they wait for, its interrupts.
const WORLD: &str = "echo '# uptime'; cat /proc/uptime /proc/loadavg; echo '# processes'; \
    for p in /proc/[0-9]*; do echo \"$p $(tr '\\0' ' ' < $p/cmdline) $(cut -d' ' -f3,39 < $p/stat) $(head -c 400 $p/stack | tr '\\n' ' ')\"; done; \
    echo '# interrupts'; cat /proc/interrupts; echo '# memory'; head -5 /proc/meminfo; echo '# kernel log'; dmesg | tail -n 200";

/// Folder of the evidence of all tests.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("out")
}

/// Saves status, events, logs and kernel state of every node; returns the folder. What cannot be had is noted in the
/// file instead.
pub fn save(lab: &Lab, test: &str, message: &str) -> PathBuf {
    let dir = folder().join(test);
    let _ = std::fs::remove_dir_all(&dir);
    let _ = std::fs::create_dir_all(&dir);
    let write = |name: &str, text: &str| {
        let _ = std::fs::write(dir.join(name), text);
    };
    write("failure.txt", message);
    let say = |words: &[&str]| match lab.cli.run(words) {
        Ok(output) => format!("{}{}", output.stdout, output.stderr),
        Err(error) => format!("{error:#}"),
    };
    // first, because what a stuck world waits for is gone once it goes on
    write("world.txt", &say(&["exec", "h1.prn", "--", "sh", "-c", WORLD]));
    write("status.txt", &say(&["status"]));
    write("status.json", &say(&["--format", "json", "status"]));
    write("links.txt", &say(&["link", "show"]));
    let nodes =
        lab.status().map(|s| s.nodes.into_iter().map(|n| n.name).collect::<Vec<_>>()).unwrap_or_default();
    let script = LOOKS.iter().fold(String::new(), |mut script, look| {
        let _ = writeln!(script, "echo '# {look}'; {look}");
        script
    });
    for node in &nodes {
        write(&format!("kernel-{node}.txt"), &say(&["exec", node, "--", "sh", "-c", &script]));
    }
    let state = lab.cli.lab_state();
    copy(&state.join("events.jsonl"), &dir.join("events.jsonl"));
    copy(&state.join("console.log"), &dir.join("console.log"));
    copy_tree(&state.join("logs"), &dir.join("logs"));
    dir
}

/// Copies a file if it is there.
pub fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        let _ = std::fs::copy(from, to);
    }
}

/// Copies a folder with what is in it.
pub fn copy_tree(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else { return };
    let _ = std::fs::create_dir_all(to);
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            copy(&entry.path(), &target);
        }
    }
}

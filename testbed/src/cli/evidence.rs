//! What is kept of a lab when a run did not pass: status, events, logs, and each node's kernel state.

use std::fmt::Write as _;
use std::path::Path;

use scenario::record::{Log, Run};

use anyhow::Context as _;

use super::operate::fetch_status;
use super::target::Running;
use crate::api::client::Connection;
use crate::api::frame::Frame;
use crate::api::protocol::{Exec, Input, Reply, Request};
use crate::state::StateDir;

/// Commands that show what a node's kernel holds.
const LOOKS: [&str; 7] = [
    "ip -br link",
    "ip -6 rule show",
    "ip -6 route show table all",
    "ip nexthop show",
    "ip -f mpls route show",
    "ip -s -6 neigh show",
    "tc -s qdisc show",
];
/// Lines of a log that a report has.
const LINES: usize = 60;
/// Logs that a report has.
const LOGS: usize = 24;

/// Ends of the logs of programs on nodes that faults of the run concern, and of all controllers.
pub fn logs(state: &StateDir, run: &Run) -> Vec<Log> {
    let concerned: Vec<&str> =
        run.faults.iter().flat_map(|fault| &fault.subjects).map(String::as_str).collect();
    let of_node = |node: &str| {
        concerned
            .iter()
            .any(|subject| subject.split(['/', ' ']).any(|w| w.split("--").any(|end| end == node)))
    };
    let mut logs = Vec::new();
    let folder = state.path().join("logs");
    let mut nodes: Vec<_> =
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    nodes.sort();
    for path in nodes {
        let node = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut files: Vec<_> =
            std::fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()).collect();
        files.sort();
        for file in files {
            let program = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !of_node(&node) && !program.starts_with("ebb-controller") {
                continue;
            }
            let bytes = std::fs::read(&file).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            let text = lines[lines.len().saturating_sub(LINES)..].join("\n");
            if !text.is_empty() && logs.len() < LOGS {
                logs.push(Log { node: node.clone(), program, text });
            }
        }
    }
    logs
}

/// Writes it all into a folder. What cannot be had is noted in its file instead.
pub async fn save(running: &Running, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let status = fetch_status(running).await?;
    std::fs::write(folder.join("status.json"), serde_json::to_vec_pretty(&status)?)?;
    let script = LOOKS.iter().fold(String::new(), |mut script, look| {
        let _ = writeln!(script, "echo '# {look}'; {look}");
        script
    });
    for node in &status.nodes {
        let text = output(running, &node.name, &["sh", "-c", &script]).await;
        let text = text.unwrap_or_else(|why| format!("{why:#}"));
        std::fs::write(folder.join(format!("kernel-{}.txt", node.name)), text)?;
    }
    for name in ["events.jsonl", "console.log"] {
        // a lab on this machine's own kernel has no console
        let _ = std::fs::copy(running.state.path().join(name), folder.join(name));
    }
    copy_tree(&running.state.path().join("logs"), &folder.join("logs"));
    Ok(())
}

async fn output(running: &Running, node: &str, argv: &[&str]) -> anyhow::Result<String> {
    let exec = Exec {
        node: node.to_owned(),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        cwd: None,
        tty: None,
        term: None,
    };
    let mut connection = Connection::open(&running.endpoint, &running.token, Request::Exec(exec)).await?;
    connection.send(&Input::Eof).await?;
    let mut text = Vec::new();
    loop {
        let frame = connection.next().await?.context("the lab closed the connection")?;
        match frame {
            Frame::Data(bytes) | Frame::Error(bytes) => text.extend_from_slice(&bytes),
            frame @ Frame::Json(_) => match frame.parse::<Reply>()? {
                Reply::Exited(_) | Reply::Done => return Ok(String::from_utf8_lossy(&text).into_owned()),
                Reply::Failed(failure) => return Err(failure.into()),
                _ => {}
            },
        }
    }
}

fn copy_tree(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else { return };
    let _ = std::fs::create_dir_all(to);
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            let _ = std::fs::copy(entry.path(), target);
        }
    }
}

//! A rollout of configuration: the program that does it, started on a host of the lab, and what it says.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use ebb::rollout::config::{RolloutConfig, Target};
use ebb::rollout::detect::Limits;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use topologies::lab::{Lab, Node, Role};

use super::exec::in_node;
use super::files::run_dir;
use super::reaper::Child;
use super::world::World;
use crate::api::frame;
use crate::api::protocol::RolloutOrder;
use crate::api::server::{Reader, Writer};
use crate::failure::{Code, Failure};

/// Name of the program and of its log.
const PROGRAM: &str = "ebb-rollout";
/// From one look at the network to the next, milliseconds.
const POLL_MS: u64 = 1_000;
/// Deadline of every question, milliseconds.
const ANSWER_MS: u64 = 2_000;
/// Time in which the network has to be as it was, milliseconds.
const RECOVER_MS: u64 = 300_000;

/// What the program is told.
fn config(lab: &Lab, order: &RolloutOrder, host: &Node) -> anyhow::Result<RolloutConfig> {
    let target = |name: &String| {
        let node = lab.node(name).filter(|n| n.role == Role::Router);
        let node = node.ok_or_else(|| {
            Failure::new(
                Code::Usage,
                format!("{name} is no router: only routers have a configuration of this kind"),
            )
        })?;
        anyhow::Ok(Target {
            name: name.clone(),
            plane: node.plane.unwrap_or(0),
            site: node.site_id,
            loopback: node.address,
        })
    };
    let config = RolloutConfig {
        writer: format!("{PROGRAM} on {}", host.name),
        comment: order.comment.clone(),
        site: host.site_id,
        routers: order.nodes.iter().map(target).collect::<Result<_, _>>()?,
        edits: order.edits.clone(),
        canary: order.canary,
        soak_ms: order.soak_ms,
        confirm_within_ms: order.confirm_within_ms,
        poll_ms: POLL_MS.min(order.soak_ms.max(100)),
        rpc_timeout_ms: ANSWER_MS,
        recover_within_ms: RECOVER_MS,
        limits: Limits::default(),
    };
    config.check().map_err(|why| Failure::new(Code::Usage, why))?;
    Ok(config)
}

/// The host that is meant, or the first one.
fn host<'a>(lab: &'a Lab, name: Option<&str>) -> anyhow::Result<&'a Node> {
    let found = match name {
        Some(name) => lab.hosts().find(|n| n.name == name),
        None => lab.hosts().next(),
    };
    found.ok_or_else(|| {
        let hosts: Vec<&str> = lab.hosts().map(|n| n.name.as_str()).collect();
        let name = name.unwrap_or_default();
        Failure::new(Code::Usage, format!("no host {name}"))
            .hint(format!("hosts: {}", hosts.join(", ")))
            .into()
    })
}

impl World {
    /// Rolls a change out; a document that says how it ended. A client that goes away ends the program: routers that wait
    /// for their confirmation go back by themselves.
    pub async fn rollout(
        &self,
        order: RolloutOrder,
        mut input: Reader,
        output: &Writer,
    ) -> anyhow::Result<Value> {
        let lab = self.lab()?;
        let host = host(&lab, order.from.as_deref())?;
        let config = config(&lab, &order, host)?;
        let path = run_dir(&host.name).join("rollout.json");
        std::fs::create_dir_all(run_dir(&host.name))?;
        std::fs::write(&path, serde_json::to_vec_pretty(&config)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let mut child = self.start(host, &path)?;
        let stdout = child.stdout.take().context("no pipe")?;
        let mut lines = BufReader::new(tokio::process::ChildStdout::from_std(stdout)?).lines();
        let mut end = Value::Null;
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line?,
                gone = frame::read(&mut input) => match gone {
                    Ok(Some(_)) => continue,
                    _ => {
                        child.signal(Signal::SIGTERM);
                        None
                    }
                },
            };
            let Some(line) = line else { break };
            let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
            let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
            let kind = text("kind");
            self.events.emit_at(
                said["at_ns"].as_u64().unwrap_or(0),
                &format!("rollout.{kind}"),
                &host.name,
                text("detail"),
            );
            output.progress(format!("{kind}: {}", text("detail"))).await?;
            if kind == "end" {
                end = said;
            }
        }
        let exit = child.exit.await.map_or_else(|_| "nobody knows how".to_owned(), |exit| exit.to_string());
        if end.is_null() {
            let log = self.state.log(&host.name, PROGRAM);
            let last = super::life::last_line(&log).unwrap_or_default();
            return Err(Failure::new(Code::Failed, format!("the rollout ended early ({exit}): {last}"))
                .hint("routers that were not told to keep the change go back by themselves: `testbed config show`")
                .into());
        }
        Ok(json!({
            "version": 1, "lab": lab.name, "from": host.name, "outcome": end["outcome"], "detail": end["detail"],
            "detected_ms": end["detected_ms"], "undone_ms": end["undone_ms"], "recovered_ms": end["recovered_ms"],
        }))
    }

    fn start(&self, host: &Node, config: &Path) -> anyhow::Result<Child> {
        let exe = std::env::current_exe().context("cannot find the testbed's own program file")?;
        let program = exe.with_file_name(PROGRAM);
        let log = self.state.log(&host.name, PROGRAM);
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let log = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(config).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        in_node(&mut command, &host.name, false)?;
        self.reaper.spawn(&mut command).with_context(|| format!("cannot run {}", program.display()))
    }
}

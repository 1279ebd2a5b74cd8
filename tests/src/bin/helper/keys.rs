//! A client of the key-agent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use router_emu::proto::key_agent_client::KeyAgentClient;
use router_emu::proto::{CircuitKeys, ListCircuitsRequest};
use router_emu::rpc::unix_channel;
use serde_json::json;
use tokio::time::Instant;
use tonic::transport::Channel;

use super::agent::wait;

/// Longest wait for a key to change.
const PATIENCE: Duration = Duration::from_secs(60);

async fn list(agent: &mut KeyAgentClient<Channel>) -> anyhow::Result<Vec<CircuitKeys>> {
    Ok(agent.list_circuits(ListCircuitsRequest {}).await?.into_inner().circuits)
}

/// Prints `[{"interface":…,"sends":…,"key":…,"rotations":…,"problem":…,"refused":…}]`.
pub fn show(socket: &str) -> anyhow::Result<()> {
    let circuits = wait(async { list(&mut KeyAgentClient::new(unix_channel(Path::new(socket)))).await })?;
    let circuit = |c: &CircuitKeys| {
        json!({
            "interface": c.interface, "sends": c.sends, "key": c.key, "rotations": c.rotations,
            "problem": c.problem, "refused": c.refused,
        })
    };
    println!("{}", json!(circuits.iter().map(circuit).collect::<Vec<_>>()));
    Ok(())
}

/// Kills the process as soon as a key of its router is offered (prints `offered`) or has just changed (`changed`).
pub fn kill_at_change(socket: &str, pid: &str) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid.parse().context("a process is a number")?);
    wait(async {
        let mut agent = KeyAgentClient::new(unix_channel(Path::new(socket)));
        let sum = |all: &[CircuitKeys]| all.iter().map(|c| c.rotations).sum::<u64>();
        let before = sum(&list(&mut agent).await?);
        let began = Instant::now();
        loop {
            ensure!(began.elapsed() < PATIENCE, "no key changed within {PATIENCE:?}");
            let now = list(&mut agent).await?;
            let offered = now.iter().any(|c| c.sends && c.offers);
            if offered || sum(&now) != before {
                kill(pid, Signal::SIGKILL).context("kill")?;
                println!("{}", if offered { "offered" } else { "changed" });
                return Ok(());
            }
        }
    })
}

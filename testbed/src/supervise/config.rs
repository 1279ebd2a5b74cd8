//! Configurations of routers: what their config-agents are asked and told, out of band.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::{join_all, try_join_all};
use router_emu::config_agent::edit::Edit;
use router_emu::proto::config_agent_client::ConfigAgentClient;
use router_emu::proto::{
    ConfigState, ConfirmConfigRequest, GetConfigRequest, PushConfigRequest, RollbackConfigRequest,
};
use router_emu::rpc::{RPC_TIMEOUT, unix_channel};
use serde_json::{Value, json};
use tonic::Status;
use tonic::transport::Channel;
use topologies::lab::{Lab, Role};

use super::files::run_dir;
use crate::api::protocol::{ConfigChange, ConfigOrder, ConfigVerb};
use crate::api::server::Writer;
use crate::failure::{Code, Failure};

/// Who we are in the routers' histories.
const WRITER: &str = "testbed";
/// Longest wait for the agents of a router to take a configuration over.
const SETTLE: Duration = Duration::from_secs(15);

fn agent(node: &str) -> ConfigAgentClient<Channel> {
    ConfigAgentClient::new(unix_channel(run_dir(node).join("config-agent.sock")))
}

/// What a router's config-agent says; `version` 0 means the running one.
///
/// # Errors
/// It does not answer, or has no such version.
pub async fn state(node: &str, version: u64) -> Result<ConfigState, Status> {
    Ok(agent(node).get_config(GetConfigRequest { version }).await?.into_inner())
}

/// What an agent refused, as people should read it.
fn refused(node: &str, status: &Status) -> Failure {
    let code = if status.code() == tonic::Code::InvalidArgument { Code::Usage } else { Code::Failed };
    let lines: Vec<&str> = status.message().lines().collect();
    let failure = Failure::new(code, format!("{node}: {}", lines.join(&format!("\n{node}: "))));
    match status.code() {
        tonic::Code::Unavailable => {
            failure.hint(format!("`testbed logs {node}/config-agent` shows what it says"))
        }
        _ => failure,
    }
}

/// Asks all routers at once; the answers in their order.
async fn ask<F>(nodes: &[String], call: impl Fn(String) -> F) -> anyhow::Result<Vec<ConfigState>>
where
    F: Future<Output = Result<ConfigState, Status>>,
{
    let each = nodes.iter().map(|node| {
        let answer = call(node.clone());
        async move {
            let late = || Failure::new(Code::TimedOut, format!("{node}: its config-agent did not answer"));
            match tokio::time::timeout(RPC_TIMEOUT, answer).await {
                Ok(Ok(state)) => Ok(state),
                Ok(Err(status)) => Err(anyhow::Error::from(refused(node, &status))),
                Err(_) => Err(late().into()),
            }
        }
    });
    // all are asked, and the first that failed is told
    join_all(each).await.into_iter().collect()
}

/// Carries an order out; a document with what each router says afterwards.
///
/// # Errors
/// A node that is no router, or a router that refuses or does not answer.
pub async fn carry_out(lab: &Lab, order: ConfigOrder, output: &Writer) -> anyhow::Result<Value> {
    let nodes = order.nodes;
    for name in &nodes {
        let node = lab.node(name).with_context(|| format!("no node {name}"))?;
        if node.role != Role::Router {
            let message = format!("{name} is no router: only routers have a configuration of this kind");
            return Err(Failure::new(Code::Usage, message).hint("`role:router` means all routers").into());
        }
    }
    let mut version = 0;
    match order.verb {
        ConfigVerb::Show { version: wanted } => version = wanted,
        ConfigVerb::Push { change, confirm_within_ms, comment, check_only } => {
            push(&nodes, &change, (confirm_within_ms, &comment, check_only), output).await?;
        }
        ConfigVerb::Confirm => {
            ask(&nodes, |node| async move {
                let version = state(&node, 0).await?.running;
                let request = ConfirmConfigRequest { version, writer: WRITER.to_owned() };
                Ok(agent(&node).confirm_config(request).await?.into_inner())
            })
            .await?;
        }
        ConfigVerb::Rollback { to } => {
            ask(&nodes, |node| async move {
                let request = RollbackConfigRequest { to_version: to, writer: WRITER.to_owned() };
                Ok(agent(&node).rollback_config(request).await?.into_inner())
            })
            .await?;
            settled(&nodes, output).await?;
        }
    }
    let states = ask(&nodes, |node| async move { state(&node, version).await }).await?;
    Ok(json!({"version": 1, "lab": lab.name, "routers": states.iter().map(document).collect::<Vec<_>>()}))
}

/// Has every router check its new configuration; if none objects, all are told to run it.
async fn push(
    nodes: &[String],
    change: &ConfigChange,
    (confirm_within_ms, comment, check_only): (u64, &str, bool),
    output: &Writer,
) -> anyhow::Result<()> {
    let requests = try_join_all(nodes.iter().map(|node| async move {
        let state = state(node, 0).await.map_err(|status| refused(node, &status))?;
        let config_json = match change {
            ConfigChange::Whole(text) => text.clone(),
            ConfigChange::Edits(edits) => edited(node, &state.config_json, edits)?,
        };
        anyhow::Ok(PushConfigRequest {
            config_json,
            writer: WRITER.to_owned(),
            comment: comment.to_owned(),
            expect_version: state.running,
            confirm_within_ms,
            check_only: true,
        })
    }))
    .await?;
    output.progress(format!("{} routers check", nodes.len())).await?;
    let request =
        |node: &String| nodes.iter().zip(&requests).find(|(n, _)| *n == node).map(|(_, r)| r.clone());
    let send = |check_only: bool| {
        move |node: String| {
            let request = request(&node).unwrap_or_default();
            async move {
                let request = PushConfigRequest { check_only, ..request };
                Ok(agent(&node).push_config(request).await?.into_inner())
            }
        }
    };
    ask(nodes, send(true)).await?;
    if !check_only {
        ask(nodes, send(false)).await?;
        settled(nodes, output).await?;
    }
    Ok(())
}

fn edited(node: &str, text: &str, edits: &[Edit]) -> anyhow::Result<String> {
    let mut config: Value = serde_json::from_str(text).context("a config-agent sent no JSON")?;
    for edit in edits {
        edit.apply(&mut config).map_err(|why| Failure::new(Code::Usage, format!("{node}: {why}")))?;
    }
    Ok(config.to_string())
}

/// Waits until the agents of all routers have taken over what runs.
async fn settled(nodes: &[String], output: &Writer) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let states = ask(nodes, |node| async move { state(&node, 0).await }).await?;
        let Some(state) = states.iter().find(|state| !state.settled) else { return Ok(()) };
        let text = format!("{}: version {}: {}", state.node, state.running, state.problem);
        if began.elapsed() > SETTLE {
            return Err(Failure::new(Code::TimedOut, format!("{text} after {SETTLE:?}"))
                .hint(format!("`testbed logs {}` shows what its agents say", state.node))
                .into());
        }
        output.progress(text).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A config-agent's answer as a document.
fn document(state: &ConfigState) -> Value {
    let history: Vec<Value> = state
        .history
        .iter()
        .map(|v| {
            json!({"version": v.version, "writer": v.writer, "comment": v.comment, "unix_ms": v.at_unix_ms,
                   "hash": v.hash, "fate": v.fate})
        })
        .collect();
    json!({
        "node": state.node, "running": state.running, "hash": state.hash,
        "unconfirmed": (state.unconfirmed > 0).then_some(state.unconfirmed),
        "confirm_left_ms": (state.unconfirmed > 0).then_some(state.confirm_left_ms),
        "settled": state.settled, "problem": state.problem, "shut": state.shut, "history": history,
        "config": serde_json::from_str::<Value>(&state.config_json).unwrap_or_default(),
    })
}

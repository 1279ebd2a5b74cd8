//! What the lsp-agents did by themselves, told as the lab's events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use router_emu::proto::WatchEventsRequest;
use router_emu::proto::lsp_agent_client::LspAgentClient;
use router_emu::rpc::unix_channel;
use tokio::task::JoinHandle;
use topologies::lab::{Lab, ProgramKind};

use super::events::Events;
use super::files::run_dir;
use crate::figures::short;

/// One watcher per router.
#[derive(Default)]
pub struct Watchers(Mutex<BTreeMap<String, JoinHandle<()>>>);

impl Watchers {
    /// Watches exactly the lab's routers.
    pub fn converge(&self, lab: &Lab, events: &Arc<Events>) {
        let mut watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_agent =
            |name: &str| lab.node(name).is_some_and(|n| n.programs.contains(&ProgramKind::LspAgent));
        watchers.retain(|node, task| {
            let keep = has_agent(node);
            if !keep {
                task.abort();
            }
            keep
        });
        for node in lab.nodes.iter().filter(|n| n.programs.contains(&ProgramKind::LspAgent)) {
            let events = Arc::clone(events);
            watchers
                .entry(node.name.clone())
                .or_insert_with(|| tokio::spawn(watch(node.name.clone(), events)));
        }
    }
}

async fn watch(node: String, events: Arc<Events>) {
    // the agent tells its last events first at every connection: those already told are passed over
    let mut told = 0;
    loop {
        let mut agent = LspAgentClient::new(unix_channel(run_dir(&node).join("lsp-agent.sock")));
        if let Ok(stream) = agent.watch_events(WatchEventsRequest {}).await {
            let mut stream = stream.into_inner();
            while let Some(Ok(event)) = stream.next().await {
                // "programmed" comes with every controller cycle: counters and `cycle` tell that better
                if event.at_ns > told && event.kind != "programmed" {
                    let took = short(Duration::from_nanos(event.took_ns));
                    let took = if event.took_ns == 0 { String::new() } else { format!(", took {took}") };
                    let detail = format!("{} ({} bundles{took})", event.detail, event.sids);
                    events.emit_at(event.at_ns, &format!("lsp.{}", event.kind), &node, detail);
                }
                told = told.max(event.at_ns);
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

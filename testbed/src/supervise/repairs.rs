//! What the routers' agents did by themselves, told as the lab's events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use router_emu::proto::config_agent_client::ConfigAgentClient;
use router_emu::proto::lsp_agent_client::LspAgentClient;
use router_emu::proto::{AgentEvent, WatchEventsRequest};
use router_emu::rpc::unix_channel;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::{Response, Status, Streaming};
use topologies::lab::{Lab, ProgramKind};

use super::events::Events;
use super::files::run_dir;
use crate::figures::short;

/// Agents that tell what they do by themselves, with the first word of their events.
const TELLERS: [(ProgramKind, &str); 2] =
    [(ProgramKind::LspAgent, "lsp"), (ProgramKind::ConfigAgent, "config")];

/// One watcher per router and agent.
#[derive(Default)]
pub struct Watchers {
    tasks: Mutex<BTreeMap<(String, &'static str), JoinHandle<()>>>,
    wires: Arc<Notify>,
}

impl Watchers {
    /// Watches exactly the lab's agents.
    pub fn converge(&self, lab: &Lab, events: &Arc<Events>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = BTreeMap::new();
        for node in &lab.nodes {
            for (kind, word) in TELLERS.iter().filter(|(kind, _)| node.programs.contains(kind)) {
                wanted.insert((node.name.clone(), *word), *kind);
            }
        }
        tasks.retain(|key, task| {
            let keep = wanted.contains_key(key);
            if !keep {
                task.abort();
            }
            keep
        });
        for ((node, word), kind) in wanted {
            let (events, wires) = (Arc::clone(events), Arc::clone(&self.wires));
            tasks
                .entry((node.clone(), word))
                .or_insert_with(|| tokio::spawn(watch(node, kind, word, events, wires)));
        }
    }

    /// Waits until a router says that it has taken an interface down or up.
    pub async fn wires_changed(&self) {
        self.wires.notified().await;
    }
}

async fn subscribe(node: &str, kind: ProgramKind) -> Result<Response<Streaming<AgentEvent>>, Status> {
    let dir = run_dir(node);
    if kind == ProgramKind::ConfigAgent {
        let mut agent = ConfigAgentClient::new(unix_channel(dir.join("config-agent.sock")));
        agent.watch_events(WatchEventsRequest {}).await
    } else {
        let mut agent = LspAgentClient::new(unix_channel(dir.join("lsp-agent.sock")));
        agent.watch_events(WatchEventsRequest {}).await
    }
}

async fn watch(node: String, kind: ProgramKind, word: &str, events: Arc<Events>, wires: Arc<Notify>) {
    // the agent tells its last events first at every connection: those already told are passed over
    let mut seen = 0;
    loop {
        if let Ok(stream) = subscribe(&node, kind).await {
            let mut stream = stream.into_inner();
            while let Some(Ok(event)) = stream.next().await {
                if event.at_ns > seen {
                    seen = event.at_ns;
                    tell(&events, &node, word, &event);
                    if event.kind == "interface" {
                        wires.notify_one();
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn tell(events: &Events, node: &str, word: &str, event: &AgentEvent) {
    let detail = match (word, event.kind.as_str()) {
        // comes with every controller cycle: counters and `cycle` tell that better
        ("lsp", "programmed") => return,
        ("lsp", _) => {
            let took = short(Duration::from_nanos(event.took_ns));
            let took = if event.took_ns == 0 { String::new() } else { format!(", took {took}") };
            format!("{} ({} bundles{took})", event.detail, event.sids)
        }
        _ => event.detail.clone(),
    };
    events.emit_at(event.at_ns, &format!("{word}.{}", event.kind), node, detail);
}

//! A client of the lsp-agent and of openr, over their unix sockets.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use prost::Message as _;
use router_emu::proto::lsp_agent_client::LspAgentClient;
use router_emu::proto::nhg_tm_client::NhgTmClient;
use router_emu::proto::openr_ctrl_client::OpenrCtrlClient;
use router_emu::proto::{
    AdjacencyDatabase, Bundle, Demand, DumpBundlesReply, DumpBundlesRequest, DumpRequest, GetCountersRequest,
    GetMatrixRequest, GetNeighborsRequest, Phase, ProgramBundleRequest, WatchEventsRequest,
};
use router_emu::rpc::unix_channel;
use serde_json::json;

/// Silence after which all of the past has been told.
const QUIET: Duration = Duration::from_millis(400);

/// Runs a client's work.
pub fn wait<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn dump(socket: &str) -> anyhow::Result<DumpBundlesReply> {
    let mut agent = LspAgentClient::new(unix_channel(Path::new(socket)));
    let reply = agent.dump_bundles(DumpBundlesRequest { with_paths: false }).await;
    Ok(reply.with_context(|| format!("DumpBundles of {socket}"))?.into_inner())
}

/// Prints `{"epoch":…,"bundles":[{"sid":…,"source":…,"transit":…,"live":…,"wanted":…,"programmed":…,"on_backup":…}]}`.
pub fn bundles(socket: &str) -> anyhow::Result<()> {
    let reply = wait(dump(socket))?;
    let bundles: Vec<_> = reply
        .bundles
        .iter()
        .map(|b| {
            json!({
                "sid": b.bundle.as_ref().map_or(0, |b| b.sid), "source": b.is_source, "transit": b.is_transit,
                "live": b.live, "wanted": b.wanted, "programmed": b.programmed, "on_backup": b.on_backup,
            })
        })
        .collect();
    println!("{}", json!({"epoch": reply.epoch, "bundles": bundles}));
    Ok(())
}

/// Prints `[{"sid":…,"slot":…,"backup":…,"packets":…}]`.
pub fn counters(socket: &str) -> anyhow::Result<()> {
    let reply = wait(async {
        let mut agent = LspAgentClient::new(unix_channel(Path::new(socket)));
        Ok(agent.get_counters(GetCountersRequest {}).await?.into_inner())
    })?;
    let counters: Vec<_> = reply
        .counters
        .iter()
        .map(|c| json!({"sid": c.sid, "slot": c.slot, "backup": c.backup, "packets": c.packets}))
        .collect();
    println!("{}", json!(counters));
    Ok(())
}

/// Prints the traffic matrix of nhg-tm: `[{"src":…,"dst":…,"mesh":…,"bps":…}]`, sites by id, meshes by code.
pub fn matrix(socket: &str) -> anyhow::Result<()> {
    let reply = wait(async {
        let mut service = NhgTmClient::new(unix_channel(Path::new(socket)));
        Ok(service.get_matrix(GetMatrixRequest {}).await?.into_inner())
    })?;
    let demand = |d: &Demand| json!({"src": d.src_site, "dst": d.dst_site, "mesh": d.mesh, "bps": d.bps});
    println!("{}", json!(reply.demands.iter().map(demand).collect::<Vec<_>>()));
    Ok(())
}

/// Prints the events that the agent remembers: `[{"at_ns":…,"kind":…,"detail":…}]`.
pub fn events(socket: &str) -> anyhow::Result<()> {
    let events = wait(async {
        let mut agent = LspAgentClient::new(unix_channel(Path::new(socket)));
        let mut stream = agent.watch_events(WatchEventsRequest {}).await?.into_inner();
        let mut events = Vec::new();
        // those of the past come at once; after them nothing may come for a long time
        while let Ok(event) = tokio::time::timeout(QUIET, stream.message()).await {
            let Some(event) = event? else { break };
            events.push(json!({"at_ns": event.at_ns, "kind": event.kind, "detail": event.detail}));
        }
        Ok(events)
    })?;
    println!("{}", json!(events));
    Ok(())
}

/// Writes nothing with the given epoch, and prints what the agent says to that.
pub fn stale(socket: &str, epoch: &str) -> anyhow::Result<()> {
    let epoch = epoch.parse().context("an epoch is a number")?;
    let answer = wait(async {
        let mut agent = LspAgentClient::new(unix_channel(Path::new(socket)));
        let writer = "a leader of the past".to_owned();
        let request =
            ProgramBundleRequest { epoch, writer, phase: Phase::Retire.into(), bundles: Vec::new() };
        Ok(agent.program_bundle(request).await)
    })?;
    match answer {
        Ok(_) => println!("accepted"),
        Err(status) => println!("{:?}: {}", status.code(), status.message()),
    }
    Ok(())
}

/// Prints `[{"interface":…,"node":…,"state":…,"rtt_us":…,"held_ms":…}]`.
pub fn neighbors(socket: &str) -> anyhow::Result<()> {
    let reply = wait(async {
        let mut openr = OpenrCtrlClient::new(unix_channel(Path::new(socket)));
        Ok(openr.get_neighbors(GetNeighborsRequest {}).await?.into_inner())
    })?;
    let neighbors: Vec<_> = reply
        .neighbors
        .iter()
        .map(|n| {
            json!({
                "interface": n.interface, "node": n.node, "state": n.state, "rtt_us": n.rtt_us, "held_ms": n.held_ms,
            })
        })
        .collect();
    println!("{}", json!(neighbors));
    Ok(())
}

/// Deletes bundles, with the agent's own epoch.
pub fn delete(socket: &str, sids: &[&str]) -> anyhow::Result<()> {
    let sids: Vec<u32> =
        sids.iter().map(|s| s.parse()).collect::<Result<_, _>>().context("a SID is a number")?;
    let reply = wait(async {
        let epoch = dump(socket).await?.epoch;
        let mut agent = LspAgentClient::new(unix_channel(Path::new(socket)));
        let request = ProgramBundleRequest {
            epoch,
            writer: "e2e".into(),
            phase: Phase::Delete.into(),
            bundles: sids.iter().map(|sid| Bundle { sid: *sid, lsps: Vec::new() }).collect(),
        };
        Ok(agent.program_bundle(request).await?.into_inner())
    })?;
    for result in &reply.results {
        if !result.ok {
            bail!("bundle {} was not deleted: {}", result.sid, result.error);
        }
    }
    Ok(())
}

/// Prints what a router announces of its links: `[{"interface":…,"neighbor":…,"capacity_bps":…}]`.
pub fn adjacencies(socket: &str, router: &str) -> anyhow::Result<()> {
    let publication = wait(async {
        let mut openr = OpenrCtrlClient::new(unix_channel(Path::new(socket)));
        Ok(openr.dump(DumpRequest { key_prefix: format!("adj:{router}") }).await?.into_inner())
    })?;
    let value = publication.values.first().context("the router announces nothing")?;
    let database = AdjacencyDatabase::decode(value.value.as_slice())?;
    let adjacencies: Vec<_> = database
        .adjacencies
        .iter()
        .map(|a| json!({"interface": a.interface, "neighbor": a.neighbor, "capacity_bps": a.capacity_bps}))
        .collect();
    println!("{}", json!(adjacencies));
    Ok(())
}

//! The traffic-matrix service of one EBB plane.

use std::time::Duration;

use ebb::grpc::GrpcAgents;
use ebb::nhg_tm::{NhgTmConfig, Service};
use ebb::program;
use router_emu::{agent, rpc};
use tonic::transport::Server;

fn main() -> anyhow::Result<()> {
    let file = program::start(
        "Traffic matrix of one EBB plane: polls the routers' counters, smooths them, serves demands",
    );
    let config = NhgTmConfig::load(&file)?;
    agent::run(run(config))
}

async fn run(config: NhgTmConfig) -> anyhow::Result<()> {
    let stop = agent::stop_signal()?;
    std::fs::create_dir_all(&config.run_dir)
        .map_err(|e| anyhow::anyhow!("cannot make the folder {}: {e}", config.run_dir.display()))?;
    let agents = GrpcAgents::new(&config.routers, Duration::from_millis(config.rpc_timeout_ms));
    let service = Service::new(&config);
    let socket = config.socket();
    let served = service.clone();
    let make = move || Server::builder().add_service(served.clone().into_server());
    tokio::select! {
        () = stop.clone() => {}
        () = service.poll(&config, &agents) => {}
        served = rpc::serve(make, config.port(), &socket, stop) => served?,
    }
    Ok(())
}

//! The controller of one EBB plane.

use std::time::Duration;

use ebb::config::{ControllerConfig, LockConfig};
use ebb::controller::Controller;
use ebb::drains::Drains;
use ebb::fence::etcd::Etcd;
use ebb::fence::{FileLock, LeasedLock, Lock};
use ebb::grpc::GrpcAgents;
use ebb::program;
use ebb::service::Service;
use ebb::stats::StatsSink;
use router_emu::{agent, rpc};
use tokio::sync::mpsc;
use tonic::transport::Server;

/// Requests for cycles that may wait.
const WAITING: usize = 8;

fn main() -> anyhow::Result<()> {
    let file =
        program::start("Controller of one EBB plane: snapshot, traffic engineering, programming, in cycles");
    let config = ControllerConfig::load(&file)?;
    agent::run(control(config))
}

async fn control(config: ControllerConfig) -> anyhow::Result<()> {
    let ms = Duration::from_millis;
    match &config.lock {
        LockConfig::Embedded => {
            let lock = FileLock::new(&config.plane_dir);
            serve(config, lock).await
        }
        LockConfig::Etcd { endpoints, lease_ms, margin_ms, timeout_ms } => {
            let etcd = Etcd::new(endpoints.clone(), config.plane, &config.name, ms(*timeout_ms));
            let lock = LeasedLock::start(etcd, ms(*lease_ms), ms(*margin_ms))?;
            serve(config, lock).await
        }
    }
}

async fn serve(config: ControllerConfig, lock: impl Lock) -> anyhow::Result<()> {
    let stop = agent::stop_signal()?;
    for folder in [&config.state_dir, &config.run_dir, &config.plane_dir] {
        std::fs::create_dir_all(folder)
            .map_err(|e| anyhow::anyhow!("cannot make the folder {}: {e}", folder.display()))?;
    }
    let sink = StatsSink::to_file(config.stats())?;
    let (port, socket) = (config.port(), config.socket());
    let agents = GrpcAgents::new(&config.routers, config.rpc_timeout()).with_matrix(config.matrix);
    let drains = Drains::open(&config.plane_dir.join("drains.db"))?;
    let controller = Controller::new(config, agents, lock, sink, drains.clone());
    let (requests, asked) = mpsc::channel(WAITING);
    let service = Service::new(controller.shared(), requests, drains);
    let make = move || Server::builder().add_service(service.clone().into_server());
    tokio::select! {
        // a cycle that is cut short leaves every bundle with one complete version, and the next leader cleans up
        () = stop.clone() => {}
        ended = controller.run(asked) => ended?,
        served = rpc::serve(make, port, &socket, stop) => served?,
    }
    tracing::info!("ended; routers keep forwarding");
    Ok(())
}

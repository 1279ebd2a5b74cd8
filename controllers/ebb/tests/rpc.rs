//! The same cycle over real gRPC, on unix sockets: agents served from routers in memory, and the controller's own RPC.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use common::{FakeLock, FakePlane, config, ring};
use ebb::agents::{AgentError, Agents, Answer};
use ebb::controller::Controller;
use ebb::drains::Drains;
use ebb::grpc::{GrpcAgents, NHG_TM, Reach};
use ebb::nhg_tm::{NhgTmConfig, Service as TrafficService};
use ebb::service::Service;
use ebb::stats::StatsSink;
use ebb::traffic::Scale;
use router_emu::proto::{
    self, ebb_controller_client::EbbControllerClient, lsp_agent_server as lsp, openr_ctrl_server as openr,
    route_agent_server as route,
};
use router_emu::rpc::unix_channel;
use tokio::net::UnixListener;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

/// One router's agents, answered by the plane in memory.
#[derive(Clone)]
struct Served {
    plane: FakePlane,
    router: String,
}

fn status(e: AgentError) -> Status {
    match e {
        AgentError::Fenced { message, .. } => Status::failed_precondition(message),
        AgentError::Silent { message, .. } => Status::unavailable(message),
        AgentError::Refused { message, .. } => Status::internal(message),
        AgentError::Lapsed { .. } => Status::cancelled("not sent"),
    }
}

#[tonic::async_trait]
impl openr::OpenrCtrl for Served {
    type SubscribeStream = ReceiverStream<Result<proto::Publication, Status>>;
    async fn subscribe(
        &self,
        _: Request<proto::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        Err(Status::unimplemented("not part of this test"))
    }
    async fn dump(
        &self,
        request: Request<proto::DumpRequest>,
    ) -> Result<Response<proto::Publication>, Status> {
        assert_eq!(request.into_inner().key_prefix, "adj:");
        let values = self.plane.store(&self.router).await.map_err(status)?;
        Ok(Response::new(proto::Publication { snapshot: true, values, expired: vec![] }))
    }
    async fn get_neighbors(
        &self,
        _: Request<proto::GetNeighborsRequest>,
    ) -> Result<Response<proto::GetNeighborsReply>, Status> {
        Err(Status::unimplemented("not part of this test"))
    }
    async fn set_drain(
        &self,
        _: Request<proto::SetDrainRequest>,
    ) -> Result<Response<proto::SetDrainReply>, Status> {
        Err(Status::unimplemented("not part of this test"))
    }
    async fn reload_config(
        &self,
        _: Request<proto::ReloadConfigRequest>,
    ) -> Result<Response<proto::ReloadConfigReply>, Status> {
        Err(Status::unimplemented("not part of this test"))
    }
}

#[tonic::async_trait]
impl lsp::LspAgent for Served {
    type WatchEventsStream = ReceiverStream<Result<proto::AgentEvent, Status>>;
    async fn program_bundle(
        &self,
        request: Request<proto::ProgramBundleRequest>,
    ) -> Result<Response<proto::ProgramBundleReply>, Status> {
        let results = self.plane.program(&self.router, request.into_inner()).await.map_err(status)?;
        Ok(Response::new(proto::ProgramBundleReply { results }))
    }
    async fn dump_bundles(
        &self,
        request: Request<proto::DumpBundlesRequest>,
    ) -> Result<Response<proto::DumpBundlesReply>, Status> {
        let reply = self.plane.bundles(&self.router, request.into_inner().with_paths).await;
        reply.map(Response::new).map_err(status)
    }
    async fn get_counters(
        &self,
        _: Request<proto::GetCountersRequest>,
    ) -> Result<Response<proto::GetCountersReply>, Status> {
        Err(Status::unimplemented("not part of this test"))
    }
    async fn watch_events(
        &self,
        _: Request<proto::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        Err(Status::unimplemented("not part of this test"))
    }
}

#[tonic::async_trait]
impl route::RouteAgent for Served {
    async fn program_map(
        &self,
        request: Request<proto::ProgramMapRequest>,
    ) -> Result<Response<proto::ProgramMapReply>, Status> {
        self.plane.program_map(&self.router, request.into_inner()).await.map_err(status)?;
        Ok(Response::new(proto::ProgramMapReply {}))
    }
    async fn dump_routes(
        &self,
        _: Request<proto::DumpRoutesRequest>,
    ) -> Result<Response<proto::DumpRoutesReply>, Status> {
        self.plane.map(&self.router).await.map(Response::new).map_err(status)
    }
    async fn get_traffic(
        &self,
        _: Request<proto::GetTrafficRequest>,
    ) -> Result<Response<proto::GetTrafficReply>, Status> {
        Ok(Response::new(self.plane.lock().routers[&self.router].traffic.clone()))
    }
}

fn serve(path: &Path, router: Router) -> tokio::task::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move { router.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap() })
}

/// Serves all agents of all routers below `dir`.
fn serve_plane(dir: &Path, plane: &FakePlane, routers: &[String]) -> BTreeMap<String, Reach> {
    let mut reach = BTreeMap::new();
    for router in routers {
        let folder = dir.join(router);
        std::fs::create_dir(&folder).unwrap();
        let s = Served { plane: plane.clone(), router: router.clone() };
        serve(
            &folder.join("openr.sock"),
            Server::builder().add_service(openr::OpenrCtrlServer::new(s.clone())),
        );
        serve(
            &folder.join("lsp-agent.sock"),
            Server::builder().add_service(lsp::LspAgentServer::new(s.clone())),
        );
        serve(
            &folder.join("route-agent.sock"),
            Server::builder().add_service(route::RouteAgentServer::new(s)),
        );
        reach.insert(router.clone(), Reach::Sockets(folder));
    }
    reach
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn cycles_and_the_controllers_own_rpc() {
    block_on(async {
        let c = config(10, 5);
        let plane = FakePlane::new(&c, ring(10, &[]));
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = c.routers.iter().map(|r| r.name.clone()).collect();
        let reach = serve_plane(dir.path(), &plane, &names);
        let agents = GrpcAgents::with_reach(reach, Duration::from_secs(10));
        let drains = Drains::in_memory().unwrap();
        let ctl = Controller::new(c, agents, FakeLock::default(), StatsSink::none(), drains.clone());
        let (requests, asked) = tokio::sync::mpsc::channel(4);
        let service = Service::new(ctl.shared(), requests, drains);
        let socket = dir.path().join("ebb-controller.sock");
        let server = serve(&socket, Server::builder().add_service(service.into_server()));
        let running = tokio::spawn(ctl.run(asked));

        let mut client = EbbControllerClient::new(unix_channel(&socket));
        let idle = client.get_state(proto::GetStateRequest { with_mesh: true }).await.unwrap().into_inner();
        assert_eq!((idle.plane, idle.cycle), (1, 0));
        let state = client.run_cycle(proto::RunCycleRequest { with_mesh: true }).await.unwrap().into_inner();
        assert_eq!((state.cycle, state.pairs_ok, state.pairs_failed), (1, 6, 0), "{:?}", state.errors);
        assert_eq!((state.mesh.len(), state.demands.len()), (6, 6));
        assert_eq!(plane.leftovers(), Vec::<String>::new());
        plane.take_writes();
        let state = client.run_cycle(proto::RunCycleRequest { with_mesh: false }).await.unwrap().into_inner();
        assert_eq!((state.cycle, state.pairs_ok, state.mesh.len()), (2, 6, 0));
        assert!(plane.take_writes().is_empty());

        let row = proto::DrainRow {
            router: names[0].clone(),
            mode: proto::DrainMode::Avoid.into(),
            ..Default::default()
        };
        let reply = client.drain(proto::DrainRequest { rows: vec![row] }).await.unwrap().into_inner();
        assert_eq!((reply.rows.len(), &reply.rows[0].router), (1, &names[0]));
        let state = client.run_cycle(proto::RunCycleRequest { with_mesh: false }).await.unwrap().into_inner();
        assert_eq!(state.drains, reply.rows);
        let nameless = proto::DrainRequest { rows: vec![proto::DrainRow::default()] };
        assert_eq!(client.drain(nameless).await.unwrap_err().code(), tonic::Code::InvalidArgument);
        server.abort();
        running.abort();
    });
}

#[test]
fn errors_are_told_apart() {
    block_on(async {
        let c = config(3, 1);
        let plane = FakePlane::new(&c, ring(3, &[]));
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = c.routers.iter().take(1).map(|r| r.name.clone()).collect();
        let mut reach = serve_plane(dir.path(), &plane, &names);
        // a router that listens and never answers, and one that is not there
        let deaf = dir.path().join("deaf");
        std::fs::create_dir(&deaf).unwrap();
        let _listener = UnixListener::bind(deaf.join("lsp-agent.sock")).unwrap();
        reach.insert("deaf".into(), Reach::Sockets(deaf));
        reach.insert("gone".into(), Reach::Sockets(dir.path().join("gone")));
        let agents = GrpcAgents::with_reach(reach, Duration::from_millis(100));

        assert!(agents.bundles(&names[0], true).await.is_ok());
        let silent = agents.bundles("deaf", false).await.unwrap_err();
        assert_eq!(
            silent.to_string(),
            "deaf: DumpBundles was not answered: no answer in 100 ms; tried again next cycle"
        );
        assert!(matches!(agents.bundles("gone", false).await, Err(AgentError::Silent { .. })));
        assert!(matches!(agents.bundles("unheard of", false).await, Err(AgentError::Refused { .. })));
        plane.lock().routers.get_mut(&names[0]).unwrap().epoch = 9;
        let old = proto::ProgramBundleRequest { epoch: 8, ..Default::default() };
        assert!(matches!(agents.program(&names[0], old).await, Err(AgentError::Fenced { .. })));
    });
}

/// Input: counters that grow; then the service dead, then hung. Output: demands of a cycle are what was counted, once the service
/// has seen it; without the service they stay what they were, and the cycle says so; nothing fails.
#[test]
fn the_traffic_matrix_is_a_service_that_may_be_dead_or_hung() {
    block_on(async {
        let c = config(10, 5);
        let plane = FakePlane::new(&c, ring(10, &[]));
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = c.routers.iter().map(|r| r.name.clone()).collect();
        let mut reach = serve_plane(dir.path(), &plane, &names);
        let tm = NhgTmConfig {
            plane: 1,
            routers: c.routers.clone(),
            poll_ms: 5,
            scale: Scale { bandwidth_divisor: 1000, sample_percent: 100 },
            rpc_timeout_ms: 2_000,
            run_dir: dir.path().to_owned(),
        };
        let service = TrafficService::new(&tm);
        // dies whole, with its connections, as a process does
        let process =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let served = service.clone();
        let polled = reach.clone();
        let socket = tm.socket();
        let listens = socket.clone();
        process.spawn(async move {
            serve(&listens, Server::builder().add_service(served.into_server()));
            service.poll(&tm, &GrpcAgents::with_reach(polled, Duration::from_secs(2))).await;
        });
        reach.insert(NHG_TM.into(), Reach::Sockets(dir.path().to_owned()));
        let agents = GrpcAgents::with_reach(reach, Duration::from_secs(2));
        let count = |at_ns: u64, bytes: u64| {
            let counter = proto::TrafficCounter { dst_site: 6, mesh: 2, bytes, packets: 0 };
            let reply = proto::GetTrafficReply { at_ns, counters: vec![counter] };
            plane.lock().routers.get_mut(&names[0]).unwrap().traffic = reply;
        };
        count(1_000_000_000, 500);
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let mut seconds = 1;
        // not there at first
        let known = |answer: Answer<Option<proto::GetMatrixReply>>| {
            answer.ok().flatten().is_some_and(|m| m.demands.iter().any(|d| d.bps == 8_000_000))
        };
        while !known(agents.matrix().await) {
            assert!(std::time::Instant::now() < until, "{:?}", agents.matrix().await);
            // grows by 1000 bytes a second by the router's own clock
            seconds += 1;
            count(seconds * 1_000_000_000, 500 + seconds * 1000);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (sink, drains) = (StatsSink::none(), Drains::in_memory().unwrap());
        let mut ctl = Controller::new(c, agents, FakeLock::default(), sink, drains);
        let gold = |state: &proto::ControllerState| {
            let of = |d: &&proto::Demand| (d.src_site, d.dst_site, d.mesh) == (1, 6, 2);
            state.demands.iter().find(of).unwrap().bps
        };
        let state = ctl.cycle().await;
        assert_eq!((gold(&state), state.pairs_failed), (8_000_000, 0), "{:?}", state.errors);
        assert_eq!(state.errors, Vec::<String>::new());

        process.shutdown_background();
        for hung in [false, true] {
            std::fs::remove_file(&socket).unwrap();
            let _listener = hung.then(|| UnixListener::bind(&socket).unwrap());
            if !hung {
                std::fs::write(&socket, "").unwrap();
            }
            let state = ctl.cycle().await;
            assert_eq!((gold(&state), state.pairs_ok, state.pairs_failed), (8_000_000, 6, 0));
            let said = state.errors.iter().any(|e| e.starts_with("traffic matrix: nhg-tm: GetMatrix"));
            assert!(said && state.errors[0].ends_with("s ago is used"), "{:?}", state.errors);
        }
    });
}

//! The agent against the real kernel, as far as that goes without MPLS: bundles of one hop push no labels.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use prost::Message as _;
use rtnl::monitor::{self, Monitor};
use rtnl::{netns, nexthop};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status, transport::Server};

use super::lab::{self, Pair};
use super::memory::{lsp, path_with};
use crate::label::{Mesh, Nexthop, Sid};
use crate::lsp::agent::{self, router};
use crate::lsp::driver::{Driver, Kernel as _};
use crate::lsp::engine::{Engine, LinkEvent, LinkState};
use crate::lsp::kernel::Netlink;
use crate::proto::lsp_agent_client::LspAgentClient;
use crate::proto::openr_ctrl_server::{OpenrCtrl, OpenrCtrlServer};
use crate::proto::{self, Phase};
use crate::rpc;

fn sid(version: bool) -> Sid {
    Sid { src: 1, dst: 2, mesh: Mesh::Gold, version }
}

fn bundle(sid: Sid) -> proto::Bundle {
    let path = |to: &str| path_with(&["a", to], |_, _| 1000);
    let lsps = [("b", "c"), ("c", "d"), ("b", "d"), ("d", "b")].map(|(p, b)| lsp(path(p), Some(path(b))));
    proto::Bundle { sid: sid.encode(), lsps: lsps.to_vec() }
}

fn same(driver: &mut Driver<Netlink>) {
    while driver.is_unsettled() {
        assert!(driver.settle(5).unwrap().refused.is_empty());
    }
    driver.tidy(3).unwrap();
    assert_eq!(driver.kernel.look().unwrap().known, *driver.engine.known());
}

/// How long the kernel takes for a repair of 99 bundles of 16 LSPs, half of which leave a remote link.
#[test]
#[ignore = "a measurement: run it by name, with --nocapture"]
fn repair_of_a_hundred_bundles_in_the_kernel() {
    let Some(pair) = lab::pair(&["to-b", "to-c"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let kernel =
        netns::enter(pair.near.as_fd(), || Netlink::open().map_err(|e| e.to_string())).unwrap().unwrap();
    let mut driver = Driver::new(Engine::new(router(&pair.config(folder.path(), None))), kernel, None);
    driver.start().unwrap();
    let path = |to: &str, slot: u32| path_with(&["a", to], |_, _| 1000 + slot);
    let mut bundles = Vec::new();
    for dst in 2..35u8 {
        for mesh in Mesh::ALL {
            // labels that are not pushed, but make each LSP a member of its own
            let lsps = (0..16).map(|slot| match slot % 2 {
                0 => lsp(path("b", slot), Some(path("c", slot))),
                _ => lsp(path("c", slot), None),
            });
            bundles
                .push(proto::Bundle { sid: Sid { dst, mesh, ..sid(false) }.encode(), lsps: lsps.collect() });
        }
    }
    for aid in [true, false] {
        driver.program(Phase::Source, bundles.clone()).unwrap();
        driver.engine.advertised("b", ["to-a"; 0]);
        let began = Instant::now();
        let plan = driver.engine.repair().plan;
        let planned = began.elapsed();
        let mut sent = Vec::new();
        let parts = [if aid { &plan.urgent[..] } else { &[] }, &plan.install, &plan.cleanup];
        for part in parts {
            let ops: Vec<_> = part.iter().collect();
            assert!(driver.kernel.write(&ops).unwrap().iter().all(Result::is_ok));
            ops.iter().for_each(|op| driver.engine.written(op));
            sent.push((ops.len(), began.elapsed()));
        }
        println!("planned after {planned:?}; urgent, install, cleanup: {sent:?}");
        driver.engine.advertised("b", ["to-a"]);
        driver.repair().unwrap();
    }
}

#[test]
fn groups_follow_programming_links_and_races_on_the_real_kernel() {
    let Some(pair) = lab::pair(&["to-b", "to-c", "to-d"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut monitor = Monitor::open_in(pair.near.as_fd(), &[monitor::Group::Link]).unwrap();
    let kernel =
        netns::enter(pair.near.as_fd(), || Netlink::open().map_err(|e| e.to_string())).unwrap().unwrap();
    let mut driver = Driver::new(Engine::new(router(&pair.config(folder.path(), None))), kernel, None);
    driver.start().unwrap();
    let many = |version| (2..40u8).map(move |dst| bundle(Sid { dst, ..sid(version) })).collect::<Vec<_>>();
    for version in [false, true, true] {
        let (results, _) = driver.program(Phase::Source, many(version)).unwrap();
        assert!(results.iter().all(|r| r.ok), "{results:?}");
        same(&mut driver);
    }
    assert_eq!(driver.engine.known().groups.len(), 38);

    // a remote failure: nothing has gone from the kernel, all is the agent's
    for interfaces in [vec![], vec!["to-a"]] {
        driver.engine.advertised("c", interfaces.iter().copied());
        let began = Instant::now();
        let (repair, outcome) = driver.repair().unwrap();
        println!(
            "adjacency {interfaces:?}: {} urgent of {} writes in {:?}",
            repair.plan.urgent.len(),
            outcome.writes,
            began.elapsed()
        );
        same(&mut driver);
    }
    let (results, _) = driver.program(Phase::Source, many(true)).unwrap();
    assert!(results.iter().all(|r| r.ok), "{results:?}");
    for up in [false, true] {
        pair.set_up("to-b", true, up);
        take_event(&mut monitor, &mut driver, "to-b", up);
        let began = Instant::now();
        let (repair, outcome) = driver.repair().unwrap();
        println!(
            "link {up}: {} bundles, {} writes in {:?}",
            repair.bundles.len(),
            outcome.writes,
            began.elapsed()
        );
        assert_eq!((repair.bundles.len(), outcome.refused.len()), (38, 0));
        same(&mut driver);
    }
    // the kernel drops objects, and the agent does not know yet
    pair.set_up("to-c", false, false);
    let (results, _) = driver.program(Phase::Source, many(false)).unwrap();
    assert!(results.iter().all(|r| r.ok), "{results:?}");
    same(&mut driver);
    take_event(&mut monitor, &mut driver, "to-c", false);
    driver.repair().unwrap();
    same(&mut driver);
    // all links down and one back
    ["to-b", "to-d"].iter().for_each(|name| pair.set_up(name, false, false));
    take_event(&mut monitor, &mut driver, "to-d", false);
    driver.repair().unwrap();
    assert!(driver.kernel.look().unwrap().known.groups.is_empty());
    pair.set_up("to-d", false, true);
    take_event(&mut monitor, &mut driver, "to-d", true);
    driver.repair().unwrap();
    same(&mut driver);
    assert_eq!(driver.engine.known().groups.len(), 38);
    let (results, _) = driver.program(Phase::Delete, many(false)).unwrap();
    assert!(results.iter().all(|r| r.ok), "{results:?}");
    driver.tidy(usize::MAX).unwrap();
    assert!(driver.kernel.look().unwrap().known.members.is_empty());
}

/// Labels need a kernel with MPLS: says why if it is skipped. Run the test program in a guest to see it.
#[test]
fn stacks_and_sids_are_read_back_as_written() {
    let Some(pair) = lab::pair(&["to-b", "to-c"]) else { return };
    let settings = [("net.mpls.platform_labels", "532480"), ("net.mpls.conf.to-b.input", "1")];
    if rtnl::sysctl::write(pair.near.as_fd(), &settings).unwrap().iter().any(Result::is_err) {
        println!("skipped: this kernel has no MPLS");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = || Netlink::open().map_err(|e| e.to_string());
    let kernel = netns::enter(pair.near.as_fd(), open).unwrap().unwrap();
    let mut driver = Driver::new(Engine::new(router(&pair.config(folder.path(), None))), kernel, None);
    driver.start().unwrap();
    let path =
        |p: &str| path_with(&p.split(' ').collect::<Vec<_>>(), |_, b| 1000 + u32::from(b.as_bytes()[0]));
    let source = |version| {
        let lsps =
            ["a b d e f g", "a c d", "a c", "a b d e f g"].map(|p| lsp(path(p), Some(path("a c x y g"))));
        proto::Bundle { sid: sid(version).encode(), lsps: lsps.to_vec() }
    };
    // a is an intermediate node twice on the same way, and once right before the end
    let transit = |version| {
        let lsps = ["s p q a b d", "s p q a b d", "s q p a c d e f"].map(|p| lsp(path(p), None));
        proto::Bundle { sid: Sid { src: 3, ..sid(version) }.encode(), lsps: lsps.to_vec() }
    };
    for version in [false, true] {
        for (phase, bundle) in [(Phase::Transit, transit(version)), (Phase::Source, source(version))] {
            let (results, _) = driver.program(phase, vec![bundle]).unwrap();
            assert!(results[0].ok, "{}", results[0].error);
        }
        same(&mut driver);
    }
    assert_eq!(driver.engine.known().sids.len(), 2);
    assert_eq!(driver.engine.known().sids.values().next().unwrap().len(), 3);
    let before = driver.kernel.look().unwrap();
    assert!(driver.engine.reconcile(before).install.is_empty(), "what is right would be written again");
    assert_eq!(driver.kernel.counts().unwrap().len(), 3, "two of the four LSPs are alike");

    driver.engine.advertised("e", ["to-a"; 0]);
    driver.repair().unwrap();
    same(&mut driver);
    // nexthop objects go with the link; label routes stay, and the agent turns them away from it
    pair.set_up("to-b", true, false);
    driver.engine.interface(&LinkEvent {
        interface: "to-b".to_owned(),
        ifindex: pair.ifindex("to-b"),
        state: LinkState::Down,
    });
    driver.repair().unwrap();
    same(&mut driver);
    let (results, _) = driver.program(Phase::Retire, vec![transit(false)]).unwrap();
    assert!(results[0].ok, "{}", results[0].error);
    same(&mut driver);
}

/// Hands events to the engine up to the one that was waited for.
fn take_event(monitor: &mut Monitor, driver: &mut Driver<Netlink>, name: &str, up: bool) {
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    loop {
        assert!(Instant::now() < deadline, "no event of {name}");
        let Some(event) = monitor.try_recv().unwrap() else { continue };
        let monitor::Event::Link(info) = event else { continue };
        let is_up = info.up && info.lower_up;
        let state = if is_up { LinkState::Up } else { LinkState::Down };
        let found = info.name == name && is_up == up;
        driver.engine.interface(&LinkEvent { interface: info.name, ifindex: info.ifindex, state });
        if found {
            return;
        }
    }
}

/// Stands in for openr: hands out what the test sends.
#[derive(Clone, Default)]
struct Store {
    watchers: Arc<Mutex<Vec<mpsc::Sender<Result<proto::Publication, Status>>>>>,
}

impl Store {
    async fn publish(&self, node: &str, interfaces: &[&str]) {
        let adjacencies =
            interfaces.iter().map(|i| proto::Adjacency { interface: (*i).to_owned(), ..Default::default() });
        let value = proto::AdjacencyDatabase {
            node: node.to_owned(),
            adjacencies: adjacencies.collect(),
            ..Default::default()
        };
        let value = proto::KeyValue {
            key: format!("adj:{node}"),
            value: value.encode_to_vec(),
            ..Default::default()
        };
        let publication = proto::Publication { values: vec![value], ..Default::default() };
        let watchers = self.watchers.lock().unwrap().clone();
        for watcher in watchers {
            drop(watcher.send(Ok(publication.clone())).await);
        }
    }
}

#[tonic::async_trait]
impl OpenrCtrl for Store {
    type SubscribeStream = tokio_stream::wrappers::ReceiverStream<Result<proto::Publication, Status>>;

    async fn subscribe(
        &self,
        _: Request<proto::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        self.watchers.lock().unwrap().push(sender);
        Ok(Response::new(receiver.into()))
    }

    async fn dump(&self, _: Request<proto::DumpRequest>) -> Result<Response<proto::Publication>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn get_neighbors(
        &self,
        _: Request<proto::GetNeighborsRequest>,
    ) -> Result<Response<proto::GetNeighborsReply>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn set_drain(
        &self,
        _: Request<proto::SetDrainRequest>,
    ) -> Result<Response<proto::SetDrainReply>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn reload_config(
        &self,
        _: Request<proto::ReloadConfigRequest>,
    ) -> Result<Response<proto::ReloadConfigReply>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}

#[test]
fn the_program_repairs_on_what_openr_says_and_survives_a_restart() {
    let Some(pair) = lab::pair(&["to-b", "to-c", "to-d"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = pair.config(folder.path(), None);
    let openr = tokio::net::UnixListener::bind;
    pair.inside(|| async {
        let store = Store::default();
        let listener = openr(config.socket("openr")).unwrap();
        let server = Server::builder().add_service(OpenrCtrlServer::new(store.clone()));
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(server.serve_with_incoming_shutdown(
            tokio_stream::wrappers::UnixListenerStream::new(listener),
            async { drop(ended.await) },
        ));
        let first = tokio::spawn(agent::run(config.clone()));
        let mut client = LspAgentClient::new(rpc::unix_channel(config.socket("lsp-agent")));
        program(&mut client, 5).await.unwrap();
        lab::wait("a subscription", || async { (!store.watchers.lock().unwrap().is_empty()).then_some(()) })
            .await;
        store.publish("c", &["to-a"]).await;
        store.publish("b", &[]).await;
        let on_backup = |n| {
            let client = client.clone();
            lab::wait("LSPs on their backup", move || {
                let mut client = client.clone();
                async move { (state(&mut client).await.on_backup == n).then_some(()) }
            })
        };
        on_backup(2).await;
        let want = [("to-c", true), ("to-c", false), ("to-d", true), ("to-d", false)];
        let want = want.map(|(name, backup)| (pair.ifindex(name), backup));
        lab::wait("the group in order, nothing left over", || async {
            (group(&pair) == (want.to_vec(), 5)).then_some(())
        })
        .await;
        let refused = program(&mut client, 4).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert!(refused.message().contains("epoch 4") && refused.message().contains("epoch 5"));
        let mut events = client.watch_events(proto::WatchEventsRequest {}).await.unwrap().into_inner();
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != "repaired") {
            kinds.push(events.message().await.unwrap().unwrap().kind);
        }
        assert_eq!(kinds, ["reconciled", "programmed", "link_down", "repaired"]);

        // killed and started again: nothing in the kernel is touched, the epoch and the backups are remembered
        first.abort();
        drop(first.await);
        let mut watch = Monitor::open(&[monitor::Group::Nexthop]).unwrap();
        let second = tokio::spawn(agent::run(config.clone()));
        let mut client = LspAgentClient::new(rpc::unix_channel(config.socket("lsp-agent")));
        let again = lab::wait("the agent's answer", || {
            let mut client = client.clone();
            async move { client.dump_bundles(proto::DumpBundlesRequest::default()).await.ok() }
        });
        let again = again.await.into_inner();
        assert_eq!((again.epoch, again.bundles[0].on_backup, again.bundles[0].programmed), (5, 2, 4));
        assert!(watch.try_recv().unwrap().is_none(), "a restart has written to the kernel");
        assert!(client.get_counters(proto::GetCountersRequest {}).await.is_ok());
        program(&mut client, 5).await.unwrap();
        second.abort();
        drop(second.await);
        drop(end);
        served.abort();
    });
}

async fn state(client: &mut LspAgentClient<tonic::transport::Channel>) -> proto::BundleState {
    let dump = client.dump_bundles(proto::DumpBundlesRequest::default()).await.unwrap().into_inner();
    dump.bundles[0].clone()
}

async fn program(client: &mut LspAgentClient<tonic::transport::Channel>, epoch: u64) -> Result<(), Status> {
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let request = proto::ProgramBundleRequest {
            epoch,
            writer: "test".to_owned(),
            phase: Phase::Source.into(),
            bundles: vec![bundle(sid(false))],
        };
        match client.program_bundle(request).await {
            // not listening yet
            Err(e) if e.code() == tonic::Code::Unavailable && Instant::now() < deadline => {
                tokio::task::yield_now().await
            }
            reply => {
                let reply = reply?.into_inner();
                assert!(reply.results[0].ok, "{reply:?}");
                return Ok(());
            }
        }
    }
}

/// The group's members as (interface, on backup) in slot order, and the number of objects and groups there are.
fn group(pair: &Pair) -> (Vec<(u32, bool)>, usize) {
    let entries = nexthop::dump(&mut pair.socket(false)).unwrap();
    let oif = |id| {
        entries.iter().find_map(|e| match e {
            nexthop::Entry::Object(o) if o.id == id => Some(o.oif),
            _ => None,
        })
    };
    let members = entries.iter().find_map(|e| match e {
        nexthop::Entry::Group(g) => Some(g.members.clone()),
        nexthop::Entry::Object(_) => None,
    });
    let members = members.unwrap_or_default().into_iter().map(|m| match Nexthop::decode(m.id) {
        Some(Nexthop::Member { backup, .. }) => (oif(m.id).unwrap(), backup),
        other => panic!("{other:?}"),
    });
    (members.collect(), entries.len())
}

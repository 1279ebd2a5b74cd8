//! Namespaces, links and programs of the chain, and questions to them.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use prost::Message as _;
use router_emu::agent::monotonic_ns;
use router_emu::config::{CoreInterface, OpenrTimers, PROTO_OPENR, RouterConfig};
use router_emu::proto::openr_ctrl_client::OpenrCtrlClient;
use router_emu::proto::{
    AdjacencyDatabase, GetNeighborsRequest, Neighbor, Publication, SetDrainRequest, SubscribeRequest,
};
use router_emu::rpc::unix_channel;
use rtnl::Socket;
use rtnl::monitor::{Event, Group, Monitor};
use rtnl::route::{Filter, Hop, TABLE_MAIN, Via};
use rtnl::socket::ROUTE;
use tonic::Streaming;

pub const ROUTERS: [&str; 7] = ["n0", "n1", "n2", "n3", "n4", "n5", "x"];
/// Both ends of each link: router, interface.
const LINKS: [[(&str, &str); 2]; 7] = [
    [("x", "to-n0"), ("n0", "to-x")],
    [("n0", "to-n1"), ("n1", "to-n0")],
    [("n1", "to-n2"), ("n2", "to-n1")],
    [("n1", "to-n2.2"), ("n2", "to-n1.2")],
    [("n2", "to-n3"), ("n3", "to-n2")],
    [("n3", "to-n4"), ("n4", "to-n3")],
    [("n4", "to-n5"), ("n5", "to-n4")],
];
const PATIENCE: Duration = Duration::from_secs(20);

struct Node {
    namespace: OwnedFd,
    socket: Socket,
    config: RouterConfig,
    programs: BTreeMap<&'static str, Child>,
}

pub struct Chain {
    folder: tempfile::TempDir,
    nodes: BTreeMap<&'static str, Node>,
}

impl Drop for Chain {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            for child in node.programs.values_mut() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for node in ROUTERS {
                for program in ["openr", "fib-agent"] {
                    let log = std::fs::read_to_string(self.log(node, program)).unwrap_or_default();
                    let lines: Vec<_> = log.lines().collect();
                    let last = lines[lines.len().saturating_sub(12)..].join("\n");
                    eprintln!("--- {node} {program}\n{last}");
                }
            }
        }
    }
}

impl Chain {
    pub fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nodes = ROUTERS.iter().map(|name| (*name, Node::new(name, folder.path().join(name)))).collect();
        let mut chain = Self { folder, nodes };
        for (k, ends) in LINKS.iter().enumerate() {
            let k = u8::try_from(k).unwrap();
            let end = |side: u8| {
                let (node, name) = ends[usize::from(side)];
                rtnl::link::LinkEnd {
                    netns: chain.nodes[node].namespace.as_fd(),
                    name,
                    ifindex: 1001 + 2 * u32::from(k) + u32::from(side),
                    mac: [2, 0xeb, 0, 0, k, side],
                    mtu: 9216,
                }
            };
            let request = rtnl::link::create_veth(&end(0), &end(1));
            Socket::open(ROUTE).unwrap().request(&request).unwrap();
            for (node, name) in ends {
                chain.set_link(node, name, true);
            }
        }
        chain
    }

    fn log(&self, node: &str, program: &str) -> PathBuf {
        self.folder.path().join(node).join(format!("{program}.log"))
    }

    fn node(&mut self, node: &str) -> &mut Node {
        self.nodes.get_mut(node).unwrap()
    }

    pub fn start_all(&mut self) {
        for node in ROUTERS {
            self.start(node, "fib-agent");
            self.start(node, "openr");
        }
    }

    pub fn start(&mut self, node: &str, program: &'static str) {
        let log = File::options().create(true).append(true).open(self.log(node, program)).unwrap();
        let binary =
            if program == "openr" { env!("CARGO_BIN_EXE_openr") } else { env!("CARGO_BIN_EXE_fib-agent") };
        let config = self.folder.path().join(node).join("router.json");
        let node = self.node(node);
        let mut command = Command::new(binary);
        command.arg("--config").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let namespace = node.namespace.try_clone().unwrap();
        // SAFETY: setns and prctl are plain system calls, allowed between fork and exec.
        // JUSTIFICATION: a program must start inside its namespace, and die with the test.
        unsafe {
            command.pre_exec(move || {
                nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET)?;
                die_with_parent()
            });
        }
        node.programs.insert(program, command.spawn().unwrap());
    }

    pub fn kill(&mut self, node: &str, program: &str) {
        let mut child = self.node(node).programs.remove(program).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM.
    pub fn stop(&mut self, node: &str, program: &str) -> ExitStatus {
        let mut child = self.node(node).programs.remove(program).unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "{node}: {program} does not end on SIGTERM");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sets a link's administrative state; when the request was sent.
    pub fn set_link(&mut self, node: &str, interface: &str, up: bool) -> u64 {
        let socket = &mut self.node(node).socket;
        let ifindex = rtnl::link::by_name(socket, interface).unwrap().ifindex;
        let request = rtnl::link::set_up(ifindex, up);
        let at = monotonic_ns();
        socket.request(&request).unwrap();
        at
    }

    /// Next hops of a router's kernel route to another router.
    pub fn hops(&mut self, node: &str, to: &str) -> Vec<Hop> {
        let loopback = self.nodes[to].config.loopback;
        let filter = Filter { table: Some(TABLE_MAIN), protocol: Some(PROTO_OPENR) };
        let routes = rtnl::route::dump(&mut self.node(node).socket, filter).unwrap();
        let route = routes.into_iter().find(|r| r.dst.addr() == loopback);
        route.map_or_else(Vec::new, |r| {
            assert_eq!(r.metric, 1024);
            if let Via::Hops(hops) = r.via { hops } else { Vec::new() }
        })
    }

    pub fn has_route(&mut self, node: &str, to: &str) -> bool {
        !self.hops(node, to).is_empty()
    }

    pub fn all_routes(&mut self) -> bool {
        ROUTERS.iter().all(|a| ROUTERS.iter().all(|b| a == b || self.has_route(a, b)))
    }

    pub fn delete_route(&mut self, node: &str, to: &str) {
        let loopback = self.nodes[to].config.loopback;
        let socket = &mut self.node(node).socket;
        let filter = Filter { table: Some(TABLE_MAIN), protocol: Some(PROTO_OPENR) };
        let routes = rtnl::route::dump(socket, filter).unwrap();
        let route = routes.into_iter().find(|r| r.dst.addr() == loopback).unwrap();
        socket.request(&rtnl::route::delete(&route)).unwrap();
    }

    pub async fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "not reached in time: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn client(&self, node: &str) -> OpenrCtrlClient<tonic::transport::Channel> {
        OpenrCtrlClient::new(unix_channel(self.nodes[node].config.socket("openr")))
    }

    pub async fn neighbors(&self, node: &str) -> Vec<Neighbor> {
        self.client(node).get_neighbors(GetNeighborsRequest {}).await.unwrap().into_inner().neighbors
    }

    pub async fn wait_established(&self, node: &str) {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "{node}: neighbours do not come up");
            if let Ok(reply) = self.client(node).get_neighbors(GetNeighborsRequest {}).await
                && reply.into_inner().neighbors.iter().all(|n| n.state == "ESTABLISHED")
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn drain(&self, node: &str, interface: &str, overloaded: bool) {
        let request = SetDrainRequest { interface: interface.into(), overloaded, metric_increment: 0 };
        self.client(node).set_drain(request).await.unwrap();
    }

    pub async fn watch(&self, node: &str) -> Watch {
        let request = SubscribeRequest { key_prefix: "adj:".into() };
        let mut stream = self.client(node).subscribe(request).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().unwrap().snapshot);
        Watch { stream }
    }

    /// In the place of the router's lsp-agent; does not block.
    pub fn hear_flares(&self, node: &str) -> UnixDatagram {
        let socket = UnixDatagram::bind(self.nodes[node].config.flare_socket()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    pub fn watch_routes(&self, node: &str) -> RouteWatch {
        let monitor = Monitor::open_in(self.nodes[node].namespace.as_fd(), &[Group::Route6]).unwrap();
        RouteWatch { monitor }
    }

    fn proc_file(&self, node: &str, program: &str, file: &str) -> String {
        let pid = self.nodes[node].programs[program].id();
        std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
    }

    /// CPU time so far, in ticks of 10 ms.
    pub fn cpu_ticks(&self, node: &str, program: &str) -> u64 {
        let stat = self.proc_file(node, program, "stat");
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    pub fn rss_kib(&self, node: &str, program: &str) -> u64 {
        let status = self.proc_file(node, program, "status");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Node {
    fn new(name: &str, folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        // the namespace lives as long as this descriptor: nothing to clean up
        let namespace = rtnl::netns::create().unwrap();
        let number = ROUTERS.iter().position(|n| *n == name).unwrap();
        let loopback = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, u16::try_from(number + 1).unwrap());
        let socket = prepare(&namespace, loopback);
        let interfaces =
            LINKS.iter().flatten().filter(|(node, _)| *node == name).map(|(_, interface)| CoreInterface {
                name: (*interface).to_owned(),
                label: 1000,
                peer_link_local: Ipv6Addr::UNSPECIFIED,
                capacity_bps: 400_000_000_000,
                members: 0,
                declared_rtt_us: 10_000,
                srlgs: Vec::new(),
                enabled: true,
            });
        let config = RouterConfig {
            node: name.to_owned(),
            plane: 1,
            site: u8::try_from(number + 1).unwrap(),
            site_name: name.to_owned(),
            is_dc: true,
            loopback,
            run_dir: folder.clone(),
            state_dir: folder.join("state"),
            fabric_interface: None,
            interfaces: interfaces.collect(),
            max_labels: 3,
            openr: OpenrTimers { flap_first: 0, ..OpenrTimers::default() },
            macsec: None,
        };
        std::fs::write(folder.join("router.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        Self { namespace, socket, config, programs: BTreeMap::new() }
    }
}

/// Loopback, forwarding, no address probing.
fn prepare(namespace: &OwnedFd, loopback: Ipv6Addr) -> Socket {
    rtnl::netns::enter(namespace.as_fd(), || {
        for scope in ["all", "default"] {
            for (name, value) in [("forwarding", "1"), ("accept_dad", "0"), ("dad_transmits", "0")] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{name}"), value).unwrap();
            }
        }
    })
    .unwrap();
    let mut socket = Socket::open_in(namespace.as_fd(), ROUTE).unwrap();
    socket.request(&rtnl::link::set_up(1, true)).unwrap();
    let address = rtnl::addr::Address { ifindex: 1, ip: loopback, prefix_len: 128 };
    socket.request(&rtnl::addr::add(&address)).unwrap();
    socket
}

fn die_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(Into::into)
}

/// A subscription.
pub struct Watch {
    stream: Streaming<Publication>,
}

impl Watch {
    /// When a database came for which `done` holds.
    pub async fn until(&mut self, done: impl Fn(&AdjacencyDatabase) -> bool) -> u64 {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.stream.message()).await.expect("told in time");
            let publication = next.unwrap().expect("the stream goes on");
            let at = monotonic_ns();
            let databases =
                publication.values.iter().map(|v| AdjacencyDatabase::decode(v.value.as_slice()).unwrap());
            if databases.into_iter().any(|d| done(&d)) {
                return at;
            }
        }
    }
}

/// Changes of Open/R's routes in a kernel.
pub struct RouteWatch {
    monitor: Monitor,
}

impl RouteWatch {
    pub fn drain(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.monitor.try_recv().unwrap() {
            if let Event::Route6(route) | Event::Route6Deleted(route) = &event
                && route.protocol == PROTO_OPENR
            {
                events.push(event);
            }
        }
        events
    }
}

pub fn median(list: &mut [u64]) -> u64 {
    list.sort_unstable();
    list.get(list.len() / 2).copied().unwrap_or_default()
}

//! Two routers, `a` and `b`, whose links run through bridges in a third namespace: with the bridge down, both ends keep
//! their carrier and nothing passes. The programs on them, and questions to these.

use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use router_emu::agent::monotonic_ns;
use router_emu::config::{BfdTimers, CoreInterface, OpenrTimers, RouterConfig};
use router_emu::openr::flare::{Flare, MAX_FLARE};
use router_emu::proto::openr_ctrl_client::OpenrCtrlClient;
use router_emu::proto::{GetNeighborsRequest, Publication, SubscribeRequest};
use router_emu::rpc::unix_channel;
use rtnl::Socket;
use rtnl::socket::ROUTE;

/// Interfaces of both routers, each with the one of the same name at the other end.
pub const LINKS: [&str; 4] = ["l0", "l1", "l2", "l3"];
pub const NODES: [&str; 2] = ["a", "b"];
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Lab {
    folder: tempfile::TempDir,
    routers: Vec<OwnedFd>,
    middle: Socket,
    middle_ns: OwnedFd,
    programs: Vec<(&'static str, &'static str, Child)>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (node, program, _) in &self.programs {
                let log = self.log(node, program);
                let lines: Vec<_> = log.lines().collect();
                eprintln!("--- {node} {program}\n{}", lines[lines.len().saturating_sub(25)..].join("\n"));
            }
        }
        for (_, _, child) in &mut self.programs {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Lab {
    /// Namespaces and links. Interfaces are named with `timers` in the routers' configurations.
    pub fn build(timers: &BfdTimers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // other programs give up their privileges and must still get in
        open_to_all(folder.path());
        let routers: Vec<_> = NODES.iter().map(|_| namespace()).collect();
        let middle_ns = namespace();
        let middle = Socket::open_in(middle_ns.as_fd(), ROUTE).unwrap();
        let mut lab = Self { folder, routers, middle, middle_ns, programs: Vec::new() };
        for (side, node) in NODES.iter().enumerate() {
            std::fs::create_dir(lab.path(node)).unwrap();
            open_to_all(&lab.path(node));
            let config = lab.config(side, timers);
            std::fs::write(lab.path(node).join("router.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        }
        for link in 0..LINKS.len() {
            lab.add_link(link);
        }
        lab
    }

    fn add_link(&mut self, link: usize) {
        let number = u32::try_from(link).unwrap();
        // rtnl makes no bridges: only tests have use for them
        let bridge = format!("br{link}");
        run_in(&self.middle_ns, "ip", &["link", "add", &bridge, "type", "bridge", "mcast_snooping", "0"]);
        run_in(&self.middle_ns, "ip", &["link", "set", &bridge, "up"]);
        for (side, node) in NODES.iter().enumerate() {
            let port = format!("{node}{link}");
            let side_number = u32::try_from(side).unwrap();
            let near = rtnl::link::LinkEnd {
                netns: self.routers[side].as_fd(),
                name: LINKS[link],
                ifindex: 1001 + 2 * number + side_number,
                mac: mac(link, side),
                mtu: 9000,
            };
            let far = rtnl::link::LinkEnd {
                netns: self.middle_ns.as_fd(),
                name: &port,
                ifindex: 2001 + 2 * number + side_number,
                mac: [2, 0, 0, 0, near.mac[4], near.mac[5]],
                mtu: 9000,
            };
            Socket::open(ROUTE).unwrap().request(&rtnl::link::create_veth(&near, &far)).unwrap();
            run_in(&self.middle_ns, "ip", &["link", "set", &port, "master", &bridge, "up"]);
            let mut socket = Socket::open_in(self.routers[side].as_fd(), ROUTE).unwrap();
            socket.request(&rtnl::link::set_up(near.ifindex, true)).unwrap();
        }
    }

    fn config(&self, side: usize, timers: &BfdTimers) -> RouterConfig {
        let interfaces = LINKS.iter().enumerate().map(|(link, name)| CoreInterface {
            name: (*name).to_owned(),
            label: 1000,
            peer_link_local: link_local(link, 1 - side),
            capacity_bps: 1,
            members: 0,
            declared_rtt_us: 0,
            srlgs: Vec::new(),
            enabled: true,
        });
        let number = u8::try_from(side + 1).unwrap();
        RouterConfig {
            node: NODES[side].to_owned(),
            plane: 1,
            site: number,
            site_name: NODES[side].to_owned(),
            is_dc: true,
            loopback: Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, u16::from(number)),
            run_dir: self.path(NODES[side]),
            state_dir: self.path(NODES[side]).join("state"),
            fabric_interface: None,
            interfaces: interfaces.collect(),
            max_labels: 3,
            // the links are broken again and again, and each time waited for
            openr: OpenrTimers { bfd: timers.clone(), flap_first: 0, ..OpenrTimers::default() },
            macsec: None,
        }
    }

    /// A router's folder.
    pub fn path(&self, node: &str) -> PathBuf {
        self.folder.path().join(node)
    }

    /// What a program has logged.
    pub fn log(&self, node: &str, program: &str) -> String {
        let bytes = std::fs::read(self.path(node).join(format!("{program}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Lets packets pass over a link, or none of them; when that was asked for.
    pub fn set_wire(&mut self, link: usize, whole: bool) -> u64 {
        let bridge = rtnl::link::by_name(&mut self.middle, &format!("br{link}")).unwrap().ifindex;
        let request = rtnl::link::set_up(bridge, whole);
        let at = monotonic_ns();
        self.middle.request(&request).unwrap();
        at
    }

    pub fn start_openr(&mut self, node: &'static str) {
        let config = self.path(node).join("router.json").to_string_lossy().into_owned();
        self.start(node, "openr", env!("CARGO_BIN_EXE_openr"), &["--config".to_owned(), config]);
    }

    /// Starts a program in a router. What it prints is its log.
    pub fn start(&mut self, node: &'static str, program: &'static str, binary: &str, arguments: &[String]) {
        let log = self.path(node).join(format!("{program}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let side = NODES.iter().position(|n| *n == node).unwrap();
        let mut command = Command::new(binary);
        command.args(arguments).env("TZ", "UTC").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        inside(&mut command, &self.routers[side]);
        self.programs.push((node, program, command.spawn().unwrap()));
    }

    pub fn signal(&mut self, node: &str, program: &str, signal: Signal) {
        let at = self.programs.iter().position(|(n, p, _)| (*n, *p) == (node, program)).unwrap();
        let (_, _, mut child) = self.programs.remove(at);
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        child.wait().unwrap();
    }

    /// Stops all programs.
    pub fn end_all(&mut self) {
        while let Some((node, program, _)) = self.programs.last() {
            let (node, program) = (*node, *program);
            self.signal(node, program, Signal::SIGKILL);
        }
    }

    /// CPU time of all threads of a program so far, nanoseconds.
    pub fn cpu_ns(&self, node: &str, program: &str) -> u64 {
        let (_, _, child) = self.programs.iter().find(|(n, p, _)| (*n, *p) == (node, program)).unwrap();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        let spent = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            text.split_whitespace().next().map_or(0, |ns| ns.parse::<u64>().unwrap())
        };
        tasks.map(|task| spent(task.unwrap())).sum()
    }

    fn client(&self, node: &str) -> OpenrCtrlClient<tonic::transport::Channel> {
        OpenrCtrlClient::new(unix_channel(self.path(node).join("openr.sock")))
    }

    /// State of a router's neighbours, by interface; nothing while it does not answer.
    pub async fn states(&self, node: &str) -> Vec<String> {
        match self.client(node).get_neighbors(GetNeighborsRequest {}).await {
            Ok(reply) => reply.into_inner().neighbors.into_iter().map(|n| n.state).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// One router's adjacencies as another one's subscribers are told of them: first what is, then every change.
    pub async fn watch(&self, node: &str, of: &str) -> tonic::Streaming<Publication> {
        let request = SubscribeRequest { key_prefix: format!("adj:{of}") };
        self.client(node).subscribe(request).await.unwrap().into_inner()
    }

    /// Waits for both routers' neighbours: `state` on `link`, established on all others.
    pub async fn wait_states(&self, link: usize, state: &str) {
        let wanted: Vec<_> =
            (0..LINKS.len()).map(|k| if k == link { state } else { "ESTABLISHED" }).collect();
        let start = Instant::now();
        while self.states("a").await != wanted || self.states("b").await != wanted {
            let now = (self.states("a").await, self.states("b").await);
            assert!(start.elapsed() < PATIENCE, "not reached: {wanted:?}; {now:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a log has a text so many times.
    pub async fn wait_log(&self, node: &str, program: &str, text: &str, times: usize) {
        let start = Instant::now();
        while self.log(node, program).matches(text).count() < times {
            assert!(start.elapsed() < PATIENCE, "{node} {program}: not {times} times in the log: {text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// In the place of the router's lsp-agent; does not block.
    pub fn hear_flares(&self, node: &str) -> UnixDatagram {
        let path = self.path(node).join("lsp-agent.flare");
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }
}

/// All flares that are there.
pub fn flares(socket: &UnixDatagram) -> Vec<Flare> {
    let mut buffer = [0; MAX_FLARE + 1];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| Flare::decode(&buffer[..n]).unwrap()))
        .collect()
}

pub fn link_local(link: usize, side: usize) -> Ipv6Addr {
    let [_, _, _, _, k, s] = mac(link, side).map(u16::from);
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x00eb, 0x00ff, 0xfe00, k << 8 | s)
}

fn mac(link: usize, side: usize) -> [u8; 6] {
    [2, 0xeb, 0, 0, u8::try_from(link + 1).unwrap(), u8::try_from(side + 1).unwrap()]
}

fn namespace() -> OwnedFd {
    let namespace = rtnl::netns::create().unwrap();
    rtnl::netns::enter(namespace.as_fd(), || {
        for scope in ["all", "default"] {
            for name in ["accept_dad", "dad_transmits"] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{name}"), "0").unwrap();
            }
        }
    })
    .unwrap();
    let mut socket = Socket::open_in(namespace.as_fd(), ROUTE).unwrap();
    socket.request(&rtnl::link::set_up(1, true)).unwrap();
    namespace
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn run_in(namespace: &OwnedFd, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments);
    inside(&mut command, namespace);
    assert!(command.status().unwrap().success(), "{program} {arguments:?}");
}

/// Starts inside the namespace, and dies with the test.
fn inside(command: &mut Command, namespace: &OwnedFd) {
    let namespace = namespace.try_clone().unwrap();
    // SAFETY: setns and prctl are plain system calls, allowed between fork and exec.
    // JUSTIFICATION: a program must start inside its namespace, and die with the test.
    unsafe {
        command.pre_exec(move || {
            nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET)?;
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)
        });
    }
}

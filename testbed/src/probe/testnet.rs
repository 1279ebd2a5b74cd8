//! Real network namespaces for tests: they belong to this process and are gone with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use topologies::lab::{Lab, Node, Role};

/// Namespaces by node name, with a folder in which each can be opened by name as in `/run/netns`.
pub struct TestNet {
    dir: tempfile::TempDir,
    handles: BTreeMap<String, File>,
}

impl TestNet {
    /// Makes the namespaces; `None` (said on stderr) where the test may not.
    pub fn new(names: &[&str]) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can make network namespaces");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut handles = BTreeMap::new();
        for name in names {
            let handle = std::thread::spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                File::open("/proc/thread-self/ns/net").unwrap()
            })
            .join()
            .unwrap();
            let target = format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd());
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
            handles.insert((*name).to_string(), handle);
        }
        Some(Self { dir, handles })
    }

    /// The folder of namespaces.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A namespace's path.
    pub fn path(&self, node: &str) -> PathBuf {
        assert!(self.handles.contains_key(node), "no namespace {node}");
        self.dir.path().join(node)
    }

    /// A command that runs in the node's namespace.
    pub fn command(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path(node).display())).arg("--").arg(program);
        command
    }

    /// Runs `ip -6 -batch` in the node's namespace; every line must work.
    pub fn ip(&self, node: &str, lines: &str) {
        let mut child = self
            .command(node, "ip")
            .args(["-6", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "ip in {node}:\n{lines}");
    }

    /// What `ip` prints in the node's namespace.
    pub fn ip_show(&self, node: &str, args: &[&str]) -> String {
        let out = self.command(node, "ip").args(args).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    }

    /// Sets `/proc/sys/net/...` in the node's namespace.
    pub fn sysctl(&self, node: &str, settings: &[(&str, &str)]) {
        let script: String =
            settings.iter().map(|(key, value)| format!("echo {value} > /proc/sys/net/{key};")).collect();
        assert!(self.command(node, "sh").args(["-ec", &script]).status().unwrap().success());
    }

    /// Builds the lab without MPLS and without programs: links, addresses, neighbours, static routes, and in place
    /// of the IGP a route to each loopback of the plane (full mesh only), and the rule for table 200.
    pub fn build(lab: &Lab) -> Option<Self> {
        let names: Vec<&str> = lab.nodes.iter().map(|n| n.name.as_str()).collect();
        let net = Self::new(&names)?;
        for node in &lab.nodes {
            let forwarding = if node.role == Role::Host { "0" } else { "1" };
            net.sysctl(
                &node.name,
                &[
                    ("ipv6/conf/all/forwarding", forwarding),
                    ("ipv6/conf/default/accept_dad", "0"),
                    ("ipv6/conf/all/accept_dad", "0"),
                    ("ipv6/conf/all/keep_addr_on_down", "1"),
                    ("ipv6/conf/default/keep_addr_on_down", "1"),
                    ("ipv6/fib_multipath_hash_policy", "1"),
                ],
            );
        }
        for link in &lab.links {
            let (a, b) = (lab.end(&link.a).unwrap(), lab.end(&link.b).unwrap());
            net.ip(
                &link.a.node,
                &format!(
                    "link add name {} index {} mtu {} address {} type veth \
                     peer name {} index {} mtu {} address {} netns {}\n",
                    a.name,
                    a.ifindex,
                    a.mtu,
                    mac(a.mac),
                    b.name,
                    b.ifindex,
                    b.mtu,
                    mac(b.mac),
                    net.path(&link.b.node).display(),
                ),
            );
        }
        for node in &lab.nodes {
            net.ip(&node.name, &configuration(lab, node));
        }
        Some(net)
    }
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

fn configuration(lab: &Lab, node: &Node) -> String {
    let mut lines = format!("link set lo up\naddr add {}/128 dev lo\n", node.address);
    for i in &node.interfaces {
        lines += &format!("link set {} up\n", i.name);
        for address in &i.addresses {
            lines += &format!("addr add {address} dev {} nodad\n", i.name);
        }
        lines += &format!(
            "neigh replace {} lladdr {} dev {} nud permanent\n",
            i.peer_link_local,
            mac(i.peer_mac),
            i.name
        );
        if i.core {
            let peer = lab.node(&i.peer_node).unwrap();
            lines += &format!(
                "route add {}/128 via {} dev {} proto 99 metric 1024\n",
                peer.address, i.peer_link_local, i.name
            );
        }
    }
    for prefix in &node.local_prefixes {
        lines += &format!("route add local {prefix} dev lo\n");
    }
    for route in &node.routes {
        lines += &format!("route add {} via {} dev {} proto 4\n", route.prefix, route.via, route.interface);
    }
    if node.role == Role::Router {
        lines += "rule add pref 40000 lookup 200 proto 201\n";
    }
    lines
}

/// A child process that dies with the test.
pub struct Reaped(pub Child);

impl Reaped {
    /// SIGKILL, and wait.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        self.kill();
    }
}

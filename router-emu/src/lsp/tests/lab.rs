//! Two real namespaces joined by veth pairs, for tests in which the kernel is the point.

use std::future::Future;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rtnl::{Socket, link, neigh, netns, socket, sysctl};

use crate::config::{CoreInterface, OpenrTimers, RouterConfig};

/// The namespace under test and the one at the far end of all its links.
pub struct Pair {
    pub near: OwnedFd,
    pub far: OwnedFd,
    names: Vec<String>,
}

/// Makes the pair with one link for each name (the same at both ends), all up; or says why the test is skipped.
pub fn pair(names: &[&str]) -> Option<Pair> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: making namespaces needs root");
        return None;
    }
    let (near, far) = (netns::create().unwrap(), netns::create().unwrap());
    for (namespace, forwarding) in [(&near, "1"), (&far, "0")] {
        let settings = [
            ("net.ipv6.conf.all.forwarding", forwarding),
            ("net.ipv6.conf.all.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
        ];
        sysctl::write(namespace.as_fd(), &settings).unwrap().into_iter().for_each(|r| r.unwrap());
    }
    let pair = Pair { near, far, names: names.iter().map(|n| (*n).to_owned()).collect() };
    let mut root = Socket::open(socket::ROUTE).unwrap();
    for (i, name) in names.iter().enumerate() {
        let (a, b) = (index(i, false), index(i, true));
        let near = link::LinkEnd { netns: pair.near.as_fd(), name, ifindex: a, mac: mac(a), mtu: 9000 };
        let far = link::LinkEnd { netns: pair.far.as_fd(), name, ifindex: b, mac: mac(b), mtu: 9000 };
        root.request(&link::create_veth(&near, &far)).unwrap();
    }
    for end in [false, true] {
        pair.socket(end).request(&link::set_up(1, true)).unwrap();
        names.iter().for_each(|name| pair.set_up(name, end, true));
    }
    Some(pair)
}

impl Pair {
    /// A socket in one of the two.
    pub fn socket(&self, far: bool) -> Socket {
        let namespace = if far { &self.far } else { &self.near };
        Socket::open_in(namespace.as_fd(), socket::ROUTE).unwrap()
    }

    /// Sets one end of a link up or down; up with its permanent neighbour.
    pub fn set_up(&self, name: &str, far: bool, up: bool) {
        let i = self.names.iter().position(|n| n == name).unwrap();
        let (own, other) = (index(i, far), index(i, !far));
        let mut socket = self.socket(far);
        socket.request(&link::set_up(own, up)).unwrap();
        if up {
            socket.request(&neigh::set_permanent(own, link_local(other), mac(other))).unwrap();
        }
    }

    /// Link-local address of a link's far end.
    pub fn gateway(&self, name: &str) -> Ipv6Addr {
        link_local(index(self.names.iter().position(|n| n == name).unwrap(), true))
    }

    /// Link-local address of a link's near end.
    pub fn near_address(&self, name: &str) -> Ipv6Addr {
        link_local(self.ifindex(name))
    }

    /// Index of a link's near end.
    pub fn ifindex(&self, name: &str) -> u32 {
        index(self.names.iter().position(|n| n == name).unwrap(), false)
    }

    /// Runs `main` on an event loop inside the near namespace.
    pub fn inside<F: Future<Output = ()>>(&self, main: impl FnOnce() -> F + Send) {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(main());
        };
        netns::enter(self.near.as_fd(), run).unwrap();
    }

    /// A router configuration whose backbone interfaces are the pair's links.
    pub fn config(&self, folder: &Path, fabric: Option<&str>) -> RouterConfig {
        let interfaces = self.names.iter().map(|name| CoreInterface {
            name: name.clone(),
            label: 1000,
            peer_link_local: self.gateway(name),
            capacity_bps: 1,
            members: 0,
            declared_rtt_us: 0,
            srlgs: vec![],
            enabled: true,
        });
        RouterConfig {
            node: "a".to_owned(),
            plane: 1,
            site: 1,
            site_name: "a".to_owned(),
            is_dc: true,
            loopback: "fd00:1::1".parse().unwrap(),
            run_dir: folder.to_owned(),
            state_dir: folder.join("state"),
            fabric_interface: fabric.map(str::to_owned),
            interfaces: interfaces.collect(),
            max_labels: 3,
            openr: OpenrTimers::default(),
            macsec: None,
        }
    }
}

/// Waits until `check` gives something, up to 5 s; then fails with what was waited for.
pub async fn wait<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within 5 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn index(i: usize, far: bool) -> u32 {
    1001 + 2 * u32::try_from(i).unwrap() + u32::from(far)
}

fn mac(index: u32) -> [u8; 6] {
    let [a, b, c, d] = index.to_be_bytes();
    [0x02, 0xeb, a, b, c, d]
}

fn link_local(index: u32) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac(index).map(u16::from);
    Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f)
}

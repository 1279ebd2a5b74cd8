//! The leader's lock over a real etcd cluster of three members on this machine.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebb::fence::etcd::Etcd;
use ebb::fence::{Bid, LeasedLock, Lock};

const PROGRAM: &str = "/usr/bin/etcd";
const TTL: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_millis(500);
/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    folder: tempfile::TempDir,
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Child>>,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // held until all are known, so that they differ
        let listeners: Vec<TcpListener> =
            (0..6).map(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap()).collect();
        let port = |i: usize| listeners[i].local_addr().unwrap().port();
        let ports = (0..3).map(|i| (port(2 * i), port(2 * i + 1))).collect();
        drop(listeners);
        let mut cluster = Self { folder, ports, members: vec![None, None, None] };
        (0..3).for_each(|i| cluster.run(i));
        cluster
    }

    fn run(&mut self, i: usize) {
        let url = |port: u16| format!("http://[::1]:{port}");
        let (client, peer) = (url(self.ports[i].0), url(self.ports[i].1));
        let all: Vec<String> = (0..3).map(|i| format!("m{i}={}", url(self.ports[i].1))).collect();
        let log =
            std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--name", &format!("m{i}"), "--initial-cluster", &all.join(",")]);
        command.arg("--data-dir").arg(self.folder.path().join(format!("m{i}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap"]);
        self.members[i] =
            Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    fn kill(&mut self, i: usize) {
        if let Some(mut member) = self.members[i].take() {
            member.kill().unwrap();
            member.wait().unwrap();
        }
    }

    fn lock(&self, name: &str) -> LeasedLock {
        let endpoints =
            self.ports.iter().map(|(port, _)| SocketAddr::from((Ipv6Addr::LOCALHOST, *port))).collect();
        LeasedLock::start(Etcd::new(endpoints, 1, name, TIMEOUT), TTL, MARGIN).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..3).for_each(|i| self.kill(i));
    }
}

/// Campaigns until the lead is won.
async fn win(lock: &mut LeasedLock) -> u64 {
    let until = Instant::now() + PATIENCE;
    loop {
        let said = lock.try_acquire().await;
        match said {
            Ok(Bid::Won(epoch)) => return epoch,
            other => assert!(Instant::now() < until, "not elected: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn one_leads_the_next_takes_over_and_without_a_majority_nobody_does() {
    if !Path::new(PROGRAM).exists() {
        eprintln!("no etcd on this machine (package etcd-server): nothing is tested");
        return;
    }
    let mut cluster = Cluster::start();
    let (mut a, mut b) = (cluster.lock("a"), cluster.lock("b"));
    assert_eq!(win(&mut a).await, 1);
    assert_eq!(b.try_acquire().await.unwrap(), Bid::Taken(Some("a".into())));
    assert_eq!(b.raise_above(9).await.unwrap(), None);
    assert_eq!(a.raise_above(40).await.unwrap(), Some(41));
    assert!(a.lease().valid() && !b.lease().valid());

    // an end that is said: the next one need not wait for the lease
    drop(a);
    assert_eq!(win(&mut b).await, 42);

    // one member of three may die: the lease is renewed all the same
    cluster.kill(0);
    let until = Instant::now() + 2 * TTL;
    while Instant::now() < until {
        assert!(b.lease().valid(), "the lease was lost with one member");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // two may not
    cluster.kill(1);
    let mut lease = b.lease();
    tokio::time::timeout(PATIENCE, lease.lapsed()).await.expect("the lease ends");
    assert!(!lease.valid());
    assert!(b.try_acquire().await.unwrap_err().to_string().starts_with("etcd does not answer: "));
    assert_eq!(b.raise_above(50).await.unwrap(), None);

    // back again, with what it knew
    (0..2).for_each(|i| cluster.run(i));
    let mut c = cluster.lock("c");
    assert_eq!(win(&mut c).await, 43);
}

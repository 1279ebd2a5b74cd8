//! Real BIRDs in namespaces: two DCs and a midpoint in two planes, static routes in place of the IGP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use topologies::lab::{Lab, Node, Role};

use super::*;
use crate::probe::testnet::{Reaped, TestNet};
use crate::probe::{self, Class, Handle, Spec, testlab};

struct World {
    lab: Lab,
    net: TestNet,
    dir: tempfile::TempDir,
    birds: BTreeMap<String, Reaped>,
}

fn bird_binary() -> String {
    std::env::var("TESTBED_BIRD").unwrap_or_else(|_| "bird".to_string())
}

impl World {
    fn new() -> Option<Self> {
        if Command::new(bird_binary()).arg("--version").output().is_err() {
            eprintln!("skipped: no bird on this machine");
            return None;
        }
        let lab = testlab::small();
        let net = TestNet::build(&lab)?;
        let mut world = Self { lab, net, dir: tempfile::tempdir().unwrap(), birds: BTreeMap::new() };
        for name in world.speakers() {
            std::fs::create_dir(world.folder(&name)).unwrap();
            world.write(&name, Drain::Normal);
            world.start(&name, false);
        }
        Some(world)
    }

    fn speakers(&self) -> Vec<String> {
        self.lab.nodes.iter().filter(|n| n.role != Role::Host).map(|n| n.name.clone()).collect()
    }

    fn node(&self, name: &str) -> &Node {
        self.lab.node(name).unwrap()
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, drain: Drain) {
        let files = render(&self.lab, self.node(name), drain).unwrap();
        std::fs::write(self.folder(name).join(CONF_FILE), files.bird_conf).unwrap();
        if let Some(drain_conf) = files.drain_conf {
            std::fs::write(self.folder(name).join(DRAIN_FILE), drain_conf).unwrap();
        }
    }

    fn start(&mut self, name: &str, recover: bool) {
        let log = std::fs::File::create(self.folder(name).join("log")).unwrap();
        let child = self
            .net
            .command(name, &bird_binary())
            .args(command_line(&self.folder(name), recover))
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.birds.insert(name.to_string(), Reaped(child));
    }

    fn control(&self, name: &str) -> Control {
        Control::new(self.folder(name).join(SOCKET_FILE), Duration::from_secs(5))
    }

    /// Routes to `prefix` in `table` of the node, as `ip` prints them.
    fn routes(&self, node: &str, table: &str, prefix: &str) -> String {
        self.net.ip_show(node, &["-6", "route", "show", "table", table, prefix])
    }

    /// Waits until `ok` says so of what `look` sees.
    fn until(&self, what: &str, look: impl Fn(&Self) -> String, ok: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut seen = look(self);
        while !ok(&seen) {
            assert!(Instant::now() < deadline, "{what}: still\n{seen}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
            seen = look(self);
        }
    }

    fn logs(&self) -> String {
        let tail = |name: &String| {
            let log = std::fs::read_to_string(self.folder(name).join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(8)..].join("\n"))
        };
        self.birds.keys().map(tail).collect()
    }

    /// Waits until the aggregator's route to the other site uses exactly these planes.
    fn planes(&self, node: &str, prefix: &str, want: &[u8]) {
        self.until(
            &format!("{node} to {prefix} over planes {want:?}"),
            |w| w.routes(node, "main", prefix),
            |seen| [1u8, 2].iter().all(|p| seen.contains(&format!("dev eb0{p}")) == want.contains(p)),
        );
    }

    fn both(&self, want: &[u8]) {
        self.planes("fa.prn", "2001:db8:2::/48", want);
        self.planes("fa.lla", "2001:db8:1::/48", want);
    }

    async fn drain(&self, plane: u8, drain: Drain) {
        let routers: Vec<String> = self.lab.routers(plane).map(|n| n.name.clone()).collect();
        for name in routers {
            self.write(&name, drain);
            assert_eq!(self.control(&name).configure(Reload::Full, None).await.unwrap(), Reloaded::Done);
        }
    }

    /// Packets that the plane's router in prn has sent to lla directly.
    fn core_packets(&self, plane: u8) -> u64 {
        let node = format!("eb{plane:02}.prn");
        let text = self.net.ip_show(&node, &["-s", "-o", "link", "show", "to-lla"]);
        let after = text.split("TX:").nth(1).unwrap();
        let numbers: Vec<u64> = after.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        numbers[1]
    }

    fn traffic(&self) -> Handle {
        probe::start(&Spec::all_pairs(&self.lab, &[Class::Gold, Class::Bronze], 500), self.net.dir(), |_| {})
            .unwrap()
    }

    /// Lets the traffic go on for `packets` more.
    fn flow(&self, handle: &Handle, packets: u64) {
        let sent = |h: &Handle| h.snapshot().map_or(0, |s| s.sent());
        let from = sent(handle);
        self.until(
            "traffic",
            |_| sent(handle).to_string(),
            |now| now.parse::<u64>().unwrap() >= from + packets,
        );
    }

    fn lossless(handle: Handle) {
        let report = handle.stop().unwrap();
        assert!(report.lossless(), "{}", probe::table::render(&report));
    }
}

#[tokio::test]
async fn routes_are_where_they_belong() {
    let Some(w) = World::new() else { return };
    w.both(&[1, 2]);
    let reached = probe::reach(&w.lab, w.net.dir(), 48, 16, Duration::from_secs(10)).unwrap();
    assert!(reached.complete(), "{reached:?}");
    // the aggregator's own prefix does not swallow its hosts, and the loopbacks of both planes are known
    assert_eq!(w.routes("fa.prn", "main", "2001:db8:1::/48"), "");
    for plane in ["1", "2"] {
        let prefix = format!("fd00:{plane}::/64");
        let way = format!("dev eb0{plane}");
        let look = |w: &World| w.routes("fa.prn", "main", &prefix);
        w.until("loopbacks", look, |seen| seen.contains(&way) && !seen.contains("nexthop"));
    }
    // own site over the fabric, other sites in the fallback and hand-over tables only, nothing of plane 2 in plane 1
    assert!(w.routes("eb01.prn", "main", "2001:db8:1::/48").contains("dev fa"));
    assert_eq!(w.routes("eb01.prn", "main", "2001:db8:2::/48"), "");
    for table in ["200", "1002"] {
        let look = |w: &World| w.routes("eb01.prn", table, "2001:db8:2::/48");
        w.until(table, look, |seen| seen.contains("dev to-lla proto bird"));
    }
    let midpoint = |w: &World| w.routes("eb01.chi", "200", "2001:db8:1::/48");
    w.until("fallback of the midpoint", midpoint, |seen| seen.contains("dev to-prn"));
    assert_eq!(w.net.ip_show("eb01.prn", &["-6", "route", "show", "table", "200", "root", "fd00::/8"]), "");
    let control = w.control("eb01.prn");
    assert!(control.version().await.unwrap().starts_with("2."));
    let protocols = control.protocols().await.unwrap();
    let bgp: Vec<_> =
        protocols.iter().filter(|p| p.proto == "BGP").map(|p| (p.name.as_str(), p.up())).collect();
    assert_eq!(bgp, [("fa", true), ("ib.lla", true), ("ib.chi", true)]);
    assert!(protocols.iter().filter(|p| p.proto == "BGP").all(|p| p.info == "Established"));
    let counts = control.route_count().await.unwrap();
    let remote = counts.iter().find(|c| c.table == "remote6").unwrap();
    assert_eq!((remote.routes, remote.networks), (1, 1));
    // an egress that the IGP loses is not announced to the aggregator any more
    w.net.ip("eb01.prn", "route del fd00:1::2/128\n");
    w.planes("fa.prn", "2001:db8:2::/48", &[2]);
    w.until("hand-over", |w| w.routes("eb01.prn", "1002", "2001:db8:2::/48"), str::is_empty);
}

#[tokio::test]
async fn drains_lose_nothing() {
    let Some(w) = World::new() else { return };
    w.both(&[1, 2]);
    let reached = probe::reach(&w.lab, w.net.dir(), 48, 16, Duration::from_secs(10)).unwrap();
    assert!(reached.complete(), "{reached:?}");
    let traffic = w.traffic();
    for drain in [Drain::GracefulShutdown, Drain::Withdraw, Drain::Prepend] {
        w.flow(&traffic, 1000);
        w.drain(1, drain).await;
        w.both(&[2]);
        // controllers keep their way to the plane, unless everything is withdrawn
        let loopbacks = |w: &World| w.routes("fa.prn", "main", "fd00:1::/64");
        w.until("loopbacks", loopbacks, |seen| seen.contains("dev eb01") == (drain != Drain::Withdraw));
        let before = [w.core_packets(1), w.core_packets(2)];
        w.flow(&traffic, 2000);
        let [idle, busy] = [w.core_packets(1) - before[0], w.core_packets(2) - before[1]];
        assert!(idle < 10 && busy > 300, "{drain}: plane 1 {idle}, plane 2 {busy}");
        w.drain(1, Drain::Normal).await;
        w.both(&[1, 2]);
    }
    // with the community on all planes, all of them carry traffic
    w.drain(1, Drain::GracefulShutdown).await;
    w.drain(2, Drain::GracefulShutdown).await;
    w.both(&[1, 2]);
    w.flow(&traffic, 1000);
    World::lossless(traffic);
}

#[tokio::test]
async fn a_killed_bird_loses_nothing() {
    let Some(mut w) = World::new() else { return };
    w.both(&[1, 2]);
    let reached = probe::reach(&w.lab, w.net.dir(), 48, 16, Duration::from_secs(10)).unwrap();
    assert!(reached.complete(), "{reached:?}");
    let traffic = w.traffic();
    w.flow(&traffic, 500);
    for name in ["eb01.prn", "fa.lla", "eb02.lla"] {
        w.birds.get_mut(name).unwrap().kill();
        w.flow(&traffic, 1500);
        std::fs::remove_file(w.folder(name).join(SOCKET_FILE)).unwrap();
        w.start(name, true);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let up = w.control(name).protocols().await.is_ok_and(|all| all.iter().all(Protocol::up));
            if up {
                break;
            }
            assert!(Instant::now() < deadline, "{}", w.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        w.flow(&traffic, 1500);
        w.both(&[1, 2]);
        let handover = |w: &World| w.routes("eb01.prn", "1002", "2001:db8:2::/48");
        w.until("hand-over", handover, |seen| seen.contains("dev to-lla"));
    }
    World::lossless(traffic);
}

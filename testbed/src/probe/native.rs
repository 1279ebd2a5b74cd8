//! The engine between two hosts and a router, on this kernel.

use std::net::Ipv6Addr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use topologies::lab::Lab;

use super::testnet::TestNet;
use super::*;

/// Hosts h1.a and h1.b on the two sides of r; host k is `2001:db8:k:1::1`.
fn net() -> Option<TestNet> {
    let net = TestNet::new(&["h1.a", "r", "h1.b"])?;
    net.sysctl("r", &[("ipv6/conf/all/forwarding", "1")]);
    for node in ["h1.a", "r", "h1.b"] {
        net.sysctl(node, &[("ipv6/conf/default/accept_dad", "0"), ("ipv6/conf/all/accept_dad", "0")]);
        net.ip(node, "link set lo up\n");
    }
    for (site, host, index) in [(1, "h1.a", 10), (2, "h1.b", 20)] {
        let path = net.path(host).display().to_string();
        net.ip(
            "r",
            &format!(
                "link add name p{site} index {index} type veth peer name fa index {} netns {path}\n\
                 addr add fe80::{site}/64 dev p{site}\nlink set p{site} up\n\
                 route add 2001:db8:{site}::/48 via fe80::1:{site} dev p{site}\n",
                index + 1
            ),
        );
        net.ip(
            host,
            &format!(
                "link set fa up\naddr add fe80::1:{site}/64 dev fa\naddr add 2001:db8:{site}:1::1/128 dev lo\n\
                 route add local 2001:db8:{site}:1:1::/80 dev lo\nroute add default via fe80::{site} dev fa\n"
            ),
        );
    }
    // a link's queue comes to life some time after its carrier; until then packets are dropped
    let reached = reach(&lab(), net.dir(), 48, 2, Duration::from_secs(20)).unwrap();
    assert!(reached.complete(), "{reached:?}");
    Some(net)
}

fn hosts() -> std::collections::BTreeMap<String, HostSpec> {
    [("h1.a", 1), ("h1.b", 2)]
        .into_iter()
        .map(|(name, site)| {
            let address: Ipv6Addr = format!("2001:db8:{site}:1::1").parse().unwrap();
            let sources: Ipv6Net = format!("2001:db8:{site}:1:1::/80").parse().unwrap();
            (name.to_string(), HostSpec { address, sources: Some(sources) })
        })
        .collect()
}

fn spec(streams: &[(&str, &str, Class, u32)]) -> Spec {
    Spec {
        hosts: hosts(),
        streams: streams
            .iter()
            .map(|(from, to, class, pps)| StreamSpec {
                from: (*from).into(),
                to: (*to).into(),
                class: *class,
                pps: *pps,
                flows: 40,
            })
            .collect(),
        duration: None,
        payload: 100,
        drain: Duration::from_secs(1),
        quiet: Duration::from_millis(300),
        snapshot_every: Duration::from_millis(200),
    }
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let time = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(t.tv_sec() * 1_000_000 + t.tv_usec()).unwrap())
    };
    time(usage.user_time()) + time(usage.system_time())
}

#[test]
fn eight_thousand_a_second_without_loss() {
    let Some(net) = net() else { return };
    let streams: Vec<_> = Class::ALL
        .into_iter()
        .flat_map(|class| [("h1.a", "h1.b", class, 1000), ("h1.b", "h1.a", class, 1000)])
        .collect();
    let spec = spec(&streams).lasting(Duration::from_secs(2));
    let before = cpu();
    let report = run(&spec, net.dir(), |_| {}, || false).unwrap();
    let used = cpu() - before;
    eprintln!("{}cpu {:.1} % of one", table::render(&report), used.as_secs_f64() * 50.0);
    assert!(report.finished && report.lossless());
    // on a machine that is busy with other tests the sender may still be catching up at the end
    let due = report.sent() + report.slipped;
    assert!((10_000..=16_000).contains(&due), "{due}");
    for s in &report.streams {
        assert_eq!((s.duplicates, s.reordered, s.path_changes, s.late), (0, 0, 0, 0));
        assert!(s.latency.p50_us < 500_000 && s.latency.p50_us <= s.latency.max_us);
    }
}

#[test]
fn a_cut_shows_as_a_window_of_its_length() {
    let Some(net) = net() else { return };
    let spec = spec(&[("h1.a", "h1.b", Class::Gold, 1000), ("h1.b", "h1.a", Class::Gold, 1000)]);
    let handle = start(&spec, net.dir(), |_| {}).unwrap();
    let running = Instant::now();
    while handle.snapshot().is_none_or(|s| s.sent() < 400) {
        assert!(running.elapsed() < Duration::from_secs(10), "{:?}", handle.snapshot());
        std::thread::sleep(Duration::from_millis(10));
    }
    let asked = clock::now();
    net.ip("r", "route replace blackhole 2001:db8:2::/48\n");
    let cut = clock::now();
    // the length of the cut, not a wait
    std::thread::sleep(Duration::from_millis(150));
    let mend = clock::now();
    net.ip("r", "route del blackhole 2001:db8:2::/48\nroute replace 2001:db8:2::/48 via fe80::1:2 dev p2\n");
    let mended = clock::now();
    let sent = handle.snapshot().map_or(0, |s| s.sent());
    while handle.snapshot().is_none_or(|s| s.sent() < sent + 400) {
        assert!(running.elapsed() < Duration::from_secs(20), "{:?}", handle.snapshot());
        std::thread::sleep(Duration::from_millis(10));
    }
    let report = handle.stop().unwrap();
    let (there, back) = (&report.streams[0], &report.streams[1]);
    eprintln!("{}", table::render(&report));
    assert_eq!((back.lost, back.loss_windows.len()), (0, 0));
    assert_eq!(there.loss_windows.len(), 1);
    let window = &there.loss_windows[0];
    assert_eq!((window.lost, window.flows), (there.lost, there.lost.min(40)));
    let (least, most) = (tracker::milliseconds(mend - cut), tracker::milliseconds(mended - asked));
    // between two packets the sender may have been late at either end
    let late_ns = 2_000_000 + 2 * 1000 * report.lateness.max_us;
    let late = tracker::milliseconds(late_ns);
    assert!(window.ms > least - late && window.ms < most + late, "{} between {least} and {most}", window.ms);
    assert!(window.start >= asked - late_ns && window.start <= cut + late_ns);
}

#[test]
fn snapshots_show_a_loss_that_goes_on() {
    let Some(net) = net() else { return };
    let (tx, rx) = mpsc::channel();
    let spec = spec(&[("h1.a", "h1.b", Class::Bronze, 200)]);
    net.ip("r", "route replace blackhole 2001:db8:2::/48\n");
    let handle = start(&spec, net.dir(), move |report| drop(tx.send(report.clone()))).unwrap();
    let lost = loop {
        let report = rx.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(!report.finished);
        if report.lost() > 0 {
            break report.streams[0].loss_windows.len();
        }
    };
    assert_eq!(lost, 1);
    let report = handle.stop().unwrap();
    assert_eq!((report.streams[0].received, report.lost()), (0, report.sent()));
}

#[test]
fn a_host_without_a_route_is_not_a_loss() {
    let Some(net) = net() else { return };
    net.ip("h1.a", "route del default\n");
    let spec = spec(&[("h1.a", "h1.b", Class::Icp, 100)]).lasting(Duration::from_millis(300));
    let report = run(&spec, net.dir(), |_| {}, || false).unwrap();
    assert_eq!((report.sent(), report.lost()), (0, 0));
    assert!(report.send_errors() > 0 && !report.lossless());
}

#[test]
fn a_missing_namespace_is_named() {
    let error =
        start(&spec(&[("h1.a", "h1.b", Class::Icp, 1)]), "/nonexistent".as_ref(), |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("network namespace /nonexistent/h1.a: cannot open it: No such file"), "{text}");
}

/// A lab of which only the hosts matter here.
fn lab() -> Lab {
    testlab::build(&["a", "b"], &[], 1)
}

#[test]
fn reachability_of_all_pairs() {
    let Some(net) = net() else { return };
    let report = reach(&lab(), net.dir(), 48, 8, Duration::from_secs(10)).unwrap();
    assert!(report.complete(), "{report:?}");
    assert_eq!((report.pairs.len(), report.pairs[0].answered), (2, 8));
    assert_eq!(table::render_reach(&report).lines().count(), 1);
    net.ip("r", "route replace blackhole 2001:db8:2:1:1::/80\n");
    let report = reach(&lab(), net.dir(), 0, 2, Duration::from_millis(400)).unwrap();
    assert!(report.elapsed_ms >= 400 && report.elapsed_ms < 5_000);
    let missing: Vec<_> =
        report.pairs.iter().map(|p| (p.from.as_str(), p.answered, p.rtt_us.is_some())).collect();
    // only the second source of h1.b lies in what is cut off
    assert_eq!(missing, [("h1.a", 2, true), ("h1.b", 1, false)]);
    assert!(table::render_reach(&report).contains("h1.b -> h1.a"));
}

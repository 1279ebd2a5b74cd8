//! BFD between processes in network namespaces: links that swallow everything while both ends have a carrier. Needs root,
//! and FRR's bfdd where it is compared with; says so and passes otherwise.

// helpers outside of test functions do not count as tests for these lints
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

#[path = "bfd/frr.rs"]
mod frr;
#[path = "bfd/lab.rs"]
mod lab;

use std::future::Future;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use lab::{LINKS, Lab, NODES, flares};
use nix::sys::signal::Signal;
use prost::Message as _;
use router_emu::config::BfdTimers;
use router_emu::proto::{AdjacencyDatabase, Publication};

const INTERVAL: u64 = 20;
const CUTS: usize = 20;
/// What a packet may be silent about, nanoseconds.
const DETECTION: u64 = 3 * INTERVAL * 1_000_000;

/// These tests measure: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn run(needs_frr: bool, test: impl Future<Output = ()>) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    if needs_frr && !frr::is_here() {
        println!("skipped: no bfdd here (package frr)");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(test);
}

fn timers() -> BfdTimers {
    BfdTimers { enabled: true, tx: INTERVAL, rx: INTERVAL, multiplier: 3 }
}

async fn both_with_bfd() -> Lab {
    let mut lab = Lab::build(&timers());
    for node in NODES {
        lab.start_openr(node);
    }
    lab.wait_states(0, "ESTABLISHED").await;
    for node in NODES {
        lab.wait_log(node, "openr", "BFD: session up", LINKS.len()).await;
    }
    lab
}

fn print(what: &str, times_ns: &mut [u64]) {
    times_ns.sort_unstable();
    let at = |part: usize| times_ns[(times_ns.len() - 1) * part / 100] as f64 / 1e6;
    println!(
        "{what}: least {:.1}, median {:.1}, 90 % {:.1}, most {:.1} ms ({} times)",
        at(0),
        at(50),
        at(90),
        at(100),
        times_ns.len()
    );
}

/// The cuts must not keep step with the packets.
async fn some_phase(k: usize) {
    tokio::time::sleep(Duration::from_micros(u64::try_from(k).unwrap() * 7_919 % 20_000)).await;
}

/// Interfaces that a publication says a router has adjacencies on.
fn interfaces(publication: &Publication) -> Vec<String> {
    let databases = publication.values.iter().map(|v| AdjacencyDatabase::decode(v.value.as_slice()).unwrap());
    databases.flat_map(|d| d.adjacencies).map(|a| a.interface).collect()
}

#[test]
fn silent_cuts_are_found_and_told() {
    run(false, async {
        let mut lab = both_with_bfd().await;
        let heard = NODES.map(|node| lab.hear_flares(node));
        let mut found = Vec::new();
        for k in 0..CUTS {
            some_phase(k).await;
            let mut told = lab.watch("a", "a").await;
            told.message().await.unwrap();
            let cut = lab.set_wire(0, false);
            // the adjacency is withdrawn, and that of the other links stays
            let news = tokio::time::timeout(Duration::from_secs(5), told.message()).await.expect("in time");
            assert_eq!(interfaces(&news.unwrap().unwrap()), ["l1", "l2", "l3"]);
            lab.wait_states(0, "SILENT").await;
            for (node, heard) in NODES.iter().zip(&heard) {
                // of the own loss by the own reflex, of the other end's by its flare over the other links
                let mut flares = flares(heard);
                flares.sort_by_key(|flare| flare.router != *node);
                let told: Vec<_> = flares.iter().map(|f| (f.router.as_str(), f.interface.as_str())).collect();
                let other = if *node == "a" { "b" } else { "a" };
                assert_eq!(told, [(*node, "l0"), (other, "l0")], "flares in {node}");
                found.push(flares[0].lost_ns - cut);
            }
            lab.set_wire(0, true);
            lab.wait_states(0, "ESTABLISHED").await;
            // announced a little later
            for node in NODES {
                let mut told = lab.watch("a", node).await;
                while !interfaces(&told.message().await.unwrap().unwrap()).contains(&"l0".to_owned()) {}
            }
            for heard in &heard {
                assert_eq!(flares(heard), [], "the return is no loss");
            }
        }
        print("openr, silent cut until an end's flare", &mut found);
        assert!(found.iter().all(|t| *t > DETECTION / 4), "sooner than is possible");
        assert!(found[found.len() / 2] < 2 * DETECTION);
    });
}

#[test]
fn a_dead_openr_is_no_dead_link() {
    run(false, async {
        let mut lab = both_with_bfd().await;
        let heard = lab.hear_flares("a");
        for (k, signal) in
            [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL, Signal::SIGKILL].iter().enumerate()
        {
            let mut told = lab.watch("a", "a").await;
            told.message().await.unwrap();
            let sessions = lab.log("a", "openr").matches("BFD: session up").count();
            some_phase(k).await;
            lab.signal("b", "openr", *signal);
            // once longer than any detection, once so soon that nobody has missed it
            tokio::time::sleep(Duration::from_millis(if k == 3 { 0 } else { 1500 })).await;
            lab.start_openr("b");
            lab.wait_log("a", "openr", "BFD: session up", sessions + LINKS.len()).await;
            lab.wait_states(0, "ESTABLISHED").await;
            assert_eq!(flares(&heard), [], "{signal}");
            // round-trip times are measured anew; no link may be missing meanwhile
            while let Ok(news) = tokio::time::timeout(Duration::from_millis(200), told.message()).await {
                assert_eq!(interfaces(&news.unwrap().unwrap()), LINKS, "{signal}");
            }
        }
        // and now that it lives, silence counts again
        lab.set_wire(1, false);
        lab.wait_states(1, "SILENT").await;
        // the death of a neighbour whose link is held does not give the link back; its return does
        lab.set_wire(1, true);
        lab.wait_states(1, "ESTABLISHED").await;
    });
}

#[test]
fn a_neighbour_without_bfd_is_not_held_down() {
    run(false, async {
        let mut lab = Lab::build(&timers());
        lab.start_openr("a");
        let config = std::fs::read_to_string(lab.path("b").join("router.json")).unwrap();
        std::fs::write(
            lab.path("b").join("router.json"),
            config.replace("\"enabled\":true", "\"enabled\":false"),
        )
        .unwrap();
        lab.start_openr("b");
        lab.wait_states(0, "ESTABLISHED").await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        lab.wait_states(0, "ESTABLISHED").await;
        assert!(!lab.log("a", "openr").contains("BFD: session up"));
        assert!(!lab.log("a", "openr").contains("neighbour down"));
    });
}

#[test]
fn idle_sessions_cost_little() {
    run(false, async {
        let seconds = 20;
        let mut spent = Vec::new();
        let mut lab = both_with_bfd().await;
        // the hellos of the start are over
        tokio::time::sleep(Duration::from_secs(6)).await;
        spent.push(("openr", cpu(&lab, "openr", seconds).await));
        lab.end_all();
        if frr::is_here() {
            for node in NODES {
                frr::start(&mut lab, node, INTERVAL).await;
            }
            for node in NODES {
                lab.wait_log(node, "bfdd", "-> up", LINKS.len()).await;
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            spent.push(("bfdd", cpu(&lab, "bfdd-out", seconds).await));
        }
        for (who, ns) in &spent {
            println!(
                "{who}: {:.2} ms of CPU a second and router, {} sessions, {INTERVAL} ms",
                *ns as f64 / 1e6 / seconds as f64,
                LINKS.len()
            );
        }
        assert!(spent[0].1 < seconds * 100_000_000, "a tenth of a CPU");
    });
}

/// Nanoseconds that a program of both routers uses in so many seconds, the mean of both.
async fn cpu(lab: &Lab, program: &str, seconds: u64) -> u64 {
    let total = || NODES.iter().map(|node| lab.cpu_ns(node, program)).sum::<u64>();
    let before = total();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    (total() - before) / 2
}

#[test]
fn frr_as_neighbour() {
    run(true, async {
        let mut lab = Lab::build(&timers());
        lab.start_openr("a");
        // one end of ours alone makes no adjacencies, but sessions
        frr::start(&mut lab, "b", INTERVAL).await;
        lab.wait_log("a", "openr", "BFD: session up", LINKS.len()).await;
        lab.wait_log("b", "bfdd", "-> up", LINKS.len()).await;
        // the fast rate is agreed on: a cut is found in its time, by both
        tokio::time::sleep(Duration::from_secs(3)).await;
        let heard = lab.hear_flares("a");
        let mut found = (Vec::new(), Vec::new());
        for k in 0..CUTS {
            some_phase(k).await;
            let changes = frr::changes(&lab, "b", 0).len();
            let (cut, day) = (lab.set_wire(0, false), time_of_day());
            lab.wait_log("b", "bfdd", "up -> down", k + 1).await;
            found.1.push((frr::changes(&lab, "b", 0)[changes].0 - day) * 1000);
            let start = Instant::now();
            let flares = loop {
                let flares = flares(&heard);
                if !flares.is_empty() {
                    break flares;
                }
                assert!(start.elapsed() < Duration::from_secs(2), "no flare");
                tokio::time::sleep(Duration::from_millis(1)).await;
            };
            assert_eq!((flares.len(), flares[0].interface.as_str()), (1, "l0"));
            found.0.push(flares[0].lost_ns - cut);
            lab.set_wire(0, true);
            lab.wait_log("a", "openr", "BFD: session up", LINKS.len() + k + 1).await;
            lab.wait_log("b", "bfdd", "-> up", LINKS.len() + k + 1).await;
            // it takes its fast rate a moment later
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        print("openr beside bfdd, silent cut until openr's flare", &mut found.0);
        print("openr beside bfdd, silent cut until bfdd's log   ", &mut found.1);
        assert!(found.0[CUTS / 2] < 2 * DETECTION && found.1[CUTS / 2] < 2 * DETECTION);
        // its end is no end of a link, however it comes; ours is told to it
        lab.signal("b", "bfdd-out", Signal::SIGKILL);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(flares(&heard), [], "its kernel has said that it is dead");
        lab.signal("b", "zebra", Signal::SIGKILL);
        let sessions = lab.log("a", "openr").matches("BFD: session up").count();
        frr::start(&mut lab, "b", INTERVAL).await;
        lab.wait_log("a", "openr", "BFD: session up", sessions + LINKS.len()).await;
        lab.wait_log("b", "bfdd", "-> up", LINKS.len()).await;
        lab.signal("a", "openr", Signal::SIGTERM);
        lab.wait_log("b", "bfdd", "up -> down", LINKS.len()).await;
        assert!(!lab.log("b", "bfdd").contains("expired"), "it was told");
    });
}

#[test]
fn frr_alone_for_comparison() {
    run(true, async {
        let mut lab = Lab::build(&timers());
        for node in NODES {
            frr::start(&mut lab, node, INTERVAL).await;
        }
        for node in NODES {
            lab.wait_log(node, "bfdd", "-> up", LINKS.len()).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mut found = Vec::new();
        for k in 0..CUTS {
            some_phase(k).await;
            let changes = NODES.map(|node| frr::changes(&lab, node, 0).len());
            lab.set_wire(0, false);
            let day = time_of_day();
            for (node, changes) in NODES.iter().zip(changes) {
                lab.wait_log(node, "bfdd", "up -> down", k + 1).await;
                found.push((frr::changes(&lab, node, 0)[changes].0 - day) * 1000);
            }
            lab.set_wire(0, true);
            for node in NODES {
                lab.wait_log(node, "bfdd", "-> up", LINKS.len() + k + 1).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        print("bfdd, silent cut until an end's log", &mut found);
    });
}

/// Microseconds since midnight (UTC).
fn time_of_day() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap() % 86_400_000_000
}

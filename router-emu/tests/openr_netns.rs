//! openr and fib-agent as processes in network namespaces: a chain of seven routers, `x - n0 - … - n5`, with two
//! parallel links between n1 and n2. Needs root; says so and passes otherwise.

// helpers outside of test functions do not count as tests for these lints
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

#[path = "openr/chain.rs"]
mod chain;

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use chain::{Chain, ROUTERS, median};
use router_emu::agent::monotonic_ns;
use router_emu::openr::flare::{Flare, HOPS, MAX_FLARE};

#[test]
fn a_chain_of_routers() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut chain = Chain::build();
        let start = Instant::now();
        chain.start_all();
        chain.wait("all routes in all kernels", |c| c.all_routes()).await;
        println!("all routes in all kernels after {} ms", start.elapsed().as_millis());
        neighbours_are_up(&mut chain).await;
        a_cut_is_flooded(&mut chain).await;
        a_killed_openr_moves_no_route(&mut chain).await;
        a_killed_fib_agent_is_brought_up_to_date(&mut chain).await;
        a_parallel_link_takes_over(&mut chain).await;
        a_drain_survives_a_restart(&mut chain).await;
        idle_costs(&mut chain).await;
        the_end_is_clean(&mut chain).await;
    });
}

async fn neighbours_are_up(chain: &mut Chain) {
    for node in ROUTERS {
        let neighbors = chain.neighbors(node).await;
        for n in &neighbors {
            assert_eq!(n.state, "ESTABLISHED", "{node}: {n:?}");
            assert!(n.rtt_us < 50_000, "{node}: {n:?}");
        }
        let mut rtts: Vec<_> = neighbors.iter().map(|n| n.rtt_us).collect();
        println!("{node}: {} neighbours, median RTT {} µs", neighbors.len(), median(&mut rtts));
    }
    assert_eq!(chain.neighbors("n1").await.len(), 3);
}

async fn a_cut_is_flooded(chain: &mut Chain) {
    let (mut near, mut far, mut back, mut flared) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let flares = chain.hear_flares("n5");
    for _ in 0..10 {
        let mut told = [chain.watch("n0").await, chain.watch("n5").await];
        let cut = chain.set_link("x", "to-n0", false);
        near.push(told[0].until(|d| d.node == "n0" && d.adjacencies.len() == 1).await - cut);
        let (at, flare) = next_flare(&flares);
        flared.push(at - cut);
        assert_eq!((flare.router.as_str(), flare.interface.as_str()), ("n0", "to-x"));
        assert_eq!(flare.hops, HOPS - 4, "relayed by n1, n2, n3 and n4");
        far.push(told[1].until(|d| d.node == "n0" && d.adjacencies.len() == 1).await - cut);
        chain.wait("x forgotten", |c| !c.has_route("n5", "x")).await;
        let joined = chain.set_link("x", "to-n0", true);
        back.push(told[1].until(|d| d.node == "n0" && d.adjacencies.len() == 2).await - joined);
        chain.wait("x back", |c| c.all_routes()).await;
        assert!(flares.recv(&mut [0; 1]).is_err(), "one flare a cut, though two ways lead from n1 to n2");
    }
    let millis = |list: &mut Vec<u64>| {
        let (low, high) = (*list.iter().min().unwrap() as f64, *list.iter().max().unwrap() as f64);
        format!("median {:.2}, least {:.2}, most {:.2} ms", median(list) as f64 / 1e6, low / 1e6, high / 1e6)
    };
    println!("cut, from the request until the subscriber of the neighbour is told: {}", millis(&mut near));
    println!("cut, until a subscriber 5 hops further is told:                     {}", millis(&mut far));
    println!("cut, until an lsp-agent 5 hops further has the flare:               {}", millis(&mut flared));
    println!("link back, until a subscriber 5 hops further is told:               {}", millis(&mut back));
    assert!(median(&mut far) < 200_000_000);
}

/// The next flare and when it was read.
fn next_flare(flares: &UnixDatagram) -> (u64, Flare) {
    let mut buffer = [0; MAX_FLARE + 1];
    let start = Instant::now();
    loop {
        if let Ok(length) = flares.recv(&mut buffer) {
            return (monotonic_ns(), Flare::decode(&buffer[..length]).unwrap());
        }
        assert!(start.elapsed() < Duration::from_secs(5), "no flare");
        std::thread::sleep(Duration::from_micros(20));
    }
}

async fn a_killed_openr_moves_no_route(chain: &mut Chain) {
    let mut watches: Vec<_> = ROUTERS.iter().map(|n| chain.watch_routes(n)).collect();
    for goodbye in [false, true] {
        if goodbye {
            assert!(chain.stop("n2", "openr").success());
        } else {
            chain.kill("n2", "openr");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        chain.start("n2", "openr");
        chain.wait_established("n2").await;
        // longer than every wait of the start: whatever is wrong would have shown
        tokio::time::sleep(Duration::from_millis(2500)).await;
        for (node, watch) in ROUTERS.iter().zip(&mut watches) {
            let events = watch.drain();
            assert!(events.is_empty(), "{node}: {events:?} (goodbye {goodbye})");
        }
    }
    // and it still hears news
    chain.set_link("x", "to-n0", false);
    chain.wait("news after the restart", |c| !c.has_route("n2", "x") && !c.has_route("n5", "x")).await;
    chain.set_link("x", "to-n0", true);
    chain.wait("x back", |c| c.all_routes()).await;
}

async fn a_killed_fib_agent_is_brought_up_to_date(chain: &mut Chain) {
    chain.kill("n3", "fib-agent");
    chain.delete_route("n3", "x");
    chain.set_link("n5", "to-n4", false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(chain.has_route("n3", "n5"), "nobody there to delete it");
    chain.start("n3", "fib-agent");
    chain
        .wait("the restarted fib-agent is right", |c| c.has_route("n3", "x") && !c.has_route("n3", "n5"))
        .await;
    chain.set_link("n5", "to-n4", true);
    chain.wait("n5 back", |c| c.all_routes()).await;
}

async fn a_parallel_link_takes_over(chain: &mut Chain) {
    assert_eq!(chain.hops("n1", "n5").len(), 2, "ECMP over both links");
    chain.set_link("n1", "to-n2", false);
    chain.wait("one link left", |c| c.hops("n1", "n5").len() == 1 && c.hops("n2", "x").len() == 1).await;
    chain.set_link("x", "to-n0", false);
    chain.wait("news pass over the other link", |c| !c.has_route("n5", "x")).await;
    chain.set_link("x", "to-n0", true);
    chain.set_link("n1", "to-n2", true);
    chain.wait("both links", |c| c.all_routes() && c.hops("n1", "n5").len() == 2).await;
}

async fn a_drain_survives_a_restart(chain: &mut Chain) {
    chain.drain("n1", "to-n2.2", true).await;
    chain.wait("one link drained", |c| c.hops("n1", "n5").len() == 1 && c.hops("n2", "x").len() == 1).await;
    chain.kill("n1", "openr");
    chain.start("n1", "openr");
    chain.wait_established("n1").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(chain.hops("n2", "x").len(), 1, "still drained");
    chain.drain("n1", "to-n2.2", false).await;
    chain.wait("undrained", |c| c.all_routes() && c.hops("n2", "x").len() == 2).await;
}

async fn idle_costs(chain: &mut Chain) {
    // the burst of hellos after a link comes up ends after ten fast periods
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before: Vec<_> =
        ROUTERS.iter().map(|n| (chain.cpu_ticks(n, "openr"), chain.cpu_ticks(n, "fib-agent"))).collect();
    let seconds = 10;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    for (node, (openr, fib)) in ROUTERS.iter().zip(before) {
        let spent = (chain.cpu_ticks(node, "openr") - openr, chain.cpu_ticks(node, "fib-agent") - fib);
        println!(
            "{node}: openr {} KiB, {} ticks of 10 ms in {seconds} s; fib-agent {} KiB, {} ticks",
            chain.rss_kib(node, "openr"),
            spent.0,
            chain.rss_kib(node, "fib-agent"),
            spent.1,
        );
        assert!(spent.0 <= 10, "an idle openr uses less than 1 % of a CPU");
    }
}

async fn the_end_is_clean(chain: &mut Chain) {
    for node in ROUTERS {
        assert!(chain.stop(node, "openr").success());
        assert!(chain.stop(node, "fib-agent").success());
    }
    assert!(chain.all_routes(), "the kernel's routes stay");
}

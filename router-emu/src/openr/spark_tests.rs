//! The discovery state machine between two ends of one link, step by step.

use std::net::Ipv6Addr;

use super::damping::Backoff;
use super::spark::{Identity, MS, Nanos, Output, Spark};

const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);

fn end(node: &str, plane: u8, instance: u64) -> Spark {
    let me = Identity {
        node: node.into(),
        plane,
        instance,
        store_port: 6667,
        hello: 20_000 * MS,
        fast_hello: 500 * MS,
        keepalive: 2_000 * MS,
        hold: 30_000 * MS,
        flap: Backoff { first: 1_000 * MS, most: 8_000 * MS },
    };
    Spark::new(me, [("l".to_owned(), 0)])
}

/// Delivers packets to and fro until both are silent; what else came out of each.
fn settle(now: Nanos, a: &mut Spark, b: &mut Spark, from_a: Vec<Output>) -> [Vec<Output>; 2] {
    let mut said = [Vec::new(), Vec::new()];
    let mut queues = [from_a, Vec::new()];
    while let Some(turn) = (0..2).find(|i| !queues[*i].is_empty()) {
        match queues[turn].remove(0) {
            Output::Send(_, bytes) => {
                let far: &mut Spark = if turn == 0 { b } else { a };
                far.packet(now, "l", A, now, &bytes, &mut queues[1 - turn]);
            }
            other => said[turn].push(other),
        }
    }
    said
}

fn pair() -> (Spark, Spark) {
    let (mut a, mut b) = (end("a", 1, 11), end("b", 1, 22));
    let mut out = Vec::new();
    b.set_link(0, "l", true, &mut Vec::new());
    a.set_link(0, "l", true, &mut out);
    let [from_a, from_b] = settle(0, &mut a, &mut b, out);
    assert!(matches!(&from_a[..], [Output::Up(_, peer)] if peer.node == "b"), "{from_a:?}");
    assert!(matches!(&from_b[..], [Output::Up(_, peer)] if peer.node == "a" && peer.store_port == 6667));
    (a, b)
}

#[test]
fn one_solicited_hello_suffices_for_both_ends() {
    let (a, b) = pair();
    assert_eq!(a.views(0)[0].state, "ESTABLISHED");
    assert!(a.all_established() && b.all_established());
}

#[test]
fn a_link_that_bfd_holds_down_has_no_neighbour_whatever_arrives() {
    let (mut a, mut b) = pair();
    let mut out = Vec::new();
    a.set_silent(MS, "l", true, &mut out);
    assert!(
        matches!(&out[..], [Output::Down(_, node, reason)] if node == "b" && reason.contains("BFD")),
        "{out:?}"
    );
    assert_eq!(a.views(MS)[0].state, "SILENT");
    assert!(!a.is_up("l") && !a.any_up());
    // one direction still works: that is not enough
    out.clear();
    for now in (0..60).map(|s| s * 1_000 * MS) {
        let mut hellos = Vec::new();
        b.tick(now, &mut hellos);
        for hello in hellos {
            if let Output::Send(_, bytes) = hello {
                a.packet(now, "l", A, now, &bytes, &mut out);
            }
        }
        a.tick(now, &mut out);
    }
    assert_eq!((out.as_slice(), a.views(0)[0].state), (&[][..], "SILENT"));
    // and back at once, without waiting for a hello
    let now = 60_000 * MS;
    a.set_silent(now, "l", false, &mut out);
    let [from_a, _] = settle(now, &mut a, &mut b, out);
    assert!(matches!(&from_a[..], [Output::Up(..)]), "{from_a:?}");
}

#[test]
fn the_carrier_and_bfd_must_both_agree() {
    let (mut a, _) = pair();
    let mut out = Vec::new();
    a.set_silent(0, "l", true, &mut out);
    a.set_link(0, "l", false, &mut out);
    a.set_silent(0, "l", false, &mut out);
    assert!(!a.is_up("l"));
    assert_eq!(out.len(), 1, "one loss: {out:?}");
    a.set_link(0, "l", true, &mut out);
    assert!(a.is_up("l"));
}

#[test]
fn silence_beyond_the_hold_time_ends_it() {
    let (mut a, _) = pair();
    let mut out = Vec::new();
    a.tick(29_999 * MS, &mut out);
    assert!(out.iter().all(|o| matches!(o, Output::Send(..))));
    a.tick(30_000 * MS, &mut out);
    assert!(out.contains(&Output::Down("l".into(), "b".into(), "the neighbour fell silent")));
    assert_eq!(a.views(30_000 * MS)[0].state, "IDLE");
}

#[test]
fn heartbeats_alone_keep_it() {
    let (mut a, mut b) = pair();
    for second in 1..100 {
        let now = second * 1000 * MS;
        for _ in 0..2 {
            let mut out = Vec::new();
            a.tick(now, &mut out);
            out.retain(|o| matches!(o, Output::Send(_, bytes) if bytes[3] == 3));
            let said = settle(now, &mut a, &mut b, out);
            assert!(said.iter().all(Vec::is_empty), "{said:?}");
            std::mem::swap(&mut a, &mut b);
        }
    }
    assert_eq!(b.views(100_000 * MS)[0].state, "ESTABLISHED");
}

#[test]
fn a_neighbour_that_does_not_hear_us_is_dropped_at_once() {
    let (mut a, mut b) = pair();
    // b loses its carrier for a moment and a does not notice
    b.set_link(100, "l", false, &mut Vec::new());
    let mut out = Vec::new();
    b.set_link(200, "l", true, &mut out);
    let [from_b, from_a] = settle(200, &mut b, &mut a, out);
    assert!(matches!(&from_a[..], [Output::Down(..), Output::Up(..)]), "{from_a:?}");
    assert!(matches!(&from_b[..], [Output::Up(..)]));
}

#[test]
fn a_restart_is_seen_and_the_link_counts_on() {
    for goodbye in [false, true] {
        let (mut a, mut b) = pair();
        if goodbye {
            let mut out = Vec::new();
            b.say_restarting(50, &mut out);
            settle(50, &mut b, &mut a, out);
            assert_eq!(a.views(50)[0].state, "RESTART");
        }
        let mut again = end("b", 1, 23);
        let mut out = Vec::new();
        again.set_link(100, "l", true, &mut out);
        let [_, from_a] = settle(100, &mut again, &mut a, out);
        assert!(matches!(&from_a[..], [Output::Restarted(..)]), "{from_a:?}");
    }
}

#[test]
fn a_neighbour_that_said_goodbye_and_stays_away_is_given_up() {
    let (mut a, mut b) = pair();
    let mut out = Vec::new();
    b.say_restarting(50 * MS, &mut out);
    settle(50 * MS, &mut b, &mut a, out);
    let mut out = Vec::new();
    a.tick(30_049 * MS, &mut out);
    assert!(!out.iter().any(|o| matches!(o, Output::Down(..))));
    a.tick(30_050 * MS, &mut out);
    assert!(out.iter().any(|o| matches!(o, Output::Down(..))));
}

#[test]
fn a_replayed_hello_is_ignored() {
    let (mut a, mut b) = pair();
    let mut out = Vec::new();
    b.tick(500 * MS, &mut out);
    let Some(Output::Send(_, old)) = out.into_iter().find(|o| matches!(o, Output::Send(..))) else {
        panic!()
    };
    a.packet(500 * MS, "l", A, 500 * MS, &old, &mut Vec::new());
    let mut out = Vec::new();
    a.packet(9_000 * MS, "l", A, 9_000 * MS, &old, &mut out);
    assert!(out.is_empty());
    assert_eq!(a.views(9_000 * MS)[0].silent, 8_500 * MS);
}

#[test]
fn loops_strangers_and_other_planes_are_named() {
    for (node, plane, instance, words) in
        [("a", 1, 11, "looped"), ("a", 1, 99, "unique"), ("c", 2, 33, "planes"), ("c", 1, 33, "exactly two")]
    {
        let (mut a, _) = pair();
        let mut other = end(node, plane, instance);
        let mut out = Vec::new();
        other.set_link(0, "l", true, &mut out);
        let [_, from_a] = settle(0, &mut other, &mut a, out);
        assert!(from_a.is_empty(), "{from_a:?}");
        assert!(a.problem("l").unwrap().contains(words), "{:?}", a.problem("l"));
        assert_eq!(a.views(0)[0].node, "b");
    }
}

#[test]
fn a_link_that_flaps_is_kept_out_and_comes_back_by_itself() {
    let (mut a, mut b) = pair();
    let second = 1_000 * MS;
    let flap = |at: Nanos, a: &mut Spark, b: &mut Spark| {
        let mut out = Vec::new();
        for up in [false, true] {
            a.set_link(at, "l", up, &mut out);
            b.set_link(at, "l", up, &mut Vec::new());
        }
        out
    };
    // once: down and up again, whatever was said before
    let first = flap(10 * second, &mut a, &mut b);
    let [from_a, _] = settle(10 * second, &mut a, &mut b, first);
    assert!(matches!(&from_a[..], [Output::Down(..), Output::Up(..)]), "{from_a:?}");
    // again and again: the loss counts at once, the return does not, and nothing is said on the link
    let again = flap(11 * second, &mut a, &mut b);
    assert!(matches!(&again[..], [Output::Down(..)]), "{again:?}");
    assert!(flap(11 * second + 300 * MS, &mut a, &mut b).is_empty());
    let now = 11 * second + 400 * MS;
    let view = a.views(now).remove(0);
    assert_eq!((view.state, view.held, a.is_up("l")), ("DAMPED", 1_900 * MS, false));
    let until = 13 * second + 300 * MS;
    assert_eq!(a.next_deadline(), Some(until));
    let mut out = Vec::new();
    a.tick(until - 1, &mut out);
    assert!(out.is_empty(), "{out:?}");
    b.tick(until, &mut Vec::new());
    a.tick(until, &mut out);
    let [from_a, from_b] = settle(until, &mut a, &mut b, out);
    assert!(matches!(&from_a[..], [Output::Up(..)]) && matches!(&from_b[..], [Output::Up(..)]));
    assert_eq!((a.views(until)[0].state, a.views(until)[0].held), ("ESTABLISHED", 0));
}

#[test]
fn a_damped_link_that_is_lost_is_just_down() {
    let (mut a, _) = pair();
    let mut out = Vec::new();
    for (at, up) in [(1, false), (2, true), (3, false), (4, true)] {
        a.set_link(at * 100 * MS, "l", up, &mut out);
    }
    assert_eq!(a.views(401 * MS)[0].state, "DAMPED");
    a.set_link(500 * MS, "l", false, &mut out);
    assert_eq!((a.views(501 * MS)[0].state, a.next_deadline()), ("IDLE", None));
    // silent failures are losses as good as any
    a.set_link(20_000 * MS, "l", true, &mut out);
    a.set_silent(20_100 * MS, "l", true, &mut out);
    a.set_silent(20_200 * MS, "l", false, &mut out);
    assert_eq!(a.views(20_200 * MS)[0].state, "DAMPED");
}

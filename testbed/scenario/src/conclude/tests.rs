use proptest::prelude::*;

use super::conclude;
use crate::record::{Event, Fault, Loss, Run, Sample, Topology, TopologyLink, TopologyNode, Traffic};

const MS: u64 = 1_000_000;

/// A run over one link between `eb01.chi` and `eb01.frc`, with a router `eb01.prn` elsewhere. Events: at (ms), kind,
/// subject, detail. Losses: start (ms), length (ms), class.
fn run(events: &[(u64, &str, &str, &str)], losses: &[(u64, f64, &str)]) -> Run {
    let event = |(ms, kind, subject, detail): &(u64, &str, &str, &str)| Event {
        at_ns: ms * MS,
        kind: (*kind).into(),
        subject: (*subject).into(),
        detail: (*detail).into(),
    };
    let loss = |(ms, length, class): &(u64, f64, &str)| Loss {
        class: (*class).into(),
        start_ns: ms * MS,
        ms: *length,
        lost: 1,
        ..Loss::default()
    };
    let node = |site: &str| TopologyNode {
        name: format!("eb01.{site}"),
        role: "router".into(),
        site: site.into(),
        plane: Some(1),
    };
    let link = TopologyLink {
        name: "eb01.chi--eb01.frc".into(),
        a: "eb01.chi".into(),
        b: "eb01.frc".into(),
        kind: "core".into(),
        plane: Some(1),
        capacity: "400G".into(),
        rate_bps: 0,
    };
    Run {
        topology: Topology { nodes: ["chi", "frc", "prn"].map(node).into(), links: vec![link] },
        events: events.iter().map(event).collect(),
        traffic: vec![Traffic { losses: losses.iter().map(loss).collect(), ..Traffic::default() }],
        ..Run::default()
    }
}

fn causes(run: &Run) -> Vec<Option<usize>> {
    run.traffic.iter().flat_map(|t| &t.losses).map(|l| l.cause).collect()
}

const LINK: &str = "eb01.chi--eb01.frc";

#[test]
fn what_breaks_counts_for_nearer_than_what_is_done_about_it() {
    let events = [
        (10_000, "link.cut", LINK, ""),
        (10_001, "lsp.link_down", "eb01.chi", "eb01.chi/to-frc (3 bundles)"),
        (10_004, "lsp.repaired", "eb01.chi", "6 writes (3 bundles, took 3 ms)"),
        (10_005, "plane.drained", "1", ""),
    ];
    let mut run = run(&events, &[(9_990, 20.0, "gold"), (10_006, 3.0, "gold"), (11_500, 3.0, "gold")]);
    conclude(&mut run);
    assert_eq!(
        causes(&run),
        [Some(0); 3],
        "sent before the cut, right after it, in the queues that followed"
    );
}

#[test]
fn what_is_far_or_harmless_is_no_cause() {
    let events = [
        (1_000, "link.cut", LINK, ""),
        (8_000, "lab.applied", "x", ""),
        (8_001, "config.confirmed", "eb01.prn", ""),
    ];
    let mut run = run(&events, &[(700, 1.0, "gold"), (3_100, 1.0, "gold"), (8_002, 1.0, "gold")]);
    conclude(&mut run);
    assert_eq!(causes(&run), [None; 3]);
}

#[test]
fn a_change_that_is_much_nearer_is_the_cause() {
    let events = [(1_000, "link.cut", LINK, ""), (2_490, "plane.draining", "2", "")];
    let mut run = run(&events, &[(2_500, 1.0, "gold")]);
    conclude(&mut run);
    assert_eq!(causes(&run), [Some(1)]);
}

#[test]
fn an_impairment_is_the_cause_for_as_long_as_it_lasts() {
    let mut run = run(
        &[(1_010, "link.impaired", LINK, "loss 2%"), (20_000, "link.cut", "other", "")],
        &[(15_000, 1.0, "gold"), (20_010, 1.0, "gold"), (31_000, 1.0, "gold")],
    );
    run.faults = vec![Fault {
        kind: "impair".into(),
        subjects: vec![LINK.into()],
        from_ns: 1_000 * MS,
        until_ns: 30_000 * MS,
        ..Fault::default()
    }];
    conclude(&mut run);
    assert_eq!(causes(&run), [Some(0), Some(1), None]);
}

#[test]
fn a_cut_is_followed_to_the_first_packet() {
    let events = [
        (10_000, "link.cut", LINK, ""),
        (10_001, "lsp.link_down", "eb01.chi", "eb01.chi/to-frc (3 bundles)"),
        (10_004, "lsp.repaired", "eb01.chi", "6 writes (3 bundles, took 3 ms)"),
        (10_006, "lsp.link_down", "eb01.prn", "eb01.chi/to-frc (1 bundles)"),
        (10_009, "lsp.repaired", "eb01.prn", "2 writes (1 bundles, took 3 ms)"),
        // found nothing to do, and the answer to a link that came back
        (10_020, "lsp.link_down", "eb01.frc", "eb01.chi/to-frc (0 bundles)"),
        (10_021, "lsp.repaired", "eb01.frc", "0 writes (0 bundles, took 1 ms)"),
        (11_000, "lsp.link_up", "eb01.chi", "eb01.chi/to-frc (3 bundles)"),
        (11_001, "lsp.repaired", "eb01.chi", "6 writes (3 bundles, took 1 ms)"),
    ];
    let mut run = run(&events, &[(9_995, 20.0, "gold"), (10_002, 10.5, "gold"), (9_999, 31.0, "bronze")]);
    run.faults = vec![Fault {
        kind: "cut".into(),
        subjects: vec![LINK.into()],
        from_ns: 9_950 * MS,
        ..Fault::default()
    }];
    conclude(&mut run);
    let [timeline] = &run.timelines[..] else { panic!("{:?}", run.timelines) };
    assert_eq!((timeline.failure.as_str(), timeline.at_ns), ("cut eb01.chi--eb01.frc", 10_000 * MS));
    let points: Vec<_> = timeline.points.iter().map(|p| (p.0, p.1.as_str(), p.2.as_str())).collect();
    assert_eq!(
        points,
        [
            (1.0, "kernel", "eb01.chi sees eb01.chi/to-frc down"),
            (1.0, "decision", "eb01.chi: 3 bundles concerned"),
            (4.0, "written", "eb01.chi: 6 writes, took 3.00 ms"),
            (6.0, "flood", "eb01.prn hears of it"),
            (6.0, "decision", "eb01.prn: 1 bundle concerned; last of 2"),
            (9.0, "written", "eb01.prn: 2 writes, took 3.00 ms; last of 2"),
            (15.0, "packets", "gold arrives again, last of 2 windows"),
            (20.0, "kernel", "eb01.frc sees eb01.chi/to-frc down; last of 2"),
            (30.0, "packets", "bronze arrives again"),
        ]
    );
}

#[test]
fn a_flap_is_a_failure_each_time_and_a_program_comes_back() {
    let events = [
        (1_000, "link.cut", LINK, "flap 1 of 2"),
        (1_400, "link.restored", LINK, "flap 1 of 2"),
        (1_800, "link.cut", LINK, "flap 2 of 2"),
        (5_000, "program.exited", "eb01.prn/lsp-agent", "SIGKILL"),
        (5_200, "program.started", "eb01.prn/lsp-agent", "pid 7"),
        (5_260, "lsp.reconciled", "eb01.prn", "at start; 0 writes (36 bundles, took 18.2 ms)"),
    ];
    let mut run = run(&events, &[]);
    run.faults = vec![Fault {
        kind: "flap".into(),
        subjects: vec![LINK.into()],
        from_ns: 990 * MS,
        until_ns: 2_200 * MS,
        ..Fault::default()
    }];
    conclude(&mut run);
    let said: Vec<_> = run.timelines.iter().map(|t| (t.failure.as_str(), t.at_ns / MS)).collect();
    let flap = "flap eb01.chi--eb01.frc";
    assert_eq!(said, [(flap, 1_000), (flap, 1_800), ("exited eb01.prn/lsp-agent", 5_000)]);
    let points: Vec<_> = run.timelines[2].points.iter().map(|p| (p.0, p.1.as_str())).collect();
    assert_eq!(points, [(200.0, "restarted"), (260.0, "written")]);
}

#[test]
fn a_fault_that_no_event_tells_of_is_a_failure_all_the_same() {
    let mut run = run(&[], &[(10, 1.0, "gold")]);
    run.faults = vec![Fault {
        kind: "crash".into(),
        subjects: vec!["eb01.prn".into()],
        from_ns: 7 * MS,
        ..Fault::default()
    }];
    conclude(&mut run);
    assert_eq!(run.timelines.len(), 1);
    assert_eq!((run.timelines[0].at_ns, run.timelines[0].points.len()), (7 * MS, 0));
}

#[test]
fn what_is_taken_back_breaks_nothing_and_calls_are_not_the_network() {
    let events = [
        (1_000, "link.impaired", LINK, "eb01.chi and eb01.frc: loss 2%"),
        (9_000, "link.impaired", LINK, "eb01.chi and eb01.frc: "),
        (12_000, "rpc.cut", "h1.prn > eb01.prn", "cut: ebb-controller"),
    ];
    let mut run = run(&events, &[(9_003, 1.0, "gold"), (12_001, 1.0, "gold")]);
    let fault = |kind: &str, subject: &str, from, until| Fault {
        kind: kind.into(),
        subjects: vec![subject.into()],
        from_ns: from * MS,
        until_ns: until * MS,
        ..Fault::default()
    };
    run.faults = vec![
        fault("impair", LINK, 999, 8_998),
        fault("rpc", "h1.prn to eb01.prn", 11_999, 0),
        fault("delete", "eb01.prn", 13_000, 13_000),
    ];
    conclude(&mut run);
    let said: Vec<_> = run.timelines.iter().map(|t| t.failure.as_str()).collect();
    assert_eq!(said, ["impair eb01.chi--eb01.frc", "delete eb01.prn"]);
    assert_eq!(causes(&run), [Some(1), None]);
}

fn kind() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "link.cut",
        "link.restored",
        "link.impaired",
        "member.cut",
        "program.exited",
        "program.started",
        "plane.draining",
        "lsp.link_down",
        "lsp.link_up",
        "lsp.repaired",
        "lsp.reconciled",
        "cut",
        "impair",
        "kill",
    ];
    prop_oneof![9 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => any::<String>()]
}

fn subject() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] =
        &[LINK, "eb01.chi--eb01.frc member 1", "eb01.chi", "eb01.prn/bird", "eb01.prn", "2", ""];
    prop_oneof![9 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => any::<String>()]
}

fn detail() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "eb01.chi/to-frc (3 bundles)",
        "6 writes (3 bundles, took 3 ms)",
        "0 writes (0 bundles)",
        "(",
        " took 9e999 s",
    ];
    prop_oneof![9 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => any::<String>()]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..20_000 * MS, 1 => any::<u64>()]
}

prop_compose! {
    fn any_run()(
        events in prop::collection::vec((time(), kind(), subject(), detail()), 0..60),
        faults in prop::collection::vec((kind(), prop::collection::vec(subject(), 0..3), time(), time()), 0..6),
        losses in prop::collection::vec((time(), prop::num::f64::NORMAL, "gold|icp", prop::option::of(any::<usize>())), 0..20),
    ) -> Run {
        let mut run = run(&[], &[]);
        run.events = events.into_iter()
            .map(|(at_ns, kind, subject, detail)| Event { at_ns, kind, subject, detail }).collect();
        run.faults = faults.into_iter()
            .map(|(kind, subjects, from_ns, until_ns)| Fault { kind, subjects, from_ns, until_ns, ..Fault::default() })
            .collect();
        run.traffic[0].losses = losses.into_iter()
            .map(|(start_ns, ms, class, cause)| Loss { class, start_ns, ms, cause, ..Loss::default() }).collect();
        run.samples = vec![Sample::default()];
        run
    }
}

proptest! {
    /// Input: records with events, faults and losses in any order, of any kind, at any time. Expected: causes are events
    /// of the record, points of a timeline are in order and no earlier than the failure, and a second time changes nothing.
    #[test]
    fn twice_is_once_and_everything_is_in_range(mut run in any_run()) {
        conclude(&mut run);
        let once = run.clone();
        conclude(&mut run);
        prop_assert_eq!(&run, &once);
        prop_assert!(causes(&run).into_iter().flatten().all(|cause| cause < run.events.len()));
        prop_assert!(run.timelines.is_sorted_by_key(|t| t.at_ns));
        for timeline in &run.timelines {
            prop_assert!(timeline.points.iter().all(|p| p.0.is_finite() && p.0 >= 0.0));
            prop_assert!(timeline.points.is_sorted_by(|a, b| a.0 <= b.0));
        }
    }
}

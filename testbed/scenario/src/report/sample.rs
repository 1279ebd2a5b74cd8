//! Records to try reports with: thirty seconds of a small backbone, nothing at all, very much, and hostile names.

use crate::conclude::conclude;
use crate::record::{
    Cycle, Event, Fault, Lateness, Log, Loss, Outcome, PlaneSample, Run, Sample, Step, Title, Topology,
    TopologyLink, TopologyNode, Traffic, VERSION,
};

const BEGAN: u64 = 412_300_000_000;
const SITES: [&str; 6] = ["atn", "chi", "frc", "lla", "lon", "prn"];
const DATA_CENTRES: [&str; 4] = ["atn", "frc", "lla", "prn"];
const CORE: [(&str, &str); 10] = [
    ("atn", "prn"),
    ("atn", "chi"),
    ("chi", "frc"),
    ("frc", "lon"),
    ("lla", "lon"),
    ("chi", "prn"),
    ("atn", "frc"),
    ("chi", "lon"),
    ("frc", "lla"),
    ("lla", "prn"),
];

/// Nanoseconds of the clock at this many milliseconds of the run.
fn at(ms: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and positive
    let ns = (ms * 1e6) as u64;
    BEGAN + ns
}

fn topology() -> Topology {
    let mut topology = Topology::default();
    let node = |name: String, role: &str, site: &str, plane| TopologyNode {
        name,
        role: role.into(),
        site: site.into(),
        plane,
    };
    for site in SITES {
        for plane in [1, 2] {
            topology.nodes.push(node(format!("eb0{plane}.{site}"), "router", site, Some(plane)));
        }
    }
    let link = |a: String, b: String, kind: &str, plane, rate_bps| TopologyLink {
        name: format!("{a}--{b}"),
        a,
        b,
        kind: kind.into(),
        plane,
        capacity: "400G".into(),
        rate_bps,
    };
    for plane in [1_u8, 2] {
        let router = |site: &str| format!("eb0{plane}.{site}");
        for (a, b) in CORE {
            topology.links.push(link(router(a), router(b), "core", Some(plane), 20_000_000));
        }
        for site in DATA_CENTRES {
            topology.links.push(link(router(site), format!("fa.{site}"), "attach", Some(plane), 0));
        }
    }
    for site in DATA_CENTRES {
        topology.nodes.push(node(format!("fa.{site}"), "aggregator", site, None));
        topology.nodes.push(node(format!("h1.{site}"), "host", site, None));
        topology.links.push(link(format!("fa.{site}"), format!("h1.{site}"), "access", None, 0));
    }
    topology
}

fn step(id: &str, name: &str, action: &str, from_ms: f64, until_ms: f64, outcome: Outcome) -> Step {
    let line = 9 + 3 * id.split('.').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let (began_ns, ended_ns) = if outcome == Outcome::Skipped { (0, 0) } else { (at(from_ms), at(until_ms)) };
    Step {
        id: id.into(),
        name: name.into(),
        action: action.into(),
        line,
        began_ns,
        ended_ns,
        outcome,
        ..Step::default()
    }
}

fn steps() -> Vec<Step> {
    use Outcome::{Failed, Passed, Skipped};
    let expect = |mut step: Step, expected: &str, observed: &str| {
        step.expected = Some(expected.into());
        step.observed = Some(observed.into());
        step
    };
    let mut cut =
        step("4", "the quickest way east is lost", "cut eb01.chi--eb01.frc", 6_000.0, 6_031.0, Passed);
    cut.notes = vec!["eb01.chi--eb01.frc: cut".into()];
    let mut drain = step("9", "", "drain plane 2", 17_000.0, 19_412.0, Passed);
    drain.notes = vec!["plane 2: drained, no packet enters any more (after 2.4 s)".into()];
    vec![
        step("1", "everybody talks to everybody", "traffic all: 50/s in every class", 120.0, 410.0, Passed),
        expect(
            step("2", "control traffic is never hurt", "never icp loss_ms > 250", 410.0, 30_000.0, Passed),
            "never: loss of icp longer than 250 ms",
            "at most 22.9 ms",
        ),
        step("3", "", "wait 5s", 410.0, 5_410.0, Passed),
        cut,
        expect(
            step("5", "", "expect gold loss_ms <= 50 within 2s", 6_031.0, 6_540.0, Passed),
            "loss of gold at most 50 ms",
            "19.4 ms",
        ),
        expect(
            step(
                "6",
                "the controller tidies up",
                "expect plane:1 on_backup == 0 within 12s",
                6_540.0,
                11_290.0,
                Passed,
            ),
            "plane 1: on_backup == 0 within 12 s",
            "0 after 4.75 s",
        ),
        step("7", "", "restore eb01.chi--eb01.frc", 13_000.0, 13_024.0, Passed),
        step("8", "an agent dies", "kill eb02.atn/lsp-agent", 15_000.0, 15_004.0, Passed),
        drain,
        step("10", "", "impair eb01.lla--eb01.lon loss 2%", 21_000.0, 21_011.0, Passed),
        expect(
            step(
                "11",
                "bronze hardly notices",
                "expect bronze lost_percent < 0.5 within 8s",
                21_011.0,
                29_020.0,
                Failed,
            ),
            "loss of bronze below 0.5 % within 8 s",
            "0.83 %",
        ),
        step("12", "", "undrain plane 2", 0.0, 0.0, Skipped),
        step("13", "", "expect plane:2 state == ready within 20s", 0.0, 0.0, Skipped),
    ]
}

fn events() -> Vec<Event> {
    let event = |ms: f64, kind: &str, subject: &str, detail: &str| Event {
        at_ns: at(ms),
        kind: kind.into(),
        subject: subject.into(),
        detail: detail.into(),
    };
    let mut events = vec![
        event(6_004.2, "link.cut", "eb01.chi--eb01.frc", "eb01.chi and eb01.frc"),
        event(13_008.0, "link.restored", "eb01.chi--eb01.frc", "eb01.chi and eb01.frc"),
        event(15_002.1, "program.exited", "eb02.atn/lsp-agent", "SIGKILL"),
        event(15_210.0, "program.started", "eb02.atn/lsp-agent", "pid 1733"),
        event(15_262.4, "lsp.reconciled", "eb02.atn", "at start; 0 writes (36 bundles, took 18.2 ms)"),
        event(17_020.0, "plane.draining", "2", "BGP de-preferred"),
        event(19_402.0, "plane.drained", "2", "counters still after 2.38 s"),
        event(21_006.0, "link.impaired", "eb01.lla--eb01.lon", "eb01.lla and eb01.lon: loss 2%"),
    ];
    let heard = [
        ("eb01.chi", 6_004.6, 9, 14, "3.1 ms"),
        ("eb01.frc", 6_004.9, 9, 12, "3.4 ms"),
        ("eb01.atn", 6_006.3, 12, 18, "6.2 ms"),
        ("eb01.lon", 6_006.8, 0, 0, ""),
        ("eb01.prn", 6_007.9, 12, 24, "8.4 ms"),
        ("eb01.lla", 6_009.1, 9, 21, "11.6 ms"),
    ];
    for (router, ms, bundles, writes, took) in heard {
        for end in ["eb01.chi/to-frc", "eb01.frc/to-chi"] {
            if router == "eb01.chi" && end.starts_with("eb01.frc") {
                continue;
            }
            events.push(event(ms, "lsp.link_down", router, &format!("{end} ({bundles} bundles)")));
        }
        if let Some(took_ms) = took.strip_suffix(" ms").and_then(|t| t.parse::<f64>().ok()) {
            let detail = format!("{writes} writes ({bundles} bundles, took {took})");
            events.push(event(ms + took_ms, "lsp.repaired", router, &detail));
        }
        events.push(event(ms + 7_010.0, "lsp.link_up", router, "eb01.chi/to-frc (9 bundles)"));
    }
    events.sort_by_key(|e| e.at_ns);
    events
}

fn plane(plane: u8, state: &str, on_backup: u32, entered_bytes: u64) -> PlaneSample {
    PlaneSample { plane, state: state.into(), wanted: 576, programmed: 576, on_backup, entered_bytes }
}

/// Numbers below `most` that look random and are the same every time.
fn noise(seed: &mut u64, most: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % most.max(1)
}

fn samples(topology: &Topology) -> Vec<Sample> {
    let mut seed = 7;
    let core: Vec<&TopologyLink> = topology.links.iter().filter(|l| l.kind == "core").collect();
    let mut sent: Vec<(String, String, [u64; 4])> =
        core.iter().flat_map(|l| [&l.a, &l.b].map(|end| (end.clone(), l.name.clone(), [0; 4]))).collect();
    let mut entered = [0; 2];
    let mut samples = Vec::new();
    for half in 0..=60_u32 {
        let ms = f64::from(half) * 500.0;
        let (cut, impaired) = ((6_004.0..13_000.0).contains(&ms), ms > 21_000.0);
        let draining = (ms - 17_000.0).clamp(0.0, 2_400.0) / 2_400.0;
        for (nth, row) in sent.iter_mut().enumerate() {
            let lost = cut && row.1 == "eb01.chi--eb01.frc";
            let beside = cut && row.1.starts_with("eb01") && nth % 3 == 0;
            let share = if row.1.starts_with("eb01") { 1.0 + draining } else { 1.0 - draining };
            for (class, rate) in row.2.iter_mut().zip([12_000, 130_000, 170_000, 210_000_u64]) {
                let rate = rate * (3 + nth as u64 % 5) / 5;
                let rate = if lost { 0 } else { rate * if beside { 3 } else { 2 } / 2 };
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss
                )]
                let moved = (rate as f64 / 2.0 * share) as u64;
                *class += moved + noise(&mut seed, moved / 12);
            }
        }
        entered[0] += if draining > 0.9 { 900_000 } else { 450_000 };
        entered[1] += if draining > 0.9 { 0 } else { 450_000 };
        let on_backup = if (6_004.0..11_290.0).contains(&ms) { 96 } else { 0 };
        let first = if cut { "degraded" } else { "ready" };
        let second = if draining >= 1.0 { "drained" } else { "ready" };
        let broken = |name: &str, state: &str| (name.to_owned(), state.to_owned());
        samples.push(Sample {
            at_ns: at(ms),
            planes: vec![plane(1, first, on_backup, entered[0]), plane(2, second, 0, entered[1])],
            broken_links: if cut {
                vec![broken("eb01.chi--eb01.frc", "cut")]
            } else if impaired {
                vec![broken("eb01.lla--eb01.lon", "loss 2%")]
            } else {
                Vec::new()
            },
            broken_programs: if half == 30 {
                vec![broken("eb02.atn/lsp-agent", "waiting")]
            } else {
                Vec::new()
            },
            sent: sent.clone(),
            dropped: [0, 0, 0, if cut { 41 } else { 57 }],
        });
    }
    samples
}

fn traffic() -> Traffic {
    let mut seed = 11;
    let mut traffic =
        Traffic { name: "all".into(), began_ns: at(400.0), ended_ns: at(30_000.0), ..Traffic::default() };
    let mut lose = |start: f64, ms: f64, class: &str, from: &str, to: &str| {
        let lost = (noise(&mut seed, 3) + 1) * if ms > 15.0 { 2 } else { 1 };
        let (from, to) = (format!("h1.{from}"), format!("h1.{to}"));
        traffic.losses.push(Loss {
            from,
            to,
            class: class.into(),
            start_ns: at(start),
            ms,
            lost,
            cause: None,
        });
    };
    for (nth, (from, to)) in
        [("prn", "frc"), ("prn", "lla"), ("atn", "lla"), ("frc", "prn")].iter().enumerate()
    {
        let later = [0.0, 1.1, 2.3, 3.2][nth];
        lose(6_003.0 + later, 12.4 + later * 2.0, "icp", from, to);
        lose(6_003.2 + later, 11.5 + later * 2.4, "gold", from, to);
        lose(6_003.6 + later, 14.0 + later * 3.0, "silver", from, to);
        lose(6_004.4 + later, 21.5 + later * 4.0, "bronze", from, to);
    }
    lose(17_611.0, 4.2, "bronze", "atn", "lla");
    for nth in 0..14 {
        let start = 21_300.0 + f64::from(nth) * 551.0;
        lose(start, 20.0, if nth % 3 == 1 { "silver" } else { "bronze" }, "frc", "lla");
    }
    let lost_in =
        |class: &str| traffic.losses.iter().filter(|l| l.class == class).map(|l| l.lost).sum::<u64>();
    for (class, sent) in [("icp", 17_760), ("gold", 17_760), ("silver", 17_760), ("bronze", 17_758)] {
        let lost = lost_in(class);
        traffic.classes.push((class.into(), sent, sent - lost, lost));
    }
    traffic.lost = traffic.classes.iter().map(|c| c.3).sum();
    traffic.sent = traffic.classes.iter().map(|c| c.1).sum();
    (traffic.received, traffic.refused) = (traffic.sent - traffic.lost, 2);
    for second in 0..=29_u64 {
        let now = at(400.0) + second * 1_000_000_000;
        let lost = traffic.losses.iter().filter(|l| l.start_ns < now).map(|l| l.lost).sum::<u64>();
        let sent = second * traffic.sent / 29;
        traffic.series.push((now, sent, sent.saturating_sub(lost), lost));
    }
    traffic
}

fn cycles() -> Vec<Cycle> {
    let mut cycles = Vec::new();
    for plane in [1, 2] {
        for nth in 0..6_u64 {
            let ms = 1_290 + 5_000 * nth + u64::from(plane) * 340;
            let detail = format!("cycle {}: 36 pairs, 576 LSPs, 0 unrouted", 40 + nth);
            cycles.push(Cycle { plane, ended_ns: BEGAN + ms * 1_000_000, took_ms: 212 + 17 * nth, detail });
        }
    }
    cycles.sort_by_key(|c| c.ended_ns);
    cycles
}

/// Thirty seconds of a small backbone: a link cut and repaired, an agent killed, a plane drained, a check that failed.
pub fn run() -> Run {
    let topology = topology();
    let fault = |step: &str, kind: &str, subject: &str, from, until| Fault {
        step: step.into(),
        kind: kind.into(),
        subjects: vec![subject.into()],
        from_ns: at(from),
        until_ns: at(until),
    };
    let mut run = Run {
        version: VERSION,
        id: "20261201-001530-local-repair".into(),
        title: Title {
            name: "local-repair".into(),
            about: "A core link is lost: agents move its LSPs to their backup paths within milliseconds, and the \
                    controller finds new ones in its next cycle. Then a plane is drained and a link loses packets."
                .into(),
            shows: vec!["R1".into(), "R4".into(), "M7".into()],
            file: "scenarios/local-repair.yaml".into(),
        },
        lab: "ebb-small".into(),
        carrier: "vm".into(),
        seed: 18_446_744_073_709_551_557,
        began_unix_ms: 1_796_084_130_000,
        began_ns: BEGAN,
        ended_ns: at(30_200.0),
        outcome: Outcome::Failed,
        reason: Some(
            "step 11 (bronze hardly notices): expected loss of bronze below 0.5 % within 8 s; observed 0.83 %".into(),
        ),
        timers: Lateness { median_us: 61, p99_us: 903, most_us: 4_120 },
        samples: samples(&topology),
        topology,
        steps: steps(),
        faults: vec![
            fault("4", "cut", "eb01.chi--eb01.frc", 6_001.0, 13_006.0),
            fault("8", "kill", "eb02.atn/lsp-agent", 15_000.0, 15_210.0),
            fault("10", "impair", "eb01.lla--eb01.lon", 21_003.0, 30_100.0),
        ],
        traffic: vec![traffic()],
        events: events(),
        cycles: cycles(),
        logs: vec![Log {
            node: "eb01.lon".into(),
            program: "lsp-agent".into(),
            text: "INFO 36 bundles, 0 writes: reconciled at start\nINFO eb01.chi/to-frc link_down\n".into(),
        }],
        evidence: Some("runs/20261201-001530-local-repair/evidence".into()),
        ..Run::default()
    };
    conclude(&mut run);
    run
}

/// Names that would break out of a document or drive a terminal if they were not shown as text.
pub fn hostile() -> Run {
    const BAD: &str =
        "</script><img src=x onerror=\"document.title='owned'\">\u{1b}[2J\u{2028}\0&amp;'\u{202e}]]>";
    let mut run = run();
    let all: [&mut String; 6] = [
        &mut run.title.name,
        &mut run.title.about,
        &mut run.lab,
        &mut run.carrier,
        &mut run.title.file,
        &mut run.id,
    ];
    for text in all {
        *text = BAD.into();
    }
    run.reason = Some(BAD.into());
    run.evidence = Some(BAD.into());
    for step in &mut run.steps {
        step.name = BAD.into();
        step.notes.push(BAD.into());
        step.observed = Some(BAD.into());
    }
    run.events.iter_mut().for_each(|e| e.detail = BAD.into());
    run.topology.nodes.iter_mut().for_each(|n| n.site.push_str(BAD));
    run.faults.iter_mut().for_each(|f| f.subjects.push(BAD.into()));
    run.logs.push(Log { node: BAD.into(), program: BAD.into(), text: BAD.into() });
    run.traffic[0].classes.push((BAD.into(), 1, 0, 1));
    run.cycles[0].detail = BAD.into();
    run
}

/// The sample with ten thousand events and two thousand windows of loss.
pub fn crowded() -> Run {
    let mut run = run();
    let mut seed = 3;
    for (nth, ms) in (0..10_000_usize).zip((0..).map(|n: u32| f64::from(n) * 3.0)) {
        let kind = ["lsp.repaired", "link.cut", "link.restored", "program.exited", "config.pushed"][nth % 5];
        let detail = format!("{} writes (2 bundles, took 1.1 ms)", noise(&mut seed, 9));
        run.events.push(Event {
            at_ns: at(ms),
            kind: kind.into(),
            subject: "eb01.chi--eb01.frc".into(),
            detail,
        });
        if nth % 5 == 0 {
            let mut loss = run.traffic[0].losses[nth % 16].clone();
            loss.start_ns = at(ms);
            run.traffic[0].losses.push(loss);
        }
    }
    for nth in 14..90_u32 {
        let mut step = run.steps[2].clone();
        step.id = nth.to_string();
        let ms = f64::from(nth) * 300.0;
        (step.began_ns, step.ended_ns) = (at(ms), at(ms + 280.0));
        run.steps.push(step);
    }
    run.events.sort_by_key(|e| e.at_ns);
    conclude(&mut run);
    run
}

/// Writes the pages of all samples into the folder that `REPORT_PAGES` names, to look at them in a browser.
#[test]
#[ignore = "for people who want to look"]
fn pages_to_look_at() {
    let folder = std::path::PathBuf::from(std::env::var("REPORT_PAGES").unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    for (name, run) in
        [("sample", run()), ("hostile", hostile()), ("crowded", crowded()), ("empty", Run::default())]
    {
        std::fs::write(folder.join(format!("{name}.html")), super::html::html(&run)).unwrap();
        std::fs::write(folder.join(format!("{name}.txt")), super::text::text(&run, false)).unwrap();
    }
}

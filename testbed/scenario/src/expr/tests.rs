use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::record::Event;

fn lab() -> Lab {
    topologies::labs::load("ebb-small").unwrap().0
}

fn facts() -> Facts {
    let plane = |plane, state: &str, on_backup| {
        json!({"plane": plane, "state": state, "reason": "", "lsps": {"wanted": 576, "programmed": 576, "on_backup": on_backup},
            "queues": [{"class": "gold", "packets": 10, "bytes": 900, "dropped": 7, "waiting": 1}]})
    };
    let link = |name: &str, state: &str, faults: &[&str]| json!({"name": name, "state": state, "faults": faults, "rtt": "10ms"});
    let traffic = TrafficFacts {
        sent: 1000,
        lost: 5,
        longest_window_ms: 12.5,
        classes: [("gold".to_owned(), TrafficFacts { sent: 500, ..TrafficFacts::default() })].into(),
        ..TrafficFacts::default()
    };
    Facts {
        status: json!({
            "state": "degraded",
            "planes": [plane(1, "ready", 0), plane(2, "degraded", 12)],
            "links": [link("eb01.atn--eb01.chi", "up", &[]), link("eb01.atn--eb01.prn", "cut", &["cut"])],
            "programs": [{"node": "h1.atn", "name": "ebb-controller", "state": "running", "restarts": 2},
                         {"node": "h1.frc", "name": "ebb-controller", "state": "stopped", "restarts": 0}],
        }),
        queues_before: [((1, "gold".to_owned()), [4, 400, 2])].into(),
        traffic: [("all".to_owned(), traffic)].into(),
        events: vec![Event {
            at_ns: 2_500_000_000,
            kind: "lsp.repaired".into(),
            subject: "eb01.prn".into(),
            detail: "3 bundles".into(),
        }],
        began_ns: 1_000_000_000,
        cycles: json!({"planes": [{"plane": 1, "unrouted": 0}]}),
        lateness_ms: 2.0,
    }
}

fn ask(text: &str) -> Seen {
    let condition = Condition::parse(text, &lab(), &["all".to_owned()]);
    condition.unwrap_or_else(|bad| panic!("{text}: {bad:?}")).ask(&facts())
}

#[test]
fn tests_hold_or_not() {
    for (text, holds) in [
        ("plane:1 state == ready", true),
        ("plane:* state == ready", false),
        ("any plane:* state == ready", true),
        ("no plane:* state == drained", true),
        ("no plane:* state == degraded", false),
        ("sum plane:* lsps.on_backup == 12", true),
        ("max plane:* lsps.on_backup >= 13", false),
        ("min plane:* lsps.on_backup < 1", true),
        ("link:eb01.atn--eb01.prn state == cut and lab state != ready", true),
        ("link:eb01.atn--eb01.prn faults contains cut", true),
        ("link:eb01.atn--eb01.chi faults == none", true),
        ("link:eb01.atn--eb01.chi rtt == 10ms", true),
        ("program:ebb-controller state == running", false),
        ("program:ebb-controller@h1.atn restarts == 2", true),
        ("traffic:all lost > 0 and traffic:all gold.lost == 0", true),
        ("traffic:all lost_percent <= 0.5%", true),
        ("traffic:* longest_window_ms < 1s", true),
        ("queue:gold dropped == 12", true),
        ("queue:gold@1 packets == 6", true),
        ("event:lsp.* count >= 1", true),
        ("event:lsp.repaired@eb02.* count == 0", true),
        ("event:lsp.repaired first_ms == 1500", true),
        ("event:lsp.repaired details contains bundles", true),
        ("cycle:1 unrouted == 0", true),
        ("not (plane:1 state == ready or plane:2 state == ready)", false),
        (r#"link:"plane:1 & kind:core" state == up"#, false),
    ] {
        let seen = ask(text);
        assert_eq!(seen.holds, if holds { Holds::Yes } else { Holds::No }, "{text}: {seen:?}");
    }
}

#[test]
fn what_was_seen_is_told() {
    assert_eq!(ask("plane:* state == ready").observed, "plane:2 state is degraded");
    assert_eq!(ask("sum plane:* lsps.on_backup == 0").observed, "sum of lsps.on_backup of 2 is 12");
    assert_eq!(
        ask("program:bird state == running").observed,
        "there is nothing that `program:bird state == running` is about"
    );
    let both = ask("plane:1 state == drained and plane:2 state == drained");
    assert_eq!(both.observed, "plane:1 state is ready; plane:2 state is degraded");
}

/// A bound nearer than the timers are exact decides nothing.
#[test]
fn times_near_the_bound_are_too_close() {
    assert_eq!(ask("traffic:all longest_window_ms <= 12ms").holds, Holds::TooClose);
    assert_eq!(ask("traffic:all longest_window_ms <= 14ms").holds, Holds::TooClose);
    assert_eq!(ask("traffic:all longest_window_ms <= 15ms").holds, Holds::Yes);
    assert_eq!(ask("traffic:all longest_window_ms <= 10ms").holds, Holds::No);
    assert_eq!(ask("not traffic:all longest_window_ms <= 12ms").holds, Holds::TooClose);
    assert_eq!(ask("traffic:all longest_window_ms <= 12ms or plane:1 state == ready").holds, Holds::Yes);
}

#[test]
fn bad_conditions_say_where_and_what_to_write() {
    let bad = |text: &str| Condition::parse(text, &lab(), &["gold".to_owned()]).unwrap_err();
    let shown: String = [
        "",
        "plain:1 state == ready",
        "plane state == ready",
        "plane:7 state == ready",
        "plane:1 stat == ready",
        "plane:1 state = ready",
        "plane:1 state ==",
        "plane:1 state == ready plane:2",
        "plane:1 lsps.on_backup > many",
        "(plane:1 state == ready",
        "link:\"plane:1 state == up",
        "link:srlg:none state == up",
        "traffic:god lost == 0",
        "queue:golden dropped == 0",
        "traffic:gold longest_window_ms < 5m",
        "program:bird@eb09.* state == running",
    ]
    .iter()
    .map(|text| {
        let bad = bad(text);
        format!("{text}\n{}^ {}\n  hint: {}\n", " ".repeat(bad.offset), bad.message, bad.hint)
    })
    .collect();
    insta::assert_snapshot!(shown);
}

proptest! {
    #[test]
    fn any_text_is_a_condition_or_is_refused(text in "\\PC{0,60}") {
        let _ = Condition::parse(&text, &lab(), &[]);
    }

    #[test]
    fn anything_made_of_words_is_read_or_refused_and_can_be_asked(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "plane:1", "plane:*", "state", "==", "ready", "and", "or", "not", "(", ")", "sum", "no", "lsps.on_backup",
                ">", "3", "traffic:all", "longest_window_ms", "event:*", "count", "\"x y\"",
            ]),
            0..14,
        )
    ) {
        if let Ok(condition) = Condition::parse(&words.join(" "), &lab(), &["all".to_owned()]) {
            let _ = (condition.ask(&facts()), condition.ask(&Facts::default()), condition.needs());
        }
    }
}

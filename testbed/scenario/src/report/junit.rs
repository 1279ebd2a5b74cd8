//! JUnit XML, for whatever shows the results of tests.

use std::fmt::Write as _;

use super::figures::{date, duration_ns, ns, outcome, step_name, step_ns};
use crate::record::{Outcome, Run, Step};

/// One test suite with a test case for each run, in their order. A run that failed is a failure, one that could not be
/// carried out or did not end an error, one that was not reached skipped; times are seconds.
pub fn junit(runs: &[Run]) -> String {
    let number = |which: fn(Outcome) -> bool| runs.iter().filter(|run| which(run.outcome)).count();
    let (failures, errors) = (number(is_failure), number(is_error));
    let skipped = number(|outcome| outcome == Outcome::Skipped);
    let total: u64 = runs.iter().map(duration_ns).fold(0, u64::saturating_add);
    let counts = format!(
        r#"tests="{}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="{}""#,
        runs.len(),
        seconds(total)
    );
    let began = date(runs.iter().map(|run| run.began_unix_ms).min().unwrap_or(0));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, r#"<testsuites name="testbed" {counts}>"#);
    let _ = writeln!(out, r#"  <testsuite name="scenarios" {counts} timestamp="{began}">"#);
    for run in runs {
        case(&mut out, run);
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn is_failure(outcome: Outcome) -> bool {
    outcome == Outcome::Failed
}

fn is_error(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Broken | Outcome::Running)
}

fn case(out: &mut String, run: &Run) {
    let name = if run.title.name.is_empty() { &run.id } else { &run.title.name };
    let time = seconds(duration_ns(run));
    let lab = if run.lab.is_empty() { "lab" } else { &run.lab };
    let _ = writeln!(
        out,
        r#"    <testcase name="{}" classname="{}" time="{time}">"#,
        attribute(name),
        attribute(lab)
    );
    let element = match run.outcome {
        Outcome::Failed => Some("failure"),
        Outcome::Broken | Outcome::Running => Some("error"),
        Outcome::Skipped => {
            let why = run.reason.as_deref().unwrap_or("not reached");
            let _ = writeln!(out, r#"      <skipped message="{}"/>"#, attribute(why));
            None
        }
        Outcome::Passed | Outcome::Warned => None,
    };
    if let Some(element) = element {
        let message = attribute(&message(run));
        let kind = outcome(run.outcome);
        let body = content(&body(run));
        let _ = writeln!(out, r#"      <{element} message="{message}" type="{kind}">{body}</{element}>"#);
    }
    let _ = writeln!(out, "      <system-out>{}</system-out>\n    </testcase>", content(&story(run)));
}

/// Steps that ended badly, the decisive ones first.
fn bad(run: &Run) -> impl Iterator<Item = &Step> {
    let which = |outcome| move |step: &&Step| step.outcome == outcome;
    let steps = run.steps.iter();
    steps.clone().filter(which(Outcome::Broken)).chain(steps.filter(which(Outcome::Failed)))
}

fn message(run: &Run) -> String {
    match (&run.reason, bad(run).next()) {
        (Some(reason), _) => reason.clone(),
        (None, Some(step)) => told(step),
        (None, None) if run.outcome == Outcome::Running => "the run did not end".to_owned(),
        (None, None) => "no step tells why".to_owned(),
    }
}

/// `step 4 (name): expected …; observed …`
fn told(step: &Step) -> String {
    let mut text = format!("step {} ({})", step.id, step_name(step));
    let mut before = ": ";
    for (word, what) in [("expected", &step.expected), ("observed", &step.observed)] {
        if let Some(what) = what {
            let _ = write!(text, "{before}{word} {what}");
            before = "; ";
        }
    }
    text
}

fn body(run: &Run) -> String {
    let mut text = String::new();
    for step in bad(run) {
        let _ = writeln!(text, "{}", told(step));
        if step.line > 0 && !run.title.file.is_empty() {
            let _ = writeln!(text, "  at {}:{}: {}", run.title.file, step.line, step.action);
        }
        for note in &step.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    if let Some(evidence) = &run.evidence {
        let _ = writeln!(text, "evidence: {evidence}");
    }
    text
}

/// All steps and watches, with what was lost.
fn story(run: &Run) -> String {
    let mut text = format!("run {}, lab {}, carrier {}, seed {}\n", run.id, run.lab, run.carrier, run.seed);
    for step in &run.steps {
        let took = step_ns(step).map_or_else(|| "-".to_owned(), ns);
        let at = if step.began_ns == 0 { "-".into() } else { format!("{:.3} s", run.seconds(step.began_ns)) };
        let _ = writeln!(text, "{:<8} {at:>10}  {took:>8}  {}", outcome(step.outcome), step_line(step));
    }
    for traffic in &run.traffic {
        let longest = traffic.losses.iter().map(|l| l.ms).fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "traffic {}: {} sent, {} lost in {} windows, the longest {}",
            traffic.name,
            traffic.sent,
            traffic.lost,
            traffic.losses.len(),
            super::figures::ms(longest)
        );
    }
    if run.outcome == Outcome::Warned {
        let _ = writeln!(text, "warning: {}", run.reason.as_deref().unwrap_or("see the steps"));
    }
    text
}

fn step_line(step: &Step) -> String {
    if step.expected.is_some() || step.observed.is_some() {
        told(step)
    } else {
        format!("step {} ({})", step.id, step_name(step))
    }
}

/// Seconds with milliseconds.
fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

/// Text within an attribute: what a parser would turn into spaces is kept.
fn attribute(text: &str) -> String {
    escape(text, true)
}

/// Text within an element.
fn content(text: &str) -> String {
    escape(text, false)
}

fn escape(text: &str, attribute: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' if attribute => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            '\n' | '\t' => out.push(c),
            // no document of XML 1.0 may hold these, not even as references
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use roxmltree::{Document, Node};

    use super::*;
    use crate::report::sample;

    /// What the widely used schema of JUnit documents allows: attributes that must be there and that may, and children.
    fn shape(tag: &str) -> (&'static [&'static str], &'static [&'static str], &'static [&'static str]) {
        let counts = &["name", "tests", "failures", "errors", "skipped", "time"];
        match tag {
            "testsuites" => (counts, &[], &["testsuite"]),
            "testsuite" => (counts, &["timestamp", "hostname"], &["testcase", "system-out", "system-err"]),
            "testcase" => (
                &["name", "classname", "time"],
                &["file", "line"],
                &["skipped", "error", "failure", "system-out", "system-err"],
            ),
            "failure" | "error" => (&["message", "type"], &[], &[]),
            "skipped" => (&["message"], &[], &[]),
            "system-out" => (&[], &[], &[]),
            other => panic!("no element of JUnit: {other}"),
        }
    }

    fn check(node: Node<'_, '_>) {
        let tag = node.tag_name().name();
        let (must, may, children) = shape(tag);
        let there: BTreeSet<&str> = node.attributes().map(|a| a.name()).collect();
        assert!(must.iter().all(|name| there.contains(name)), "{tag}: {there:?}");
        assert!(there.iter().all(|name| must.contains(name) || may.contains(name)), "{tag}: {there:?}");
        for name in ["tests", "failures", "errors", "skipped"] {
            assert!(node.attribute(name).is_none_or(|n| n.parse::<u32>().is_ok()), "{tag} {name}");
        }
        assert!(node.attribute("time").is_none_or(|t| t.parse::<f64>().is_ok_and(|t| t >= 0.0)));
        let places = node.children().filter(Node::is_element).map(|child| {
            let place = children.iter().position(|c| *c == child.tag_name().name());
            check(child);
            place.unwrap_or_else(|| panic!("{} in {tag}", child.tag_name().name()))
        });
        let places: Vec<usize> = places.collect();
        assert!(places.is_sorted(), "{tag}: children in the schema's order");
    }

    #[test]
    fn runs_of_all_outcomes_are_a_suite() {
        let all = [
            Outcome::Skipped,
            Outcome::Running,
            Outcome::Passed,
            Outcome::Warned,
            Outcome::Failed,
            Outcome::Broken,
        ];
        let runs: Vec<Run> = all.map(|outcome| Run { outcome, ..Run::default() }).into();
        let text = junit(&runs);
        let document = Document::parse(&text).unwrap();
        check(document.root_element());
        let suite = document.root_element().first_element_child().unwrap();
        let counts = ["tests", "failures", "errors", "skipped"].map(|name| suite.attribute(name).unwrap());
        assert_eq!(counts, ["6", "1", "2", "1"]);
        check(Document::parse(&junit(&[])).unwrap().root_element());
    }

    #[test]
    fn the_sample() {
        let text = junit(&[sample::run(), sample::hostile()]);
        check(Document::parse(&text).unwrap().root_element());
        insta::assert_snapshot!(junit(&[sample::run()]));
    }

    proptest! {
        #[test]
        fn whatever_a_name_is_it_stays_one(name in any::<String>(), note in any::<String>()) {
            let mut run = sample::run();
            run.title.name.clone_from(&name);
            run.reason = Some(note.clone());
            run.evidence = Some(note);
            let text = junit(&[run]);
            let document = Document::parse(&text).unwrap();
            check(document.root_element());
            let case = document.descendants().find(|n| n.has_tag_name("testcase")).unwrap();
            if !name.is_empty() && name.chars().all(|c| c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}')) {
                prop_assert_eq!(case.attribute("name"), Some(name.as_str()));
            }
        }
    }
}

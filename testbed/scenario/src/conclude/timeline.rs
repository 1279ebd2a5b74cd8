//! From a failure to the first packet that arrives again: who noticed, who was told, who decided, who wrote.

use std::collections::{BTreeMap, BTreeSet};

use super::failure::Failure;
use super::words::{link_at, said};
use crate::record::{Run, Timeline};

const MS: u64 = 1_000_000;
/// What follows a failure later than this is not its doing.
const LONGEST: u64 = 10_000 * MS;
/// The moment of a change and that of its notice are read by different programs.
const SLACK: u64 = 2 * MS;

/// A stage that was reached somewhere.
#[derive(Clone, Debug)]
struct Reached {
    at_ns: u64,
    router: String,
    words: String,
}

/// What is known of one failure: stages in the order in which they follow each other.
#[derive(Debug, Default)]
struct Course {
    stages: BTreeMap<Stage, Vec<Reached>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Kernel,
    Flood,
    Decision,
    Restarted,
    Written,
    Packets,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Flood => "flood",
            Self::Decision => "decision",
            Self::Restarted => "restarted",
            Self::Written => "written",
            Self::Packets => "packets",
        }
    }
}

/// What a router was last told of, and by when it had taken that up.
struct Notice {
    failure: usize,
    at_ns: u64,
    own: bool,
    what: String,
    bundles: Option<u64>,
}

/// The timelines of failures, in their order.
pub fn all(run: &Run, failures: &[Failure]) -> Vec<Timeline> {
    let mut courses: Vec<Course> = failures.iter().map(|_| Course::default()).collect();
    follow(run, failures, &mut courses);
    packets(run, failures, &mut courses);
    failures.iter().zip(courses).map(|(failure, course)| course.timeline(failure)).collect()
}

impl Course {
    fn add(&mut self, stage: Stage, at_ns: u64, router: &str, words: String) {
        let reached = Reached { at_ns, router: router.to_owned(), words };
        self.stages.entry(stage).or_default().push(reached);
    }

    /// Of each stage the first and the last; all of what packets tell, which is one a class.
    fn timeline(self, failure: &Failure) -> Timeline {
        let mut points = Vec::new();
        for (stage, mut reached) in self.stages {
            reached.sort_by(|a, b| (a.at_ns, &a.router).cmp(&(b.at_ns, &b.router)));
            let routers: BTreeSet<&str> = reached.iter().map(|r| r.router.as_str()).collect();
            let many = routers.len();
            let keep = |nth: usize| stage == Stage::Packets || nth == 0 || nth + 1 == reached.len();
            for (nth, at) in reached.iter().enumerate().filter(|(nth, _)| keep(*nth)) {
                let last = stage != Stage::Packets && nth > 0 && many > 1;
                let words = if last { format!("{}; last of {many}", at.words) } else { at.words.clone() };
                points.push((after_ms(failure.at_ns, at.at_ns), stage.name().to_owned(), words));
            }
        }
        // stages are in order already; those of the same moment stay so
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Timeline { failure: failure.label.clone(), at_ns: failure.at_ns, points }
    }
}

/// Milliseconds, to the microsecond.
fn after_ms(from_ns: u64, at_ns: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a double holds microseconds of 285 years
    let us = (at_ns.saturating_sub(from_ns) / 1000) as f64;
    us / 1e3
}

/// Goes through the events by time and adds each to the failure that it follows.
fn follow(run: &Run, failures: &[Failure], courses: &mut [Course]) {
    let mut order: Vec<usize> = (0..run.events.len()).collect();
    order.sort_by_key(|&index| (run.events[index].at_ns, index));
    let mut noticed: BTreeMap<&str, Notice> = BTreeMap::new();
    for event in order.into_iter().map(|index| &run.events[index]) {
        let router = event.subject.as_str();
        match event.kind.as_str() {
            "lsp.link_down" => {
                if let Some(notice) = notice(run, failures, event.at_ns, router, &event.detail) {
                    let course = &mut courses[notice.failure];
                    let stage = if notice.own { Stage::Kernel } else { Stage::Flood };
                    course.add(stage, event.at_ns, router, notice.what.clone());
                    noticed.insert(router, notice);
                }
            }
            "lsp.link_up" => drop(noticed.remove(router)),
            "lsp.repaired" => {
                let Some(notice) = noticed.remove(router) else { continue };
                if event.at_ns.saturating_sub(notice.at_ns) <= 2_000 * MS {
                    repaired(&mut courses[notice.failure], &notice, event.at_ns, router, &event.detail);
                }
            }
            "program.started" | "program.continued" | "lsp.reconciled" => {
                let Some(at) = of_program(failures, event.at_ns, router) else { continue };
                let (stage, words) = match event.kind.as_str() {
                    "program.started" => (Stage::Restarted, format!("{router} runs again")),
                    "program.continued" => (Stage::Restarted, format!("{router} goes on")),
                    _ => (Stage::Written, format!("{router}: {}", said(&event.detail).text)),
                };
                courses[at].add(stage, event.at_ns, router, words);
            }
            _ => {}
        }
    }
}

/// A link that a router saw or heard go down: which failure that was, if any.
fn notice(run: &Run, failures: &[Failure], at_ns: u64, router: &str, detail: &str) -> Option<Notice> {
    let said = said(detail);
    let link = link_at(said.text)?;
    let ends = run.topology.links.iter().find(|l| l.name == link);
    let own = ends.is_some_and(|l| l.a == router || l.b == router);
    let failure = latest(failures, at_ns, |f| f.links.contains(&link))?;
    let what =
        if own { format!("{router} sees {} down", said.text) } else { format!("{router} hears of it") };
    Some(Notice { failure, at_ns, own, what, bundles: said.bundles })
}

/// The latest failure before a time that fits.
fn latest(failures: &[Failure], at_ns: u64, fits: impl Fn(&Failure) -> bool) -> Option<usize> {
    let before = failures.partition_point(|f| f.at_ns <= at_ns.saturating_add(SLACK));
    let near = failures[..before].iter().enumerate().rev();
    let mut near = near.take_while(|(_, f)| at_ns.saturating_sub(f.at_ns) <= LONGEST);
    near.find(|(_, f)| fits(f)).map(|(index, _)| index)
}

/// The failure of programs that an event of `subject` (`eb01.prn/bird`, or its node) follows.
fn of_program(failures: &[Failure], at_ns: u64, subject: &str) -> Option<usize> {
    latest(failures, at_ns, |f| {
        f.of_program
            && f.subjects
                .iter()
                .any(|hit| super::words::is_part_of(subject, hit) || super::words::is_part_of(hit, subject))
    })
}

/// An agent has written: what it had decided, and that.
fn repaired(course: &mut Course, notice: &Notice, at_ns: u64, router: &str, detail: &str) {
    let said = said(detail);
    if said.writes == Some(0) {
        return;
    }
    if let Some(bundles) = notice.bundles.or(said.bundles) {
        let bundles = if bundles == 1 { "1 bundle".to_owned() } else { format!("{bundles} bundles") };
        course.add(Stage::Decision, notice.at_ns, router, format!("{router}: {bundles} concerned"));
    }
    let took =
        said.took_ns.map_or_else(String::new, |ns| format!(", took {}", crate::report::figures::ns(ns)));
    course.add(Stage::Written, at_ns, router, format!("{router}: {}{took}", said.text));
}

/// For each failure and class: when the last window of loss that it began was over.
fn packets(run: &Run, failures: &[Failure], courses: &mut [Course]) {
    let owner: BTreeMap<usize, usize> = failures
        .iter()
        .enumerate()
        .flat_map(|(index, failure)| failure.events.iter().map(move |&event| (event, index)))
        .collect();
    let mut ends: BTreeMap<(usize, &str), (u64, usize)> = BTreeMap::new();
    for loss in run.traffic.iter().flat_map(|t| &t.losses) {
        let Some(&failure) = loss.cause.and_then(|cause| owner.get(&cause)) else { continue };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a negative or absurd length is cut off
        let end = loss.start_ns.saturating_add((loss.ms * 1e6) as u64);
        let entry = ends.entry((failure, &loss.class)).or_default();
        *entry = (entry.0.max(end), entry.1 + 1);
    }
    for ((failure, class), (end, windows)) in ends {
        let of = if windows == 1 { String::new() } else { format!(", last of {windows} windows") };
        courses[failure].add(Stage::Packets, end, class, format!("{class} arrives again{of}"));
    }
}

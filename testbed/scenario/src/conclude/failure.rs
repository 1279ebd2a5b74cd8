//! Failures of a run: its faults and the events that tell when they took effect, and events of things that broke without
//! anybody's order.

use std::collections::BTreeSet;

use super::words::{breaks, few, is_part_of, is_there, links_of, of_program};
use crate::record::{Fault, Run};

const MS: u64 = 1_000_000;
/// Between the order and what it does, whichever is noted first.
const ORDER: u64 = 1_000 * MS;
/// At most as many failures are followed, so that a record full of them stays one that can be read.
const MOST: usize = 200;

/// Something that broke.
#[derive(Debug, Default)]
pub struct Failure {
    /// `cut eb01.chi--eb01.frc`.
    pub label: String,
    /// When it took effect.
    pub at_ns: u64,
    /// The events that tell of it: indices into [`Run::events`].
    pub events: BTreeSet<usize>,
    /// Links, nodes and programs hit.
    pub subjects: Vec<String>,
    /// Links that go down with it.
    pub links: BTreeSet<String>,
    /// Whether it is of programs.
    pub of_program: bool,
}

/// The failures by time.
pub fn all(run: &Run) -> Vec<Failure> {
    let breaking = run.events.iter().enumerate().filter(|(_, e)| breaks(e));
    let mut breaking: Vec<usize> = breaking.map(|(index, _)| index).collect();
    breaking.sort_by_key(|&index| (run.events[index].at_ns, index));
    let mut claimed = BTreeSet::new();
    let mut failures = Vec::new();
    // calls that are kept from a controller are no failure of the network
    let of_network =
        |fault: &&Fault| fault.kind != "rpc" && fault.subjects.iter().any(|s| is_there(&run.topology, s));
    for fault in run.faults.iter().filter(of_network).take(MOST) {
        let own: Vec<usize> =
            breaking.iter().copied().filter(|i| !claimed.contains(i) && is_of(run, *i, fault)).collect();
        claimed.extend(own.iter().copied());
        failures.extend(of_fault(run, fault, &own));
    }
    let rest: Vec<usize> = breaking.into_iter().filter(|index| !claimed.contains(index)).collect();
    failures.extend(of_events(run, &rest));
    failures.sort_by(|a, b| (a.at_ns, &a.label).cmp(&(b.at_ns, &b.label)));
    failures.truncate(MOST);
    failures
}

/// Whether an event is what a fault did.
fn is_of(run: &Run, index: usize, fault: &Fault) -> bool {
    let event = &run.events[index];
    let until = if fault.until_ns == 0 { u64::MAX } else { fault.until_ns };
    event.at_ns >= fault.from_ns.saturating_sub(ORDER)
        && event.at_ns <= until.saturating_add(ORDER)
        && fault.subjects.iter().any(|hit| is_part_of(&event.subject, hit))
}

/// One failure, or one for each time that a fault struck again: a link that flaps.
fn of_fault(run: &Run, fault: &Fault, own: &[usize]) -> Vec<Failure> {
    let subjects: Vec<&str> = fault.subjects.iter().map(String::as_str).collect();
    let label = format!("{} {}", fault.kind, few(&subjects));
    let groups = grouped(run, own);
    let groups = if groups.is_empty() { vec![&[][..]] } else { groups };
    let make = |events: &[usize]| Failure {
        label: label.clone(),
        at_ns: events.first().map_or(fault.from_ns, |&i| run.events[i].at_ns),
        events: events.iter().copied().collect(),
        links: subjects.iter().flat_map(|s| links_of(&run.topology, s)).map(|l| l.name.clone()).collect(),
        subjects: fault.subjects.clone(),
        of_program: events.iter().any(|&i| of_program(&run.events[i].kind)),
    };
    groups.into_iter().take(MOST).map(make).collect()
}

/// Events that come one right after the other are one failure.
fn grouped<'a>(run: &Run, events: &'a [usize]) -> Vec<&'a [usize]> {
    // a node's programs end one after the other
    let apart = if events.iter().any(|&i| of_program(&run.events[i].kind)) { 1_000 * MS } else { 50 * MS };
    let close = |a: &usize, b: &usize| run.events[*b].at_ns.saturating_sub(run.events[*a].at_ns) <= apart;
    events.chunk_by(close).collect()
}

/// Failures that no fault accounts for.
fn of_events(run: &Run, events: &[usize]) -> Vec<Failure> {
    let alike = |a: &usize, b: &usize| {
        let (a, b) = (&run.events[*a], &run.events[*b]);
        a.kind == b.kind && b.at_ns.saturating_sub(a.at_ns) <= 50 * MS
    };
    let mut failures = Vec::new();
    for group in events.chunk_by(alike).take(MOST) {
        let Some(first) = group.first().map(|&i| &run.events[i]) else { continue };
        let subjects: Vec<&str> = group.iter().map(|&i| run.events[i].subject.as_str()).collect();
        let (_, verb) = first.kind.split_once('.').unwrap_or(("", &first.kind));
        let links = subjects.iter().flat_map(|s| links_of(&run.topology, s));
        failures.push(Failure {
            label: format!("{verb} {}", few(&subjects)),
            at_ns: first.at_ns,
            events: group.iter().copied().collect(),
            links: links.map(|l| l.name.clone()).collect(),
            subjects: subjects.into_iter().map(str::to_owned).collect(),
            of_program: of_program(&first.kind),
        });
    }
    failures
}

//! Which event began a stretch of loss: the nearest one that can cost packets, where what breaks counts for nearer than
//! what is changed on purpose, and that for nearer than what agents then do about it.

use super::words::{breaks, is_part_of, of_program};
use crate::record::{Event, Run};

const MS: u64 = 1_000_000;

/// A packet that was under way when a link was cut was sent before: loss can begin this long before its cause.
const UNDER_WAY: u64 = 150 * MS;
/// Loss that begins in the middle of a lasting impairment is that impairment's, unless something else is nearer than this.
const LASTING: u64 = 1_500 * MS;

/// How far a kind of event reaches, and by how much others must be farther to lose against it. Nanoseconds.
struct Reach {
    after: u64,
    handicap: u64,
}

fn reach(event: &Event) -> Option<Reach> {
    let reach = |after, handicap| Some(Reach { after: after * MS, handicap: handicap * MS });
    match event.kind.as_str() {
        kind if of_program(kind) => reach(3_000, 100),
        _ if breaks(event) => reach(2_000, 0),
        "link.delayed" | "link.impaired" | "node.restored" | "link.restored" | "member.restored"
        | "plane.draining" | "plane.undrained" | "part.drained" | "part.undrained" | "program.started"
        | "program.continued" | "config.adopted" | "config.pushed" | "config.rolled_back"
        | "config.expired" | "config.interface" | "rollout.pushed" | "rollout.undone" => reach(1_000, 300),
        "lsp.link_down" | "lsp.link_up" => reach(300, 600),
        "lsp.repaired" | "lsp.reconciled" => reach(200, 800),
        _ => None,
    }
}

/// An event that can begin loss.
struct Candidate {
    at_ns: u64,
    index: usize,
    reach: Reach,
}

impl Candidate {
    /// How far it is from a start of loss; nothing if it is out of reach.
    fn distance(&self, start_ns: u64) -> Option<u64> {
        let early = self.at_ns.saturating_sub(start_ns);
        let late = start_ns.saturating_sub(self.at_ns);
        if early > UNDER_WAY || late > self.reach.after {
            return None;
        }
        // an event after the loss is a worse explanation than one as long before it
        Some(self.reach.handicap + late + early * 4)
    }
}

/// An impairment that lasts: from, until, and the event that tells of it.
fn lasting(run: &Run, candidates: &[Candidate]) -> Vec<(u64, u64, usize)> {
    let lasts = |kind: &str| ["impair", "loss", "corrupt", "limit"].iter().any(|word| kind.contains(word));
    let mut spans = Vec::new();
    for fault in run.faults.iter().filter(|f| lasts(&f.kind)) {
        let about = |index: usize| {
            let event: &str = run.events.get(index).map_or("", |e| &e.subject);
            fault.subjects.iter().any(|hit| is_part_of(event, hit))
        };
        let near =
            candidates.iter().filter(|c| about(c.index) && c.at_ns.abs_diff(fault.from_ns) <= 2_000 * MS);
        if let Some(event) = near.min_by_key(|c| (c.at_ns.abs_diff(fault.from_ns), c.index)) {
            let until = if fault.until_ns == 0 { u64::MAX } else { fault.until_ns };
            spans.push((fault.from_ns.min(event.at_ns), until, event.index));
        }
    }
    spans
}

/// Sets the cause of every window of loss.
pub fn find(run: &mut Run) {
    let events = run.events.iter().enumerate();
    let mut candidates: Vec<Candidate> =
        events.filter_map(|(index, e)| Some(Candidate { at_ns: e.at_ns, index, reach: reach(e)? })).collect();
    candidates.sort_by_key(|c| (c.at_ns, c.index));
    let spans = lasting(run, &candidates);
    let farthest = 3_000 * MS;
    for loss in run.traffic.iter_mut().flat_map(|t| &mut t.losses) {
        let start = loss.start_ns;
        let from = candidates.partition_point(|c| c.at_ns < start.saturating_sub(farthest));
        let until = candidates.partition_point(|c| c.at_ns <= start.saturating_add(UNDER_WAY));
        let near = candidates.get(from..until).unwrap_or_default();
        let near = near.iter().filter_map(|c| Some((c.distance(start)?, c.index)));
        let under = spans.iter().filter(|(from, until, _)| (*from..=*until).contains(&start));
        loss.cause = near.chain(under.map(|span| (LASTING, span.2))).min().map(|(_, index)| index);
    }
}

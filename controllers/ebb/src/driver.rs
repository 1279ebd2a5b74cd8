//! The programming driver: writes a plan in make-before-break order (EBB paper, section 5.3).
//!
//! ```text
//! all routers at once:  left-over SIDs away, then the new SIDs (PHASE_TRANSIT)
//! all sources at once:  units whose intermediates all succeeded (PHASE_SOURCE), then the map entries they need
//! after a pause:        the old SIDs away (PHASE_RETIRE)
//! ```
//!
//! Every unit, a (source, destination, mesh), succeeds or fails by itself. What fails is counted and left to the next
//! cycle: an aborted unit still has its old version live, and the SIDs that it leaves behind are found in the next dump.
//! A source that did not answer a swap may have carried it out, so neither of its versions is removed in this cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use router_emu::proto::{Bundle, MapEntry, Phase, ProgramBundleRequest, ProgramMapRequest};

use crate::agents::Agents;
use crate::fleet::bare;
use crate::plan::{Action, Plan, Unit};

/// Bundles per RPC: keeps requests below the 4 MiB that a server takes by default, with room for paths of 30 hops.
const BATCH: usize = 64;

/// Writes plans.
#[derive(Debug)]
pub struct Driver<'a, A> {
    /// The agents.
    pub agents: &'a A,
    /// Epoch of the leader.
    pub epoch: u64,
    /// Name of the leader.
    pub writer: &'a str,
    /// Pause before old versions are removed.
    pub retire_delay: Duration,
}

/// What came of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Units that were programmed.
    pub programmed: u32,
    /// Units that needed nothing.
    pub kept: u32,
    /// Units that failed.
    pub failed: u32,
    /// Old and left-over SIDs removed, counted per router.
    pub retired: u32,
    /// What went wrong, in words.
    pub errors: Vec<String>,
    /// An agent has seen a higher epoch, or the lease has run out; writing stopped at the end of that phase.
    pub fenced: bool,
}

/// Answers of one router to one kind of write.
#[derive(Debug, Default)]
struct Sent {
    done: BTreeSet<u32>,
    failed: BTreeMap<u32, String>,
    errors: Vec<String>,
    fenced: bool,
}

/// Answers of one router in the first phase.
type Transit<'p> = (&'p str, Sent, Sent);

impl<A: Agents> Driver<'_, A> {
    /// Carries out a plan.
    pub async fn run(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        let mut failures: BTreeMap<usize, String> = BTreeMap::new();
        self.transit(plan, &mut outcome, &mut failures).await;
        let mut removed = Vec::new();
        if !outcome.fenced {
            removed = self.sources(plan, &mut outcome, &mut failures).await;
        }
        for (i, unit) in plan.units.iter().enumerate() {
            match (&unit.action, failures.get(&i)) {
                (Action::Fail(why), _) | (_, Some(why)) => {
                    outcome.failed += 1;
                    outcome.errors.push(why.clone());
                }
                (Action::Keep(_), None) => outcome.kept += 1,
                (Action::Program(_), None) if outcome.fenced => outcome.failed += 1,
                (Action::Program(_), None) => outcome.programmed += 1,
            }
        }
        if !outcome.fenced {
            self.retire(plan, &removed, &mut outcome, &failures).await;
        }
        outcome
    }

    /// Removes left-overs and installs the new SIDs at all intermediate nodes.
    async fn transit(&self, plan: &Plan, outcome: &mut Outcome, failures: &mut BTreeMap<usize, String>) {
        let mut jobs: BTreeMap<&str, (Vec<Bundle>, Vec<Bundle>)> = BTreeMap::new();
        for (router, sids) in &plan.stale {
            jobs.entry(router).or_default().0.extend(sids.iter().map(|&sid| bare(sid)));
        }
        for program in plan.units.iter().filter_map(Unit::program) {
            for router in program.intermediates.iter().filter(|&r| !plan.silent.contains(r)) {
                jobs.entry(router).or_default().1.push(program.bundle.clone());
            }
        }
        let each = jobs.into_iter().map(|(router, (stale, new))| async move {
            let retired = self.send(router, Phase::Retire, stale).await;
            let transit =
                if retired.fenced { Sent::default() } else { self.send(router, Phase::Transit, new).await };
            (router, retired, transit)
        });
        let answers: Vec<Transit<'_>> = join_all(each).await;
        let mut by_router: BTreeMap<&str, Sent> = BTreeMap::new();
        for (router, retired, transit) in answers {
            outcome.take_retired(&retired);
            outcome.fenced |= transit.fenced;
            by_router.insert(router, transit);
        }
        for (i, unit) in plan.units.iter().enumerate() {
            let Some(program) = unit.program() else { continue };
            let sid = program.bundle.sid;
            let missing =
                program.intermediates.iter().find_map(|router| match by_router.get(router.as_str()) {
                    None => Some(format!("{router}: the lsp-agent does not answer")),
                    Some(sent) if sent.done.contains(&sid) => None,
                    Some(sent) => Some(sent.why(router, sid)),
                });
            if let Some(why) = missing {
                let text =
                    format!("{}: intermediate {why}; its source {} is left as it is", unit.key, unit.source);
                failures.insert(i, text);
            }
        }
    }

    /// Swaps the sources of all units that may, writes their maps, and removes what nobody wants. Returns the indices of
    /// the removals that were carried out.
    async fn sources(
        &self,
        plan: &Plan,
        outcome: &mut Outcome,
        failures: &mut BTreeMap<usize, String>,
    ) -> Vec<usize> {
        let mut jobs: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, unit) in plan.units.iter().enumerate() {
            if !failures.contains_key(&i) && !matches!(unit.action, Action::Fail(_)) {
                jobs.entry(&unit.source).or_default().push(i);
            }
        }
        for source in plan.unmap.keys() {
            jobs.entry(source).or_default();
        }
        let each = jobs.into_iter().map(|(source, units)| self.source(plan, source, units));
        let mut removed = Vec::new();
        for answer in join_all(each).await {
            failures.extend(answer.failures);
            removed.extend(answer.removed);
            outcome.errors.extend(answer.errors);
            outcome.fenced |= answer.fenced;
        }
        removed
    }

    /// Everything that one source gets, in order: bundles, map, removals.
    async fn source(&self, plan: &Plan, source: &str, units: Vec<usize>) -> SourceAnswer {
        let mut answer = SourceAnswer::default();
        let program = |&i: &usize| plan.units[i].program().map(|p| (i, &p.bundle));
        let swaps: Vec<(usize, &Bundle)> = units.iter().filter_map(program).collect();
        let sent = self.send(source, Phase::Source, swaps.iter().map(|(_, b)| (*b).clone()).collect()).await;
        answer.fenced = sent.fenced;
        for (i, bundle) in &swaps {
            if !sent.done.contains(&bundle.sid) {
                let why = sent.why(source, bundle.sid);
                answer.failures.insert(*i, format!("{}: source {why}", plan.units[*i].key));
            }
        }
        if answer.fenced {
            return answer;
        }
        let live: Vec<usize> = units.into_iter().filter(|i| !answer.failures.contains_key(i)).collect();
        let entries: Vec<MapEntry> = live.iter().filter_map(|&i| plan.units[i].map).collect();
        let remove = plan.unmap.get(source).cloned().unwrap_or_default();
        if entries.is_empty() && remove.is_empty() {
            return answer;
        }
        let request =
            ProgramMapRequest { epoch: self.epoch, writer: self.writer.to_owned(), entries, remove };
        if let Err(e) = self.agents.program_map(source, request).await {
            answer.fenced = e.ends_lead();
            answer.errors.push(e.to_string());
            for i in live.into_iter().filter(|&i| plan.units[i].map.is_some()) {
                answer.failures.insert(i, format!("{}: its map entry is not written", plan.units[i].key));
            }
            return answer;
        }
        self.remove(plan, source, &mut answer).await;
        answer
    }

    /// Deletes unwanted bundles at their source, once nothing maps to them.
    async fn remove(&self, plan: &Plan, source: &str, answer: &mut SourceAnswer) {
        let own = plan.removals.iter().enumerate().filter(|(_, r)| r.source == source);
        let own: Vec<(usize, u32)> = own.map(|(i, r)| (i, r.sid.encode())).collect();
        let sids = own.iter().map(|&(_, sid)| Bundle { sid, lsps: Vec::new() }).collect();
        let sent = self.send(source, Phase::Delete, sids).await;
        answer.fenced |= sent.fenced;
        answer.removed.extend(own.iter().filter(|(_, sid)| sent.done.contains(sid)).map(|&(i, _)| i));
        answer.errors.extend(sent.all_errors());
    }

    /// Removes the old versions of what was programmed.
    async fn retire(
        &self,
        plan: &Plan,
        removed: &[usize],
        outcome: &mut Outcome,
        failures: &BTreeMap<usize, String>,
    ) {
        let mut jobs: BTreeMap<&str, Vec<Bundle>> = BTreeMap::new();
        for (_, unit) in plan.units.iter().enumerate().filter(|(i, _)| !failures.contains_key(i)) {
            let Some((sid, holders)) = unit.program().and_then(|p| p.old.as_ref()) else { continue };
            for router in holders {
                jobs.entry(router).or_default().push(bare(*sid));
            }
        }
        for removal in removed.iter().map(|&i| &plan.removals[i]) {
            for router in &removal.holders {
                jobs.entry(router).or_default().push(bare(removal.sid));
            }
        }
        if jobs.is_empty() {
            return;
        }
        // packets that were sent with the old SID are still on their way
        tokio::time::sleep(self.retire_delay).await;
        let each = jobs
            .into_iter()
            .map(|(router, sids)| async move { (router, self.send(router, Phase::Retire, sids).await) });
        for (_, sent) in join_all(each).await {
            outcome.take_retired(&sent);
        }
    }

    /// Sends bundles to one router in batches. After a batch without an answer the rest is not tried.
    async fn send(&self, router: &str, phase: Phase, bundles: Vec<Bundle>) -> Sent {
        let mut sent = Sent::default();
        let mut rest = bundles.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<Bundle> = rest.by_ref().take(BATCH).collect();
            let sids: Vec<u32> = batch.iter().map(|b| b.sid).collect();
            let request = ProgramBundleRequest {
                epoch: self.epoch,
                writer: self.writer.to_owned(),
                phase: phase.into(),
                bundles: batch,
            };
            match self.agents.program(router, request).await {
                Ok(results) => {
                    for r in results {
                        if r.ok {
                            sent.done.insert(r.sid);
                        } else {
                            sent.failed.insert(r.sid, format!("{router}: {}", r.error));
                        }
                    }
                    for sid in sids.into_iter().filter(|sid| !sent.done.contains(sid)) {
                        let silent = || format!("{router}: the answer does not mention {sid}");
                        sent.failed.entry(sid).or_insert_with(silent);
                    }
                }
                Err(e) => {
                    sent.fenced = e.ends_lead();
                    let words = e.to_string();
                    let unsent = sids.into_iter().chain(rest.by_ref().map(|b| b.sid));
                    sent.failed.extend(unsent.map(|sid| (sid, words.clone())));
                    sent.errors.push(words);
                }
            }
        }
        sent
    }
}

/// What came of one source's part.
#[derive(Debug, Default)]
struct SourceAnswer {
    failures: BTreeMap<usize, String>,
    removed: Vec<usize>,
    errors: Vec<String>,
    fenced: bool,
}

impl Sent {
    fn why(&self, router: &str, sid: u32) -> String {
        self.failed.get(&sid).cloned().unwrap_or_else(|| format!("{router}: not sent"))
    }

    /// Errors of whole calls, else those of single bundles.
    fn all_errors(&self) -> Vec<String> {
        if self.errors.is_empty() { self.failed.values().cloned().collect() } else { self.errors.clone() }
    }
}

impl Outcome {
    fn take_retired(&mut self, sent: &Sent) {
        self.retired += u32::try_from(sent.done.len()).unwrap_or(u32::MAX);
        self.fenced |= sent.fenced;
        self.errors.extend(sent.all_errors());
    }
}

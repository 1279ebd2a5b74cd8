//! The engine with a kernel and a journal: writes plans, repairs what the kernel refused, answers the RPCs.
//!
//! Everything here is synchronous and works on any [`Kernel`], the in-memory one of the tests included.

use std::collections::{BTreeMap, BTreeSet};

use super::bundle::{Bundle, Role};
use super::engine::{Engine, Repair, Snapshot, rank};
use super::journal::Journal;
use super::state::{Op, Plan};
use crate::label::{Nexthop, Sid};
use crate::proto::{self, Phase};

/// How often a refused write is answered by a fresh look at the kernel and another try.
const ROUNDS: usize = 3;

/// Access to a kernel.
pub trait Kernel {
    /// Carries out all writes in order, in as few system calls as possible; the fate of each, in the kernel's words.
    /// A delete of something absent has succeeded. A refused write does not stop the later ones.
    fn write(&mut self, ops: &[&Op]) -> anyhow::Result<Vec<Result<(), String>>>;

    /// Looks at interfaces and at our objects.
    fn look(&mut self) -> anyhow::Result<Snapshot>;

    /// Reads the clock that timestamps are given in: nanoseconds.
    fn now_ns(&mut self) -> u64;
}

/// What a write did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Kernel's words for what it still refuses, by bundle key.
    pub refused: BTreeMap<u32, String>,
    /// Groups that were replaced: their packet counters begin anew.
    pub replaced: BTreeSet<u32>,
    /// Number of writes sent.
    pub writes: usize,
}

/// Engine, kernel and journal of a router.
pub struct Driver<K> {
    /// The core.
    pub engine: Engine,
    /// The kernel.
    pub kernel: K,
    journal: Option<Journal>,
    /// Groups that first aid has left in disorder; see [`Driver::settle`].
    unsettled: BTreeSet<u32>,
    /// Members that are in no group any more; see [`Driver::tidy`].
    orphans: BTreeSet<u32>,
}

impl<K: Kernel> Driver<K> {
    /// Puts the three together; without a journal nothing is remembered.
    pub const fn new(engine: Engine, kernel: K, journal: Option<Journal>) -> Self {
        Self { engine, kernel, journal, unsettled: BTreeSet::new(), orphans: BTreeSet::new() }
    }

    /// Start of the agent: reads the journal, looks at the kernel and writes only what differs.
    ///
    /// # Errors
    /// A journal folder that cannot be read, or a kernel that does not answer.
    pub fn start(&mut self) -> anyhow::Result<Outcome> {
        if let Some(journal) = &self.journal {
            for skipped in journal.restore(&mut self.engine)? {
                tracing::warn!(file = %skipped, "left out a file of the journal");
            }
        }
        self.reconcile()
    }

    /// Looks at the kernel and brings it to what is wanted.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn reconcile(&mut self) -> anyhow::Result<Outcome> {
        let snapshot = self.kernel.look()?;
        let plan = self.engine.reconcile(snapshot);
        let mut outcome = Outcome::default();
        let failed = self.send_in_steps(&plan, &mut outcome)?;
        self.insist(failed, &mut outcome)?;
        Ok(outcome)
    }

    /// Answers the link events that the engine has taken since the last call, with one batch: first aid, SID routes, and
    /// groups that are not there. Groups that live on are left to [`Driver::settle`], so that an event right behind this
    /// one does not wait for them.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn repair(&mut self) -> anyhow::Result<(Repair, Outcome)> {
        let repair = self.engine.repair();
        let mut ops: Vec<&Op> = Vec::with_capacity(repair.plan.urgent.len() + repair.plan.install.len());
        for op in repair.plan.ops() {
            let waits = match op {
                Op::PutGroup(id, _) => self.engine.known().groups.contains_key(id),
                Op::PutMember(id, _) => {
                    let group = self.engine.known().groups.get(&(id & !0xff));
                    group.is_some_and(|members| members.iter().all(|(member, _)| member != id))
                }
                Op::DelMember(_) => true,
                Op::PutSid(..) | Op::DelSid(_) | Op::DelGroup(_) => false,
            };
            if !waits {
                ops.push(op);
            } else if !self.orphans.keep(op) {
                self.unsettled.insert(op.key());
            }
        }
        let mut outcome = Outcome::default();
        let failed = self.send(&ops, &mut outcome)?;
        self.insist(failed, &mut outcome)?;
        Ok((repair, outcome))
    }

    /// Whether [`Driver::settle`] has something to do.
    pub fn is_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Puts up to `most` groups in order that first aid has left with members of other names, gold first.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn settle(&mut self, most: usize) -> anyhow::Result<Outcome> {
        let mut keys: Vec<u32> = self.unsettled.iter().copied().collect();
        keys.sort_unstable_by_key(|&key| (rank(key), key));
        let mut plan = Plan::default();
        for key in keys.into_iter().take(most) {
            self.unsettled.remove(&key);
            self.engine.plan(key, &mut plan);
        }
        let mut outcome = Outcome::default();
        let failed = self.send_in_steps(&plan, &mut outcome)?;
        self.insist(failed, &mut outcome)?;
        Ok(outcome)
    }

    /// Whether [`Driver::tidy`] has something to do.
    pub fn is_untidy(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Deletes up to `most` members that no group uses any more.
    ///
    /// The kernel waits for its readers at each delete, so that those of one programming cycle take longer than all its
    /// creates: they are left for times when nothing else waits.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn tidy(&mut self, most: usize) -> anyhow::Result<()> {
        let mut ops = Vec::new();
        while let Some(id) = self.orphans.pop_first() {
            let known = self.engine.known();
            let in_use = known
                .groups
                .get(&(id & !0xff))
                .is_some_and(|members| members.iter().any(|(member, _)| *member == id));
            if known.members.contains_key(&id) && !in_use {
                ops.push(Op::DelMember(id));
            }
            if ops.len() == most {
                break;
            }
        }
        let mut outcome = Outcome::default();
        self.send(&ops.iter().collect::<Vec<_>>(), &mut outcome)?;
        for why in outcome.refused.values() {
            tracing::warn!("left over in the kernel: {why}");
        }
        Ok(())
    }

    /// Writes paths in use and withdrawn links to the journal; after a repair, outside the measured time.
    pub fn remember_links(&self) {
        if let Some(journal) = &self.journal
            && let Err(e) = journal.links(&self.engine)
        {
            tracing::error!(error = %e, "cannot write the journal: a restart would forget which paths are in use");
        }
    }

    /// Checks the writer's epoch and remembers a higher one before anything is written for it.
    ///
    /// # Errors
    /// The highest epoch seen, if the writer's is lower.
    pub fn fence(&mut self, epoch: u64) -> Result<(), u64> {
        if self.engine.fence(epoch)?
            && let Some(journal) = &self.journal
            && let Err(e) = journal.epoch(epoch)
        {
            tracing::error!(error = %e, "cannot write the journal: a restart would forget epoch {epoch}");
        }
        Ok(())
    }

    /// Carries out one phase for several bundles; each succeeds or fails by itself, in the order given.
    ///
    /// # Errors
    /// A kernel that does not answer; refusals are in the results.
    pub fn program(
        &mut self,
        phase: Phase,
        bundles: Vec<proto::Bundle>,
    ) -> anyhow::Result<(Vec<proto::BundleResult>, Outcome)> {
        let mut staged = Vec::with_capacity(bundles.len());
        let mut plan = Plan::default();
        for wire in bundles {
            let sid = wire.sid;
            let stage = match phase {
                Phase::Transit => self.stage_transit(wire),
                Phase::Source => self.stage_source(wire),
                Phase::Retire => self.stage_retire(sid),
                Phase::Delete => self.stage_delete(sid),
                Phase::Unspecified => Err("the request names no phase".to_owned()),
            };
            if let Ok(stage) = &stage {
                stage.keys.iter().for_each(|&key| self.engine.plan(key, &mut plan));
            }
            staged.push((sid, stage));
        }
        let mut outcome = Outcome::default();
        let install: Vec<&Op> = plan.install.iter().collect();
        let failed = self.send(&install, &mut outcome)?;
        self.insist(failed, &mut outcome)?;
        let written_ns = self.kernel.now_ns();
        let results = staged.into_iter().map(|(sid, stage)| {
            let error = self.finish(phase, stage, &outcome).err().unwrap_or_default();
            proto::BundleResult { sid, ok: error.is_empty(), error, written_ns }
        });
        let results: Vec<_> = results.collect();
        // a failed bundle has gone back to what it was: its leftovers are not left over any more
        let keep: BTreeSet<u32> = outcome.refused.keys().copied().collect();
        let cleanup = plan.cleanup.iter().filter(|op| !keep.contains(&op.key()));
        let cleanup: Vec<&Op> = cleanup.filter(|op| !self.orphans.keep(op)).collect();
        let failed = self.send(&cleanup, &mut outcome)?;
        if !keep.is_empty() || failed {
            let again = self.reconcile()?;
            outcome.replaced.extend(again.replaced);
        }
        self.remember_links();
        Ok((results, outcome))
    }

    fn stage_transit(&mut self, wire: proto::Bundle) -> Result<Stage, String> {
        let bundle = self.engine.compile(wire)?;
        if bundle.role == Role::Source {
            return Ok(Stage::default());
        }
        let key = bundle.key();
        Ok(Stage { keys: vec![key], before: self.engine.put(bundle), put: Some(key) })
    }

    fn stage_source(&mut self, wire: proto::Bundle) -> Result<Stage, String> {
        let bundle = self.engine.compile(wire)?;
        if bundle.role != Role::Source {
            return Err(format!("bundle {} does not start at {}", bundle.sid, self.engine.router().node));
        }
        let key = bundle.key();
        Ok(Stage { keys: vec![key], before: self.engine.put(bundle), put: Some(key) })
    }

    fn stage_retire(&mut self, label: u32) -> Result<Stage, String> {
        let sid = decode(label)?;
        if self.engine.live(sid).is_some_and(|live| live.sid == sid) {
            return Err(format!(
                "version {} of bundle {sid} is live: program the other version first",
                u8::from(sid.version)
            ));
        }
        Ok(Stage { keys: vec![label], before: self.engine.remove(label), put: None })
    }

    fn stage_delete(&mut self, label: u32) -> Result<Stage, String> {
        let sid = decode(label)?;
        let mut keys = vec![sid.encode(), sid.flipped().encode()];
        if sid.src == self.engine.router().site {
            keys.push(Nexthop::Group { dst: sid.dst, mesh: sid.mesh }.id());
        }
        for &key in &keys {
            self.engine.remove(key);
        }
        Ok(Stage { keys, before: None, put: None })
    }

    /// Ends the programming of one bundle: into the journal, or back to what was before.
    fn finish(
        &mut self,
        phase: Phase,
        stage: Result<Stage, String>,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let stage = stage?;
        let refused = stage.keys.iter().find_map(|key| outcome.refused.get(key));
        if let (Some(why), Some(key)) = (refused, stage.put) {
            self.engine.remove(key);
            if let Some(before) = stage.before {
                self.engine.put(before);
            }
            return Err(why.clone());
        }
        let Some(journal) = &self.journal else { return Ok(()) };
        let written = match stage.put.map(|key| self.engine.bundles().get(&key)) {
            Some(Some(bundle)) => journal.put(bundle),
            _ => stage.keys.iter().try_for_each(|&key| journal.remove(key)),
        };
        written.map_err(|e| format!("{}: done, but the journal cannot be written: {e}", phase.as_str_name()))
    }

    /// Sends writes in one batch and takes note of what was carried out; true if anything was refused.
    fn send(&mut self, ops: &[&Op], outcome: &mut Outcome) -> anyhow::Result<bool> {
        if ops.is_empty() {
            return Ok(false);
        }
        let results = self.kernel.write(ops)?;
        outcome.writes += ops.len();
        let mut failed = false;
        for (op, result) in ops.iter().zip(results) {
            match result {
                Ok(()) => {
                    self.engine.written(op);
                    if let Op::PutGroup(id, _) = op {
                        outcome.replaced.insert(*id);
                    }
                }
                Err(why) => {
                    failed = true;
                    outcome.refused.insert(op.key(), format!("cannot {op}: {why}"));
                }
            }
        }
        Ok(failed)
    }

    /// Sends what must exist first and then, for bundles of which nothing was refused, what is left over.
    fn send_in_steps(&mut self, plan: &Plan, outcome: &mut Outcome) -> anyhow::Result<bool> {
        let install: Vec<&Op> = plan.install.iter().collect();
        let first = self.send(&install, outcome)?;
        let cleanup = plan.cleanup.iter().filter(|op| !outcome.refused.contains_key(&op.key()));
        let cleanup: Vec<&Op> = cleanup.filter(|op| !self.orphans.keep(op)).collect();
        let second = self.send(&cleanup, outcome)?;
        Ok(first || second)
    }

    /// After a refusal: the kernel has most likely dropped objects of an interface that just went down. Looks at it
    /// again and sends what is missing, until nothing is refused or the rounds are used up.
    fn insist(&mut self, mut failed: bool, outcome: &mut Outcome) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            if !failed {
                return Ok(());
            }
            outcome.refused.clear();
            let snapshot = self.kernel.look()?;
            let plan = self.engine.reconcile(snapshot);
            failed = self.send_in_steps(&plan, outcome)?;
        }
        Ok(())
    }

    /// State of all bundles, as the RPC gives it out.
    pub fn dump(&self, with_paths: bool) -> proto::DumpBundlesReply {
        let states = self.engine.bundles().values().map(|bundle| self.state(bundle, with_paths));
        proto::DumpBundlesReply { epoch: self.engine.epoch(), bundles: states.collect() }
    }

    fn state(&self, bundle: &Bundle, with_paths: bool) -> proto::BundleState {
        let is_source = bundle.role == Role::Source;
        let (_, on_backup, dropped) = bundle.tally();
        let group = self.engine.known().groups.get(&bundle.key());
        let programmed = group.into_iter().flatten().map(|(_, lsps)| u32::from(*lsps)).sum();
        let lsps = if with_paths { bundle.wire.lsps.clone() } else { Vec::new() };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        proto::BundleState {
            bundle: Some(proto::Bundle { sid: bundle.sid.encode(), lsps }),
            is_source,
            is_transit: self.engine.known().sids.contains_key(&bundle.key()),
            nhg_id: if is_source { bundle.key() } else { 0 },
            wanted: count(bundle.active.len()),
            programmed: if is_source { programmed } else { 0 },
            on_backup: count(on_backup),
            dropped: count(dropped),
            live: true,
        }
    }
}

/// A set of members to be deleted some time.
trait Later {
    /// Takes an operation into the set if it can wait; true if so.
    fn keep(&mut self, op: &Op) -> bool;
}

impl Later for BTreeSet<u32> {
    fn keep(&mut self, op: &Op) -> bool {
        match op {
            Op::DelMember(id) => {
                self.insert(*id);
                true
            }
            _ => false,
        }
    }
}

/// A bundle between being taken up and being acknowledged.
#[derive(Debug, Default)]
struct Stage {
    /// Keys whose kernel state may change.
    keys: Vec<u32>,
    /// What was there.
    before: Option<Bundle>,
    /// Key of the new bundle, if there is one.
    put: Option<u32>,
}

fn decode(label: u32) -> Result<Sid, String> {
    Sid::decode(label).ok_or_else(|| format!("{label} is not a binding SID: bit 19 is clear"))
}

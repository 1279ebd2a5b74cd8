//! The lab's programs: started as wanted, watched, started again when they end by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};

use super::events::Events;
use super::life::{Fate, Keeper, Shared, State, Wish, lock};
use super::reaper::Reaper;
use crate::api::protocol::{ProgramAction, ProgramChange, ProgramStatus};

/// A program that the lab wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Node.
    pub node: String,
    /// Name, unique in the node: `openr`, `bird`.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Program and arguments of a start after it had died, if they differ.
    pub again: Option<Vec<String>>,
    /// Log file (appended).
    pub log: PathBuf,
    /// Text of its configuration; a change means a restart.
    pub config: String,
    /// Scheduling niceness.
    pub nice: i32,
}

struct Handle {
    spec: ProgramSpec,
    commands: mpsc::UnboundedSender<(Wish, oneshot::Sender<()>)>,
    shared: Arc<Mutex<Shared>>,
}

/// Wishes that are being carried out.
pub struct Pending(Vec<oneshot::Receiver<()>>);

impl Pending {
    /// Waits until they have been.
    pub async fn done(self) {
        for one in self.0 {
            let _ = one.await;
        }
    }
}

/// All programs of the lab.
pub struct Programs {
    reaper: Arc<Reaper>,
    events: Arc<Events>,
    fate: Arc<Mutex<Fate>>,
    table: Mutex<BTreeMap<(String, String), Handle>>,
}

impl Programs {
    /// No programs yet.
    pub fn new(reaper: Arc<Reaper>, events: Arc<Events>) -> Self {
        Self { reaper, events, fate: Arc::default(), table: Mutex::default() }
    }

    /// What [`Programs::converge`] would do.
    pub fn changes(&self, wanted: &[ProgramSpec]) -> Vec<ProgramChange> {
        let table = lock(&self.table);
        let change = |node: &str, program: &str, change: &str, reason: &str| ProgramChange {
            node: node.to_owned(),
            program: program.to_owned(),
            change: change.to_owned(),
            reason: reason.to_owned(),
        };
        let mut changes = Vec::new();
        for (node, name) in table.keys() {
            if !wanted.iter().any(|w| w.node == *node && w.name == *name) {
                changes.push(change(node, name, "stop", "not in the lab any more"));
            }
        }
        for spec in wanted {
            match table.get(&(spec.node.clone(), spec.name.clone())) {
                None => changes.push(change(&spec.node, &spec.name, "start", "wanted by the lab")),
                Some(have) if have.spec.config != spec.config => {
                    changes.push(change(&spec.node, &spec.name, "restart", "its configuration changed"));
                }
                Some(have) if have.spec.argv != spec.argv => {
                    changes.push(change(&spec.node, &spec.name, "restart", "its command changed"));
                }
                Some(_) => {}
            }
        }
        changes
    }

    /// Starts, restarts and stops until exactly `wanted` is there.
    pub async fn converge(&self, wanted: &[ProgramSpec]) -> anyhow::Result<Vec<ProgramChange>> {
        let changes = self.changes(wanted);
        let there = |key: &(String, String)| wanted.iter().any(|w| (&w.node, &w.name) == (&key.0, &key.1));
        lock(&self.fate).looping.retain(there);
        for change in &changes {
            let key = (change.node.clone(), change.program.clone());
            if change.change != "start" {
                let old = lock(&self.table).remove(&key);
                if let Some(old) = old {
                    wish(&old, Wish::Remove).await;
                }
            }
            if let Some(spec) = wanted.iter().find(|w| (&w.node, &w.name) == (&key.0, &key.1)) {
                let handle = self.start(spec.clone())?;
                lock(&self.table).insert(key, handle);
            }
        }
        Ok(changes)
    }

    /// Says which nodes have no power. Their programs die at once; of the others those start that were only down with their
    /// node. What comes back is to be waited for until all of that is so.
    #[must_use = "programs may still be on their way"]
    pub fn set_crashed(&self, nodes: &BTreeSet<String>) -> Pending {
        let before = std::mem::replace(&mut lock(&self.fate).crashed, nodes.clone());
        let (fallen, booted) = (&(nodes - &before), &(&before - nodes));
        let table = lock(&self.table);
        for (_, handle) in table.iter().filter(|((node, _), _)| fallen.contains(node)) {
            if let State::Running(pid) | State::Paused(pid) = lock(&handle.shared).state {
                // the whole group; one that has just ended is fine
                let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        let order = |((node, _), handle): (&(String, String), &Handle)| {
            let what = match (fallen.contains(node), booted.contains(node)) {
                (true, _) => Wish::Crash,
                (false, true) => Wish::Boot,
                (false, false) => return None,
            };
            let (tx, rx) = oneshot::channel();
            handle.commands.send((what, tx)).ok()?;
            Some(rx)
        };
        Pending(table.iter().filter_map(order).collect())
    }

    /// Carries out an action on one program and waits until it has taken effect.
    pub async fn act(&self, node: &str, name: &str, action: ProgramAction) -> anyhow::Result<()> {
        let key = (node.to_owned(), name.to_owned());
        match action {
            ProgramAction::CrashLoop => {
                lock(&self.fate).looping.insert(key);
            }
            ProgramAction::Resume => {
                lock(&self.fate).looping.remove(&key);
            }
            _ => {}
        }
        let wishes: &[Wish] = match action {
            ProgramAction::Kill => &[Wish::Kill],
            // what is stopped has to run before it can be killed
            ProgramAction::CrashLoop => &[Wish::Resume, Wish::Kill],
            ProgramAction::Stop => &[Wish::Stop],
            ProgramAction::Resume => &[Wish::Resume],
            ProgramAction::Restart => &[Wish::Stop, Wish::Resume],
            ProgramAction::Pause => &[Wish::Pause],
            ProgramAction::Continue => &[Wish::Continue],
        };
        for what in wishes {
            let done = {
                let table = lock(&self.table);
                let handle = table.get(&(node.to_owned(), name.to_owned()));
                let handle = handle.with_context(|| format!("no program {name} in {node}"))?;
                let (tx, rx) = oneshot::channel();
                let _ = handle.commands.send((*what, tx));
                rx
            };
            let _ = done.await;
        }
        Ok(())
    }

    /// State of all.
    pub fn status(&self) -> Vec<ProgramStatus> {
        let table = lock(&self.table);
        let each = table.iter().map(|((node, name), handle)| {
            let shared = lock(&handle.shared);
            let (state, pid) = match shared.state {
                State::Running(pid) => ("running", Some(pid)),
                State::Paused(pid) => ("paused", Some(pid)),
                State::Stopped => ("stopped", None),
                State::Waiting => ("waiting", None),
                State::Looping => ("crash-loop", None),
                State::Crashed => ("crashed", None),
            };
            ProgramStatus {
                node: node.clone(),
                name: name.clone(),
                state: state.to_owned(),
                pid,
                restarts: shared.restarts,
                last_exit: shared.last_exit.clone(),
            }
        });
        each.collect()
    }

    fn start(&self, spec: ProgramSpec) -> anyhow::Result<Handle> {
        if let Some(parent) = spec.log.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let shared = Arc::new(Mutex::new(Shared { state: State::Waiting, restarts: 0, last_exit: None }));
        let (commands, rx) = mpsc::unbounded_channel();
        let keeper = Keeper {
            spec: spec.clone(),
            reaper: Arc::clone(&self.reaper),
            events: Arc::clone(&self.events),
            fate: Arc::clone(&self.fate),
            shared: Arc::clone(&shared),
            commands: rx,
        };
        tokio::spawn(keeper.run());
        Ok(Handle { spec, commands, shared })
    }
}

async fn wish(handle: &Handle, what: Wish) {
    let (tx, rx) = oneshot::channel();
    if handle.commands.send((what, tx)).is_ok() {
        let _ = rx.await;
    }
}

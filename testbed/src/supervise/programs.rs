//! The lab's programs: started as wanted, watched, started again when they end by themselves.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};

use super::events::Events;
use super::exec::in_node;
use super::reaper::{Child, Exit, Reaper};
use crate::api::protocol::{ProgramAction, ProgramChange, ProgramStatus};

/// First pause before a program that ended by itself is started again; doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A program that ran this long starts again with the first pause.
const SETTLED: Duration = Duration::from_secs(10);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

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

#[derive(Clone, Debug)]
enum State {
    Running(i32),
    Paused(i32),
    Stopped,
    Waiting,
}

struct Shared {
    state: State,
    restarts: u32,
    last_exit: Option<String>,
}

struct Handle {
    spec: ProgramSpec,
    commands: mpsc::UnboundedSender<(Wish, oneshot::Sender<()>)>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Kill,
    Stop,
    Resume,
    /// Hang, without an end.
    Pause,
    /// Go on after that.
    Continue,
    /// Stop and end the task.
    Remove,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All programs of the lab.
pub struct Programs {
    reaper: Arc<Reaper>,
    events: Arc<Events>,
    table: Mutex<BTreeMap<(String, String), Handle>>,
}

impl Programs {
    /// No programs yet.
    pub fn new(reaper: Arc<Reaper>, events: Arc<Events>) -> Self {
        Self { reaper, events, table: Mutex::default() }
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

    /// Carries out an action on one program and waits until it has taken effect.
    pub async fn act(&self, node: &str, name: &str, action: ProgramAction) -> anyhow::Result<()> {
        let wishes: &[Wish] = match action {
            ProgramAction::Kill | ProgramAction::CrashLoop => &[Wish::Kill],
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

/// One program's life.
struct Keeper {
    spec: ProgramSpec,
    reaper: Arc<Reaper>,
    events: Arc<Events>,
    shared: Arc<Mutex<Shared>>,
    commands: mpsc::UnboundedReceiver<(Wish, oneshot::Sender<()>)>,
}

impl Keeper {
    fn subject(&self) -> String {
        format!("{}/{}", self.spec.node, self.spec.name)
    }

    fn set(&self, state: State) {
        lock(&self.shared).state = state;
    }

    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut again = false;
        loop {
            let began = Instant::now();
            match spawn(&self.reaper, &self.spec, again) {
                Ok(child) => {
                    self.set(State::Running(child.pid.as_raw()));
                    self.events.emit("program.started", &self.subject(), format!("pid {}", child.pid));
                    match self.watch(child).await {
                        After::Restart => again = true,
                        After::Resume => {
                            again = false;
                            continue;
                        }
                        After::Ended => return,
                    }
                }
                Err(e) => {
                    lock(&self.shared).last_exit = Some(format!("could not start: {e:#}"));
                    self.events.emit("program.failed", &self.subject(), format!("could not start: {e:#}"));
                }
            }
            if began.elapsed() > SETTLED {
                pause = FIRST_PAUSE;
            }
            self.set(State::Waiting);
            if !self.rest(pause).await {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            lock(&self.shared).restarts += 1;
        }
    }

    /// Waits for the process to end, or carries out what is wished meanwhile.
    async fn watch(&mut self, mut child: Child) -> After {
        tokio::select! {
            exit = &mut child.exit => {
                self.ended(exit.ok());
                After::Restart
            }
            command = self.commands.recv() => match command {
                Some((Wish::Kill, done)) => {
                    child.signal(Signal::SIGKILL);
                    let exit = child.exit.await.ok();
                    self.ended(exit);
                    self.set(State::Waiting);
                    let _ = done.send(());
                    After::Restart
                }
                Some((what @ (Wish::Resume | Wish::Pause | Wish::Continue), done)) => {
                    self.pause(&child, what);
                    let _ = done.send(());
                    Box::pin(self.watch(child)).await
                }
                Some((what @ (Wish::Stop | Wish::Remove), done)) => {
                    self.terminate(child).await;
                    self.set(State::Stopped);
                    let _ = done.send(());
                    if what == Wish::Remove || !self.stopped().await { After::Ended } else { After::Resume }
                }
                None => {
                    self.terminate(child).await;
                    After::Ended
                }
            }
        }
    }

    /// Lets the process hang or go on; anything else changes nothing for one that is there.
    fn pause(&self, child: &Child, what: Wish) {
        let pid = child.pid.as_raw();
        let paused = matches!(lock(&self.shared).state, State::Paused(_));
        match (what, paused) {
            (Wish::Pause, false) => {
                child.signal(Signal::SIGSTOP);
                self.set(State::Paused(pid));
                self.events.emit("program.paused", &self.subject(), format!("pid {pid}"));
            }
            (Wish::Continue, true) => {
                self.set(State::Running(pid));
                self.events.emit("program.continued", &self.subject(), format!("pid {pid}"));
                child.signal(Signal::SIGCONT);
            }
            _ => {}
        }
    }

    async fn terminate(&self, mut child: Child) {
        child.signal(Signal::SIGTERM);
        // a paused one would not hear it
        child.signal(Signal::SIGCONT);
        let exit = match tokio::time::timeout(GRACE, &mut child.exit).await {
            Ok(exit) => exit.ok(),
            Err(_) => {
                child.signal(Signal::SIGKILL);
                child.exit.await.ok()
            }
        };
        let how = exit.map_or_else(|| "unknown".to_owned(), |e| e.to_string());
        lock(&self.shared).last_exit = Some(format!("{how}, on request"));
        self.events.emit("program.stopped", &self.subject(), how);
    }

    fn ended(&self, exit: Option<Exit>) {
        let how = exit.map_or_else(|| "unknown".to_owned(), |e| e.to_string());
        // who is killed has no last words
        let said = if how == "SIGKILL" { None } else { last_line(&self.spec.log) };
        let said = said.as_deref().map_or_else(String::new, |line| format!(": {}", without_time(line)));
        lock(&self.shared).last_exit = Some(format!("{how}{said}"));
        self.events.emit("program.exited", &self.subject(), how);
    }

    /// Stays down until resumed (true) or removed (false).
    async fn stopped(&mut self) -> bool {
        while let Some((what, done)) = self.commands.recv().await {
            let _ = done.send(());
            match what {
                Wish::Resume => return true,
                Wish::Remove => return false,
                Wish::Kill | Wish::Stop | Wish::Pause | Wish::Continue => {}
            }
        }
        false
    }

    /// The pause before a restart; false if the program was removed meanwhile.
    async fn rest(&mut self, pause: Duration) -> bool {
        let until = tokio::time::Instant::now() + pause;
        loop {
            match tokio::time::timeout_at(until, self.commands.recv()).await {
                Err(_) => return true,
                Ok(None) => return false,
                Ok(Some((what, done))) => {
                    let go_on = match what {
                        Wish::Kill | Wish::Pause | Wish::Continue => None,
                        Wish::Resume => Some(true),
                        Wish::Remove => Some(false),
                        Wish::Stop => {
                            self.set(State::Stopped);
                            let _ = done.send(());
                            return self.stopped().await;
                        }
                    };
                    let _ = done.send(());
                    if let Some(go_on) = go_on {
                        return go_on;
                    }
                }
            }
        }
    }
}

enum After {
    /// It ended by itself: start it again after the pause.
    Restart,
    /// It was stopped and is resumed: start it at once.
    Resume,
    /// It is not wanted any more.
    Ended,
}

fn spawn(reaper: &Reaper, spec: &ProgramSpec, again: bool) -> anyhow::Result<Child> {
    let argv = if again { spec.again.as_ref().unwrap_or(&spec.argv) } else { &spec.argv };
    let (program, arguments) = argv.split_first().context("no command")?;
    let log = File::options().create(true).append(true).open(&spec.log);
    let log = log.with_context(|| format!("cannot open {}", spec.log.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    in_node(&mut command, &spec.node, false)?;
    let nice = spec.nice;
    if nice != 0 {
        // SAFETY: one system call, nothing allocates.
        // JUSTIFICATION: niceness has to be set in the child, between fork and exec.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
                // without the privilege the program runs at the usual priority
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
                Ok(())
            });
        }
    }
    reaper.spawn(&mut command).with_context(|| format!("cannot run {program}"))
}

/// A log line without the time at its beginning.
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest)) if time.ends_with('Z') && time.contains('T') && time.starts_with("20") => {
            rest.trim_start()
        }
        _ => line,
    }
}

/// Last line of a log, at most 300 bytes of it.
pub fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(1000))).ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail.trim_end().lines().last()?;
    Some(line.chars().take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_have_no_time() {
        assert_eq!(without_time("2026-11-30T20:33:31.925373Z  INFO programmed"), "INFO programmed");
        assert_eq!(without_time("thread 'main' panicked"), "thread 'main' panicked");
    }
}

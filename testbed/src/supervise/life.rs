//! One program's life: started, watched, started again when it ends by itself, killed when that is its fate.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};

use super::events::Events;
use super::exec::in_node;
use super::programs::ProgramSpec;
use super::reaper::{Child, Exit, Reaper};

/// First pause before a program that ended by itself is started again; doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A program that ran this long starts again with the first pause.
const SETTLED: Duration = Duration::from_secs(10);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub enum State {
    Running(i32),
    Paused(i32),
    Stopped,
    Waiting,
    /// Killed whenever it runs.
    Looping,
    /// Without power.
    Crashed,
}

pub struct Shared {
    pub state: State,
    pub restarts: u32,
    pub last_exit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Kill,
    Stop,
    Resume,
    /// Hang, without an end.
    Pause,
    /// Go on after that.
    Continue,
    /// The node has lost its power.
    Crash,
    /// The node boots.
    Boot,
    /// Stop and end the task.
    Remove,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What befalls programs for as long as it is not taken back.
#[derive(Default)]
pub struct Fate {
    /// Nodes without power.
    pub crashed: BTreeSet<String>,
    /// Programs that are killed whenever they run: node, name.
    pub looping: BTreeSet<(String, String)>,
}

/// One program's life.
pub struct Keeper {
    pub spec: ProgramSpec,
    pub reaper: Arc<Reaper>,
    pub events: Arc<Events>,
    pub fate: Arc<Mutex<Fate>>,
    pub shared: Arc<Mutex<Shared>>,
    pub commands: mpsc::UnboundedReceiver<(Wish, oneshot::Sender<()>)>,
}

impl Keeper {
    fn subject(&self) -> String {
        format!("{}/{}", self.spec.node, self.spec.name)
    }

    fn set(&self, state: State) {
        lock(&self.shared).state = state;
    }

    /// Whether its node has no power.
    fn is_dark(&self) -> bool {
        lock(&self.fate).crashed.contains(&self.spec.node)
    }

    /// Whether it is to be killed whenever it runs.
    fn loops(&self) -> bool {
        lock(&self.fate).looping.contains(&(self.spec.node.clone(), self.spec.name.clone()))
    }

    pub async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut again = false;
        loop {
            if self.is_dark() {
                self.set(State::Crashed);
                if !self.dark().await {
                    return;
                }
                // what was there before the start is gone
                (pause, again) = (FIRST_PAUSE, false);
                continue;
            }
            let began = Instant::now();
            match spawn(&self.reaper, &self.spec, again) {
                Ok(child) => {
                    self.set(State::Running(child.pid.as_raw()));
                    self.events.emit("program.started", &self.subject(), format!("pid {}", child.pid));
                    let after = if self.loops() { self.strike(child).await } else { self.watch(child).await };
                    match after {
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
            if self.is_dark() {
                continue;
            }
            if began.elapsed() > SETTLED {
                pause = FIRST_PAUSE;
            }
            self.set(if self.loops() { State::Looping } else { State::Waiting });
            if !self.rest(pause).await {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            lock(&self.shared).restarts += 1;
        }
    }

    /// Kills a process that has just been started.
    async fn strike(&self, child: Child) -> After {
        child.signal(Signal::SIGKILL);
        let exit = child.exit.await.ok();
        self.ended(exit);
        After::Restart
    }

    /// Waits for the process to end, or carries out what is wished meanwhile.
    async fn watch(&mut self, mut child: Child) -> After {
        tokio::select! {
            exit = &mut child.exit => {
                self.ended(exit.ok());
                After::Restart
            }
            command = self.commands.recv() => match command {
                Some((Wish::Kill | Wish::Crash, done)) => {
                    child.signal(Signal::SIGKILL);
                    let exit = child.exit.await.ok();
                    self.ended(exit);
                    self.set(match (self.is_dark(), self.loops()) {
                        (true, _) => State::Crashed,
                        (false, true) => State::Looping,
                        (false, false) => State::Waiting,
                    });
                    let _ = done.send(());
                    After::Restart
                }
                Some((what @ (Wish::Resume | Wish::Pause | Wish::Continue | Wish::Boot), done)) => {
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
                _ => {}
            }
        }
        false
    }

    /// Stays down until its node boots (true) or it is removed (false).
    async fn dark(&mut self) -> bool {
        while self.is_dark() {
            let Some((what, done)) = self.commands.recv().await else { return false };
            let _ = done.send(());
            if what == Wish::Remove {
                return false;
            }
        }
        true
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
                        Wish::Crash => {
                            self.set(State::Crashed);
                            Some(true)
                        }
                        Wish::Resume | Wish::Boot => Some(true),
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

//! Worlds from outside: starting one, keeping it or dropping it, finding and stopping it later.
//!
//! [`start`] is for `up`. The world it gives dies with the value, and with the process, until [`World::commit`].

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::choose::Choice;
use super::guest_exec::console_tail;
use super::keep::{GuestOrder, Order, Report};
use super::lock::{self, PidFd, alive_lock};
use super::record::Record;
use super::{Carrier, Lacking, cgroup, gc, kernel, kvm, qemu};
use crate::api::client::Endpoint;
use crate::failure::{Code, Failure};

/// How long a keeper may take for its part (namespaces, or the start of QEMU).
const KEEPER_PATIENCE: Duration = Duration::from_secs(20);

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldSpec {
    /// State folder of the lab; must exist.
    pub state: PathBuf,
    /// Carrier and size.
    pub choice: Choice,
    /// The user's own guest kernel.
    pub kernel: Option<PathBuf>,
    /// The user's own memory size, in MiB.
    pub memory_mib: Option<u32>,
    /// Process 1; the supervisor of this program unless a test says otherwise.
    pub init: Vec<String>,
    /// Command line of the keeper.
    pub keeper: Vec<String>,
}

impl WorldSpec {
    /// A world for the supervisor of this program.
    ///
    /// # Errors
    /// This program cannot find itself.
    pub fn new(state: &Path, choice: Choice, kernel: Option<&Path>, memory_mib: Option<u32>) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot find this program's own file")?.display().to_string();
        let words = |rest: &[&str]| {
            std::iter::once(program.clone()).chain(rest.iter().map(|w| (*w).to_owned())).collect::<Vec<_>>()
        };
        let state = std::path::absolute(state)?;
        Ok(Self {
            init: words(&["internal", "supervise"]),
            keeper: words(&["internal", "keep"]),
            kernel: kernel.map(Path::to_owned),
            memory_mib,
            state,
            choice,
        })
    }
}

/// A world that this process has started.
#[derive(Debug)]
pub struct World {
    record: Record,
    state: PathBuf,
    keeper: Child,
    // closing it before the commit is what ends the world
    commit: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
}

/// Starts a world. Returns when process 1 has been started, not when it answers. `say` gets progress lines.
///
/// # Errors
/// [`Lacking`] if the machine has not what the carrier needs; others if a world is alive there already or does not start.
pub fn start(spec: &WorldSpec, say: &mut dyn FnMut(&str)) -> Result<World> {
    if is_alive(&spec.state) {
        return Err(Failure::new(Code::Failed, format!("a lab is alive in {}", spec.state.display()))
            .hint("take it down first: testbed down --name LAB")
            .into());
    }
    // what an earlier world left when its keeper was killed
    Record::forget(&spec.state);
    for path in cgroup::abandoned() {
        cgroup::remove(&path);
    }
    let order = order(spec, say)?;
    let logs = spec.state.join("logs");
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let log = std::fs::File::create(logs.join("keeper.log"))?;
    let (program, args) = spec.keeper.split_first().context("no keeper to start")?;
    let mut keeper = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let (Some(mut commit), Some(output)) = (keeper.stdin.take(), keeper.stdout.take()) else {
        bail!("no pipes to the keeper");
    };
    let mut reports = BufReader::new(output);
    let sent = serde_json::to_vec(&order).map_err(std::io::Error::from).and_then(|mut bytes| {
        bytes.push(b'\n');
        commit.write_all(&bytes)
    });
    let answer = sent.context("the keeper ended at once").and_then(|()| next_report(&mut reports));
    match answer {
        Ok(Report::Started(record)) => {
            Ok(World { record: *record, state: spec.state.clone(), keeper, commit: Some(commit), reports })
        }
        Ok(Report::Failed { what, next: Some(next) }) => {
            keeper.wait()?;
            Err(Lacking::error(what, next))
        }
        Ok(other) => {
            keeper.wait()?;
            match other {
                Report::Failed { what, .. } => bail!("the world does not start: {what}"),
                _ => bail!("the keeper answered out of turn"),
            }
        }
        Err(why) => {
            drop(commit);
            keeper.wait()?;
            Err(why.context(format!("the keeper failed; see {}", logs.join("keeper.log").display())))
        }
    }
}

fn order(spec: &WorldSpec, say: &mut dyn FnMut(&str)) -> Result<Order> {
    let guest = if spec.choice.carrier == Carrier::Vm {
        qemu::version()?;
        let kernel = kernel::ensure(spec.kernel.as_deref(), say)?;
        let verdict = kvm::choose(&kernel)?;
        say(&verdict.reason);
        let memory_mib = spec.memory_mib.map_or_else(|| qemu::memory_for(spec.choice.nodes), u64::from);
        Some(GuestOrder { kernel, accel: verdict.accel, memory_mib })
    } else {
        None
    };
    Ok(Order {
        state: spec.state.clone(),
        name: spec.state.file_name().map_or_else(|| "lab".to_owned(), |n| n.to_string_lossy().into_owned()),
        carrier: spec.choice.carrier,
        init: spec.init.clone(),
        load: spec.choice.modules().into_iter().map(str::to_owned).collect(),
        guest,
    })
}

fn next_report(reports: &mut BufReader<ChildStdout>) -> Result<Report> {
    let mut line = String::new();
    if reports.read_line(&mut line).context("cannot hear the keeper")? == 0 {
        bail!("the keeper ended without a word");
    }
    serde_json::from_str(&line).context("the keeper's answer makes no sense")
}

impl World {
    /// What the keeper wrote down.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Fails if the world has ended meanwhile; the message has the last lines of its console.
    pub fn check(&mut self) -> Result<()> {
        match self.keeper.try_wait().context("cannot ask after the keeper")? {
            None => Ok(()),
            Some(_) => bail!(
                "the lab's world ended before it was ready; the end of {}:\n{}",
                self.state.join("console.log").display(),
                console_tail(&self.state, 12)
            ),
        }
    }

    /// Lets the world outlive this process.
    ///
    /// # Errors
    /// The world has ended meanwhile.
    pub fn commit(mut self) -> Result<()> {
        let mut pipe = self.commit.take().context("committed already")?;
        pipe.write_all(b"c").context("the lab's world ended before it was kept")?;
        match next_report(&mut self.reports) {
            Ok(Report::Committed) => Ok(()),
            _ => bail!("the lab's world ended before it was kept"),
        }
    }
}

impl Drop for World {
    /// Without a commit, ends the world and waits until it is gone.
    fn drop(&mut self) {
        if let Some(pipe) = self.commit.take() {
            drop(pipe);
            let deadline = Instant::now() + KEEPER_PATIENCE;
            while matches!(self.keeper.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(3));
            }
            let _ = self.keeper.kill();
            let _ = self.keeper.wait();
            lock::wait_free(&alive_lock(&self.state), KEEPER_PATIENCE);
        }
    }
}

/// Whether any process of a world is alive in this state folder.
pub fn is_alive(state: &Path) -> bool {
    lock::is_held(&alive_lock(state))
}

/// Where the API of the world in this folder listens; nothing if it has not been started that far.
pub fn endpoint(state: &Path) -> Result<Option<Endpoint>> {
    Ok(Record::load(state).map(|record| record.endpoint))
}

/// Ends the world in this folder: politely, and after `patience` by force. False if none was alive.
///
/// Only processes that hold this folder's lock are touched: the keeper, known by number and start time, and with it
/// everything that is tied to it.
///
/// # Errors
/// The world belongs to another user, or does not go away.
pub fn stop(state: &Path, patience: Duration) -> Result<bool> {
    let path = alive_lock(state);
    if !lock::is_held(&path) {
        gc::take_back(state);
        return Ok(false);
    }
    if let Some(keeper) = Record::load(state).and_then(|record| record.keeper.open()) {
        end(&keeper, patience)?;
    }
    // the keeper's death ends the rest by itself; give that a moment before looking for whoever is left
    if !lock::wait_free(&path, Duration::from_secs(2)) {
        for holder in lock::holders(&path) {
            if let Some(process) = holder.open() {
                end(&process, patience)?;
            }
        }
        if !lock::wait_free(&path, Duration::from_secs(5)) {
            bail!("something still holds {}; it does not end even when killed", path.display());
        }
    }
    gc::take_back(state);
    Ok(true)
}

fn end(process: &PidFd, patience: Duration) -> Result<()> {
    process.signal(Signal::SIGTERM)?;
    if !process.wait(patience) {
        process.signal(Signal::SIGKILL)?;
        process.wait(Duration::from_secs(5));
    }
    Ok(())
}

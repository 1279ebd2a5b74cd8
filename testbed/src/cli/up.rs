//! `up` and `down`.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::fcntl::{Flock, FlockArg};
use tokio::signal::unix::{SignalKind, signal};
use topologies::lab::Lab;

use super::args::{Down, Format, Global, Up};
use super::progress::Progress;
use super::show;
use super::target::{self, PATIENT_HELLO, Running};
use crate::api::client;
use crate::api::protocol::{ProgramChange, Reply, Request, Status};
use crate::carrier::guest_exec::console_tail;
use crate::carrier::{choose, keeper};
use crate::failure::{Code, Failure};
use crate::plan::Plan;
use crate::state::StateDir;

/// From SIGTERM to SIGKILL of a world that is taken down.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// How long a lab that is taken down may take to note it.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Brings the lab up, or makes the running one what its file says.
pub async fn up(global: &Global, args: Up) -> anyhow::Result<u8> {
    if args.dry_run {
        return super::look::plan(global, args.which).await;
    }
    let text = target::lab_text(&args.which)?;
    let lab = target::parse(&text, global.name.as_deref())?;
    let state = StateDir::of_lab(&lab.name);
    let _lock = claim(&state).map_err(|why| unusable(&state, why))?;
    let mut progress = Progress::new(global.quiet);
    let running = Running::answering(&lab.name, &state).await?;
    let fresh = running.is_none();
    if fresh {
        std::fs::write(state.path().join("lab.yaml"), &text.text)
            .context("cannot write lab.yaml")
            .map_err(|why| unusable(&state, why))?;
    }
    // from here on Ctrl-C undoes what this command began, and only that: dropping `World` ends a new world
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let work = bring_up(&args, &lab, &state, running, &mut progress);
    let done = tokio::select! {
        done = work => done?,
        _ = interrupt.recv() => return Err(interrupted(&lab.name, fresh)),
        _ = terminate.recv() => return Err(interrupted(&lab.name, fresh)),
    };
    report(global, &lab, &done, &progress)
}

fn interrupted(lab: &str, fresh: bool) -> anyhow::Error {
    if fresh {
        let undone = format!("interrupted; what this `up` of lab {lab} began was undone, logs are kept");
        return Failure::new(Code::Interrupted, undone).into();
    }
    let message = format!("interrupted; lab {lab} runs on, and may have only part of the edit");
    Failure::new(Code::Interrupted, message).hint("say `up` again: it does what is left").into()
}

/// What an `up` did.
struct Done {
    plan: Plan,
    programs: Vec<ProgramChange>,
    status: Status,
    fresh: bool,
}

async fn bring_up(
    args: &Up,
    lab: &Lab,
    state: &StateDir,
    running: Option<Running>,
    progress: &mut Progress,
) -> anyhow::Result<Done> {
    let (running, world) = match running {
        Some(running) => (running, None),
        None => {
            let (running, world) = start(args, lab, state, progress).await?;
            (running, Some(world))
        }
    };
    let fresh = world.is_some();
    let mut plan = None;
    let mut programs = Vec::new();
    let apply = running.call(Request::Apply { lab: Box::new(lab.clone()) }, |reply| match reply {
        Reply::Progress(text) => progress.say(&text),
        Reply::Plan(p) => plan = Some(p),
        Reply::ProgramChanges(changes) => programs = changes,
        _ => {}
    });
    apply.await?;
    let plan = plan.context("the supervisor sent no plan")?;
    let mut status = None;
    let ready = running.call(Request::WaitReady { timeout_s: args.timeout }, |reply| match reply {
        Reply::Progress(text) => progress.say(&text),
        Reply::Status(s) => status = Some(s),
        _ => {}
    });
    let ready = ready.await;
    if (ready.is_ok() || args.keep_on_failure)
        && let Some(world) = world
    {
        world.commit()?;
    }
    ready?;
    let status = status.context("the supervisor sent no status")?;
    Ok(Done { plan, programs, status, fresh })
}

/// Wait for a supervisor's answer while it is expected any moment.
const QUICK_HELLO: Duration = Duration::from_millis(150);
/// When later begins.
const QUICK_FOR: Duration = Duration::from_secs(6);

/// Starts a world and waits for its supervisor.
async fn start(
    args: &Up,
    lab: &Lab,
    state: &StateDir,
    progress: &mut Progress,
) -> anyhow::Result<(Running, keeper::World)> {
    progress.say("looking at this machine");
    let (choice, reason) = choose::choose(args.carrier.into(), lab)?;
    progress.say(&reason);
    let spec = keeper::WorldSpec::new(state.path(), choice, args.kernel.as_deref(), args.memory)?;
    let mut world = keeper::start(&spec, &mut |line| progress.say(line))?;
    let token = std::fs::read_to_string(state.token())?.trim().to_owned();
    // a guest that is not there yet answers nothing: short waits see it early, longer ones suit a busy machine
    let began = Instant::now();
    loop {
        let patience = if began.elapsed() < QUICK_FOR { QUICK_HELLO } else { PATIENT_HELLO };
        if let Some(endpoint) = keeper::endpoint(state.path())?
            && client::hello(&endpoint, &token, patience).await
        {
            let running = Running { name: lab.name.clone(), state: state.clone(), endpoint, token };
            progress.say(&format!("supervisor ready after {:.1} s", progress.elapsed().as_secs_f64()));
            return Ok((running, world));
        }
        world.check()?;
        if began.elapsed() > Duration::from_secs(args.timeout) {
            let tail = console_tail(state.path(), 12);
            let message = format!(
                "the lab's supervisor did not answer within {} s; the end of its console:\n{tail}",
                args.timeout
            );
            return Err(Failure::new(Code::TimedOut, message)
                .hint("a slow machine may need a larger --timeout, a large lab more --memory")
                .into());
        }
        progress.say("waiting for the lab's supervisor");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Makes the state folder and takes the lock of whoever changes the lab; then sees to a token, readable by its owner only.
fn claim(state: &StateDir) -> anyhow::Result<Flock<File>> {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    // it travels as text: in the record, to QEMU, into the guest
    anyhow::ensure!(state.path().to_str().is_some(), "its name is not UTF-8 text");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state.path())?;
    let lock = lock(state)?;
    // an `up` that was killed or ran out of room may have left an empty one, which would let everybody in
    if std::fs::metadata(state.token()).is_ok_and(|m| m.len() > 0) {
        return Ok(lock);
    }
    let mut random = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let token: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let near = state.path().join("token.new");
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&near)?;
    file.write_all(token.as_bytes())?;
    std::fs::rename(&near, state.token())?;
    Ok(lock)
}

/// A state folder that cannot be used is the machine's lack, not our fault.
fn unusable(state: &StateDir, why: anyhow::Error) -> anyhow::Error {
    if why.downcast_ref::<Failure>().is_some() {
        return why;
    }
    Failure::new(Code::Lacking, format!("cannot use the state folder {}: {why:#}", state.path().display()))
        .hint("TESTBED_STATE names another place for it; it needs some room, and you must be able to write there")
        .into()
}

fn lock(state: &StateDir) -> anyhow::Result<Flock<File>> {
    let file = File::options().create(true).append(true).open(state.up_lock())?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, why)| {
        if why != nix::errno::Errno::EWOULDBLOCK {
            return anyhow::Error::new(why).context(format!("cannot lock {}", state.up_lock().display()));
        }
        Failure::new(Code::Failed, "another `up` or `down` of this lab is under way")
            .hint("wait for it; the lock goes with the process that holds it")
            .into()
    })
}

fn report(global: &Global, lab: &Lab, done: &Done, progress: &Progress) -> anyhow::Result<u8> {
    if global.format == Format::Json {
        show::json(&serde_json::json!({
            "version": 1, "lab": lab.name, "seconds": progress.elapsed().as_secs_f64(), "new": done.fresh,
            "kernel_actions": done.plan.actions.len(), "program_changes": done.programs, "status": done.status,
        }))?;
        return Ok(0);
    }
    if !done.fresh {
        if done.plan.is_empty() && done.programs.is_empty() {
            show::line(format!("nothing to change ({:.2} s)", progress.elapsed().as_secs_f64()))?;
        } else {
            show::print(show::plan(&done.plan, &done.programs))?;
        }
    }
    show::print(show::status(show::Paint::of_stdout(), &done.status))?;
    show::line(format!("ready after {:.1} s", progress.elapsed().as_secs_f64()))?;
    Ok(0)
}

/// Takes the lab down; one that is not up is fine.
pub async fn down(global: &Global, args: Down) -> anyhow::Result<u8> {
    let targets: Vec<(String, StateDir)> = if args.all {
        StateDir::all()
    } else if let Some(name) = &global.name {
        vec![(name.clone(), target::state_of(name)?)]
    } else {
        let mut alive = StateDir::all();
        // whatever else is wrong with them
        alive.retain(|(_, state)| keeper::is_alive(state.path()));
        target::only(alive.iter().map(|(name, _)| name.as_str()))?;
        alive
    };
    let mut stopped = Vec::new();
    let mut failed = None;
    for (name, state) in targets {
        if !state.path().exists() {
            continue;
        }
        match end(&name, &state).await {
            Ok(true) => stopped.push(name),
            Ok(false) => {}
            // the others are not to blame
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    if global.format == Format::Json {
        show::json(&serde_json::json!({"version": 1, "stopped": stopped}))?;
    } else if stopped.is_empty() {
        if failed.is_none() {
            show::line("nothing runs")?;
        }
    } else {
        show::line(format!("down: {}", stopped.join(", ")))?;
    }
    failed.map_or(Ok(0), Err)
}

/// Ends one lab; false if it did not run.
async fn end(name: &str, state: &StateDir) -> anyhow::Result<bool> {
    let _lock = lock(state).map_err(|why| unusable(state, why))?;
    if let Ok(Some(running)) = Running::at(name, state) {
        // for those who read its events later; one that does not listen ends without a word
        let _ = tokio::time::timeout(LAST_WORD, running.call(Request::Farewell, |_| ())).await;
    }
    let path = state.path().to_owned();
    tokio::task::spawn_blocking(move || keeper::stop(&path, STOP_DEADLINE)).await?
}

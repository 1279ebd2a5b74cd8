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
use super::target::{self, Running};
use crate::api::client;
use crate::api::protocol::{ProgramChange, Reply, Request, Status};
use crate::carrier::{choose, keeper};
use crate::failure::{Code, Failure};
use crate::plan::Plan;
use crate::state::StateDir;

/// From SIGTERM to SIGKILL of a world that is taken down.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Brings the lab up, or makes the running one what its file says.
pub async fn up(global: &Global, args: Up) -> anyhow::Result<u8> {
    if args.dry_run {
        return super::look::plan(global, args.which).await;
    }
    let text = target::lab_text(&args.which)?;
    let lab = target::parse(&text, global.name.as_deref())?;
    let state = StateDir::of_lab(&lab.name);
    prepare(&state)?;
    let _lock = lock(&state)?;
    let mut progress = Progress::new(global.quiet);
    let running = answering(&lab.name, &state).await?;
    if running.is_none() {
        std::fs::write(state.path().join("lab.yaml"), &text.text).context("cannot write lab.yaml")?;
    }
    // from here on Ctrl-C undoes what this command began, and only that: dropping `World` ends a new world
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let work = bring_up(&args, &lab, &state, running, &mut progress);
    let done = tokio::select! {
        done = work => done?,
        _ = interrupt.recv() => return Err(interrupted(&lab.name)),
        _ = terminate.recv() => return Err(interrupted(&lab.name)),
    };
    report(global, &lab, &done, &progress)
}

/// The running lab if it answers. One that has just been killed may still hold its lock while the kernel takes it down, and
/// is then waited for until it is gone.
async fn answering(name: &str, state: &StateDir) -> anyhow::Result<Option<Running>> {
    let began = Instant::now();
    while let Some(running) = Running::at(name, state)? {
        if client::hello(&running.endpoint, &running.token, PATIENT_HELLO).await {
            return Ok(Some(running));
        }
        if began.elapsed() > MUTE_FOR {
            return Err(Failure::new(
                Code::Failed,
                format!("lab {name} runs, but its supervisor has not answered for {} s", MUTE_FOR.as_secs()),
            )
            .hint("`testbed down` ends it whatever its state; then say `up` again")
            .into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(None)
}

fn interrupted(lab: &str) -> anyhow::Error {
    Failure::new(
        Code::Interrupted,
        format!("interrupted; what this `up` of lab {lab} began was undone, logs are kept"),
    )
    .into()
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
/// Wait for it later on.
const PATIENT_HELLO: Duration = Duration::from_secs(2);
/// How long a running lab may be mute before `up` gives up on it.
const MUTE_FOR: Duration = Duration::from_secs(15);
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
        progress.say("waiting for the lab's supervisor");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Makes the state folder with a fresh token, readable by its owner only.
fn prepare(state: &StateDir) -> anyhow::Result<()> {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state.path())
        .with_context(|| format!("cannot make the state folder {}", state.path().display()))?;
    if !state.token().exists() {
        let mut random = [0u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let mut file = File::options().create_new(true).write(true).mode(0o600).open(state.token())?;
        file.write_all(token.as_bytes())?;
    }
    Ok(())
}

fn lock(state: &StateDir) -> anyhow::Result<Flock<File>> {
    let file = File::options().create(true).append(true).open(state.up_lock())?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
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
            println!("nothing to change ({:.2} s)", progress.elapsed().as_secs_f64());
        } else {
            print!("{}", show::plan(&done.plan, &done.programs));
        }
    }
    print!("{}", show::status(show::Paint::of_stdout(), &done.status));
    println!("ready after {:.1} s", progress.elapsed().as_secs_f64());
    Ok(0)
}

/// Takes the lab down; one that is not up is fine.
pub async fn down(global: &Global, args: Down) -> anyhow::Result<u8> {
    let targets: Vec<(String, StateDir)> = if args.all {
        StateDir::all()
    } else if let Some(name) = &global.name {
        vec![(name.clone(), StateDir::of_lab(name))]
    } else {
        match Running::all()?.len() {
            0 => Vec::new(),
            _ => {
                let running = Running::find(global)?;
                vec![(running.name, running.state)]
            }
        }
    };
    let mut stopped = Vec::new();
    for (name, state) in targets {
        if !state.path().exists() {
            continue;
        }
        let _lock = lock(&state)?;
        let path = state.path().to_owned();
        if tokio::task::spawn_blocking(move || keeper::stop(&path, STOP_DEADLINE)).await?? {
            stopped.push(name);
        }
    }
    if global.format == Format::Json {
        show::json(&serde_json::json!({"version": 1, "stopped": stopped}))?;
    } else if stopped.is_empty() {
        println!("nothing runs");
    } else {
        println!("down: {}", stopped.join(", "));
    }
    Ok(0)
}

//! `run` and `report`: scenarios, from their files to exit code and reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::ValueEnum as _;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use scenario::Loaded;
use scenario::record::{Entry, Outcome, Run, Step};
use scenario::report;
use scenario::report::figures::plain;
use tokio::signal::unix::{SignalKind, signal};
use topologies::lab::Lab;

use super::args::{Format, Global, ReportArgs, RunArgs, Shard};
use super::evidence;
use super::runs::Runs;
use super::show;
use super::target::Running;
use crate::api::client::Connection;
use crate::api::protocol::{Input, Reply, Request};
use crate::failure::{Code, Failure};
use crate::state::StateDir;

/// Scenarios of one lab, in the order in which they run.
struct Group {
    lab: Lab,
    lab_name: String,
    scenarios: Vec<Loaded>,
}

/// Runs scenarios.
pub async fn run(global: &Global, args: RunArgs) -> anyhow::Result<u8> {
    let mut loaded = load(&args)?;
    if let Some(seed) = args.shuffle {
        loaded.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed));
    }
    if let Some(Shard { number, of }) = args.shard {
        let mut place = 0;
        loaded.retain(|_| {
            place += 1;
            (place - 1) % of == number - 1
        });
    }
    let runs = Runs::open()?;
    let mut done: Vec<Run> = Vec::new();
    let mut interrupted = false;
    for group in groups(loaded) {
        if interrupted {
            break;
        }
        let own = attend(global, &args, &group)?;
        let outcome = run_group(global, &args, (&group, own), &runs, &mut done).await;
        interrupted = !matches!(outcome, Ok(false));
        let keep =
            args.keep || (args.keep_on_failure && done.iter().any(|run| run.outcome >= Outcome::Failed));
        if own && !keep {
            verb(&["--quiet", "--name", &group.lab.name, "down"])?;
        } else if own {
            show::complain(format!(
                "lab {} is left up; `testbed --name {} down` ends it",
                group.lab.name, group.lab.name
            ));
        }
        outcome?;
    }
    if let Some(path) = &args.junit {
        let text = report::junit::junit(&done);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    finish(global, &done, interrupted)
}

/// What the exit code says of outcomes.
fn code(runs: &[Run]) -> u8 {
    match runs.iter().map(|run| run.outcome).max() {
        None | Some(Outcome::Skipped | Outcome::Running | Outcome::Passed) => 0,
        Some(Outcome::Warned) => Code::Warnings.number(),
        Some(Outcome::Failed | Outcome::Broken) => Code::Failed.number(),
    }
}

fn finish(global: &Global, runs: &[Run], interrupted: bool) -> anyhow::Result<u8> {
    if global.format == Format::Json {
        let each: Vec<_> = runs
            .iter()
            .map(|run| {
                serde_json::json!({
                    "id": run.id, "scenario": run.title.name, "outcome": run.outcome, "reason": run.reason,
                    "seconds": run.seconds(run.ended_ns), "evidence": run.evidence,
                })
            })
            .collect();
        show::json(&serde_json::json!({"version": 1, "runs": each}))?;
    } else if runs.len() > 1 {
        show::print(table(runs))?;
    }
    if interrupted {
        return Ok(Code::Interrupted.number());
    }
    Ok(code(runs))
}

/// All scenario files below what was named, read and checked; every error of all of them is said.
fn load(args: &RunArgs) -> anyhow::Result<Vec<Loaded>> {
    let mut files = Vec::new();
    for path in &args.paths {
        find_files(path, &mut files)?;
    }
    if files.is_empty() {
        return Err(Failure::new(Code::Usage, "there is no scenario file in what you named")
            .hint("a scenario file is YAML and begins with `scenario: NAME`")
            .into());
    }
    let mut loaded = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        let find = |name: &str| find_lab(&folder, name);
        match scenario::load(&text, &file.display().to_string(), &find) {
            Ok(mut one) => {
                one.warnings.iter().for_each(|warning| show::complain(format!("warning: {warning}")));
                one.scenario.seed = args.seed.unwrap_or(one.scenario.seed);
                loaded.push(one);
            }
            Err(found) => errors.push(found.to_string()),
        }
    }
    if !errors.is_empty() {
        return Err(Failure::new(Code::Usage, errors.join("\n")).into());
    }
    Ok(loaded)
}

/// A lab that a scenario names: a ready-made one, or a file relative to the scenario's.
fn find_lab(folder: &Path, name: &str) -> Result<Lab, String> {
    let read = if topologies::builtin(name).is_some() {
        topologies::labs::load(name)
    } else {
        Lab::from_file(&folder.join(name))
    };
    read.map(|(lab, _)| lab).map_err(|errors| errors.to_string())
}

fn find_files(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        if !path.exists() {
            return Err(Failure::new(Code::Usage, format!("{} does not exist", path.display())).into());
        }
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .with_context(|| format!("cannot look into {}", path.display()))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for entry in entries {
        let yaml = entry.extension().is_some_and(|e| e == "yaml" || e == "yml");
        let is_scenario = || {
            std::fs::read_to_string(&entry)
                .is_ok_and(|text| text.lines().any(|line| line.starts_with("scenario:")))
        };
        if entry.is_dir() {
            find_files(&entry, files)?;
        } else if yaml && is_scenario() {
            files.push(entry);
        }
    }
    Ok(())
}

/// Scenarios of the same lab together, labs in the order in which they come up first.
fn groups(loaded: Vec<Loaded>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for one in loaded {
        match groups.iter_mut().find(|group| group.lab == one.lab) {
            Some(group) => group.scenarios.push(one),
            None => groups.push(Group {
                lab: one.lab.clone(),
                lab_name: one.lab_name.clone(),
                scenarios: vec![one],
            }),
        }
    }
    groups
}

/// Runs a verb of this program, with its progress on our standard error.
fn verb(words: &[&str]) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find the testbed's own program file")?;
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null()).env_remove("TESTBED_LAB");
    interrupted_with_us(&mut command);
    let status = command.status().with_context(|| format!("cannot run `testbed {}`", words.join(" ")))?;
    if status.success() {
        return Ok(());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let code = code.and_then(Code::of_number).unwrap_or(Code::Failed);
    Err(Failure::new(code, format!("`testbed {}` did not work", words.join(" "))).into())
}

/// Lets a command get SIGINT when this process dies in whatever way: what it began is undone.
fn interrupted_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: between fork and exec only a system call is made.
    // JUSTIFICATION: only the process itself can ask for the signal, before it becomes the program.
    unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGINT)?)) };
}

/// Sees to a lab that runs: the user's own, if it is the same, or a new one. Whether it is a new one.
fn attend(global: &Global, args: &RunArgs, group: &Group) -> anyhow::Result<bool> {
    let name = &group.lab.name;
    if let Some(running) = Running::at(name, &StateDir::of_lab(name))? {
        let text = std::fs::read_to_string(running.state.lab_json());
        let same = text
            .ok()
            .and_then(|text| serde_json::from_str::<Lab>(&text).ok())
            .is_some_and(|lab| lab == group.lab);
        if same {
            return Ok(false);
        }
        return Err(Failure::new(
            Code::Failed,
            format!("lab {name} runs, and is another one than the scenario's"),
        )
        .hint(format!("`testbed --name {name} down` first, or `testbed up` with the scenario's lab"))
        .into());
    }
    let source = lab_source(group)?;
    let carrier = args.carrier.to_possible_value().context("a carrier without a name")?;
    let mut words = vec!["up", source.as_str(), "--carrier", carrier.get_name()];
    if global.quiet {
        words.push("--quiet");
    }
    verb(&words)?;
    Ok(true)
}

/// What `up` is told: the lab's name, or the path of its file.
fn lab_source(group: &Group) -> anyhow::Result<String> {
    if topologies::builtin(&group.lab_name).is_some() {
        return Ok(group.lab_name.clone());
    }
    let file = group.scenarios.first().map(|one| PathBuf::from(&one.scenario.title.file));
    let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    Ok(folder.join(&group.lab_name).to_str().context("the lab file's name is not UTF-8 text")?.to_owned())
}

/// Runs the scenarios of a group; whether it was interrupted.
async fn run_group(
    global: &Global,
    args: &RunArgs,
    (group, own): (&Group, bool),
    runs: &Runs,
    done: &mut Vec<Run>,
) -> anyhow::Result<bool> {
    let state = StateDir::of_lab(&group.lab.name);
    for one in &group.scenarios {
        for attempt in 0..=args.retry {
            let running = Running::answering(&group.lab.name, &state).await?;
            let running = running.with_context(|| format!("lab {} does not run any more", group.lab.name))?;
            let mut run = carry_out(global, &running, one).await?;
            keep(global, &running, runs, &mut run).await?;
            let interrupted = run.reason.as_deref() == Some("interrupted");
            let whole =
                run.began_ns != 0 && run.steps.last().is_some_and(|step| step.outcome < Outcome::Failed);
            let good = run.outcome < Outcome::Failed;
            let last = good || interrupted || attempt == args.retry;
            if last {
                done.push(run);
            }
            if interrupted {
                return Ok(true);
            }
            // what a lab does that is not whole says nothing about the next scenario
            if !whole && own && !args.keep_on_failure {
                show::complain(format!("lab {} is not whole, and is brought up anew", group.lab.name));
                verb(&["--quiet", "--name", &group.lab.name, "down"])?;
                attend(global, args, group)?;
            }
            if last {
                break;
            }
            show::complain(format!(
                "{}: once more, {} of {}",
                one.scenario.title.name,
                attempt + 1,
                args.retry
            ));
        }
        if args.keep_on_failure && done.last().is_some_and(|run| run.outcome >= Outcome::Failed) {
            break;
        }
    }
    Ok(false)
}

/// One run, told line by line while it goes on.
async fn carry_out(global: &Global, running: &Running, one: &Loaded) -> anyhow::Result<Run> {
    let scenario = Box::new(one.scenario.clone());
    let mut connection =
        Connection::open(&running.endpoint, &running.token, Request::Run { scenario }).await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // what is known of a run that never begins
    let mut run = Run {
        version: scenario::record::VERSION,
        title: one.scenario.title.clone(),
        lab: running.name.clone(),
        seed: one.scenario.seed,
        began_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        ..Run::default()
    };
    let mut teller = Teller { quiet: global.quiet, paint: show::Paint::of_stderr(), open: BTreeMap::new() };
    teller.title(&run);
    loop {
        tokio::select! {
            _ = interrupt.recv() => connection.send(&Input::Stop).await?,
            _ = terminate.recv() => connection.send(&Input::Stop).await?,
            reply = connection.reply() => match reply? {
                Reply::Run(entry) => {
                    teller.tell(&run, &entry);
                    let id = std::mem::take(&mut run.id);
                    run.add(*entry);
                    run.id = id;
                }
                Reply::Done => break,
                Reply::Failed(failure) => return Err(failure.into()),
                _ => {}
            },
        }
    }
    scenario::conclude::conclude(&mut run);
    Ok(run)
}

/// Writes a run's folder, and shows the end of it.
async fn keep(global: &Global, running: &Running, runs: &Runs, run: &mut Run) -> anyhow::Result<()> {
    let folder = runs.make(run)?;
    if run.outcome >= Outcome::Failed {
        run.logs = evidence::logs(&running.state, run);
        let path = folder.join("evidence");
        match evidence::save(running, &path).await {
            Ok(()) => run.evidence = Some(path.display().to_string()),
            Err(why) => show::complain(format!("no evidence of the lab's state: {why:#}")),
        }
    }
    Runs::write(&folder, run)?;
    if !global.quiet {
        say(report::text::text(run, show::Paint::of_stderr().on()).trim_end());
        show::complain(format!("report: {}", folder.join("report.html").display()));
    }
    Ok(())
}

/// Writes a line to standard error as it is; what is quoted in it has been made plain before.
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Tells on standard error what goes on: a line a step.
struct Teller {
    quiet: bool,
    paint: show::Paint,
    open: BTreeMap<String, Outcome>,
}

impl Teller {
    fn title(&self, run: &Run) {
        if !self.quiet {
            say(&format!("{} · {}", self.paint.strong(&plain(&run.title.name)), plain(&run.title.about)));
        }
    }

    fn tell(&mut self, run: &Run, entry: &Entry) {
        if self.quiet {
            return;
        }
        match entry {
            Entry::Step(step) if self.open.get(&step.id) != Some(&step.outcome) => {
                self.open.insert(step.id.clone(), step.outcome);
                say(&self.step(run, step));
            }
            Entry::Fault(fault) if fault.until_ns > fault.from_ns => {
                let subjects = few(&fault.subjects);
                let seconds = run.seconds(fault.until_ns);
                say(&format!("{seconds:7.2} s        {} of {} taken back", fault.kind, plain(&subjects)));
            }
            _ => {}
        }
    }

    fn step(&self, run: &Run, step: &Step) -> String {
        let at = if step.ended_ns > 0 { step.ended_ns } else { step.began_ns };
        let (mark, rest) = match step.outcome {
            Outcome::Running => (self.paint.dim("…"), String::new()),
            Outcome::Passed => (self.paint.good("✓"), String::new()),
            Outcome::Warned => (self.paint.warn("!"), String::new()),
            Outcome::Failed | Outcome::Broken | Outcome::Skipped => {
                let observed = step.observed.as_deref().unwrap_or_default();
                (self.paint.bad("✗"), format!("\n{:17}observed: {}", "", plain(observed)))
            }
        };
        let notes = if step.outcome == Outcome::Passed && !step.notes.is_empty() {
            self.paint.dim(&format!("  ({})", plain(&few(&step.notes))))
        } else {
            String::new()
        };
        format!("{:7.2} s {mark} {:>4} {}{notes}{rest}", run.seconds(at), step.id, plain(&step.name))
    }
}

/// Runs, a line each.
fn table(runs: &[Run]) -> String {
    let paint = show::Paint::of_stdout();
    let width = runs.iter().map(|run| run.id.len()).max().unwrap_or(0);
    let line = |run: &Run| {
        let word = report::figures::outcome(run.outcome);
        let padded = format!("{word:<8}");
        let word = match run.outcome {
            Outcome::Passed => paint.good(&padded),
            Outcome::Warned => paint.warn(&padded),
            Outcome::Failed | Outcome::Broken => paint.bad(&padded),
            _ => padded,
        };
        let why = run.reason.as_deref().map(plain).unwrap_or_default();
        let seconds = run.seconds(run.ended_ns);
        format!("{word} {seconds:7.1} s  {:<width$}  {why}", run.id).trim_end().to_owned() + "\n"
    };
    runs.iter().map(line).collect()
}

/// The first few of many.
fn few(all: &[String]) -> String {
    let more = all.len().saturating_sub(3);
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Shows past runs: all of them in a table, or one.
pub fn report(global: &Global, args: &ReportArgs) -> anyhow::Result<u8> {
    let runs = Runs::open()?;
    let Some(id) = &args.run else {
        let all = runs.all();
        if global.format == Format::Json {
            let ids: Vec<_> = all.iter().map(|run| serde_json::json!({"id": run.id, "scenario": run.title.name, "outcome": run.outcome})).collect();
            show::json(&serde_json::json!({"version": 1, "runs": ids}))?;
        } else if all.is_empty() {
            show::line("no scenario has run yet")?;
        } else {
            show::print(table(&all))?;
        }
        return Ok(0);
    };
    let run = runs.read(id)?;
    if args.html {
        show::print(report::html::html(&run))?;
    } else if args.junit {
        show::print(report::junit::junit(std::slice::from_ref(&run)))?;
    } else if global.format == Format::Json {
        show::json(&run)?;
    } else {
        show::print(report::text::text(&run, show::Paint::of_stdout().on()))?;
        show::line(format!("report: {}", runs.folder(&run.id).join("report.html").display()))?;
    }
    Ok(code(std::slice::from_ref(&run)))
}

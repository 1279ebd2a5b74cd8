//! Which lab a command is about: a file for `up`, a running lab for the rest.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use topologies::Problem;
use topologies::lab::Lab;

use super::args::{Global, Which};
use crate::api::client::{self, Endpoint};
use crate::api::protocol::{Reply, Request};
use crate::carrier::keeper;
use crate::failure::{Code, Failure};
use crate::state::StateDir;

/// The lab that `up` brings up when nothing is said.
pub const DEFAULT_LAB: &str = "ebb-small";

/// A lab file's text with the name for messages.
pub struct LabText {
    /// File name for messages.
    pub file: String,
    /// The YAML.
    pub text: String,
}

/// Finds and reads the lab file: a path, a ready-made lab's name, `-`, or what is in this folder.
pub fn lab_text(which: &Which) -> anyhow::Result<LabText> {
    let wanted = match &which.lab {
        Some(lab) => lab.clone(),
        None => only_file_here()?.unwrap_or_else(|| DEFAULT_LAB.to_owned()),
    };
    if wanted == "-" {
        let text = read_text("standard input", Ok(std::io::stdin()))?;
        return Ok(LabText { file: "<stdin>".to_owned(), text });
    }
    let path = Path::new(&wanted);
    if path.is_dir() {
        return Err(Failure::new(Code::Usage, format!("{wanted} is a folder, not a lab file"))
            .hint("name the file in it")
            .into());
    }
    // a pipe is as good as a file: `testbed validate <(make-lab)`
    if path.symlink_metadata().is_ok() {
        let text = read_text(&wanted, std::fs::File::open(path))?;
        return Ok(LabText { file: wanted, text });
    }
    if let Some(text) = topologies::builtin(&wanted) {
        return Ok(LabText { file: format!("{wanted}.yaml"), text: text.to_owned() });
    }
    let known: Vec<_> = topologies::builtins().map(|(name, _)| name.to_owned()).collect();
    Err(Failure::new(Code::Usage, format!("no lab file and no ready-made lab `{wanted}`"))
        .hint(format!("ready-made labs: {}", known.join(", ")))
        .into())
}

/// Largest lab file, bytes: some thirty times that of a lab with 254 sites, each linked to all others.
const MAX_TEXT: u64 = 64 << 20;

fn read_text(what: &str, source: std::io::Result<impl Read>) -> anyhow::Result<String> {
    let usage = |why: String| Failure::new(Code::Usage, format!("cannot read {what}: {why}"));
    let mut bytes = Vec::new();
    let read = source.and_then(|source| source.take(MAX_TEXT + 1).read_to_end(&mut bytes));
    read.map_err(|e| usage(e.to_string()))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(usage(format!("it has more than {} MiB", MAX_TEXT >> 20))
            .hint("is it a lab file?")
            .into());
    }
    String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = before.split(|b| *b == b'\n').count();
        usage(format!("line {line} is not UTF-8 text"))
            .hint("a lab file is plain text; save it as UTF-8")
            .into()
    })
}

fn only_file_here() -> anyhow::Result<Option<String>> {
    let mut found: Vec<String> = std::fs::read_dir(".")
        .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    found.retain(|name| name.ends_with(".testbed.yaml"));
    found.sort();
    match found.len() {
        0 => Ok(None),
        1 => Ok(found.pop()),
        _ => Err(Failure::new(Code::Usage, format!("several lab files here: {}", found.join(", ")))
            .hint("name one: testbed up FILE")
            .into()),
    }
}

/// Parses the lab file and says what it is warned of; a bad one is a usage failure with every problem in it.
pub fn parse(text: &LabText, name: Option<&str>) -> anyhow::Result<Lab> {
    Ok(parse_with_warnings(text, name)?.0)
}

/// The same, for those who want to know whether there were warnings.
pub fn parse_with_warnings(text: &LabText, name: Option<&str>) -> anyhow::Result<(Lab, Vec<Problem>)> {
    match Lab::from_str(&text.text, &text.file) {
        Ok((mut lab, warnings)) => {
            for warning in &warnings {
                super::show::complain(format!("warning: {warning}"));
            }
            if let Some(name) = name {
                check_name(name)?;
                name.clone_into(&mut lab.name);
            }
            Ok((lab, warnings))
        }
        Err(errors) => Err(Failure::new(Code::Usage, errors.to_string().trim_end().to_owned()).into()),
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 32
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        return Ok(());
    }
    Err(Failure::new(Code::Usage, format!("`{name}` cannot name a lab"))
        .hint("use up to 32 of a-z, 0-9 and -")
        .into())
}

/// The state folder of the lab of this name, which may be none of ours.
pub fn state_of(name: &str) -> anyhow::Result<StateDir> {
    check_name(name)?;
    Ok(StateDir::of_lab(name))
}

/// How long a running lab may be mute before a command gives up on it.
const MUTE_FOR: Duration = Duration::from_secs(15);
/// Wait for one answer.
pub const PATIENT_HELLO: Duration = Duration::from_secs(2);

/// Refuses to choose between several labs.
pub fn only<'a>(names: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let names: Vec<_> = names.collect();
    if names.len() < 2 {
        return Ok(());
    }
    Err(Failure::new(Code::Usage, format!("several labs run: {}", names.join(", ")))
        .hint("say which with --name LAB")
        .into())
}

/// A lab that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Name.
    pub name: String,
    /// State folder.
    pub state: StateDir,
    /// Where its supervisor listens.
    pub endpoint: Endpoint,
    /// API token.
    pub token: String,
}

impl Running {
    /// The running lab in a state folder, if there is one.
    pub fn at(name: &str, state: &StateDir) -> anyhow::Result<Option<Self>> {
        if !keeper::is_alive(state.path()) {
            return Ok(None);
        }
        let Some(endpoint) = keeper::endpoint(state.path())? else { return Ok(None) };
        let token = std::fs::read_to_string(state.token())
            .with_context(|| format!("cannot read {}", state.token().display()))?;
        Ok(Some(Self {
            name: name.to_owned(),
            state: state.clone(),
            endpoint,
            token: token.trim().to_owned(),
        }))
    }

    /// The lab meant by `--name`, or the only one that runs.
    pub fn find(global: &Global) -> anyhow::Result<Self> {
        if let Some(name) = &global.name {
            let state = state_of(name)?;
            return Self::at(name, &state)?.ok_or_else(|| not_running(Some(name)).into());
        }
        let mut running = Self::all()?;
        match running.len() {
            0 => Err(not_running(None).into()),
            _ => {
                only(running.iter().map(|r| r.name.as_str()))?;
                Ok(running.swap_remove(0))
            }
        }
    }

    /// As [`Running::find`], and it answers: a command must not wait for ever for a lab that stands still.
    pub async fn find_answering(global: &Global) -> anyhow::Result<Self> {
        let found = Self::find(global)?;
        let answers = Self::answering(&found.name, &found.state).await?;
        answers.ok_or_else(|| not_running(Some(&found.name)).into())
    }

    /// The running lab in a state folder if it answers. One that has just been killed may still hold its lock while the
    /// kernel takes it down, and is then waited for until it is gone.
    pub async fn answering(name: &str, state: &StateDir) -> anyhow::Result<Option<Self>> {
        let began = Instant::now();
        while let Some(running) = Self::at(name, state)? {
            if client::hello(&running.endpoint, &running.token, PATIENT_HELLO).await {
                return Ok(Some(running));
            }
            if began.elapsed() > MUTE_FOR {
                return Err(Failure::new(
                    Code::TimedOut,
                    format!(
                        "lab {name} runs, but its supervisor has not answered for {} s",
                        MUTE_FOR.as_secs()
                    ),
                )
                .hint("`testbed down` ends it whatever its state; then say `up` again")
                .into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(None)
    }

    /// All running labs of this user.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let mut running = Vec::new();
        for (name, state) in StateDir::all() {
            running.extend(Self::at(&name, &state)?);
        }
        Ok(running)
    }

    /// Makes a call; every reply but the end goes to `each`.
    pub async fn call(&self, request: Request, each: impl FnMut(Reply)) -> anyhow::Result<()> {
        client::call(&self.endpoint, &self.token, request, each).await
    }

    /// The resolved lab that runs.
    pub async fn lab(&self) -> anyhow::Result<Lab> {
        let mut lab = None;
        self.call(Request::Lab, |reply| {
            if let Reply::Lab(l) = reply {
                lab = Some(*l);
            }
        })
        .await?;
        lab.context("the supervisor sent no lab")
    }
}

fn not_running(name: Option<&str>) -> Failure {
    let message = match name {
        Some(name) => format!("lab `{name}` is not running"),
        None => "no lab is running".to_owned(),
    };
    Failure::new(Code::Failed, message).hint("start one with: cargo xtask testbed up")
}

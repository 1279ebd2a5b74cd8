//! Verbs that only look: `status`, `events`, `plan`, `validate`, `schema`, `logs`, `graph`, `completions`.

use clap::CommandFactory as _;

use super::args::{Cli, Format, Global, Graph, GraphKind, Logs, Which};
use super::target::{self, Running};
use super::{operate, show};
use crate::api::client::Connection;
use crate::api::protocol::{Event, Reply, Request};
use crate::failure::{Code, Failure};
use crate::supervise::events;

/// `status`; exit code 1 while the lab is degraded.
pub async fn status(global: &Global, watch: bool) -> anyhow::Result<u8> {
    let running = match Running::find_answering(global).await {
        Ok(running) => running,
        Err(error)
            if global.format == Format::Json && crate::failure::from_error(&error).code == Code::Failed =>
        {
            let lab = global.name.as_deref().unwrap_or("");
            show::json(&serde_json::json!({
                "version": 1, "lab": lab, "carrier": null, "state": "down",
                "planes": [], "nodes": [], "links": [], "programs": [],
            }))?;
            return Ok(Code::Failed.number());
        }
        Err(error) => return Err(error),
    };
    loop {
        let status = operate::fetch_status(&running).await?;
        let read = if global.format == Format::Json {
            show::json(&status)?
        } else {
            let clear = if watch { "\x1b[H\x1b[2J" } else { "" };
            show::print(format!("{clear}{}", show::status(show::Paint::of_stdout(), &status)))?
        };
        if !(watch && read) {
            let degraded = status.state == crate::api::protocol::Health::Degraded;
            return Ok(if degraded { Code::Failed.number() } else { 0 });
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

/// `events`: of the running lab, or from the state folder of one that is down. People get the past in the order in which
/// things happened, programs in the order in which they were told.
pub async fn events(global: &Global, follow: bool, all: bool, last: Option<usize>) -> anyhow::Result<u8> {
    let mut past = Vec::new();
    let running = match (Running::find_answering(global).await, &global.name) {
        (Ok(running), _) => running,
        (Err(error), Some(name)) if !follow => {
            let path = crate::state::StateDir::of_lab(name).events();
            if !path.exists() {
                return Err(error);
            }
            print_events(global, events::read(&path, all, None)?, last)?;
            return Ok(0);
        }
        (Err(error), _) => return Err(error),
    };
    let mut connection =
        Connection::open(&running.endpoint, &running.token, Request::Events { follow, all }).await?;
    loop {
        match connection.reply().await? {
            Reply::Event(event) if follow => {
                let open = show::line(event_line(global, &event))?;
                if !open {
                    return Ok(0);
                }
            }
            Reply::Event(event) => past.push(event),
            Reply::Done => break,
            _ => {}
        }
    }
    print_events(global, past, last)?;
    Ok(0)
}

fn event_line(global: &Global, event: &Event) -> String {
    match global.format {
        Format::Json => serde_json::to_string(event).unwrap_or_default(),
        Format::Text => show::event(event),
    }
}

fn print_events(global: &Global, mut past: Vec<Event>, last: Option<usize>) -> anyhow::Result<()> {
    if global.format == Format::Text {
        events::in_order(&mut past);
    }
    let first = last.map_or(0, |last| past.len().saturating_sub(last));
    let text: String = past.iter().skip(first).map(|event| event_line(global, event) + "\n").collect();
    show::print(text)?;
    Ok(())
}

/// `plan`: against the running lab of that name, else against nothing.
pub async fn plan(global: &Global, which: Which) -> anyhow::Result<u8> {
    let lab = target::parse(&target::lab_text(&which)?, global.name.as_deref())?;
    let state = crate::state::StateDir::of_lab(&lab.name);
    let mut plan = None;
    let mut programs = Vec::new();
    match Running::answering(&lab.name, &state).await? {
        Some(running) => {
            running
                .call(Request::Plan { lab: Box::new(lab) }, |reply| match reply {
                    Reply::Plan(p) => plan = Some(p),
                    Reply::ProgramChanges(changes) => programs = changes,
                    _ => {}
                })
                .await?;
        }
        None => {
            let desired =
                crate::plan::desired(&lab, &crate::plan::Faults::default(), crate::plan::Options::full());
            plan = Some(crate::plan::diff(&desired, &crate::plan::State::default()));
            programs = crate::supervise::files::first_start(&lab);
        }
    }
    let plan = plan.ok_or_else(|| Failure::new(Code::Internal, "the supervisor sent no plan"))?;
    if global.format == Format::Json {
        show::json(&serde_json::json!({"version": 1, "plan": plan, "programs": programs}))?;
        return Ok(0);
    }
    show::print(show::plan(&plan, &programs))?;
    Ok(0)
}

/// Exit code of a file without errors.
fn passed(warnings: &[topologies::Problem]) -> u8 {
    if warnings.is_empty() { 0 } else { Code::Warnings.number() }
}

/// `validate`; exit code 3 if there are warnings only.
pub fn validate(global: &Global, which: &Which) -> anyhow::Result<u8> {
    let text = target::lab_text(which)?;
    if global.format == Format::Json {
        let (code, problems) = match topologies::lab::Lab::from_str(&text.text, &text.file) {
            Ok((_, warnings)) => (passed(&warnings), warnings),
            Err(errors) => (Code::Usage.number(), errors.0),
        };
        let ok = code != Code::Usage.number();
        let severity = if ok { "warning" } else { "error" };
        let mut problems = serde_json::to_value(problems)?;
        for problem in problems.as_array_mut().into_iter().flatten() {
            problem["severity"] = severity.into();
        }
        show::json(&serde_json::json!({"version": 1, "file": text.file, "ok": ok, "problems": problems}))?;
        return Ok(code);
    }
    let (lab, warnings) = target::parse_with_warnings(&text, global.name.as_deref())?;
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    show::line(format!(
        "{}: {}; lab {}, {}, {}, {}",
        text.file,
        if warnings.is_empty() { "fine" } else { "fine but for the warnings" },
        lab.name,
        plural(lab.planes.len(), "plane"),
        plural(lab.nodes.len(), "node"),
        plural(lab.links.len(), "link")
    ))?;
    Ok(passed(&warnings))
}

/// `schema`.
pub fn schema(of_scenarios: bool) -> anyhow::Result<u8> {
    show::json(&if of_scenarios { scenario::schema() } else { topologies::schema() })?;
    Ok(0)
}

/// `completions`.
pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "testbed", &mut script);
    show::print(script)?;
    Ok(0)
}

/// `logs`: from the state folder, so also of a lab that is down.
pub fn logs(global: &Global, args: &Logs) -> anyhow::Result<u8> {
    let state = match &global.name {
        Some(name) => target::state_of(name)?,
        None => Running::find(global)?.state,
    };
    let (node, program) = match (args.node.split_once('/'), &args.program) {
        (Some((node, program)), None) => (node, Some(program.to_owned())),
        (_, program) => (args.node.as_str(), program.clone()),
    };
    let all = state.path().join("logs");
    let dir = all.join(node);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .ok()
        // nothing but a folder of this very name: neither the folder above nor all of them
        .filter(|_| dir.parent() == Some(all.as_path()) && dir.file_name().is_some_and(|name| name == node))
        .ok_or_else(|| {
            Failure::new(Code::Usage, format!("no logs of `{node}` in {}", all.display()))
                .hint("name a node of the lab, as in h1.prn or eb01.prn/lsp-agent")
        })?
        .flatten()
        .map(|e| e.path())
        .filter(|p| program.as_ref().is_none_or(|want| p.file_stem().is_some_and(|s| s == want.as_str())))
        .collect();
    files.sort();
    if files.is_empty() {
        let program = program.unwrap_or_default();
        return Err(Failure::new(Code::Usage, format!("{node} has no program `{program}`")).into());
    }
    let many = files.len() > 1;
    for file in files {
        let text = String::from_utf8_lossy(&std::fs::read(&file)?).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let mut out = String::new();
        if many {
            out += &format!("==> {} <==\n", file.file_stem().unwrap_or_default().to_string_lossy());
        }
        for line in &lines[lines.len().saturating_sub(args.lines)..] {
            out += line;
            out.push('\n');
        }
        show::print(out)?;
    }
    Ok(0)
}

/// `graph`.
pub fn graph(global: &Global, args: &Graph) -> anyhow::Result<u8> {
    let lab = target::parse(&target::lab_text(&args.which)?, global.name.as_deref())?;
    if let Some(plane) = args.plane
        && !lab.planes.iter().any(|p| p.id == plane)
    {
        return Err(Failure::new(Code::Usage, format!("lab {} has no plane {plane}", lab.name)).into());
    }
    let text = match args.kind {
        GraphKind::Text => crate::graph::text(&lab, args.plane),
        GraphKind::Dot => crate::graph::dot(&lab, args.plane),
        GraphKind::Mermaid => crate::graph::mermaid(&lab, args.plane),
    };
    show::print(text)?;
    Ok(0)
}

//! `link`, `program`, `drain`, `undrain`, `cycle`: acting on a running lab.

use topologies::units::Rtt;

use super::args::{
    Cycle, DrainArgs, DrainHow, DrainWhat, Format, Global, LinkAction, PlaneChoice, ProgramVerb,
};
use super::progress::Progress;
use super::show;
use super::target::Running;
use crate::api::protocol::{
    DrainParts, DrainPlanes, LinkChange, PartMode, ProgramAction, Reply, Request, Status,
};
use crate::failure::{Code, Failure};
use crate::selection::{links, nodes, programs};

/// Shortest period of a link that goes up and down: the kernel needs its time for both.
const LEAST_PERIOD_MS: u64 = 50;

/// A time as lab files have it, in microseconds.
pub(super) fn time(text: &str) -> anyhow::Result<u64> {
    let time: Result<Rtt, _> = text.parse();
    time.map(|time| time.0).map_err(|bad| Failure::new(Code::Usage, bad.message).hint(bad.hint).into())
}

/// `link cut | restore | delay | impair | flap | show`.
pub async fn link(global: &Global, action: LinkAction) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    match action {
        LinkAction::Show { links: selector } => {
            let wanted = selector.map(|s| links(&lab, &s)).transpose()?;
            let mut status = fetch_status(&running).await?;
            if let Some(wanted) = wanted {
                status.links.retain(|l| wanted.contains(&l.name));
            }
            if global.format == Format::Json {
                show::json(&serde_json::json!({"version": 1, "lab": status.lab, "links": status.links}))?;
            } else {
                show::print(show::links(show::Paint::of_stdout(), &status))?;
            }
            Ok(0)
        }
        LinkAction::Cut { links: selector, member } => {
            let change = member.map_or(LinkChange::Cut, LinkChange::CutMember);
            perform(global, &running, Request::Link { links: links(&lab, &selector)?, change }).await
        }
        LinkAction::Delay { links: selector, rtt, clear: _ } => {
            let rtt = rtt.map(|text| time(&text).map(Rtt)).transpose()?;
            let change = rtt.map_or(LinkChange::ClearDelay, LinkChange::Delay);
            perform(global, &running, Request::Link { links: links(&lab, &selector)?, change }).await
        }
        LinkAction::Impair { links: selector, from, harm } => {
            let from = from.map(|selector| nodes(&lab, &selector)).transpose()?.unwrap_or_default();
            let change = LinkChange::Impair { from, harm: super::faults::impairment(&harm)? };
            perform(global, &running, Request::Link { links: links(&lab, &selector)?, change }).await
        }
        LinkAction::Flap { links: selector, period, count, jitter, seed } => {
            let jitter_ms = jitter.map(|text| time(&text)).transpose()?.unwrap_or(0) / 1000;
            let period_ms = time(&period)? / 1000;
            if period_ms < LEAST_PERIOD_MS {
                let message = format!("a period of {period} is too short, {LEAST_PERIOD_MS}ms is the least");
                return Err(Failure::new(Code::Usage, message).into());
            }
            let change = LinkChange::Flap { period_ms, count, jitter_ms, seed };
            perform(global, &running, Request::Link { links: links(&lab, &selector)?, change }).await
        }
        LinkAction::Restore { links: selector, member } => {
            let change = member.map_or(LinkChange::Restore, LinkChange::RestoreMember);
            let links = if selector == "all" {
                let status = fetch_status(&running).await?;
                status.links.into_iter().filter(|l| !l.faults.is_empty()).map(|l| l.name).collect()
            } else {
                links(&lab, &selector)?
            };
            perform(global, &running, Request::Link { links, change }).await
        }
    }
}

/// Makes a call that answers with progress and notes.
pub(super) async fn perform(global: &Global, running: &Running, request: Request) -> anyhow::Result<u8> {
    let mut progress = Progress::new(global.quiet);
    let mut notes = Vec::new();
    running
        .call(request, |reply| match reply {
            Reply::Progress(text) => progress.say(&text),
            Reply::Note(text) => notes.push(text),
            _ => {}
        })
        .await?;
    if global.format == Format::Json {
        show::json(&serde_json::json!({"version": 1, "lab": running.name, "done": notes}))?;
    } else {
        for note in notes {
            show::line(note)?;
        }
    }
    Ok(0)
}

/// The lab's status.
pub async fn fetch_status(running: &Running) -> anyhow::Result<Status> {
    let mut status = None;
    running
        .call(Request::Status, |reply| {
            if let Reply::Status(s) = reply {
                status = Some(s);
            }
        })
        .await?;
    status.ok_or_else(|| Failure::new(Code::Internal, "the supervisor sent no status").into())
}

/// `program kill | stop | resume | restart`.
pub async fn program(global: &Global, verb: ProgramVerb) -> anyhow::Result<u8> {
    let (args, action) = match verb {
        ProgramVerb::Kill(args) => (args, ProgramAction::Kill),
        ProgramVerb::CrashLoop(args) => (args, ProgramAction::CrashLoop),
        ProgramVerb::Stop(args) => (args, ProgramAction::Stop),
        ProgramVerb::Resume(args) => (args, ProgramAction::Resume),
        ProgramVerb::Restart(args) => (args, ProgramAction::Restart),
        ProgramVerb::Pause(args) => (args, ProgramAction::Pause),
        ProgramVerb::Continue(args) => (args, ProgramAction::Continue),
    };
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let status = fetch_status(&running).await?;
    let programs = programs(&lab, &status.programs, &args.program, args.nodes.as_deref())?;
    perform(global, &running, Request::Program { programs, action }).await
}

/// `drain`, `undrain` of a plane, of links, of routers.
pub async fn drain(global: &Global, args: DrainArgs, drain: bool) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let parts = |links, routers, how: DrainHow| {
        let mode = if how.soft { PartMode::Avoid } else { PartMode::Exclude };
        Request::DrainParts(DrainParts { links, routers, mode: drain.then_some(mode), reason: how.reason })
    };
    let request = match args.what {
        DrainWhat::Plane { plane, force, withdraw, timeout } => {
            let planes = match plane {
                PlaneChoice::One(plane) => vec![plane],
                PlaneChoice::All => running.lab().await?.planes.iter().map(|p| p.id).collect(),
            };
            Request::Drain(DrainPlanes { planes, drain, force, withdraw, timeout_s: timeout })
        }
        DrainWhat::Link { links: selector, how } => {
            parts(links(&running.lab().await?, &selector)?, Vec::new(), how)
        }
        DrainWhat::Router { routers, how } => parts(Vec::new(), nodes(&running.lab().await?, &routers)?, how),
    };
    perform(global, &running, request).await
}

/// `compare`.
pub async fn compare(global: &Global) -> anyhow::Result<u8> {
    let document = fetch_document(&Running::find_answering(global).await?, Request::Compare).await?;
    if global.format == Format::Json {
        show::json(&document)?;
    } else {
        show::print(show::compare(show::Paint::of_stdout(), &document))?;
    }
    Ok(0)
}

async fn fetch_document(running: &Running, request: Request) -> anyhow::Result<serde_json::Value> {
    let mut document = serde_json::Value::Null;
    running
        .call(request, |reply| {
            if let Reply::Document(d) = reply {
                document = d;
            }
        })
        .await?;
    Ok(document)
}

/// `cycle`.
pub async fn cycle(global: &Global, args: Cycle) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let document =
        fetch_document(&running, Request::Cycle { plane: args.plane, with_mesh: args.mesh }).await?;
    if global.format == Format::Json {
        show::json(&document)?;
        return Ok(0);
    }
    let mut out = show::cycle(&document);
    if args.mesh {
        out += &format!("\n{}", show::mesh(&document));
    }
    show::print(out)?;
    Ok(0)
}

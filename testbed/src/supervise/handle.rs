//! What each API request does.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::broadcast::error::RecvError;

use super::world::World;
use crate::api::frame;
use crate::api::protocol::{Event, Input, ProgramAction, Reply, Request};
use crate::api::server::{Handler, Reader, Writer};
use crate::failure::{Code, Failure};
use crate::probe::{self, Spec};

impl Handler for World {
    async fn handle(self: Arc<Self>, request: Request, input: Reader, output: Writer) -> anyhow::Result<()> {
        match request {
            Request::Hello => Ok(()),
            Request::Apply { lab } => {
                let (plan, programs) = self.apply(*lab, &output).await?;
                output.reply(&Reply::Plan(plan)).await?;
                output.reply(&Reply::ProgramChanges(programs)).await
            }
            Request::Plan { lab } => {
                let (plan, programs) = self.plan(*lab).await?;
                output.reply(&Reply::Plan(plan)).await?;
                output.reply(&Reply::ProgramChanges(programs)).await
            }
            Request::WaitReady { timeout_s } => {
                let status = self.wait_ready(Duration::from_secs(timeout_s), &output).await?;
                output.reply(&Reply::Status(status)).await
            }
            Request::Status => {
                let lab = self.lab()?;
                output.reply(&Reply::Status(self.status(&lab).await)).await
            }
            Request::Lab => output.reply(&Reply::Lab(Box::new((*self.lab()?).clone()))).await,
            Request::Exec(exec) => super::exec::run(&self.reaper, exec, input, output).await,
            Request::Link { links, cut } => notes(&output, self.link(links, cut).await?).await,
            Request::Program { programs, action } => self.act(&programs, action, &output).await,
            Request::Drain { plane, drain, force, timeout_s } => {
                let limit = Duration::from_secs(timeout_s);
                let note = self.drain(plane, drain, force, limit, &output).await?;
                notes(&output, vec![note]).await
            }
            Request::DrainParts(request) => notes(&output, self.drain_parts(&request, &output).await?).await,
            Request::Probe { spec } => run_probe(spec, input, &output).await,
            Request::Events { follow } => self.tell_events(follow, input, &output).await,
            Request::Cycle { plane, with_mesh } => self.cycle(plane, with_mesh, &output).await,
            Request::Compare => {
                let lab = self.lab()?;
                let document = super::compare::document(&lab, &self.programs.status()).await;
                output.reply(&Reply::Document(document)).await
            }
            Request::Shutdown => {
                self.events.emit("lab.down", "", "asked to end");
                super::main::end_world(self.carrier)
            }
        }
    }
}

async fn notes(output: &Writer, notes: Vec<String>) -> anyhow::Result<()> {
    for note in notes {
        output.reply(&Reply::Note(note)).await?;
    }
    Ok(())
}

async fn run_probe(spec: Spec, mut input: Reader, output: &Writer) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let listen = tokio::spawn(async move {
        // a client that says stop, or goes away, ends the probe
        while let Ok(Some(frame)) = frame::read(&mut input).await {
            if matches!(frame.parse::<Input>(), Ok(Input::Stop)) {
                break;
            }
        }
        asked.store(true, Ordering::Relaxed);
    });
    let run = move || probe::run(&spec, Path::new("/run/netns"), |_| (), || stop.load(Ordering::Relaxed));
    let report = tokio::task::spawn_blocking(run).await.context("the probe panicked")??;
    listen.abort();
    output.reply(&Reply::Probe(report)).await
}

impl World {
    async fn act(
        &self,
        programs: &[(String, String)],
        action: ProgramAction,
        output: &Writer,
    ) -> anyhow::Result<()> {
        for (node, program) in programs {
            self.programs.act(node, program, action).await?;
            let done = match action {
                ProgramAction::Kill => "killed",
                ProgramAction::Stop => "stopped",
                ProgramAction::Resume => "resumed",
                ProgramAction::Restart => "restarted",
                ProgramAction::Pause => "paused",
                ProgramAction::Continue => "continued",
            };
            output.reply(&Reply::Note(format!("{node}/{program}: {done}"))).await?;
        }
        Ok(())
    }

    async fn tell_events(&self, follow: bool, mut input: Reader, output: &Writer) -> anyhow::Result<()> {
        // listen before reading the file, so that none is missed between the two
        let mut live = self.events.listen();
        let path = self.state.events();
        let file = std::fs::File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut last = 0;
        for line in BufReader::new(file).lines() {
            // a line cut short by a killed world is passed over
            if let Ok(event) = serde_json::from_str::<Event>(&line?) {
                last = last.max(event.unix_ms);
                output.reply(&Reply::Event(event)).await?;
            }
        }
        if !follow {
            return Ok(());
        }
        loop {
            tokio::select! {
                gone = frame::read(&mut input) => if !matches!(gone, Ok(Some(_))) { return Ok(()) },
                event = live.recv() => match event {
                    Ok(event) if event.unix_ms >= last => output.reply(&Reply::Event(event)).await?,
                    Ok(_) => {}
                    Err(RecvError::Lagged(n)) => {
                        output.reply(&Reply::Note(format!("{n} events were too fast to show"))).await?;
                    }
                    Err(RecvError::Closed) => return Ok(()),
                },
            }
        }
    }

    async fn cycle(&self, plane: u8, with_mesh: bool, output: &Writer) -> anyhow::Result<()> {
        let lab = self.lab()?;
        if lab.plane(plane).is_none() {
            return Err(Failure::new(Code::Usage, format!("lab {} has no plane {plane}", lab.name)).into());
        }
        let state = super::leader::cycle(&lab, plane, with_mesh).await?;
        output.reply(&Reply::Document(super::controller::document(&lab, &state))).await
    }
}

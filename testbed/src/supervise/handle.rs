//! What each API request does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::broadcast::error::RecvError;

use super::events;
use super::world::World;
use crate::api::frame;
use crate::api::protocol::{Input, ProgramAction, Reply, Request};
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
            Request::Link { links, change } => notes(&output, self.link(&links, change).await?).await,
            Request::Program { programs, action } => notes(&output, self.act(&programs, action).await?).await,
            Request::Node { nodes, change } => notes(&output, self.node(&nodes, change).await?).await,
            Request::Rpc(order) => notes(&output, self.rpc(&order).await?).await,
            Request::KernelDelete(order) => notes(&output, self.kernel_delete(order).await?).await,
            Request::Drain(order) => notes(&output, self.drain(&order, &output).await?).await,
            Request::DrainParts(request) => notes(&output, self.drain_parts(&request, &output).await?).await,
            Request::Config(order) => {
                let document = super::config::carry_out(&*self.lab()?, order, &output).await?;
                output.reply(&Reply::Document(document)).await
            }
            Request::Rollout(order) => {
                let document = self.rollout(order, input, &output).await?;
                output.reply(&Reply::Document(document)).await
            }
            Request::Run { scenario } => crate::scenario::run(self, *scenario, input, output).await,
            Request::Probe { spec } => run_probe(spec, input, &output).await,
            Request::Events { follow, all } => self.tell_events((follow, all), input, &output).await,
            Request::Cycle { plane, with_mesh } => self.cycle(plane, with_mesh, &output).await,
            Request::Compare => {
                let lab = self.lab()?;
                let document = super::compare::document(&lab, &self.programs.status()).await;
                output.reply(&Reply::Document(document)).await
            }
            Request::Farewell => {
                let name = self.lab().map_or_else(|_| String::new(), |lab| lab.name.clone());
                self.events.emit("lab.down", &name, "taken down by command");
                Ok(())
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
    /// Acts on programs, `(node, program)`; what was done, for people.
    pub async fn act(
        &self,
        programs: &[(String, String)],
        action: ProgramAction,
    ) -> anyhow::Result<Vec<String>> {
        let mut notes = Vec::new();
        let before = self.programs.status();
        let crashed = self.view().faults.crashed;
        if let Some((node, program)) = programs.iter().find(|(node, _)| crashed.contains(node)) {
            let message = format!("{node}/{program} is down because {node} has crashed");
            return Err(Failure::new(Code::Failed, message).hint("`testbed node restore` it").into());
        }
        for (node, program) in programs {
            self.programs.act(node, program, action).await?;
            let was = before
                .iter()
                .find(|p| p.node == *node && p.name == *program)
                .map_or("", |p| p.state.as_str());
            let done = match (action, was) {
                (ProgramAction::Kill | ProgramAction::Stop, "stopped") => "already stopped",
                (ProgramAction::Resume, "running") => "runs already",
                (ProgramAction::Kill, "waiting") => "between two starts, nothing to kill",
                (ProgramAction::Kill, _) => "killed",
                (ProgramAction::Stop, _) => "stopped",
                (ProgramAction::Resume, _) => "resumed",
                (ProgramAction::CrashLoop, _) => "killed, and whenever it runs again",
                (ProgramAction::Restart, _) => "restarted",
                (ProgramAction::Pause, _) => "paused",
                (ProgramAction::Continue, _) => "continued",
            };
            notes.push(format!("{node}/{program}: {done}"));
        }
        Ok(notes)
    }

    async fn tell_events(
        &self,
        (follow, all): (bool, bool),
        mut input: Reader,
        output: &Writer,
    ) -> anyhow::Result<()> {
        let (mut live, past) = self.events.listen().context("cannot look at the event file")?;
        for event in events::read(&self.state.events(), all, Some(past))? {
            output.reply(&Reply::Event(event)).await?;
        }
        if !follow {
            return Ok(());
        }
        loop {
            tokio::select! {
                gone = frame::read(&mut input) => if !matches!(gone, Ok(Some(_))) { return Ok(()) },
                event = live.recv() => match event {
                    Ok(event) => output.reply(&Reply::Event(event)).await?,
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

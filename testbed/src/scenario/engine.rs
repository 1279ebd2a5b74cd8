//! Carries a scenario out, step by step.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use scenario::model::Scenario;
use scenario::record::{self, Entry, Outcome, Run, Topology, TopologyLink, TopologyNode};
use scenario::vars::Vars;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use topologies::lab::Lab;

use super::observe::Observer;
use super::undo::{Undos, take_back};
use super::watch::Watches;
use crate::api::frame;
use crate::api::protocol::{Health, Input, Reply, Status};
use crate::api::server::{Reader, Writer};
use crate::failure::{Code, Failure, from_error};
use crate::supervise::events::monotonic_ns;
use crate::supervise::world::World;

/// Kinds of events that mean harm.
const HARM: [&str; 2] = ["program.exited", "program.failed"];

/// Why a run goes no further.
#[derive(Clone, Debug)]
pub struct Halt {
    /// How it ends.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
}

impl Halt {
    /// A check that failed.
    pub fn failed(step: &record::Step) -> Self {
        let mut reason = format!("step {} (line {}) `{}`", step.id, step.line, step.name);
        if let Some(expected) = &step.expected {
            reason += &format!(": expected {expected}");
        }
        if let Some(observed) = &step.observed {
            reason += &format!("; observed: {observed}");
        }
        Self { outcome: Outcome::Failed, reason }
    }

    pub(super) fn broken(reason: impl Into<String>) -> Self {
        Self { outcome: Outcome::Broken, reason: reason.into() }
    }
}

/// Where a step stands: its number, with the round of what repeats it.
#[derive(Clone, Debug)]
pub struct Place {
    /// `4.2`, `4.2@3` in the third round.
    pub id: String,
}

/// A run.
pub struct Engine {
    pub(super) world: Arc<World>,
    pub(super) scenario: Scenario,
    pub(super) observer: Arc<Observer>,
    pub(super) undos: Undos,
    pub(super) watches: Watches,
    pub(super) halted: watch::Sender<Option<Halt>>,
    worst: Mutex<Outcome>,
    /// Programs, `node/program`, that the run itself has harmed.
    harmed: Mutex<BTreeSet<String>>,
    /// Faults that are to be taken back at a time.
    pub(super) timed: Mutex<JoinSet<()>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a scenario and tells the client all about it. A client that goes away ends it early; what it broke is taken back
/// either way.
pub async fn run(
    world: Arc<World>,
    scenario: Scenario,
    mut input: Reader,
    output: Writer,
) -> anyhow::Result<()> {
    let busy = || {
        Failure::new(Code::Failed, "another scenario runs on this lab")
            .hint("wait for its end, or use another lab")
    };
    let alone = Arc::clone(&world);
    let _one = alone.scenario.try_lock().map_err(|_| busy())?;
    let lab = world.lab()?;
    let (book, mut pages) = mpsc::unbounded_channel::<Entry>();
    // a client that does not read must not hold up what is measured
    let scribe = tokio::spawn(async move {
        while let Some(entry) = pages.recv().await {
            if output.reply(&Reply::Run(Box::new(entry))).await.is_err() {
                pages.close();
            }
        }
    });
    let engine = Arc::new(Engine {
        observer: Observer::new(Arc::clone(&world), Arc::clone(&lab), book),
        world,
        scenario,
        undos: Undos::default(),
        watches: Watches::default(),
        halted: watch::channel(None).0,
        worst: Mutex::new(Outcome::Passed),
        harmed: Mutex::default(),
        timed: Mutex::default(),
    });
    let gone = async {
        while let Ok(Some(frame)) = frame::read(&mut input).await {
            if matches!(frame.parse::<Input>(), Ok(Input::Stop)) {
                break;
            }
        }
    };
    let mut background = JoinSet::new();
    let played = tokio::select! {
        played = Arc::clone(&engine).play(&lab, &mut background) => played,
        () = gone => Err(Halt::broken("interrupted")),
    };
    engine.end(&lab, played, background).await;
    drop(engine);
    let _ = scribe.await;
    Ok(())
}

impl Engine {
    /// Everything up to the end of the traffic.
    async fn play(self: Arc<Self>, lab: &Arc<Lab>, background: &mut JoinSet<()>) -> Result<(), Halt> {
        let status = self.whole(lab).await?;
        background.spawn(Arc::clone(&self.observer).listen());
        let began_ns = monotonic_ns();
        let _ = self.observer.book.send(Entry::Began(Box::new(self.header(lab, &status, began_ns))));
        self.observer.begin(began_ns, &status);
        let automatic: Vec<String> =
            self.scenario.traffic.iter().filter(|(_, t)| !t.manual).map(|(name, _)| name.clone()).collect();
        self.send(&automatic).await.map_err(|why| Halt::broken(format!("{why:#}")))?;
        background.spawn(Arc::clone(&self.observer).sample(self.scenario.sample));
        background.spawn(Arc::clone(&self).watch());
        let mut vars = Vars::new();
        let steps = self.scenario.steps.clone();
        let mut halted = self.halted.subscribe();
        let start = Instant::now();
        tokio::select! {
            // a check that failed in the background comes first
            biased;
            halt = async { halted.wait_for(Option::is_some).await.ok().and_then(|halt| halt.clone()) } => {
                Err(halt.unwrap_or_else(|| Halt::broken("the run ended without a word")))
            }
            played = self.sequence(&steps, "", &mut vars, start) => played,
        }
    }

    /// The lab as it has to be before a run.
    async fn whole(&self, lab: &Lab) -> Result<Status, Halt> {
        let view = self.world.view();
        if view.faults != crate::plan::Faults::default() || !view.drained.is_empty() {
            return Err(Halt::broken(
                "something is broken or drained on this lab already; `testbed link restore all` and `testbed undrain` \
                 put it in order, `testbed status` shows what",
            ));
        }
        let asleep =
            self.world.programs.status().into_iter().find(|p| p.state == "stopped" || p.state == "paused");
        if let Some(p) = asleep {
            let message = format!("{}/{} is {}; `testbed program resume` it", p.node, p.name, p.state);
            return Err(Halt::broken(message));
        }
        let silent = Writer::new(Box::new(tokio::io::sink()));
        let ready = self.world.wait_ready(self.scenario.settle, &silent).await;
        let status =
            ready.map_err(|why| Halt::broken(format!("the lab is not ready: {}", from_error(&why))))?;
        debug_assert_eq!(status.lab, lab.name);
        Ok(status)
    }

    fn header(&self, lab: &Lab, status: &Status, began_ns: u64) -> Run {
        let nodes = lab.nodes.iter().map(|node| TopologyNode {
            name: node.name.clone(),
            role: word(&node.role),
            site: node.site.clone(),
            plane: node.plane,
        });
        let links = lab.links.iter().map(|link| TopologyLink {
            name: link.name.clone(),
            a: link.a.node.clone(),
            b: link.b.node.clone(),
            kind: word(&link.kind),
            plane: link.plane,
            capacity: link.capacity.to_string(),
            rate_bps: lab.end(&link.a).and_then(|end| end.rate_bps).unwrap_or(0),
        });
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run {
            version: record::VERSION,
            title: self.scenario.title.clone(),
            lab: lab.name.clone(),
            carrier: status.carrier.clone(),
            seed: self.scenario.seed,
            began_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            began_ns,
            topology: Topology { nodes: nodes.collect(), links: links.collect() },
            ..Run::default()
        }
    }

    /// After the steps, or instead of them: traffic ends, watches are decided, all is put back.
    async fn end(self: &Arc<Self>, lab: &Arc<Lab>, played: Result<(), Halt>, mut background: JoinSet<()>) {
        let began = monotonic_ns();
        let mut halt = played.err();
        if halt.is_none() {
            halt = self.holds_run_out().await;
        }
        lock(&self.timed).abort_all();
        let names: Vec<String> = self.scenario.traffic.keys().cloned().collect();
        if let Err(why) = self.silence(&names).await {
            halt.get_or_insert_with(|| Halt::broken(format!("{}", from_error(&why))));
        }
        let watched = self.look_at_watches(true).await;
        halt = halt.or(watched);
        let interrupted = halt.as_ref().is_some_and(|halt| halt.reason == "interrupted");
        if self.observer.has_begun() {
            let back = self.put_back(lab, began, interrupted).await;
            halt = halt.or(back.err());
            self.observer.sample_once().await;
        }
        background.abort_all();
        self.observer.stop();
        let unexpected = self.unexpected();
        if !unexpected.is_empty() {
            self.worst(Outcome::Warned);
        }
        let outcome = halt.as_ref().map_or_else(|| *lock(&self.worst), |halt| halt.outcome);
        let warned = (!unexpected.is_empty()).then(|| format!("unexpected: {}", unexpected.join(", ")));
        let _ = self.observer.book.send(Entry::Ended {
            at_ns: monotonic_ns(),
            outcome,
            reason: halt.map(|halt| halt.reason).or(warned),
            timers: self.observer.lateness(),
        });
    }

    /// Waits until faults and traffic with a time of their own have ended, unless something fails meanwhile.
    async fn holds_run_out(&self) -> Option<Halt> {
        let mut halted = self.halted.subscribe();
        let mut timed = std::mem::take(&mut *lock(&self.timed));
        tokio::select! {
            halt = halted.wait_for(Option::is_some) => halt.ok().and_then(|halt| halt.clone()),
            () = async { while timed.join_next().await.is_some() {} } => self.halted.borrow().clone(),
        }
    }

    /// Takes every fault back, the latest first, and waits for the lab to be whole.
    async fn put_back(&self, lab: &Lab, began_ns: u64, interrupted: bool) -> Result<(), Halt> {
        let mut told = record::Step {
            id: "end".to_owned(),
            name: "put everything back".to_owned(),
            action: "take every fault back, wait until the lab is whole".to_owned(),
            began_ns,
            expected: Some(format!("a lab that is ready within {:?}", self.scenario.settle)),
            ..record::Step::default()
        };
        self.tell(&told);
        let mut trouble: Option<String> = None;
        while let Some(undo) = self.undos.take_last() {
            if let Err(why) = take_back(&self.world, undo, &self.observer.book).await {
                trouble.get_or_insert_with(|| from_error(&why).to_string());
            }
        }
        if trouble.is_none() && !interrupted {
            let silent = Writer::new(Box::new(tokio::io::sink()));
            match self.world.wait_ready(self.scenario.settle, &silent).await {
                Ok(status) if status.state == Health::Ready => {}
                Ok(status) => trouble = Some(format!("lab {} is {}", lab.name, status.state)),
                Err(why) => trouble = Some(from_error(&why).to_string()),
            }
        }
        told.ended_ns = monotonic_ns();
        told.outcome = if trouble.is_some() { Outcome::Failed } else { Outcome::Passed };
        told.observed = trouble.or_else(|| Some("ready".to_owned()));
        self.tell(&told);
        if told.outcome == Outcome::Failed { Err(Halt::failed(&told)) } else { Ok(()) }
    }

    /// Harm that neither the run itself did nor its author expects.
    fn unexpected(&self) -> Vec<String> {
        let harmed = lock(&self.harmed);
        let events = self.observer.events();
        let mut found: Vec<String> = events
            .iter()
            .filter(|e| HARM.contains(&e.kind.as_str()) && !self.scenario.warnings.contains(&e.kind))
            .filter(|e| !harmed.contains(&e.subject))
            .map(|e| format!("{} {}", e.kind, e.subject))
            .collect();
        found.dedup();
        found
    }

    /// Programs that the run itself harms: their ends are no surprise.
    pub(super) fn touched(&self, programs: &[String]) {
        lock(&self.harmed).extend(programs.iter().cloned());
    }

    pub(super) fn tell(&self, step: &record::Step) {
        let _ = self.observer.book.send(Entry::Step(step.clone()));
    }

    /// The run has come to this, at least.
    pub(super) fn worst(&self, outcome: Outcome) {
        let mut worst = lock(&self.worst);
        *worst = (*worst).max(outcome);
    }

    /// The run goes no further.
    pub(super) fn halt(&self, halt: Halt) {
        self.halted.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(halt);
            }
            first
        });
    }
}

/// A word as documents have it.
fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

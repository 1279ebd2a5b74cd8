//! Carries a scenario out, step by step.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use scenario::describe;
use scenario::expr::{Condition, Holds};
use scenario::model::{Action, Check, Each, Scenario, Step, Timing};
use scenario::record::{self, Entry, Outcome, Run, Topology, TopologyLink, TopologyNode};
use scenario::vars::{Vars, substitute};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use topologies::lab::Lab;

use super::observe::Observer;
use super::traffic::Flow;
use super::undo::{Undos, take_back};
use super::watch::{Watch, Watches};
use crate::api::frame;
use crate::api::protocol::{Health, Input, Reply, Status};
use crate::api::server::{Reader, Writer};
use crate::failure::{Code, Failure, from_error};
use crate::selection;
use crate::supervise::events::monotonic_ns;
use crate::supervise::world::World;

/// Distance between two looks of a step that waits.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for the first packets of traffic to arrive.
const FIRST_PACKETS: Duration = Duration::from_secs(20);
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

    fn broken(reason: impl Into<String>) -> Self {
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
    halted: watch::Sender<Option<Halt>>,
    worst: Mutex<Outcome>,
    /// Programs, `node/program`, that the run itself has harmed.
    harmed: Mutex<BTreeSet<String>>,
    /// Faults that are to be taken back at a time.
    timed: Mutex<JoinSet<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
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

    /// Steps one after the other. `round` is added to their numbers.
    async fn sequence(
        self: &Arc<Self>,
        steps: &[Step],
        round: &str,
        vars: &mut Vars,
        start: Instant,
    ) -> Result<(), Halt> {
        for step in steps {
            self.step(step, round, vars, start).await?;
        }
        Ok(())
    }

    /// A step, told from its begin to its end. Boxed, because steps have steps in them.
    fn step<'a>(
        self: &'a Arc<Self>,
        step: &'a Step,
        round: &'a str,
        vars: &'a mut Vars,
        start: Instant,
    ) -> BoxFuture<'a, Result<(), Halt>> {
        async move {
            let place = Place { id: format!("{}{round}", step.id) };
            let action = describe::step(step, vars);
            let mut told = record::Step {
                id: place.id.clone(),
                name: step.name.clone().unwrap_or_else(|| action.clone()),
                action,
                line: step.line,
                began_ns: monotonic_ns(),
                ..record::Step::default()
            };
            self.tell(&told);
            let result = self.timed_step(step, &place, round, (vars, start), &mut told).await;
            let watched = matches!(step.action, Action::Check { how: Check::Never | Check::Eventually, .. });
            if watched && result.is_ok() {
                // the watch tells its end itself
                return Ok(());
            }
            self.step_ended(step, told, result)
        }
        .boxed()
    }

    fn step_ended(
        &self,
        step: &Step,
        mut told: record::Step,
        result: Result<Outcome, Halt>,
    ) -> Result<(), Halt> {
        told.ended_ns = monotonic_ns();
        match &result {
            Ok(outcome) => told.outcome = *outcome,
            Err(halt) => {
                told.outcome = halt.outcome;
                told.observed.get_or_insert_with(|| halt.reason.clone());
            }
        }
        self.worst(told.outcome);
        self.tell(&told);
        result.map(drop).map_err(|halt| match step.action {
            // the innermost step that failed is the one to name
            Action::Parallel(_) | Action::Repeat(..) | Action::Each { .. } | Action::Steps(_) => halt,
            _ => Halt { outcome: halt.outcome, ..Halt::failed(&told) },
        })
    }

    /// Waits for a step's time, and does it.
    async fn timed_step(
        self: &Arc<Self>,
        step: &Step,
        place: &Place,
        round: &str,
        (vars, start): (&mut Vars, Instant),
        told: &mut record::Step,
    ) -> Result<Outcome, Halt> {
        match &step.timing {
            Timing::Next => {}
            Timing::At(at) => tokio::time::sleep_until(start + *at).await,
            Timing::After(after) => tokio::time::sleep(*after).await,
            Timing::When(condition, within) => {
                told.expected = Some(format!("{condition} within {within:?}, to begin"));
                let condition = self.condition(condition, vars)?;
                let (outcome, observed) = self.expect(&condition, *within, Duration::ZERO).await;
                if outcome == Outcome::Failed {
                    told.observed = Some(observed.clone());
                    return Err(Halt { outcome, reason: observed });
                }
                told.expected = None;
            }
        }
        match &step.action {
            Action::Check { condition, how } => self.check(step, condition, *how, vars, told).await,
            Action::Wait(time) => {
                tokio::time::sleep(*time).await;
                Ok(Outcome::Passed)
            }
            Action::Parallel(_) | Action::Repeat(..) | Action::Each { .. } | Action::Steps(_) => {
                self.group(&step.action, round, vars, start).await.map(|()| Outcome::Passed)
            }
            Action::Send(names) => {
                self.send(names).await.map_err(|why| Halt::broken(format!("{}", from_error(&why))))?;
                self.silence_later(step, names);
                Ok(Outcome::Passed)
            }
            Action::Silence(names) => {
                self.silence(names).await.map_err(|why| Halt::broken(format!("{}", from_error(&why))))?;
                Ok(Outcome::Passed)
            }
            action => {
                told.notes = self.act(action, place, vars).await.map_err(|why| {
                    let failure = from_error(&why);
                    let outcome = if failure.code == Code::Failed || failure.code == Code::TimedOut {
                        Outcome::Failed
                    } else {
                        Outcome::Broken
                    };
                    Halt { outcome, reason: failure.to_string() }
                })?;
                if let Some(hold) = step.hold {
                    self.take_back_after(hold, place.id.clone());
                }
                Ok(Outcome::Passed)
            }
        }
    }

    async fn group(
        self: &Arc<Self>,
        action: &Action,
        round: &str,
        vars: &mut Vars,
        start: Instant,
    ) -> Result<(), Halt> {
        match action {
            Action::Parallel(steps) => {
                let mut own: Vec<Vars> = steps.iter().map(|_| vars.clone()).collect();
                let each = steps.iter().zip(&mut own).map(|(step, vars)| self.step(step, round, vars, start));
                let done = join_all(each).await.into_iter().collect();
                vars.extend(own.into_iter().flatten());
                done
            }
            Action::Steps(steps) => self.sequence(steps, round, vars, start).await,
            Action::Repeat(times, steps) => {
                for number in 1..=*times {
                    self.sequence(steps, &format!("{round}@{number}"), vars, Instant::now()).await?;
                }
                Ok(())
            }
            Action::Each { what, name, steps } => {
                for (number, value) in (1..).zip(self.each(what, vars)?) {
                    vars.insert(name.clone(), value);
                    self.sequence(steps, &format!("{round}@{number}"), vars, start).await?;
                }
                vars.remove(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn each(&self, what: &Each, vars: &Vars) -> Result<Vec<String>, Halt> {
        let broken = |why: String| Halt::broken(why);
        let lab = self.world.lab().map_err(|why| broken(format!("{why:#}")))?;
        let filled = |text: &str| Self::filled(text, vars).map_err(|why| broken(format!("{why:#}")));
        match what {
            Each::Links(text) => {
                selection::links(&lab, &filled(text)?).map_err(|why| broken(why.to_string()))
            }
            Each::Nodes(text) => {
                selection::nodes(&lab, &filled(text)?).map_err(|why| broken(why.to_string()))
            }
            Each::Planes(planes) => Ok(planes.iter().map(ToString::to_string).collect()),
        }
    }

    async fn check(
        &self,
        step: &Step,
        condition: &str,
        how: Check,
        vars: &Vars,
        told: &mut record::Step,
    ) -> Result<Outcome, Halt> {
        let text = Self::filled(condition, vars).map_err(|why| Halt::broken(format!("{why:#}")))?;
        let condition = self.condition(condition, vars)?;
        match how {
            Check::Expect { within, stable_for } => {
                let mut expected = text;
                if within > Duration::ZERO {
                    expected += &format!(" within {within:?}");
                }
                if stable_for > Duration::ZERO {
                    expected += &format!(", for {stable_for:?} without a break");
                }
                told.expected = Some(expected);
                let (outcome, observed) = self.expect(&condition, within, stable_for).await;
                told.observed = Some(observed.clone());
                if outcome == Outcome::Failed { Err(Halt { outcome, reason: observed }) } else { Ok(outcome) }
            }
            Check::Never | Check::Eventually => {
                let word = if how == Check::Never { "never" } else { "eventually" };
                told.expected = Some(format!("{word} {text}"));
                self.tell(told);
                let hold = step.hold.map(|hold| u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX));
                let until_ns = hold.map_or(0, |hold| monotonic_ns().saturating_add(hold));
                self.watches.add(Watch { step: told.clone(), condition, how, until_ns });
                Ok(Outcome::Running)
            }
        }
    }

    /// Waits for a condition to hold, and to go on holding; how it went, and what was seen last.
    async fn expect(
        &self,
        condition: &Condition,
        within: Duration,
        stable_for: Duration,
    ) -> (Outcome, String) {
        let began = Instant::now();
        let mut since: Option<Instant> = None;
        loop {
            let asked = Instant::now();
            let seen = condition.ask(&self.observer.facts(condition.needs()).await);
            let in_time = asked.duration_since(began) < within || within == Duration::ZERO;
            match seen.holds {
                Holds::Yes | Holds::TooClose => {
                    let first = *since.get_or_insert(asked);
                    if first.elapsed() >= stable_for {
                        let close = seen.holds == Holds::TooClose;
                        return (if close { Outcome::Warned } else { Outcome::Passed }, seen.observed);
                    }
                }
                Holds::No => {
                    let broke = since.take().is_some();
                    if within == Duration::ZERO || !in_time {
                        let how = if broke { "it held, and then: " } else { "" };
                        return (Outcome::Failed, format!("{how}{}", seen.observed));
                    }
                }
            }
            tokio::select! {
                () = self.observer.news.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn condition(&self, text: &str, vars: &Vars) -> Result<Condition, Halt> {
        let text = Self::filled(text, vars).map_err(|why| Halt::broken(format!("{why:#}")))?;
        let lab = self.world.lab().map_err(|why| Halt::broken(format!("{why:#}")))?;
        let traffic: Vec<String> = self.scenario.traffic.keys().cloned().collect();
        Condition::parse(&text, &lab, &traffic)
            .map_err(|bad| Halt::broken(format!("`{text}`: {} ({})", bad.message, bad.hint)))
    }

    /// Text with names filled in.
    pub(super) fn filled(text: &str, vars: &Vars) -> anyhow::Result<String> {
        substitute(text, vars).map_err(|name| anyhow::anyhow!("nothing is called `${name}` yet"))
    }

    /// Begins traffic, and waits until the first of its packets have arrived.
    async fn send(&self, names: &[String]) -> anyhow::Result<()> {
        let lab = self.world.lab()?;
        for name in names {
            let Some(traffic) = self.scenario.traffic.get(name) else { continue };
            let flow = Flow::begin(&lab, name, traffic)?;
            let mut flows = lock(&self.observer.flows);
            flows.retain(|old| old.name != *name || old.goes_on());
            flows.push(flow);
        }
        let began = Instant::now();
        loop {
            let silent: Vec<String> = {
                let mut flows = lock(&self.observer.flows);
                flows.iter_mut().for_each(Flow::look);
                let mute = |flow: &&Flow| names.contains(&flow.name) && flow.received() == 0;
                flows.iter().filter(mute).map(|flow| flow.name.clone()).collect()
            };
            if silent.is_empty() {
                return Ok(());
            }
            let message = format!("no packet of {} has arrived", silent.join(", "));
            if began.elapsed() > FIRST_PACKETS {
                return Err(Failure::new(Code::TimedOut, message).into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends traffic and waits until its last packets have arrived or been given up.
    async fn silence(&self, names: &[String]) -> anyhow::Result<()> {
        for name in names {
            let handle = {
                let mut flows = lock(&self.observer.flows);
                flows.iter_mut().find(|flow| flow.name == *name && flow.goes_on()).and_then(Flow::end)
            };
            let Some(handle) = handle else { continue };
            let report = tokio::task::spawn_blocking(move || handle.stop()).await??;
            let mut flows = lock(&self.observer.flows);
            if let Some(flow) = flows.iter_mut().rev().find(|flow| flow.name == *name) {
                flow.ended(report);
                let _ = self.observer.book.send(Entry::Traffic(flow.record()));
            }
        }
        Ok(())
    }

    fn silence_later(self: &Arc<Self>, step: &Step, names: &[String]) {
        let Some(hold) = step.hold else { return };
        let (engine, names) = (Arc::clone(self), names.to_vec());
        lock(&self.timed).spawn(async move {
            tokio::time::sleep(hold).await;
            if let Err(why) = engine.silence(&names).await {
                engine.halt(Halt::broken(format!("{}", from_error(&why))));
            }
        });
    }

    fn take_back_after(self: &Arc<Self>, hold: Duration, step: String) {
        let engine = Arc::clone(self);
        lock(&self.timed).spawn(async move {
            tokio::time::sleep(hold).await;
            let Some(undo) = engine.undos.take(&step) else { return };
            if let Err(why) = take_back(&engine.world, undo, &engine.observer.book).await {
                engine
                    .halt(Halt::broken(format!("step {step} could not be taken back: {}", from_error(&why))));
            }
        });
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

    fn tell(&self, step: &record::Step) {
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

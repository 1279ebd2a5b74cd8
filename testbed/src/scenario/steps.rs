//! The steps of a run: when they begin, what they wait for, the steps within them, and the traffic they begin and end.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use scenario::describe;
use scenario::expr::{Condition, Holds};
use scenario::model::{Action, Check, Each, Step, Timing};
use scenario::record::{self, Entry, Outcome};
use scenario::vars::{Vars, substitute};
use tokio::time::Instant;

use super::engine::{Engine, Halt, Place, lock};
use super::traffic::Flow;
use super::undo::take_back;
use super::watch::Watch;
use crate::failure::{Code, Failure, from_error};
use crate::selection;
use crate::supervise::events::monotonic_ns;

/// Distance between two looks of a step that waits.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for the first packets of traffic to arrive.
const FIRST_PACKETS: Duration = Duration::from_secs(20);

impl Engine {
    /// Steps one after the other. `round` is added to their numbers.
    pub(super) async fn sequence(
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
    pub(super) async fn send(&self, names: &[String]) -> anyhow::Result<()> {
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
    pub(super) async fn silence(&self, names: &[String]) -> anyhow::Result<()> {
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
}

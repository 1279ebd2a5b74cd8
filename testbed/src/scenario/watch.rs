//! What must never hold, or hold once, while a run goes on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scenario::expr::{Condition, Holds, Needs};
use scenario::model::Check;
use scenario::record::{Entry, Outcome, Step};

use super::engine::{Engine, Halt};
use crate::supervise::events::monotonic_ns;

/// Distance between two looks.
const LOOK: Duration = Duration::from_millis(300);

/// A condition that is watched.
pub struct Watch {
    /// As the record has it.
    pub step: Step,
    /// What.
    pub condition: Condition,
    /// Never, or eventually.
    pub how: Check,
    /// Until when, CLOCK_MONOTONIC nanoseconds; to the end if 0.
    pub until_ns: u64,
}

/// Conditions that are watched.
#[derive(Default)]
pub struct Watches(Mutex<Vec<Watch>>);

impl Watches {
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Watch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches one more.
    pub fn add(&self, watch: Watch) {
        self.list().push(watch);
    }

    fn needs(&self) -> Option<Needs> {
        self.list().iter().map(|watch| watch.condition.needs()).reduce(Needs::and)
    }
}

impl Engine {
    /// Looks at what is watched until aborted; the first violation halts the run.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.observer.news.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            if let Some(halt) = self.look_at_watches(false).await {
                self.halt(halt);
                return;
            }
        }
    }

    /// Looks once; at the end, what is left is decided. Says what halts the run.
    pub(super) async fn look_at_watches(&self, at_end: bool) -> Option<Halt> {
        let needs = self.watches.needs()?;
        let facts = self.observer.facts(needs).await;
        let now = monotonic_ns();
        let mut halt = None;
        self.watches.list().retain_mut(|watch| {
            let seen = watch.condition.ask(&facts);
            // a packet that is merely late looks lost until its traffic has ended
            let final_only = watch.condition.needs().traffic && watch.how == Check::Never;
            if final_only && !at_end {
                return true;
            }
            let over = at_end || (watch.until_ns != 0 && now >= watch.until_ns);
            let outcome = match (watch.how, seen.holds) {
                (Check::Never, Holds::Yes) => Outcome::Failed,
                (Check::Never | Check::Eventually, Holds::TooClose) if over => Outcome::Warned,
                (Check::Never, _) if over => Outcome::Passed,
                (Check::Eventually, Holds::Yes) => Outcome::Passed,
                (Check::Eventually, _) if over => Outcome::Failed,
                _ => return true,
            };
            watch.step.outcome = outcome;
            watch.step.ended_ns = now;
            watch.step.observed = Some(seen.observed.clone());
            let _ = self.observer.book.send(Entry::Step(watch.step.clone()));
            self.worst(outcome);
            if outcome == Outcome::Failed {
                halt.get_or_insert_with(|| Halt::failed(&watch.step));
            }
            false
        });
        halt
    }
}

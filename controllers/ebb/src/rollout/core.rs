//! What comes next: pushing, watching, confirming, and going back. A value that is told what came of its orders.

use std::collections::{BTreeMap, BTreeSet};

use super::config::RolloutConfig;
use super::detect::{Detector, Look};

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;
/// Looks in a row that must find the network as it was.
const SURE: u32 = 2;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Look at all routers once the time has come; then [`Rollout::looked`].
    Look,
    /// Push to these; then [`Rollout::pushed`].
    Push(Vec<String>),
    /// Tell these that they may keep it; then [`Rollout::confirmed`].
    Confirm(Vec<String>),
    /// Have these go back to a version; then look again.
    Rollback(Vec<(String, u64)>),
    /// Nothing: it is over.
    End(Verdict),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All routers have the change and keep it.
    Done,
    /// It did harm and was undone. Times since the push that did it, milliseconds.
    RolledBack {
        /// When it was noticed.
        detected_ms: u64,
        /// When all routers had their old configuration again.
        undone_ms: u64,
        /// When the network was as before.
        recovered_ms: u64,
    },
    /// Nothing was changed: why.
    Refused(String),
    /// It was undone where that was possible, and the network is not as it was: what is missing.
    NotRecovered(String),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `baseline`, `pushed`, `alarm`, `kept`, `undone`, `recovered`.
    pub kind: &'static str,
    /// What.
    pub detail: String,
}

fn notice(kind: &'static str, detail: impl Into<String>) -> Notice {
    Notice { kind, detail: detail.into() }
}

/// What a push did to a router: versions before and after, or why not.
pub type Pushed = Result<(u64, u64), NotPushed>;

/// A push that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotPushed {
    /// Whether the change was sent: then the router may have it nevertheless.
    pub sent: bool,
    /// Why.
    pub why: String,
}

#[derive(Debug)]
enum Phase {
    /// Looking at the network as it is.
    Before(Option<(u64, Look)>),
    Push,
    Watch {
        until: u64,
    },
    Confirm,
    /// Undoing, since when; when all were back; how often it looked as before; whether the next is a look.
    Undo {
        detected: u64,
        undone: Option<u64>,
        good: u32,
        look: bool,
        last: Look,
    },
    Over(Verdict),
}

/// A rollout.
#[derive(Debug)]
pub struct Rollout {
    config: RolloutConfig,
    stages: Vec<Vec<String>>,
    stage: usize,
    phase: Phase,
    detector: Option<Detector>,
    /// When the first push of the current stage was sent.
    began: u64,
    /// Routers that (may) have the change, with the version that ran before.
    touched: BTreeMap<String, u64>,
    missing: String,
}

impl Rollout {
    /// Nothing is done yet.
    pub fn new(config: RolloutConfig) -> Self {
        let stages = config.stages();
        Self {
            config,
            stages,
            stage: 0,
            phase: Phase::Before(None),
            detector: None,
            began: 0,
            touched: BTreeMap::new(),
            missing: String::new(),
        }
    }

    /// What to do next.
    pub fn order(&self) -> Order {
        let stage = || self.stages.get(self.stage).cloned().unwrap_or_default();
        match &self.phase {
            Phase::Push => Order::Push(stage()),
            Phase::Confirm => Order::Confirm(stage()),
            Phase::Undo { look: false, last, .. } => {
                let answering = |router: &String| last.get(router).copied().flatten().is_some();
                let back = self.changed(last).into_iter().filter(|(router, _)| answering(router)).collect();
                Order::Rollback(back)
            }
            Phase::Before(_) | Phase::Watch { .. } | Phase::Undo { .. } => Order::Look,
            Phase::Over(verdict) => Order::End(verdict.clone()),
        }
    }

    /// A look at the network.
    pub fn looked(&mut self, now: u64, look: Look) -> Vec<Notice> {
        match std::mem::replace(&mut self.phase, Phase::Push) {
            Phase::Before(None) => {
                self.phase = Phase::Before(Some((now, look)));
                Vec::new()
            }
            Phase::Before(Some(first)) => self.compare_with(&first, &(now, look)),
            Phase::Watch { until } => self.watched(now, until, look),
            Phase::Undo { detected, undone, good, .. } => self.undoing(now, (detected, undone, good), look),
            other => {
                self.phase = other;
                Vec::new()
            }
        }
    }

    fn compare_with(&mut self, first: &(u64, Look), second: &(u64, Look)) -> Vec<Notice> {
        let planes = self.config.routers.iter().map(|r| (r.name.clone(), r.plane)).collect();
        let waiting = second.1.iter().find(|(_, sample)| sample.is_some_and(|s| s.unconfirmed));
        if let Some((router, _)) = waiting {
            self.end(Verdict::Refused(format!(
                "a configuration of {router} waits for somebody's confirmation"
            )));
            return Vec::new();
        }
        match Detector::new(self.config.limits.clone(), planes, first, second) {
            Ok(detector) => {
                self.detector = Some(detector);
                self.phase = Phase::Push;
                let routers = self.config.routers.len();
                let stages = self.stages.len();
                vec![notice("baseline", format!("{routers} routers, {stages} stages"))]
            }
            Err(why) => {
                self.end(Verdict::Refused(why));
                Vec::new()
            }
        }
    }

    /// The push of a stage begins.
    pub fn pushing(&mut self, now: u64) {
        self.began = now;
    }

    /// What came of a push. `before`: versions that ran.
    pub fn pushed(
        &mut self,
        now: u64,
        results: BTreeMap<String, Pushed>,
        before: &BTreeMap<String, u64>,
    ) -> Vec<Notice> {
        let stage = self.name();
        let mut failed = Vec::new();
        let total = results.len();
        for (router, result) in results {
            match result {
                Ok((old, new)) if old == new => {}
                Ok((old, _)) => drop(self.touched.insert(router, old)),
                Err(NotPushed { sent, why }) => {
                    if let Some(old) = before.get(&router).filter(|_| sent) {
                        self.touched.insert(router.clone(), *old);
                    }
                    failed.push(format!("{router}: {why}"));
                }
            }
        }
        if let Some(first) = failed.first().filter(|_| self.touched.is_empty()) {
            self.end(Verdict::Refused(first.clone()));
            return Vec::new();
        }
        let detail = format!("{stage}: {} of {total} routers", total - failed.len());
        let mut news = vec![notice("pushed", detail)];
        match failed.first() {
            // a stage that did not get through is no reason to wait for worse
            Some(first) => news.push(self.alarm(now, &format!("{stage}: {first}"))),
            None => self.phase = Phase::Watch { until: now + self.config.soak_ms * MS },
        }
        news
    }

    fn watched(&mut self, now: u64, until: u64, look: Look) -> Vec<Notice> {
        let alarms = self.detector.as_mut().map(|d| d.judge(now, &look)).unwrap_or_default();
        if let Some(first) = alarms.first() {
            let news = self.alarm(now, &format!("plane {}: {}", first.plane, first.detail));
            if let Phase::Undo { last, look: next, .. } = &mut self.phase {
                (*last, *next) = (look, false);
            }
            return vec![news];
        }
        self.phase = if now >= until { Phase::Confirm } else { Phase::Watch { until } };
        Vec::new()
    }

    /// What came of the confirmations.
    pub fn confirmed(&mut self, now: u64, results: &BTreeMap<String, Result<(), String>>) -> Vec<Notice> {
        if let Some((router, Err(why))) = results.iter().find(|(_, result)| result.is_err()) {
            let detail = format!("{}: {router} was not told that it may keep the change: {why}", self.name());
            return vec![self.alarm(now, &detail)];
        }
        let news = vec![notice("kept", format!("{}: {} routers", self.name(), results.len()))];
        self.stage += 1;
        if self.stage < self.stages.len() {
            self.phase = Phase::Push;
        } else {
            self.end(Verdict::Done);
        }
        news
    }

    /// The routers have been told to go back, as far as they answer.
    pub fn rolled_back(&mut self) {
        if let Phase::Undo { look, .. } = &mut self.phase {
            *look = true;
        }
    }

    fn alarm(&mut self, now: u64, detail: &str) -> Notice {
        self.phase = Phase::Undo { detected: now, undone: None, good: 0, look: true, last: Look::new() };
        notice("alarm", format!("{detail} ({:.1} s after the push)", self.seconds(now)))
    }

    fn undoing(
        &mut self,
        now: u64,
        (detected, undone, good): (u64, Option<u64>, u32),
        look: Look,
    ) -> Vec<Notice> {
        let mut news = Vec::new();
        // judged for the rates: what they find is known by now
        let as_before = self.detector.as_mut().map_or(Ok(()), |detector| {
            drop(detector.judge(now, &look));
            detector.as_before(&look)
        });
        let left = self.changed(&look);
        let mut undone = undone;
        if left.is_empty() && undone.is_none() {
            undone = Some(now);
            let touched = self.touched.len();
            news.push(notice(
                "undone",
                format!("{touched} routers, {:.1} s after the push", self.seconds(now)),
            ));
        }
        let good = if undone.is_some() && as_before.is_ok() { good + 1 } else { 0 };
        if let Err(why) = as_before {
            self.missing = why;
        }
        if let Some(undone) = undone
            && good >= SURE
        {
            news.push(notice("recovered", format!("{:.1} s after the push", self.seconds(now))));
            let since = |at: u64| at.saturating_sub(self.began) / MS;
            let verdict = Verdict::RolledBack {
                detected_ms: since(detected),
                undone_ms: since(undone),
                recovered_ms: since(now),
            };
            self.end(verdict);
            return news;
        }
        if now.saturating_sub(detected) > self.config.recover_within_ms * MS {
            let missing = match left.first() {
                Some((router, version)) => format!("{router} does not run version {version}"),
                None => self.missing.clone(),
            };
            self.end(Verdict::NotRecovered(missing));
            return news;
        }
        self.phase = Phase::Undo { detected, undone, good, look: left.is_empty(), last: look };
        news
    }

    /// Routers that are not known to be back, with the version that they had.
    fn changed(&self, look: &Look) -> Vec<(String, u64)> {
        let back = |router: &str, old: u64| {
            look.get(router).copied().flatten().is_some_and(|s| s.version == old && !s.unconfirmed)
        };
        let touched = self.touched.iter().filter(|(router, old)| !back(router, **old));
        touched.map(|(router, old)| (router.clone(), *old)).collect()
    }

    fn end(&mut self, verdict: Verdict) {
        self.phase = Phase::Over(verdict);
    }

    /// What the current stage is called.
    fn name(&self) -> String {
        let names = self.stages.get(self.stage);
        let planes: BTreeSet<u8> = self
            .config
            .routers
            .iter()
            .filter(|r| names.is_some_and(|names| names.contains(&r.name)))
            .map(|r| r.plane)
            .collect();
        let planes: Vec<String> = planes.iter().map(ToString::to_string).collect();
        match (planes.len(), self.stages.len(), self.stage) {
            (1, 2.., 0) => format!("plane {} (canary)", planes.join(", ")),
            (1, ..) => format!("plane {}", planes.join(", ")),
            _ => format!("planes {}", planes.join(", ")),
        }
    }

    #[allow(clippy::cast_precision_loss)] // for people
    fn seconds(&self, now: u64) -> f64 {
        now.saturating_sub(self.began) as f64 / 1e9
    }
}

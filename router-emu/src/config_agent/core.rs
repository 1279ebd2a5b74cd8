//! Which version runs: a value that is told what is wanted and what time it is, and touches nothing.

use std::fmt;

use super::check::{self, Finding};
use super::journal::{Fate, Journal, Version, Waiting};
use crate::config::RouterConfig;

/// Versions that are kept.
pub const KEPT: usize = 16;
/// Who "pushed" a base.
pub const BASE: &str = "base";

/// A point in time, on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Monotonic nanoseconds.
    pub ns: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// A configuration that is to run.
#[derive(Clone, Debug, Default)]
pub struct Push {
    /// The configuration, JSON.
    pub text: String,
    /// Who wants it.
    pub writer: String,
    /// Why.
    pub comment: String,
    /// Version that must run; 0: whichever.
    pub expect: u64,
    /// Nanoseconds in which it has to be confirmed; 0: it has not.
    pub confirm_within: u64,
    /// Only check it.
    pub check_only: bool,
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The configuration is wrong.
    Wrong(Vec<Finding>),
    /// It does not fit to what runs or waits.
    Conflict(String),
    /// There is no such version.
    Unknown(String),
    /// It could not be written down, so it was not begun.
    Unwritten(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(findings) => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Conflict(why) | Self::Unknown(why) | Self::Unwritten(why) => f.write_str(why),
        }
    }
}

/// Something that happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `pushed`, `confirmed`, `rolled_back`, `expired`, `adopted`.
    pub kind: &'static str,
    /// The rest.
    pub detail: String,
}

fn told(kind: &'static str, detail: impl Into<String>) -> Told {
    Told { kind, detail: detail.into() }
}

/// The versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    journal: Journal,
}

impl Core {
    /// Begins with what an earlier life wrote down. A base that has changed becomes a version of its own and runs; a
    /// version that waited for its confirmation over a boot of the machine has waited long enough.
    pub fn start(saved: Option<Journal>, base: RouterConfig, boot: &str, now: Moment) -> (Self, Vec<Told>) {
        let Some(journal) = saved else {
            let journal = Journal {
                boot: boot.to_owned(),
                base: base.clone(),
                versions: Vec::new(),
                running: 0,
                next: 1,
                waiting: None,
                shut: std::collections::BTreeSet::new(),
            };
            let mut core = Self { journal };
            core.run(now, base, BASE, "first start", None);
            return (core, vec![told("adopted", "version 1: the base, at the first start")]);
        };
        let mut core = Self { journal };
        let mut news = Vec::new();
        let rebooted = core.journal.boot != boot;
        boot.clone_into(&mut core.journal.boot);
        if core.journal.base != base {
            core.give_up(Fate::Expired);
            core.journal.base = base.clone();
            let before = core.journal.running;
            core.run(now, base, BASE, "the base has changed", None);
            let detail =
                format!("version {}: the base has changed; {before} ran before", core.journal.running);
            news.push(told("adopted", detail));
        } else if rebooted {
            news.extend(core.expire("the machine was started anew"));
        }
        (core, news)
    }

    /// All versions.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The configuration that runs.
    pub fn running(&self) -> &RouterConfig {
        self.journal.running()
    }

    /// When [`Core::tick`] has something to do.
    pub fn deadline(&self) -> Option<u64> {
        self.journal.waiting.map(|w| w.deadline_ns)
    }

    /// Takes a configuration. One that is no other than the running one is no version.
    ///
    /// # Errors
    /// It is wrong, or does not come at the right time.
    pub fn push(&mut self, now: Moment, push: &Push) -> Result<Vec<Told>, Refusal> {
        let config = check::read(&self.journal.base, &push.text).map_err(Refusal::Wrong)?;
        let running = self.journal.running;
        if push.expect != 0 && push.expect != running {
            return Err(Refusal::Conflict(format!(
                "version {running} runs, not {}: somebody else has changed the configuration; read it again",
                push.expect
            )));
        }
        if let Some(waiting) = self.journal.waiting {
            return Err(Refusal::Conflict(format!(
                "version {running} by {} waits for its confirmation; confirm it or roll back to {} first",
                self.writer(running),
                waiting.back_to
            )));
        }
        if push.check_only || config == *self.running() {
            return Ok(Vec::new());
        }
        let waiting = (push.confirm_within > 0)
            .then(|| Waiting { back_to: running, deadline_ns: now.ns.saturating_add(push.confirm_within) });
        self.run(now, config, &push.writer, &push.comment, waiting);
        let version = self.journal.running;
        let mut detail = format!("version {version} by {}", push.writer);
        if !push.comment.is_empty() {
            detail += &format!(" ({})", push.comment);
        }
        if push.confirm_within > 0 {
            let within = std::time::Duration::from_nanos(push.confirm_within);
            detail += &format!(", to be confirmed within {within:?}");
        }
        Ok(vec![told("pushed", detail)])
    }

    /// The running version may stay. Twice is fine.
    ///
    /// # Errors
    /// Another version runs.
    pub fn confirm(&mut self, version: u64, writer: &str) -> Result<Vec<Told>, Refusal> {
        let running = self.journal.running;
        if version != running {
            return Err(Refusal::Conflict(format!(
                "version {version} cannot be confirmed: {running} runs{}",
                self.journal
                    .version(version)
                    .map_or(String::new(), |v| format!(" ({version} is {})", v.fate.name()))
            )));
        }
        if self.journal.waiting.take().is_none() {
            return Ok(Vec::new());
        }
        self.set_fate(version, Fate::Kept);
        Ok(vec![told("confirmed", format!("version {version} by {writer}"))])
    }

    /// An older version runs again; 0 means the one before the running one.
    ///
    /// # Errors
    /// There is none, or the router has been made anew since.
    pub fn rollback(&mut self, to: u64, writer: &str) -> Result<Vec<Told>, Refusal> {
        let running = self.journal.running;
        let before = || self.journal.version(running).map_or(0, |v| v.after);
        let to = if to == 0 { before() } else { to };
        let Some(version) = self.journal.version(to) else {
            let kept: Vec<String> = self.journal.versions.iter().map(|v| v.number.to_string()).collect();
            return Err(Refusal::Unknown(format!(
                "no version {to} to go back to; kept are {}",
                kept.join(", ")
            )));
        };
        let findings = check::fixed(&self.journal.base, &version.config);
        if !findings.is_empty() {
            return Err(Refusal::Wrong(findings));
        }
        if to == running && self.journal.waiting.is_none() {
            return Ok(Vec::new());
        }
        self.give_up(Fate::RolledBack);
        self.set_fate(running, Fate::RolledBack);
        self.set_fate(to, Fate::Kept);
        self.switch(to);
        Ok(vec![told("rolled_back", format!("version {to} instead of {running}, by {writer}"))])
    }

    /// Goes back if the confirmation has not come in time.
    pub fn tick(&mut self, now_ns: u64) -> Option<Told> {
        self.deadline().filter(|at| *at <= now_ns)?;
        self.expire("it was not confirmed in time")
    }

    fn expire(&mut self, why: &str) -> Option<Told> {
        let waiting = self.journal.waiting?;
        let running = self.journal.running;
        self.give_up(Fate::Expired);
        self.switch(waiting.back_to);
        Some(told("expired", format!("version {} instead of {running}: {why}", waiting.back_to)))
    }

    /// Interfaces that have to be down, and those that have to come up again because no version keeps them down any more.
    pub fn links(&self) -> (Vec<String>, Vec<String>) {
        let down: Vec<String> = disabled(self.running()).map(str::to_owned).collect();
        let up = self.journal.shut.iter().filter(|name| !down.contains(name)).cloned().collect();
        (down, up)
    }

    /// An interface is up again, or does not exist any more.
    pub fn raised(&mut self, interface: &str) {
        self.journal.shut.remove(interface);
    }

    /// Makes a configuration the running version.
    fn run(
        &mut self,
        now: Moment,
        config: RouterConfig,
        writer: &str,
        comment: &str,
        waiting: Option<Waiting>,
    ) {
        let number = self.journal.next;
        self.journal.next += 1;
        self.journal.versions.push(Version {
            number,
            writer: writer.to_owned(),
            comment: comment.to_owned(),
            at_unix_ms: now.unix_ms,
            after: self.journal.running,
            fate: if waiting.is_some() { Fate::Unconfirmed } else { Fate::Kept },
            config,
        });
        self.journal.waiting = waiting;
        self.switch(number);
        while self.journal.versions.len() > KEPT {
            let needed = [Some(number), waiting.map(|w| w.back_to)];
            let oldest = self.journal.versions.iter().position(|v| !needed.contains(&Some(v.number)));
            let Some(oldest) = oldest else { break };
            self.journal.versions.remove(oldest);
        }
    }

    fn switch(&mut self, number: u64) {
        self.journal.running = number;
        let down: Vec<String> = disabled(self.running()).map(str::to_owned).collect();
        self.journal.shut.extend(down);
    }

    /// What waits waits no more.
    fn give_up(&mut self, fate: Fate) {
        if self.journal.waiting.take().is_some() {
            self.set_fate(self.journal.running, fate);
        }
    }

    fn set_fate(&mut self, number: u64, fate: Fate) {
        if let Some(version) = self.journal.versions.iter_mut().find(|v| v.number == number) {
            version.fate = fate;
        }
    }

    fn writer(&self, number: u64) -> &str {
        self.journal.version(number).map_or("", |v| &v.writer)
    }
}

/// Interfaces that a configuration keeps down.
pub fn disabled(config: &RouterConfig) -> impl Iterator<Item = &str> {
    config.interfaces.iter().filter(|i| !i.enabled).map(|i| i.name.as_str())
}

//! The order in which things are written: first the journal, then the interfaces.
//!
//! A change is done once it is in the journal. The interfaces follow with the next [`Driver::tick`], so that whoever wanted
//! the change can be answered over an interface that it takes down.

use super::core::{Core, Refusal, Told};
use super::journal::Journal;

/// What the driver writes to; a second implementation lives in memory, for tests.
pub trait Ports {
    /// Replaces the journal.
    ///
    /// # Errors
    /// It was not replaced.
    fn save(&mut self, journal: &Journal) -> anyhow::Result<()>;
    /// Sets an interface's administrative state; whether it was another one before. One that is gone is as wanted.
    ///
    /// # Errors
    /// The kernel's words.
    fn set_link(&mut self, interface: &str, up: bool) -> anyhow::Result<bool>;
}

/// A core with what it writes to.
#[derive(Debug)]
pub struct Driver<P> {
    core: Core,
    ports: P,
    /// What could not be done yet; empty if all is done.
    problem: String,
    unsaved: bool,
    /// Interfaces are not as the running version says.
    behind: bool,
}

impl<P: Ports> Driver<P> {
    /// Writes down how the core begins, and makes the interfaces so. `news` is added to.
    pub fn start(core: Core, ports: P, news: &mut Vec<Told>) -> Self {
        let mut driver = Self { core, ports, problem: String::new(), unsaved: true, behind: true };
        driver.carry_out(news);
        driver
    }

    /// The core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// What could not be done yet, in words; empty if there was no trouble.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Whether interfaces still have to follow what runs.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// A change by somebody who waits for the answer: it is refused if it cannot be written down.
    ///
    /// # Errors
    /// The core's refusal, or the journal's.
    pub fn change(
        &mut self,
        change: impl FnOnce(&mut Core) -> Result<Vec<Told>, Refusal>,
    ) -> Result<Vec<Told>, Refusal> {
        let before = self.core.clone();
        let news = change(&mut self.core)?;
        if self.core != before {
            if let Err(e) = self.ports.save(self.core.journal()) {
                self.core = before;
                return Err(Refusal::Unwritten(format!("not begun: {e:#}")));
            }
            self.unsaved = false;
            self.behind = true;
        }
        Ok(news)
    }

    /// Does what time demands, lets interfaces follow, and tries again what could not be done. Going back does not depend on a disk that works.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Told> {
        let mut news: Vec<Told> = self.core.tick(now_ns).into_iter().collect();
        if !news.is_empty() {
            (self.unsaved, self.behind) = (true, true);
        }
        if self.unsaved || self.behind {
            self.carry_out(&mut news);
        }
        news
    }

    fn carry_out(&mut self, news: &mut Vec<Told>) {
        let mut problems = Vec::new();
        self.behind = false;
        self.save(&mut problems);
        let (down, up) = self.core.links();
        let version = self.core.journal().running;
        let wanted = down.iter().map(|name| (name, false)).chain(up.iter().map(|name| (name, true)));
        for (name, up) in wanted {
            match self.ports.set_link(name, up) {
                Ok(changed) => {
                    if changed {
                        let state = if up { "up" } else { "down" };
                        let detail = format!("{name} {state} by version {version}");
                        news.push(Told { kind: "interface", detail });
                    }
                    if up {
                        self.core.raised(name);
                        self.unsaved = true;
                    }
                }
                Err(e) => {
                    self.behind = true;
                    problems.push(format!("{e:#}"));
                }
            }
        }
        self.save(&mut problems);
        self.problem = problems.join("; ");
    }

    fn save(&mut self, problems: &mut Vec<String>) {
        if self.unsaved {
            match self.ports.save(self.core.journal()) {
                Ok(()) => self.unsaved = false,
                Err(e) => problems.push(format!("{e:#}")),
            }
        }
    }
}

//! The record of a run: what the engine tells while it goes on ([`Entry`]), and what that adds up to ([`Run`]).
//!
//! All times named `*_ns` are nanoseconds of the world's CLOCK_MONOTONIC, the clock of events and probes; what people
//! read is the time since [`Run::began_ns`].

use serde::{Deserialize, Serialize};

/// Version of [`Run`]. Fields are only ever added; it changes if one is taken away.
pub const VERSION: u32 = 1;

/// How something ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was not reached, because something before it failed.
    Skipped,
    /// It has begun.
    #[default]
    Running,
    /// As expected.
    Passed,
    /// As expected, as far as this machine's timers can tell; or with a warning that the scenario does not name.
    Warned,
    /// Something else was observed than expected.
    Failed,
    /// It could not be carried out.
    Broken,
}

/// What is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    /// Name of the scenario.
    pub name: String,
    /// What it shows, in a sentence or two.
    pub about: String,
    /// Numbers of the rows of the papers' check list that it shows.
    pub shows: Vec<String>,
    /// File as the user named it.
    pub file: String,
}

/// Nodes and links as the report draws them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Nodes by name.
    pub nodes: Vec<TopologyNode>,
    /// Links by name.
    pub links: Vec<TopologyLink>,
}

/// A node of [`Topology`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyNode {
    /// Name.
    pub name: String,
    /// `router`, `aggregator`, `host`.
    pub role: String,
    /// Site.
    pub site: String,
    /// Plane of a router.
    pub plane: Option<u8>,
}

/// A link of [`Topology`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyLink {
    /// Name.
    pub name: String,
    /// One end's node.
    pub a: String,
    /// The other's.
    pub b: String,
    /// `core`, `attach`, `access`.
    pub kind: String,
    /// Plane, if it belongs to one.
    pub plane: Option<u8>,
    /// Capacity of the real network, `400G`.
    pub capacity: String,
    /// Emulated rate of one direction in bit/s; 0 if it is not shaped.
    pub rate_bps: u64,
}

/// A step, or a watch (`never`, `eventually`) that a step began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Number as shown: `3`, `4.2` for the second step within the fourth.
    pub id: String,
    /// The author's name for it; else what it does, in a few words.
    pub name: String,
    /// What it does: `cut eb01.chi--eb01.frc for 5s`, `expect plane:1 state == ready within 10s`.
    pub action: String,
    /// Line of the file, from 1.
    pub line: u64,
    /// When it began.
    pub began_ns: u64,
    /// When it ended; 0 until then.
    pub ended_ns: u64,
    /// How.
    pub outcome: Outcome,
    /// For checks: what was expected.
    pub expected: Option<String>,
    /// For checks: what was observed, last or when it failed.
    pub observed: Option<String>,
    /// What the lab said to it, line by line.
    pub notes: Vec<String>,
}

/// Something broken on purpose, from when to when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Number of the step that made it.
    pub step: String,
    /// `cut`, `impair`, `crash`, `kill`, …
    pub kind: String,
    /// Links, nodes or programs that it hits.
    pub subjects: Vec<String>,
    /// From.
    pub from_ns: u64,
    /// Until it was taken back; 0 while it is in force.
    pub until_ns: u64,
}

/// A stretch of time in which packets of a stream were lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Class.
    pub class: String,
    /// When the first lost packet was sent.
    pub start_ns: u64,
    /// Milliseconds from the first lost packet to the last one, plus one interval between packets.
    pub ms: f64,
    /// Lost packets.
    pub lost: u64,
    /// The event that began it, if one is near enough: index into [`Run::events`].
    pub cause: Option<usize>,
}

/// Traffic of a name, when it has ended or so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Name in the scenario.
    pub name: String,
    /// When it began.
    pub began_ns: u64,
    /// When it ended; 0 while it goes on.
    pub ended_ns: u64,
    /// Packets on the wire.
    pub sent: u64,
    /// That arrived.
    pub received: u64,
    /// That did not.
    pub lost: u64,
    /// That the sending host refused to send.
    pub refused: u64,
    /// The same by class, most important first: class, sent, received, lost.
    pub classes: Vec<(String, u64, u64, u64)>,
    /// Windows of loss, by time.
    pub losses: Vec<Loss>,
    /// What was sent and lost so far at times about a second apart: time, sent, received, lost.
    pub series: Vec<(u64, u64, u64, u64)>,
}

/// How late the machine's own timers were while the run went on, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median.
    pub median_us: u64,
    /// Of a hundred, the latest but one.
    pub p99_us: u64,
    /// The latest.
    pub most_us: u64,
}

/// An event of the lab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened.
    pub at_ns: u64,
    /// `link.cut`, `lsp.repaired`, …
    pub kind: String,
    /// What it is about.
    pub subject: String,
    /// The rest, for people.
    pub detail: String,
}

/// A look at the lab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at_ns: u64,
    /// Planes, ascending.
    pub planes: Vec<PlaneSample>,
    /// Links that are not whole: name, and state or faults.
    pub broken_links: Vec<(String, String)>,
    /// Nodes and programs that do not run as they should: name and state.
    pub broken_programs: Vec<(String, String)>,
    /// What each direction of a core link has sent since its queue was made: sending node, link, bytes by class (most
    /// important first).
    pub sent: Vec<(String, String, [u64; 4])>,
    /// Packets dropped at full queues since the run began, by class.
    pub dropped: [u64; 4],
}

/// A plane in a [`Sample`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneSample {
    /// Number.
    pub plane: u8,
    /// `ready`, `drained`, `degraded`, …
    pub state: String,
    /// LSPs wanted.
    pub wanted: u32,
    /// In the kernels of their sources.
    pub programmed: u32,
    /// Of those, on their backup.
    pub on_backup: u32,
    /// Bytes that entered from the fabric so far.
    pub entered_bytes: u64,
}

/// One failure, from its cause to the first packet that arrives again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// What failed: `cut eb01.chi--eb01.frc`.
    pub failure: String,
    /// When.
    pub at_ns: u64,
    /// What followed, by time: milliseconds after the failure, what (`kernel`, `flood`, `decision`, `restarted`,
    /// `written`, `packets`), where and in words.
    pub points: Vec<(f64, String, String)>,
}

/// A controller cycle that ended during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// Plane.
    pub plane: u8,
    /// When it ended.
    pub ended_ns: u64,
    /// Milliseconds it took.
    pub took_ms: u64,
    /// What it did, for people.
    pub detail: String,
}

/// End of a program's log, for programs that a failed run concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Node.
    pub node: String,
    /// Program.
    pub program: String,
    /// Its last lines.
    pub text: String,
}

/// What the engine tells while a run goes on, in this order for each thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The run begins.
    Began(Box<Run>),
    /// A step begins, or has ended: the whole of it, known by its number.
    Step(Step),
    /// A fault begins, or has ended: known by its step, kind and subjects.
    Fault(Fault),
    /// The lab told something.
    Event(Event),
    /// A look at the lab.
    Sample(Sample),
    /// What traffic has come to, known by its name and start.
    Traffic(Traffic),
    /// A controller cycle.
    Cycle(Cycle),
    /// A program's log.
    Log(Log),
    /// The run is over.
    Ended {
        /// When.
        at_ns: u64,
        /// How.
        outcome: Outcome,
        /// What decided it, if it did not pass: step, expected, observed.
        reason: Option<String>,
        /// The machine's timers meanwhile.
        timers: Lateness,
    },
}

/// A run of a scenario: `run.json` in its folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// Name of its folder, unique on the machine: `20261201-001530-r1-local-repair`.
    pub id: String,
    /// What is run.
    pub title: Title,
    /// Lab.
    pub lab: String,
    /// `host` or `vm`.
    pub carrier: String,
    /// Seed of everything that is chosen at random.
    pub seed: u64,
    /// Milliseconds since the Unix epoch at the start.
    pub began_unix_ms: u64,
    /// Start.
    pub began_ns: u64,
    /// End; 0 until then.
    pub ended_ns: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What decided it, if it did not pass.
    pub reason: Option<String>,
    /// The machine's timers meanwhile.
    pub timers: Lateness,
    /// The lab's nodes and links.
    pub topology: Topology,
    /// Steps and watches in the order in which they began; those never reached at the end.
    pub steps: Vec<Step>,
    /// Faults in the order in which they began.
    pub faults: Vec<Fault>,
    /// Traffic.
    pub traffic: Vec<Traffic>,
    /// Events by time.
    pub events: Vec<Event>,
    /// Looks at the lab by time.
    pub samples: Vec<Sample>,
    /// Timelines of the failures.
    pub timelines: Vec<Timeline>,
    /// Controller cycles by time.
    pub cycles: Vec<Cycle>,
    /// Logs of the programs concerned.
    pub logs: Vec<Log>,
    /// Folder with what else was kept, if the run did not pass.
    pub evidence: Option<String>,
}

/// Replaces the entry that is the same thing, or adds one.
fn put<T>(list: &mut Vec<T>, item: T, same: impl Fn(&T) -> bool) {
    match list.iter().position(same) {
        Some(at) => list[at] = item,
        None => list.push(item),
    }
}

impl Run {
    /// Adds what the engine told.
    pub fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Began(run) => *self = *run,
            Entry::Step(step) => {
                let id = step.id.clone();
                put(&mut self.steps, step, |s| s.id == id);
            }
            Entry::Fault(fault) => {
                let key = (fault.step.clone(), fault.kind.clone(), fault.subjects.clone(), fault.from_ns);
                put(&mut self.faults, fault, |f| {
                    (&f.step, &f.kind, &f.subjects, f.from_ns) == (&key.0, &key.1, &key.2, key.3)
                });
            }
            Entry::Event(event) => {
                // agents tell theirs a moment later than they happen
                let at = self.events.partition_point(|e| e.at_ns <= event.at_ns);
                self.events.insert(at, event);
            }
            Entry::Sample(sample) => self.samples.push(sample),
            Entry::Traffic(traffic) => {
                let key = (traffic.name.clone(), traffic.began_ns);
                put(&mut self.traffic, traffic, |t| t.name == key.0 && t.began_ns == key.1);
            }
            Entry::Cycle(cycle) => self.cycles.push(cycle),
            Entry::Log(log) => self.logs.push(log),
            Entry::Ended { at_ns, outcome, reason, timers } => {
                self.ended_ns = at_ns;
                self.outcome = outcome;
                self.reason = reason;
                self.timers = timers;
            }
        }
    }

    /// Seconds from the start to a time of the run.
    pub fn seconds(&self, at_ns: u64) -> f64 {
        // microseconds fit a double exactly for 285 years
        #[allow(clippy::cast_precision_loss)]
        let us = (at_ns.saturating_sub(self.began_ns) / 1000) as f64;
        us / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_told_twice_is_one_thing_and_events_are_in_order() {
        let mut run = Run::default();
        let step = |outcome| Step { id: "1".into(), outcome, ..Step::default() };
        run.add(Entry::Step(step(Outcome::Running)));
        run.add(Entry::Step(step(Outcome::Passed)));
        assert_eq!(run.steps.iter().map(|s| s.outcome).collect::<Vec<_>>(), [Outcome::Passed]);
        for at_ns in [5, 3, 4] {
            run.add(Entry::Event(Event { at_ns, ..Event::default() }));
        }
        assert_eq!(run.events.iter().map(|e| e.at_ns).collect::<Vec<_>>(), [3, 4, 5]);
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
    }

    #[test]
    fn outcomes_have_an_order_in_which_the_worst_is_last() {
        use Outcome::{Broken, Failed, Passed, Warned};
        assert!(Passed < Warned && Warned < Failed && Failed < Broken);
    }
}

//! Conditions: what steps wait for and check, written as text.
//!
//! ```text
//! plane:1 lsps.on_backup > 0
//! all plane:* state == ready and traffic:gold lost == 0
//! sum queue:* dropped > 0 or not link:srlg:conduit-7 state == up
//! traffic:gold longest_window_ms <= 50ms
//! event:lsp.repaired@eb01.* count >= 1
//! ```
//!
//! A test is `[all|any|no|sum|max|min] SUBJECT FIELD OPERATOR VALUE`; `all` is meant if nothing is said. Subjects with
//! blanks stand in quotes: `link:"plane:2 & kind:core"`. Fields are those of the documents that `status`, `link show`
//! and `compare` print. Tests are joined by `and`, `or`, `not` and parentheses.

mod facts;
mod parse;
mod value;

use topologies::lab::Lab;

pub use facts::{Facts, TrafficFacts, is_called};
use value::Value;

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCondition {
    /// Where in the text, in characters from 0.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

/// A condition that can be asked of facts.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A single test.
    Test(Test),
    /// It must not hold.
    Not(Box<Condition>),
    /// All must hold.
    And(Vec<Condition>),
    /// One must hold.
    Or(Vec<Condition>),
}

/// How the instances of a subject are taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantifier {
    /// The test holds for each, and there is one.
    All,
    /// For one at least.
    Any,
    /// For none.
    No,
    /// For the sum of their values.
    Sum,
    /// For the largest.
    Max,
    /// For the smallest.
    Min,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `contains`: of text or of a list.
    Contains,
}

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// As written.
    pub text: String,
    /// All, any, …
    pub quantifier: Quantifier,
    /// Of what.
    pub subject: Subject,
    /// Path of the field, by its words.
    pub field: Vec<String>,
    /// How.
    pub operator: Operator,
    /// With what.
    pub value: Value,
}

/// What a test is about, with selectors resolved to names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The lab as a whole.
    Lab,
    /// Planes.
    Planes(Vec<u8>),
    /// Links by name.
    Links(Vec<String>),
    /// Nodes by name.
    Nodes(Vec<String>),
    /// Programs of a name (`ebb-controller` means all of that kind), on these nodes or on any.
    Programs {
        /// Name.
        name: String,
        /// Nodes.
        nodes: Option<Vec<String>>,
    },
    /// Traffic of a name, or all of it.
    Traffic(Option<String>),
    /// Queues of a class, or of all, in a plane or in all.
    Queues {
        /// Class.
        class: Option<String>,
        /// Plane.
        plane: Option<u8>,
    },
    /// Events since the run began; both may have `*` and `?`.
    Events {
        /// Kind.
        kind: String,
        /// Subject.
        subject: Option<String>,
    },
    /// Last cycles of planes' controllers.
    Cycles(Vec<u8>),
}

/// Which facts a condition asks for: the engine observes no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The status.
    pub status: bool,
    /// Its counters of queues, too.
    pub queues: bool,
    /// Traffic so far.
    pub traffic: bool,
    /// The controllers' last cycles.
    pub cycles: bool,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// A time decides, and it is nearer to the bound than the machine's timers are exact.
    TooClose,
}

/// Whether a condition holds, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether.
    pub holds: Holds,
    /// The values that decided it: `plane:1 lsps.on_backup is 0`.
    pub observed: String,
}

impl Condition {
    /// Reads a condition; selectors are resolved in `lab`, names of traffic must be among `traffic`.
    pub fn parse(text: &str, lab: &Lab, traffic: &[String]) -> Result<Self, BadCondition> {
        parse::condition(text, lab, traffic)
    }

    /// Asks it of facts.
    pub fn ask(&self, facts: &Facts) -> Seen {
        match self {
            Self::Test(test) => test.ask(facts),
            Self::Not(inner) => {
                let seen = inner.ask(facts);
                let holds = match seen.holds {
                    Holds::Yes => Holds::No,
                    Holds::No => Holds::Yes,
                    Holds::TooClose => Holds::TooClose,
                };
                Seen { holds, ..seen }
            }
            Self::And(parts) => join(parts, facts, Holds::No, Holds::Yes),
            Self::Or(parts) => join(parts, facts, Holds::Yes, Holds::No),
        }
    }

    /// Which facts it asks for.
    pub fn needs(&self) -> Needs {
        match self {
            Self::Test(test) => test.subject.needs(),
            Self::Not(inner) => inner.needs(),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().map(Self::needs).fold(Needs::default(), Needs::and)
            }
        }
    }
}

/// Takes parts together: one that is `decides` decides, else one that is too close leaves it open.
fn join(parts: &[Condition], facts: &Facts, decides: Holds, otherwise: Holds) -> Seen {
    let seen: Vec<Seen> = parts.iter().map(|part| part.ask(facts)).collect();
    let holds = if seen.iter().any(|s| s.holds == decides) {
        decides
    } else if seen.iter().any(|s| s.holds == Holds::TooClose) {
        Holds::TooClose
    } else {
        otherwise
    };
    // those that decide are worth reading
    let telling = seen.iter().filter(|s| s.holds == holds).map(|s| s.observed.as_str());
    Seen { holds, observed: telling.collect::<Vec<_>>().join("; ") }
}

impl Needs {
    /// What either needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            status: self.status || other.status,
            queues: self.queues || other.queues,
            traffic: self.traffic || other.traffic,
            cycles: self.cycles || other.cycles,
        }
    }
}

impl Subject {
    fn needs(&self) -> Needs {
        let none = Needs::default();
        match self {
            Self::Lab | Self::Planes(_) | Self::Links(_) | Self::Nodes(_) | Self::Programs { .. } => {
                Needs { status: true, ..none }
            }
            Self::Queues { .. } => Needs { status: true, queues: true, ..none },
            Self::Traffic(_) => Needs { traffic: true, ..none },
            Self::Cycles(_) => Needs { cycles: true, ..none },
            Self::Events { .. } => none,
        }
    }
}

impl Test {
    fn ask(&self, facts: &Facts) -> Seen {
        let found: Vec<(String, serde_json::Value)> = facts
            .of(&self.subject)
            .into_iter()
            .map(|(name, document)| (name, value::field(&document, &self.field)))
            .collect();
        if found.is_empty() {
            let holds = if self.quantifier == Quantifier::No { Holds::Yes } else { Holds::No };
            return Seen { holds, observed: format!("there is nothing that `{}` is about", self.text) };
        }
        match self.quantifier {
            Quantifier::Sum | Quantifier::Max | Quantifier::Min => self.ask_number(&found, facts),
            _ => self.ask_each(&found, facts),
        }
    }

    /// The instances taken together as one number.
    fn ask_number(&self, found: &[(String, serde_json::Value)], facts: &Facts) -> Seen {
        let numbers = found.iter().filter_map(|(_, value)| value.as_f64());
        let (word, number) = match self.quantifier {
            Quantifier::Sum => ("sum", numbers.sum()),
            Quantifier::Max => ("largest", numbers.fold(f64::MIN, f64::max)),
            _ => ("smallest", numbers.fold(f64::MAX, f64::min)),
        };
        let holds = self.compare(&serde_json::json!(number), facts);
        let field = self.field.join(".");
        Seen { holds, observed: format!("{word} of {field} of {} is {}", found.len(), value::number(number)) }
    }

    /// Each instance on its own.
    fn ask_each(&self, found: &[(String, serde_json::Value)], facts: &Facts) -> Seen {
        let each: Vec<(Holds, String)> = found
            .iter()
            .map(|(name, value)| {
                let observed = format!("{name} {} is {}", self.field.join("."), value::show(value));
                (self.compare(value, facts), observed)
            })
            .collect();
        let (decides, otherwise) = match self.quantifier {
            Quantifier::Any => (Holds::Yes, Holds::No),
            Quantifier::No => (Holds::Yes, Holds::Yes),
            _ => (Holds::No, Holds::Yes),
        };
        let decided = each.iter().any(|(holds, _)| *holds == decides);
        let holds = match self.quantifier {
            Quantifier::No if decided => Holds::No,
            _ if decided => decides,
            _ if each.iter().any(|(holds, _)| *holds == Holds::TooClose) => Holds::TooClose,
            _ => otherwise,
        };
        let telling = |(one, text): &(Holds, String)| (!decided || *one == decides).then(|| text.clone());
        Seen { holds, observed: few(each.iter().filter_map(telling).collect()) }
    }

    fn compare(&self, observed: &serde_json::Value, facts: &Facts) -> Holds {
        let is_time = self.field.last().is_some_and(|field| field.ends_with("_ms"));
        if is_time
            && let (Some(observed), Some(bound)) = (observed.as_f64(), self.value.number())
            && !matches!(self.operator, Operator::Equal | Operator::Unequal)
            && (observed - bound).abs() < facts.lateness_ms
        {
            return Holds::TooClose;
        }
        if value::compare(observed, self.operator, &self.value) { Holds::Yes } else { Holds::No }
    }
}

/// The first few of many observations.
fn few(mut observed: Vec<String>) -> String {
    const SHOWN: usize = 4;
    let more = observed.len().saturating_sub(SHOWN);
    observed.truncate(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    observed.join(", ") + &more
}

#[cfg(test)]
mod tests;

//! From the file's text values to a [`Scenario`]: everything that a scenario can say wrongly although its shape is
//! right, reported together.

mod action;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use topologies::lab::{Lab, LinkKind};
use topologies::parse::{self, At, Given, Place, Text};
use topologies::report::Report;
use topologies::select::Selector;
use topologies::units::Period;
use topologies::{Errors, Problem};

use crate::expr::Condition;
use crate::file::{ScenarioFile, StepEntry};
use crate::model::{Action, Check, Scenario, Step, Timing};
use crate::record::Title;
use crate::vars::{Vars, substitute};
use crate::words::AnyText;

/// Longest wait for a condition if the step says nothing.
pub const WITHIN: Duration = Duration::from_secs(60);
/// Longest wait for the lab to be whole, if the file says nothing.
const SETTLE: Duration = Duration::from_secs(120);
/// Time between two looks at the lab, if the file says nothing.
const SAMPLE: Duration = Duration::from_secs(1);
/// Steps within steps.
const MAX_DEPTH: usize = 8;
/// Longest time that a step may name.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// A scenario that was read, with its lab.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The scenario.
    pub scenario: Scenario,
    /// The lab as the file names it.
    pub lab_name: String,
    /// The lab.
    pub lab: Lab,
    /// What its author should look at.
    pub warnings: Vec<Problem>,
}

/// Reads a scenario; `file` is its name in messages, `find` reads a lab that it names, or says why not.
pub fn load(text: &str, file: &str, find: &dyn Fn(&str) -> Result<Lab, String>) -> Result<Loaded, Errors> {
    let parsed: At<ScenarioFile> = parse::read(text, file).map_err(|problem| Errors(vec![problem]))?;
    let At { value: entry, place } = &parsed;
    let mut report = Report::new(file);
    let name = report.read_needed(&entry.scenario, *place, "scenario", "lab name").map(|name| name.0);
    let about = report.read_needed(&entry.about, *place, "about", "about");
    let shows: Vec<_> = entry.shows.iter().filter_map(|text| report.read(text, "shows")).collect();
    let lab_name = report.read_needed(&entry.lab, *place, "lab", "lab").map(|text| text.0);
    let lab = lab_name.as_ref().and_then(|name| match find(name) {
        Ok(lab) => Some(lab),
        Err(why) => {
            let at = entry.lab.0.as_ref().map_or(*place, |text| text.place);
            let hint = "name a ready-made lab, or a lab file relative to this one";
            report.error(at, format!("the lab `{name}` cannot be had: {why}"), hint);
            None
        }
    });
    let steps = report.need(&entry.steps, *place, "steps");
    let (Some(lab), Some(steps)) = (lab, steps) else {
        return Err(report.finish().err().unwrap_or(Errors(Vec::new())));
    };
    let mut reader = Reader {
        report,
        lab: &lab,
        find,
        traffic: entry.traffic.0.iter().map(|(name, _)| name.raw.clone()).collect(),
        started: BTreeSet::new(),
        names: BTreeSet::new(),
    };
    let sample = reader.time(&entry.sample, "sample").unwrap_or(SAMPLE);
    let settle = reader.time(&entry.settle, "settle").unwrap_or(SETTLE);
    let mut vars = Vars::new();
    let steps = reader.steps(steps, "", &mut vars, 0);
    let traffic = traffic::check(&mut reader, entry);
    let seed = reader.report.whole(&entry.seed, "seed", 1);
    let warnings = entry.warnings.iter().map(|text| text.raw.clone()).collect();
    let found = reader.report.finish()?;
    let title = Title {
        name: name.unwrap_or_default(),
        about: about.map(|text| text.0.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default(),
        shows: shows.into_iter().map(|text| text.0).collect(),
        file: file.to_owned(),
    };
    let scenario = Scenario { title, seed: seed.into(), sample, settle, traffic, warnings, steps };
    Ok(Loaded { scenario, lab_name: lab_name.unwrap_or_default(), lab, warnings: found })
}

/// What is known while a file is read.
struct Reader<'a> {
    report: Report<'a>,
    lab: &'a Lab,
    find: &'a dyn Fn(&str) -> Result<Lab, String>,
    /// Names of traffic.
    traffic: Vec<String>,
    /// Names of traffic that steps begin.
    started: BTreeSet<String>,
    /// Names that steps have given to things.
    names: BTreeSet<String>,
}

impl Reader<'_> {
    /// An optional time of at most a day.
    fn time(&mut self, text: &Given<Text<Period>>, what: &str) -> Option<Duration> {
        let time: Duration = self.report.read_given(text, what)?.into();
        if time > MAX_TIME
            && let Some(text) = &text.0
        {
            self.report.error(text.place, format!("{what}: {} is too long", text.raw), "a day is the most");
        }
        Some(time)
    }

    /// An optional text.
    fn text(&mut self, text: &Given<Text<AnyText>>, what: &str) -> Option<String> {
        self.report.read_given(text, what).map(|text| text.0)
    }

    fn steps(&mut self, entries: &[At<StepEntry>], within: &str, vars: &mut Vars, depth: usize) -> Vec<Step> {
        if depth > MAX_DEPTH
            && let Some(first) = entries.first()
        {
            self.report.error(first.place, "steps are too deep within each other", "write them flatter");
            return Vec::new();
        }
        let mut steps = Vec::new();
        for (number, entry) in (1..).zip(entries) {
            let id = if within.is_empty() { format!("{number}") } else { format!("{within}.{number}") };
            steps.extend(self.step(entry, id, vars, depth));
        }
        steps
    }

    fn step(&mut self, entry: &At<StepEntry>, id: String, vars: &mut Vars, depth: usize) -> Option<Step> {
        let At { value, place } = entry;
        let name = self.text(&value.name, "name");
        let timing = self.timing(value, *place, vars);
        let hold = self.time(&value.hold, "for");
        let action = self.action(entry, &id, vars, depth)?;
        if hold.is_some() && !can_be_held(&action) {
            self.report.error(
                *place,
                "`for` does not go with this step",
                "it says how long a fault lasts (cut, impair, crash, stop, pause, drain, ...) or how long `never` is watched",
            );
        }
        Some(Step { id, name, line: place.line, timing, hold, action })
    }

    fn timing(&mut self, entry: &StepEntry, place: Place, vars: &Vars) -> Timing {
        let at = self.time(&entry.at, "at");
        let after = self.time(&entry.after, "after");
        let when = entry.when.0.as_ref().map(|text| {
            self.condition(text, vars);
            text.raw.clone()
        });
        let said = [at.is_some(), after.is_some(), when.is_some()].into_iter().filter(|s| *s).count();
        if said > 1 {
            self.report.error(place, "a step begins once", "keep one of `at`, `after` and `when`");
        }
        let expects = entry.expect.0.is_some();
        if entry.within.0.is_some() && !expects && when.is_none() {
            self.report.error(place, "`within` says how long to wait for nothing", "add `expect` or `when`");
        }
        if entry.stable_for.0.is_some() && !expects {
            self.report.error(place, "`stable_for` says how long nothing must hold", "add `expect`");
        }
        if expects && when.is_some() && entry.within.0.is_some() {
            let hint = "write them as two steps";
            self.report.error(place, "`within` could be meant for `when` or for `expect`", hint);
        }
        match (at, after, when) {
            (Some(at), ..) => Timing::At(at),
            (_, Some(after), _) => Timing::After(after),
            (.., Some(when)) => {
                let within = if expects { None } else { self.time(&entry.within, "within") };
                Timing::When(when, within.unwrap_or(WITHIN))
            }
            _ => Timing::Next,
        }
    }

    /// Puts in what names could stand for; an unknown one is reported.
    fn filled(&mut self, text: &str, place: Place, vars: &Vars) -> Option<String> {
        match substitute(text, vars) {
            Ok(text) => Some(text),
            Err(unknown) => {
                let known = vars.keys().map(String::as_str);
                let hint = topologies::near::suggestion(&unknown, known);
                let hint = format!("{hint}; `pick` and `for_each` give names (`as: ...`)");
                self.report.error(place, format!("nothing is called `${unknown}` here"), hint);
                None
            }
        }
    }

    /// Checks a condition, with names filled in.
    fn condition(&mut self, text: &Text<AnyText>, vars: &Vars) {
        let Some(_) = self.report.read(text, "condition") else { return };
        let Some(filled) = self.filled(&text.raw, text.place, vars) else { return };
        if let Err(bad) = Condition::parse(&filled, self.lab, &self.traffic) {
            // with names filled in, or folded over lines, places are not those of the file
            let shift = if filled == text.raw { bad.offset as u64 } else { 0 };
            let place = Place { column: text.place.column + shift, ..text.place };
            self.report.error(place, bad.message, bad.hint);
        }
    }

    /// Checks a selector of links or nodes, with names filled in; the text, and the first thing that it selects.
    fn selector(
        &mut self,
        text: &Given<Text<AnyText>>,
        place: Place,
        (what, links): (&str, bool),
        vars: &Vars,
    ) -> Option<(String, String)> {
        let text = self.report.need(text, place, what)?;
        self.select(text, (what, links), vars)
    }

    fn select(
        &mut self,
        text: &Text<AnyText>,
        (what, links): (&str, bool),
        vars: &Vars,
    ) -> Option<(String, String)> {
        let read = self.report.read(text, what)?.0;
        let filled = self.filled(&read, text.place, vars)?;
        let first = filled.parse::<Selector>().and_then(|selector| {
            Ok(if links {
                selector.links(self.lab)?.first().map(|link| link.name.clone())
            } else {
                selector.nodes(self.lab)?.first().map(|node| node.name.clone())
            })
        });
        match first {
            Ok(first) => Some((read, first.unwrap_or_default())),
            Err(bad) => {
                self.report.error(text.place, bad.message, bad.hint);
                None
            }
        }
    }

    /// Gives a name to something; `sample` is one thing that it can stand for.
    fn name(&mut self, text: &Text<crate::words::Name>, sample: String, vars: &mut Vars) -> Option<String> {
        let name = self.report.read(text, "as")?.0;
        if vars.contains_key(&name) && !self.names.contains(&name) {
            self.report.error(text.place, format!("`${name}` has a meaning already"), "choose another name");
        }
        self.names.insert(name.clone());
        vars.insert(name.clone(), sample);
        Some(name)
    }

    /// Some core link of the lab, as what a path's hop could be.
    fn some_link(&self) -> String {
        let core = self.lab.links.iter().find(|link| link.kind == LinkKind::Core);
        core.or(self.lab.links.first()).map(|link| link.name.clone()).unwrap_or_default()
    }
}

/// Whether a step's effect can be taken back after a time.
fn can_be_held(action: &Action) -> bool {
    use crate::model::{LinkFault, ProgramFault, RpcFault};
    match action {
        Action::Link { fault, .. } => !matches!(fault, LinkFault::Flap { .. }),
        Action::Program { fault, .. } => !matches!(fault, ProgramFault::Kill | ProgramFault::Restart),
        Action::Rpc { fault, .. } => *fault != RpcFault::Restore,
        Action::Check { how, .. } => *how == Check::Never,
        Action::Crash(_) | Action::Drain(_) | Action::Send(_) => true,
        _ => false,
    }
}

/// Traffic as the model has it, by name.
type TrafficByName = BTreeMap<String, crate::model::Traffic>;

#[cfg(test)]
mod tests;

//! A run in at most forty lines of a terminal a hundred columns wide.

use super::figures::{count, duration_ns, ms, ns, outcome, plain, share, step_name, step_ns};
use crate::record::{Event, Loss, Outcome, Run, Step};

const COLUMNS: usize = 100;
/// Lines for each part, headings not counted; with headings, blank lines and the end they make forty.
const STEPS: usize = 12;
const CLASSES: usize = 5;
const LOSSES: usize = 4;
const TIMELINES: usize = 4;
/// Stages of a timeline in the order in which one leads to the next.
const STAGES: [&str; 6] = ["kernel", "flood", "decision", "restarted", "written", "packets"];

/// The run for a terminal: outcome, steps, traffic, windows of loss with their causes, timelines, timers; at most 40 lines
/// of at most 100 columns. With `colours`, outcomes are coloured by ANSI sequences.
pub fn text(run: &Run, colours: bool) -> String {
    let mut page = Page { lines: Vec::new(), colours };
    page.head(run);
    page.steps(run);
    page.traffic(run);
    page.losses(run);
    page.timelines(run);
    page.foot(run);
    let mut text = page.lines.join("\n");
    text.push('\n');
    text
}

struct Page {
    lines: Vec<String>,
    colours: bool,
}

/// Cuts text to a width in characters.
fn fit(text: &str, width: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= width {
        return text;
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Breaks text between words into at most `most` lines.
fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in plain(text).split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    let rest = lines.len() > most;
    lines.truncate(most);
    if let (true, Some(last)) = (rest, lines.last_mut()) {
        last.push_str(" …");
    }
    lines.retain(|line| !line.is_empty());
    lines.into_iter().map(|line| fit(&line, width)).collect()
}

/// A page and the width that its escape sequences do not count in.
impl Page {
    fn line(&mut self, text: &str) {
        self.lines.push(fit(text, COLUMNS).trim_end().to_owned());
    }

    fn blank(&mut self) {
        self.lines.push(String::new());
    }

    /// The last line, with the outcome's word at its start in its colour.
    fn paint(&mut self, at: usize, how: Outcome) {
        let colour = match how {
            Outcome::Passed => "32",
            Outcome::Warned | Outcome::Running => "33",
            Outcome::Failed | Outcome::Broken => "31",
            Outcome::Skipped => "2",
        };
        let word = outcome(how);
        if let (true, Some(line)) = (self.colours, self.lines.last_mut())
            && line.get(at..at + word.len()) == Some(word)
        {
            line.replace_range(at..at + word.len(), &format!("\x1b[{colour}m{word}\x1b[0m"));
        }
    }

    fn head(&mut self, run: &Run) {
        let name = if run.title.name.is_empty() { &run.id } else { &run.title.name };
        let what = outcome(run.outcome);
        let took = ns(duration_ns(run));
        self.line(&format!(
            "{what}  {}   lab {}, carrier {}, seed {}, {took}",
            fit(name, 36),
            fit(&run.lab, 16),
            fit(&run.carrier, 6),
            run.seed
        ));
        self.paint(0, run.outcome);
        for line in wrap(&run.title.about, COLUMNS, 1) {
            self.line(&line);
        }
        if let Some(reason) = &run.reason {
            for line in wrap(reason, COLUMNS, 2) {
                self.line(&line);
            }
        }
    }

    fn steps(&mut self, run: &Run) {
        if run.steps.is_empty() {
            return;
        }
        self.blank();
        let shown = telling(&run.steps);
        for step in &shown {
            let began =
                if step.began_ns == 0 { "-".into() } else { format!("{:.2} s", run.seconds(step.began_ns)) };
            let took = step_ns(step).map_or_else(|| "-".to_owned(), ns);
            let observed = step.observed.as_ref().map_or_else(String::new, |o| format!(" -> {}", fit(o, 30)));
            let room = COLUMNS - 38 - observed.chars().count();
            let name = fit(step_name(step), room);
            let state = outcome(step.outcome);
            self.line(&format!(
                "{:>5}  {state:<7}  {began:>9}  {took:>8}  {name}{observed}",
                fit(&step.id, 5)
            ));
            self.paint(7, step.outcome);
        }
        let rest = run.steps.len() - shown.len();
        if rest > 0 {
            self.line(&format!("       and {rest} more"));
        }
    }

    fn traffic(&mut self, run: &Run) {
        let rows = run.traffic.iter().flat_map(|t| t.classes.iter().map(move |class| (t, class)));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return;
        }
        self.blank();
        self.line("TRAFFIC       CLASS           SENT      RECEIVED      LOST     SHARE  WINDOWS   LONGEST");
        for (traffic, (class, sent, received, lost)) in rows.iter().take(CLASSES) {
            let windows = traffic.losses.iter().filter(|l| l.class == *class);
            let longest = windows.clone().map(|l| l.ms).fold(0.0, f64::max);
            let longest = if longest > 0.0 { ms(longest) } else { "-".to_owned() };
            self.line(&format!(
                "{:<12}  {:<8}  {:>10}  {:>12}  {:>8}  {:>8}  {:>7}  {longest:>8}",
                fit(&traffic.name, 12),
                fit(class, 8),
                count(*sent),
                count(*received),
                count(*lost),
                share(*lost, *sent),
                windows.count()
            ));
        }
        if rows.len() > CLASSES {
            self.line(&format!("and {} more", rows.len() - CLASSES));
        }
    }

    fn losses(&mut self, run: &Run) {
        let mut losses: Vec<&Loss> = run.traffic.iter().flat_map(|t| &t.losses).collect();
        if losses.is_empty() {
            return;
        }
        // the longest ones, by time
        losses.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        let all = losses.len();
        losses.truncate(LOSSES);
        losses.sort_by_key(|l| l.start_ns);
        self.blank();
        let which = if all > LOSSES { format!(", the longest of {all}") } else { String::new() };
        self.line(&format!("LOSS AT      LENGTH  LOST  CLASS   STREAM                   BEGAN WITH{which}"));
        for loss in losses {
            let cause = loss.cause.and_then(|i| run.events.get(i));
            self.line(&format!(
                "{:>7.2} s  {:>8}  {:>4}  {:<6}  {:<23}  {}",
                run.seconds(loss.start_ns),
                ms(loss.ms),
                loss.lost,
                fit(&loss.class, 6),
                fit(&format!("{} -> {}", loss.from, loss.to), 23),
                cause.map_or_else(|| "nothing known".to_owned(), cause_words)
            ));
        }
    }

    fn timelines(&mut self, run: &Run) {
        if run.timelines.is_empty() {
            return;
        }
        self.blank();
        self.line("AFTER A FAILURE, UNTIL THE LAST OF EACH STAGE");
        for timeline in run.timelines.iter().take(TIMELINES) {
            let last =
                |stage: &str| timeline.points.iter().rfind(|point| point.1 == stage).map(|point| point.0);
            let stages = STAGES.iter().filter_map(|stage| Some(format!("{stage} {}", short(last(stage)?))));
            let mut stages = stages.collect::<Vec<_>>().join(", ");
            if stages.is_empty() {
                stages.push_str("nothing seen");
            } else {
                stages.push_str(" ms");
            }
            let at = run.seconds(timeline.at_ns);
            self.line(&format!("{at:>6.2} s  {}: {stages}", fit(&timeline.failure, 25)));
        }
        let rest = run.timelines.len().saturating_sub(TIMELINES);
        if rest > 0 {
            self.line(&format!("           and {rest} more"));
        }
    }

    fn foot(&mut self, run: &Run) {
        let timers = run.timers;
        if timers.most_us > 0 {
            self.blank();
            let us = |us: u64| ns(us.saturating_mul(1000));
            self.line(&format!(
                "timers late by {} (median), {} (99 %), {} (most)",
                us(timers.median_us),
                us(timers.p99_us),
                us(timers.most_us)
            ));
        }
        if let Some(evidence) = &run.evidence {
            self.line(&format!("evidence: {evidence}"));
        }
    }
}

/// Milliseconds for a row of them.
fn short(ms: f64) -> String {
    if ms >= 99.95 { format!("{ms:.0}") } else { format!("{ms:.1}") }
}

fn cause_words(event: &Event) -> String {
    format!("{} {}", event.kind, event.subject)
}

/// Steps that fit: all of them, or those that tell most, in their order.
fn telling(steps: &[Step]) -> Vec<&Step> {
    if steps.len() <= STEPS {
        return steps.iter().collect();
    }
    let weight = |step: &Step| match step.outcome {
        Outcome::Broken | Outcome::Failed => 0,
        Outcome::Warned | Outcome::Running => 1,
        Outcome::Passed if step.expected.is_some() => 2,
        Outcome::Passed => 3,
        Outcome::Skipped => 4,
    };
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|&i| (weight(&steps[i]), i));
    order.truncate(STEPS);
    order.sort_unstable();
    order.into_iter().map(|i| &steps[i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_sample() {
        insta::assert_snapshot!(text(&sample::run(), false));
    }

    #[test]
    fn it_always_fits_and_never_drives_the_terminal() {
        for run in [sample::run(), sample::hostile(), sample::crowded(), Run::default()] {
            let text = text(&run, false);
            assert!(text.lines().count() <= 40, "{} lines", text.lines().count());
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS, "{line}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }

    #[test]
    fn colours_are_of_outcomes_only() {
        let run = sample::run();
        let painted = text(&run, true);
        assert!(painted.starts_with("\x1b[31mfailed\x1b[0m"), "{painted:?}");
        let mut plain = painted;
        for code in ["31", "32", "33", "2", "0"] {
            plain = plain.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(plain, text(&run, false));
    }
}

//! What the words of events mean: their kinds, subjects and details.

use crate::record::{Event, Topology, TopologyLink};

/// Whether something breaks with an event.
pub fn breaks(event: &Event) -> bool {
    match event.kind.as_str() {
        "link.cut" | "member.cut" | "node.crashed" | "kernel.deleted" => true,
        // also told when the harm is taken back: then it is of no kind
        "link.impaired" => !event.detail.trim_end().ends_with(':'),
        kind => of_program(kind),
    }
}

/// Kinds of events with which a program ceases to do its work.
pub fn of_program(kind: &str) -> bool {
    matches!(kind, "program.exited" | "program.failed" | "program.stopped" | "program.paused")
}

/// Whether an event about `subject` is about `hit` or a part of it: a link's member, a node's program.
pub fn is_part_of(subject: &str, hit: &str) -> bool {
    subject.strip_prefix(hit).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ' ']))
}

/// Whether a subject is a node, a link or a part of one, as far as the record tells what there is.
pub fn is_there(topology: &Topology, subject: &str) -> bool {
    let mut names = topology.nodes.iter().map(|n| &n.name).chain(topology.links.iter().map(|l| &l.name));
    topology.nodes.is_empty() || names.any(|name| is_part_of(subject, name))
}

/// Links that a fault of this subject takes along: the link itself, or all of a node's.
pub fn links_of<'a>(topology: &'a Topology, subject: &'a str) -> impl Iterator<Item = &'a TopologyLink> {
    topology.links.iter().filter(move |link| {
        is_part_of(subject, &link.name) || is_part_of(subject, &link.a) || is_part_of(subject, &link.b)
    })
}

/// Name of the link that has this end: `eb01.chi--eb01.frc.2` for `eb01.frc/to-chi.2`.
pub fn link_at(endpoint: &str) -> Option<String> {
    let (router, interface) = endpoint.split_once('/')?;
    let (device, _) = router.split_once('.')?;
    let far = interface.strip_prefix("to-")?;
    let (site, parallel) = far.split_once('.').map_or((far, None), |(site, nth)| (site, Some(nth)));
    let other = format!("{device}.{site}");
    let (a, b) = if *router < *other { (router, &*other) } else { (&*other, router) };
    Some(parallel.map_or_else(|| format!("{a}--{b}"), |nth| format!("{a}--{b}.{nth}")))
}

/// What an lsp-agent said, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Said<'a> {
    /// What comes before the bracket.
    pub text: &'a str,
    /// Bundles concerned.
    pub bundles: Option<u64>,
    /// Writes to the kernel.
    pub writes: Option<u64>,
    /// How long it took, nanoseconds.
    pub took_ns: Option<u64>,
}

/// Takes `12 writes (4 bundles, took 3.1 ms)` apart.
pub fn said(detail: &str) -> Said<'_> {
    let (text, bracket) = detail.rsplit_once(" (").unwrap_or((detail, ""));
    let bracket = bracket.trim_end_matches(')');
    let number_before = |text: &str, word: &str| {
        let before = text.split(word).next().filter(|before| before.len() < text.len())?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Said {
        text,
        bundles: number_before(bracket, " bundles"),
        writes: number_before(text, " writes"),
        took_ns: bracket.split_once("took ").and_then(|(_, took)| duration_ns(took)),
    }
}

/// Nanoseconds of `3.1 ms`.
fn duration_ns(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let scale = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * scale;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole nanoseconds of at most a day
    (0.0..8.64e13).contains(&ns).then_some(ns as u64)
}

/// A few of many names: `a, b and 3 more`.
pub fn few(names: &[&str]) -> String {
    let (shown, rest) = names.split_at(names.len().min(2));
    let shown = shown.join(", ");
    if rest.is_empty() { shown } else { format!("{shown} and {} more", rest.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_taken_apart() {
        let whole = said("12 writes (4 bundles, took 3.1 ms)");
        assert_eq!(
            whole,
            Said { text: "12 writes", bundles: Some(4), writes: Some(12), took_ns: Some(3_100_000) }
        );
        let down = said("eb01.chi/to-frc (9 bundles)");
        assert_eq!((down.text, down.bundles, down.took_ns), ("eb01.chi/to-frc", Some(9), None));
        assert_eq!(said("at start; 7 writes (9 bundles, took 1.2 s)").writes, Some(7));
        assert_eq!(said("(").text, "(");
        assert_eq!(said("took 5 (took 1e300 s)").took_ns, None);
    }

    #[test]
    fn an_end_is_of_a_link() {
        assert_eq!(link_at("eb01.frc/to-chi").as_deref(), Some("eb01.chi--eb01.frc"));
        assert_eq!(link_at("eb01.chi/to-frc.2").as_deref(), Some("eb01.chi--eb01.frc.2"));
        assert_eq!(link_at("endpoint 7"), None);
    }

    #[test]
    fn parts_belong_to_the_whole_and_namesakes_do_not() {
        assert!(is_part_of("a--b member 2", "a--b") && is_part_of("eb01.prn/bird", "eb01.prn"));
        assert!(!is_part_of("a--b.2", "a--b"));
    }
}

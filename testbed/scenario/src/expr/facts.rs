//! What conditions are asked of.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use topologies::select::glob;

use super::Subject;
use crate::record::Event;

/// Traffic of a name so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficFacts {
    /// Packets on the wire.
    pub sent: u64,
    /// That arrived.
    pub received: u64,
    /// That did not.
    pub lost: u64,
    /// That the sending hosts refused to send.
    pub refused: u64,
    /// Changes of the path by which packets of a flow came.
    pub path_changes: u64,
    /// Windows of loss.
    pub windows: u64,
    /// Milliseconds of the longest of them.
    pub longest_window_ms: f64,
    /// The same of single classes.
    pub classes: BTreeMap<String, TrafficFacts>,
}

impl TrafficFacts {
    fn document(&self) -> Value {
        let percent = |part: u64| {
            // counts of packets are far below 2^53
            #[allow(clippy::cast_precision_loss)]
            let (part, whole) = (part as f64, self.sent as f64);
            if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
        };
        let mut document = json!({
            "sent": self.sent, "received": self.received, "lost": self.lost, "refused": self.refused,
            "lost_percent": percent(self.lost), "windows": self.windows, "path_changes": self.path_changes,
            "longest_window_ms": self.longest_window_ms,
        });
        for (class, facts) in &self.classes {
            document[class] = facts.document();
        }
        document
    }
}

/// What was observed. Whatever no condition needs may be left empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The document of `status --format json`.
    pub status: Value,
    /// Packets, bytes and drops of queues when the run began, by plane and class; taken off what `status` says.
    pub queues_before: BTreeMap<(u8, String), [u64; 3]>,
    /// Traffic by name.
    pub traffic: BTreeMap<String, TrafficFacts>,
    /// Events since the run began.
    pub events: Vec<Event>,
    /// Start of the run, nanoseconds.
    pub began_ns: u64,
    /// The document of `compare --format json`.
    pub cycles: Value,
    /// By how much times may be wrong.
    pub lateness_ms: f64,
}

fn list<'a>(document: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    document[field].as_array().into_iter().flatten()
}

fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap_or_default()
}

impl Facts {
    /// The instances of a subject: how each is called, and its document.
    pub(super) fn of(&self, subject: &Subject) -> Vec<(String, Value)> {
        match subject {
            Subject::Lab => vec![("lab".to_owned(), self.status.clone())],
            Subject::Planes(planes) => Self::planes(&self.status, "plane", planes),
            Subject::Cycles(planes) => Self::planes(&self.cycles, "cycle", planes),
            Subject::Links(names) => self.named("links", names),
            Subject::Nodes(names) => self.named("nodes", names),
            Subject::Programs { name, nodes } => self.programs(name, nodes.as_deref()),
            Subject::Traffic(name) => self
                .traffic
                .iter()
                .filter(|(known, _)| name.as_ref().is_none_or(|name| name == *known))
                .map(|(name, facts)| (format!("traffic:{name}"), facts.document()))
                .collect(),
            Subject::Queues { class, plane } => self.queues(class.as_deref(), *plane),
            Subject::Events { kind, subject } => vec![self.events(kind, subject.as_deref())],
        }
    }

    fn planes(document: &Value, word: &str, planes: &[u8]) -> Vec<(String, Value)> {
        list(document, "planes")
            .filter(|p| planes.iter().any(|plane| p["plane"] == *plane))
            .map(|p| (format!("{word}:{}", p["plane"]), p.clone()))
            .collect()
    }

    fn named(&self, field: &str, names: &[String]) -> Vec<(String, Value)> {
        list(&self.status, field)
            .filter(|one| names.iter().any(|name| text(one, "name") == name))
            .map(|one| (text(one, "name").to_owned(), one.clone()))
            .collect()
    }

    fn programs(&self, name: &str, nodes: Option<&[String]>) -> Vec<(String, Value)> {
        let here = |p: &Value| nodes.is_none_or(|nodes| nodes.iter().any(|node| text(p, "node") == node));
        list(&self.status, "programs")
            .filter(|p| is_called(text(p, "name"), name) && here(p))
            .map(|p| (format!("{}/{}", text(p, "node"), text(p, "name")), p.clone()))
            .collect()
    }

    fn queues(&self, class: Option<&str>, plane: Option<u8>) -> Vec<(String, Value)> {
        let mut sums: BTreeMap<String, [u64; 4]> = BTreeMap::new();
        for p in list(&self.status, "planes").filter(|p| plane.is_none_or(|plane| p["plane"] == plane)) {
            let number = p["plane"].as_u64().and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
            for queue in list(p, "queues") {
                let name = text(queue, "class").to_owned();
                let before = self.queues_before.get(&(number, name.clone())).copied().unwrap_or_default();
                let count = |field: &str| queue[field].as_u64().unwrap_or(0);
                let since = |field: &str, before: u64| count(field).saturating_sub(before);
                let one = [
                    since("packets", before[0]),
                    since("bytes", before[1]),
                    since("dropped", before[2]),
                    count("waiting"),
                ];
                let sum = sums.entry(name).or_default();
                sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            }
        }
        sums.into_iter()
            .filter(|(name, _)| class.is_none_or(|class| class == name))
            .map(|(name, [packets, bytes, dropped, waiting])| {
                let document =
                    json!({"packets": packets, "bytes": bytes, "dropped": dropped, "waiting": waiting});
                (format!("queue:{name}"), document)
            })
            .collect()
    }

    fn events(&self, kind: &str, subject: Option<&str>) -> (String, Value) {
        let of: Vec<&Event> = self
            .events
            .iter()
            .filter(|e| glob(kind, &e.kind) && subject.is_none_or(|s| glob(s, &e.subject)))
            .collect();
        // milliseconds since the start
        let at = |event: &&Event| event.at_ns.saturating_sub(self.began_ns) / 1_000_000;
        let of_subject = subject.map(|s| format!("@{s}")).unwrap_or_default();
        let document = json!({
            "count": of.len(), "first_ms": of.first().map(at), "last_ms": of.last().map(at),
            "details": of.iter().map(|e| e.detail.as_str()).collect::<Vec<_>>(),
        });
        (format!("event:{kind}{of_subject}"), document)
    }
}

/// `ebb-controller` means all controllers, `ebb-controller-1` those of plane 1, `ebb-controller-1.3` its third replica.
pub fn is_called(name: &str, wanted: &str) -> bool {
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| {
        let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        rest.is_empty() || rest.starts_with('.') || rest.strip_prefix('-').is_some_and(numbered)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_alone_by_plane_and_all() {
        for wanted in ["ebb-controller", "ebb-controller-1", "ebb-controller-1.3"] {
            assert!(is_called("ebb-controller-1.3", wanted), "{wanted}");
        }
        for wanted in ["ebb", "ebb-controller-2", "ebb-controller-1.2", "ebb-controller-1.33"] {
            assert!(!is_called("ebb-controller-1.3", wanted), "{wanted}");
        }
        assert!(is_called("bird", "bird") && !is_called("lsp-agent", "lsp"));
    }
}

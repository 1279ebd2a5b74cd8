//! The traffic of a run: probes by name, what they have come to so far, and what the report says of them.

use std::path::Path;
use std::time::Duration;

use scenario::expr::TrafficFacts;
use scenario::model;
use scenario::record::{Loss, Traffic};
use topologies::lab::{Lab, Role};

use crate::probe::{self, Class, Handle, HostSpec, Report, Spec, StreamSpec};
use crate::supervise::events::monotonic_ns;

/// Time between two looks at what has arrived.
const SNAPSHOT: Duration = Duration::from_millis(500);

/// Traffic of a name that has begun.
pub struct Flow {
    /// Name.
    pub name: String,
    /// When it began, CLOCK_MONOTONIC nanoseconds.
    pub began_ns: u64,
    /// When it ended; 0 while it goes on.
    ended_ns: u64,
    handle: Option<Handle>,
    last: Option<Report>,
    series: Vec<(u64, u64, u64, u64)>,
}

/// What to send.
fn spec(lab: &Lab, traffic: &model::Traffic) -> anyhow::Result<Spec> {
    let mut spec = Spec::all_pairs(lab, &[], 1);
    spec.payload = traffic.size;
    spec.snapshot_every = SNAPSHOT;
    for class in &traffic.classes {
        let class: Class = class.parse()?;
        for from in &traffic.from {
            for to in traffic.to.iter().filter(|to| *to != from) {
                let (from, to) = (from.clone(), to.clone());
                spec.streams.push(StreamSpec { from, to, class, pps: traffic.rate, flows: traffic.flows });
            }
        }
    }
    let used = |name: &str| traffic.from.iter().chain(&traffic.to).any(|host| host == name);
    spec.hosts.clear();
    for node in lab.nodes.iter().filter(|node| node.role == Role::Host && used(&node.name)) {
        let host = HostSpec { address: node.address, sources: node.local_prefixes.first().copied() };
        spec.hosts.insert(node.name.clone(), host);
    }
    spec.check()?;
    Ok(spec)
}

impl Flow {
    /// Begins it.
    pub fn begin(lab: &Lab, name: &str, traffic: &model::Traffic) -> anyhow::Result<Self> {
        let handle = probe::start(&spec(lab, traffic)?, Path::new("/run/netns"), |_| ())?;
        let began_ns = monotonic_ns();
        let name = name.to_owned();
        Ok(Self { name, began_ns, ended_ns: 0, handle: Some(handle), last: None, series: Vec::new() })
    }

    /// Whether it goes on.
    pub fn goes_on(&self) -> bool {
        self.handle.is_some()
    }

    /// Takes it to end it; to be waited for elsewhere, and given back with [`Flow::ended`].
    pub fn end(&mut self) -> Option<Handle> {
        if self.handle.is_some() {
            self.ended_ns = monotonic_ns();
        }
        self.handle.take()
    }

    /// It has ended with this.
    pub fn ended(&mut self, report: Report) {
        self.last = Some(report);
    }

    /// Looks at what has arrived.
    pub fn look(&mut self) {
        let report = self.handle.as_ref().and_then(Handle::snapshot);
        self.last = report.or(self.last.take());
    }

    /// Notes how far it has come.
    pub fn note(&mut self) {
        self.look();
        if let Some(last) = &self.last {
            let received = last.streams.iter().map(|s| s.received).sum();
            self.series.push((monotonic_ns(), last.sent(), received, last.lost()));
        }
    }

    /// Packets that have arrived.
    pub fn received(&self) -> u64 {
        self.last.as_ref().map_or(0, |r| r.streams.iter().map(|s| s.received).sum())
    }

    /// For conditions.
    pub fn facts(&self) -> TrafficFacts {
        let Some(report) = &self.last else { return TrafficFacts::default() };
        let mut all = TrafficFacts::default();
        for stream in &report.streams {
            let class = all.classes.entry(stream.class.to_string()).or_default();
            class.sent += stream.sent;
            class.received += stream.received;
            class.lost += stream.lost;
            class.refused += stream.send_errors;
            class.path_changes += stream.path_changes;
            class.windows += stream.loss_windows.len() as u64 + stream.loss_windows_omitted;
            class.longest_window_ms = class.longest_window_ms.max(stream.longest_window_ms());
        }
        for class in all.classes.values() {
            all.sent += class.sent;
            all.received += class.received;
            all.lost += class.lost;
            all.refused += class.refused;
            all.path_changes += class.path_changes;
            all.windows += class.windows;
            all.longest_window_ms = all.longest_window_ms.max(class.longest_window_ms);
        }
        all
    }

    /// For the report.
    pub fn record(&self) -> Traffic {
        let facts = self.facts();
        let mut losses: Vec<Loss> = Vec::new();
        for stream in self.last.iter().flat_map(|report| &report.streams) {
            losses.extend(stream.loss_windows.iter().map(|window| Loss {
                from: stream.from.clone(),
                to: stream.to.clone(),
                class: stream.class.to_string(),
                start_ns: window.start,
                ms: window.ms,
                lost: window.lost,
                cause: None,
            }));
        }
        losses.sort_by_key(|loss| loss.start_ns);
        let classes = Class::ALL.iter().filter_map(|class| {
            let of = facts.classes.get(&class.to_string())?;
            Some((class.to_string(), of.sent, of.received, of.lost))
        });
        Traffic {
            name: self.name.clone(),
            began_ns: self.began_ns,
            ended_ns: self.ended_ns,
            sent: facts.sent,
            received: facts.received,
            lost: facts.lost,
            refused: facts.refused,
            classes: classes.collect(),
            losses,
            series: self.series.clone(),
        }
    }
}

//! The traffic of a scenario.

use topologies::lab::Role;
use topologies::parse::{At, Given, Text};
use topologies::select::Selector;

use super::{Reader, TrafficByName};
use crate::file::{ScenarioFile, TrafficEntry};
use crate::model::Traffic;
use crate::words::AnyText;

/// Most packets a second of everything that is sent at once; what one sender keeps up with.
const MAX_RATE: u64 = 50_000;

/// Reads all of it.
pub(super) fn check(reader: &mut Reader<'_>, file: &ScenarioFile) -> TrafficByName {
    let mut all = TrafficByName::new();
    for (name, entry) in &file.traffic.0 {
        if let Some(name) = reader.report.read(name, "name of traffic") {
            let manual = reader.started.contains(&name.0);
            all.insert(name.0, one(reader, entry, manual));
        }
    }
    all
}

fn one(reader: &mut Reader<'_>, entry: &At<TrafficEntry>, manual: bool) -> Traffic {
    let At { value: entry, place } = entry;
    let from = hosts(reader, &entry.from, "from");
    let to = hosts(reader, &entry.to, "to");
    let read = reader.report.read_given(&entry.class, "class");
    let mut classes: Vec<String> = read.map_or_else(
        || vec!["gold".to_owned()],
        |list| list.0.into_iter().map(|class| class.0.to_owned()).collect(),
    );
    classes.dedup();
    let rate = reader.report.whole(&entry.rate, "rate", 100);
    let flows = reader.report.whole(&entry.flows, "flows", 40);
    let size = reader.report.whole(&entry.size, "size", 100);
    let pairs = from.iter().flat_map(|a| to.iter().filter(move |b| *b != a)).count();
    if pairs == 0 && reader.report.is_clean() {
        reader.report.error(
            *place,
            "no pair of hosts sends",
            "source and destination must be different hosts",
        );
    }
    let total = u64::from(rate) * (pairs * classes.len().max(1)) as u64;
    if total > MAX_RATE {
        let message = format!("{total} packets a second over {pairs} pairs and {} classes", classes.len());
        reader.report.error(*place, message, format!("at most {MAX_RATE}: fewer pairs, or a lower `rate`"));
    }
    let narrow = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    Traffic { from, to, classes, rate, flows: narrow(flows), size: narrow(size), manual }
}

fn hosts(reader: &mut Reader<'_>, text: &Given<Text<AnyText>>, what: &str) -> Vec<String> {
    let all = || reader.lab.hosts().map(|node| node.name.clone()).collect::<Vec<_>>();
    let Some(text) = &text.0 else { return all() };
    let Some(read) = reader.report.read(text, what) else { return Vec::new() };
    if read.0 == "all" {
        return reader.lab.hosts().map(|node| node.name.clone()).collect();
    }
    let lab = reader.lab;
    match read.0.parse::<Selector>().and_then(|selector| selector.nodes(lab)) {
        Ok(nodes) => {
            let hosts = nodes.into_iter().filter(|node| node.role == Role::Host);
            let hosts: Vec<String> = hosts.map(|node| node.name.clone()).collect();
            if hosts.is_empty() {
                reader.report.error(
                    text.place,
                    format!("`{}` selects no host", read.0),
                    "hosts are named h1.SITE",
                );
            }
            hosts
        }
        Err(bad) => {
            reader.report.error(text.place, bad.message, bad.hint);
            Vec::new()
        }
    }
}

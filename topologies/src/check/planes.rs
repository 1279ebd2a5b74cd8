//! Planes: how each differs from the pattern, and where its controller runs.

use std::collections::{BTreeMap, BTreeSet};

use super::links::{self, LinkKey, PlacedLink};
use super::{Known, Report};
use crate::file::{AlgorithmsEntry, LabFile, LinkOverride, PlaneEntry};
use crate::lab::Algorithms;
use crate::near::suggestion;
use crate::parse::{At, Given, Place, Text};
use crate::spec::{LinkValues, SpecController, SpecSite, host_name};
use crate::words::BackupWord;

/// Fills in the planes of every link, and gives the controller host of every plane.
pub(super) fn check(
    report: &mut Report<'_>,
    file: &LabFile,
    planes: Option<u8>,
    known: &Known,
    sites: &[SpecSite],
    links: &mut [PlacedLink],
) -> Vec<SpecController> {
    let everywhere = file.te.0.as_ref().map_or_else(Algorithms::default, |te| {
        algorithms(report, &Algorithms::default(), &te.algorithms, &te.backup)
    });
    let count = planes.unwrap_or(8);
    for link in links.iter_mut() {
        link.spec.planes = vec![Some(link.base.clone()); usize::from(count)];
    }
    let dcs: Vec<&str> = sites.iter().filter(|site| site.hosts > 0).map(|site| site.name.as_str()).collect();
    let host =
        |plane: usize| if dcs.is_empty() { String::new() } else { host_name(1, dcs[plane % dcs.len()]) };
    let usual = |plane| SpecController { host: host(plane), program: None, algorithms: everywhere.clone() };
    let mut controllers: Vec<SpecController> = (0..usize::from(count)).map(usual).collect();
    for (key, entry) in &file.overrides.0 {
        let Some(plane) = report.read(key, "plane") else { continue };
        if planes.is_some_and(|planes| plane.get() > u32::from(planes)) {
            let message = format!("there is no plane {}", plane.get());
            report.error(key.place, message, format!("the lab has `planes: {count}`"));
            continue;
        }
        let Some(index) = usize::try_from(plane.get()).ok().and_then(|plane| plane.checked_sub(1)) else {
            continue;
        };
        let own = algorithms(report, &everywhere, &entry.value.algorithms, &entry.value.backup);
        let host = controller(report, &entry.value, sites);
        let program = report.read_given(&entry.value.controller_program, "path of a program");
        if let Some(slot) = controllers.get_mut(index) {
            slot.algorithms = own;
            slot.program = program.map(|program| program.0);
            slot.host = host.unwrap_or(std::mem::take(&mut slot.host));
        }
        apply(report, &entry.value, index, links, known);
    }
    controllers
}

/// What is given, in place of what holds otherwise.
fn algorithms(
    report: &mut Report<'_>,
    otherwise: &Algorithms,
    primary: &Given<AlgorithmsEntry>,
    backup: &Given<Text<BackupWord>>,
) -> Algorithms {
    let mut result = otherwise.clone();
    let entry = primary.0.clone().unwrap_or_default();
    for (text, slot) in [&entry.gold, &entry.silver, &entry.bronze].into_iter().zip(&mut result.primary) {
        if let Some(word) = report.read_given(text, "primary algorithm") {
            *slot = word.0;
        }
    }
    if let Some(word) = report.read_given(backup, "backup algorithm") {
        word.0.clone_into(&mut result.backup);
    }
    result
}

/// The host that an entry wants its controller on, if there is such a host.
fn controller(report: &mut Report<'_>, entry: &PlaneEntry, sites: &[SpecSite]) -> Option<String> {
    let text = entry.controller.0.as_ref()?;
    let host = report.read(text, "controller")?.0;
    let hosts: BTreeSet<String> =
        sites.iter().flat_map(|site| (1..=site.hosts).map(|number| host_name(number, &site.name))).collect();
    if hosts.contains(&host) {
        return Some(host);
    }
    let hint = suggestion(&host, hosts.iter().map(String::as_str));
    report.error(text.place, format!("there is no host `{host}`"), hint);
    None
}

/// Applies a plane's link overrides.
fn apply(report: &mut Report<'_>, entry: &PlaneEntry, plane: usize, links: &mut [PlacedLink], known: &Known) {
    let mut seen: BTreeMap<LinkKey, Place> = BTreeMap::new();
    for At { value: change, place } in &entry.links {
        let Some(between) = report.need(&change.between, *place, "between") else { continue };
        let Some(key) = links::ends(report, between, &change.parallel, known) else { continue };
        let (a, b, parallel) = &key;
        let Some(link) =
            links.iter_mut().find(|l| (&l.spec.a, &l.spec.b, &l.spec.parallel) == (a, b, parallel))
        else {
            let message = format!("there is no link {a}--{b} number {parallel}");
            report.error(
                *place,
                message,
                "overrides change links that `links` declares; declare it there first",
            );
            continue;
        };
        if let Some(earlier) = seen.insert(key.clone(), *place) {
            let message = format!("link {a}--{b} is already overridden at line {}", earlier.line);
            report.error(*place, message, "put all changes of a link in a plane into one entry");
            continue;
        }
        let changed = changed(report, change, *place, &link.base, known.divisor);
        if let Some(slot) = link.spec.planes.get_mut(plane) {
            *slot = changed;
        }
    }
}

/// The link in this plane; `None` if it is absent.
fn changed(
    report: &mut Report<'_>,
    change: &LinkOverride,
    place: Place,
    base: &LinkValues,
    divisor: u64,
) -> Option<LinkValues> {
    let absent = report.read_given(&change.absent, "absent").is_some_and(|switch| switch.0);
    let values = change.capacity.0.is_some()
        || change.rtt.0.is_some()
        || change.members.0.is_some()
        || change.srlgs.0.is_some();
    if absent && values {
        report.error(place, "an absent link has no other fields", "remove `absent`, or the other fields");
    }
    if !values && change.absent.0.is_none() {
        report.error(
            place,
            "this entry changes nothing",
            "give `absent`, `capacity`, `rtt`, `members` or `srlgs`",
        );
    }
    let mut link = base.clone();
    if let Some(text) = &change.capacity.0
        && let Some(capacity) = links::capacity(report, text)
    {
        links::emulated_rate(report, text.place, capacity, divisor);
        link.capacity = capacity;
    }
    if let Some(text) = &change.rtt.0 {
        link.rtt = links::rtt(report, text).unwrap_or(link.rtt);
    }
    link.members =
        u16::try_from(report.whole(&change.members, "members", u32::from(link.members))).unwrap_or(1);
    if let Some(texts) = &change.srlgs.0 {
        link.srlgs = links::srlgs(report, texts);
    }
    (!absent).then_some(link)
}

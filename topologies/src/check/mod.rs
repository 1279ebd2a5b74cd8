//! From the file's text values to a `Spec`: everything that a lab file can say wrongly although its shape is right.
//!
//! Every check adds to one report and goes on, so that an author sees all findings at once. A value that cannot be
//! read is replaced by something harmless, so that it does not cause further findings.

mod controllers;
mod demands;
mod links;
mod planes;
mod sites;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::file::{BfdEntry, LabFile, MacsecEntry, ReservedEntry, TeEntry};
use crate::lab::{BfdSettings, MacsecSettings, SiteKind, TeSettings};
use crate::parse::At;
use crate::problem::{Errors, Problem};
use crate::report::Report;
use crate::spec::Spec;

/// What later checks may refer to. Contains also what was declared with errors, so that one error stays one.
#[derive(Default)]
struct Known {
    sites: BTreeSet<String>,
    dcs: BTreeSet<String>,
    /// Divisor from real to emulated rates.
    divisor: u64,
    /// Whether members are links of their own where a link does not say.
    bonded: bool,
}

/// Checks a file. Gives the specification and warnings, or every error, in file order.
pub(crate) fn check(file: &At<LabFile>, file_name: &str) -> Result<(Spec, Vec<Problem>), Errors> {
    let mut report = Report::new(file_name);
    let At { value: file, place } = file;
    let name =
        report.read_needed(&file.name, *place, "name", "lab name").map_or_else(String::new, |name| name.0);
    let scale = file.scale.0.as_ref();
    let divisor = scale
        .and_then(|s| report.read_given(&s.bandwidth, "scale of bandwidth"))
        .map_or(20_000, |r| r.divisor);
    let emulate_delay = report.read_given(&file.delay, "delay mode").is_some_and(|mode| mode.0);
    let planes = report.read_needed(&file.planes, *place, "planes", "number of planes");
    let plane_count = planes.and_then(|p| u8::try_from(p.get()).ok());
    let bonded = report.read_given(&file.lag, "lag mode").is_some_and(|mode| mode.0);
    let (known, sites) = sites::check(&mut report, file, *place, divisor);
    let known = Known { bonded, ..known };
    let mut links = links::check(&mut report, file, *place, &known);
    let controllers = planes::check(&mut report, file, plane_count, &known, &sites, &mut links);
    let (replicas, lock) = controllers::check(&mut report, file.controllers.0.as_ref(), &sites);
    links::check_member_names(&mut report, &links);
    let te = te(&mut report, file.te.0.as_ref());
    let bfd = file.bfd.0.as_ref().map(|entry| bfd(&mut report, entry));
    let macsec = file.macsec.0.as_ref().map(|entry| macsec(&mut report, entry));
    let demands = demands::check(&mut report, file, &known, &sites);
    if report.is_clean() {
        links::warn_about_islands(&mut report, file, *place, &sites, &links);
    }
    let warnings = report.finish()?;
    let links = links.into_iter().map(|link| link.spec).collect();
    Ok((
        Spec {
            name,
            divisor,
            emulate_delay,
            sites,
            links,
            controllers,
            replicas,
            lock,
            te,
            bfd,
            macsec,
            demands,
        },
        warnings,
    ))
}

/// Whether a site of this kind has an aggregator and hosts.
fn is_dc(kind: SiteKind) -> bool {
    kind == SiteKind::Dc
}

fn bfd(report: &mut Report<'_>, entry: &BfdEntry) -> BfdSettings {
    let mut interval = Duration::from_millis(20);
    if let Some(period) = report.read_given(&entry.interval, "interval of bfd") {
        interval = period.into();
        let whole = interval.subsec_nanos().is_multiple_of(1_000_000);
        if let Some(text) = &entry.interval.0
            && !(whole && (Duration::from_millis(5)..=Duration::from_secs(10)).contains(&interval))
        {
            let message = format!("interval {} of bfd is out of range", text.raw);
            report.error(text.place, message, "whole milliseconds from 5ms to 10s");
        }
    }
    let multiplier = report.whole(&entry.multiplier, "multiplier of bfd", 3);
    BfdSettings { interval, multiplier: u8::try_from(multiplier).unwrap_or(u8::MAX) }
}

fn macsec(report: &mut Report<'_>, entry: &MacsecEntry) -> MacsecSettings {
    let mut rotate = Duration::from_secs(30);
    if let Some(period) = report.read_given(&entry.rotate, "rotation of macsec keys") {
        rotate = period.into();
        if let Some(text) = &entry.rotate.0
            && !(Duration::from_secs(1)..=Duration::from_hours(1)).contains(&rotate)
        {
            let message = format!("rotation {} of macsec keys is out of range", text.raw);
            report.error(text.place, message, "from 1s to 3600s");
        }
    }
    MacsecSettings { rotate }
}

fn te(report: &mut Report<'_>, entry: Option<&TeEntry>) -> TeSettings {
    const CYCLE: Duration = Duration::from_secs(10);
    let entry = entry.cloned().unwrap_or_default();
    let mut cycle = CYCLE;
    if let Some(period) = report.read_given(&entry.cycle, "cycle") {
        cycle = period.into();
        if let Some(text) = &entry.cycle.0
            && !(Duration::from_millis(100)..=Duration::from_hours(1)).contains(&cycle)
        {
            report.error(text.place, format!("cycle {} is out of range", text.raw), "from 100ms to 3600s");
        }
    }
    let small = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
    let reserved: ReservedEntry = entry.reserved.0.clone().unwrap_or_default();
    TeSettings {
        cycle,
        lsps_per_bundle: small(report.whole(&entry.lsps, "lsps", 16)),
        max_labels: small(report.whole(&entry.max_labels, "max_labels", 3)),
        reserved_percent: [
            small(report.whole(&reserved.gold, "reserved percentage", 50)),
            small(report.whole(&reserved.silver, "reserved percentage", 80)),
            small(report.whole(&reserved.bronze, "reserved percentage", 100)),
        ],
        reprogram_always: report.read_given(&entry.reprogram, "way to reprogram").is_some_and(|w| w.0),
    }
}

//! Demand floors per ordered pair of data centres and class.

use std::collections::BTreeMap;

use super::{Known, Report, links};
use crate::file::{ClassRates, DemandsEntry, LabFile};
use crate::lab::DemandFloor;
use crate::near::suggestion;
use crate::parse::{At, Place, Text};
use crate::spec::SpecSite;
use crate::units::Capacity;
use crate::words::{MESHES, Mesh};

/// Source, destination, and position of the class in `MESHES`.
type PairKey = (String, String, usize);

/// Checks the demands; the result is sorted by pair, then gold, silver, bronze, and holds no zero rates.
pub(super) fn check(
    report: &mut Report<'_>,
    file: &LabFile,
    known: &Known,
    sites: &[SpecSite],
) -> Vec<DemandFloor> {
    let Some(At { value: entry, place }) = file.demands.0.as_ref() else { return Vec::new() };
    let mut rates: BTreeMap<PairKey, u64> = BTreeMap::new();
    let every = entry.every_pair.0.as_ref().map(|classes| class_rates(report, classes));
    let gravity = entry.gravity.0.as_ref().map(|classes| class_rates(report, classes));
    match (every, gravity) {
        (Some(_), Some(_)) => {
            report.error(*place, "`every_pair` and `gravity` exclude each other", "keep one of them");
        }
        (Some(every), None) => add(&mut rates, sites, |mesh, _| u128::from(every[mesh])),
        (None, Some(total)) => {
            let sum: u128 = pairs(sites).map(|(from, to)| product(from, to)).sum();
            add(&mut rates, sites, |mesh, weight| u128::from(total[mesh]) * weight / sum.max(1));
        }
        (None, None) => {}
    }
    single_pairs(report, entry, known, &mut rates);
    let floor = |((from, to, mesh), rate): (PairKey, u64)| DemandFloor {
        from,
        to,
        mesh: MESHES[mesh].to_owned(),
        rate: Capacity(rate),
    };
    rates.into_iter().filter(|(_, rate)| *rate > 0).map(floor).collect()
}

fn class_rates(report: &mut Report<'_>, classes: &ClassRates) -> [u64; 3] {
    [&classes.gold, &classes.silver, &classes.bronze]
        .map(|text| report.read_given(text, "rate").map_or(0, |capacity: Capacity| capacity.0))
}

/// Ordered pairs of different data centres.
fn pairs(sites: &[SpecSite]) -> impl Iterator<Item = (&SpecSite, &SpecSite)> {
    let dcs = || sites.iter().filter(|site| site.hosts > 0);
    dcs().flat_map(move |from| dcs().map(move |to| (from, to))).filter(|(from, to)| from.name != to.name)
}

fn product(from: &SpecSite, to: &SpecSite) -> u128 {
    u128::from(from.weight) * u128::from(to.weight)
}

/// Adds to every pair and class the rate that a function of class and weight gives, in whole kbit/s.
fn add(rates: &mut BTreeMap<PairKey, u64>, sites: &[SpecSite], rate: impl Fn(usize, u128) -> u128) {
    for (from, to) in pairs(sites) {
        for mesh in 0..MESHES.len() {
            let exact = u64::try_from(rate(mesh, product(from, to))).unwrap_or(u64::MAX);
            rates.insert((from.name.clone(), to.name.clone(), mesh), exact / 1000 * 1000);
        }
    }
}

fn single_pairs(
    report: &mut Report<'_>,
    entry: &DemandsEntry,
    known: &Known,
    rates: &mut BTreeMap<PairKey, u64>,
) {
    let mut seen: BTreeMap<PairKey, Place> = BTreeMap::new();
    for At { value: pair, place } in &entry.pairs {
        let from = report.need(&pair.from, *place, "from").and_then(|text| dc(report, text, known));
        let to = report.need(&pair.to, *place, "to").and_then(|text| dc(report, text, known));
        let mesh = report.read_needed(&pair.class, *place, "class", "class with a mesh");
        let rate = report.read_needed(&pair.rate, *place, "rate", "rate");
        let (Some(from), Some(to), Some(Mesh(mesh))) = (from, to, mesh) else { continue };
        if from == to {
            report.error(
                *place,
                format!("demand from `{from}` to itself"),
                "demand is between two data centres",
            );
            continue;
        }
        let key = (from.to_owned(), to.to_owned(), mesh);
        if let Some(earlier) = seen.insert(key.clone(), *place) {
            let message = format!(
                "demand from {from} to {to} in class {} is already at line {}",
                MESHES[mesh], earlier.line
            );
            report.error(*place, message, "keep one of them");
        } else if let Some(Capacity(rate)) = rate {
            rates.insert(key, rate);
        }
    }
}

/// The name of a declared data centre, or a finding.
fn dc<'a>(report: &mut Report<'_>, text: &'a Text<crate::name::SiteName>, known: &Known) -> Option<&'a str> {
    let name = links::site(report, text, known)?;
    if known.dcs.contains(name) {
        return Some(name);
    }
    let hint = suggestion("", known.dcs.iter().map(String::as_str));
    report.error(text.place, format!("site `{name}` is a midpoint and has no demand"), hint);
    None
}

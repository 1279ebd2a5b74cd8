//! Sites: names, kinds, numbers, and the names of nodes made from them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Known, Report, is_dc};
use crate::file::{LabFile, SiteEntry};
use crate::lab::SiteKind;
use crate::name::{MAX_NAME, SiteName};
use crate::parse::{At, Place, Text};
use crate::spec::{SpecSite, router_name};

/// Checks the sites. The second part of the result is by name and has an entry for every readable site.
pub(super) fn check(
    report: &mut Report<'_>,
    file: &LabFile,
    place: Place,
    divisor: u64,
) -> (Known, Vec<SpecSite>) {
    let mut known = Known { divisor, ..Known::default() };
    let mut sites: BTreeMap<String, (SpecSite, Option<u8>)> = BTreeMap::new();
    let mut taken: BTreeMap<u8, (String, Place)> = BTreeMap::new();
    let declared = report.need(&file.sites, place, "sites").map_or(&[][..], |entries| &entries.0);
    for (key, entry) in declared {
        // Even a bad name is known from here on: links that use it should not be reported too.
        known.sites.insert(key.raw.clone());
        let name = report.read(key, "site name").map(|name| name.0);
        let kind = report.read_needed(&entry.value.kind, entry.place, "kind", "kind").map(|word| word.0);
        if kind.is_none_or(is_dc) {
            known.dcs.insert(key.raw.clone());
        }
        let kind = kind.unwrap_or(SiteKind::Midpoint);
        let id = id(report, &key.raw, &entry.value, &mut taken);
        let (hosts, weight) = dc_fields(report, &entry.value, kind);
        if let Some(name) = name {
            check_node_name(report, key, &name);
            let site = SpecSite { name: name.clone(), id: id.unwrap_or(0), kind, hosts, weight };
            sites.insert(name, (site, id));
        }
    }
    if known.dcs.is_empty() && file.sites.0.is_some() {
        let first = declared.first().map_or(place, |(key, _)| key.place);
        report.error(
            first,
            "there is no site of kind `dc`",
            "controllers run on hosts of a `dc`; declare at least one",
        );
    }
    assign_ids(report, file, &mut sites, &taken);
    (known, sites.into_values().map(|(site, _)| site).collect())
}

/// The explicit number of a site, if it has a valid one that no other site has.
fn id(
    report: &mut Report<'_>,
    name: &str,
    entry: &SiteEntry,
    taken: &mut BTreeMap<u8, (String, Place)>,
) -> Option<u8> {
    let text = entry.id.0.as_ref()?;
    let id = report.read(text, "site id").and_then(|id| u8::try_from(id.get()).ok())?;
    if let Some((other, place)) = taken.get(&id) {
        let message = format!("site id {id} of `{name}` is already that of `{other}` (line {})", place.line);
        report.error(text.place, message, "ids stand in labels and must differ");
        return None;
    }
    taken.insert(id, (name.to_owned(), text.place));
    Some(id)
}

/// Hosts and weight, which only a data centre has.
fn dc_fields(report: &mut Report<'_>, entry: &SiteEntry, kind: SiteKind) -> (u16, u32) {
    let hosts = report.whole(&entry.hosts, "hosts", 1);
    let weight = report.whole(&entry.weight, "weight", 1);
    if is_dc(kind) {
        return (u16::try_from(hosts).unwrap_or(1), weight);
    }
    if entry.kind.0.as_ref().is_some_and(|kind| kind.read().is_ok()) {
        let hint = "remove it, or make the site a `dc`";
        for (field, place) in [
            ("hosts", entry.hosts.0.as_ref().map(|t| t.place)),
            ("weight", entry.weight.0.as_ref().map(|t| t.place)),
        ] {
            if let Some(place) = place {
                report.error(place, format!("a midpoint has no `{field}`"), hint);
            }
        }
    }
    (0, 0)
}

/// Refuses a site whose routers' names, the longest of its nodes, are longer than the kernel's names.
fn check_node_name(report: &mut Report<'_>, key: &Text<SiteName>, site: &str) {
    let router = router_name(1, site);
    if router.len() > MAX_NAME {
        let spare = MAX_NAME - (router.len() - site.len());
        report.error(
            key.place,
            format!("site name `{site}` is too long: node `{router}` would have {} characters", router.len()),
            format!("the kernel's names have at most {MAX_NAME}; use at most {spare} for the site"),
        );
    }
}

/// Gives sites without a number the lowest free ones, in order of name.
fn assign_ids(
    report: &mut Report<'_>,
    file: &LabFile,
    sites: &mut BTreeMap<String, (SpecSite, Option<u8>)>,
    taken: &BTreeMap<u8, (String, Place)>,
) {
    let implicit: BTreeSet<&str> = entries_without_id(file).map(|(key, _)| key.raw.as_str()).collect();
    let Some((first, _)) = entries_without_id(file).next() else { return };
    let mut free = (1..=254_u8).filter(|id| !taken.contains_key(id));
    let mut chosen = Vec::new();
    for (name, (site, _)) in sites.iter_mut().filter(|(name, _)| implicit.contains(name.as_str())) {
        let Some(id) = free.next() else {
            report.error(
                first.place,
                "there are more than 254 sites",
                "labels have room for site ids 1 to 254",
            );
            return;
        };
        site.id = id;
        chosen.push(format!("{name} {id}"));
    }
    chosen.truncate(8);
    report.warn(
        first.place,
        format!("sites without `id` were numbered by name: {}", chosen.join(", ")),
        "write the ids down: adding or removing a site can change them, and with them addresses and labels",
    );
}

fn entries_without_id(file: &LabFile) -> impl Iterator<Item = &(Text<SiteName>, At<SiteEntry>)> {
    file.sites.0.iter().flat_map(|entries| &entries.0).filter(|(_, entry)| entry.value.id.0.is_none())
}

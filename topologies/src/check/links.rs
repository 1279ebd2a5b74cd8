//! Links: their ends, values, parallels, and what they connect.

use std::collections::{BTreeMap, BTreeSet};

use super::{Known, Report};
use crate::file::{LabFile, LinkEntry, ParallelNumber};
use crate::name::{MAX_NAME, SiteName, SrlgName};
use crate::near::suggestion;
use crate::parse::{At, Given, Place, Text};
use crate::spec::{LinkValues, SpecLink, SpecSite, core_interface, member_interface};
use crate::units::{Capacity, Rtt};

/// Two site names, the lesser first, and the parallel number.
pub(super) type LinkKey = (String, String, u32);

/// A link and where it was declared. Until `planes::check` it holds one plane's values.
pub(super) struct PlacedLink {
    pub spec: SpecLink,
    pub base: LinkValues,
    pub place: Place,
}

/// Emulated rates under this carry the control plane's own packets too slowly, in bit/s.
const SLOW: u64 = 256_000;

/// Least emulated rate, in bit/s: one kilobyte a second.
const LEAST: u64 = 8_000;

/// Checks the links; the result is sorted and has an entry for every link whose ends are readable.
pub(super) fn check(report: &mut Report<'_>, file: &LabFile, place: Place, known: &Known) -> Vec<PlacedLink> {
    let mut links: BTreeMap<LinkKey, PlacedLink> = BTreeMap::new();
    let mut slowest: Option<(u64, Place)> = None;
    for At { value: entry, place } in report.need(&file.links, place, "links").map_or(&[][..], Vec::as_slice)
    {
        let between = report.need(&entry.between, *place, "between");
        let key = between.and_then(|between| ends(report, between, &entry.parallel, known));
        let text = report.need(&entry.capacity, *place, "capacity");
        let capacity = text.and_then(|text| Some((capacity(report, text)?, text.place)));
        if let Some((capacity, at)) = capacity
            && let Some(rate) = emulated_rate(report, at, capacity, known.divisor)
            && slowest.is_none_or(|(least, _)| rate < least)
        {
            slowest = Some((rate, at));
        }
        let capacity = capacity.map_or(Capacity(1), |(capacity, _)| capacity);
        let base = values(report, entry, *place, capacity, known.bonded);
        let Some(key) = key else { continue };
        if let Some(earlier) = links.get(&key) {
            duplicate(report, *place, &key, earlier.place);
            continue;
        }
        check_interface_names(report, *place, &key);
        let (a, b, parallel) = key.clone();
        links.insert(
            key,
            PlacedLink { spec: SpecLink { a, b, parallel, planes: Vec::new() }, base, place: *place },
        );
    }
    if let Some((rate, place)) = slowest
        && rate < SLOW
    {
        report.warn(
            place,
            format!("the slowest link is emulated at {}", Capacity(rate)),
            format!(
                "below {} the control plane's own packets may be late; use a smaller divisor",
                Capacity(SLOW)
            ),
        );
    }
    links.into_values().collect()
}

/// The ends of a link, in order, with its parallel number.
pub(super) fn ends(
    report: &mut Report<'_>,
    between: &At<Vec<Text<SiteName>>>,
    parallel: &Given<Text<ParallelNumber>>,
    known: &Known,
) -> Option<LinkKey> {
    let parallel = match &parallel.0 {
        None => Some(1),
        Some(text) => report.read(text, "parallel").map(ParallelNumber::get),
    };
    let names: Vec<Option<&str>> = between.value.iter().map(|text| site(report, text, known)).collect();
    let [one, other] = names.as_slice() else {
        let message = format!("a link is between two sites, here are {}", names.len());
        report.error(between.place, message, "write `between: [prn, atn]`");
        return None;
    };
    let (one, other) = ((*one)?, (*other)?);
    if one == other {
        let message = format!("link from `{one}` to itself");
        report.error(between.place, message, "a link is between two different sites");
        return None;
    }
    let (a, b) = if one < other { (one, other) } else { (other, one) };
    Some((a.to_owned(), b.to_owned(), parallel?))
}

/// The name of a declared site, or a finding.
pub(super) fn site<'a>(report: &mut Report<'_>, text: &'a Text<SiteName>, known: &Known) -> Option<&'a str> {
    if known.sites.contains(&text.raw) {
        return Some(&text.raw);
    }
    let hint = suggestion(&text.raw, known.sites.iter().map(String::as_str));
    report.error(text.place, format!("there is no site `{}`", text.raw), hint);
    None
}

fn duplicate(report: &mut Report<'_>, place: Place, (a, b, parallel): &LinkKey, earlier: Place) {
    report.error(
        place,
        format!("link {a}--{b} number {parallel} is already declared at line {}", earlier.line),
        format!(
            "give one of them another number (`parallel: {}`) for a second link, or `members` for a larger bundle",
            parallel + 1
        ),
    );
}

fn check_interface_names(report: &mut Report<'_>, place: Place, (a, b, parallel): &LinkKey) {
    let longest = [a, b].map(|site| core_interface(site, *parallel)).into_iter().max_by_key(String::len);
    if let Some(name) = longest
        && name.len() > MAX_NAME
    {
        report.error(
            place,
            format!("interface `{name}` would have {} characters", name.len()),
            format!("the kernel allows {MAX_NAME}; use a lower `parallel` number or a shorter site name"),
        );
    }
}

/// Names of members can be too long, too; how many there are is known once the planes are.
pub(super) fn check_member_names(report: &mut Report<'_>, links: &[PlacedLink]) {
    for PlacedLink { spec, place, .. } in links {
        let members = spec.planes.iter().flatten().filter(|values| values.bonded).map(|v| v.members).max();
        let names = [&spec.a, &spec.b].map(|site| core_interface(site, spec.parallel));
        let longest =
            names.iter().map(|name| member_interface(name, members.unwrap_or(0))).max_by_key(String::len);
        if let (Some(_), Some(name)) = (members, longest)
            && name.len() > MAX_NAME
        {
            report.error(
                *place,
                format!("member `{name}` would have {} characters", name.len()),
                format!(
                    "the kernel allows {MAX_NAME}; use `lag: declared` for this link, or a shorter site name"
                ),
            );
        }
    }
}

/// What the link is, unless a plane overrides it. `bonded` holds if the link does not say.
fn values(
    report: &mut Report<'_>,
    entry: &LinkEntry,
    place: Place,
    capacity: Capacity,
    bonded: bool,
) -> LinkValues {
    let text = report.need(&entry.rtt, place, "rtt");
    LinkValues {
        capacity,
        rtt: text.and_then(|text| rtt(report, text)).unwrap_or(Rtt(1)),
        members: u16::try_from(report.whole(&entry.members, "members", 1)).unwrap_or(1),
        bonded: report.read_given(&entry.lag, "lag mode").map_or(bonded, |mode| mode.0),
        srlgs: srlgs(report, &entry.srlgs),
    }
}

/// A capacity above zero.
pub(super) fn capacity(report: &mut Report<'_>, text: &Text<Capacity>) -> Option<Capacity> {
    let capacity = report.read(text, "capacity")?;
    if capacity.0 == 0 {
        report.error(
            text.place,
            "a link's capacity cannot be zero",
            "to leave a link out of a plane, use `overrides`",
        );
        return None;
    }
    Some(capacity)
}

/// A round-trip time above zero and below a minute.
pub(super) fn rtt(report: &mut Report<'_>, text: &Text<Rtt>) -> Option<Rtt> {
    let rtt = report.read(text, "round-trip time")?;
    if rtt.0 == 0 || rtt.0 > 60_000_000 {
        report.error(text.place, format!("round-trip time {rtt} is out of range"), "from 1us to 60s");
        return None;
    }
    Some(rtt)
}

/// Sorted group names without repetition.
pub(super) fn srlgs(report: &mut Report<'_>, texts: &[Text<SrlgName>]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for text in texts {
        if let Some(SrlgName(name)) = report.read(text, "SRLG name")
            && let Some(name) = names.replace(name)
        {
            report.error(text.place, format!("SRLG `{name}` is listed twice"), "remove one of them");
        }
    }
    names.into_iter().collect()
}

/// The emulated rate of a capacity that stands at `place`; a finding if too little is left of it.
pub(super) fn emulated_rate(
    report: &mut Report<'_>,
    place: Place,
    capacity: Capacity,
    divisor: u64,
) -> Option<u64> {
    let rate = capacity.0 / divisor;
    if rate >= LEAST {
        return Some(rate);
    }
    report.error(
        place,
        format!(
            "capacity {capacity} at 1/{divisor} is emulated as {}, which no queue can shape",
            Capacity(rate)
        ),
        format!("use a smaller divisor in `scale: {{bandwidth: 1/N}}`; {} is the least", Capacity(LEAST)),
    );
    None
}

/// Warns about sites that cannot be reached from the first data centre in a plane.
pub(super) fn warn_about_islands(
    report: &mut Report<'_>,
    file: &LabFile,
    lab: Place,
    sites: &[SpecSite],
    links: &[PlacedLink],
) {
    let Some(start) = sites.iter().find(|site| site.hosts > 0) else { return };
    let planes = links.first().map_or(0, |link| link.spec.planes.len());
    if planes == 0 && sites.len() > 1 {
        report.warn(lab, "there are no links", "sites without links reach nobody");
    }
    for plane in 0..planes {
        let mut reached = BTreeSet::from([start.name.as_str()]);
        loop {
            let before = reached.len();
            for link in links.iter().map(|link| &link.spec).filter(|link| link.planes[plane].is_some()) {
                let (a, b) = (link.a.as_str(), link.b.as_str());
                if reached.contains(a) || reached.contains(b) {
                    reached.extend([a, b]);
                }
            }
            if reached.len() == before {
                break;
            }
        }
        let cut_off: Vec<&str> =
            sites.iter().map(|site| site.name.as_str()).filter(|name| !reached.contains(name)).collect();
        let place = file
            .sites
            .0
            .iter()
            .flat_map(|entries| &entries.0)
            .find(|(key, _)| cut_off.first() == Some(&key.raw.as_str()));
        if let Some((key, _)) = place {
            let message =
                format!("plane {}: no path from {} to {}", plane + 1, start.name, cut_off.join(", "));
            report.warn(key.place, message, "add a link, or accept that this plane is in parts");
        }
    }
}

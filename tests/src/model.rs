//! The lab's shape as `status` tells it, with the rules of `docs/architecture.md` written down a second time.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use crate::documents::{Link, Status};

/// Shape of one plane.
#[derive(Clone, Debug)]
pub struct Model {
    /// Site ids by name.
    pub sites: BTreeMap<String, u8>,
    /// Names of the sites with hosts.
    pub dcs: BTreeSet<String>,
    /// Core links of the plane.
    pub links: Vec<CoreLink>,
}

/// A link of the backbone.
#[derive(Clone, Debug)]
pub struct CoreLink {
    /// Name.
    pub name: String,
    /// Site names at the two ends.
    pub ends: [String; 2],
    /// Number among parallel links.
    pub parallel: u32,
    /// Real bit/s.
    pub capacity: u64,
    /// Microseconds.
    pub rtt: u64,
    /// Shared-risk groups.
    pub srlgs: BTreeSet<String>,
}

/// `400G` in bit/s.
pub fn capacity(text: &str) -> Option<u64> {
    scaled(text, &[("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)])
}

/// `24ms` in microseconds.
pub fn rtt(text: &str) -> Option<u64> {
    scaled(text, &[("us", 1), ("ms", 1_000), ("s", 1_000_000)])
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (unit, factor) = units.iter().find(|(unit, _)| {
        text.strip_suffix(unit).is_some_and(|number| number.ends_with(|c: char| c.is_ascii_digit()))
    })?;
    let number = text.strip_suffix(unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut value = whole.parse::<u64>().ok()? * factor;
    let mut unit = *factor;
    for digit in part.chars() {
        unit /= 10;
        value += u64::from(digit.to_digit(10)?) * unit;
    }
    Some(value)
}

impl Model {
    /// The plane's shape.
    pub fn new(status: &Status, plane: u8) -> anyhow::Result<Self> {
        let mut sites = BTreeMap::new();
        let mut dcs = BTreeSet::new();
        for node in &status.nodes {
            if node.plane == Some(plane) {
                // a router's loopback is fd00:PLANE::SITE
                let id = u8::try_from(node.address.segments()[7]).context("site id")?;
                sites.insert(node.site.clone(), id);
            }
            if node.role == "host" {
                dcs.insert(node.site.clone());
            }
        }
        let links = status.links.iter().filter(|l| l.kind == "core" && l.plane == Some(plane));
        Ok(Self { sites, dcs, links: links.map(core_link).collect::<anyhow::Result<_>>()? })
    }

    /// A site's id.
    pub fn id(&self, site: &str) -> anyhow::Result<u8> {
        self.sites.get(site).copied().with_context(|| format!("no site {site}"))
    }

    /// Link by name.
    pub fn link(&self, name: &str) -> anyhow::Result<&CoreLink> {
        self.links.iter().find(|l| l.name == name).with_context(|| format!("no core link {name}"))
    }

    /// Static labels that the router of `site` must have, with the interface that each means.
    pub fn static_labels(&self, site: &str) -> anyhow::Result<BTreeMap<u32, String>> {
        let mut labels = BTreeMap::new();
        for link in &self.links {
            for (own, far) in [(0, 1), (1, 0)] {
                if link.ends[own] == site {
                    let far = &link.ends[far];
                    let suffix =
                        if link.parallel > 1 { format!(".{}", link.parallel) } else { String::new() };
                    labels
                        .insert(1000 * link.parallel + u32::from(self.id(far)?), format!("to-{far}{suffix}"));
                }
            }
        }
        Ok(labels)
    }

    /// Smallest RTT from `from` to `to` in microseconds over the links that `usable` admits.
    pub fn distance(&self, from: &str, to: &str, usable: impl Fn(&CoreLink) -> bool) -> Option<u64> {
        let mut best = BTreeMap::from([(from.to_owned(), 0u64)]);
        // as many rounds as there are sites: enough for any shortest path
        for _ in &self.sites {
            for link in self.links.iter().filter(|l| usable(l)) {
                for (a, b) in [(0, 1), (1, 0)] {
                    if let Some(reached) = best.get(&link.ends[a]).map(|d| d + link.rtt)
                        && best.get(&link.ends[b]).is_none_or(|d| *d > reached)
                    {
                        best.insert(link.ends[b].clone(), reached);
                    }
                }
            }
        }
        best.get(to).copied()
    }
}

fn core_link(link: &Link) -> anyhow::Result<CoreLink> {
    let bad = || format!("link {} of status cannot be read", link.name);
    let (a, b) = link.name.split_once("--").with_context(bad)?;
    let site = |node: &str| node.split('.').nth(1).map(str::to_owned).with_context(bad);
    Ok(CoreLink {
        name: link.name.clone(),
        ends: [site(a)?, site(b)?],
        parallel: b.split('.').nth(2).map_or(Ok(1), str::parse).with_context(bad)?,
        capacity: capacity(&link.capacity).with_context(bad)?,
        rtt: rtt(&link.rtt).with_context(bad)?,
        srlgs: link.srlgs.iter().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: quantities as status prints them. Output: base units.
    #[test]
    fn reads_units() {
        assert_eq!(capacity("400G"), Some(400_000_000_000));
        assert_eq!(capacity("2.5T"), Some(2_500_000_000_000));
        assert_eq!(rtt("24ms"), Some(24_000));
        assert_eq!(rtt("1.5ms"), Some(1_500));
        assert_eq!(rtt("800us"), Some(800));
        assert_eq!(rtt("1s"), Some(1_000_000));
        assert_eq!(rtt("24"), None);
    }
}

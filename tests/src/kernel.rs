//! What the kernel of a router holds, as `ip` prints it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;

use crate::cli::Background;
use crate::{Cli, wait_until};

/// A nexthop object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nexthop {
    /// Members of a group with their weights.
    pub group: Vec<(u32, u32)>,
    /// Labels that it pushes.
    pub labels: Vec<u32>,
    /// Outgoing interface.
    pub device: Option<String>,
}

/// `word` after `key` in a list of words.
fn after<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().position(|w| *w == key).and_then(|at| words.get(at + 1)).copied()
}

fn labels(text: &str) -> anyhow::Result<Vec<u32>> {
    text.split('/').map(|l| l.parse().with_context(|| format!("label {l:?}"))).collect()
}

/// Reads `ip nexthop show`.
pub fn parse_nexthops(text: &str) -> anyhow::Result<BTreeMap<u32, Nexthop>> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("id ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let id = after(&words, "id").context("no id")?.parse().with_context(|| format!("id in {line:?}"))?;
        let mut nexthop = Nexthop { device: after(&words, "dev").map(str::to_owned), ..Nexthop::default() };
        if let Some(group) = after(&words, "group") {
            for member in group.split('/') {
                let (id, weight) = member.split_once(',').unwrap_or((member, "1"));
                nexthop.group.push((id.parse()?, weight.parse()?));
            }
        }
        if let Some(stack) = after(&words, "mpls") {
            nexthop.labels = labels(stack).with_context(|| format!("labels in {line:?}"))?;
        }
        found.insert(id, nexthop);
    }
    Ok(found)
}

/// An MPLS route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelRoute {
    /// Stacks pushed instead, with the outgoing interface, one per next hop.
    pub hops: Vec<(Vec<u32>, String)>,
}

/// Reads `ip -f mpls route show`.
pub fn parse_label_routes(text: &str) -> anyhow::Result<BTreeMap<u32, LabelRoute>> {
    let mut found: BTreeMap<u32, LabelRoute> = BTreeMap::new();
    let mut last = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with([' ', '\t']) {
            last = words[0].parse().with_context(|| format!("label in {line:?}"))?;
            found.entry(last).or_default();
        }
        if let Some(device) = after(&words, "dev") {
            let stack = match after(&words, "to") {
                // `as to 1005/1003`: swapped for a stack
                Some(stack) if words.contains(&"as") => labels(stack)?,
                _ => Vec::new(),
            };
            found.entry(last).or_default().hops.push((stack, device.to_owned()));
        }
    }
    Ok(found)
}

/// Nexthop objects of a node.
pub fn nexthops(cli: &Cli, node: &str) -> anyhow::Result<BTreeMap<u32, Nexthop>> {
    let found = parse_nexthops(&cli.exec(node, &["ip", "nexthop", "show"])?)?;
    ensure!(!found.is_empty(), "{node} has no nexthop objects");
    Ok(found)
}

/// Label routes of a node.
pub fn label_routes(cli: &Cli, node: &str) -> anyhow::Result<BTreeMap<u32, LabelRoute>> {
    parse_label_routes(&cli.exec(node, &["ip", "-f", "mpls", "route", "show"])?)
}

/// Changes the shaper of an interface behind the testbed's back, to `bps` bits a second in bursts of `burst` bytes; the next
/// `up` puts it right. A burst below the size of a packet lets no packet through.
pub fn limit(cli: &Cli, node: &str, device: &str, bps: f64, burst: u32) -> anyhow::Result<()> {
    let (rate, burst) = (format!("{bps:.0}bit"), burst.to_string());
    let words = ["tc", "qdisc", "change", "dev", device, "root", "tbf"];
    cli.exec(node, &[&words[..], &["rate", &rate, "burst", &burst, "limit", "1000"]].concat())?;
    Ok(())
}

/// A route that a watch makes and deletes to see whether it hears.
const MARK: &str = "2001:db8:ffff::";

/// Listens to what the kernel of a node says about routes, label routes and nexthop objects.
pub struct Watch {
    node: String,
    run: Background,
}

impl Watch {
    /// Starts it, and waits until it hears.
    pub fn start(cli: &Cli, node: &str) -> anyhow::Result<Self> {
        let mut run = cli.start(&["exec", node, "--", "ip", "-o", "monitor", "route", "nexthop"])?;
        let script = format!("r='{MARK}/64 dev lo table 9999'; ip -6 route replace $r && ip -6 route del $r");
        wait_until(Duration::from_secs(30), "a watch to hear of a route", || {
            cli.exec(node, &["sh", "-c", &script]).map_err(|e| format!("{e:#}"))?;
            run.wait_for_output(MARK, Duration::from_secs(1)).map_err(|e| format!("{e:#}"))
        })?;
        Ok(Self { node: node.to_owned(), run })
    }

    /// Ends it; what was deleted meanwhile, in the kernel's words, with the node's name before them.
    pub fn deleted(self) -> anyhow::Result<Vec<String>> {
        self.run.signal(Signal::SIGINT);
        let output = self.run.finish(Duration::from_secs(20))?;
        let lines = output.stdout.lines().filter(|l| l.contains("Deleted") && !l.contains(MARK));
        Ok(lines.map(|line| format!("{}: {}", self.node, line.trim())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: lines as iproute2 prints them. Output: groups, stacks, interfaces.
    #[test]
    fn reads_what_ip_prints() {
        let text = "id 268439808 group 268439809/268439810,3 proto 201\n\
                    id 268439809  encap mpls  1005/1003/526372 via inet6 fe80::eb dev to-atn scope link proto 201\n\
                    id 268439810 via inet6 fe80::ec dev to-lla scope link proto 201\n";
        let n = parse_nexthops(text).unwrap();
        assert_eq!(n[&268_439_808].group, [(268_439_809, 1), (268_439_810, 3)]);
        assert_eq!(n[&268_439_809].labels, [1005, 1003, 526_372]);
        assert_eq!(n[&268_439_810].device.as_deref(), Some("to-lla"));
        let text = "1005 via inet6 fe80::1 dev to-chi proto 4 \n\
                    526372 proto 201 \n\tnexthop as to 1004 via inet6 fe80::2 dev to-lon \n\tnexthop as to 1004/7 via inet6 fe80::3 dev to-lla\n";
        let r = parse_label_routes(text).unwrap();
        assert_eq!(r[&1005].hops, [(vec![], "to-chi".to_owned())]);
        assert_eq!(
            r[&526_372].hops,
            [(vec![1004], "to-lon".to_owned()), (vec![1004, 7], "to-lla".to_owned())]
        );
    }
}

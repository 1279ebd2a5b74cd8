//! Links that are broken on purpose, and mended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use router_emu::agent::Urgency;
use topologies::lab::{Lab, Link, LinkKind, Member, Wire};
use topologies::units::Rtt;

use super::events::monotonic_ns;
use super::faults::drawn;
use super::world::{World, converge};
use crate::api::protocol::LinkChange;
use crate::apply::linux::LinuxKernel;
use crate::carrier::features::Feature;
use crate::failure::{Code, Failure};
use crate::plan::{self, Faults, Impairment, bonded_members};

/// What a change of a link comes to.
struct Outcome {
    /// Whether it changes anything.
    changed: bool,
    /// What it is about: the link, or a part of it.
    subject: String,
    /// Kind of the event.
    kind: &'static str,
    /// What is done, in words.
    done: String,
    /// How it is if nothing changes.
    already: String,
}

/// Puts a change into the faults in force.
fn note(faults: &mut Faults, lab: &Lab, link: &Link, change: &LinkChange) -> anyhow::Result<Outcome> {
    let name = link.name.clone();
    let outcome = |changed, subject, kind, done: &str, already: &str| Outcome {
        changed,
        subject,
        kind,
        done: done.to_owned(),
        already: already.to_owned(),
    };
    Ok(match *change {
        LinkChange::Cut => outcome(faults.cut.insert(name.clone()), name, "link.cut", "cut", "cut"),
        LinkChange::Restore => outcome(faults.restore(&name), name, "link.restored", "restored", "up"),
        LinkChange::CutMember(number) => {
            check_member(link, number)?;
            let changed = faults.set_member(&name, number, true);
            outcome(changed, format!("{name} member {number}"), "member.cut", "cut", "cut")
        }
        LinkChange::RestoreMember(number) => {
            check_member(link, number)?;
            let changed = faults.set_member(&name, number, false);
            outcome(changed, format!("{name} member {number}"), "member.restored", "restored", "up")
        }
        LinkChange::Delay(rtt) => {
            check_delay(lab, link, rtt)?;
            let changed = faults.rtts.insert(name.clone(), rtt) != Some(rtt);
            outcome(changed, name, "link.delayed", &format!("round-trip time {rtt}"), &format!("at {rtt}"))
        }
        LinkChange::ClearDelay => {
            let changed = faults.rtts.remove(&name).is_some();
            let of_lab = link.rtt;
            outcome(
                changed,
                name,
                "link.delayed",
                &format!("round-trip time {of_lab}"),
                &format!("at {of_lab}"),
            )
        }
        LinkChange::Impair { ref from, harm } => {
            let mut changed = false;
            for node in harmed(faults, lab, link, from, harm)? {
                changed |= faults.impair(&name, node, harm);
            }
            let whole = link.ends().iter().all(|end| faults.harm(&name, &end.node) == harm);
            let done = if whole { harm.to_string() } else { format!("{harm} from {}", from.join(", ")) };
            outcome(changed, name, "link.impaired", &done, &done)
        }
        LinkChange::Flap { .. } => anyhow::bail!("a flap is no lasting state of a link"),
    })
}

/// Longest round-trip time that a link can be given, as in lab files: a minute.
const LONGEST: Rtt = Rtt(60_000_000);

fn check_delay(lab: &Lab, link: &Link, rtt: Rtt) -> anyhow::Result<()> {
    let refuse = |message: String, hint: &str| Err(Failure::new(Code::Failed, message).hint(hint).into());
    if !lab.emulate_delay {
        return refuse(
            format!("lab {} only declares round-trip times to its routers: no packet is delayed", lab.name),
            "say `delay: emulated` in the lab file, then `up` again",
        );
    }
    if link.kind != LinkKind::Core {
        return refuse(
            format!("link {} is not of the backbone: it has no queue", link.name),
            "core links have",
        );
    }
    if rtt.0 < 2 || rtt > LONGEST {
        return refuse(format!("round-trip time {rtt} is out of range"), "from 2us to 60s");
    }
    Ok(())
}

/// The ends of a link whose sending is to be harmed, if it can be.
fn harmed<'l>(
    faults: &Faults,
    lab: &Lab,
    link: &'l Link,
    from: &[String],
    harm: Impairment,
) -> anyhow::Result<Vec<&'l str>> {
    let refuse = |message: String, hint: &str| Err(Failure::new(Code::Usage, message).hint(hint).into());
    let rtt = faults.rtts.get(&link.name);
    let delay = rtt.map_or_else(|| plan::delay_us(lab, link), |rtt| rtt.0 / 2);
    harm.check(lab, delay)?;
    if let Some(rate) = harm.rate.filter(|rate| link.kind == LinkKind::Core && *rate >= link.capacity) {
        let message =
            format!("link {} has only {}: a rate of {rate} would not slow it down", link.name, link.capacity);
        return refuse(message, "give less");
    }
    let ends = link.ends().map(|end| end.node.as_str());
    let ends: Vec<&str> =
        ends.into_iter().filter(|end| from.is_empty() || from.iter().any(|name| name == end)).collect();
    if ends.is_empty() {
        let message = format!("{} is at no end of link {}", from.join(", "), link.name);
        return refuse(message, "--from names nodes at its ends: what they send is harmed");
    }
    if let Some(host) = ends.iter().find(|end| !plan::delays(&faults.rpc, end).is_empty()) {
        let message =
            format!("connections of {host} are delayed, which takes place where link {} begins", link.name);
        return refuse(message, "`rpc restore` them first: an interface has one delay or the other");
    }
    Ok(ends)
}

fn check_member(link: &Link, number: u16) -> anyhow::Result<()> {
    let there = bonded_members(link);
    if (1..=there).contains(&number) {
        return Ok(());
    }
    let (message, hint) = if there == 0 {
        (
            format!("link {} has no members of its own that could fail", link.name),
            "say `lag: emulated` for it in the lab file, with two `members` or more",
        )
    } else {
        (format!("link {} has no member {number}", link.name), "members are numbered from 1")
    };
    Err(Failure::new(Code::Usage, message).hint(hint).into())
}

/// The interfaces that a change takes down, as (node, index): a link ends with all its members, and each of them with what
/// its frames travel on, by which the other end sees it.
fn taken_down(lab: &Lab, link: &Link, change: &LinkChange) -> anyhow::Result<Vec<(String, u32)>> {
    let interface = lab.end(&link.a).context("a link without an end")?;
    let wire = |wire: &Option<Wire>| wire.as_ref().map(|wire| wire.ifindex);
    let member = |m: &Member| wire(&m.wire).into_iter().chain([m.ifindex]);
    let members = interface.members.iter();
    let down: Vec<u32> = match *change {
        LinkChange::Cut => {
            members.flat_map(member).chain(wire(&interface.wire)).chain([interface.ifindex]).collect()
        }
        LinkChange::CutMember(cut) => {
            (1..).zip(members).filter(|(n, _)| *n == cut).flat_map(|(_, m)| member(m)).collect()
        }
        _ => Vec::new(),
    };
    Ok(down.into_iter().map(|index| (link.a.node.clone(), index)).collect())
}

/// When a link that flaps goes and returns, in turn, after the beginning. Each may be late by up to `jitter_ms`, drawn from
/// the seed.
fn edges(period_ms: u64, count: u32, jitter_ms: u64, seed: u64) -> anyhow::Result<Vec<Duration>> {
    if jitter_ms >= (period_ms / 2).max(1) {
        let message = format!("a jitter of {jitter_ms} ms is too much for a period of {period_ms} ms");
        return Err(Failure::new(Code::Usage, message).hint("it has to be below half of the period").into());
    }
    let edge = |nth: u64| {
        let late = drawn(seed, nth) % (jitter_ms + 1);
        Duration::from_micros(nth * period_ms * 500) + Duration::from_millis(late)
    };
    Ok((0..2 * u64::from(count)).map(edge).collect())
}

impl World {
    /// Changes links as asked; says of each what was done, and tells when in the events.
    pub async fn link(&self, names: &[String], change: LinkChange) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        if let LinkChange::Flap { period_ms, count, jitter_ms, seed } = change {
            return self.flap(&lab, names, &edges(period_ms, count, jitter_ms, seed)?).await;
        }
        if let LinkChange::Impair { harm, .. } = change
            && harm.needs_netem()
        {
            self.provide_for("impairing a link", &[Feature::Netem])?;
        }
        let mut faults = self.view().faults;
        let mut notes = Vec::new();
        let mut changed = Vec::new();
        for name in names {
            let link = lab.link(name).with_context(|| format!("no link {name}"))?;
            let outcome = note(&mut faults, &lab, link, &change)?;
            if outcome.changed {
                changed.push((link.clone(), outcome));
            } else {
                notes.push(format!("{}: already {}", outcome.subject, outcome.already));
            }
        }
        if changed.is_empty() {
            return Ok(notes);
        }
        let links: Vec<Link> = changed.iter().map(|(link, _)| link.clone()).collect();
        let at = self.carry_out(&lab, &links, change, faults).await?;
        for ((link, outcome), at) in changed.iter().zip(at) {
            let Outcome { subject, kind, done, .. } = outcome;
            let detail = format!("{} and {}", link.a.node, link.b.node);
            let detail = if ["link.delayed", "link.impaired"].contains(kind) {
                format!("{detail}: {done}")
            } else {
                detail
            };
            self.events.emit_at(at, kind, subject, detail);
            notes.push(format!("{subject}: {done}"));
        }
        Ok(notes)
    }

    /// Cuts links and restores them, at these moments in turn.
    async fn flap(
        &self,
        lab: &Arc<Lab>,
        names: &[String],
        edges: &[Duration],
    ) -> anyhow::Result<Vec<String>> {
        let before = self.view().faults;
        if let Some(cut) = names.iter().find(|name| before.cut.contains(*name)) {
            return Err(Failure::new(Code::Failed, format!("link {cut} is cut"))
                .hint("restore it before you let it flap")
                .into());
        }
        let find = |name: &String| lab.link(name).cloned().with_context(|| format!("no link {name}"));
        let links: Vec<Link> = names.iter().map(find).collect::<anyhow::Result<_>>()?;
        let mut cut = before.clone();
        cut.cut.extend(names.iter().cloned());
        let begin = tokio::time::Instant::now();
        let count = edges.len() / 2;
        for (nth, moment) in edges.iter().enumerate() {
            let (change, faults, kind) = if nth % 2 == 0 {
                (LinkChange::Cut, &cut, "link.cut")
            } else {
                (LinkChange::Restore, &before, "link.restored")
            };
            // by the clock, so that a slow change does not move the later ones
            tokio::time::sleep_until(begin + *moment).await;
            let at = self.carry_out(lab, &links, change, faults.clone()).await?;
            for (link, at) in links.iter().zip(at) {
                self.events.emit_at(at, kind, &link.name, format!("flap {} of {count}", nth / 2 + 1));
            }
        }
        Ok(names.iter().map(|name| format!("{name}: lost and restored {count} times")).collect())
    }

    /// Makes faults the ones in force; when each link was changed, nanoseconds of CLOCK_MONOTONIC.
    async fn carry_out(
        &self,
        lab: &Arc<Lab>,
        links: &[Link],
        change: LinkChange,
        faults: Faults,
    ) -> anyhow::Result<Vec<u64>> {
        // said before it is done, so that nobody sees the effect without the cause
        self.set(|v| v.faults.clone_from(&faults));
        let (wanted, links, options) = (Arc::clone(lab), links.to_vec(), self.options());
        let work =
            move |kernel: &mut LinuxKernel| carry_out(kernel, &wanted, &links, &change, &faults, options);
        self.with_kernel(&lab.name, work).await
    }
}

/// Does it; when, for each link, nanoseconds of CLOCK_MONOTONIC.
fn carry_out(
    kernel: &mut LinuxKernel,
    lab: &Lab,
    links: &[Link],
    change: &LinkChange,
    faults: &Faults,
    options: plan::Options,
) -> anyhow::Result<Vec<u64>> {
    let mut at = Vec::new();
    {
        // the kernel does its part under a lock that every repair needs: as on a real router, losing a link
        // is not put off by what runs there
        let _hurry = Urgency::hold();
        for link in links {
            let down = taken_down(lab, link, change)?;
            at.push(monotonic_ns());
            for (node, ifindex) in down {
                let socket = kernel.socket(&node).context("a node without a namespace")?;
                socket.request(&rtnl::link::set_up(ifindex, false))?;
            }
        }
    }
    if *change != LinkChange::Cut {
        let nodes: BTreeSet<String> = links.iter().flat_map(Link::ends).map(|end| end.node.clone()).collect();
        converge(kernel, lab, faults, options, Some(nodes))?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = "
name: small
planes: 1
sites:
  prn: {id: 1, kind: dc}
  lla: {id: 2, kind: dc}
links:
  - {between: [prn, lla], capacity: 400G, rtt: 10ms, members: 4, lag: emulated}
  - {between: [prn, lla], parallel: 2, capacity: 400G, rtt: 10ms, members: 4}
";

    fn lab() -> Lab {
        Lab::from_str(LAB, "small.yaml").unwrap().0
    }

    #[test]
    fn a_cut_takes_the_members_down_with_the_bundle_and_a_member_goes_alone() {
        let lab = lab();
        let link = lab.link("eb01.lla--eb01.prn").unwrap();
        let end = lab.end(&link.a).unwrap();
        let down = |change| -> Vec<u32> {
            taken_down(&lab, link, &change).unwrap().into_iter().map(|(_, index)| index).collect()
        };
        let all: Vec<u32> = end.members.iter().map(|m| m.ifindex).chain([end.ifindex]).collect();
        assert_eq!((down(LinkChange::Cut), all.len()), (all, 5));
        assert_eq!(down(LinkChange::CutMember(2)), [end.members[1].ifindex]);
        assert!(down(LinkChange::Restore).is_empty());
    }

    #[test]
    fn a_delay_needs_a_lab_that_delays() {
        let declared = lab();
        let emulated =
            Lab::from_str(&LAB.replace("planes: 1", "planes: 1\ndelay: emulated"), "x.yaml").unwrap().0;
        let mut faults = Faults::default();
        let mut delay = |lab: &Lab, link: &str, rtt| {
            let outcome = note(&mut faults, lab, lab.link(link).unwrap(), &LinkChange::Delay(Rtt(rtt)));
            outcome.map(|o| o.done).map_err(|e| e.to_string())
        };
        let core = "eb01.lla--eb01.prn";
        assert!(delay(&declared, core, 40_000).unwrap_err().contains("only declares"));
        assert!(delay(&emulated, "fa.prn--h1.prn", 40_000).unwrap_err().contains("not of the backbone"));
        assert!(delay(&emulated, core, 1).unwrap_err().contains("out of range"));
        assert_eq!(delay(&emulated, core, 40_000), Ok("round-trip time 40ms".to_owned()));
        let clear =
            note(&mut faults, &emulated, emulated.link(core).unwrap(), &LinkChange::ClearDelay).unwrap();
        assert_eq!((clear.done.as_str(), faults), ("round-trip time 10ms", Faults::default()));
    }

    #[test]
    fn only_members_that_are_there_can_fail() {
        let lab = lab();
        let mut faults = Faults::default();
        let mut fail = |link: &str, number| {
            let link = lab.link(link).unwrap();
            note(&mut faults, &lab, link, &LinkChange::CutMember(number))
                .map(|o| o.changed)
                .map_err(|e| e.to_string())
        };
        assert_eq!(fail("eb01.lla--eb01.prn", 4), Ok(true));
        assert_eq!(fail("eb01.lla--eb01.prn", 4), Ok(false));
        assert!(fail("eb01.lla--eb01.prn", 5).unwrap_err().contains("no member 5"));
        assert!(fail("eb01.lla--eb01.prn", 0).unwrap_err().contains("no member 0"));
        assert!(fail("eb01.lla--eb01.prn.2", 1).unwrap_err().contains("no members of its own"));
        assert_eq!(faults.of_link("eb01.lla--eb01.prn"), ["member 4 cut"]);
    }

    #[test]
    fn a_flap_is_late_by_its_seed_and_never_out_of_order() {
        let ms = |edges: Vec<Duration>| edges.iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(ms(edges(1000, 2, 0, 7).unwrap()), [0, 500, 1000, 1500]);
        let late = ms(edges(1000, 20, 400, 7).unwrap());
        assert_eq!(late, ms(edges(1000, 20, 400, 7).unwrap()));
        assert_ne!(late, ms(edges(1000, 20, 400, 8).unwrap()));
        assert!(
            late.is_sorted()
                && late.iter().zip(0u128..).all(|(at, nth)| (0..=400).contains(&(at - 500 * nth)))
        );
        assert!(edges(1000, 1, 500, 0).unwrap_err().to_string().contains("too much"));
    }

    #[test]
    fn a_link_is_impaired_in_the_direction_that_is_meant() {
        let lab = lab();
        let mut faults = Faults::default();
        let mut impair = |link: &str, from: &[&str], harm| {
            let from = from.iter().map(|name| (*name).to_owned()).collect();
            let change = LinkChange::Impair { from, harm };
            let link = lab.link(link).unwrap();
            let done = note(&mut faults, &lab, link, &change).map(|o| (o.changed, o.done));
            done.map_err(|e| e.to_string()).map(|done| (done, faults.of_link(&link.name)))
        };
        let core = "eb01.lla--eb01.prn";
        let loss = Impairment { loss_ppm: 50_000, ..Impairment::default() };
        let ((changed, done), shown) = impair(core, &["eb01.prn"], loss).unwrap();
        assert!(changed && done == "loss 5% from eb01.prn", "{done}");
        assert_eq!(shown, ["loss 5% from eb01.prn"]);
        assert!(!impair(core, &["eb01.prn"], loss).unwrap().0.0);
        assert_eq!(
            impair(core, &[], loss).unwrap(),
            ((true, "loss 5%".to_owned()), vec!["loss 5%".to_owned()])
        );
        let says = |result: Result<_, String>| result.map(|_: ((bool, String), Vec<String>)| ()).unwrap_err();
        assert!(says(impair(core, &["h1.prn"], loss)).contains("at no end"));
        assert!(says(impair(core, &[], Impairment::default())).contains("does nothing"));
        let reorder = Impairment { reorder_ppm: 1, ..loss };
        assert!(says(impair(core, &[], reorder)).contains("overtake"));
        let jitter = Impairment { jitter: topologies::units::Period(2000), ..loss };
        assert!(says(impair(core, &[], jitter)).contains("deviation"));
        let rate = |bps| Impairment { rate: Some(topologies::units::Capacity(bps)), ..Impairment::default() };
        assert!(says(impair(core, &[], rate(400_000_000_000))).contains("only 400G"));
        assert!(says(impair(core, &[], rate(1_000_000))).contains("too little"));
        assert_eq!(faults.of_link(core), ["loss 5%"], "what is refused changes nothing");
        assert!(faults.restore(core));
        assert_eq!(faults, Faults::default());
    }
}

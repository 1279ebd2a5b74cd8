//! What has been broken on purpose: the part of the wanted state that no lab file says.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topologies::lab::{Lab, Link};
use topologies::units::Rtt;

use super::impair::Impairment;
use super::rpc::{self, RpcFault};

/// Faults in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Links that are cut.
    pub cut: BTreeSet<String>,
    /// Members that are cut, by their number from 1; never an empty set.
    pub members: BTreeMap<String, BTreeSet<u16>>,
    /// Links with another round-trip time than the lab file's; only where delay is emulated.
    pub rtts: BTreeMap<String, Rtt>,
    /// What links do to packets, by link and by the node that sends; never an empty map, never an impairment that does
    /// nothing.
    pub impaired: BTreeMap<String, BTreeMap<String, Impairment>>,
    /// Nodes without power.
    pub crashed: BTreeSet<String>,
    /// Connections between controllers and agents that are broken, one fault at most for each.
    pub rpc: BTreeSet<RpcFault>,
}

impl Faults {
    /// Only cut links.
    pub fn cut<S: Into<String>>(links: impl IntoIterator<Item = S>) -> Self {
        Self { cut: links.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Forgets what an edited lab does not have any more.
    pub fn retain(&mut self, lab: &Lab) {
        self.cut.retain(|name| lab.link(name).is_some());
        for (name, members) in &mut self.members {
            let there = lab.link(name).map_or(0, bonded_members);
            members.retain(|number| *number <= there);
        }
        self.members.retain(|_, members| !members.is_empty());
        self.rtts.retain(|name, _| lab.emulate_delay && lab.link(name).is_some());
        for (name, ends) in &mut self.impaired {
            let link = lab.link(name);
            ends.retain(|node, harm| {
                link.is_some_and(|link| link.ends().iter().any(|end| end.node == *node))
                    && harm.check(lab, link.map_or(0, |link| delay_us(lab, link))).is_ok()
            });
        }
        self.impaired.retain(|_, ends| !ends.is_empty());
        self.crashed.retain(|node| lab.node(node).is_some());
        self.rpc.retain(|fault| {
            lab.node(&fault.from).is_some() && !rpc::ports(lab, &fault.to, &fault.program).is_empty()
        });
    }

    /// Lets a link harm what `from` sends, in place of what it did to it before; whether that changes anything.
    pub fn impair(&mut self, link: &str, from: &str, harm: Impairment) -> bool {
        let ends = self.impaired.entry(link.to_owned()).or_default();
        if harm.is_none() {
            let changed = ends.remove(from).is_some();
            if ends.is_empty() {
                self.impaired.remove(link);
            }
            return changed;
        }
        ends.insert(from.to_owned(), harm) != Some(harm)
    }

    /// What a link does to what `from` sends.
    pub fn harm(&self, link: &str, from: &str) -> Impairment {
        self.impaired.get(link).and_then(|ends| ends.get(from)).copied().unwrap_or_default()
    }

    /// Breaks connections, in place of what was wrong with them before; whether that changes anything.
    pub fn set_rpc(&mut self, fault: RpcFault) -> bool {
        if self.rpc.contains(&fault) {
            return false;
        }
        self.rpc.retain(|other| !other.same_path(&fault));
        self.rpc.insert(fault)
    }

    /// Mends connections; whether anything was wrong with them.
    pub fn restore_rpc(&mut self, from: &str, to: &str, program: Option<&str>) -> bool {
        let before = self.rpc.len();
        let meant = |fault: &RpcFault| {
            fault.from == from && fault.to == to && program.is_none_or(|program| fault.program == program)
        };
        self.rpc.retain(|fault| !meant(fault));
        self.rpc.len() < before
    }

    /// Whether a link's member is cut, by itself or with its link.
    pub fn is_member_cut(&self, link: &str, number: u16) -> bool {
        self.cut.contains(link) || self.members.get(link).is_some_and(|members| members.contains(&number))
    }

    /// Cuts a member, or restores it; whether that changes anything.
    pub fn set_member(&mut self, link: &str, number: u16, cut: bool) -> bool {
        let members = self.members.entry(link.to_owned()).or_default();
        let changed = if cut { members.insert(number) } else { members.remove(&number) };
        if members.is_empty() {
            self.members.remove(link);
        }
        changed
    }

    /// Restores all of a link; whether anything was broken.
    pub fn restore(&mut self, link: &str) -> bool {
        let all = [
            self.cut.remove(link),
            self.members.remove(link).is_some(),
            self.rtts.remove(link).is_some(),
            self.impaired.remove(link).is_some(),
        ];
        all.contains(&true)
    }

    /// What is broken about a link, in words for people.
    pub fn of_link(&self, link: &str) -> Vec<String> {
        let members = self.members.get(link).into_iter().flatten();
        let cut = self.cut.contains(link).then(|| "cut".to_owned());
        let rtt = self.rtts.get(link).map(|rtt| format!("rtt {rtt}"));
        let members = members.map(|number| format!("member {number} cut"));
        cut.into_iter().chain(members).chain(rtt).chain(self.harms(link)).collect()
    }

    /// What a link does to packets, in words: once if it does the same in both directions.
    fn harms(&self, link: &str) -> Vec<String> {
        let ends: Vec<(&String, &Impairment)> = self.impaired.get(link).into_iter().flatten().collect();
        match ends.as_slice() {
            [(_, one), (_, other)] if one == other => vec![one.to_string()],
            _ => ends.iter().map(|(from, harm)| format!("{harm} from {from}")).collect(),
        }
    }

    /// The rate that is left of a link's `rate`, bit/s: as much of it as members that are not cut. A link that is cut
    /// keeps its rate for when it returns.
    pub fn rate_left(&self, link: &str, members: usize, rate: u64) -> u64 {
        let total = u64::try_from(members).unwrap_or(u64::MAX);
        let cut = self.members.get(link).map_or(0, |m| u64::try_from(m.len()).unwrap_or(u64::MAX));
        // all members cut: nothing passes, whatever the queue could carry
        if cut == 0 || cut >= total { rate } else { rate / total * (total - cut) }
    }
}

/// One-way delay of a link in microseconds, as its lab has it.
pub fn delay_us(lab: &Lab, link: &Link) -> u64 {
    let interface = lab.end(&link.a).and_then(|interface| interface.delay);
    interface.map_or(0, |delay| u64::try_from(delay.as_micros()).unwrap_or(u64::MAX))
}

/// Circuits of a link that are links of their own.
pub fn bonded_members(link: &Link) -> u16 {
    if link.bonded { link.members } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_cut_and_restored_one_by_one_and_together() {
        let mut faults = Faults::default();
        assert!(faults.set_member("l", 2, true) && !faults.set_member("l", 2, true));
        assert!(faults.set_member("l", 4, true));
        assert!(faults.is_member_cut("l", 2) && !faults.is_member_cut("l", 1));
        assert_eq!(faults.of_link("l"), ["member 2 cut", "member 4 cut"]);
        assert_eq!((faults.rate_left("l", 4, 20), faults.rate_left("l", 2, 20)), (10, 20));
        assert!(faults.set_member("l", 2, false) && !faults.set_member("l", 2, false));
        faults.cut.insert("l".to_owned());
        faults.rtts.insert("l".to_owned(), Rtt(40_000));
        assert_eq!(faults.of_link("l"), ["cut", "member 4 cut", "rtt 40ms"]);
        assert!(faults.is_member_cut("l", 1));
        assert!(faults.restore("l") && !faults.restore("l"));
        assert_eq!(faults, Faults::default());
    }
}

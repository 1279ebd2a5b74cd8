//! A kernel in memory that behaves like the real one where it matters: objects vanish with their interface, groups
//! shrink silently, a group that names something absent is refused whole.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use crate::lsp::bundle::{Interface, Router};
use crate::lsp::driver::{Driver, Kernel};
use crate::lsp::engine::{Engine, LinkEvent, LinkState, Snapshot};
use crate::lsp::journal::Journal;
use crate::lsp::state::{Exit, Known, Op};
use crate::proto;

#[derive(Debug, Default)]
pub struct Memory {
    pub interfaces: BTreeMap<String, (u32, bool)>,
    pub truth: Known,
    pub written: Vec<Op>,
    /// Interface that goes down when so many further writes have been done.
    pub race: Option<(usize, String)>,
    /// Writes about these keys are refused.
    pub broken: BTreeSet<u32>,
    pub looks: usize,
}

impl Memory {
    pub fn set(&mut self, name: &str, up: bool) -> LinkEvent {
        let interface = self.interfaces.get_mut(name).expect("an interface of the router");
        interface.1 = up;
        let ifindex = interface.0;
        if !up {
            self.truth.forget_interface(ifindex);
        }
        let state = if up { LinkState::Up } else { LinkState::Down };
        LinkEvent { interface: name.to_owned(), ifindex, state }
    }

    fn usable(&self, exit: &Exit) -> bool {
        self.interfaces.values().any(|&(ifindex, up)| up && ifindex == exit.ifindex)
    }

    fn one(&mut self, op: &Op) -> Result<(), String> {
        if self.broken.contains(&op.key()) {
            return Err("Cannot allocate memory".to_owned());
        }
        match op {
            Op::PutMember(_, exit) if !self.usable(exit) => return Err("Network is down".to_owned()),
            Op::PutGroup(_, members) => {
                assert!(!members.is_empty(), "an empty group");
                let distinct: BTreeSet<_> = members.iter().map(|(id, _)| id).collect();
                assert_eq!(distinct.len(), members.len(), "a member twice");
                if !members.iter().all(|(id, _)| self.truth.members.contains_key(id)) {
                    return Err("Invalid nexthop id.".to_owned());
                }
            }
            Op::PutSid(_, exits) => assert!(!exits.is_empty(), "a route without exits"),
            _ => {}
        }
        self.truth.apply(op);
        Ok(())
    }
}

impl Kernel for Memory {
    fn write(&mut self, ops: &[&Op]) -> anyhow::Result<Vec<Result<(), String>>> {
        let mut results = Vec::new();
        for op in ops {
            match self.race.take() {
                Some((0, name)) => drop(self.set(&name, false)),
                Some((n, name)) => self.race = Some((n - 1, name)),
                None => {}
            }
            let result = self.one(op);
            self.written.push((*op).clone());
            results.push(result);
        }
        Ok(results)
    }

    fn look(&mut self) -> anyhow::Result<Snapshot> {
        self.looks += 1;
        Ok(Snapshot { interfaces: self.interfaces.clone(), known: self.truth.clone() })
    }

    fn now_ns(&mut self) -> u64 {
        1
    }
}

/// A router of site `site` named `name` with interfaces to the named neighbours, all up.
pub fn router(name: &str, site: u8, neighbors: &[&str]) -> (Router, Memory) {
    let mut interfaces = Vec::new();
    let mut kernel = Memory::default();
    for (i, neighbor) in neighbors.iter().enumerate() {
        let ifindex = 1000 + u32::try_from(i).expect("few interfaces");
        let gateway = Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(ifindex));
        interfaces.push(Interface { name: format!("to-{neighbor}"), gateway, ifindex });
        kernel.interfaces.insert(format!("to-{neighbor}"), (ifindex, true));
    }
    (Router { node: name.to_owned(), site, depth: 3, interfaces }, kernel)
}

pub fn driver(name: &str, site: u8, neighbors: &[&str], journal: Option<Journal>) -> Driver<Memory> {
    let (router, kernel) = router(name, site, neighbors);
    let mut driver = Driver::new(Engine::new(router), kernel, journal);
    driver.start().expect("a start");
    driver
}

/// A path over the named routers; the label of the hop `a > b` is given by `label`.
pub fn path_with(routers: &[&str], label: impl Fn(&str, &str) -> u32) -> proto::Path {
    let hops = routers.windows(2).map(|pair| proto::Hop {
        router: pair[0].to_owned(),
        interface: format!("to-{}", pair[1]),
        label: label(pair[0], pair[1]),
        neighbor: pair[1].to_owned(),
        remote_interface: format!("to-{}", pair[0]),
    });
    proto::Path { hops: hops.collect() }
}

pub fn lsp(primary: proto::Path, backup: Option<proto::Path>) -> proto::Lsp {
    proto::Lsp { primary: Some(primary), backup, bandwidth_bps: 1 }
}

//! The agent: keeps the kernel at the routes that were asked for.

use std::collections::BTreeMap;

use ipnet::Ipv6Net;
use rtnl::route::{Filter, Route, TABLE_MAIN, Via};
use rtnl::{KernelError, Mode, Request, Socket};

use super::table::{self, Change, Interface, Interfaces, WantedTable};
use crate::config::PROTO_OPENR;
use crate::proto::{UnicastNextHop, UnicastRoute};

/// The kernel's table as the agent uses it; a second implementation lives in memory, for tests.
pub trait Kernel {
    /// All routes of our protocol in the main table.
    fn routes(&mut self) -> Result<Vec<Route>, KernelError>;
    /// All interfaces.
    fn interfaces(&mut self) -> Result<Interfaces, KernelError>;
    /// Carries out the changes in order; the fate of each. The outer error is a failure of the connection.
    fn apply(&mut self, changes: &[Change]) -> std::io::Result<Vec<Result<(), KernelError>>>;
}

/// The real kernel over netlink.
pub struct Netlink(Socket);

impl Netlink {
    /// Connects in the calling thread's network namespace.
    pub fn open() -> Result<Self, KernelError> {
        Socket::open(rtnl::socket::ROUTE).map(Self)
    }
}

impl Kernel for Netlink {
    fn routes(&mut self) -> Result<Vec<Route>, KernelError> {
        rtnl::route::dump(&mut self.0, Filter { table: Some(TABLE_MAIN), protocol: Some(PROTO_OPENR) })
    }

    fn interfaces(&mut self) -> Result<Interfaces, KernelError> {
        let links = rtnl::link::dump(&mut self.0)?;
        let interface = |l: &rtnl::link::LinkInfo| Interface {
            ifindex: l.ifindex,
            up: l.up,
            carrier: l.running && l.lower_up,
        };
        Ok(links.iter().map(|l| (l.name.clone(), interface(l))).collect())
    }

    fn apply(&mut self, changes: &[Change]) -> std::io::Result<Vec<Result<(), KernelError>>> {
        let request = |change: &Change| match change {
            Change::Set(route) => rtnl::route::add(route, Mode::Replace),
            Change::Delete(route) => rtnl::route::delete(route),
        };
        let requests: Vec<Request> = changes.iter().map(request).collect();
        self.0.batch(&requests)
    }
}

/// The agent.
pub struct FibAgent<K> {
    kernel: K,
    wanted: WantedTable,
    interfaces: Interfaces,
}

impl<K: Kernel> FibAgent<K> {
    /// Starts from what the kernel has: nothing is changed.
    pub fn start(mut kernel: K) -> anyhow::Result<Self> {
        let interfaces = kernel.interfaces()?;
        let wanted = table::read_back(&kernel.routes()?, &interfaces);
        Ok(Self { kernel, wanted, interfaces })
    }

    /// Number of routes that are wanted.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether no route is wanted.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Adds or replaces routes; one line for each that could not be installed: prefix, space, reason. Such a
    /// route stays wanted and is tried again when a link changes.
    pub fn add(&mut self, routes: &[UnicastRoute]) -> anyhow::Result<Vec<String>> {
        let mut failed = Vec::new();
        let mut changes = Vec::new();
        for route in routes {
            let (prefix, wanted) = match table::parse(route) {
                Ok(parsed) => parsed,
                Err(why) => {
                    failed.push(format!("{} {why}", route.prefix));
                    continue;
                }
            };
            match table::kernel_route(prefix, &wanted, &self.interfaces) {
                Ok(route) => changes.push(Change::Set(route)),
                Err(why) => failed.push(format!("{prefix} {why}")),
            }
            if let Some(old) = self.wanted.get(&prefix)
                && old.metric != wanted.metric
            {
                changes.push(delete(prefix, old.metric));
            }
            self.wanted.insert(prefix, wanted);
        }
        failed.extend(self.apply(&changes)?);
        Ok(failed)
    }

    /// Deletes routes; one that is not there is fine.
    pub fn delete(&mut self, routes: &[UnicastRoute]) -> anyhow::Result<Vec<String>> {
        let mut failed = Vec::new();
        let mut changes = Vec::new();
        for route in routes {
            match route.prefix.parse::<Ipv6Net>() {
                Ok(prefix) => {
                    if let Some(old) = self.wanted.remove(&prefix) {
                        changes.push(delete(prefix, old.metric));
                    }
                }
                Err(e) => failed.push(format!("{} is no IPv6 prefix: {e}", route.prefix)),
            }
        }
        failed.extend(self.apply(&changes)?);
        Ok(failed)
    }

    /// Replaces everything: afterwards exactly these routes of our protocol exist.
    pub fn sync(&mut self, routes: &[UnicastRoute]) -> anyhow::Result<Vec<String>> {
        let mut failed = Vec::new();
        let mut wanted = WantedTable::new();
        for route in routes {
            match table::parse(route) {
                Ok((prefix, want)) => drop(wanted.insert(prefix, want)),
                Err(why) => failed.push(format!("{} {why}", route.prefix)),
            }
        }
        self.wanted = wanted;
        failed.extend(self.reconcile()?);
        Ok(failed)
    }

    /// Puts the kernel right, whatever happened to it; what could not be installed.
    pub fn reconcile(&mut self) -> anyhow::Result<Vec<String>> {
        self.interfaces = self.kernel.interfaces()?;
        let (changes, waiting) = table::plan(&self.wanted, &self.kernel.routes()?, &self.interfaces);
        if !changes.is_empty() {
            tracing::info!(changes = changes.len(), waiting = waiting.len(), "kernel routes put right");
        }
        let mut failed: Vec<String> =
            waiting.into_iter().map(|(prefix, why)| format!("{prefix} {why}")).collect();
        failed.extend(self.apply(&changes)?);
        Ok(failed)
    }

    /// What the kernel has now.
    pub fn dump(&mut self) -> anyhow::Result<Vec<UnicastRoute>> {
        self.interfaces = self.kernel.interfaces()?;
        let have = table::read_back(&self.kernel.routes()?, &self.interfaces);
        let route = |(prefix, wanted): (Ipv6Net, table::Wanted)| UnicastRoute {
            prefix: prefix.to_string(),
            next_hops: wanted
                .hops
                .into_iter()
                .map(|(address, interface)| UnicastNextHop { address: address.to_string(), interface })
                .collect(),
            metric: wanted.metric,
        };
        Ok(have.into_iter().map(route).collect())
    }

    fn apply(&mut self, changes: &[Change]) -> anyhow::Result<Vec<String>> {
        let fates = self.kernel.apply(changes)?;
        let mut failed = BTreeMap::new();
        for (change, fate) in changes.iter().zip(fates) {
            match fate {
                Err(e) if matches!(change, Change::Delete(_)) && e.is_absent() => {}
                Err(e) => drop(failed.insert(change.prefix(), e.to_string())),
                Ok(()) => {}
            }
        }
        Ok(failed.into_iter().map(|(prefix, why)| format!("{prefix} {why}")).collect())
    }
}

fn delete(prefix: Ipv6Net, metric: u32) -> Change {
    Change::Delete(Route {
        dst: prefix,
        table: TABLE_MAIN,
        metric,
        protocol: PROTO_OPENR,
        kind: rtnl::route::Kind::Unicast,
        via: Via::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Memory {
        routes: Vec<Route>,
        interfaces: Interfaces,
        refuse: Option<Ipv6Net>,
        touched: usize,
    }

    impl Kernel for Memory {
        fn routes(&mut self) -> Result<Vec<Route>, KernelError> {
            Ok(self.routes.clone())
        }

        fn interfaces(&mut self) -> Result<Interfaces, KernelError> {
            Ok(self.interfaces.clone())
        }

        fn apply(&mut self, changes: &[Change]) -> std::io::Result<Vec<Result<(), KernelError>>> {
            self.touched += changes.len();
            let error = |errno| KernelError { errno, text: None, doing: "set a route".into() };
            let mut one = |change: &Change| {
                let same = |r: &Route, c: &Route| r.dst == c.dst && r.metric == c.metric;
                match change {
                    _ if self.refuse == Some(change.prefix()) => Err(error(libc::EINVAL)),
                    Change::Set(route) => {
                        self.routes.retain(|r| !same(r, route));
                        self.routes.push(route.clone());
                        Ok(())
                    }
                    Change::Delete(route) => {
                        let before = self.routes.len();
                        self.routes.retain(|r| !same(r, route));
                        if self.routes.len() < before { Ok(()) } else { Err(error(libc::ESRCH)) }
                    }
                }
            };
            Ok(changes.iter().map(&mut one).collect())
        }
    }

    fn memory() -> Memory {
        let interface = |ifindex| Interface { ifindex, up: true, carrier: true };
        let interfaces = Interfaces::from([("to-a".into(), interface(1)), ("to-b".into(), interface(2))]);
        Memory { interfaces, ..Memory::default() }
    }

    fn route(last: u8, interface: &str) -> UnicastRoute {
        let hop = UnicastNextHop { address: "fe80::1".into(), interface: interface.into() };
        UnicastRoute { prefix: format!("fd00:1::{last:x}/128"), next_hops: vec![hop], metric: 1024 }
    }

    #[test]
    fn sync_touches_only_what_differs() {
        let mut agent = FibAgent::start(memory()).unwrap();
        assert!(agent.sync(&[route(1, "to-a"), route(2, "to-a"), route(3, "to-b")]).unwrap().is_empty());
        agent.kernel.touched = 0;
        assert!(agent.sync(&[route(1, "to-a"), route(2, "to-b"), route(4, "to-b")]).unwrap().is_empty());
        assert_eq!(agent.kernel.touched, 3, "one replaced, one added, one deleted");
        assert_eq!(agent.dump().unwrap(), [route(1, "to-a"), route(2, "to-b"), route(4, "to-b")]);
    }

    #[test]
    fn a_restarted_agent_keeps_what_it_finds() {
        let mut agent = FibAgent::start(memory()).unwrap();
        agent.sync(&[route(1, "to-a"), route(2, "to-b")]).unwrap();
        let mut again = FibAgent::start(agent.kernel).unwrap();
        again.kernel.touched = 0;
        assert!(again.reconcile().unwrap().is_empty());
        assert_eq!((again.len(), again.kernel.touched), (2, 0));
    }

    #[test]
    fn routes_that_went_with_a_link_come_back_with_it() {
        let mut agent = FibAgent::start(memory()).unwrap();
        agent.sync(&[route(1, "to-a"), route(2, "to-b")]).unwrap();
        agent.kernel.interfaces.get_mut("to-a").unwrap().up = false;
        agent.kernel.routes.retain(|r| r.dst.to_string() != "fd00:1::1/128");
        let failed = agent.reconcile().unwrap();
        assert!(failed[0].starts_with("fd00:1::1/128 waits for"), "{failed:?}");
        agent.kernel.interfaces.get_mut("to-a").unwrap().up = true;
        assert!(agent.reconcile().unwrap().is_empty());
        assert_eq!(agent.dump().unwrap().len(), 2);
    }

    #[test]
    fn failures_are_told_per_prefix_and_the_others_are_installed() {
        let mut agent = FibAgent::start(memory()).unwrap();
        agent.kernel.refuse = Some("fd00:1::2/128".parse().unwrap());
        let mut bad = route(9, "to-a");
        bad.prefix = "nonsense".into();
        let failed = agent.add(&[route(1, "to-a"), route(2, "to-a"), bad, route(3, "to-b")]).unwrap();
        assert_eq!(failed.len(), 2);
        assert!(failed.iter().any(|f| f.starts_with("fd00:1::2/128 cannot set a route")), "{failed:?}");
        assert!(failed.iter().any(|f| f.starts_with("nonsense ")), "{failed:?}");
        assert_eq!(agent.dump().unwrap().len(), 2);
    }

    #[test]
    fn deleting_twice_is_fine() {
        let mut agent = FibAgent::start(memory()).unwrap();
        agent.add(&[route(1, "to-a")]).unwrap();
        agent.kernel.routes.clear();
        assert!(agent.delete(&[route(1, "to-a")]).unwrap().is_empty());
        assert!(agent.delete(&[route(1, "to-a")]).unwrap().is_empty());
        assert!(agent.is_empty());
    }
}

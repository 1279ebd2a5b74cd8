//! A network of agents in one process: simulated time, links with latency, clocks that disagree.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::action::{Action, Event, SessionId};
use super::drain::Drains;
use super::node::Openr;
use super::spark::{MS, Nanos};
use super::spf::RouteTable;
use crate::config::{CoreInterface, OpenrTimers, RouterConfig};
use crate::proto::Publication;

/// CPU time that every event costs a router.
pub const WORK: Nanos = MS / 10;

pub struct Wire {
    pub ends: [(String, String); 2],
    pub latency: Nanos,
    pub up: bool,
    cuts: u64,
}

pub struct Router {
    pub config: RouterConfig,
    pub core: Option<Openr>,
    pub drains: Drains,
    /// Its clock is ahead of the simulation's by this much.
    pub offset: Nanos,
    pub routes: Vec<(Nanos, Arc<RouteTable>)>,
    pub published: Vec<(Nanos, Publication)>,
    pub handled: usize,
    tick_at: Option<Nanos>,
    lives: u64,
}

enum Item {
    Event(String, u64, Event),
    Tick(String, u64),
}

struct Pipe {
    far: (String, SessionId),
    wire: usize,
    cuts: u64,
}

pub struct Sim {
    pub now: Nanos,
    pub routers: BTreeMap<String, Router>,
    pub wires: Vec<Wire>,
    /// Every how many discovery packets one is lost; 0 for never.
    pub lose_every: u64,
    sent: u64,
    same_time: u32,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    items: BTreeMap<u64, Item>,
    next: u64,
    pipes: BTreeMap<(String, SessionId), Pipe>,
}

pub fn config(node: &str, number: u8, interfaces: &[(String, u64)]) -> RouterConfig {
    RouterConfig {
        node: node.to_owned(),
        plane: 1,
        site: number,
        site_name: node.trim_start_matches("eb01.").to_owned(),
        is_dc: true,
        loopback: Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, u16::from(number)),
        run_dir: "/nonexistent".into(),
        state_dir: "/nonexistent".into(),
        fabric_interface: None,
        interfaces: interfaces
            .iter()
            .enumerate()
            .map(|(k, (name, declared_rtt_us))| CoreInterface {
                name: name.clone(),
                label: 1000 + u32::try_from(k).unwrap(),
                peer_link_local: Ipv6Addr::UNSPECIFIED,
                capacity_bps: 400_000_000_000,
                members: 4,
                declared_rtt_us: *declared_rtt_us,
                srlgs: vec!["srlg-1".into()],
                enabled: true,
            })
            .collect(),
        max_labels: 3,
        openr: OpenrTimers::default(),
        macsec: None,
    }
}

impl Sim {
    /// Links by their ends' names and one-way latency; parallel links are given twice.
    pub fn new(links: &[(&str, &str, Nanos)]) -> Self {
        let mut interfaces: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        let mut wires = Vec::new();
        for (a, b, latency) in links {
            let nth = wires.iter().filter(|w: &&Wire| w.ends[0].0 == *a && w.ends[1].0 == *b).count() + 1;
            let name = |far: &str| if nth == 1 { format!("to-{far}") } else { format!("to-{far}.{nth}") };
            interfaces.entry((*a).to_owned()).or_default().push((name(b), 0));
            interfaces.entry((*b).to_owned()).or_default().push((name(a), 0));
            let ends = [((*a).to_owned(), name(b)), ((*b).to_owned(), name(a))];
            wires.push(Wire { ends, latency: *latency, up: true, cuts: 0 });
        }
        let mut sim = Self {
            now: 1_000 * MS,
            routers: BTreeMap::new(),
            wires,
            lose_every: 0,
            sent: 0,
            same_time: 0,
            queue: BinaryHeap::new(),
            items: BTreeMap::new(),
            next: 0,
            pipes: BTreeMap::new(),
        };
        for (k, (node, interfaces)) in interfaces.into_iter().enumerate() {
            let number = u8::try_from(k + 1).unwrap();
            let router = Router {
                config: config(&node, number, &interfaces),
                core: None,
                drains: Drains::default(),
                offset: u64::from(number) * 7_777 * MS,
                routes: Vec::new(),
                published: Vec::new(),
                handled: 0,
                tick_at: None,
                lives: 0,
            };
            sim.routers.insert(node, router);
        }
        sim
    }

    pub fn start_all(&mut self) {
        for node in self.routers.keys().cloned().collect::<Vec<_>>() {
            self.start(&node);
        }
    }

    /// Starts a router's program; its interfaces have a carrier where the wire is whole.
    pub fn start(&mut self, node: &str) {
        let router = self.routers.get_mut(node).unwrap();
        router.lives += 1;
        let now = self.now + router.offset;
        let instance = router.lives * 1000 + u64::from(router.config.site);
        router.core = Some(Openr::new(&router.config, router.drains.clone(), instance, now));
        for (interface, _) in self.interfaces(node) {
            let up = self.wire(node, &interface).is_some_and(|w| self.wires[w].up);
            self.handle(node, Event::Link { interface, up });
        }
    }

    /// SIGKILL: the kernel resets the sessions, nothing else is said.
    pub fn kill(&mut self, node: &str) {
        self.routers.get_mut(node).unwrap().core = None;
        let gone: Vec<_> = self.pipes.keys().filter(|(n, _)| n == node).cloned().collect();
        for end in gone {
            self.close(&end);
        }
    }

    pub fn set_wire(&mut self, wire: usize, up: bool) {
        self.wires[wire].up = up;
        self.wires[wire].cuts += u64::from(!up);
        for (node, interface) in self.wires[wire].ends.clone() {
            self.event(self.now, &node, Event::Link { interface, up });
        }
    }

    pub fn wire_between(&self, a: &str, b: &str) -> usize {
        self.wires.iter().position(|w| w.ends[0].0 == a && w.ends[1].0 == b).unwrap()
    }

    /// Hands an event to a router now.
    pub fn handle(&mut self, node: &str, event: Event) {
        let router = self.routers.get_mut(node).unwrap();
        let now = self.now + router.offset;
        let Some(core) = router.core.as_mut() else { return };
        router.handled += 1;
        let actions = core.handle(now, event);
        let deadline = core.next_deadline().map(|at| at.saturating_sub(router.offset).max(self.now));
        if let Some(at) = deadline
            && router.tick_at.is_none_or(|t| at < t || t < self.now)
        {
            router.tick_at = Some(at);
            let lives = router.lives;
            self.push(at, Item::Tick(node.to_owned(), lives));
        }
        for action in actions {
            self.act(node, action);
        }
    }

    pub fn run_until(&mut self, end: Nanos) {
        while let Some(Reverse((at, _))) = self.queue.peek()
            && *at <= end
        {
            self.step();
        }
        self.now = end;
    }

    /// Runs until `done`, at most for `most`; how long it took.
    pub fn wait(&mut self, most: Nanos, done: impl Fn(&Sim) -> bool) -> Nanos {
        let start = self.now;
        while !done(self) {
            assert!(self.now < start + most, "not reached after {} ms", most / MS);
            assert!(self.step(), "nothing will ever happen again");
        }
        self.now - start
    }

    pub fn table(&self, node: &str) -> RouteTable {
        self.routers[node].routes.last().map(|(_, t)| (**t).clone()).unwrap_or_default()
    }

    /// Whether every router has a route to every other.
    pub fn full(&self) -> bool {
        self.routers.keys().all(|n| self.table(n).len() == self.routers.len() - 1)
    }

    fn interfaces(&self, node: &str) -> Vec<(String, u64)> {
        self.routers[node].config.interfaces.iter().map(|i| (i.name.clone(), i.declared_rtt_us)).collect()
    }

    fn wire(&self, node: &str, interface: &str) -> Option<usize> {
        self.wires.iter().position(|w| w.ends.iter().any(|(n, i)| n == node && i == interface))
    }

    fn far(&self, wire: usize, node: &str) -> (String, String) {
        let ends = &self.wires[wire].ends;
        if ends[0].0 == node { ends[1].clone() } else { ends[0].clone() }
    }

    fn push(&mut self, at: Nanos, item: Item) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next)));
        self.items.insert(self.next, item);
    }

    fn event(&mut self, at: Nanos, node: &str, event: Event) {
        let lives = self.routers[node].lives;
        self.push(at + WORK, Item::Event(node.to_owned(), lives, event));
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((at, number))) = self.queue.pop() else { return false };
        self.same_time = if at == self.now { self.same_time + 1 } else { 0 };
        assert!(self.same_time < 100_000, "events without end at {at}");
        self.now = at;
        match self.items.remove(&number) {
            Some(Item::Event(node, lives, event)) => {
                if self.routers[&node].lives == lives {
                    let event = self.on_arrival(&node, event);
                    self.handle(&node, event);
                }
            }
            Some(Item::Tick(node, lives)) => {
                let router = self.routers.get_mut(&node).unwrap();
                // a later one than the deadline of now was overtaken
                if router.lives == lives && router.tick_at == Some(at) {
                    router.tick_at = None;
                    self.handle(&node, Event::Tick);
                }
            }
            None => {}
        }
        true
    }

    /// Arrival times are those of the receiver's clock.
    fn on_arrival(&self, node: &str, event: Event) -> Event {
        match event {
            Event::Packet { interface, from, bytes, .. } => {
                let arrived = self.now - WORK + self.routers[node].offset;
                Event::Packet { interface, from, arrived, bytes }
            }
            other => other,
        }
    }

    fn close(&mut self, end: &(String, SessionId)) {
        let Some(pipe) = self.pipes.remove(end) else { return };
        self.pipes.remove(&pipe.far);
        let wire = &self.wires[pipe.wire];
        if wire.up && wire.cuts == pipe.cuts {
            let at = self.now + wire.latency;
            self.event(at, &pipe.far.0, Event::Closed { session: pipe.far.1 });
        }
    }

    fn act(&mut self, node: &str, action: Action) {
        match action {
            Action::Send(interface, bytes) => {
                let wire = self.wire(node, &interface).unwrap();
                self.sent += 1;
                if !self.wires[wire].up || (self.lose_every > 0 && self.sent.is_multiple_of(self.lose_every))
                {
                    return;
                }
                let (far, interface) = self.far(wire, node);
                let number = u16::from(self.routers[node].config.site);
                let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, u16::try_from(wire).unwrap(), number);
                let at = self.now + self.wires[wire].latency;
                self.event(at, &far, Event::Packet { interface, from, arrived: 0, bytes });
            }
            Action::Connect { node: far, interface, .. } => self.connect(node, &far, interface),
            Action::Write(session, bytes) => {
                let Some(pipe) = self.pipes.get(&(node.to_owned(), session)) else { return };
                let wire = &self.wires[pipe.wire];
                if wire.up && wire.cuts == pipe.cuts {
                    let (at, far) = (self.now + wire.latency, pipe.far.clone());
                    self.event(at, &far.0, Event::Bytes { session: far.1, bytes: bytes.to_vec() });
                }
            }
            Action::Close(session) => self.close(&(node.to_owned(), session)),
            Action::Publish(publication) => {
                let now = self.now;
                self.routers.get_mut(node).unwrap().published.push((now, publication));
            }
            Action::Routes(table) => {
                let now = self.now;
                self.routers.get_mut(node).unwrap().routes.push((now, table));
            }
            Action::SaveDrains(drains) => self.routers.get_mut(node).unwrap().drains = drains,
        }
    }

    fn connect(&mut self, node: &str, far: &str, interface: String) {
        let wire = self.wire(node, &interface).unwrap();
        let latency = self.wires[wire].latency;
        if !self.wires[wire].up || self.routers[far].core.is_none() {
            self.event(self.now + 2 * latency, node, Event::ConnectFailed { node: far.to_owned() });
            return;
        }
        self.next += 2;
        let (near_id, far_id) = (self.next, self.next + 1);
        let cuts = self.wires[wire].cuts;
        let (near_end, far_end) = ((node.to_owned(), near_id), (far.to_owned(), far_id));
        self.pipes.insert(near_end.clone(), Pipe { far: far_end.clone(), wire, cuts });
        self.pipes.insert(far_end, Pipe { far: near_end, wire, cuts });
        let (_, far_interface) = self.far(wire, node);
        self.event(self.now + latency, far, Event::Accepted { session: far_id, interface: far_interface });
        let event = Event::Connected { session: near_id, node: far.to_owned(), interface };
        self.event(self.now + 2 * latency, node, event);
    }
}

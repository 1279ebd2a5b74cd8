//! Neighbour discovery: the state machine of every link, without sockets or clocks.
//!
//! IDLE (nobody heard) → WARM (heard) → NEGOTIATE (we hear each other) → ESTABLISHED (handshake done). A
//! neighbour that restarts goes through the same states again, but its adjacency is *kept* until the hold time:
//! whether it said goodbye (restart flag) or was killed (its instance number changed, or it fell silent).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use super::damping::Backoff;
use super::link::Link;
use super::neighbor::{Neighbor, State};
use super::packet::{Body, Handshake, Heard, Hello, Packet, Sender};

mod configure;

/// Nanoseconds of one monotonic clock.
pub type Nanos = u64;
/// A millisecond in [`Nanos`].
pub const MS: Nanos = 1_000_000;

/// Hellos sent at the fast rate after a link is established, to fill the round-trip filter.
const BURST: u32 = 10;
const HANDSHAKE_RETRY: Nanos = 100 * MS;
const RESEND: Nanos = 50 * MS;

/// Who we are and our timers, nanoseconds.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Router name.
    pub node: String,
    /// Plane.
    pub plane: u8,
    /// Drawn at start.
    pub instance: u64,
    /// TCP port of our store.
    pub store_port: u16,
    /// Hello period once established.
    pub hello: Nanos,
    /// Hello period before.
    pub fast_hello: Nanos,
    /// Heartbeat period.
    pub keepalive: Nanos,
    /// Silence after which neighbours must give us up; also how long they keep us while we restart.
    pub hold: Nanos,
    /// How long links that go up and down are kept out.
    pub flap: Backoff,
}

/// Where an established neighbour is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Router name.
    pub node: String,
    /// Its interface.
    pub interface: String,
    /// Its link-local address.
    pub address: Ipv6Addr,
    /// Port of its store.
    pub store_port: u16,
    /// Round-trip time, microseconds, declared part included.
    pub rtt_us: u64,
}

/// What discovery wants done or known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Multicast these bytes on the interface.
    Send(String, Vec<u8>),
    /// The link counts from now on.
    Up(String, Peer),
    /// The neighbour's program restarted; the link counted all the time.
    Restarted(String, Peer),
    /// The link counts no more: interface, node, reason.
    Down(String, String, &'static str),
    /// The round-trip time of a link that counts changed, microseconds.
    Rtt(String, u64),
}

/// One line of the neighbour table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Our interface.
    pub interface: String,
    /// Neighbour, empty while IDLE.
    pub node: String,
    /// `IDLE`, `WARM`, `NEGOTIATE`, `ESTABLISHED`, `RESTART` while a restarting neighbour is kept, `SILENT` while BFD
    /// says that nothing passes, or `DAMPED` while the link is kept out because it went up and down.
    pub state: &'static str,
    /// Microseconds.
    pub rtt_us: u64,
    /// Time since the last packet; 0 while IDLE.
    pub silent: Nanos,
    /// How long the link is still kept out; 0 if it is not DAMPED.
    pub held: Nanos,
}

/// Discovery on all interfaces of a router.
#[derive(Debug)]
pub struct Spark {
    me: Identity,
    links: BTreeMap<String, Link>,
}

impl Spark {
    /// `interfaces`: names with their declared round-trip times in microseconds. All start as down.
    pub fn new(me: Identity, interfaces: impl IntoIterator<Item = (String, u64)>) -> Self {
        let links = interfaces
            .into_iter()
            .map(|(name, declared_us)| (name, Link::new(declared_us, me.flap)))
            .collect();
        Self { me, links }
    }

    /// The interface got or lost its carrier. Down drops the neighbour at once.
    pub fn set_link(&mut self, now: Nanos, interface: &str, up: bool, out: &mut Vec<Output>) {
        self.change(now, interface, "the interface went down", |link| link.carrier = up, out);
    }

    /// BFD says that nothing passes on the interface in spite of its carrier, or takes that back. Meanwhile there is no
    /// neighbour: discovery's own packets may still come through in one direction.
    pub fn set_silent(&mut self, now: Nanos, interface: &str, silent: bool, out: &mut Vec<Output>) {
        self.change(now, interface, "BFD: no packets pass", |link| link.silent = silent, out);
    }

    fn change(
        &mut self,
        now: Nanos,
        interface: &str,
        reason: &'static str,
        set: impl FnOnce(&mut Link),
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(interface) else { return };
        let before = link.up();
        link.follow(now, set);
        if link.up() == before {
            return;
        }
        link.problem = None;
        if link.up() {
            self.send_hello(now, interface, false, out);
        } else if let Some(lost) = link.neighbor.take()
            && lost.counts()
        {
            out.push(Output::Down(interface.to_owned(), lost.node, reason));
        }
    }

    /// Whether neighbours can be there: the interface has a carrier, and BFD does not object.
    pub fn is_up(&self, interface: &str) -> bool {
        self.links.get(interface).is_some_and(Link::up)
    }

    /// A packet arrived. `arrived` is when the kernel took it, on our clock.
    pub fn packet(
        &mut self,
        now: Nanos,
        interface: &str,
        from: Ipv6Addr,
        arrived: Nanos,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(interface) else { return };
        if !link.up() {
            return;
        }
        let packet = match Packet::decode(bytes) {
            Ok(packet) => packet,
            Err(e) => return link.complain(interface, format!("packet from {from} refused: {e}")),
        };
        if let Some(problem) = link.mismatch(&self.me, &packet.from) {
            return link.complain(interface, problem);
        }
        link.problem = None;
        match packet.body {
            Body::Hello(hello) => self.hello(now, interface, (from, arrived), &packet.from, &hello, out),
            Body::Handshake(shake) => self.handshake(now, interface, &packet.from, &shake, out),
            Body::Heartbeat { .. } => {
                if let Some(neighbor) = link.neighbor.as_mut()
                    && neighbor.state == State::Established
                    && neighbor.instance == packet.from.instance
                {
                    neighbor.heard(now);
                }
            }
        }
    }

    /// The kernel refused a packet (no address yet, for instance): try again soon.
    pub fn send_failed(&mut self, now: Nanos, interface: &str) {
        if let Some(link) = self.links.get_mut(interface) {
            link.next_hello = link.next_hello.min(now + RESEND);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Nanos, out: &mut Vec<Output>) {
        let names: Vec<String> = self
            .links
            .iter()
            .filter(|(_, link)| link.due().is_some_and(|t| t <= now))
            .map(|(n, _)| n.clone())
            .collect();
        for name in names {
            self.tick_link(now, &name, out);
        }
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.links.values().filter_map(Link::due).min()
    }

    /// Says goodbye on every link: we end and mean to return.
    pub fn say_restarting(&mut self, now: Nanos, out: &mut Vec<Output>) {
        let names: Vec<String> = self.links.iter().filter(|(_, l)| l.up()).map(|(n, _)| n.clone()).collect();
        for name in names {
            self.send_hello(now, &name, true, out);
        }
    }

    /// The neighbour table, by interface.
    pub fn views(&self, now: Nanos) -> Vec<View> {
        self.links
            .iter()
            .map(|(interface, link)| {
                let neighbor = link.neighbor.as_ref();
                View {
                    interface: interface.clone(),
                    node: neighbor.map(|n| n.node.clone()).unwrap_or_default(),
                    state: match neighbor {
                        Some(neighbor) => neighbor.state_name(),
                        None if link.silent => "SILENT",
                        None if link.damped => "DAMPED",
                        None => "IDLE",
                    },
                    rtt_us: neighbor.map_or(0, |n| n.rtt.published_us()),
                    silent: neighbor.map_or(0, |n| now.saturating_sub(n.last_heard)),
                    held: link.held(now),
                }
            })
            .collect()
    }

    /// Whether every interface with a carrier has an established neighbour.
    pub fn all_established(&self) -> bool {
        self.links
            .values()
            .filter(|link| link.up())
            .all(|link| link.neighbor.as_ref().is_some_and(|n| n.state == State::Established))
    }

    /// Whether any interface has a carrier.
    pub fn any_up(&self) -> bool {
        self.links.values().any(Link::up)
    }

    /// What is wrong on an interface (looped cable, other plane, other version), in words.
    pub fn problem(&self, interface: &str) -> Option<&str> {
        self.links.get(interface)?.problem.as_deref()
    }

    fn hello(
        &mut self,
        now: Nanos,
        interface: &str,
        (address, arrived): (Ipv6Addr, Nanos),
        from: &Sender,
        hello: &Hello,
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(interface) else { return };
        let declared_us = link.declared_us;
        let fresh = link.neighbor.is_none();
        let neighbor =
            link.neighbor.get_or_insert_with(|| Neighbor::new(from, address, declared_us, now, self.me.hold));
        let mut answer = fresh || hello.solicit;
        if neighbor.instance == from.instance {
            if hello.seq <= neighbor.last_seq && !fresh {
                return;
            }
        } else {
            // killed and started again: it knows nothing of us yet, but it forwards as before
            neighbor.restarts(now, Some(from.instance));
            answer = true;
        }
        neighbor.last_seq = hello.seq;
        neighbor.address = address;
        neighbor.their_sent_ns = hello.sent_ns;
        neighbor.arrived_ns = arrived;
        neighbor.heard(now);
        if hello.restarting {
            neighbor.restarts(now, None);
            return;
        }
        let mine = hello.heard.iter().find(|h| h.node == self.me.node && h.instance == self.me.instance);
        if let Some(mine) = mine {
            let there = hello.sent_ns.saturating_sub(mine.arrived_ns);
            let rtt = arrived.saturating_sub(mine.their_sent_ns).saturating_sub(there);
            let counts = neighbor.counts();
            if let Some(rtt_us) = neighbor.rtt.sample(rtt / 1000)
                && counts
            {
                out.push(Output::Rtt(interface.to_owned(), rtt_us));
            }
        }
        let shake = self.advance(interface, mine.is_some(), out);
        if answer || shake == Step::Lost {
            self.send_hello(now, interface, false, out);
        }
        if shake == Step::Shake {
            self.send_handshake(now, interface, out);
        }
    }

    /// Moves the state machine after a hello that hears us or not.
    fn advance(&mut self, interface: &str, hears_us: bool, out: &mut Vec<Output>) -> Step {
        let Some(link) = self.links.get_mut(interface) else { return Step::None };
        let Some(neighbor) = link.neighbor.as_mut() else { return Step::None };
        match (neighbor.state, hears_us) {
            (State::Warm, true) => {
                neighbor.state = State::Negotiate;
                Step::Shake
            }
            (State::Negotiate, false) => {
                neighbor.state = State::Warm;
                Step::None
            }
            (State::Established, false) => {
                // one direction is broken, or the neighbour gave us up: start over
                neighbor.state = State::Warm;
                out.push(Output::Down(
                    interface.to_owned(),
                    neighbor.node.clone(),
                    "the neighbour does not hear us",
                ));
                Step::Lost
            }
            _ => Step::None,
        }
    }

    fn handshake(
        &mut self,
        now: Nanos,
        interface: &str,
        from: &Sender,
        shake: &Handshake,
        out: &mut Vec<Output>,
    ) {
        if shake.to_node != self.me.node || shake.to_instance != self.me.instance {
            return;
        }
        let Some(link) = self.links.get_mut(interface) else { return };
        let Some(neighbor) = link.neighbor.as_mut().filter(|n| n.instance == from.instance) else { return };
        neighbor.hold = Nanos::from(shake.hold_ms) * MS;
        neighbor.keep = Nanos::from(shake.restart_ms) * MS;
        neighbor.store_port = shake.store_port;
        neighbor.heard(now);
        if neighbor.state != State::Established {
            let kept = neighbor.counts();
            neighbor.state = State::Established;
            neighbor.kept_until = None;
            neighbor.next_heartbeat = now + self.me.keepalive;
            let (name, peer) = (interface.to_owned(), neighbor.peer());
            link.burst = BURST;
            link.next_hello = link.next_hello.min(now + self.me.fast_hello);
            out.push(if kept { Output::Restarted(name, peer) } else { Output::Up(name, peer) });
        }
        if !shake.established {
            self.send_handshake(now, interface, out);
        }
    }

    fn tick_link(&mut self, now: Nanos, interface: &str, out: &mut Vec<Output>) {
        let Some(link) = self.links.get_mut(interface) else { return };
        if link.damped {
            // its time is over: sought like any link that has just come
            link.damped = false;
            tracing::info!(interface, "the link is no longer held");
            return self.send_hello(now, interface, false, out);
        }
        if let Some(neighbor) = link.neighbor.as_ref()
            && let Some(reason) = neighbor.overdue(now)
        {
            let lost = neighbor.counts().then(|| neighbor.node.clone());
            link.neighbor = None;
            link.next_hello = now;
            if let Some(node) = lost {
                out.push(Output::Down(interface.to_owned(), node, reason));
            }
        }
        if let Some(neighbor) = link.neighbor.as_mut() {
            if neighbor.state == State::Established && neighbor.next_heartbeat <= now {
                neighbor.next_heartbeat = now + self.me.keepalive;
                link.seq += 1;
                let body = Body::Heartbeat { seq: link.seq };
                out.push(Output::Send(interface.to_owned(), packet(&self.me, interface, body)));
            } else if neighbor.state == State::Negotiate && neighbor.next_handshake <= now {
                self.send_handshake(now, interface, out);
            }
        }
        if self.links.get(interface).is_some_and(|link| link.next_hello <= now) {
            self.send_hello(now, interface, false, out);
        }
    }

    fn send_hello(&mut self, now: Nanos, interface: &str, restarting: bool, out: &mut Vec<Output>) {
        let Some(link) = self.links.get_mut(interface) else { return };
        let established = link.neighbor.as_ref().is_some_and(|n| n.state == State::Established);
        let slow = established && link.burst == 0;
        link.burst = link.burst.saturating_sub(u32::from(established));
        link.seq += 1;
        link.next_hello = now + if slow { self.me.hello } else { self.me.fast_hello };
        let heard = link.neighbor.as_ref().map(|n| Heard {
            node: n.node.clone(),
            instance: n.instance,
            their_sent_ns: n.their_sent_ns,
            arrived_ns: n.arrived_ns,
        });
        let hello = Hello {
            seq: link.seq,
            sent_ns: now,
            solicit: link.neighbor.is_none() && !restarting,
            restarting,
            heard: heard.into_iter().collect(),
        };
        out.push(Output::Send(interface.to_owned(), packet(&self.me, interface, Body::Hello(hello))));
    }

    fn send_handshake(&mut self, now: Nanos, interface: &str, out: &mut Vec<Output>) {
        let Some(link) = self.links.get_mut(interface) else { return };
        let Some(neighbor) = link.neighbor.as_mut() else { return };
        neighbor.next_handshake = now + HANDSHAKE_RETRY;
        let hold_ms = u32::try_from(self.me.hold / MS).unwrap_or(u32::MAX);
        let shake = Handshake {
            to_node: neighbor.node.clone(),
            to_instance: neighbor.instance,
            established: neighbor.state == State::Established,
            hold_ms,
            restart_ms: hold_ms,
            store_port: self.me.store_port,
        };
        out.push(Output::Send(interface.to_owned(), packet(&self.me, interface, Body::Handshake(shake))));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    Shake,
    Lost,
}

fn packet(me: &Identity, interface: &str, body: Body) -> Vec<u8> {
    let from = Sender {
        node: me.node.clone(),
        interface: interface.to_owned(),
        plane: me.plane,
        instance: me.instance,
    };
    Packet { from, body }.encode()
}

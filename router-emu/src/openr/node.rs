//! One router's link-state agent as a value: events in, actions out.
//!
//! It ties discovery, the flooded store, the announced adjacencies and the shortest paths together. After
//! a start it stays silent about itself until it has met its neighbours again and learned what they hold
//! (or a short wait is over), so that a restart neither withdraws links nor routes.

use prost::Message as _;

use super::action::{Action, Event};
use super::adjacency::Adjacencies;
use super::damping::Backoff;
use super::decision::{ADJ_PREFIX, Decision};
use super::drain::{Drain, Drains};
use super::flood::Flood;
use super::spark::{Identity, MS, Nanos, Output, Spark, View};
use crate::config::{KVSTORE_PORT, RouterConfig};
use crate::proto::{AdjacencyDatabase, Publication};

/// Fast hello periods to wait for neighbours after a start.
const START_WAIT: Nanos = 4;

/// A router's agent.
#[derive(Debug)]
pub struct Openr {
    spark: Spark,
    flood: Flood,
    adjacencies: Adjacencies,
    decision: Decision,
    key: String,
    silent_until: Option<Nanos>,
    instance: u64,
}

fn identity(config: &RouterConfig, instance: u64) -> Identity {
    let timers = &config.openr;
    Identity {
        node: config.node.clone(),
        plane: config.plane,
        instance,
        store_port: KVSTORE_PORT,
        hello: timers.hello * MS,
        fast_hello: timers.fast_hello.max(1) * MS,
        keepalive: timers.keepalive.max(1) * MS,
        hold: timers.hold * MS,
        flap: Backoff { first: timers.flap_first * MS, most: timers.flap_most * MS },
    }
}

/// Declared round-trip times by interface, microseconds.
fn declared(config: &RouterConfig) -> impl Iterator<Item = (String, u64)> {
    config.interfaces.iter().map(|i| (i.name.clone(), i.declared_rtt_us))
}

impl Openr {
    /// `instance`: drawn anew at every start. All interfaces start as down; tell their state by [`Event::Link`].
    pub fn new(config: &RouterConfig, drains: Drains, instance: u64, now: Nanos) -> Self {
        let timers = &config.openr;
        let me = identity(config, instance);
        let silent_until = Some(now + START_WAIT * me.fast_hello);
        Self {
            spark: Spark::new(me, declared(config)),
            flood: Flood::new(&config.node, config.plane, timers.key_ttl),
            adjacencies: Adjacencies::new(config.clone(), drains),
            decision: Decision::new(&config.node, timers.spf_min * MS, timers.spf_max * MS),
            key: format!("{ADJ_PREFIX}{}", config.node),
            silent_until,
            instance,
        }
    }

    /// Takes an event; what is to be done, in order.
    pub fn handle(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        let mut heard = Vec::new();
        match event {
            Event::Tick => self.tick(now, &mut out),
            Event::Link { interface, up } => self.spark.set_link(now, &interface, up, &mut heard),
            Event::Silent { interface, silent } => {
                self.spark.set_silent(now, &interface, silent, &mut heard);
            }
            Event::Members { interface, up } => {
                if self.adjacencies.members(now, &interface, up) {
                    tracing::info!(interface, up, "members lost, the link has less capacity");
                    self.announce(now, &mut out);
                }
            }
            Event::Packet { interface, from, arrived, bytes } => {
                self.spark.packet(now, &interface, from, arrived, &bytes, &mut heard);
            }
            Event::SendFailed { interface } => self.spark.send_failed(now, &interface),
            Event::Connected { session, node, interface } => {
                self.flood.connected(session, &node, &interface, &mut out);
            }
            Event::ConnectFailed { node } => self.flood.connect_failed(now, &node),
            Event::Accepted { session, interface } if self.spark.is_up(&interface) => {
                self.flood.accepted(session, &interface, &mut out);
            }
            Event::Accepted { session, .. } => out.push(Action::Close(session)),
            Event::Closed { session } => self.flood.closed(now, session),
            Event::Bytes { session, bytes } => self.flood.bytes(now, session, &bytes, &mut out),
            Event::SetDrain { interface, overloaded, metric_increment } => {
                self.set_drain(now, &interface, Drain { overloaded, metric_increment }, &mut out);
            }
            Event::Configure(config) => self.configure(now, *config, &mut heard, &mut out),
            Event::Goodbye => self.spark.say_restarting(now, &mut heard),
        }
        self.notice(now, heard, &mut out);
        self.speak_up(now, &mut out);
        if out.iter().any(|action| matches!(action, Action::Publish(_))) {
            self.decision.touch(now);
        }
        out
    }

    /// When to send [`Event::Tick`] next.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let decision = if self.silent_until.is_some() { None } else { self.decision.next_deadline() };
        [
            self.spark.next_deadline(),
            self.flood.next_deadline(),
            self.adjacencies.next_deadline(),
            decision,
            self.silent_until,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The store as subscribers first see it.
    pub fn snapshot(&self, now: Nanos, prefix: &str) -> Publication {
        self.flood.snapshot(now, prefix)
    }

    /// The neighbour table.
    pub fn neighbors(&self, now: Nanos) -> Vec<View> {
        self.spark.views(now)
    }

    /// What is wrong on an interface, in words.
    pub fn problem(&self, interface: &str) -> Option<&str> {
        self.spark.problem(interface)
    }

    /// Whether the start is over: this router announces itself and computes routes.
    pub fn is_speaking(&self) -> bool {
        self.silent_until.is_none()
    }

    fn tick(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let mut heard = Vec::new();
        self.spark.tick(now, &mut heard);
        self.notice(now, heard, out);
        self.flood.tick(now, out);
        if self.adjacencies.tick(now) {
            self.announce(now, out);
        }
        if self.silent_until.is_none()
            && let Some(table) = self.decision.tick(now, self.flood.store())
        {
            out.push(Action::Routes(table));
        }
    }

    fn notice(&mut self, now: Nanos, heard: Vec<Output>, out: &mut Vec<Action>) {
        // closing and connecting can wait until the bad news is on its way
        let mut late = Vec::new();
        let mut withdraw = false;
        for output in heard {
            match output {
                Output::Send(interface, bytes) => late.push(Action::Send(interface, bytes)),
                Output::Up(interface, peer) => {
                    tracing::info!(interface, node = peer.node, rtt_us = peer.rtt_us, "neighbour up");
                    self.flood.link_up(&peer.node, &interface, (peer.address, peer.store_port), &mut late);
                    self.adjacencies.up(now, &interface, peer);
                }
                Output::Restarted(interface, peer) => {
                    tracing::info!(interface, node = peer.node, "neighbour restarted");
                    self.flood.link_up(&peer.node, &interface, (peer.address, peer.store_port), &mut late);
                    self.adjacencies.restarted(now, &interface, peer);
                }
                Output::Down(interface, node, reason) => {
                    tracing::info!(interface, node, reason, "neighbour down");
                    self.flood.link_down(&node, &interface, &mut late);
                    withdraw |= self.adjacencies.down(&interface);
                }
                Output::Rtt(interface, rtt_us) => {
                    tracing::info!(interface, rtt_us, "round-trip time changed");
                    self.adjacencies.rtt(now, &interface, rtt_us);
                }
            }
        }
        if withdraw {
            self.announce(now, out);
        }
        out.append(&mut late);
    }

    /// Ends the silence after a start, once the neighbours are back or the wait is over.
    fn speak_up(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let Some(until) = self.silent_until else { return };
        let complete = self.spark.any_up() && self.spark.all_established() && self.flood.all_synced();
        if complete || until <= now {
            self.silent_until = None;
            self.adjacencies.announce_all();
            self.announce(now, out);
            self.decision.touch(now);
        }
    }

    fn set_drain(&mut self, now: Nanos, interface: &str, drain: Drain, out: &mut Vec<Action>) {
        if self.adjacencies.drains.set(interface, drain) {
            self.announce(now, out);
            out.push(Action::SaveDrains(self.adjacencies.drains.clone()));
        }
    }

    /// Takes over what may change live, and announces it at once: an operator waits for it.
    fn configure(
        &mut self,
        now: Nanos,
        config: RouterConfig,
        heard: &mut Vec<Output>,
        out: &mut Vec<Action>,
    ) {
        let timers = &config.openr;
        self.spark.configure(now, identity(&config, self.instance), declared(&config), heard);
        self.flood.set_ttl(timers.key_ttl);
        self.decision.set_debounce(timers.spf_min * MS, timers.spf_max * MS);
        self.adjacencies.configure(config);
        // round-trip times that change with it belong to the same announcement
        self.notice(now, std::mem::take(heard), out);
        self.adjacencies.announce_all();
        self.announce(now, out);
    }

    fn announce(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.silent_until.is_some() {
            return;
        }
        let held = self.flood.store().get(&self.key);
        let before = held.and_then(|value| AdjacencyDatabase::decode(value.bytes.as_slice()).ok());
        let database = self.adjacencies.database(now, before.as_ref());
        self.flood.originate(now, &self.key, database.encode_to_vec(), out);
    }
}

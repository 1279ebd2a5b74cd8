//! Who is told: sessions with neighbours, their first synchronisation, and flooding.
//!
//! One session per neighbour node, over any one of the links to it; the router with the lesser name
//! connects. A change goes to every session except the one it came from and those whose router it has
//! passed. Bytes to write are made once per change and are the first thing that an event produces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::rc::Rc;

use super::action::{Action, SessionId};
use super::spark::{MS, Nanos};
use super::store::Store;
use super::sync::{self, Delta, Entry, Frame, Open, Splitter, Summary};
use crate::proto::{KeyValue, Publication};

const FIRST_BACKOFF: Nanos = 100 * MS;
const LAST_BACKOFF: Nanos = 4_000 * MS;

#[derive(Debug, Default)]
struct Peering {
    links: BTreeMap<String, (Ipv6Addr, u16)>,
    session: Option<SessionId>,
    connecting: bool,
    backoff: Nanos,
    next_try: Option<Nanos>,
}

#[derive(Debug)]
struct Session {
    interface: String,
    node: Option<String>,
    synced: bool,
    splitter: Splitter,
}

#[derive(Debug)]
struct Own {
    bytes: Vec<u8>,
    next_refresh: Nanos,
}

/// A quarter of it is a time in which something can be sent, milliseconds.
fn least_ttl(ttl_ms: u64) -> u64 {
    ttl_ms.max(8)
}

/// The store and its sessions.
#[derive(Debug)]
pub struct Flood {
    node: String,
    plane: u8,
    ttl_ms: u64,
    store: Store,
    peers: BTreeMap<String, Peering>,
    sessions: BTreeMap<SessionId, Session>,
    own: BTreeMap<String, Own>,
}

impl Flood {
    /// `ttl_ms`: life of our own keys without refresh; they are refreshed at a quarter of it.
    pub fn new(node: &str, plane: u8, ttl_ms: u64) -> Self {
        Self {
            node: node.to_owned(),
            plane,
            ttl_ms: least_ttl(ttl_ms),
            store: Store::default(),
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            own: BTreeMap::new(),
        }
    }

    /// Another life of our own keys, from their next refresh on.
    pub fn set_ttl(&mut self, ttl_ms: u64) {
        self.ttl_ms = least_ttl(ttl_ms);
    }

    /// The copy of the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether every neighbour with a link has sent all it knows.
    pub fn all_synced(&self) -> bool {
        self.peers
            .values()
            .filter(|p| !p.links.is_empty())
            .all(|p| p.session.and_then(|id| self.sessions.get(&id)).is_some_and(|s| s.synced))
    }

    /// Writes one of our own keys and floods it. Unchanged content is only refreshed, so that a restart whose
    /// neighbours still hold the same content changes nothing.
    pub fn originate(&mut self, now: Nanos, key: &str, bytes: Vec<u8>, out: &mut Vec<Action>) {
        let same = self.store.get(key).is_some_and(|v| v.originator == self.node && v.bytes == bytes);
        if same {
            self.store.refresh(now, key, self.ttl_ms);
        } else {
            self.store.write(now, key, &self.node, bytes.clone(), self.ttl_ms);
        }
        let keys = [key.to_owned()];
        self.own.insert(key.to_owned(), Own { bytes, next_refresh: now + self.ttl_ms * MS / 4 });
        self.flood(now, &keys, !same, &[], None, out);
        if !same {
            self.publish(now, &keys, Vec::new(), out);
        }
    }

    /// A link to a neighbour counts, or its program has restarted.
    pub fn link_up(&mut self, node: &str, interface: &str, at: (Ipv6Addr, u16), out: &mut Vec<Action>) {
        let peer = self.peers.entry(node.to_owned()).or_default();
        peer.links.insert(interface.to_owned(), at);
        peer.backoff = FIRST_BACKOFF;
        self.connect(node, out);
    }

    /// A link to a neighbour counts no more. A session over it moves to a parallel link.
    pub fn link_down(&mut self, node: &str, interface: &str, out: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        peer.links.remove(interface);
        let moved = peer.session.filter(|id| {
            peer.links.is_empty() || self.sessions.get(id).is_none_or(|s| s.interface == interface)
        });
        if let Some(id) = moved {
            out.push(Action::Close(id));
            self.forget_session(id);
        }
        if self.peers.get(node).is_some_and(|p| p.links.is_empty()) {
            self.peers.remove(node);
        } else {
            self.connect(node, out);
        }
    }

    /// A connection that we asked for stands.
    pub fn connected(&mut self, id: SessionId, node: &str, interface: &str, out: &mut Vec<Action>) {
        let wanted =
            self.peers.get_mut(node).filter(|p| p.links.contains_key(interface) && p.session.is_none());
        let Some(peer) = wanted else {
            out.push(Action::Close(id));
            return;
        };
        peer.connecting = false;
        peer.session = Some(id);
        self.begin(id, interface, Some(node.to_owned()), out);
    }

    /// A neighbour connected to us; who it is, its first frame tells.
    pub fn accepted(&mut self, id: SessionId, interface: &str, out: &mut Vec<Action>) {
        self.begin(id, interface, None, out);
    }

    /// A connection that we asked for did not come about.
    pub fn connect_failed(&mut self, now: Nanos, node: &str) {
        if let Some(peer) = self.peers.get_mut(node) {
            peer.connecting = false;
            retry_later(now, peer);
        }
    }

    /// A session ended from the other side or by an error.
    pub fn closed(&mut self, now: Nanos, id: SessionId) {
        if let Some(node) = self.forget_session(id)
            && let Some(peer) = self.peers.get_mut(&node)
        {
            retry_later(now, peer);
        }
    }

    /// Bytes arrived on a session.
    pub fn bytes(&mut self, now: Nanos, id: SessionId, bytes: &[u8], out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.splitter.push(bytes);
        while let Some(session) = self.sessions.get_mut(&id) {
            let end = match session.splitter.next_frame() {
                Ok(Some(frame)) => self.frame(now, id, frame, out),
                Ok(None) => return,
                Err(e) => Err(e.to_string()),
            };
            if let Err(why) = end {
                tracing::warn!(session = id, "store session closed: {why}");
                out.push(Action::Close(id));
                self.closed(now, id);
            }
        }
    }

    /// Does what is due: reconnects, refreshes own keys, buries the dead.
    pub fn tick(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let due: Vec<String> = self
            .peers
            .iter()
            .filter(|(_, p)| p.next_try.is_some_and(|t| t <= now))
            .map(|(n, _)| n.clone())
            .collect();
        for node in due {
            self.connect(&node, out);
        }
        let stale: Vec<String> =
            self.own.iter().filter(|(_, o)| o.next_refresh <= now).map(|(k, _)| k.clone()).collect();
        for key in &stale {
            self.store.refresh(now, key, self.ttl_ms);
            if let Some(own) = self.own.get_mut(key) {
                own.next_refresh = now + self.ttl_ms * MS / 4;
            }
        }
        self.flood(now, &stale, false, &[], None, out);
        let dead = self.store.expire(now);
        if !dead.is_empty() {
            self.publish(now, &[], dead, out);
        }
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let tries = self.peers.values().filter_map(|p| p.next_try);
        let refreshes = self.own.values().map(|o| o.next_refresh);
        tries.chain(refreshes).chain(self.store.next_expiry()).min()
    }

    /// All keys with a prefix, as subscribers see them.
    pub fn snapshot(&self, now: Nanos, prefix: &str) -> Publication {
        let values = self.store.range(prefix).filter_map(|(key, _)| self.key_value(now, key)).collect();
        Publication { snapshot: true, values, expired: Vec::new() }
    }

    fn connect(&mut self, node: &str, out: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        peer.next_try = None;
        // exactly one end connects, so that two connections never cross
        if self.node.as_str() >= node || peer.session.is_some() || peer.connecting {
            return;
        }
        if let Some((interface, (address, port))) = peer.links.first_key_value() {
            peer.connecting = true;
            out.push(Action::Connect {
                node: node.to_owned(),
                interface: interface.clone(),
                address: *address,
                port: *port,
            });
        }
    }

    fn begin(&mut self, id: SessionId, interface: &str, node: Option<String>, out: &mut Vec<Action>) {
        let open = Open { version: sync::VERSION, node: self.node.clone(), plane: u32::from(self.plane) };
        let mut bytes = sync::encode(Frame::Open(open));
        bytes.extend(sync::encode(Frame::Summary(Summary { digests: self.store.digests() })));
        out.push(Action::Write(id, bytes.into()));
        let session =
            Session { interface: interface.to_owned(), node, synced: false, splitter: Splitter::default() };
        self.sessions.insert(id, session);
    }

    fn forget_session(&mut self, id: SessionId) -> Option<String> {
        let node = self.sessions.remove(&id)?.node?;
        if let Some(peer) = self.peers.get_mut(&node)
            && peer.session == Some(id)
        {
            peer.session = None;
        }
        Some(node)
    }

    fn frame(
        &mut self,
        now: Nanos,
        id: SessionId,
        frame: Frame,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        match frame {
            Frame::Open(open) => self.open(id, open, out),
            Frame::Summary(summary) => {
                let entries = self.store.missing_from(now, &summary.digests);
                let delta = Delta { entries, path: vec![self.node.clone()], sync: true };
                out.push(Action::Write(id, sync::encode(Frame::Delta(delta)).into()));
                Ok(())
            }
            Frame::Delta(delta) => {
                if delta.sync
                    && let Some(session) = self.sessions.get_mut(&id)
                {
                    session.synced = true;
                }
                self.delta(now, id, delta, out);
                Ok(())
            }
        }
    }

    fn open(&mut self, id: SessionId, open: Open, out: &mut Vec<Action>) -> Result<(), String> {
        if open.version != sync::VERSION {
            return Err(format!(
                "{} speaks version {} of the exchange, we {}: run the same release",
                open.node,
                open.version,
                sync::VERSION
            ));
        }
        if open.plane != u32::from(self.plane) || open.node == self.node || open.node.is_empty() {
            return Err(format!("{:?} of plane {} is no neighbour of ours", open.node, open.plane));
        }
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if session.node.as_ref().is_some_and(|node| *node != open.node) {
            return Err(format!("{} answers where another router was expected", open.node));
        }
        session.node = Some(open.node.clone());
        let older = self.peers.entry(open.node).or_default().session.replace(id).filter(|older| *older != id);
        if let Some(older) = older {
            out.push(Action::Close(older));
            self.sessions.remove(&older);
        }
        Ok(())
    }

    fn delta(&mut self, now: Nanos, id: SessionId, mut delta: Delta, out: &mut Vec<Action>) {
        if delta.path.contains(&self.node) {
            return;
        }
        let merged = self.store.merge(now, std::mem::take(&mut delta.entries));
        let (lost, mut changed): (Vec<String>, Vec<String>) =
            merged.changed.into_iter().partition(|key| self.overwritten(key));
        if !changed.is_empty() {
            self.flood(now, &changed, true, &delta.path, Some(id), out);
        }
        if !merged.refreshed.is_empty() {
            self.flood(now, &merged.refreshed, false, &delta.path, Some(id), out);
        }
        if !lost.is_empty() {
            // somebody holds an own key of an earlier life, or wrote it: ours goes above it, to everybody
            for key in &lost {
                if let Some(own) = self.own.get(key) {
                    self.store.write(now, key, &self.node, own.bytes.clone(), self.ttl_ms);
                }
            }
            self.flood(now, &lost, true, &[], None, out);
            changed.extend(lost);
        }
        if !changed.is_empty() {
            self.publish(now, &changed, Vec::new(), out);
        }
    }

    fn overwritten(&self, key: &str) -> bool {
        let (Some(own), Some(held)) = (self.own.get(key), self.store.get(key)) else { return false };
        held.originator != self.node || held.bytes != own.bytes
    }

    fn flood(
        &self,
        now: Nanos,
        keys: &[String],
        with_value: bool,
        path: &[String],
        except: Option<SessionId>,
        out: &mut Vec<Action>,
    ) {
        if keys.is_empty() {
            return;
        }
        let seen: BTreeSet<&str> = path.iter().map(String::as_str).collect();
        let mut bytes: Option<Rc<[u8]>> = None;
        for (id, session) in &self.sessions {
            if Some(*id) == except || session.node.as_deref().is_some_and(|n| seen.contains(n)) {
                continue;
            }
            let bytes = bytes.get_or_insert_with(|| {
                let entries: Vec<Entry> =
                    keys.iter().filter_map(|key| self.store.entry(now, key, with_value)).collect();
                let path = path.iter().cloned().chain([self.node.clone()]).collect();
                sync::encode(Frame::Delta(Delta { entries, path, sync: false })).into()
            });
            out.push(Action::Write(*id, Rc::clone(bytes)));
        }
    }

    fn publish(&self, now: Nanos, changed: &[String], expired: Vec<String>, out: &mut Vec<Action>) {
        let values = changed.iter().filter_map(|key| self.key_value(now, key)).collect();
        out.push(Action::Publish(Publication { snapshot: false, values, expired }));
    }

    fn key_value(&self, now: Nanos, key: &str) -> Option<KeyValue> {
        let value = self.store.get(key)?;
        Some(KeyValue {
            key: key.to_owned(),
            version: value.version,
            originator: value.originator.clone(),
            value: value.bytes.clone(),
            ttl_ms: value.expires.saturating_sub(now) / MS,
            ttl_version: value.ttl_version,
        })
    }
}

fn retry_later(now: Nanos, peer: &mut Peering) {
    peer.backoff = peer.backoff.clamp(FIRST_BACKOFF, LAST_BACKOFF);
    peer.next_try = Some(now + peer.backoff);
    peer.backoff = (peer.backoff * 2).min(LAST_BACKOFF);
}

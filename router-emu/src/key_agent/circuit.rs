//! The agreement of one circuit: told what was heard and what time it is, it says what to do.
//!
//! No I/O and no clock. Times are nanoseconds of any clock that only goes forward.

use std::collections::BTreeMap;
use std::time::Duration;

use rtnl::macsec::{ASSOCIATIONS, Device, KeyId, Sci};

use super::hello::{Hello, Member, Named};

/// Time, nanoseconds.
pub type Nanos = u64;

/// Between hellos while there is nothing to agree about.
pub const CALM: Nanos = 2_000_000_000;
/// Between hellos while an answer is waited for.
pub const HURRIED: Nanos = 200_000_000;
/// How long a neighbour may be silent until no key is offered to it any more. What it takes is used on.
pub const LIFE: Nanos = 3 * CALM;
/// How long a key is still taken after its sender has gone over to another: frames that are under way.
pub const GRACE: Nanos = 1_000_000_000;

/// What to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this to the other end.
    Say(Hello),
    /// Take frames of this sender.
    AddChannel(Sci),
    /// No longer.
    RemoveChannel(Sci),
    /// Take frames with this key.
    AddRx(Sci, Named),
    /// No longer take frames with this association.
    RemoveRx(Sci, u8),
    /// Send with this key from now on.
    SendWith(Named),
    /// Forget a key to send with.
    RemoveTx(u8),
}

/// A key that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    key: KeyId,
    /// When it is forgotten, once its sender has gone over to another.
    until: Option<Nanos>,
}

/// The other end, as last heard saying something new.
#[derive(Clone, Debug)]
struct Peer {
    member: Member,
    /// Number of its last hello.
    number: u32,
    /// Highest number of ours that it has named.
    named: u32,
    sci: Sci,
    at: Nanos,
}

/// One end of a circuit.
#[derive(Clone, Debug)]
pub struct Circuit {
    sci: Sci,
    member: Member,
    rotate: Nanos,
    /// Hellos said.
    said: u32,
    /// Keys named.
    keys: u32,
    next_hello: Nanos,
    sends: Option<Named>,
    since: Nanos,
    offers: Option<Named>,
    taken: BTreeMap<Sci, BTreeMap<u8, Taken>>,
    heard: Option<(Member, u32)>,
    peer: Option<Peer>,
    rotations: u64,
}

impl Circuit {
    /// An end whose interface holds what `device` says, which may be the keys of an earlier life. `member` must never have
    /// been used before: the names of keys, and so the keys, are made of it.
    ///
    /// Also what to put right first.
    pub fn start(now: Nanos, device: &Device, member: Member, rotate: Duration) -> (Self, Vec<Action>) {
        let mut circuit = Self {
            sci: device.sci,
            member,
            rotate: u64::try_from(rotate.as_nanos()).unwrap_or(u64::MAX),
            said: 0,
            keys: 0,
            next_hello: now,
            sends: None,
            since: now,
            offers: None,
            taken: BTreeMap::new(),
            heard: None,
            peer: None,
            rotations: 0,
        };
        let actions = circuit.adopt(now, device);
        (circuit, actions)
    }

    /// Goes by what the interface really holds, after a failure or a change by somebody else.
    pub fn adopt(&mut self, now: Nanos, device: &Device) -> Vec<Action> {
        self.sci = device.sci;
        let sends = device.tx.iter().find(|a| a.an == device.sends_with && a.active);
        let sends = sends.map(|a| Named { an: a.an, key: a.key });
        if sends != self.sends {
            (self.sends, self.since, self.offers) = (sends, now, None);
            self.next_hello = now;
        }
        let before = std::mem::take(&mut self.taken);
        for channel in &device.rx {
            let old = before.get(&channel.sci);
            let taken = channel.associations.iter().filter(|a| a.active).map(|a| {
                let until = old.and_then(|o| o.get(&a.an)).filter(|t| t.key == a.key).and_then(|t| t.until);
                (a.an, Taken { key: a.key, until })
            });
            self.taken.insert(channel.sci, taken.collect());
        }
        // a key that was added, and then nobody was left to send with it
        let strays = device.tx.iter().filter(|a| Some(a.an) != self.sends.map(|s| s.an));
        strays.map(|a| Action::RemoveTx(a.an)).collect()
    }

    /// Takes a hello whose check value was right.
    pub fn hear(&mut self, now: Nanos, hello: &Hello) -> Vec<Action> {
        // our own, thrown back
        if hello.member == self.member || hello.sci == self.sci {
            return Vec::new();
        }
        let last = self.heard.filter(|(member, _)| *member == hello.member);
        if last.is_some_and(|(_, number)| hello.number <= number) {
            return Vec::new();
        }
        self.heard = Some((hello.member, hello.number));
        let mut actions = Vec::new();
        let Some(named) = self.newest(hello) else {
            // it does not know us yet, or it is an old one played again: say who we are, once
            if last.is_none() {
                self.say(now, &mut actions);
            }
            return actions;
        };
        let Hello { member, number, sci, .. } = *hello;
        self.peer = Some(Peer { member, number, named, sci, at: now });
        let mut news = self.follow_channel(sci, &mut actions);
        news |= self.follow_offer(hello, &mut actions);
        news |= self.follow_sender(now, hello);
        news |= self.follow_taker(now, hello, &mut actions);
        if news {
            self.say(now, &mut actions);
        }
        actions
    }

    /// The number of ours that a hello names, if it was said after all that were heard of the other end. An old one that is
    /// played again names an older number, or an earlier member.
    fn newest(&self, hello: &Hello) -> Option<u32> {
        let named = hello.heard.filter(|(member, n)| *member == self.member && *n <= self.said)?.1;
        let newer = match &self.peer {
            Some(peer) if peer.member == hello.member => named >= peer.named && hello.number > peer.number,
            Some(peer) => named > peer.named,
            None => true,
        };
        newer.then_some(named)
    }

    /// Takes frames of this sender and of no other.
    fn follow_channel(&mut self, sci: Sci, actions: &mut Vec<Action>) -> bool {
        let others: Vec<Sci> = self.taken.keys().copied().filter(|s| *s != sci).collect();
        actions.extend(others.iter().map(|s| Action::RemoveChannel(*s)));
        self.taken.retain(|s, _| *s == sci);
        let new = !self.taken.contains_key(&sci);
        if new {
            self.taken.insert(sci, BTreeMap::new());
            actions.push(Action::AddChannel(sci));
        }
        new
    }

    /// Takes the key that the other end would like to send with.
    fn follow_offer(&mut self, hello: &Hello, actions: &mut Vec<Action>) -> bool {
        let Some(offer) = hello.offers else { return false };
        let taken = self.taken.entry(hello.sci).or_default();
        let there = taken.get(&offer.an).map(|t| t.key);
        let in_use = hello.sends.is_some_and(|s| s.an == offer.an);
        if in_use || there == Some(offer.key) {
            return false;
        }
        if there.is_some() {
            actions.push(Action::RemoveRx(hello.sci, offer.an));
        }
        taken.insert(offer.an, Taken { key: offer.key, until: None });
        actions.push(Action::AddRx(hello.sci, offer));
        true
    }

    /// Lets go of keys that the other end has gone away from. Nothing to say at once.
    fn follow_sender(&mut self, now: Nanos, hello: &Hello) -> bool {
        let kept = |named: Named| [hello.sends, hello.offers].contains(&Some(named));
        if hello.sends.is_some() {
            for (an, taken) in self.taken.entry(hello.sci).or_default() {
                let keep = kept(Named { an: *an, key: taken.key });
                taken.until = if keep { None } else { taken.until.or(Some(now + GRACE)) };
            }
        }
        false
    }

    /// Goes over to the offered key once the other end takes it, and offers one if it takes none of ours.
    fn follow_taker(&mut self, now: Nanos, hello: &Hello, actions: &mut Vec<Action>) -> bool {
        if let Some(offer) = self.offers {
            if !hello.takes.contains(&offer) {
                return false;
            }
            actions.push(Action::SendWith(offer));
            actions.extend(self.sends.map(|old| Action::RemoveTx(old.an)));
            self.rotations += u64::from(self.sends.is_some());
            (self.sends, self.since, self.offers) = (Some(offer), now, None);
            return true;
        }
        let deaf = self.sends.is_none_or(|sends| !hello.takes.contains(&sends));
        if deaf {
            self.offer();
        }
        deaf
    }

    /// Offers a key that never was before.
    fn offer(&mut self) {
        self.keys += 1;
        let mut key = [0; 16];
        let (member, number) = key.split_at_mut(12);
        member.copy_from_slice(&self.member);
        number.copy_from_slice(&self.keys.to_be_bytes());
        let an = self.sends.map_or(0, |sends| (sends.an + 1) % ASSOCIATIONS);
        self.offers = Some(Named { an, key });
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Nanos) -> Vec<Action> {
        let mut actions = Vec::new();
        for (sci, taken) in &mut self.taken {
            let over: Vec<u8> = taken
                .iter()
                .filter(|(_, t)| t.until.is_some_and(|at| at <= now))
                .map(|(an, _)| *an)
                .collect();
            for an in over {
                taken.remove(&an);
                actions.push(Action::RemoveRx(*sci, an));
            }
        }
        if self.offers.is_none() && self.offer_due().is_some_and(|at| at <= now) && self.hears(now) {
            self.offer();
            self.next_hello = now;
        }
        if self.next_hello <= now {
            self.say(now, &mut actions);
        }
        actions
    }

    /// When [`Circuit::tick`] has something to do.
    pub fn deadline(&self) -> Nanos {
        let forget = self.taken.values().flat_map(|taken| taken.values().filter_map(|t| t.until));
        let offer = self.offer_due().filter(|at| self.offers.is_none() && self.hears(*at));
        forget.chain(offer).chain([self.next_hello]).min().unwrap_or(self.next_hello)
    }

    /// When the next key is to be offered, to a neighbour that listens.
    fn offer_due(&self) -> Option<Nanos> {
        self.peer.as_ref()?;
        Some(if self.sends.is_some() { self.since.saturating_add(self.rotate) } else { self.since })
    }

    /// Whether the other end is there.
    pub fn hears(&self, now: Nanos) -> bool {
        self.peer.as_ref().is_some_and(|peer| now < peer.at.saturating_add(LIFE))
    }

    fn say(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        self.said += 1;
        let waits = self.offers.is_some() || self.peer.is_none() || self.sends.is_none();
        self.next_hello = now + if waits { HURRIED } else { CALM };
        let sci = self.peer.as_ref().map(|peer| peer.sci);
        let taken = sci.and_then(|sci| self.taken.get(&sci)).into_iter().flatten();
        actions.push(Action::Say(Hello {
            sci: self.sci,
            member: self.member,
            number: self.said,
            heard: self.heard,
            sends: self.sends,
            offers: self.offers,
            takes: taken.map(|(an, t)| Named { an: *an, key: t.key }).collect(),
        }));
    }

    /// Identifier under which this end sends.
    pub const fn sci(&self) -> Sci {
        self.sci
    }

    /// The key with which this end sends.
    pub const fn sends(&self) -> Option<Named> {
        self.sends
    }

    /// Since when, or since when the agent knows of it.
    pub const fn since(&self) -> Nanos {
        self.since
    }

    /// The key that is offered.
    pub const fn offers(&self) -> Option<Named> {
        self.offers
    }

    /// Associations with which frames are taken.
    pub fn takes(&self) -> Vec<u8> {
        self.taken.values().flat_map(|taken| taken.keys().copied()).collect()
    }

    /// How often this end has gone from one key to the next.
    pub const fn rotations(&self) -> u64 {
        self.rotations
    }

    /// When the other end was heard last.
    pub fn heard_at(&self) -> Option<Nanos> {
        self.peer.as_ref().map(|peer| peer.at)
    }
}

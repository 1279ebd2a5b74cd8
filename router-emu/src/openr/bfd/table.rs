//! All BFD sessions of a router: which packet belongs to which, and what is due when.

use super::packet::{Control, LENGTH, PacketError, State};
use super::session::{Dice, Nanos, Session, Settings, Verdict};

/// What is to be done or known. Sessions are numbered in the order of the interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to the session's neighbour.
    Send(usize, [u8; LENGTH]),
    /// A session has found out something about its link.
    Verdict(usize, Verdict),
}

/// The sessions.
#[derive(Debug)]
pub struct Table {
    sessions: Vec<Session>,
    dice: Dice,
}

impl Table {
    /// One session for each of `count` interfaces, none with a carrier. `seed` is drawn anew at every start: the sessions'
    /// numbers follow from it, by which neighbours tell a new program from an old one.
    pub fn new(settings: Settings, count: usize, seed: u64) -> Self {
        let first = u32::try_from(seed >> 32).unwrap_or_default();
        let numbers = (0..=u32::MAX).map(|k| first.wrapping_add(k)).filter(|number| *number != 0);
        let sessions = numbers.take(count).map(|number| Session::new(settings, number)).collect();
        Self { sessions, dice: Dice(seed) }
    }

    /// An interface got or lost its carrier.
    pub fn set_active(&mut self, now: Nanos, session: usize, active: bool) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.set_active(now, active);
        }
    }

    /// A datagram arrived on the interface of a session.
    ///
    /// # Errors
    /// It has to be ignored.
    pub fn receive(
        &mut self,
        now: Nanos,
        interface: usize,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<(), PacketError> {
        let packet = Control::decode(bytes)?;
        let named = |s: &Session| packet.your_discriminator == s.discriminator();
        // one hop and one session an interface: a number of another interface's session is a stray, or a loop
        let session = self.sessions.get_mut(interface);
        let Some(session) = session.filter(|s| packet.your_discriminator == 0 || named(s)) else {
            return Ok(());
        };
        let received = session.receive(now, &packet);
        if let Some(verdict) = received.verdict {
            out.push(Output::Verdict(interface, verdict));
        }
        if received.answer
            && let Some(bytes) = session.transmit(now, true, &mut self.dice)
        {
            out.push(Output::Send(interface, bytes));
        }
        Ok(())
    }

    /// The kernel at the other end says that nobody there listens.
    pub fn unattended(&mut self, now: Nanos, session: usize, out: &mut Vec<Output>) {
        let verdict = self.sessions.get_mut(session).and_then(|s| s.unattended(now));
        out.extend(verdict.map(|v| Output::Verdict(session, v)));
    }

    /// Does what is due. Everything that has arrived must have been handed over before.
    pub fn run(&mut self, now: Nanos, out: &mut Vec<Output>) {
        for (k, session) in self.sessions.iter_mut().enumerate() {
            if let Some(verdict) = session.expire(now) {
                out.push(Output::Verdict(k, verdict));
            }
            if let Some(bytes) = session.transmit(now, false, &mut self.dice) {
                out.push(Output::Send(k, bytes));
            }
        }
    }

    /// A packet could not be sent: again at `at`.
    pub fn retry(&mut self, session: usize, at: Nanos) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.retry(at);
        }
    }

    /// The program ends: nobody shall conclude anything from our silence.
    pub fn switch_off(&mut self, now: Nanos) {
        for session in &mut self.sessions {
            session.switch_off(now);
        }
    }

    /// When [`Self::run`] has something to do next.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.sessions.iter().filter_map(Session::next_deadline).min()
    }

    /// Sessions that would be given up now.
    pub fn overdue(&self, now: Nanos) -> impl Iterator<Item = usize> + '_ {
        self.sessions.iter().enumerate().filter(move |(_, s)| s.is_overdue(now)).map(|(k, _)| k)
    }

    /// State of a session.
    pub fn state(&self, session: usize) -> Option<State> {
        self.sessions.get(session).map(Session::state)
    }
}

//! The sessions with their sockets, for a thread that waits.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context as _;

use super::packet::State;
use super::session::{Nanos, Settings, Verdict};
use super::table::{Output, Table};
use super::wire::{Ear, Mouth, Sent};
use crate::agent::monotonic_ns;
use crate::config::{BFD_PORT, BfdTimers, CoreInterface};

/// Nanoseconds in a millisecond.
const MS: Nanos = 1_000_000;
/// Wait after a packet that could not be sent.
const RESEND: Nanos = 50 * MS;

/// BFD on the backbone interfaces of a router.
pub struct Bfd {
    table: Table,
    ear: Ear,
    /// By number of the session.
    mouths: Vec<(String, Mouth)>,
    todo: Vec<Output>,
}

impl Bfd {
    /// Opens the hearing socket in the calling thread's network namespace. Nothing if BFD is switched off.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open(timers: &BfdTimers, interfaces: &[CoreInterface], seed: u64) -> anyhow::Result<Option<Self>> {
        if !timers.enabled {
            return Ok(None);
        }
        let settings = Settings {
            tx: timers.tx.max(1) * MS,
            rx: timers.rx.max(1) * MS,
            multiplier: timers.multiplier.max(1),
        };
        let ear = Ear::open().with_context(|| format!("cannot listen for BFD on UDP port {BFD_PORT}"))?;
        let known = interfaces.iter().filter(|i| i.peer_link_local.is_unicast_link_local());
        let mouths: Vec<_> = known.map(|i| (i.name.clone(), Mouth::new(i.peer_link_local))).collect();
        let table = Table::new(settings, mouths.len(), seed);
        Ok(Some(Self { table, ear, mouths, todo: Vec::new() }))
    }

    /// Name of a session's interface.
    pub fn interface(&self, session: usize) -> &str {
        self.mouths.get(session).map_or("", |(name, _)| name)
    }

    /// The kernel's view of an interface.
    pub fn set_link(&mut self, interface: &str, ifindex: u32, up: bool) {
        let Some(session) = self.mouths.iter().position(|(name, _)| name == interface) else { return };
        if let Some((_, mouth)) = self.mouths.get_mut(session) {
            if mouth.ifindex() != ifindex {
                self.table.set_active(monotonic_ns(), session, false);
            }
            if up && (mouth.ifindex() != ifindex || self.table.state(session) == Some(State::Down)) {
                mouth.set_interface(ifindex);
            }
        }
        self.table.set_active(monotonic_ns(), session, up);
    }

    /// Takes what has arrived (if anything is `readable`), does what is due, and adds what was found out about links.
    pub fn wake(&mut self, readable: bool, verdicts: &mut Vec<(usize, Verdict)>) {
        let now = monotonic_ns();
        // whoever would be given up may have a packet in the queue, for this thread may have come late: then all are read;
        // else one, because a second try that finds nothing would cost as much as the next wait
        let drain = self.table.overdue(now).next().is_some();
        let mut more = readable || drain;
        while more && let Some(datagram) = self.ear.receive() {
            let matching = |(_, mouth): &(String, Mouth)| {
                mouth.ifindex() == datagram.ifindex && mouth.peer() == datagram.from
            };
            if let Some(session) = self.mouths.iter().position(matching) {
                self.receive(now, session, datagram.bytes());
            }
            more = drain;
        }
        for session in 0..self.mouths.len() {
            // a dead program's kernel has spoken by now; a dead wire's has not
            if self.table.overdue(now).any(|k| k == session) && self.mouth_says_unattended(session) {
                self.table.unattended(now, session, &mut self.todo);
            }
        }
        self.table.run(now, &mut self.todo);
        self.act(now, verdicts);
    }

    /// When to call [`Self::wake`] even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.table.next_deadline()
    }

    /// Tells the neighbours that our silence will mean nothing.
    pub fn goodbye(&mut self) {
        let now = monotonic_ns();
        self.table.switch_off(now);
        self.table.run(now, &mut self.todo);
        self.act(now, &mut Vec::new());
    }

    fn receive(&mut self, now: Nanos, session: usize, bytes: &[u8]) {
        if self.table.state(session) != Some(State::Up) {
            // it speaks: what its kernel said of it before is out of date
            self.mouth_says_unattended(session);
        }
        if let Err(e) = self.table.receive(now, session, bytes, &mut self.todo) {
            tracing::debug!(interface = self.interface(session), "BFD packet refused: {e}");
        }
    }

    fn mouth_says_unattended(&mut self, session: usize) -> bool {
        self.mouths.get_mut(session).is_some_and(|(_, mouth)| mouth.unattended())
    }

    /// Sends and sorts out; what is learned while sending is done as well.
    fn act(&mut self, now: Nanos, verdicts: &mut Vec<(usize, Verdict)>) {
        let mut k = 0;
        while let Some(output) = self.todo.get(k).copied() {
            k += 1;
            match output {
                Output::Verdict(session, verdict) => verdicts.push((session, verdict)),
                Output::Send(session, bytes) => {
                    match self.mouths.get_mut(session).map(|(_, mouth)| mouth.send(&bytes)) {
                        Some(Sent::No) => self.table.retry(session, now + RESEND),
                        Some(Sent::Unattended) => {
                            self.table.unattended(now, session, &mut self.todo);
                        }
                        Some(Sent::Yes) | None => {}
                    }
                }
            }
        }
        self.todo.clear();
    }
}

impl AsFd for Bfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ear.as_fd()
    }
}

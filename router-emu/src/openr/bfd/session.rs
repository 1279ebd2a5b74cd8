//! One BFD session: the state machine and timers of RFC 5880, section 6.8, in asynchronous mode.
//!
//! Not here, because nothing of ours needs it: authentication, echoes, our own demand mode, a passive role, and timers
//! that change while a session is Up (a changed configuration starts the program anew).

use super::packet::{Control, LENGTH, State, diagnostic};

/// Nanoseconds of one monotonic clock.
pub type Nanos = u64;
/// A microsecond, the unit of the packets.
const US: Nanos = 1_000;
/// Least interval at which a session that is not Up sends (RFC 5880, section 6.8.3).
pub const SLOW: Nanos = 1_000_000_000;

/// What we ask of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often we would like to send while Up, nanoseconds.
    pub tx: Nanos,
    /// How often we can receive, nanoseconds.
    pub rx: Nanos,
    /// After how many missing packets the other end gives us up; not 0.
    pub multiplier: u8,
}

/// What a session has found out about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Packets pass in both directions.
    Passes,
    /// They passed, and do no longer: why.
    Broken(&'static str),
    /// BFD cannot tell, because the other end's BFD is switched off, dead or new: no reason to give up the link
    /// (RFC 5882, section 3.2): why.
    Unknown(&'static str),
}

/// Random numbers for jitter (SplitMix64); a seed gives the same ones again.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An interval less a random part of it (RFC 5880, section 6.8.7): a quarter at most, and a tenth at least where a
    /// single late packet would already be missed.
    fn jittered(&mut self, interval: Nanos, multiplier: u8) -> Nanos {
        let (least, most) = if multiplier == 1 { (100, 250) } else { (0, 250) };
        interval - interval / 1000 * (least + self.roll() % (most - least + 1))
    }
}

/// A session.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    /// Our number of it.
    discriminator: u32,
    /// Whether there is an interface to send from.
    active: bool,
    state: State,
    diagnostic: u8,
    /// What we say of our sending; [`SLOW`] at least while not Up.
    desired_tx: Nanos,
    polling: bool,
    remote: Remote,
    last_tx: Nanos,
    /// When to send next, and for which interval that was drawn; none: not at all.
    next_tx: Option<(Nanos, Nanos)>,
    /// When the other end's silence has lasted too long.
    detect_at: Option<Nanos>,
}

/// What we know of the other end.
#[derive(Clone, Copy, Debug)]
struct Remote {
    /// Its number of the session; 0: not heard.
    discriminator: u32,
    state: State,
    min_rx: Nanos,
    desired_tx: Nanos,
    multiplier: u8,
    demand: bool,
}

impl Remote {
    /// Before anything is heard (RFC 5880, section 6.8.1).
    const UNHEARD: Self = Self {
        discriminator: 0,
        state: State::Down,
        min_rx: US,
        desired_tx: 0,
        multiplier: 0,
        demand: false,
    };
}

impl Session {
    /// A session without an interface yet. `discriminator` is not 0 and unique in this router.
    pub fn new(settings: Settings, discriminator: u32) -> Self {
        Self {
            settings,
            discriminator,
            active: false,
            state: State::Down,
            diagnostic: diagnostic::NONE,
            desired_tx: settings.tx.max(SLOW),
            polling: false,
            remote: Remote::UNHEARD,
            last_tx: 0,
            next_tx: None,
            detect_at: None,
        }
    }

    /// Our number of the session.
    pub fn discriminator(&self) -> u32 {
        self.discriminator
    }

    /// State.
    pub fn state(&self) -> State {
        self.state
    }

    /// The interface got or lost its carrier. Without one the session begins anew: whoever sees the carrier knows more
    /// than BFD.
    pub fn set_active(&mut self, now: Nanos, active: bool) {
        if self.active == active {
            return;
        }
        *self = Self { active, ..Self::new(self.settings, self.discriminator) };
        if active {
            self.last_tx = now;
            self.next_tx = Some((now, 0));
        }
    }

    /// Takes a packet that belongs to this session (RFC 5880, section 6.8.6).
    pub fn receive(&mut self, now: Nanos, packet: &Control) -> Received {
        if !self.active || self.state == State::AdminDown {
            return Received::default();
        }
        let before = std::mem::replace(
            &mut self.remote,
            Remote {
                discriminator: packet.my_discriminator,
                state: packet.state,
                min_rx: Nanos::from(packet.required_min_rx_us) * US,
                desired_tx: Nanos::from(packet.desired_min_tx_us) * US,
                multiplier: packet.detect_mult,
                demand: packet.demand,
            },
        );
        if packet.fin {
            self.polling = false;
        }
        // a program that was started anew draws another number: its session is down, its link is not
        let renewed = before.discriminator != 0 && before.discriminator != packet.my_discriminator;
        let verdict = self.follow(now, packet.state, renewed);
        self.detect_at = Some(now + self.detection_time());
        Received { verdict, answer: packet.poll }
    }

    /// The transitions of RFC 5880, section 6.8.6.
    fn follow(&mut self, now: Nanos, theirs: State, renewed: bool) -> Option<Verdict> {
        match (self.state, theirs) {
            (_, State::AdminDown) => {
                self.go_down(now, diagnostic::NEIGHBOR_DOWN);
                Some(Verdict::Unknown("the neighbour has switched BFD off"))
            }
            (State::Down, State::Down) => {
                self.enter(now, State::Init);
                None
            }
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.diagnostic = diagnostic::NONE;
                self.enter(now, State::Up);
                Some(Verdict::Passes)
            }
            (State::Up, State::Down) => {
                self.go_down(now, diagnostic::NEIGHBOR_DOWN);
                Some(if renewed {
                    Verdict::Unknown("the neighbour's BFD has started anew")
                } else {
                    Verdict::Broken("the neighbour does not hear us")
                })
            }
            _ => None,
        }
    }

    /// Silence (RFC 5880, section 6.8.4): whether it has lasted too long, and what follows.
    pub fn expire(&mut self, now: Nanos) -> Option<Verdict> {
        if !self.is_overdue(now) {
            return None;
        }
        self.detect_at = None;
        self.remote = Remote::UNHEARD;
        let was_up = self.state == State::Up;
        self.go_down(now, diagnostic::TIMED_OUT);
        was_up.then_some(Verdict::Broken("nothing is heard of the neighbour"))
    }

    /// Whether [`Self::expire`] would give up the other end now.
    pub fn is_overdue(&self, now: Nanos) -> bool {
        self.detect_at.is_some_and(|at| at <= now)
    }

    /// The other end's kernel says that nobody there listens to BFD: it has no such program any more, and the link works.
    pub fn unattended(&mut self, now: Nanos) -> Option<Verdict> {
        if !self.active || self.state == State::AdminDown {
            return None;
        }
        self.detect_at = None;
        self.remote = Remote::UNHEARD;
        self.go_down(now, diagnostic::NEIGHBOR_DOWN);
        Some(Verdict::Unknown("the neighbour runs no BFD"))
    }

    /// We end and want nobody to conclude anything from it (RFC 5880, section 6.8.16).
    pub fn switch_off(&mut self, now: Nanos) {
        if self.active {
            self.diagnostic = diagnostic::ADMIN_DOWN;
            self.enter(now, State::AdminDown);
            self.detect_at = None;
        }
    }

    /// The packet that is due now, if any. `answer`: to a poll, whatever the timers say.
    pub fn transmit(&mut self, now: Nanos, answer: bool, dice: &mut Dice) -> Option<[u8; LENGTH]> {
        if !self.active {
            return None;
        }
        if answer {
            return Some(self.packet(true).encode());
        }
        self.reschedule(dice);
        let (due, interval) = self.next_tx?;
        // whoever is awake anyway sends a little earlier, never before three quarters of the interval: each wake-up that
        // is saved is saved at both ends
        let early = (due - (interval / 8).min(due)).max(self.last_tx + interval / 4 * 3);
        if now < due.min(early) {
            return None;
        }
        self.last_tx = now;
        self.next_tx = None;
        self.reschedule(dice);
        Some(self.packet(false).encode())
    }

    /// A packet could not be sent: again at `at`.
    pub fn retry(&mut self, at: Nanos) {
        if self.next_tx.is_some() {
            self.next_tx = Some((at, self.interval().unwrap_or(0)));
        }
    }

    /// When [`Self::expire`] or [`Self::transmit`] has something to do next.
    pub fn next_deadline(&self) -> Option<Nanos> {
        [self.detect_at, self.next_tx.map(|(at, _)| at)].into_iter().flatten().min()
    }

    /// How long the other end may be silent (RFC 5880, section 6.8.4).
    pub fn detection_time(&self) -> Nanos {
        Nanos::from(self.remote.multiplier) * self.settings.rx.max(self.remote.desired_tx)
    }

    /// How often to send now, before jitter (RFC 5880, section 6.8.7); none: only answers.
    fn interval(&self) -> Option<Nanos> {
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        let unwanted = self.remote.min_rx == 0 || self.remote.demand && both_up && !self.polling;
        (!unwanted).then(|| self.desired_tx.max(self.remote.min_rx))
    }

    /// Keeps the drawn time unless what it was drawn for has changed.
    fn reschedule(&mut self, dice: &mut Dice) {
        let interval = self.interval();
        match (self.next_tx, interval) {
            // marked as due at once
            (Some((_, 0)), Some(_)) => {}
            (Some((_, drawn)), Some(wanted)) if drawn == wanted => {}
            _ => {
                self.next_tx =
                    interval.map(|i| (self.last_tx + dice.jittered(i, self.settings.multiplier), i));
            }
        }
    }

    fn go_down(&mut self, now: Nanos, why: u8) {
        if matches!(self.state, State::Init | State::Up) {
            self.diagnostic = why;
            self.enter(now, State::Down);
        }
    }

    /// Changes the state. News is sent at once, not with the next periodic packet (RFC 5880, section 6.8.7); a changed
    /// interval is polled for (section 6.8.3).
    fn enter(&mut self, now: Nanos, state: State) {
        self.state = state;
        let desired = if state == State::Up { self.settings.tx } else { self.settings.tx.max(SLOW) };
        self.polling = self.polling || desired != self.desired_tx;
        self.desired_tx = desired;
        self.next_tx = Some((now, 0));
    }

    fn packet(&self, answer: bool) -> Control {
        let micros = |t: Nanos| u32::try_from(t / US).unwrap_or(u32::MAX);
        Control {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.polling && !answer,
            fin: answer,
            // when the program dies, this session dies with it
            independent: false,
            demand: false,
            detect_mult: self.settings.multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx_us: micros(self.desired_tx),
            required_min_rx_us: micros(self.settings.rx),
            required_min_echo_rx_us: 0,
        }
    }
}

/// What a received packet leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// News of the link.
    pub verdict: Option<Verdict>,
    /// An answer is due now.
    pub answer: bool,
}

//! Every rule of RFC 5880 that a session follows.

use super::packet::{Control, State, diagnostic};
use super::session::{Dice, Nanos, Received, SLOW, Session, Settings, Verdict};

const MS: Nanos = 1_000_000;
const SETTINGS: Settings = Settings { tx: 20 * MS, rx: 30 * MS, multiplier: 3 };
const START: Nanos = 5_000 * MS;

/// What the other end sends in these tests.
fn from_peer(state: State) -> Control {
    Control {
        diagnostic: 0,
        state,
        poll: false,
        fin: false,
        independent: false,
        demand: false,
        detect_mult: 4,
        my_discriminator: 77,
        your_discriminator: 9,
        desired_min_tx_us: 50_000,
        required_min_rx_us: 10_000,
        required_min_echo_rx_us: 0,
    }
}

struct Lab {
    session: Session,
    dice: Dice,
    now: Nanos,
}

impl Lab {
    fn new(settings: Settings) -> Self {
        let mut session = Session::new(settings, 9);
        session.set_active(START, true);
        Self { session, dice: Dice(1), now: START }
    }

    fn up() -> Self {
        let mut lab = Self::new(SETTINGS);
        lab.hear(from_peer(State::Down));
        assert_eq!(lab.hear(from_peer(State::Init)).verdict, Some(Verdict::Passes));
        lab.send().unwrap();
        lab
    }

    fn hear(&mut self, packet: Control) -> Received {
        self.session.receive(self.now, &packet)
    }

    fn send(&mut self) -> Option<Control> {
        let bytes = self.session.transmit(self.now, false, &mut self.dice);
        bytes.map(|b| Control::decode(&b).unwrap())
    }

    /// Waits for the next periodic packet; the time since the last.
    fn interval(&mut self) -> Nanos {
        let before = self.now;
        for _ in 0..4_000 {
            self.now += MS / 4;
            if self.send().is_some() {
                return self.now - before;
            }
        }
        panic!("nothing is sent");
    }
}

#[test]
fn the_state_machine_is_that_of_the_rfc() {
    use State::{AdminDown, Down, Init, Up};
    // own state, state in the packet, next own state: section 6.8.6
    let table = [
        (Down, AdminDown, Down),
        (Down, Down, Init),
        (Down, Init, Up),
        (Down, Up, Down),
        (Init, AdminDown, Down),
        (Init, Down, Init),
        (Init, Init, Up),
        (Init, Up, Up),
        (Up, AdminDown, Down),
        (Up, Down, Down),
        (Up, Init, Up),
        (Up, Up, Up),
        (AdminDown, Down, AdminDown),
        (AdminDown, Up, AdminDown),
    ];
    for (own, theirs, next) in table {
        let mut lab = Lab::new(SETTINGS);
        match own {
            Down => {}
            Init => drop(lab.hear(from_peer(Down))),
            Up => drop([lab.hear(from_peer(Down)), lab.hear(from_peer(Init))]),
            AdminDown => lab.session.switch_off(lab.now),
        }
        assert_eq!(lab.session.state(), own);
        lab.hear(from_peer(theirs));
        assert_eq!(lab.session.state(), next, "{own:?} hears {theirs:?}");
    }
}

#[test]
fn the_first_packet_claims_nothing() {
    let mut lab = Lab::new(SETTINGS);
    let first = lab.send().unwrap();
    assert_eq!((first.state, first.my_discriminator, first.your_discriminator), (State::Down, 9, 0));
    assert_eq!((first.detect_mult, first.required_min_rx_us), (3, 30_000));
    assert_eq!(first.desired_min_tx_us, 1_000_000, "not faster than once a second while not Up");
    assert!(!first.demand && !first.independent && first.required_min_echo_rx_us == 0);
}

#[test]
fn a_session_that_is_not_up_sends_once_a_second_and_news_at_once() {
    let mut lab = Lab::new(SETTINGS);
    lab.send().unwrap();
    for _ in 0..20 {
        let interval = lab.interval();
        assert!((SLOW / 4 * 3..=SLOW).contains(&interval), "{interval}");
    }
    lab.hear(from_peer(State::Down));
    let news = lab.send().unwrap();
    assert_eq!((news.state, news.your_discriminator), (State::Init, 77));
    assert!(lab.send().is_none());
    lab.hear(from_peer(State::Up));
    assert_eq!(lab.send().unwrap().state, State::Up);
}

#[test]
fn up_sends_at_the_slower_of_both_wishes_with_jitter() {
    let mut lab = Lab::up();
    // we wish 20 ms, the peer can take a packet in 10 ms
    let intervals: Vec<_> = (0..300).map(|_| lab.interval()).collect();
    assert!(intervals.iter().all(|i| (15 * MS..=20 * MS + MS / 4).contains(i)), "{intervals:?}");
    assert!(intervals.iter().min().unwrap() < &(16 * MS), "jitter");
    assert!(intervals.iter().max().unwrap() > &(17 * MS), "jitter");
    // now it can take one in 100 ms only
    lab.hear(Control { required_min_rx_us: 100_000, ..from_peer(State::Up) });
    let intervals: Vec<_> = (0..100).map(|_| lab.interval()).collect();
    assert!(intervals.iter().all(|i| (75 * MS..=100 * MS + MS / 4).contains(i)), "{intervals:?}");
    // and now fast again: the packet that was due late comes sooner
    lab.hear(from_peer(State::Up));
    assert!(lab.interval() <= 20 * MS);
}

#[test]
fn with_a_multiplier_of_one_the_jitter_leaves_a_tenth() {
    let mut lab = Lab::new(Settings { multiplier: 1, ..SETTINGS });
    lab.hear(from_peer(State::Down));
    lab.hear(from_peer(State::Init));
    lab.send().unwrap();
    for _ in 0..300 {
        let interval = lab.interval();
        assert!((15 * MS..=18 * MS + MS / 4).contains(&interval), "{interval}");
    }
}

#[test]
fn nobody_who_wants_no_packets_gets_periodic_ones() {
    for changed in [
        Control { required_min_rx_us: 0, ..from_peer(State::Up) },
        Control { demand: true, fin: true, ..from_peer(State::Up) },
    ] {
        let mut lab = Lab::up();
        lab.hear(changed);
        lab.now += 10 * SLOW;
        assert!(lab.send().is_none(), "{changed:?}");
        assert!(lab.session.transmit(lab.now, true, &mut lab.dice).is_some(), "but an answer");
        lab.hear(Control { fin: true, ..from_peer(State::Up) });
        assert!(lab.send().is_some(), "wanted again");
    }
}

#[test]
fn a_changed_interval_is_polled_for_until_the_answer() {
    let mut lab = Lab::new(SETTINGS);
    assert!(!lab.send().unwrap().poll, "nothing has changed yet");
    lab.hear(from_peer(State::Down));
    lab.hear(from_peer(State::Init));
    let up = lab.send().unwrap();
    assert!(up.poll && !up.fin && up.desired_min_tx_us == 20_000);
    lab.now += 20 * MS;
    assert!(lab.send().unwrap().poll, "until it is answered");
    // a poll of the peer is answered at once, and the answer is no poll
    assert!(lab.hear(Control { poll: true, ..from_peer(State::Up) }).answer);
    let answer = lab.session.transmit(lab.now, true, &mut lab.dice).unwrap();
    let answer = Control::decode(&answer).unwrap();
    assert!(answer.fin && !answer.poll);
    assert!(!lab.hear(Control { fin: true, ..from_peer(State::Up) }).answer);
    lab.now += 20 * MS;
    assert!(!lab.send().unwrap().poll, "answered");
}

#[test]
fn the_detection_time_is_the_peers_multiplier_of_the_slower_wish() {
    let mut lab = Lab::up();
    // 4 times the larger of our 30 ms and its 50 ms
    assert_eq!(lab.session.detection_time(), 200 * MS);
    lab.now += 200 * MS - 1;
    assert_eq!(lab.session.expire(lab.now), None);
    lab.now += 1;
    let verdict = lab.session.expire(lab.now);
    assert_eq!(verdict, Some(Verdict::Broken("nothing is heard of the neighbour")));
    let news = lab.send().unwrap();
    assert_eq!((news.state, news.diagnostic), (State::Down, diagnostic::TIMED_OUT));
    assert_eq!(news.your_discriminator, 0, "whoever was silent may be another by now");
    assert_eq!(news.desired_min_tx_us, 1_000_000);
    // our own wish counts where it is the slower one
    lab.hear(Control { desired_min_tx_us: 1_000, ..from_peer(State::Down) });
    assert_eq!(lab.session.detection_time(), 120 * MS);
}

#[test]
fn a_session_that_never_was_up_breaks_nothing() {
    let mut lab = Lab::new(SETTINGS);
    lab.hear(from_peer(State::Down));
    assert_eq!(lab.session.state(), State::Init);
    lab.now += 100 * SLOW;
    assert_eq!(lab.session.expire(lab.now), None);
    assert_eq!(lab.session.state(), State::Down);
}

#[test]
fn a_neighbour_that_does_not_hear_us_breaks_the_link_but_a_new_one_does_not() {
    let mut lab = Lab::up();
    let verdict = lab.hear(from_peer(State::Down)).verdict;
    assert_eq!(verdict, Some(Verdict::Broken("the neighbour does not hear us")));
    let news = lab.send().unwrap();
    assert_eq!((news.state, news.diagnostic), (State::Down, diagnostic::NEIGHBOR_DOWN));

    let mut lab = Lab::up();
    let newborn = Control { my_discriminator: 78, your_discriminator: 0, ..from_peer(State::Down) };
    assert!(matches!(lab.hear(newborn).verdict, Some(Verdict::Unknown(_))));
    let news = lab.send().unwrap();
    assert_eq!((news.state, news.your_discriminator), (State::Down, 78));
    assert_eq!(
        lab.hear(Control { my_discriminator: 78, ..from_peer(State::Init) }).verdict,
        Some(Verdict::Passes)
    );
}

#[test]
fn switching_off_breaks_nothing_on_either_side() {
    let mut lab = Lab::up();
    assert!(matches!(lab.hear(from_peer(State::AdminDown)).verdict, Some(Verdict::Unknown(_))));
    assert_eq!(lab.session.state(), State::Down);

    let mut lab = Lab::up();
    lab.session.switch_off(lab.now);
    let last = lab.send().unwrap();
    assert_eq!((last.state, last.diagnostic), (State::AdminDown, diagnostic::ADMIN_DOWN));
    lab.now += 100 * SLOW;
    assert_eq!(lab.session.expire(lab.now), None);
    assert_eq!(lab.hear(from_peer(State::Up)), Received::default(), "packets are ignored");
}

#[test]
fn a_dead_program_breaks_nothing_and_releases_what_was_held() {
    let mut lab = Lab::up();
    assert!(matches!(lab.session.unattended(lab.now), Some(Verdict::Unknown(_))));
    assert_eq!(lab.session.state(), State::Down);
    lab.now += 10 * SLOW;
    assert_eq!(lab.session.expire(lab.now), None);
    assert!(matches!(lab.session.unattended(lab.now), Some(Verdict::Unknown(_))), "every time");
}

#[test]
fn without_a_carrier_nothing_is_sent_heard_or_judged() {
    let mut lab = Lab::up();
    lab.session.set_active(lab.now, false);
    assert_eq!(lab.session.next_deadline(), None);
    assert_eq!(lab.hear(from_peer(State::Down)), Received::default());
    lab.now += 10 * SLOW;
    assert_eq!((lab.session.expire(lab.now), lab.send()), (None, None));
    lab.session.set_active(lab.now, true);
    assert_eq!(lab.send().unwrap().state, State::Down);
}

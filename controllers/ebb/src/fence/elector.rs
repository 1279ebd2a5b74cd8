//! Election by a lease, as a pure function of events: no clock, no I/O.
//!
//! The service keeps two keys of a plane: who leads, bound to a lease, so that it goes when the lease runs out; and the
//! highest epoch. Both are written in one transaction, so that no epoch is given out twice. A lease that was granted or renewed
//! by a request sent at time `t` is good until `t + ttl` at least by the service's clock; the leader stops a margin
//! earlier by its own.

use std::time::Duration;

use super::Bid;

/// A time of the caller's monotonic clock.
pub type At = Duration;
/// Id of a lease.
pub type LeaseId = i64;

/// What the service says about a plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Name of the leader.
    pub leader: Option<String>,
    /// Highest epoch given out.
    pub epoch: u64,
    /// Revision at which the epoch was written; 0 if never.
    pub revision: i64,
}

/// A request to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Who leads?
    Read,
    /// A lease, please.
    Grant(Duration),
    /// Become the leader if there is none and the epoch is still that of `revision`.
    Claim {
        /// Lease that the lead is bound to.
        lease: LeaseId,
        /// Revision of the epoch that was read.
        revision: i64,
        /// New epoch.
        epoch: u64,
    },
    /// Write an epoch if `lease` still leads and the epoch is still that of `revision`.
    Raise {
        /// Lease of the leader.
        lease: LeaseId,
        /// Revision of the epoch that was read.
        revision: i64,
        /// New epoch.
        epoch: u64,
    },
    /// Renew the lease.
    KeepAlive(LeaseId),
    /// Give the lease back, and the lead with it.
    Revoke(LeaseId),
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Call::Read`].
    Seen(Seen),
    /// To [`Call::Grant`]: the service may give more time than was asked for.
    Granted(LeaseId, Duration),
    /// To [`Call::Claim`] and [`Call::Raise`]: whether it was done.
    Done(bool),
    /// To [`Call::KeepAlive`]: the new time; `None` if the service does not know the lease any more.
    Alive(Option<Duration>),
    /// To [`Call::Revoke`].
    Revoked,
}

/// What happens to an elector.
#[derive(Clone, Debug)]
pub enum Event {
    /// The controller wants to lead.
    Campaign,
    /// The controller needs an epoch above this one.
    RaiseAbove(u64),
    /// The controller does not want to lead any more.
    Resign,
    /// The answer to the call of that turn.
    Answer(u64, Result<Reply, String>),
    /// The time that was asked for has come.
    Wake,
}

/// What an elector wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Call the service; the answer belongs to this turn. A call of an earlier turn is not waited for any more.
    Call(u64, Call),
    /// Give a lease back without waiting for the answer.
    GiveBack(LeaseId),
    /// Tell the controller what came of its campaign.
    Bid(Result<Bid, String>),
    /// Tell the controller its new epoch; `None` if it does not lead.
    Raised(Result<Option<u64>, String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Reading,
    Granting { seen: Seen, sent: At },
    Claiming { lease: LeaseId, ttl: Duration, sent: At, epoch: u64 },
    Leading(Lead),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lead {
    lease: LeaseId,
    epoch: u64,
    /// The leader may write until then.
    until: At,
    /// Time of the next renewal.
    renew: At,
    /// The call under way.
    job: Job,
    /// An epoch above this is wanted.
    above: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    None,
    Renew { sent: At },
    Read,
    Raise { epoch: u64 },
}

/// One controller's part in the election.
#[derive(Clone, Debug)]
pub struct Elector {
    ttl: Duration,
    margin: Duration,
    turn: u64,
    phase: Phase,
}

impl Elector {
    /// Leases of `ttl`, of which the last `margin` is not used.
    pub const fn new(ttl: Duration, margin: Duration) -> Self {
        Self { ttl, margin, turn: 0, phase: Phase::Idle }
    }

    /// Until when this controller may write; `None` if it does not lead.
    pub const fn until(&self) -> Option<At> {
        match &self.phase {
            Phase::Leading(lead) => Some(lead.until),
            _ => None,
        }
    }

    /// When [`Event::Wake`] is wanted.
    pub fn wake(&self) -> Option<At> {
        match &self.phase {
            Phase::Leading(lead) if lead.job == Job::None => Some(lead.renew.min(lead.until)),
            Phase::Leading(lead) => Some(lead.until),
            _ => None,
        }
    }

    /// Takes an event in at the time `now`.
    pub fn step(&mut self, now: At, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Phase::Leading(lead) = &self.phase
            && now >= lead.until
        {
            self.lapse(&mut actions);
        }
        match event {
            Event::Campaign => self.campaign(&mut actions),
            Event::RaiseAbove(seen) => match &mut self.phase {
                Phase::Leading(lead) => lead.above = Some(seen),
                _ => actions.push(Action::Raised(Ok(None))),
            },
            Event::Resign => {
                if let Phase::Leading(_) = self.phase {
                    self.lapse(&mut actions);
                }
            }
            Event::Answer(turn, reply) if turn == self.turn => self.answer(now, reply, &mut actions),
            Event::Answer(..) | Event::Wake => {}
        }
        self.next_job(now, &mut actions);
        actions
    }

    fn call(&mut self, call: Call, actions: &mut Vec<Action>) {
        self.turn += 1;
        actions.push(Action::Call(self.turn, call));
    }

    /// The lead is over.
    fn lapse(&mut self, actions: &mut Vec<Action>) {
        if let Phase::Leading(lead) = std::mem::replace(&mut self.phase, Phase::Idle) {
            actions.push(Action::GiveBack(lead.lease));
            if lead.above.is_some() {
                actions.push(Action::Raised(Ok(None)));
            }
        }
        // an answer that is still under way belongs to the past
        self.turn += 1;
    }

    fn campaign(&mut self, actions: &mut Vec<Action>) {
        match &self.phase {
            Phase::Idle => {
                self.phase = Phase::Reading;
                self.call(Call::Read, actions);
            }
            Phase::Leading(lead) => actions.push(Action::Bid(Ok(Bid::Won(lead.epoch)))),
            _ => actions.push(Action::Bid(Err("a campaign is under way".into()))),
        }
    }

    fn answer(&mut self, now: At, reply: Result<Reply, String>, actions: &mut Vec<Action>) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => {}
            Phase::Leading(lead) => self.lead(now, lead, reply, actions),
            Phase::Reading => match reply {
                Ok(Reply::Seen(seen)) => match seen.leader {
                    Some(_) => actions.push(Action::Bid(Ok(Bid::Taken(seen.leader)))),
                    None => {
                        self.phase = Phase::Granting { seen, sent: now };
                        self.call(Call::Grant(self.ttl), actions);
                    }
                },
                other => actions.push(Action::Bid(Err(unexpected(other)))),
            },
            Phase::Granting { seen, sent } => match reply {
                Ok(Reply::Granted(lease, ttl)) => {
                    let epoch = seen.epoch.saturating_add(1);
                    self.phase = Phase::Claiming { lease, ttl, sent, epoch };
                    self.call(Call::Claim { lease, revision: seen.revision, epoch }, actions);
                }
                other => actions.push(Action::Bid(Err(unexpected(other)))),
            },
            Phase::Claiming { lease, ttl, sent, epoch } => {
                let until = self.end(sent, ttl);
                let bid = match reply {
                    Ok(Reply::Done(true)) if now < until => {
                        let renew = sent + ttl / 3;
                        let lead = Lead { lease, epoch, until, renew, job: Job::None, above: None };
                        self.phase = Phase::Leading(lead);
                        Ok(Bid::Won(epoch))
                    }
                    Ok(Reply::Done(true)) => Err("the lock came too late: its lease has run out".into()),
                    Ok(Reply::Done(false)) => Ok(Bid::Taken(None)),
                    other => Err(unexpected(other)),
                };
                if self.phase == Phase::Idle {
                    // whatever became of the claim, nobody has to wait for this lease
                    actions.push(Action::GiveBack(lease));
                }
                actions.push(Action::Bid(bid));
            }
        }
    }

    /// End of the time in which a leader may write.
    fn end(&self, sent: At, ttl: Duration) -> At {
        sent + ttl.saturating_sub(self.margin)
    }

    /// The answer to a leader's call.
    fn lead(&mut self, now: At, mut lead: Lead, reply: Result<Reply, String>, actions: &mut Vec<Action>) {
        let job = std::mem::replace(&mut lead.job, Job::None);
        let mut over = false;
        match (job, reply) {
            (Job::Renew { sent }, Ok(Reply::Alive(Some(ttl)))) => {
                lead.until = lead.until.max(self.end(sent, ttl));
                lead.renew = sent + ttl / 3;
            }
            // the service does not know the lease any more; or there is another leader, for only leaders write epochs
            (Job::Renew { .. }, Ok(Reply::Alive(None))) | (Job::Raise { .. }, Ok(Reply::Done(false))) => {
                over = true;
            }
            (Job::Renew { .. }, _) => lead.renew = now + self.ttl / 12,
            (Job::Read, Ok(Reply::Seen(seen))) => {
                let epoch = seen.epoch.max(lead.above.unwrap_or(0)).saturating_add(1);
                lead.job = Job::Raise { epoch };
                let call = Call::Raise { lease: lead.lease, revision: seen.revision, epoch };
                self.call(call, actions);
            }
            (Job::Raise { epoch }, Ok(Reply::Done(true))) => {
                lead.epoch = epoch;
                lead.above = None;
                actions.push(Action::Raised(Ok(Some(epoch))));
            }
            (Job::Read | Job::Raise { .. }, other) => {
                lead.above = None;
                actions.push(Action::Raised(Err(unexpected(other))));
            }
            (Job::None, _) => {}
        }
        self.phase = Phase::Leading(lead);
        if over {
            self.lapse(actions);
        }
    }

    /// Starts what a leader has to do next.
    fn next_job(&mut self, now: At, actions: &mut Vec<Action>) {
        let Phase::Leading(lead) = &mut self.phase else { return };
        if lead.job != Job::None {
            return;
        }
        let call = if now >= lead.renew {
            lead.job = Job::Renew { sent: now };
            Call::KeepAlive(lead.lease)
        } else if lead.above.is_some() {
            lead.job = Job::Read;
            Call::Read
        } else {
            return;
        };
        self.call(call, actions);
    }
}

fn unexpected(reply: Result<Reply, String>) -> String {
    reply.map_or_else(
        |error| error,
        |reply| format!("the lock service gave an answer to another question: {reply:?}"),
    )
}

//! A lock that rests on a service with leases: keeps the lease alive from a thread of its own.
//!
//! The thread matters: computing a mesh can take longer than a lease, and the lease must live meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot, watch};

use super::elector::{Action, At, Call, Elector, Event, Reply};
use super::{Bid, Lease, Lock};

/// Wait for the service when the process ends: without an answer the lease runs out by itself.
const FAREWELL: Duration = Duration::from_millis(800);

/// The lock service, for one plane and one controller. Every call ends by its own deadline.
pub trait Service: Send + Sync + 'static {
    /// Makes a call.
    fn call(&self, call: Call) -> impl Future<Output = anyhow::Result<Reply>> + Send;
}

#[derive(Debug)]
enum Command {
    Campaign(oneshot::Sender<Result<Bid, String>>),
    RaiseAbove(u64, oneshot::Sender<Result<Option<u64>, String>>),
    Resign,
}

/// A lock held by a lease.
#[derive(Debug)]
pub struct LeasedLock {
    commands: Option<mpsc::UnboundedSender<Command>>,
    lease: Lease,
    thread: Option<JoinHandle<()>>,
}

impl LeasedLock {
    /// Starts the thread that talks to the service. Leases are of `ttl`; their last `margin` is not used.
    ///
    /// # Errors
    /// No thread, or no event loop.
    pub fn start(service: impl Service, ttl: Duration, margin: Duration) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the event loop of the leader's lock")?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (until, lease) = watch::channel(None);
        let keeper = Keeper {
            service: Arc::new(service),
            elector: Elector::new(ttl, margin),
            origin: Instant::now(),
            until,
            under_way: None,
            bid: None,
            raised: None,
        };
        let thread = std::thread::Builder::new().name("lock".into());
        let thread = thread
            .spawn(move || runtime.block_on(keeper.run(inbox)))
            .context("cannot start the thread of the leader's lock")?;
        Ok(Self { commands: Some(commands), lease: Lease::until(lease), thread: Some(thread) })
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Command,
    ) -> anyhow::Result<T> {
        let gone = "the thread of the leader's lock has ended";
        let (reply, answer) = oneshot::channel();
        self.commands.as_ref().and_then(|c| c.send(command(reply)).ok()).context(gone)?;
        answer.await.context(gone)?.map_err(anyhow::Error::msg)
    }
}

impl Lock for LeasedLock {
    async fn try_acquire(&mut self) -> anyhow::Result<Bid> {
        self.ask(Command::Campaign).await
    }

    async fn raise_above(&mut self, seen: u64) -> anyhow::Result<Option<u64>> {
        self.ask(|reply| Command::RaiseAbove(seen, reply)).await
    }

    fn lease(&self) -> Lease {
        self.lease.clone()
    }

    fn release(&mut self) {
        // a thread that has ended holds nothing
        let _ = self.commands.as_ref().map(|c| c.send(Command::Resign));
    }
}

impl Drop for LeasedLock {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // it gives the lease back, so that the next leader need not wait; bounded by `FAREWELL`
            let _ = thread.join();
        }
    }
}

struct Keeper<S> {
    service: Arc<S>,
    elector: Elector,
    origin: Instant,
    until: watch::Sender<Option<Instant>>,
    under_way: Option<(u64, BoxFuture<'static, Result<Reply, String>>)>,
    bid: Option<oneshot::Sender<Result<Bid, String>>>,
    raised: Option<oneshot::Sender<Result<Option<u64>, String>>>,
}

impl<S: Service> Keeper<S> {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut farewells = futures::stream::FuturesUnordered::new();
        loop {
            let wake = self.elector.wake().map(|at| self.instant(at));
            let event = tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Campaign(reply)) => {
                        self.bid = Some(reply);
                        Event::Campaign
                    }
                    Some(Command::RaiseAbove(seen, reply)) => {
                        self.raised = Some(reply);
                        Event::RaiseAbove(seen)
                    }
                    Some(Command::Resign) => Event::Resign,
                    None => break,
                },
                (turn, reply) = answer(&mut self.under_way) => {
                    self.under_way = None;
                    Event::Answer(turn, reply)
                }
                Some(()) = farewells.next() => continue,
                () = sleep_until(wake) => Event::Wake,
            };
            farewells.extend(self.take(event));
        }
        farewells.extend(self.take(Event::Resign));
        // whatever is not answered in time runs out by itself
        let _ = tokio::time::timeout(FAREWELL, farewells.collect::<Vec<()>>()).await;
    }

    fn instant(&self, at: At) -> Instant {
        self.origin + at
    }

    /// One step; returns the leases to give back.
    fn take(&mut self, event: Event) -> Vec<BoxFuture<'static, ()>> {
        let actions = self.elector.step(self.origin.elapsed(), event);
        // known before anybody acts on the rest
        let until = self.elector.until().map(|at| self.instant(at));
        self.until.send_if_modified(|known| std::mem::replace(known, until) != until);
        let mut farewells = Vec::new();
        for action in actions {
            match action {
                Action::Call(turn, call) => {
                    let service = Arc::clone(&self.service);
                    let call = async move { service.call(call).await.map_err(|e| format!("{e:#}")) };
                    self.under_way = Some((turn, call.boxed()));
                }
                Action::GiveBack(lease) => {
                    let service = Arc::clone(&self.service);
                    farewells.push(async move { drop(service.call(Call::Revoke(lease)).await) }.boxed());
                }
                // whoever asked may have lost interest
                Action::Bid(bid) => drop(self.bid.take().map(|reply| reply.send(bid))),
                Action::Raised(epoch) => drop(self.raised.take().map(|reply| reply.send(epoch))),
            }
        }
        farewells
    }
}

/// The answer to the call under way; never if there is none.
async fn answer(
    under_way: &mut Option<(u64, BoxFuture<'static, Result<Reply, String>>)>,
) -> (u64, Result<Reply, String>) {
    match under_way {
        Some((turn, call)) => (*turn, call.await),
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

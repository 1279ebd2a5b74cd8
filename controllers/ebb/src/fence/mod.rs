//! The leader's lock, and the epoch that fences off leaders of the past.
//!
//! Programming a mesh is many RPCs, not one transaction, so exactly one controller of a plane may write. Whoever gets the
//! lock gets a higher epoch than everybody before; agents refuse a lower one than the highest they have seen.
//!
//! In this room: what a lock is ([`Lock`], [`Lease`]); one for replicas that see the same folder ([`file`]); one that
//! rests on a service with leases ([`leased`], its decisions in [`elector`], etcd in [`etcd`]).

pub mod elector;
pub mod etcd;
pub mod file;
pub mod leased;

use std::future::Future;
use std::time::Instant;

use tokio::sync::watch;

pub use file::FileLock;
pub use leased::LeasedLock;

/// What came of the attempt to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bid {
    /// This controller leads, with this epoch.
    Won(u64),
    /// Another one does; its name, if known.
    Taken(Option<String>),
}

/// Mutual exclusion among the controllers of a plane.
pub trait Lock {
    /// Tries to become the leader.
    fn try_acquire(&mut self) -> impl Future<Output = anyhow::Result<Bid>> + Send;
    /// Called by the leader when agents have seen an epoch that is not below its own. A lock that knows of no newer
    /// leader (its own memory was lost) answers with an epoch above `seen`; one that was lost answers `None`.
    fn raise_above(&mut self, seen: u64) -> impl Future<Output = anyhow::Result<Option<u64>>> + Send;
    /// Until when the leader may write.
    fn lease(&self) -> Lease;
    /// Gives up the lead.
    fn release(&mut self);
}

/// Until when a leader may write, by its own monotonic clock. Clones see the same.
#[derive(Clone, Debug)]
pub struct Lease(Option<watch::Receiver<Option<Instant>>>);

impl Lease {
    /// One that lasts as long as the process: the kernel takes the lock away with it.
    pub const fn endless() -> Self {
        Self(None)
    }

    /// One that lasts until the time in `until`; over while there is none.
    pub const fn until(until: watch::Receiver<Option<Instant>>) -> Self {
        Self(Some(until))
    }

    /// Whether the leader may still write. A process that was stopped for a while learns it here.
    pub fn valid(&self) -> bool {
        let until = self.0.as_ref().map(|until| *until.borrow());
        until.is_none_or(|until| until.is_some_and(|until| Instant::now() < until))
    }

    /// Ends when the lease does.
    pub async fn lapsed(&mut self) {
        let Some(lease) = &mut self.0 else { return std::future::pending().await };
        loop {
            let until = *lease.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                // a keeper that is gone renews nothing any more: the time that is known stays
                _ = lease.changed(), if lease.has_changed().is_ok() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_lease_ends_by_the_clock_by_word_and_without_its_keeper() {
        assert!(Lease::endless().valid());
        let (keeper, until) = watch::channel(None);
        let mut lease = Lease::until(until);
        assert!(!lease.valid());
        lease.lapsed().await;
        keeper.send_replace(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(lease.valid());
        // renewed to an earlier time: by word
        let mut waiting = lease.clone();
        let waits = tokio::spawn(async move { waiting.lapsed().await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        keeper.send_replace(None);
        waits.await.unwrap();
        keeper.send_replace(Some(Instant::now() + Duration::from_millis(20)));
        drop(keeper);
        lease.lapsed().await;
        assert!(!lease.valid());
    }
}

//! An agent's last events, and those who watch.

use std::collections::VecDeque;

use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tonic::Status;

use crate::proto::AgentEvent;

/// Events that a new watcher gets first.
const KEPT: usize = 256;

/// What happened so far, and a receiver for what will, without a gap between them.
pub type Watched = (Vec<AgentEvent>, broadcast::Receiver<AgentEvent>);
/// The answer to a `WatchEvents` call.
pub type EventStream = BoxStream<'static, Result<AgentEvent, Status>>;

/// First what happened so far, then what happens; ends with `DATA_LOSS` for a watcher that falls too far behind.
pub fn stream((old, new): Watched) -> EventStream {
    let new = BroadcastStream::new(new).map(|event| {
        event.map_err(|e| Status::data_loss(format!("the watcher is too slow: {e}; watch again")))
    });
    stream::iter(old.into_iter().map(Ok)).chain(new).boxed()
}

/// A ring of events with subscribers.
#[derive(Debug)]
pub struct Events {
    ring: VecDeque<AgentEvent>,
    live: broadcast::Sender<AgentEvent>,
}

impl Default for Events {
    fn default() -> Self {
        Self { ring: VecDeque::with_capacity(KEPT), live: broadcast::Sender::new(KEPT) }
    }
}

impl Events {
    /// Adds an event that happened at this time of the monotonic clock. Times are made strictly increasing, by
    /// nanoseconds: a watcher that connects again knows by them what it has been told.
    pub fn add(&mut self, at_ns: u64, kind: &str, detail: String, bundles: usize, took_ns: u64) {
        let sids = u32::try_from(bundles).unwrap_or(u32::MAX);
        let at_ns = self.ring.back().map_or(at_ns, |last| at_ns.max(last.at_ns + 1));
        let event = AgentEvent { at_ns, kind: kind.to_owned(), detail, sids, took_ns };
        if self.ring.len() == KEPT {
            self.ring.pop_front();
        }
        self.ring.push_back(event.clone());
        // without watchers there is nobody to tell
        drop(self.live.send(event));
    }

    /// See [`Watched`].
    pub fn watch(&self) -> Watched {
        (self.ring.iter().cloned().collect(), self.live.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_gets_the_last_ones_and_then_the_new_ones() {
        let mut events = Events::default();
        (0..300_u64).for_each(|i| events.add(i, "programmed", i.to_string(), 1, 0));
        let (old, mut new) = events.watch();
        assert_eq!((old.len(), old[0].detail.as_str()), (256, "44"));
        events.add(300, "repaired", "x".to_owned(), 3, 7);
        assert_eq!(new.try_recv().unwrap().kind, "repaired");
    }
}

//! The core with its sockets: every event is handled and acted upon in the task in which it arrives.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, spawn_local};

use super::action::{Action, Event, SessionId};
use super::node::Openr;
use super::port::Port;
use super::session::{self, Session};
use super::spf::RouteTable;
use crate::agent::monotonic_ns;
use crate::proto::Publication;

/// Publications that a subscriber may lag behind before it is cut off (it subscribes again and gets a snapshot).
const MOST_LAG: usize = 1024;

struct Subscriber {
    prefix: String,
    sender: mpsc::Sender<Publication>,
}

struct OpenPort {
    port: Rc<Port>,
    reader: AbortHandle,
}

struct OpenSession {
    session: Session,
    tasks: [AbortHandle; 2],
}

struct Inner {
    core: Openr,
    ports: BTreeMap<String, OpenPort>,
    sessions: BTreeMap<SessionId, OpenSession>,
    last_session: SessionId,
    subscribers: Vec<Subscriber>,
    state_dir: PathBuf,
    hold: Duration,
    armed: Option<u64>,
    speaks: Arc<AtomicBool>,
}

/// Handle to the running agent, for the tasks of one thread.
#[derive(Clone)]
pub struct Hub {
    inner: Rc<RefCell<Inner>>,
    rearm: Rc<Notify>,
    routes: Rc<watch::Sender<Option<Arc<RouteTable>>>>,
}

impl Hub {
    /// Wraps a core. `hold`: how long a silent session is borne.
    pub fn new(
        core: Openr,
        state_dir: PathBuf,
        hold: Duration,
    ) -> (Self, watch::Receiver<Option<Arc<RouteTable>>>) {
        let (routes, receiver) = watch::channel(None);
        let inner = Inner {
            core,
            ports: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: 0,
            subscribers: Vec::new(),
            state_dir,
            hold,
            armed: None,
            speaks: Arc::default(),
        };
        let hub = Self { inner: Rc::new(RefCell::new(inner)), rearm: Rc::default(), routes: Rc::new(routes) };
        (hub, receiver)
    }

    /// Hands an event to the core and does what it wants.
    pub fn dispatch(&self, event: Event) {
        let mut events = VecDeque::from([event]);
        let mut inner = self.inner.borrow_mut();
        while let Some(event) = events.pop_front() {
            for action in inner.core.handle(monotonic_ns(), event) {
                self.act(&mut inner, action, &mut events);
            }
        }
        inner.speaks.store(inner.core.is_speaking(), Ordering::Relaxed);
        let next = inner.core.next_deadline();
        if next != inner.armed {
            inner.armed = next;
            self.rearm.notify_one();
        }
    }

    /// Whether this router announces itself in the store, kept up to date for other threads.
    pub fn speaks(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inner.borrow().speaks)
    }

    /// Ticks the core when something is due, for ever.
    pub async fn keep_time(&self) {
        loop {
            let next = self.inner.borrow().armed;
            let wait = next.map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            tokio::select! {
                () = self.rearm.notified() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                    self.dispatch(Event::Tick);
                }
            }
        }
    }

    /// Adds a subscriber; the snapshot is already in its queue.
    pub fn subscribe(&self, prefix: String) -> mpsc::Receiver<Publication> {
        let (sender, receiver) = mpsc::channel(MOST_LAG);
        let mut inner = self.inner.borrow_mut();
        // the queue is empty: this cannot fail
        let _ = sender.try_send(inner.core.snapshot(monotonic_ns(), &prefix));
        inner.subscribers.push(Subscriber { prefix, sender });
        receiver
    }

    /// Reads from the core.
    pub fn read<T>(&self, question: impl FnOnce(&Openr) -> T) -> T {
        question(&self.inner.borrow().core)
    }

    /// The kernel's view of an interface: opens its discovery socket where needed, then tells the core.
    pub fn link(&self, interface: &str, ifindex: u32, up: bool) {
        let known = self.inner.borrow().ports.get(interface).map(|p| p.port.ifindex);
        if known != Some(ifindex) {
            self.close_port(interface);
            if let Err(e) = self.open_port(interface, ifindex) {
                tracing::error!(interface, "{e:#}; the interface is left out until it changes");
                return;
            }
        }
        self.dispatch(Event::Link { interface: interface.to_owned(), up });
    }

    /// The interface is gone.
    pub fn link_gone(&self, interface: &str) {
        self.close_port(interface);
        self.dispatch(Event::Link { interface: interface.to_owned(), up: false });
    }

    /// BFD has found that nothing passes on an interface, or takes it back.
    pub fn silent(&self, interface: String, silent: bool) {
        self.dispatch(Event::Silent { interface, silent });
    }

    /// A neighbour connected over the interface with this index.
    pub fn accepted(&self, stream: TcpStream, ifindex: u32) {
        let interface = {
            let inner = self.inner.borrow();
            inner.ports.iter().find(|(_, p)| p.port.ifindex == ifindex).map(|(name, _)| name.clone())
        };
        let Some(interface) = interface else {
            tracing::warn!(ifindex, "connection over an interface that is not of the backbone: closed");
            return;
        };
        if let Some(session) = self.adopt(stream) {
            self.dispatch(Event::Accepted { session, interface });
        }
    }

    fn open_port(&self, interface: &str, ifindex: u32) -> anyhow::Result<()> {
        let port = Rc::new(Port::open(interface, ifindex)?);
        let (hub, name, reading) = (self.clone(), interface.to_owned(), Rc::clone(&port));
        let reader = spawn_local(async move {
            loop {
                match reading.receive().await {
                    Ok((bytes, from, arrived)) => {
                        hub.dispatch(Event::Packet { interface: name.clone(), from, arrived, bytes });
                    }
                    // a link that goes down may say so here, too
                    Err(e) => tracing::debug!(interface = name, "discovery socket: {e}"),
                }
            }
        });
        let open = OpenPort { port, reader: reader.abort_handle() };
        self.inner.borrow_mut().ports.insert(interface.to_owned(), open);
        Ok(())
    }

    fn close_port(&self, interface: &str) {
        if let Some(open) = self.inner.borrow_mut().ports.remove(interface) {
            open.reader.abort();
        }
    }

    fn act(&self, inner: &mut Inner, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Write(id, bytes) => {
                let failed = inner.sessions.get(&id).and_then(|s| s.session.write(&bytes).err());
                if let Some(e) = failed {
                    tracing::info!(session = id, "store session ended: {e}");
                    close_session(inner, id);
                    events.push_back(Event::Closed { session: id });
                }
            }
            Action::Send(interface, bytes) => {
                let sent = inner.ports.get(&interface).map(|open| open.port.send(&bytes));
                if let Some(Err(e)) = sent {
                    tracing::debug!(interface, "discovery packet not sent: {e}");
                    events.push_back(Event::SendFailed { interface });
                }
            }
            Action::Publish(publication) => publish(&mut inner.subscribers, &publication),
            Action::Routes(table) => {
                tracing::info!(routes = table.len(), "shortest paths changed");
                self.routes.send_replace(Some(table));
            }
            Action::Connect { node, interface, address, port } => {
                let Some(ifindex) = inner.ports.get(&interface).map(|p| p.port.ifindex) else {
                    events.push_back(Event::ConnectFailed { node });
                    return;
                };
                let hub = self.clone();
                spawn_local(async move {
                    let result = session::connect(address, port, ifindex).await;
                    hub.connect_ended(node, interface, result);
                });
            }
            Action::Close(id) => close_session(inner, id),
            Action::SaveDrains(drains) => {
                if let Err(e) = drains.save(&inner.state_dir) {
                    tracing::error!("the drain holds, but will be forgotten at the next start: {e:#}");
                }
            }
        }
    }

    fn connect_ended(&self, node: String, interface: String, result: std::io::Result<TcpStream>) {
        let session = match result {
            Ok(stream) => self.adopt(stream),
            Err(e) => {
                tracing::debug!(node, interface, "store session not established: {e}");
                None
            }
        };
        self.dispatch(match session {
            Some(session) => Event::Connected { session, node, interface },
            None => Event::ConnectFailed { node },
        });
    }

    /// Gives a stream its number and its two tasks.
    fn adopt(&self, stream: TcpStream) -> Option<SessionId> {
        let mut inner = self.inner.borrow_mut();
        let session = Session::new(stream, inner.hold)
            .inspect_err(|e| tracing::warn!("cannot set up a store session: {e}"))
            .ok()?;
        inner.last_session += 1;
        let id = inner.last_session;
        let (hub, reading) = (self.clone(), session.clone());
        let reader = spawn_local(async move {
            loop {
                match reading.read().await {
                    Ok(bytes) if bytes.is_empty() => return hub.session_ended(id, "closed by the neighbour"),
                    Ok(bytes) => hub.dispatch(Event::Bytes { session: id, bytes }),
                    Err(e) => return hub.session_ended(id, &e.to_string()),
                }
            }
        });
        let (hub, writing) = (self.clone(), session.clone());
        let writer = spawn_local(async move {
            let e = writing.drain().await;
            hub.session_ended(id, &e.to_string());
        });
        let tasks = [reader.abort_handle(), writer.abort_handle()];
        inner.sessions.insert(id, OpenSession { session, tasks });
        Some(id)
    }

    fn session_ended(&self, id: SessionId, why: &str) {
        tracing::info!(session = id, "store session ended: {why}");
        close_session(&mut self.inner.borrow_mut(), id);
        self.dispatch(Event::Closed { session: id });
    }
}

fn close_session(inner: &mut Inner, id: SessionId) {
    if let Some(open) = inner.sessions.remove(&id) {
        for task in open.tasks {
            task.abort();
        }
    }
}

fn publish(subscribers: &mut Vec<Subscriber>, publication: &Publication) {
    subscribers.retain(|subscriber| {
        let wanted = |key: &str| key.starts_with(&subscriber.prefix);
        let part = Publication {
            snapshot: false,
            values: publication.values.iter().filter(|v| wanted(&v.key)).cloned().collect(),
            expired: publication.expired.iter().filter(|k| wanted(k)).cloned().collect(),
        };
        if part.values.is_empty() && part.expired.is_empty() {
            return !subscriber.sender.is_closed();
        }
        // a gap must not go unnoticed: whoever lags is cut off
        subscriber.sender.try_send(part).is_ok()
    });
}

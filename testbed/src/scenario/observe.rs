//! What a run observes: facts for its conditions, a look at the whole lab now and then, and the machine's own timers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use scenario::expr::{Facts, Needs};
use scenario::record::{Cycle, Entry, Event, Lateness, PlaneSample, Sample};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, mpsc};
use topologies::lab::Lab;

use super::traffic::Flow;
use crate::api::protocol::Status;
use crate::probe::histogram::Histogram;
use crate::supervise::compare;
use crate::supervise::events::monotonic_ns;
use crate::supervise::world::World;

/// How often the machine's timers are tried.
const TICK: Duration = Duration::from_millis(10);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packets, bytes and drops of a class in a plane.
type Counts = BTreeMap<(u8, String), [u64; 3]>;

/// What is observed, and what was so far.
pub struct Observer {
    world: Arc<World>,
    lab: Arc<Lab>,
    /// Where entries go.
    pub book: mpsc::UnboundedSender<Entry>,
    began_ns: AtomicU64,
    events: Mutex<Vec<Event>>,
    /// Told whenever an event has come.
    pub news: Notify,
    /// Traffic that has begun, in that order.
    pub flows: Mutex<Vec<Flow>>,
    queues_before: Mutex<Counts>,
    cycles_told: Mutex<BTreeSet<(u64, u64)>>,
    late: Arc<Mutex<Histogram>>,
    stopped: Arc<AtomicBool>,
}

/// The queues of a status by plane and class.
fn counts(status: &Status) -> Counts {
    let planes = status.planes.iter().flat_map(|plane| plane.queues.iter().map(move |q| (plane.plane, q)));
    planes.map(|(plane, q)| ((plane, q.class.to_string()), [q.packets, q.bytes, q.dropped])).collect()
}

impl Observer {
    /// Begins to observe.
    pub fn new(world: Arc<World>, lab: Arc<Lab>, book: mpsc::UnboundedSender<Entry>) -> Arc<Self> {
        Arc::new(Self {
            world,
            lab,
            book,
            began_ns: AtomicU64::new(0),
            events: Mutex::default(),
            news: Notify::new(),
            flows: Mutex::default(),
            queues_before: Mutex::default(),
            cycles_told: Mutex::default(),
            late: Arc::default(),
            stopped: Arc::default(),
        })
    }

    /// The run begins now: events and queues count from here.
    pub fn begin(&self, at_ns: u64, status: &Status) {
        self.began_ns.store(at_ns, Ordering::Relaxed);
        *lock(&self.queues_before) = counts(status);
        let (late, stopped) = (Arc::clone(&self.late), Arc::clone(&self.stopped));
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(TICK);
                let late_by = before.elapsed().saturating_sub(TICK);
                lock(&late).record(u64::try_from(late_by.as_nanos()).unwrap_or(u64::MAX));
            }
        });
    }

    /// Whether the run has begun.
    pub fn has_begun(&self) -> bool {
        self.began_ns.load(Ordering::Relaxed) != 0
    }

    /// Ends what goes on by itself.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// How late the machine's timers have been.
    pub fn lateness(&self) -> Lateness {
        let late = lock(&self.late);
        let us = |percent| late.percentile(percent) / 1_000;
        Lateness { median_us: us(50), p99_us: us(99), most_us: late.max() / 1_000 }
    }

    /// Listens to the lab's events until aborted.
    pub async fn listen(self: Arc<Self>) {
        let Ok((mut live, _)) = self.world.events.listen() else { return };
        loop {
            match live.recv().await {
                Ok(event) => {
                    let event = Event {
                        at_ns: event.at_ns,
                        kind: event.kind,
                        subject: event.subject,
                        detail: event.detail,
                    };
                    lock(&self.events).push(event.clone());
                    let _ = self.book.send(Entry::Event(event));
                    self.news.notify_waiters();
                }
                Err(RecvError::Lagged(missed)) => tracing::warn!("a run has missed {missed} events"),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Events since the run began.
    pub fn events(&self) -> Vec<Event> {
        let began = self.began_ns.load(Ordering::Relaxed);
        lock(&self.events).iter().filter(|event| event.at_ns >= began).cloned().collect()
    }

    /// What a condition needs to know.
    pub async fn facts(&self, needs: Needs) -> Facts {
        let mut facts = Facts {
            events: self.events(),
            began_ns: self.began_ns.load(Ordering::Relaxed),
            // microseconds of lateness are far below 2^53
            #[allow(clippy::cast_precision_loss)]
            lateness_ms: self.lateness().p99_us as f64 / 1e3,
            ..Facts::default()
        };
        if needs.status {
            let lab = self.world.lab().unwrap_or_else(|_| Arc::clone(&self.lab));
            let status =
                if needs.queues { self.world.status(&lab).await } else { self.world.look(&lab).await };
            facts.status = serde_json::to_value(status).unwrap_or(Value::Null);
            facts.queues_before.clone_from(&lock(&self.queues_before));
        }
        if needs.cycles {
            facts.cycles = compare::document(&self.lab, &self.world.programs.status()).await;
        }
        if needs.traffic {
            for flow in &mut *lock(&self.flows) {
                flow.look();
                facts.traffic.insert(flow.name.clone(), flow.facts());
            }
        }
        facts
    }

    /// Looks at the whole lab at fixed times until aborted.
    pub async fn sample(self: Arc<Self>, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sample_once().await;
        }
    }

    /// Looks at the whole lab, now.
    pub async fn sample_once(&self) {
        let lab = self.world.lab().unwrap_or_else(|_| Arc::clone(&self.lab));
        let status = self.world.status(&lab).await;
        let cycles = compare::document(&lab, &self.world.programs.status()).await;
        lock(&self.flows).iter_mut().filter(|flow| flow.goes_on()).for_each(Flow::note);
        let sample = self.reduce(&status);
        let _ = self.book.send(Entry::Sample(sample));
        self.tell_cycles(&cycles);
    }

    /// What the record keeps of a status.
    fn reduce(&self, status: &Status) -> Sample {
        let planes = status.planes.iter().map(|p| PlaneSample {
            plane: p.plane,
            state: p.state.to_string(),
            wanted: p.lsps.wanted,
            programmed: p.lsps.programmed,
            on_backup: p.lsps.on_backup,
            entered_bytes: p.traffic.bytes,
        });
        let links =
            status.links.iter().filter(|l| l.state != "up" || !l.faults.is_empty() || l.drained.is_some());
        let links = links.map(|l| {
            let mut words = l.faults.clone();
            words.extend(l.drained.map(|mode| format!("drained ({mode:?})").to_lowercase()));
            (l.name.clone(), if words.is_empty() { l.state.clone() } else { words.join(", ") })
        });
        let programs = status.programs.iter().filter(|p| p.state != "running");
        let mut broken: Vec<(String, String)> =
            programs.map(|p| (format!("{}/{}", p.node, p.name), p.state.clone())).collect();
        let nodes = status.nodes.iter().filter(|n| n.state != "up");
        broken.extend(nodes.map(|n| (n.name.clone(), n.state.clone())));
        let before = lock(&self.queues_before);
        let mut dropped = [0; 4];
        for (key, now) in &counts(status) {
            let class = ["icp", "gold", "silver", "bronze"].iter().position(|class| *class == key.1);
            if let Some(class) = class {
                dropped[class] += now[2].saturating_sub(before.get(key).map_or(0, |b| b[2]));
            }
        }
        let sent = status.links.iter().flat_map(|link| link.queues.iter().map(move |end| (link, end)));
        let sent = sent.map(|(link, end)| {
            let mut bytes = [0; 4];
            bytes.iter_mut().zip(&end.classes).for_each(|(bytes, queue)| *bytes = queue.bytes);
            (end.from.clone(), link.name.clone(), bytes)
        });
        Sample {
            at_ns: monotonic_ns(),
            planes: planes.collect(),
            broken_links: links.collect(),
            broken_programs: broken,
            sent: sent.collect(),
            dropped,
        }
    }

    /// Tells each controller cycle once.
    fn tell_cycles(&self, cycles: &Value) {
        for plane in cycles["planes"].as_array().into_iter().flatten() {
            let number = |field: &str| plane[field].as_u64().unwrap_or(0);
            let (id, cycle) = (number("plane"), number("cycle"));
            if cycle == 0 || !lock(&self.cycles_told).insert((id, cycle)) {
                continue;
            }
            let us = number("snapshot_us") + number("te_us") + number("program_us");
            let detail = format!(
                "cycle {cycle}: {} LSPs, {} without a path, {} of {} pairs programmed, fullest link {} %",
                number("lsps"),
                number("unrouted"),
                number("pairs_ok"),
                number("pairs_ok") + number("pairs_failed"),
                number("max_utilisation_permille") / 10,
            );
            let plane = u8::try_from(id).unwrap_or(u8::MAX);
            let _ = self.book.send(Entry::Cycle(Cycle {
                plane,
                ended_ns: monotonic_ns(),
                took_ms: us / 1_000,
                detail,
            }));
        }
    }
}

//! The lab's events: kept in a file, sent to whoever listens.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use tokio::sync::broadcast;

use crate::api::protocol::Event;

/// Nanoseconds of CLOCK_MONOTONIC, the clock that probes and agents use.
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}

/// Kind of the first event of a lab's life.
pub const STARTED: &str = "lab.started";

/// Reads an event file, or its first bytes: the events since the lab started last, or of `all` its lives. A line cut short
/// by a killed world is passed over.
pub fn read(path: &Path, all: bool, bytes: Option<u64>) -> anyhow::Result<Vec<Event>> {
    let doing = || format!("cannot read the event file {}", path.display());
    let file = File::open(path).with_context(doing)?;
    let file = BufReader::new(file.take(bytes.unwrap_or(u64::MAX)));
    let mut events = Vec::new();
    for line in file.split(b'\n') {
        let Ok(event) = serde_json::from_slice::<Event>(&line.with_context(doing)?) else { continue };
        if event.kind == STARTED && !all {
            events.clear();
        }
        events.push(event);
    }
    Ok(events)
}

/// Puts the events of each life in the order in which they happened: agents tell theirs a moment later.
pub fn in_order(events: &mut [Event]) {
    for life in events.chunk_by_mut(|_, next| next.kind != STARTED) {
        life.sort_by_key(|event| event.at_ns);
    }
}

/// Where events go.
pub struct Events {
    file: Mutex<File>,
    listeners: broadcast::Sender<Event>,
}

impl Events {
    /// Opens (appends to) the file.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot open the event file {}", path.display()))?;
        Ok(Self { file: Mutex::new(file), listeners: broadcast::channel(1024).0 })
    }

    /// Records an event that happens now.
    pub fn emit(&self, kind: &str, subject: &str, detail: impl Into<String>) {
        self.emit_at(monotonic_ns(), kind, subject, detail);
    }

    /// Records an event that happened at a known time of CLOCK_MONOTONIC.
    pub fn emit_at(&self, at_ns: u64, kind: &str, subject: &str, detail: impl Into<String>) {
        // the wall clock at that time, not now
        let ago = Duration::from_nanos(monotonic_ns().saturating_sub(at_ns));
        let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(ago);
        let event = Event {
            unix_ms: u64::try_from(then.as_millis()).unwrap_or(u64::MAX),
            at_ns,
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            detail: detail.into(),
        };
        tracing::info!(kind, subject, detail = %event.detail, "event");
        let line = serde_json::to_vec(&event).map(|mut line| {
            line.push(b'\n');
            line
        });
        // held over both, see `listen`
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = line.map_err(std::io::Error::from).and_then(|line| file.write_all(&line)) {
            tracing::warn!("cannot write to the event file: {e}");
        }
        // no listener is fine
        let _ = self.listeners.send(event);
    }

    /// Events from now on, and how many bytes of the file hold those of before: each event is in one of the two.
    pub fn listen(&self) -> std::io::Result<(broadcast::Receiver<Event>, u64)> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((self.listeners.subscribe(), file.metadata()?.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: an event of a world before, later by the clock than all of now (the clock was set back); one before and one
    /// after listening began. Output: the file's part has the first two, the listener the third.
    #[test]
    fn each_event_is_told_once_whatever_the_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(
            &path,
            r#"{"unix_ms":9999999999999,"at_ns":1,"kind":"k","subject":"old","detail":""}"#.to_owned() + "\n",
        )
        .unwrap();
        let events = Events::open(&path).unwrap();
        events.emit("k", "before", "");
        let (mut live, past) = events.listen().unwrap();
        events.emit("k", "after", "");
        let text = std::fs::read_to_string(&path).unwrap();
        let past = &text[..usize::try_from(past).unwrap()];
        assert!(past.contains("old") && past.contains("before") && !past.contains("after"), "{past}");
        assert_eq!(live.try_recv().unwrap().subject, "after");
        assert!(live.try_recv().is_err());
    }

    #[test]
    fn the_last_life_is_told_in_the_order_of_what_happened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let first = Events::open(&path).unwrap();
        first.emit_at(5, STARTED, "x", "");
        first.emit_at(6, "link.cut", "old", "");
        drop(first);
        std::fs::File::options().append(true).open(&path).unwrap().write_all(b"{\"cut short\n").unwrap();
        let second = Events::open(&path).unwrap();
        second.emit_at(1, STARTED, "x", "");
        second.emit_at(9, "lsp.repaired", "r", "");
        second.emit_at(8, "link.cut", "new", "");
        let subjects = |all| {
            let mut events = read(&path, all, None).unwrap();
            in_order(&mut events);
            events.into_iter().map(|e| e.subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects(false), ["x", "new", "r"]);
        assert_eq!(subjects(true), ["x", "old", "x", "new", "r"]);
        let error = read(&dir.path().join("none"), true, None).unwrap_err().to_string();
        assert!(error.contains("cannot read the event file"), "{error}");
    }

    #[test]
    fn the_wall_clock_is_that_of_the_event() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let events = Events::open(&path).unwrap();
        let now = monotonic_ns();
        events.emit_at(now.saturating_sub(2_000_000_000), "a", "", "");
        events.emit_at(now, "b", "", "");
        let [a, b] = &read(&path, false, None).unwrap()[..] else { panic!("two events") };
        let apart = b.unix_ms - a.unix_ms;
        assert!((1_900..=2_100).contains(&apart) || now < 2_000_000_000, "{apart} ms");
    }
}

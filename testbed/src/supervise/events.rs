//! The lab's events: kept in a file, sent to whoever listens.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

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
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = Event {
            unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            at_ns,
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            detail: detail.into(),
        };
        tracing::info!(kind, subject, detail = %event.detail, "event");
        if let Ok(mut line) = serde_json::to_vec(&event) {
            line.push(b'\n');
            if let Ok(mut file) = self.file.lock()
                && let Err(e) = file.write_all(&line)
            {
                tracing::warn!("cannot write to the event file: {e}");
            }
        }
        // no listener is fine
        let _ = self.listeners.send(event);
    }

    /// Events from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.listeners.subscribe()
    }
}

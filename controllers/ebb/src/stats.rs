//! Statistics of cycles as JSON Lines, written beside the cycle and never on its path.
//!
//! In 2021 the paper's controllers stood still because their statistics were written synchronously to a service that
//! congestion had broken (EBB paper, section 7.1). Here a line goes into a bounded queue; a thread of its own writes it. A
//! sink that blocks costs lines, not cycles.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use serde::Serialize;

/// Lines that wait for a slow sink before further ones are dropped.
const QUEUE: usize = 64;

/// One cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CycleStats {
    /// Plane.
    pub plane: u8,
    /// Epoch of the leader.
    pub epoch: u64,
    /// Number of the cycle since the start of the process.
    pub cycle: u64,
    /// `CLOCK_MONOTONIC` at its start, nanoseconds.
    pub started_ns: u64,
    /// Time for asking the routers, microseconds.
    pub snapshot_us: u64,
    /// Time for computing paths, microseconds.
    pub te_us: u64,
    /// Time for writing, the pause before removal included, microseconds.
    pub program_us: u64,
    /// Routers whose lsp-agent answered.
    pub routers: u32,
    /// Directed links of the graph.
    pub links: u32,
    /// LSPs with a path.
    pub lsps: u32,
    /// LSPs with a backup.
    pub protected: u32,
    /// LSPs over the limit, or without a path.
    pub unrouted: u32,
    /// Units programmed.
    pub programmed: u32,
    /// Units that needed nothing.
    pub kept: u32,
    /// Units that failed.
    pub failed: u32,
    /// SIDs removed.
    pub retired: u32,
    /// Number of errors.
    pub errors: u32,
    /// Highest utilisation of a link by primaries, thousandths.
    pub max_utilisation_permille: u32,
    /// Lines that the sink has not taken so far.
    pub stats_dropped: u64,
}

/// Where statistics go.
#[derive(Debug)]
pub struct StatsSink {
    queue: Option<SyncSender<String>>,
    dropped: u64,
}

impl StatsSink {
    /// Appends to `path` from a thread of its own.
    pub fn to_file(path: PathBuf) -> anyhow::Result<Self> {
        let (queue, lines) = sync_channel::<String>(QUEUE);
        let write = move || {
            // opened here: opening a pipe without a reader blocks as well
            let mut file = None;
            for line in lines {
                if file.is_none() {
                    file = std::fs::OpenOptions::new().create(true).append(true).open(&path).ok();
                }
                if let Some(f) = file.as_mut()
                    && let Err(e) = f.write_all(line.as_bytes())
                {
                    tracing::warn!(path = %path.display(), error = %e, "cannot write statistics");
                    file = None;
                }
            }
        };
        std::thread::Builder::new()
            .name("stats".into())
            .spawn(write)
            .map_err(|e| anyhow::anyhow!("cannot start the thread that writes statistics: {e}"))?;
        Ok(Self { queue: Some(queue), dropped: 0 })
    }

    /// Keeps nothing.
    pub fn none() -> Self {
        Self { queue: None, dropped: 0 }
    }

    /// Hands over a line; never waits.
    pub fn push(&mut self, stats: &CycleStats) {
        let Some(queue) = &self.queue else { return };
        let Ok(mut line) = serde_json::to_string(stats) else { return };
        line.push('\n');
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = queue.try_send(line) {
            self.dropped += 1;
        }
    }

    /// Lines that were not taken.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn lines_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cycles.jsonl");
        let mut sink = StatsSink::to_file(path.clone()).unwrap();
        sink.push(&CycleStats { cycle: 7, ..CycleStats::default() });
        let deadline = Instant::now() + Duration::from_secs(10);
        let text = loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.ends_with('\n') {
                break text;
            }
            assert!(Instant::now() < deadline, "no line came");
            std::thread::yield_now();
        };
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["cycle"], 7);
    }

    /// A pipe that nobody reads: its opening blocks for ever.
    #[test]
    fn a_blocked_sink_costs_lines_and_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let mut sink = StatsSink::to_file(path.clone()).unwrap();
        let start = Instant::now();
        for _ in 0..1000 {
            sink.push(&CycleStats::default());
        }
        assert!(start.elapsed() < Duration::from_secs(1));
        assert!(sink.dropped() > 900);
        // lets the thread go
        drop(sink);
        let _reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    }
}

//! Probes as background traffic, and what they lost.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;

use crate::cli::Background;
use crate::documents::ProbeReport;
use crate::{Cli, Lab, wait_until};

/// Streams that run until they are told to stop.
pub struct Traffic {
    run: Background,
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// Source host; all if none.
    pub from: Option<&'a str>,
    /// Destination host; all if none.
    pub to: Option<&'a str>,
    /// Classes.
    pub classes: &'a str,
    /// Packets a second of each stream.
    pub rate: u32,
    /// Source addresses of each stream.
    pub flows: u16,
}

impl Load<'_> {
    /// All hosts to all hosts in all classes.
    pub const ALL: Load<'static> =
        Load { from: None, to: None, classes: "icp,gold,silver,bronze", rate: 10, flows: 40 };

    fn words(&self) -> Vec<String> {
        let mut words = vec!["probe".to_owned()];
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if let Some(from) = self.from {
            add("--from", from.to_owned());
        }
        if let Some(to) = self.to {
            add("--to", to.to_owned());
        }
        add("--class", self.classes.to_owned());
        add("--rate", self.rate.to_string());
        add("--flows", self.flows.to_string());
        words
    }

    /// Sends for `seconds` and reports.
    pub fn send(&self, cli: &Cli, seconds: f64) -> anyhow::Result<ProbeReport> {
        let mut words = self.words();
        words.extend(["--duration".into(), seconds.to_string()]);
        cli.json(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl Traffic {
    /// Starts it and waits until packets have entered the backbone.
    pub fn start(lab: &Lab, load: &Load<'_>) -> anyhow::Result<Self> {
        let entered =
            || -> anyhow::Result<u64> { Ok(lab.status()?.planes.iter().map(|p| p.traffic.packets).sum()) };
        let before = entered()?;
        let mut words = vec!["--format".to_owned(), "json".to_owned()];
        words.extend(load.words());
        words.extend(["--duration".into(), "900".into()]);
        let mut run = lab.cli.start(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        wait_until(Duration::from_secs(60), "probe packets to enter the backbone", || {
            if !run.runs() {
                return Err("the probe has ended".into());
            }
            match entered() {
                Ok(now) if now >= before + 100 => Ok(()),
                Ok(now) => Err(format!("{} packets", now.saturating_sub(before))),
                Err(e) => Err(format!("{e:#}")),
            }
        })?;
        Ok(Self { run })
    }

    /// Stops it.
    pub fn stop(self) -> anyhow::Result<ProbeReport> {
        self.run.signal(Signal::SIGINT);
        let output = self.run.finish(Duration::from_secs(60))?;
        let report: ProbeReport = serde_json::from_str(&output.stdout).with_context(|| {
            format!("probe (exit code {}) said {:?} {:?}", output.code, output.stdout, output.stderr)
        })?;
        ensure!(report.received() > 0, "no packet arrived at all");
        Ok(report)
    }

    /// Stops it; anything lost is an error.
    pub fn stop_lossless(self, during: &str) -> anyhow::Result<ProbeReport> {
        let report = self.stop()?;
        lossless(&report, during)?;
        Ok(report)
    }
}

/// Errors if anything was lost.
pub fn lossless(report: &ProbeReport, during: &str) -> anyhow::Result<()> {
    ensure!(
        report.lost() == 0 && report.refused() == 0,
        "{} of {} packets lost, {} refused during {during}:\n{}",
        report.lost(),
        report.sent(),
        report.refused(),
        report.losses()
    );
    Ok(())
}

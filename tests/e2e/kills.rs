//! Programs that are killed under traffic: every one may die alone, and the kernel goes on forwarding.

use std::time::Duration;

use anyhow::ensure;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note};

/// The routers whose programs are killed: a source, and the intermediate node of plane 1's long paths.
const VICTIMS: &str = "eb01.prn,eb01.frc";

/// Kills `program` on the victims while all pairs send; nothing may be lost, and each must be running again under another
/// process id, with the lab whole.
fn killed(lab: &Lab, program: &str) -> anyhow::Result<()> {
    let before = lab.status()?;
    let traffic = Traffic::start(lab, &Load::ALL)?;
    lab.cli.ok(&["program", "kill", program, VICTIMS])?;
    let after = lab.until(Duration::from_secs(60), "the killed programs to run again", |s| {
        for node in VICTIMS.split(',') {
            let (old, new) = (before.program(node, program), s.program(node, program));
            let (old, new) = (old.map_err(|e| e.to_string())?, new.map_err(|e| e.to_string())?);
            if new.state != "running" || new.pid == old.pid {
                return Err(format!("{new:?}"));
            }
        }
        Ok(())
    })?;
    lab.ready()?;
    // a full cycle of both controllers with the new programs
    tests::mesh::cycle(&lab.cli, 1)?;
    tests::mesh::cycle(&lab.cli, 2)?;
    let report = traffic.stop_lossless(&format!("the death of {program} on {VICTIMS}"))?;
    for node in VICTIMS.split(',') {
        let restarts = after.program(node, program)?.restarts - before.program(node, program)?.restarts;
        ensure!(restarts == 1, "{node}/{program} was started {restarts} times");
    }
    note(format!("{program}: {} packets, 0 lost", report.sent()));
    Ok(())
}

/// Input: SIGKILL for the lsp-agents. Output: nothing lost, LSPs taken over as they are in the kernel.
pub fn lsp_agent(lab: &Lab) -> anyhow::Result<()> {
    killed(lab, "lsp-agent")
}

/// Input: SIGKILL for the route-agents. Output: nothing lost.
pub fn route_agent(lab: &Lab) -> anyhow::Result<()> {
    killed(lab, "route-agent")
}

/// Input: SIGKILL for openr. Output: nothing lost; neighbours come back.
pub fn openr(lab: &Lab) -> anyhow::Result<()> {
    killed(lab, "openr")
}

/// Input: SIGKILL for the fib-agents. Output: nothing lost.
pub fn fib_agent(lab: &Lab) -> anyhow::Result<()> {
    killed(lab, "fib-agent")
}

/// Input: SIGKILL for BIRD. Output: nothing lost; sessions come back.
pub fn bird(lab: &Lab) -> anyhow::Result<()> {
    killed(lab, "bird")
}

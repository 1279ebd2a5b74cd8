//! Programs that are killed under traffic: every one may die alone, and the kernel goes on forwarding.

use std::time::Duration;

use anyhow::ensure;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note};

/// The routers whose programs are killed, one after the other: a source, and the intermediate node of plane 1's long paths.
const VICTIMS: [&str; 2] = ["eb01.prn", "eb01.frc"];

/// Kills `program` on each victim while all pairs send; nothing may be lost, and each must be running again under another
/// process id, with the lab whole.
fn killed(lab: &Lab, program: &str) -> anyhow::Result<()> {
    let traffic = Traffic::start(lab, &Load::ALL)?;
    for node in VICTIMS {
        let before = lab.status()?.program(node, program)?.clone();
        lab.cli.ok(&["program", "kill", program, node])?;
        let after = lab.until(Duration::from_secs(60), "the killed program to run again", |s| {
            let now = s.program(node, program).map_err(|e| e.to_string())?;
            if now.state == "running" && now.pid != before.pid { Ok(()) } else { Err(format!("{now:?}")) }
        })?;
        let restarts = after.program(node, program)?.restarts - before.restarts;
        ensure!(restarts == 1, "{node}/{program} was started {restarts} times");
        lab.ready()?;
        // what the controller now reads from the routers must lead to nothing that loses packets
        tests::mesh::cycle(&lab.cli, 1)?;
    }
    let report = traffic.stop_lossless(&format!("the death of {program} on {}", VICTIMS.join(", then ")))?;
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

//! Programs that are killed under traffic: every one may die alone, and the kernel goes on forwarding.

use std::time::Duration;

use anyhow::ensure;
use tests::kernel::Watch;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note};

/// The routers whose programs are killed, one after the other: a source, and the intermediate node of plane 1's long paths.
const VICTIMS: [&str; 2] = ["eb01.prn", "eb01.frc"];

/// Kills `program` on each victim while all pairs send; each must be running again under another process id. At first with the
/// controllers stopped: nothing else then changes what packets go by, so no router of the plane may delete any of it (the
/// fallbacks would hide that), and the plane must be whole without a controller's help. Then the controllers return, and what
/// they read from the routers must lead to nothing that loses packets. Nothing may be lost at any time.
fn killed(lab: &Lab, program: &str) -> anyhow::Result<()> {
    let traffic = Traffic::start(lab, &Load::ALL)?;
    lab.stop_controllers()?;
    let plane = lab.status()?.nodes.into_iter().filter(|n| n.plane == Some(1));
    let watches = plane.map(|n| Watch::start(&lab.cli, &n.name)).collect::<anyhow::Result<Vec<_>>>()?;
    let routers = watches.len();
    for node in VICTIMS {
        let before = lab.status()?.program(node, program)?.clone();
        lab.cli.ok(&["program", "kill", program, node])?;
        let after = lab.until(Duration::from_secs(60), "the killed program to run again", |s| {
            let now = s.program(node, program).map_err(|e| e.to_string())?;
            if now.state == "running" && now.pid != before.pid { Ok(()) } else { Err(format!("{now:?}")) }
        })?;
        let restarts = after.program(node, program)?.restarts - before.restarts;
        ensure!(restarts == 1, "{node}/{program} was started {restarts} times");
        lab.until(Duration::from_secs(60), "the plane to be whole without its controller", |s| {
            let plane = s.plane(1).map_err(|e| e.to_string())?;
            if plane.state == "ready" { Ok(()) } else { Err(format!("{}: {}", plane.state, plane.reason)) }
        })?;
    }
    let deleted = watches.into_iter().map(Watch::deleted).collect::<anyhow::Result<Vec<_>>>()?.concat();
    lab.resume_controllers()?;
    lab.ready()?;
    tests::mesh::cycle(&lab.cli, 1)?;
    let report = traffic.stop_lossless(&format!("the death of {program} on {}", VICTIMS.join(", then ")))?;
    ensure!(
        deleted.is_empty(),
        "nothing lost, but {} routes or next hops deleted by the death of {program}, the first of them:\n{}",
        deleted.len(),
        deleted.iter().take(10).cloned().collect::<Vec<_>>().join("\n")
    );
    note(format!("{program}: {} packets, 0 lost; {routers} routers deleted nothing", report.sent()));
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

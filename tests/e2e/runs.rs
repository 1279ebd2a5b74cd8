//! Scenarios as their users run them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use tests::{Lab, lab, note, wait_until};

/// Longest wait for what a run has broken to be as before.
const BACK: Duration = Duration::from_secs(60);

fn library(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/ebb");
    folder.join(name).display().to_string()
}

/// Writes a scenario into the suite's folder.
fn written(name: &str, steps: &str) -> anyhow::Result<PathBuf> {
    let path = lab::state_folder().join(format!("{name}.yaml"));
    let text = format!("scenario: {name}\nabout: A test of the engine.\nlab: ebb-small\nsteps:\n{steps}");
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Input: a scenario of the library, on the lab that runs.
/// Output: it passes; its page, record and JUnit XML are there; the lab goes on, whole.
pub fn scenario_passes(lab: &Lab) -> anyhow::Result<()> {
    let junit = lab::state_folder().join("junit.xml");
    let junit = junit.to_str().context("path")?;
    let file = library("o5-last-plane.yaml");
    let run = lab.cli.run(&["--format", "json", "run", &file, "--junit", junit])?;
    let said: serde_json::Value = serde_json::from_str(&run.stdout).with_context(|| {
        format!("`run` (exit code {}) printed {:?} {:?}", run.code, run.stdout, run.stderr)
    })?;
    ensure!(run.code == 0 && said["runs"][0]["outcome"] == "passed", "exit code {}: {said}", run.code);
    let xml = std::fs::read_to_string(junit)?;
    ensure!(xml.contains("o5-last-plane") && xml.contains("failures=\"0\""), "JUnit XML: {xml}");
    let id = said["runs"][0]["id"].as_str().context("a run has a name")?;
    let page = lab::state_folder().join("runs").join(id).join("report.html");
    ensure!(page.metadata()?.len() > 20_000, "{} is too short for a page", page.display());
    let shown = lab.cli.ok(&["report", id])?;
    ensure!(shown.contains("drain plane 1"), "`report` shows {shown}");
    lab.ready().map(drop)
}

/// Input: a cut, and an expectation, a `never`, an `eventually`, a command and a condition to begin that are not met.
/// Output: each fails with step, expected, observed and evidence; the cut is taken back.
pub fn scenario_fails(lab: &Lab) -> anyhow::Result<()> {
    let cut = "  - cut: eb01.chi--eb01.frc\n";
    for (name, step, observed) in [
        ("wrong-expect", "  - {expect: 'link:eb01.chi--eb01.frc state == up', within: 1s}\n", "state is cut"),
        ("wrong-never", "  - never: link:eb01.chi--eb01.frc state == cut\n  - wait: 20s\n", "state is cut"),
        ("wrong-eventually", "  - eventually: event:lab.down count > 0\n", "count is 0"),
        ("wrong-exec", "  - exec: {node: h1.prn, command: [sh, -c, exit 7]}\n", "exit code 7, expected 0"),
        ("wrong-when", "  - {when: plane:1 state == drained, within: 1s, wait: 1s}\n", "state is"),
    ] {
        let file = written(name, &format!("{cut}{step}"))?;
        let run = lab.cli.run(&["run", file.to_str().context("path")?])?;
        ensure!(run.code == 1, "{name}: exit code {}: {}", run.code, run.stderr);
        for wanted in ["step 2 (line 6)", observed, "evidence: "] {
            ensure!(run.stderr.contains(wanted), "{name}: `{wanted}` is not in\n{}", run.stderr);
        }
        let faults: Vec<_> = lab.status()?.links.into_iter().filter(|l| !l.faults.is_empty()).collect();
        ensure!(faults.is_empty(), "{name} has left {faults:?}");
    }
    let wrong = written("wrong-file", "  - {cut: plane:9}\n")?;
    let refused = lab.cli.run(&["run", wrong.to_str().context("path")?])?;
    let place = "wrong-file.yaml:5:11: `plane:9` matches nothing";
    ensure!(refused.code == 2 && refused.stderr.contains(place), "{refused:?}");
    Ok(())
}

/// Input: `run` killed by SIGKILL while a link is cut, a node is down and a program hangs.
/// Output: the lab is whole again by itself, and takes the next run.
pub fn scenario_killed(lab: &Lab) -> anyhow::Result<()> {
    let steps = "  - cut: eb01.chi--eb01.frc\n  - crash: eb02.chi\n  - pause: nhg-tm\n  - wait: 600s\n";
    let file = written("killed", steps)?;
    let run = lab.cli.start(&["run", file.to_str().context("path")?])?;
    lab.until(BACK, "the run to break all that it breaks", |s| {
        let paused = s.programs.iter().any(|p| p.name.starts_with("nhg-tm") && p.state == "paused");
        if paused { Ok(()) } else { Err("nothing is paused yet".to_owned()) }
    })?;
    run.signal(Signal::SIGKILL);
    lab.until(BACK, "the faults to be taken back", |s| {
        let link = s.links.iter().any(|l| !l.faults.is_empty());
        let node = s.nodes.iter().any(|n| n.state != "up");
        let program = s.programs.iter().any(|p| p.state == "paused");
        if link || node || program {
            Err(format!("link {link}, node {node}, program {program}"))
        } else {
            Ok(())
        }
    })?;
    lab.ready()?;
    let again = written("after", "  - expect: plane:* state == ready\n")?;
    let again = again.to_str().context("path")?.to_owned();
    wait_until(BACK, "the next run to pass", || {
        let run = lab.cli.run(&["run", &again]).map_err(|e| format!("{e:#}"))?;
        if run.code == 0 { Ok(()) } else { Err(run.stderr) }
    })?;
    note("killed while a link, a node and a program were down: all back, and the next run passed");
    Ok(())
}

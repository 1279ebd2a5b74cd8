//! The lab that the tests share: brought up by the first that needs it, put back in order around each.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::cli::{self, Cli};
use crate::documents::{Event, Status, Up};
use crate::{note, wait_until};

/// Longest wait for a lab that has been disturbed to be whole again.
const SETTLE: Duration = Duration::from_secs(120);

/// A running lab.
#[derive(Debug)]
pub struct Lab {
    /// Runner of its commands.
    pub cli: Cli,
    /// What the first `up` said.
    pub up: Up,
    /// Wall time of the first `up`.
    pub took: Duration,
}

/// Carrier that the suite uses, from `TESTBED_E2E_CARRIER`.
pub fn carrier() -> String {
    std::env::var("TESTBED_E2E_CARRIER").ok().filter(|c| !c.is_empty()).unwrap_or_else(|| "auto".into())
}

/// Whether the long form of the tests is wanted, from `TESTBED_E2E_FULL`.
pub fn full() -> bool {
    std::env::var_os("TESTBED_E2E_FULL").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The suite's state folder, short because socket paths are.
pub fn state_folder() -> PathBuf {
    std::env::temp_dir().join(format!("testbed-e2e-{}", std::process::id()))
}

/// A state folder beside it, for labs that are killed: nothing that runs for the shared lab names it.
pub fn second_state_folder() -> PathBuf {
    state_folder().join("k")
}

/// The one lab of the suite.
pub fn shared() -> anyhow::Result<&'static Lab> {
    static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();
    let lab = LAB.get_or_init(|| Lab::bring_up("ebb-small", "ebb-small").map_err(|e| format!("{e:#}")));
    lab.as_ref().map_err(|e| anyhow!("the lab did not come up: {e}"))
}

impl Lab {
    /// Brings up `lab` under the name `name`.
    pub fn bring_up(lab: &str, name: &str) -> anyhow::Result<Self> {
        let cli = Cli::new(&cli::program()?, &state_folder(), name);
        let began = Instant::now();
        let output =
            cli.run(&["--format", "json", "up", lab, "--carrier", &carrier(), "--timeout", "300"])?;
        let said = output.stderr.clone();
        let up = serde_json::from_str(&output.expect(0)?)
            .context("`up --format json` printed another document")?;
        let lab = Self { cli, up, took: began.elapsed() };
        for line in said.lines().filter(|l| l.contains("carrier") || l.contains("supervisor ready")) {
            note(line.trim());
        }
        Ok(lab)
    }

    /// Its status.
    pub fn status(&self) -> anyhow::Result<Status> {
        self.cli.json(&["status"])
    }

    /// Its events so far.
    pub fn events(&self) -> anyhow::Result<Vec<Event>> {
        let text = self.cli.ok(&["--format", "json", "events"])?;
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("event {line:?}")))
            .collect()
    }

    /// Waits until everything is as after `up`.
    pub fn ready(&self) -> anyhow::Result<Status> {
        wait_until(SETTLE, "the lab to be ready", || {
            let status = self.status().map_err(|e| format!("{e:#}"))?;
            let complaints = status.complaints();
            if complaints.is_empty() { Ok(status) } else { Err(complaints) }
        })
    }

    /// Puts everything back that a test may have left changed, and waits until it is whole.
    pub fn settle(&self) -> anyhow::Result<Status> {
        self.put_back()?;
        self.ready()
    }

    /// Restores nodes, links and connections, resumes and continues programs, undrains planes, links and routers, takes
    /// configurations back that keep links shut.
    pub fn put_back(&self) -> anyhow::Result<()> {
        let status = self.status()?;
        if status.nodes.iter().any(|n| n.state != "up") {
            self.cli.ok(&["node", "restore", "all"])?;
        }
        if !status.rpc.is_empty() {
            self.cli.ok(&["rpc", "restore"])?;
        }
        if status.links.iter().any(|l| !l.faults.is_empty()) {
            self.cli.ok(&["link", "restore", "all"])?;
        }
        for program in
            status.programs.iter().filter(|p| ["stopped", "crash-loop"].contains(&p.state.as_str()))
        {
            self.cli.ok(&["program", "resume", &program.name, &program.node])?;
        }
        for program in status.programs.iter().filter(|p| p.state == "paused") {
            self.cli.ok(&["program", "continue", &program.name, &program.node])?;
        }
        for plane in status.planes.iter().filter(|p| p.state == "drained") {
            self.cli.ok(&["undrain", "plane", &plane.plane.to_string(), "--timeout", "120"])?;
        }
        let links = status.links.iter().filter(|l| l.drained.is_some()).map(|l| ("link", &l.name));
        let routers = status.nodes.iter().filter(|n| n.drained.is_some()).map(|n| ("router", &n.name));
        for (kind, name) in links.chain(routers) {
            self.cli.ok(&["undrain", kind, name])?;
        }
        let shut = status.links.iter().filter(|l| l.state == "shut");
        let routers: BTreeSet<&str> = shut.flat_map(|l| l.name.split("--")).collect();
        for router in routers {
            let shown: serde_json::Value = self.cli.json(&["config", "show", router])?;
            if shown["routers"][0]["shut"].as_array().is_some_and(|shut| !shut.is_empty()) {
                self.cli.ok(&["config", "rollback", router])?;
            }
        }
        Ok(())
    }

    /// Waits until `seen` says so about the status.
    pub fn until(
        &self,
        deadline: Duration,
        what: &str,
        seen: impl Fn(&Status) -> Result<(), String>,
    ) -> anyhow::Result<Status> {
        wait_until(deadline, what, || {
            let status = self.status().map_err(|e| format!("{e:#}"))?;
            seen(&status).map(|()| status)
        })
    }

    /// Stops the controllers of all planes.
    pub fn stop_controllers(&self) -> anyhow::Result<()> {
        self.cli.ok(&["program", "stop", "ebb-controller"])?;
        Ok(())
    }

    /// Starts them again.
    pub fn resume_controllers(&self) -> anyhow::Result<()> {
        self.cli.ok(&["program", "resume", "ebb-controller"])?;
        Ok(())
    }

    /// Host on which the controller of the plane runs, and its configuration as it lies there.
    pub fn controller(&self, plane: u8) -> anyhow::Result<(String, serde_json::Value)> {
        for program in self.status()?.programs.iter().filter(|p| p.name.starts_with("ebb-controller")) {
            let path = format!("/run/testbed/{}/{}.json", program.node, program.name);
            let text = self.cli.exec(&program.node, &["cat", &path])?;
            let config: serde_json::Value = serde_json::from_str(&text).with_context(|| path.clone())?;
            if config["plane"] == plane {
                return Ok((program.node.clone(), config));
            }
        }
        Err(anyhow!("no controller of plane {plane} in status"))
    }
}

/// Takes every lab of the suite down when the suite ends, in whatever way it ends: a child that waits for the end of a
/// pipe which only this process holds.
pub struct Guard {
    child: Option<Child>,
    state: PathBuf,
}

impl Guard {
    /// Starts the watcher.
    pub fn start(program: &Path) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let state = state_folder();
        let script = r#"trap "" INT TERM HUP; read -r _; base=$TESTBED_STATE
for TESTBED_STATE in "$base/k" "$base"; do
    export TESTBED_STATE
    "$1" --quiet down --all >/dev/null 2>&1
done
rm -rf "$base""#;
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .env("TESTBED_STATE", &state)
            .env_remove("TESTBED_LAB")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { child: Some(child), state })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(stdin) = &mut child.stdin {
            let _ = stdin.write_all(b"\n");
        }
        let _ = child.wait();
        if self.state.exists() {
            eprintln!("the state folder {} could not be removed", self.state.display());
        }
    }
}

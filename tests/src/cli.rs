//! Runs the `testbed` program as a user would.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

/// Longest that any command may take; each has its own, shorter, deadlines.
const LONGEST: Duration = Duration::from_secs(420);

/// What a command said.
#[derive(Clone, Debug)]
pub struct Output {
    /// The words of the command, for messages.
    pub command: String,
    /// Exit code, or 128 + signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Wall time.
    pub took: Duration,
}

impl Output {
    /// Standard output if the exit code is `code`; else an error with everything in it.
    pub fn expect(self, code: i32) -> anyhow::Result<String> {
        ensure!(
            self.code == code,
            "`testbed {}` ended with exit code {}, not {code}\nstdout: {}\nstderr: {}",
            self.command,
            self.code,
            self.stdout.trim_end(),
            self.stderr.trim_end()
        );
        Ok(self.stdout)
    }
}

/// The program with its environment: its own state folder, a lab name, a carrier.
#[derive(Clone, Debug)]
pub struct Cli {
    program: PathBuf,
    state: PathBuf,
    lab: String,
    user: Option<(u32, PathBuf)>,
}

impl Cli {
    /// A runner for one lab of one state folder.
    pub fn new(program: &Path, state: &Path, lab: &str) -> Self {
        Self { program: program.to_owned(), state: state.to_owned(), lab: lab.to_owned(), user: None }
    }

    /// The same state folder, another lab; with an empty name, commands name none.
    #[must_use]
    pub fn with_lab(&self, lab: &str) -> Self {
        Self { lab: lab.to_owned(), ..self.clone() }
    }

    /// The same as the user `uid`, whose home folder is `home`. Only root can do this.
    #[must_use]
    pub fn with_user(&self, uid: u32, home: &Path) -> Self {
        Self { user: Some((uid, home.to_owned())), ..self.clone() }
    }

    /// The state folder (of all labs of this runner).
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The folder of this lab.
    pub fn lab_state(&self) -> PathBuf {
        self.state.join(&self.lab)
    }

    /// The lab's name.
    pub fn lab(&self) -> &str {
        &self.lab
    }

    /// Folder of the program, in which the agents lie too.
    pub fn bin(&self) -> PathBuf {
        self.program.parent().unwrap_or(Path::new(".")).to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("TESTBED_STATE", &self.state).env_remove("TESTBED_LOG");
        if self.lab.is_empty() {
            command.env_remove("TESTBED_LAB");
        } else {
            command.env("TESTBED_LAB", &self.lab);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some((uid, home)) = &self.user {
            use std::os::unix::process::CommandExt as _;
            command
                .uid(*uid)
                .gid(*uid)
                .env("HOME", home)
                .env("TESTBED_CACHE", home.join("cache"))
                .current_dir("/");
        }
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        self.start(words)?.finish(LONGEST)
    }

    /// Runs a command that has to succeed; its standard output.
    pub fn ok(&self, words: &[&str]) -> anyhow::Result<String> {
        self.run(words)?.expect(0)
    }

    /// Runs a command with `--format json` and reads what it printed, whatever the exit code.
    pub fn json<T: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<T> {
        let output = self.run(&[&["--format", "json"], words].concat())?;
        serde_json::from_str(&output.stdout).with_context(|| {
            format!(
                "`testbed {}` (exit code {}) printed no such document: {:?} {:?}",
                output.command, output.code, output.stdout, output.stderr
            )
        })
    }

    /// Runs a command in a node that has to succeed; its standard output.
    pub fn exec(&self, node: &str, argv: &[&str]) -> anyhow::Result<String> {
        self.ok(&[&["exec", node, "--"], argv].concat())
    }

    /// Starts a command in the background.
    pub fn start(&self, words: &[&str]) -> anyhow::Result<Background> {
        Background::spawn(self.command(words), words)
    }

    /// Starts a command whose standard input stays open until [`Background::close_input`].
    pub fn start_with_input(&self, words: &[&str]) -> anyhow::Result<Background> {
        let mut command = self.command(words);
        command.stdin(Stdio::piped());
        Background::spawn(command, words)
    }
}

/// A command that runs.
pub struct Background {
    words: String,
    began: Instant,
    child: Option<Child>,
    pid: Pid,
    stdout: mpsc::Receiver<Vec<u8>>,
    stderr: mpsc::Receiver<Vec<u8>>,
    seen_out: Vec<u8>,
    seen_err: Vec<u8>,
}

fn reader(mut from: impl std::io::Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buf = vec![0; 16 << 10];
        while let Ok(n) = from.read(&mut buf) {
            if n == 0 || tx.send(buf[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    rx
}

impl Background {
    fn spawn(mut command: Command, words: &[&str]) -> anyhow::Result<Self> {
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
        let (out, err) = (child.stdout.take().context("no pipe")?, child.stderr.take().context("no pipe")?);
        Ok(Self {
            words: words.join(" "),
            began: Instant::now(),
            pid: Pid::from_raw(i32::try_from(child.id())?),
            child: Some(child),
            stdout: reader(out),
            stderr: reader(err),
            seen_out: Vec::new(),
            seen_err: Vec::new(),
        })
    }

    /// Process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // one that has ended already is fine
        let _ = kill(self.pid, signal);
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
        }
    }

    /// Waits until its standard output contains `text`.
    pub fn wait_for_output(&mut self, text: &str, deadline: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + deadline;
        loop {
            if String::from_utf8_lossy(&self.seen_out).contains(text) {
                return Ok(());
            }
            match self.stdout.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen_out.extend(bytes),
                Err(e) => {
                    let mut errors = String::new();
                    while let Ok(bytes) = self.stderr.recv_timeout(Duration::from_millis(200)) {
                        errors += &String::from_utf8_lossy(&bytes);
                    }
                    bail!("`testbed {}` did not print {text:?} ({e}); it said {errors:?}", self.words)
                }
            }
        }
    }

    /// Waits until its standard output has all that is looked for. `found` sees the whole lines so far.
    pub fn wait_for_lines(
        &mut self,
        deadline: Duration,
        found: impl Fn(&[&str]) -> bool,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + deadline;
        loop {
            let text = String::from_utf8_lossy(&self.seen_out);
            let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
            let lines: Vec<&str> = whole.lines().collect();
            if found(&lines) {
                return Ok(());
            }
            match self.stdout.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen_out.extend(bytes),
                Err(e) => {
                    bail!("`testbed {}` printed {} lines, not those wanted ({e})", self.words, lines.len())
                }
            }
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for its end; kills it after `deadline`.
    pub fn finish(mut self, deadline: Duration) -> anyhow::Result<Output> {
        use std::os::unix::process::ExitStatusExt as _;
        let mut child = self.child.take().context("finished already")?;
        let (tx, ended) = mpsc::channel();
        std::thread::spawn(move || tx.send(child.wait()));
        let Ok(status) = ended.recv_timeout(deadline) else {
            self.signal(Signal::SIGKILL);
            let _ = ended.recv_timeout(Duration::from_secs(10));
            self.drain();
            bail!(
                "`testbed {}` was still running after {} s\nstdout: {}\nstderr: {}",
                self.words,
                deadline.as_secs(),
                String::from_utf8_lossy(&self.seen_out),
                String::from_utf8_lossy(&self.seen_err)
            );
        };
        let status = status?;
        let took = self.began.elapsed();
        self.drain();
        Ok(Output {
            command: std::mem::take(&mut self.words),
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&self.seen_out).into_owned(),
            stderr: String::from_utf8_lossy(&self.seen_err).into_owned(),
            took,
        })
    }

    /// Reads what is left. A pipe that a surviving child keeps open is given up after a while.
    fn drain(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        while let Ok(bytes) = self.stdout.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.seen_out.extend(bytes);
        }
        while let Ok(bytes) = self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.seen_err.extend(bytes);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where the program under test lies: beside the folder of this test's own program; built if it is not there.
pub fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the suite's own program file")?;
    let bin = own.parent().and_then(Path::parent).context("the suite lies in no target folder")?;
    let program = bin.join("testbed");
    let wanted = [
        "testbed",
        "openr",
        "fib-agent",
        "lsp-agent",
        "route-agent",
        "config-agent",
        "key-agent",
        "ebb-controller",
        "ebb-rollout",
    ];
    if wanted.iter().all(|name| bin.join(name).exists()) {
        return Ok(program);
    }
    let target = bin.parent().context("no target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "testbed", "-p", "router-emu", "-p", "ebb"])
        .env("CARGO_TARGET_DIR", target)
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "building the programs under test failed: {built}");
    Ok(program)
}

/// Reads a whole file of `/proc` or `/sys`, empty if it is gone by now.
pub fn read_if_there(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    bytes
}

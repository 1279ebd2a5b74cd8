//! What a lab must not touch, and must not leave behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tests::inventory::{self, Inventory};
use tests::traffic::{Load, lossless};
use tests::{Cli, Lab, cli, lab, note};

/// Longest that the end of a world may take.
const GONE: Duration = Duration::from_secs(30);

/// Input: a second lab of the same file under another name, beside the first; traffic in the second only.
/// Output: both are ready; the second's packets do not move the first's counters; `exec` without a name is refused while
/// two run; the second's end leaves the first whole.
pub fn two_labs(first: &Lab) -> anyhow::Result<()> {
    let second = Lab::bring_up("ebb-small", "e2e-two")?;
    let result = side_by_side(first, &second);
    second.cli.ok(&["down"])?;
    result?;
    first.ready()?;
    lossless(&Load::ALL.send(&first.cli, 2.0)?, "the time after the second lab's end")
}

fn side_by_side(first: &Lab, second: &Lab) -> anyhow::Result<()> {
    let counters = |lab: &Lab| -> anyhow::Result<u64> {
        Ok(lab.status()?.planes.iter().map(|p| p.traffic.packets).sum())
    };
    let load = Load { from: Some("h1.prn"), to: Some("h1.lla"), classes: "bronze", rate: 500, flows: 40 };
    let (one, two) = (counters(first)?, counters(second)?);
    let report = load.send(&second.cli, 4.0)?;
    lossless(&report, "two labs side by side")?;
    let (one, two) = (counters(first)? - one, counters(second)? - two);
    note(format!("{} packets sent in the second lab: it counted {two}, the first {one}", report.sent()));
    ensure!(two >= report.sent(), "the second lab counted {two} of {}", report.sent());
    // the first has only what its own controllers say to its own routers
    ensure!(one * 2 < report.sent(), "the first lab counted {one}");
    let processes = second.cli.exec("h1.prn", &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])?;
    ensure!(!processes.contains("/ebb-small/"), "the second lab sees processes of the first");
    let text = first.cli.ok(&["--format", "json", "events"])?;
    ensure!(!text.contains("e2e-two"), "the first lab's events speak of the second");
    let nameless = first.cli.with_lab("").run(&["exec", "h1.prn", "--", "true"])?;
    let named = [first.cli.lab(), second.cli.lab()].iter().all(|lab| nameless.stderr.contains(lab));
    ensure!(nameless.code == 2 && named, "`exec` that may mean either lab: {nameless:?}");
    Ok(())
}

/// Input: `down` of the lab, `down` again, `gc`.
/// Output: nothing of it is left on the machine; the second says that nothing runs; `gc` finds nothing.
pub fn down_twice(lab: &Lab) -> anyhow::Result<()> {
    let folder = lab.cli.lab_state();
    let began = Instant::now();
    let text = lab.cli.ok(&["down"])?;
    note(format!("{}: {:.2} s", text.trim(), began.elapsed().as_secs_f64()));
    ensure!(text.contains("ebb-small"), "down said {text:?}");
    let left = inventory::pids(&folder.to_string_lossy());
    ensure!(left.is_empty(), "still there after `down`: {left:?}");
    let again = lab.cli.ok(&["down"])?;
    ensure!(again.contains("nothing runs"), "a second `down` said {again:?}");
    let gc = lab.cli.ok(&["gc"])?;
    ensure!(gc.contains("nothing left behind"), "gc said {gc:?}");
    let status = lab.cli.run(&["status"])?;
    ensure!(status.code == 1 && status.stderr.contains("not running"), "{status:?}");
    Ok(())
}

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// Where fetched guest kernels are, for this user.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("TESTBED_CACHE").or_else(|| Some(base()?.join("testbed")))
}

/// Input: `up` on the vm carrier by a user that is not root (this test's own user if it is not root either), with the guest
/// kernel in that user's cache.
/// Output: ready, hosts reach each other, `down` leaves nothing. On the host carrier there is nothing to test.
pub fn up_without_root() -> anyhow::Result<()> {
    let state = lab::second_state_folder();
    std::fs::create_dir_all(&state)?;
    let program = cli::program()?;
    let mut user = Cli::new(&program, &state, "modest");
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        let doctor = user.ok(&["doctor"])?;
        if lab::carrier() == "host" || (lab::carrier() == "auto" && doctor.contains("carrier host")) {
            note("this machine uses the host carrier, which needs root");
            return Ok(());
        }
        let home = state.join("home");
        let kernels = cache().filter(|c| c.exists()).context("no guest kernel in the cache")?;
        let script =
            r#"mkdir -p "$2" && cp -r "$1" "$2/cache" && chown -R "$3:$3" "$4" && chmod 755 "$4" "$5""#;
        let top = lab::state_folder();
        let done = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .args([&kernels, &home])
            .arg(NOBODY.to_string())
            .args([&state, &top])
            .status()?;
        ensure!(done.success(), "cannot make a home for another user: {done}");
        user = user.with_user(NOBODY, &home);
        if user.run(&["--version"]).is_err() {
            note("other users cannot read the folder of the programs: not tested here");
            return Ok(());
        }
    }
    let before = Inventory::take(&state);
    let up = user.run(&["--format", "json", "up", "ebb-small", "--carrier", "vm", "--timeout", "300"])?;
    note(format!("up without root: {:.1} s", up.took.as_secs_f64()));
    let fetched = up.stderr.contains("downloading");
    ensure!(
        !(is_root && fetched),
        "the kernel that was put into the user's cache is not used:\n{}",
        up.stderr
    );
    up.expect(0)?;
    user.exec("h1.prn", &["ping", "-c1", "-W5", "h1.lla"])?;
    user.ok(&["down"])?;
    before.wait_for_nothing_new(&state, GONE)
}

fn killed_lab() -> anyhow::Result<Cli> {
    let state = lab::second_state_folder();
    std::fs::create_dir_all(&state)?;
    Ok(Cli::new(&cli::program()?, &state, "killed"))
}

/// The keeper's process id, once `up` has started it.
fn keeper(cli: &Cli) -> Option<Pid> {
    let text = std::fs::read_to_string(cli.lab_state().join("carrier.json")).ok()?;
    let document: serde_json::Value = serde_json::from_str(&text).ok()?;
    let pid = document
        .pointer("/keeper_pid")
        .or_else(|| document.pointer("/keeper/pid"))
        .or_else(|| document.pointer("/pid"))?;
    Some(Pid::from_raw(i32::try_from(pid.as_i64()?).ok()?))
}

/// Children of a process.
fn children(of: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let stat = cli::read_if_there(&entry.path().join("stat"));
        let stat = String::from_utf8_lossy(&stat).into_owned();
        // the name in brackets may hold anything: count from the last one
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent == Some(of.as_raw()) {
            found.push(Pid::from_raw(pid));
        }
    }
    found
}

/// Who is killed in the middle of `up`.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// The world's first process: the supervisor, or the guest that it runs in.
    World,
    /// The keeper.
    Keeper,
    /// `up` itself.
    Up,
}

/// Input: `up` interrupted by SIGINT while the lab comes up.
/// Output: exit code 130; nothing left.
pub fn interrupted_up() -> anyhow::Result<()> {
    let cli = killed_lab()?;
    let before = Inventory::take(cli.state());
    let mut up = cli.start(&["--format", "json", "up", "ebb-small", "--carrier", &lab::carrier()])?;
    tests::wait_until(Duration::from_secs(60), "the keeper to start", || {
        if !up.runs() {
            return Err("`up` has ended".into());
        }
        keeper(&cli).map(drop).ok_or_else(|| "no keeper in carrier.json".into())
    })?;
    up.signal(Signal::SIGINT);
    let output = up.finish(GONE)?;
    ensure!(output.code == 130, "an interrupted `up` ended with {}: {}", output.code, output.stderr);
    before.wait_for_nothing_new(cli.state(), GONE)
}

/// Input: SIGKILL for the supervisor's world, the keeper or `up`, in turn, at seeded random moments of `up`: three, or ten
/// in the long form.
/// Output: each time nothing is left: no process, namespace, interface, mount, cgroup or socket; then `up` works, and
/// `down`.
pub fn killed_up() -> anyhow::Result<()> {
    let cli = killed_lab()?;
    let before = Inventory::take(cli.state());
    let moments = if lab::full() { 10 } else { 3 };
    let seed = std::env::var("TESTBED_E2E_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let mut random = StdRng::seed_from_u64(seed);
    let victims = [Victim::World, Victim::Keeper, Victim::Up];
    for n in 0..moments {
        let delay = Duration::from_millis(random.random_range(200..10_000));
        let victim = victims[n % victims.len()];
        kill_at(&cli, delay, victim)?;
        before
            .wait_for_nothing_new(cli.state(), GONE)
            .with_context(|| format!("after SIGKILL for {victim:?} at {delay:?}"))?;
        if lab::full() {
            works(&cli, &before)?;
        }
    }
    if !lab::full() {
        works(&cli, &before)?;
    }
    let gc = cli.ok(&["gc"])?;
    ensure!(gc.contains("nothing left behind"), "gc said {gc:?}");
    Ok(())
}

/// Starts `up`, waits for `delay` after its keeper has appeared, kills.
fn kill_at(cli: &Cli, delay: Duration, victim: Victim) -> anyhow::Result<()> {
    // of a world before this one
    let _ = std::fs::remove_file(cli.lab_state().join("carrier.json"));
    let mut up = cli.start(&["--format", "json", "up", "ebb-small", "--carrier", &lab::carrier()])?;
    let keeper = tests::wait_until(Duration::from_secs(60), "the keeper to start", || {
        if !up.runs() {
            return Err("`up` has ended".into());
        }
        keeper(cli).ok_or_else(|| "no keeper in carrier.json".into())
    })?;
    let until = Instant::now() + delay;
    // the moment is the input here: nothing is waited for, unless `up` is done before it
    while up.runs() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let at = if up.runs() { "during `up`" } else { "after `up` had ended" };
    let targets = match victim {
        Victim::World => children(keeper),
        Victim::Keeper => vec![keeper],
        Victim::Up => vec![up.pid()],
    };
    note(format!("SIGKILL for {victim:?} ({targets:?}) after {delay:?}, {at}"));
    ensure!(!targets.is_empty(), "the keeper {keeper} has no child to kill");
    for target in targets {
        // one that is gone already is fine
        let _ = kill(target, Signal::SIGKILL);
    }
    let ended = up.finish(GONE)?;
    if matches!(victim, Victim::Up) && ended.code == 0 {
        // `up` was quicker than the moment: the lab is up and rightly stays
        cli.ok(&["down"])?;
    } else if at == "during `up`" && !matches!(victim, Victim::Up) {
        ensure!(ended.code != 0, "`up` said that all is well though its world was killed");
    }
    Ok(())
}

/// `up` and `down` work, and leave nothing.
fn works(cli: &Cli, before: &Inventory) -> anyhow::Result<()> {
    cli.ok(&["--format", "json", "up", "ebb-small", "--carrier", &lab::carrier(), "--timeout", "300"])?;
    cli.exec("h1.prn", &["ping", "-c1", "-W5", "h1.lla"])?;
    cli.ok(&["down"])?;
    let events = std::fs::read_to_string(cli.lab_state().join("events.jsonl"))?;
    ensure!(
        events.trim_end().lines().next_back().is_some_and(|l| l.contains("lab.down")),
        "the end was not noted"
    );
    before.wait_for_nothing_new(Path::new(cli.state()), GONE)
}

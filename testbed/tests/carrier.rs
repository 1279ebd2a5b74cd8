//! Worlds that are killed from all sides. Each time nothing may be left, and the next world must come up.
//!
//! The side of `up` is a process of its own here too: this very test program, told by its environment to play it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testbed::carrier::choose::{Choice, Kind};
use testbed::carrier::gc::{self, Leftover};
use testbed::carrier::keeper::{self, WorldSpec};
use testbed::carrier::lock::{self, Identity, alive_lock};
use testbed::carrier::record::Record;
use testbed::carrier::{Carrier, qemu};

const ROLE: &str = "TESTBED_TEST_ROLE";
const PROGRAM: &str = env!("CARGO_BIN_EXE_testbed");

fn spec(state: &Path, carrier: Carrier) -> WorldSpec {
    let choice = Choice { carrier, kind: Kind::Ebb, nodes: 0 };
    let mut spec = WorldSpec::new(state, choice, None, Some(1024)).unwrap();
    for words in [&mut spec.init, &mut spec.keeper] {
        words[0] = PROGRAM.to_owned();
    }
    spec
}

/// Plays `up`: starts a world, says so, keeps it if told, and stays until it is killed.
#[test]
fn play_up() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.splitn(3, ' ');
    let (carrier, keep, state) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let world = keeper::start(&spec(Path::new(state), carrier.parse().unwrap()), &mut |_| ()).unwrap();
    println!("\nup: started");
    if keep == "keep" {
        world.commit().unwrap();
        println!("\nup: kept");
        return;
    }
    std::thread::sleep(Duration::from_secs(600));
}

fn up(state: &Path, carrier: Carrier, keep: bool) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "play_up", "--nocapture"])
        .env(ROLE, format!("{carrier} {} {}", if keep { "keep" } else { "hold" }, state.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn hear(up: &mut Child, word: &str) {
    let output = up.stdout.as_mut().unwrap();
    let heard = BufReader::new(output).lines().map_while(Result::ok).any(|line| line == word);
    assert!(heard, "`up` ended without saying `{word}`");
}

fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !seen() {
        assert!(Instant::now() < deadline, "waited 60 s for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn folder(root: &Path) -> PathBuf {
    let state = root.join("lab");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("token"), "0123").unwrap();
    state
}

/// Processes that were started for the world of this state folder.
fn of_world(state: &Path) -> Vec<String> {
    let mark = format!("TESTBED_WORLD_STATE={}\0", state.display());
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| {
            fs::read(p.join("environ")).is_ok_and(|e| e.windows(mark.len()).any(|w| w == mark.as_bytes()))
        })
        .map(|p| fs::read_to_string(p.join("cmdline")).unwrap_or_default())
        .collect()
}

/// Nothing of the world is alive, nothing of it is mounted here, and what it claims can be taken back.
fn nothing_left(root: &Path, state: &Path, round: &str) {
    assert!(lock::wait_free(&alive_lock(state), Duration::from_secs(30)), "{round}: the lock is still held");
    assert!(lock::holders(&alive_lock(state)).is_empty(), "{round}");
    assert!(of_world(state).is_empty(), "{round}: {:?}", of_world(state));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(state.to_str().unwrap()), "{round}: {mounts}");
    let group = Record::load(state).and_then(|r| r.cgroup);
    gc::run(root, false).unwrap();
    let mine = |l: &Leftover| matches!(l, Leftover::Claim(_) | Leftover::Stray { .. });
    assert!(!gc::find(root).iter().any(mine), "{round}: {:?}", gc::find(root));
    assert!(group.is_none_or(|g| !g.exists()), "{round}: a control group is left");
}

#[derive(Debug, Clone, Copy)]
enum Victim {
    Up,
    Keeper,
    World,
}

/// Starts a world and kills one of its processes after `delay` (from the start of `up`, or from the record for the others).
fn kill_one(root: &Path, carrier: Carrier, victim: Victim, delay: Duration) {
    let round = format!("{carrier}: {victim:?} after {delay:?}");
    let state = folder(root);
    let mut up = up(&state, carrier, false);
    let target = match victim {
        Victim::Up => Identity::of(i32::try_from(up.id()).unwrap()).unwrap(),
        Victim::Keeper | Victim::World => {
            until("the record", || Record::load(&state).is_some());
            let record = Record::load(&state).unwrap();
            if matches!(victim, Victim::Keeper) { record.keeper } else { record.child }
        }
    };
    // the moment is the point here, not a state
    std::thread::sleep(delay);
    if let Some(process) = target.open() {
        process.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    until(&format!("{round}: the end"), || !target.alive() && !keeper::is_alive(&state));
    up.kill().unwrap();
    up.wait().unwrap();
    nothing_left(root, &state, &round);
}

fn kill_all(carrier: Carrier, rounds: u64, span_ms: u64) {
    let root = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        for victim in [Victim::Up, Victim::Keeper, Victim::World] {
            // spread over the span, the same in every run
            kill_one(root.path(), carrier, victim, Duration::from_millis(round * 7919 % span_ms));
        }
    }
}

fn keep_and_stop(carrier: Carrier) {
    let root = tempfile::tempdir().unwrap();
    let state = folder(root.path());
    let mut first = up(&state, carrier, true);
    hear(&mut first, "up: kept");
    assert!(first.wait().unwrap().success());
    assert!(keeper::is_alive(&state), "the world outlives `up`");
    assert!(keeper::endpoint(&state).unwrap().is_some());
    let refused = keeper::start(&spec(&state, carrier), &mut |_| ()).unwrap_err().to_string();
    assert!(refused.contains("is alive"), "{refused}");
    let record = Record::load(&state).unwrap();
    assert!(keeper::stop(&state, Duration::from_secs(20)).unwrap());
    assert!(!record.keeper.alive() && !record.child.alive());
    assert!(
        !keeper::stop(&state, Duration::from_secs(20)).unwrap(),
        "the second time there is nothing to stop"
    );
    assert!(Record::load(&state).is_none(), "no claim is left");
    nothing_left(root.path(), &state, "stop");
}

fn root_here() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("left out: the host carrier needs root");
    }
    root
}

#[test]
fn host_world_is_kept_and_stopped() {
    if root_here() {
        keep_and_stop(Carrier::Host);
    }
}

#[test]
fn host_world_is_its_own() {
    if !root_here() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let state = folder(root.path());
    let world = keeper::start(&spec(&state, Carrier::Host), &mut |_| ()).unwrap();
    until("the supervisor's socket", || state.join("api.sock").exists());
    let pid = world.record().child.pid;
    let inside = |name: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
    let here = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
    for name in ["pid", "mnt", "net", "uts", "ipc", "cgroup"] {
        assert_ne!(inside(name), here(name), "{name}");
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.lines().any(|l| l.starts_with("NSpid:") && l.ends_with("\t1")), "{status}");
    let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
    let last = |path: &str| {
        mounts.lines().rfind(|l| l.split(' ').nth(1) == Some(path)).map(|l| l.split(' ').nth(2).unwrap())
    };
    assert_eq!((last("/proc"), last("/sys"), last("/run")), (Some("proc"), Some("sysfs"), Some("tmpfs")));
    // dropping what was not kept ends it
    drop(world);
    nothing_left(root.path(), &state, "drop");
}

#[test]
fn host_world_killed_from_all_sides_leaves_nothing() {
    if root_here() {
        kill_all(Carrier::Host, 6, 200);
    }
}

/// A world that was kept and then dies is not forgotten: its claim stays until it is seen.
#[test]
fn death_after_the_commit_does_not_go_unnoticed() {
    if !root_here() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let state = folder(root.path());
    let mut first = up(&state, Carrier::Host, true);
    hear(&mut first, "up: kept");
    first.wait().unwrap();
    let record = Record::load(&state).unwrap();
    record.child.open().unwrap().signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    until("the end", || !keeper::is_alive(&state));
    assert_eq!(Record::load(&state), Some(record));
    assert!(gc::find(root.path()).contains(&Leftover::Claim(state.clone())));
    nothing_left(root.path(), &state, "gc");
}

#[test]
#[ignore = "boots guests, about a minute"]
fn guest_is_kept_and_stopped() {
    if qemu::version().is_ok() {
        keep_and_stop(Carrier::Vm);
    }
}

#[test]
#[ignore = "boots guests, about a minute"]
fn guest_killed_from_all_sides_leaves_nothing() {
    if qemu::version().is_ok() {
        kill_all(Carrier::Vm, 4, 4000);
    }
}

//! One command in a throw-away guest: `internal guest-exec -- COMMAND`. The quick way to try something on the guest's kernel.
//!
//! Output goes through files in a temporary state folder, which the guest writes and this side follows.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::initramfs::Handover;
use super::inside::{self, World};
use super::kernel::Kernel;
use super::qemu::{self, Accel, Guest};
use super::{Carrier, clock, initramfs, kmod};

/// Runs `command` as root in a fresh guest and gives its exit code. Its output comes out of this process's own.
///
/// `run` is the command line that makes this very program call [`run_inside`] in the guest.
///
/// # Errors
/// The guest does not start, or ends without the command's exit code; the message has the last lines of its console.
pub fn execute(kernel: &Kernel, accel: Accel, run: &[String], command: &[String]) -> Result<i32> {
    let folder = Scratch::new()?;
    let state = folder.0.as_path();
    fs::write(state.join("command.json"), serde_json::to_vec(command)?)?;
    for name in ["stdout", "stderr"] {
        File::create(state.join(name))?;
    }
    let world = World {
        carrier: Carrier::Vm,
        state: state.to_owned(),
        name: "guest".to_owned(),
        modules: Some(kernel.modules()),
        load: [kmod::GUEST_BASE, kmod::WAN, kmod::FABRIC, kmod::SINGLE]
            .concat()
            .iter()
            .map(|n| (*n).to_owned())
            .collect(),
    };
    let mut child = boot(kernel, accel, &world, run)?;
    let mut follow = [(File::open(state.join("stdout"))?, false), (File::open(state.join("stderr"))?, true)];
    loop {
        let ended = child.try_wait()?;
        for (file, error) in &mut follow {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let sent = if *error {
                std::io::stderr().write_all(&bytes)
            } else {
                std::io::stdout().write_all(&bytes)
            };
            sent.context("nobody reads the output")?;
        }
        if ended.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    match fs::read_to_string(state.join("exit")) {
        Ok(code) => Ok(code.trim().parse()?),
        Err(_) => {
            bail!("the guest ended without a result; the end of its console:\n{}", console_tail(state, 15))
        }
    }
}

fn boot(kernel: &Kernel, accel: Accel, world: &World, run: &[String]) -> Result<Child> {
    let mut env = guest_env();
    env.extend(world.to_env());
    let archive = initramfs::build(kernel, &Handover { argv: run, env: &env })?;
    let path = world.state.join("initramfs");
    fs::write(&path, archive)?;
    let guest = Guest {
        image: kernel.image(),
        initramfs: path,
        accel,
        clock: if accel == Accel::Kvm { clock::Clock::Hypervisor } else { clock::for_emulation() },
        small: qemu::small_machine(),
        cpus: qemu::cpus(),
        memory_mib: qemu::memory_for(32),
        console: Some(world.state.join("console.log")),
        shares: qemu::shares(&world.state),
        port: None,
    };
    let mut command = Command::new(qemu::PROGRAM);
    command.args(guest.arguments()).stdin(Stdio::null());
    // SAFETY: the closure makes one system call and touches no memory of this process.
    // JUSTIFICATION: there is no other way to have the guest end with this process.
    unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?)) };
    command.spawn().with_context(|| format!("cannot start {}", qemu::PROGRAM))
}

/// The environment that goes into a guest: where programs are, who the user is, what concerns this program.
pub fn guest_env() -> BTreeMap<String, String> {
    let mut env = handed_on(std::env::vars_os());
    let mut path = std::env::var("PATH").unwrap_or_default();
    for folder in ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
        if !path.split(':').any(|p| p == folder) {
            path = format!("{path}{}{folder}", if path.is_empty() { "" } else { ":" });
        }
    }
    env.insert("PATH".to_owned(), path);
    env
}

/// What of an environment concerns a guest. Nothing says that the rest is text, or that a name is one for a shell.
fn handed_on(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let text = all.filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    let ours = |key: &str| {
        matches!(key, "HOME" | "LANG" | "TERM" | "RUST_LOG" | "RUST_BACKTRACE")
            || (key.starts_with("TESTBED_") && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
    };
    text.filter(|(key, _)| ours(key)).collect()
}

/// Process 1 of the guest: prepares it, runs the command, writes its exit code, powers off.
pub fn run_inside() -> anyhow::Error {
    match run_command() {
        Ok(()) => inside::power_off(),
        Err(why) => {
            eprintln!("testbed: {why:#}");
            inside::power_off()
        }
    }
}

fn run_command() -> Result<()> {
    let world = inside::prepare()?;
    let at = |name: &str| world.state.join(name);
    let command: Vec<String> = serde_json::from_slice(&fs::read(at("command.json"))?)?;
    let (program, args) = command.split_first().context("no command")?;
    let append = |name: &str| File::options().append(true).open(at(name));
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(append("stdout")?)
        .stderr(append("stderr")?)
        .current_dir("/")
        .status();
    let code = match status {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(why) => {
            writeln!(append("stderr")?, "cannot start {program}: {why}")?;
            127
        }
    };
    fs::write(at("exit"), code.to_string())?;
    Ok(())
}

/// The last lines of the guest's console, for messages.
pub fn console_tail(state: &Path, lines: usize) -> String {
    let bytes = fs::read(state.join("console.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    if all.is_empty() {
        "(it wrote nothing)".to_owned()
    } else {
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// A folder that goes away with this value.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let name = format!("testbed-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// Input: an environment with bytes that are no text and names that no shell takes. Output: ours, and no panic.
    #[test]
    fn an_odd_environment_is_no_obstacle() {
        let all = [
            (OsString::from("TESTBED_LOG"), OsString::from("debug")),
            (OsString::from("TESTBED_A;reboot"), OsString::from("x")),
            (OsString::from("OTHER"), OsString::from_vec(vec![0xff])),
            (OsString::from("HOME"), OsString::from_vec(vec![b'/', 0xff])),
        ];
        let kept = handed_on(all.into_iter());
        assert_eq!(kept, BTreeMap::from([("TESTBED_LOG".to_owned(), "debug".to_owned())]));
    }
}

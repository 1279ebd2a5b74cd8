//! Whether guests really run under KVM here.
//!
//! A device file proves nothing: on some machines guests start and then hang. So a probe guest, which does nothing but say
//! one line, has a few seconds to say it. The answer is kept for this kernel, this QEMU and this boot of the machine.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::guest_exec::Scratch;
use super::kernel::{Kernel, write_atomic};
use super::qemu::{self, Accel, Guest};
use super::{cache_dir, initramfs};

/// How long the probe guest may take. A healthy one needs well under a second.
const PATIENCE: Duration = Duration::from_secs(5);
const MARKER: &str = "testbed-probe-alive";
const DEVICE: &str = "/dev/kvm";

/// What was found, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The accelerator to use.
    pub accel: Accel,
    /// One line for people.
    pub reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: String,
    verdict: Verdict,
}

/// Whether this user may open the device at all; the reason if not.
pub fn device() -> Result<(), String> {
    match File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Err(format!("no {DEVICE}")),
        Err(why) => Err(format!("{DEVICE}: {why}")),
    }
}

/// The kept answer for this boot and QEMU, whichever kernel it was found with; starts nothing.
pub fn known() -> Option<Verdict> {
    let kept: Kept = serde_json::from_slice(&fs::read(cache_dir().join("kvm.json")).ok()?).ok()?;
    kept.key.ends_with(&machine_key()).then_some(kept.verdict)
}

/// The accelerator for guests with this kernel: KVM if a probe guest proves alive, else TCG.
///
/// # Errors
/// The probe guest's files cannot be made; a probe that fails or hangs is an answer, not an error.
pub fn choose(kernel: &Kernel) -> Result<Verdict> {
    if let Err(reason) = device() {
        return Ok(Verdict { accel: Accel::Tcg, reason: format!("guests are emulated (TCG): {reason}") });
    }
    let key = format!("{} {}", kernel.home.display(), machine_key());
    let path = cache_dir().join("kvm.json");
    if let Some(kept) = fs::read(&path).ok().and_then(|b| serde_json::from_slice::<Kept>(&b).ok())
        && kept.key == key
    {
        return Ok(kept.verdict);
    }
    let verdict = probe(kernel)?;
    // a cache that cannot be written costs the next run a probe, nothing more
    let _ = write_atomic(&path, &serde_json::to_vec(&Kept { key, verdict: verdict.clone() })?);
    Ok(verdict)
}

fn machine_key() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", qemu::version().unwrap_or_default(), boot.trim())
}

fn probe(kernel: &Kernel) -> Result<Verdict> {
    let scratch = Scratch::new()?;
    let archive = scratch.0.join("initramfs");
    fs::write(&archive, initramfs::build_probe(MARKER)?)
        .context("cannot write the probe guest's file system")?;
    let guest = Guest {
        image: kernel.image(),
        initramfs: archive,
        accel: Accel::Kvm,
        clock: Clock::Hypervisor,
        small: qemu::small_machine(),
        cpus: 1,
        memory_mib: 512,
        console: None,
        shares: Vec::new(),
        port: None,
    };
    let mut command = Command::new(qemu::PROGRAM);
    command.args(guest.arguments());
    Ok(match run(command, PATIENCE)? {
        None => Verdict {
            accel: Accel::Kvm,
            reason: "guests run under KVM: a probe guest proved alive".to_owned(),
        },
        Some(reason) => Verdict {
            accel: Accel::Tcg,
            reason: format!("guests are emulated (TCG): {DEVICE} is there, but a probe guest {reason}"),
        },
    })
}

/// Starts a guest and ends it again; nothing if it said the line, else what it did instead.
fn run(mut command: Command, patience: Duration) -> Result<Option<String>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: the closure makes one system call and touches no memory of this process.
    // JUSTIFICATION: there is no other way to have the guest end with this process.
    unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?)) };
    let mut child = command.spawn().context("cannot start the probe guest")?;
    let (output, complaints) = (child.stdout.take(), child.stderr.take());
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.into_iter().flat_map(|o| BufReader::new(o).split(b'\n')).map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + patience;
    let outcome = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if String::from_utf8_lossy(&line).contains(MARKER) => break None,
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => break Some(format!("hung for {} s", patience.as_secs())),
            Err(mpsc::RecvTimeoutError::Disconnected) => break Some("ended at once".to_owned()),
        }
    };
    child.kill().context("cannot end the probe guest")?;
    child.wait().context("cannot end the probe guest")?;
    drop(lines);
    let _ = reader.join();
    let complaint =
        complaints.into_iter().flat_map(|c| BufReader::new(c).lines()).map_while(Result::ok).next();
    Ok(outcome.map(|what| complaint.map_or_else(|| what.clone(), |line| format!("{what} ({line})"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(script: &str, patience: Duration) -> Option<String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, patience).unwrap()
    }

    #[test]
    fn only_the_line_proves_life() {
        let long = Duration::from_secs(20);
        assert_eq!(outcome("echo boot; echo testbed-probe-alive; exec sleep 60", long), None);
        assert_eq!(
            outcome("echo no such register >&2; exit 1", long).unwrap(),
            "ended at once (no such register)"
        );
        let before = Instant::now();
        assert_eq!(outcome("echo boot; exec sleep 60", Duration::from_secs(1)).unwrap(), "hung for 1 s");
        assert!(before.elapsed() < Duration::from_secs(20), "a guest that hangs is not waited for");
    }
}

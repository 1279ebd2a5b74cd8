//! The command line of QEMU, as a pure function of what the guest is to have.
//!
//! The machine is `microvm`: no PCI, no firmware tables to walk, and the kernel is entered directly. A guest that needs an
//! HPET gets `q35` instead, which has one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Lacking;
use super::clock::Clock;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// TCP port of the API in the guest.
pub const GUEST_PORT: u16 = 7000;
/// The guest's address on the link that only carries the API.
pub const GUEST_ADDRESS: &str = "10.0.2.15";

/// Who executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The processor itself.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl std::fmt::Display for Accel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        })
    }
}

/// A folder of this machine, offered to the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The name under which the guest mounts it.
    pub tag: String,
    /// The folder.
    pub path: PathBuf,
    /// Whether the guest may write.
    pub writable: bool,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Kernel image.
    pub image: PathBuf,
    /// Archive of the first file system.
    pub initramfs: PathBuf,
    /// Accelerator.
    pub accel: Accel,
    /// Clock.
    pub clock: Clock,
    /// Prefer the machine `microvm`; see [`small_machine`].
    pub small: bool,
    /// Processors.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Where the serial console is written; none is QEMU's own standard output.
    pub console: Option<PathBuf>,
    /// Folders.
    pub shares: Vec<Share>,
    /// Loopback port of the machine that leads to [`GUEST_PORT`]; no network at all without one.
    pub port: Option<u16>,
}

impl Guest {
    /// The arguments, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut add = |key: &str, value: String| args.extend([format!("-{key}"), value]);
        let small = self.is_small();
        add("machine", if small { "microvm,rtc=on".to_owned() } else { "q35,hpet=on".to_owned() });
        match self.accel {
            Accel::Kvm => add("accel", "kvm".to_owned()),
            Accel::Tcg => add("accel", "tcg,thread=multi".to_owned()),
        }
        add("cpu", if self.accel == Accel::Kvm { "host" } else { EMULATED_CPU }.to_owned());
        add("smp", self.cpus.max(1).to_string());
        add("m", self.memory_mib.to_string());
        add("kernel", self.image.display().to_string());
        add("initrd", self.initramfs.display().to_string());
        add("append", self.append());
        add(
            "serial",
            self.console.as_ref().map_or_else(|| "stdio".to_owned(), |p| format!("file:{}", p.display())),
        );
        let bus = if small { "device" } else { "pci" };
        for share in &self.shares {
            let mode = if share.writable { "" } else { ",readonly=on" };
            let path = share.path.display().to_string().replace(',', ",,");
            add(
                "fsdev",
                format!("local,id={0},path={path},security_model=none,multidevs=remap{mode}", share.tag),
            );
            add("device", format!("virtio-9p-{bus},fsdev={0},mount_tag={0}", share.tag));
        }
        if let Some(port) = self.port {
            let forward = format!("hostfwd=tcp:127.0.0.1:{port}-{GUEST_ADDRESS}:{GUEST_PORT}");
            add("netdev", format!("user,id=api,ipv6=off,restrict=on,{forward}"));
            add("device", format!("virtio-net-{bus},netdev=api"));
        }
        args.extend(
            ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"]
                .map(str::to_owned),
        );
        args
    }

    /// Whether the machine is `microvm`, which has no HPET.
    fn is_small(&self) -> bool {
        self.small && self.clock != Clock::Hpet
    }

    /// The kernel's command line. Each word beyond the console takes away work that a guest of minutes has no use for:
    /// security modules, mitigations, zeroing of fresh memory, self-tests, watchdogs, bus scans, calibration. Grace periods,
    /// which the writes of a repair wait for, come before the repairing agents themselves.
    fn append(&self) -> String {
        let mut words = String::from(
            "console=ttyS0 quiet panic=-1 mitigations=off lsm= init_on_alloc=0 cryptomgr.notests=1 random.trust_cpu=on \
             audit=0 nowatchdog",
        );
        words.push_str(&format!(" rcutree.kthread_prio={}", super::grace::PRIORITY));
        match self.clock {
            Clock::Counter { khz } => words.push_str(&format!(" tsc=reliable tsc_early_khz={khz}")),
            Clock::Hypervisor => {}
            Clock::Hpet => words.push_str(" clocksource=hpet"),
        }
        if self.is_small() {
            words.push_str(" pci=off");
        }
        if self.accel == Accel::Tcg {
            // the others are started by process 1, see `warm`
            words.push_str(" maxcpus=1");
        }
        if let Some(more) = std::env::var_os("TESTBED_KERNEL_ARGS") {
            words.push(' ');
            words.push_str(&more.to_string_lossy());
        }
        words
    }
}

/// All that the translator knows, but for page tables of five levels, which only lengthen each walk.
const EMULATED_CPU: &str = "max,la57=off";

/// QEMU's version line.
///
/// # Errors
/// [`Lacking`] if it is not installed.
pub fn version() -> Result<String> {
    let output = Command::new(PROGRAM).arg("--version").output().map_err(|_| {
        Lacking::error(format!("the vm carrier needs {PROGRAM}"), "apt-get install qemu-system-x86")
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("QEMU of unknown version").to_owned())
}

/// Whether this QEMU's `microvm` is fit for our kernels: it boots them sooner than a PC, but that of QEMU 10 (Debian 13) hangs
/// before the first line, or loses its idle task. Between 7 and 10 nothing was tried.
pub fn small_machine() -> bool {
    version().ok().and_then(|line| major(&line)).is_some_and(|major| major < 8)
}

/// The first number of a version line.
fn major(line: &str) -> Option<u32> {
    line.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok())
}

/// Memory for a lab of so many nodes, in MiB: 1.5 GiB for the system and page cache, then 24 MiB a node (namespaces,
/// label tables, agents), at most half of what the machine has.
pub fn memory_for(nodes: usize) -> u64 {
    let wanted = 1536 + 24 * u64::try_from(nodes).unwrap_or(0);
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| text.lines().next()?.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map_or(8192, |kib| kib / 1024);
    wanted.next_multiple_of(256).clamp(2048, 16384).min((total / 2).max(1024))
}

/// Processors for a guest: as many as the machine has, up to what QEMU's `microvm` takes well.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(32)
}

/// A guest's shares: the machine read-only, the state folder writable.
pub fn shares(state: &Path) -> Vec<Share> {
    vec![
        Share { tag: super::initramfs::ROOT_TAG.to_owned(), path: PathBuf::from("/"), writable: false },
        Share { tag: super::initramfs::STATE_TAG.to_owned(), path: state.to_owned(), writable: true },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Guest {
        Guest {
            image: "/c/image".into(),
            initramfs: "/s/initramfs".into(),
            accel: Accel::Tcg,
            clock: Clock::Counter { khz: 2_500_000 },
            small: true,
            cpus: 2,
            memory_mib: 2048,
            console: Some("/s/console.log".into()),
            shares: shares(Path::new("/s,odd")),
            port: Some(40000),
        }
    }

    #[test]
    fn emulated_guest() {
        insta::assert_snapshot!(guest().arguments().join("\n"));
    }

    #[test]
    fn guest_without_a_steady_counter() {
        insta::assert_snapshot!(Guest { clock: Clock::Hpet, ..guest() }.arguments().join("\n"));
    }

    #[test]
    fn guest_on_the_processor_itself_without_network() {
        let guest = Guest {
            accel: Accel::Kvm,
            clock: Clock::Hypervisor,
            console: None,
            port: None,
            shares: vec![],
            ..guest()
        };
        insta::assert_snapshot!(guest.arguments().join("\n"));
    }

    #[test]
    fn memory_grows_with_the_lab() {
        assert!(memory_for(10) >= 1024);
        assert!(memory_for(400) >= memory_for(10));
    }

    #[test]
    fn the_machine_goes_by_the_version() {
        assert_eq!(major("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)"), Some(7));
        assert_eq!(major("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1)"), Some(10));
        assert_eq!(major("QEMU of unknown version"), None);
        let large = Guest { small: false, ..guest() }.arguments().join(" ");
        assert!(large.contains("q35") && large.contains("virtio-9p-pci") && large.contains("tsc=reliable"));
        assert!(!large.contains("pci=off"));
    }
}

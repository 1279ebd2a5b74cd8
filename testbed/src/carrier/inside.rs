//! What process 1 does first inside a world, so that everything after it finds the same surroundings on every carrier.
//!
//! The carrier says through the environment which world this is; [`prepare`] turns a bare start into: own `/proc` and
//! `/sys`, a fresh `/run`, a private mount namespace, a host name, `lo` up, and in a guest a writable overlay over the
//! machine's files, the state folder at its own path, devices, modules and the address of the API.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::{chdir, chroot, sethostname};

use super::{Carrier, ifconfig, initramfs, modules, qemu};

/// Environment variable with the carrier's name.
pub const ENV_CARRIER: &str = "TESTBED_WORLD_CARRIER";
/// Environment variable with the lab's state folder.
pub const ENV_STATE: &str = "TESTBED_WORLD_STATE";
/// Environment variable with the host name of the world.
pub const ENV_NAME: &str = "TESTBED_WORLD_NAME";
/// Environment variable with the folder of module files (guest only).
pub const ENV_MODULES: &str = "TESTBED_WORLD_MODULES";
/// Environment variable with the names of the modules to load, separated by commas (guest only).
pub const ENV_LOAD: &str = "TESTBED_WORLD_LOAD";

const NO_EXEC: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
const NO_DEV: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// The environment that makes [`prepare`] do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// Which carrier.
    pub carrier: Carrier,
    /// State folder of the lab.
    pub state: PathBuf,
    /// Host name.
    pub name: String,
    /// Folder of module files; guest only.
    pub modules: Option<PathBuf>,
    /// Modules to load; guest only.
    pub load: Vec<String>,
}

impl World {
    /// As environment variables.
    pub fn to_env(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::from([
            (ENV_CARRIER.to_owned(), self.carrier.to_string()),
            (ENV_STATE.to_owned(), self.state.display().to_string()),
            (ENV_NAME.to_owned(), self.name.clone()),
            (ENV_LOAD.to_owned(), self.load.join(",")),
        ]);
        if let Some(folder) = &self.modules {
            env.insert(ENV_MODULES.to_owned(), folder.display().to_string());
        }
        env
    }

    /// From this process's environment; nothing if no carrier started it.
    pub fn from_env() -> Option<Self> {
        let get = |key: &str| std::env::var(key).ok();
        Some(Self {
            carrier: get(ENV_CARRIER)?.parse().ok()?,
            state: get(ENV_STATE)?.into(),
            name: get(ENV_NAME)?,
            modules: get(ENV_MODULES).map(PathBuf::from),
            load: get(ENV_LOAD)?.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect(),
        })
    }
}

/// Prepares the world around process 1. Call it first, with no other thread running.
///
/// # Errors
/// This is not process 1 of a world, or the kernel refuses a step; the message names the step.
pub fn prepare() -> Result<World> {
    let world = World::from_env().context("no carrier started this process")?;
    anyhow::ensure!(
        std::process::id() == 1,
        "this is process {}, not process 1 of a world",
        std::process::id()
    );
    match world.carrier {
        Carrier::Host => prepare_host(&world)?,
        Carrier::Vm => prepare_guest(&world)?,
    }
    sethostname(&world.name).context("cannot set the host name")?;
    ifconfig::up("lo")?;
    Ok(world)
}

/// Ends the guest at once. Only for process 1 of a guest; returns only if the kernel refuses.
pub fn power_off() -> anyhow::Error {
    nix::unistd::sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Err(why) => anyhow::Error::new(why).context("the kernel refuses to power off"),
    }
}

fn prepare_host(world: &World) -> Result<()> {
    nothing("/", MsFlags::MS_REC | MsFlags::MS_PRIVATE).context("cannot make the mounts private")?;
    fs_at("proc", Path::new("/proc"), "proc", NO_EXEC, "")?;
    fs_at("sysfs", Path::new("/sys"), "sysfs", NO_EXEC, "")?;
    if Path::new("/sys/fs/cgroup").exists() {
        // a kernel without the second version of control groups has labs without them
        let _ = fs_at("cgroup2", Path::new("/sys/fs/cgroup"), "cgroup2", NO_EXEC, "");
    }
    // what lies under /run and must stay visible is held open across the mount
    let kept = kept_under_run(&world.state)?;
    fs_at("tmpfs", Path::new("/run"), "tmpfs", NO_DEV, "mode=755")?;
    for (path, open) in kept {
        use std::os::fd::AsRawFd as _;
        fs::create_dir_all(&path)?;
        let from = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        mount(Some(&from), &path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
            .with_context(|| format!("cannot keep {} in view", path.display()))?;
    }
    Ok(())
}

fn kept_under_run(state: &Path) -> Result<Vec<(PathBuf, fs::File)>> {
    let executable = std::env::current_exe()?;
    let folder = executable.parent().unwrap_or(Path::new("/"));
    [state, folder]
        .into_iter()
        .filter(|p| p.starts_with("/run") || p.starts_with("/var/run"))
        .map(|p| Ok((p.to_owned(), fs::File::open(p)?)))
        .collect()
}

fn prepare_guest(world: &World) -> Result<()> {
    let folder = world.modules.clone().context("the carrier names no module folder")?;
    fs_at("proc", Path::new("/proc"), "proc", NO_EXEC, "")?;
    fs_at("sysfs", Path::new("/sys"), "sysfs", NO_EXEC, "")?;
    super::grace::first();
    modules::load(&folder, &["overlay", "virtio_net"])?;
    enter_overlay()?;
    fs::create_dir_all(&world.state)?;
    let share = "trans=virtio,version=9p2000.L,msize=512000,cache=none,access=client";
    fs_at(initramfs::STATE_TAG, &world.state, "9p", NO_DEV, share)?;
    let names: Vec<&str> = world.load.iter().map(String::as_str).collect();
    modules::load(&folder, &names)?;
    super::warm::up();
    super::warm::processors();
    let address: Ipv4Addr = qemu::GUEST_ADDRESS.parse()?;
    if Path::new("/sys/class/net/eth0").exists() {
        ifconfig::address("eth0", address, Ipv4Addr::new(255, 255, 255, 0))?;
        ifconfig::up("eth0")?;
    }
    Ok(())
}

/// Makes a writable view of the read-only root and moves into it, with fresh system folders.
fn enter_overlay() -> Result<()> {
    fs_at("tmpfs", Path::new("/run"), "tmpfs", NO_DEV, "mode=755")?;
    for folder in ["/run/upper", "/run/work", "/run/root"] {
        fs::create_dir(folder)?;
    }
    let layers = "lowerdir=/,upperdir=/run/upper,workdir=/run/work,metacopy=off,index=off,xino=off";
    let root = Path::new("/run/root");
    fs_at("overlay", root, "overlay", MsFlags::empty(), layers)?;
    let at = |name: &str| root.join(name);
    fs_at("tmpfs", &at("run"), "tmpfs", NO_DEV, "mode=755")?;
    fs_at("devtmpfs", &at("dev"), "devtmpfs", MsFlags::MS_NOSUID, "mode=755")?;
    for folder in ["dev/pts", "dev/shm"] {
        fs::create_dir_all(at(folder))?;
    }
    fs_at("devpts", &at("dev/pts"), "devpts", MsFlags::MS_NOSUID, "mode=620,ptmxmode=666")?;
    fs_at("tmpfs", &at("dev/shm"), "tmpfs", NO_DEV, "mode=1777")?;
    for (name, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let _ = symlink(format!("/proc/self/fd{to}"), at("dev").join(name));
    }
    fs_at("proc", &at("proc"), "proc", NO_EXEC, "")?;
    fs_at("sysfs", &at("sys"), "sysfs", NO_EXEC, "")?;
    fs_at("cgroup2", &at("sys/fs/cgroup"), "cgroup2", NO_EXEC, "")?;
    // tools for tracing and eBPF look for these; a kernel without them is fine
    let _ = fs_at("bpf", &at("sys/fs/bpf"), "bpf", NO_EXEC, "mode=700");
    let _ = fs_at("tracefs", &at("sys/kernel/tracing"), "tracefs", NO_EXEC, "");
    chdir(root)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("cannot move to the new root")?;
    chroot(".")?;
    chdir("/")?;
    nothing("/", MsFlags::MS_REC | MsFlags::MS_PRIVATE).context("cannot make the mounts private")
}

fn nothing(path: &str, flags: MsFlags) -> Result<()> {
    Ok(mount(None::<&str>, path, None::<&str>, flags, None::<&str>)?)
}

fn fs_at(source: &str, path: &Path, kind: &str, flags: MsFlags, data: &str) -> Result<()> {
    mount(Some(source), path, Some(kind), flags, Some(data))
        .with_context(|| format!("cannot mount {kind} ({source}) on {}", path.display()))
}

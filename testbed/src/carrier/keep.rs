//! The keeper: the process that owns a world from its first to its last moment.
//!
//! It holds the lock of the state folder, starts process 1 (or QEMU) on a leash, and waits for one of three things: the end
//! of the world, a request to end it, or the end of the pipe from `up` before the word that the world is to stay.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};

use super::host::{self, Leash};
use super::initramfs::{self, Handover};
use super::inside::World;
use super::kernel::Kernel;
use super::lock::{FileLock, Identity, PidFd, alive_lock};
use super::qemu::{self, Accel, Guest};
use super::record::Record;
use super::{Carrier, Lacking, cgroup, clock, guest_exec};
use crate::api::client::Endpoint;

/// From a polite request to the end by force.
const GRACE: Duration = Duration::from_secs(4);

/// How often the keeper looks whether its state folder is still there, milliseconds.
const LOOK_EVERY_MS: u16 = 2000;

/// What `up` asks of a keeper: one line of JSON on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// State folder.
    pub state: PathBuf,
    /// Host name of the world.
    pub name: String,
    /// Carrier.
    pub carrier: Carrier,
    /// Process 1.
    pub init: Vec<String>,
    /// Kernel modules.
    pub load: Vec<String>,
    /// The guest; vm only.
    pub guest: Option<GuestOrder>,
}

/// The guest that an order asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestOrder {
    /// Its kernel.
    pub kernel: Kernel,
    /// Its accelerator.
    pub accel: Accel,
    /// Its memory in MiB.
    pub memory_mib: u64,
}

/// What a keeper answers: lines of JSON on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Process 1 has been started.
    Started(Box<Record>),
    /// It has not.
    Failed {
        /// Why.
        what: String,
        /// What the user can do; set if the machine lacks something.
        next: Option<String>,
    },
    /// The world stays.
    Committed,
}

/// Runs the keeper; returns when its world is gone.
///
/// # Errors
/// Only what could not be reported to `up`.
pub fn run() -> Result<()> {
    let order = read_order()?;
    // nothing of the caller's may be held open by a lab that stays: pipes of a shell, say
    // SAFETY: no descriptor above 2 is in use in this process yet.
    // JUSTIFICATION: nix has no wrapper for close_range.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    nix::unistd::setsid().context("cannot leave the session")?;
    std::env::set_current_dir("/")?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let mut stops = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        stops.add(signal);
    }
    stops.thread_block()?;
    let stops = SignalFd::with_flags(&stops, SfdFlags::SFD_CLOEXEC)?;
    match Keeper::start(&order) {
        Ok(mut keeper) => {
            report(&Report::Started(Box::new(keeper.record.clone())));
            keeper.watch(&stops)
        }
        Err(why) => {
            let lacking = why.downcast_ref::<Lacking>();
            let what = lacking.map_or_else(|| format!("{why:#}"), |l| l.what.clone());
            let room = || crate::failure::lacking_room(&why).map(str::to_owned);
            report(&Report::Failed { what, next: lacking.map(|l| l.next.clone()).or_else(room) });
            Ok(())
        }
    }
}

/// Byte by byte, so that nothing behind the line is swallowed.
fn read_order() -> Result<Order> {
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock();
    for byte in input.by_ref().bytes() {
        match byte? {
            b'\n' => return serde_json::from_slice(&line).context("the order makes no sense"),
            other => line.push(other),
        }
    }
    bail!("the order ends early")
}

fn report(report: &Report) {
    // `up` may be gone; the end of its pipe says so where it matters
    if let Ok(text) = serde_json::to_string(report) {
        let mut output = std::io::stdout();
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }
}

struct Keeper {
    state: PathBuf,
    record: Record,
    child: Child,
    handle: PidFd,
    // held to the end
    lock: FileLock,
}

impl Keeper {
    fn start(order: &Order) -> Result<Self> {
        let lock = FileLock::exclusive_within(&alive_lock(&order.state), Duration::from_secs(1))?
            .with_context(|| format!("a lab is alive in {}", order.state.display()))?;
        let leash = Leash::new(lock.as_fd())?;
        let own = Identity::own().context("cannot read /proc")?;
        let (child, endpoint, cgroup) = match &order.guest {
            None => {
                let group = cgroup::create(own);
                let child = start_host(order, group.as_deref(), leash).inspect_err(|_| {
                    if let Some(group) = &group {
                        cgroup::remove(group);
                    }
                })?;
                (child, Endpoint::Unix(order.state.join("api.sock")), group)
            }
            Some(guest) => {
                let (child, port) = start_guest(order, guest, leash)?;
                (child, Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))), None)
            }
        };
        let pid = i32::try_from(child.id())?;
        let handle = PidFd::open(pid)?;
        let record = Record {
            version: 1,
            carrier: order.carrier,
            keeper: own,
            child: Identity::of(pid).unwrap_or(Identity { pid, started: 0 }),
            endpoint,
            accel: order.guest.as_ref().map(|g| g.accel),
            kernel: order.guest.as_ref().map(|g| g.kernel.release.clone()),
            cgroup,
        };
        record.store(&order.state)?;
        Ok(Self { state: order.state.clone(), record, child, handle, lock })
    }

    fn watch(&mut self, stops: &SignalFd) -> Result<()> {
        let mut listening = true;
        loop {
            let input = std::io::stdin();
            let mut watched = vec![
                PollFd::new(self.handle.as_fd(), PollFlags::POLLIN),
                PollFd::new(stops.as_fd(), PollFlags::POLLIN),
            ];
            if listening {
                watched.push(PollFd::new(input.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut watched, PollTimeout::from(LOOK_EVERY_MS)) {
                Ok(0) if !self.lock.has_name() => {
                    eprintln!("the state folder was deleted: nobody could find this world any more");
                    return self.end(Some(Signal::SIGTERM));
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(why) => return Err(why.into()),
            }
            let ready: Vec<bool> = watched.iter().map(|w| w.any().unwrap_or(true)).collect();
            if ready[0] {
                return self.world_ended(!listening);
            }
            if ready[1] {
                return self.end(Some(Signal::SIGTERM));
            }
            if ready.get(2) == Some(&true) {
                let mut word = [0];
                if std::io::stdin().read(&mut word).unwrap_or(0) == 0 {
                    return self.end(None);
                }
                listening = false;
                report(&Report::Committed);
                detach_output();
            }
        }
    }

    /// The world died by itself. One that was to stay leaves its record, so that its end does not go unnoticed.
    fn world_ended(&mut self, committed: bool) -> Result<()> {
        let status = self.child.wait()?;
        eprintln!("the world ended by itself ({status})");
        self.sweep();
        if !committed {
            Record::forget(&self.state);
        }
        Ok(())
    }

    /// Ends the world: politely first if a signal is given.
    fn end(&mut self, polite: Option<Signal>) -> Result<()> {
        if let Some(signal) = polite {
            self.handle.signal(signal)?;
            self.handle.wait(GRACE);
        }
        self.handle.signal(Signal::SIGKILL)?;
        self.child.wait()?;
        self.sweep();
        Record::forget(&self.state);
        Ok(())
    }

    fn sweep(&self) {
        if let Some(group) = &self.record.cgroup {
            cgroup::remove(group);
        }
    }
}

/// Points standard output away from `up`, which reads it to its end.
fn detach_output() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(&null);
    }
}

fn start_host(order: &Order, group: Option<&std::path::Path>, leash: Leash) -> Result<Child> {
    for module in &order.load {
        // built in, loaded by someone or missing: what is missing shows when it is used
        let _ =
            Command::new("modprobe").args(["-q", module]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    }
    let world = World {
        carrier: Carrier::Host,
        state: order.state.clone(),
        name: order.name.clone(),
        modules: None,
        load: Vec::new(),
    };
    host::spawn(&order.init, world.to_env(), &order.state.join("console.log"), group, leash)
}

fn start_guest(order: &Order, wanted: &GuestOrder, leash: Leash) -> Result<(Child, u16)> {
    let world = World {
        carrier: Carrier::Vm,
        state: order.state.clone(),
        name: order.name.clone(),
        modules: Some(wanted.kernel.modules()),
        load: order.load.clone(),
    };
    let mut env = guest_exec::guest_env();
    env.extend(world.to_env());
    let archive = initramfs::build(&wanted.kernel, &Handover { argv: &order.init, env: &env })?;
    let path = order.state.join("initramfs");
    std::fs::write(&path, archive).with_context(|| format!("cannot write {}", path.display()))?;
    let port = free_port()?;
    let guest = Guest {
        image: wanted.kernel.image(),
        initramfs: path,
        accel: wanted.accel,
        clock: if wanted.accel == Accel::Kvm { clock::Clock::Hypervisor } else { clock::for_emulation() },
        small: qemu::small_machine(),
        cpus: qemu::cpus(),
        memory_mib: wanted.memory_mib,
        console: Some(order.state.join("console.log")),
        shares: qemu::shares(&order.state),
        port: Some(port),
    };
    let log = order.state.join("logs/qemu.log");
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(qemu::PROGRAM);
    command.args(guest.arguments()).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    host::on_leash(&mut command, leash);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", qemu::PROGRAM))?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !listens(port) {
        if let Some(status) = child.try_wait()? {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("QEMU ended at once ({status}): {}", text.trim());
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("QEMU does not open its port within 10 s; see {}", log.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((child, port))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether someone listens on the loopback port, without connecting: a connection would reach into the guest.
fn listens(port: u16) -> bool {
    let wanted = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1) == Some(wanted.as_str()) && words.nth(1) == Some("0A")
    })
}

//! The Linux kernel, over raw netlink: one socket a namespace, many messages a send.
//!
//! Namespaces are held by descriptors and bound to names in a base folder (`/run/netns`, so that
//! `ip netns exec` works). A namespace belongs to the lab if its `lo` carries the lab's mark as alias; an interface,
//! if it carries the mark itself, or carries none yet and has the hardware address that the lab gives its index.
//! Routes, labels, neighbours and addresses belong to the orchestrator if their protocol says so.

mod execute;
mod observe;
mod power;
mod queue;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

pub use power::{Put, can_filter, put_by_programs};
use rtnl::{KernelError, Socket, link, macsec, netns, socket, tc};

use super::{ApplyError, Kernel, Progress, Scope};
use crate::plan::{Options, Plan, State};

/// Index of `lo` in every namespace.
const LO: u32 = 1;

/// Index of the interface that is made to see whether it can be.
const PROBED: u32 = 77;

/// A namespace of the lab, open.
struct Held {
    fd: OwnedFd,
    socket: Socket,
}

/// One lab in the Linux kernel.
pub struct LinuxKernel {
    /// Folder of the names.
    base: PathBuf,
    /// The lab's mark.
    mark: String,
    /// The lab's namespaces by node.
    held: BTreeMap<String, Held>,
    /// A socket in our own namespace, for pairs whose ends are elsewhere.
    home: Socket,
}

impl LinuxKernel {
    /// Opens the lab of a name, whose namespaces have (or will have) their names in `base`.
    ///
    /// # Errors
    /// When the folder cannot be made or the kernel refuses a socket.
    pub fn open(base: &Path, lab: &str) -> Result<Self, ApplyError> {
        let doing = || format!("make the folder {}", base.display());
        fs::create_dir_all(base).map_err(|e| KernelError::from_io(doing(), &e))?;
        let home = Socket::open(socket::ROUTE)?;
        let mut kernel =
            Self { base: base.to_owned(), mark: format!("testbed:{lab}"), held: BTreeMap::new(), home };
        kernel.refresh()?;
        Ok(kernel)
    }

    /// The namespace of a node, to start programs in.
    pub fn namespace(&self, node: &str) -> Option<BorrowedFd<'_>> {
        self.held.get(node).map(|held| held.fd.as_fd())
    }

    /// The socket of a node's namespace, for questions that a plan does not ask.
    pub fn socket(&mut self, node: &str) -> Option<&mut Socket> {
        self.held.get_mut(node).map(|held| &mut held.socket)
    }

    /// Where a node's namespace has its name.
    pub fn path(&self, node: &str) -> PathBuf {
        self.base.join(node)
    }

    /// Finds namespaces of the lab that are not open yet, and lets go of those that have lost their name.
    fn refresh(&mut self) -> Result<(), KernelError> {
        let base = self.base.clone();
        self.held.retain(|node, _| base.join(node).exists());
        let doing = || format!("read the folder {}", base.display());
        let failed = |e: &std::io::Error| KernelError::from_io(doing(), e);
        let mut found = Vec::new();
        for entry in fs::read_dir(&base).map_err(|e| failed(&e))? {
            let name = entry.map_err(|e| failed(&e))?.file_name().to_string_lossy().into_owned();
            if self.held.contains_key(&name) {
                continue;
            }
            // A file without a namespace behind it is what a lost mount leaves.
            let fd = netns::open(&base.join(&name));
            found.extend(fd.ok().filter(netns::is_namespace).map(|fd| (name, fd)));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let fds: Vec<BorrowedFd<'_>> = found.iter().map(|(_, fd)| fd.as_fd()).collect();
        let sockets = netns::tour(&fds, |_| Socket::open(socket::ROUTE))?;
        for ((node, fd), socket) in found.into_iter().zip(sockets) {
            let mut socket = socket?;
            let lo = link::by_name(&mut socket, "lo")?;
            if lo.alias.as_deref() == Some(self.mark.as_str()) {
                self.held.insert(node, Held { fd, socket });
            }
        }
        Ok(())
    }
}

impl Kernel for LinuxKernel {
    fn observe(&mut self, scope: &Scope) -> Result<State, ApplyError> {
        self.refresh()?;
        self.read(scope).map_err(ApplyError::from)
    }

    fn apply(&mut self, plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<(), ApplyError> {
        self.execute(plan, progress)
    }
}

/// Reads the counters of the class queues in the namespaces that have names in `base`, by (node, interface); names without
/// a namespace are left out. Works with sockets of its own, so that looking never waits for a change.
///
/// # Errors
/// When a namespace cannot be entered or the kernel refuses a question.
pub fn class_queues<'a>(
    base: &Path,
    nodes: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<(String, String), [tc::Stats; 4]>, KernelError> {
    let open = |node: &'a str| Some((node, netns::open(&base.join(node)).ok().filter(netns::is_namespace)?));
    let held: Vec<(&str, OwnedFd)> = nodes.filter_map(open).collect();
    let fds: Vec<BorrowedFd<'_>> = held.iter().map(|(_, fd)| fd.as_fd()).collect();
    let look = |_| {
        let mut socket = Socket::open(socket::ROUTE)?;
        let bands = queue::bands(&tc::dump(&mut socket, None)?);
        let names = if bands.is_empty() { Vec::new() } else { link::dump(&mut socket)? };
        let named = names.into_iter().filter_map(|l| Some((l.name, *bands.get(&l.ifindex)?)));
        Ok::<_, KernelError>(named.collect::<Vec<_>>())
    };
    let mut all = BTreeMap::new();
    for ((node, _), found) in held.iter().zip(netns::tour(&fds, look)?) {
        all.extend(found?.into_iter().map(|(name, stats)| (((*node).to_owned(), name), stats)));
    }
    Ok(all)
}

/// Finds out what the kernel can do, by trying it in a namespace that is gone afterwards.
///
/// # Errors
/// When not even a namespace can be made.
pub fn probe() -> Result<Options, KernelError> {
    let namespace = netns::create()?;
    let mpls = netns::enter(namespace.as_fd(), || Path::new("/proc/sys/net/mpls").exists())?;
    let mut socket = Socket::open_in(namespace.as_fd(), socket::ROUTE)?;
    let prio = tc::prio(LO, tc::ROOT, tc::handle(1, 0), &tc::Prio::last_by_default(4));
    let bands = socket.request(&prio).is_ok();
    if bands {
        socket.request(&tc::delete(LO, tc::ROOT))?;
    }
    let netem = tc::Netem { delay_ns: 1_000_000, limit: 10, ..tc::Netem::default() };
    let delay = socket.request(&tc::netem(LO, tc::ROOT, tc::handle(1, 0), &netem)).is_ok();
    let bond = link::LinkEnd {
        netns: namespace.as_fd(),
        name: "to-nowhere",
        ifindex: PROBED,
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 9216,
    };
    let bonds = socket.request(&link::create_bond(&bond)).is_ok();
    let macsec = try_macsec(namespace.as_fd(), &mut socket).is_ok();
    let filters = netns::enter(namespace.as_fd(), can_filter)?;
    Ok(Options { mpls, bands, delay, bonds, filters, macsec })
}

/// Makes a MACsec interface in a namespace that is gone afterwards.
///
/// # Errors
/// The kernel cannot.
pub fn try_macsec(namespace: BorrowedFd<'_>, socket: &mut Socket) -> Result<(), KernelError> {
    let end =
        |name, ifindex| link::LinkEnd { netns: namespace, name, ifindex, mac: [2, 0, 0, 0, 0, 2], mtu: 9248 };
    socket.request(&link::create_veth(&end("ct-here", PROBED + 1), &end("ct-there", PROBED + 2)))?;
    let mac = [2, 0, 0, 0, 0, 3];
    let secured = macsec::Secured { name: "to-there", ifindex: PROBED + 3, over: PROBED + 1, mac, mtu: 9216 };
    socket.request(&macsec::create(&secured))
}

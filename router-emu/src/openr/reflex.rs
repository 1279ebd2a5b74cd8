//! The reflex: a thread that does nothing but pass on the loss of links, ahead of everything else on the router.
//!
//! It alone hears the kernel about links, and runs BFD on them. When an interface goes down or falls silent it sends a [`Flare`] out of all others, hands
//! it to the lsp-agent, and only then tells the rest of the program, which withdraws the adjacency from the store. Flares
//! of others are relayed the same way. It runs before all ordinary threads, because until it has run, packets are lost;
//! it never waits for anybody and holds no lock.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use rtnl::link::LinkInfo;
use rtnl::monitor::{Event, Group, Monitor};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use super::bfd::driver::Bfd;
use super::bfd::session::Verdict;
use super::bundle::Bundles;
use super::flare::{Flare, HOPS, MAX_FLARE, Seen};
use crate::agent::{self, monotonic_ns};
use crate::config::{BfdTimers, CONTROL_TCLASS, CoreInterface, FLARE_PORT, RouterConfig};

/// Group on which routers hear flares; a group of our own, so that hosts are not woken.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0xeb, 0xf1);

/// What the rest of the program is told.
#[derive(Clone, Debug)]
pub enum LinkNews {
    /// A backbone interface exists; whether packets can pass.
    Is(String, u32, bool),
    /// So many members of a backbone interface, which is a bundle, have a carrier.
    Members(String, u16),
    /// A backbone interface is gone.
    Gone(String),
    /// BFD has found that nothing passes on a backbone interface in spite of its carrier, or takes that back.
    Silent(String, bool),
}

/// The running thread.
pub struct Reflex {
    orders: mpsc::UnboundedSender<Order>,
    wake: Arc<EventFd>,
}

/// What the thread is told.
enum Order {
    /// See [`Reflex::goodbye`].
    Leave,
    /// See [`Reflex::configure`].
    Bfd(BfdTimers),
}

impl Reflex {
    /// Ends BFD with a word to the neighbours, so that they conclude nothing from the silence that follows.
    pub fn goodbye(&self) {
        self.order(Order::Leave);
    }

    /// Runs BFD with other timers, or no longer, or from now on. Neighbours are told, and lose no link by it.
    pub fn configure(&self, bfd: &BfdTimers) {
        self.order(Order::Bfd(bfd.clone()));
    }

    fn order(&self, order: Order) {
        // a thread that has failed has said so
        let _ = self.orders.send(order);
        // a counter that is full has been written: the thread knows
        let _ = self.wake.write(1);
    }
}

/// Starts the thread in the calling thread's network namespace. Gives out what happens to links, their present state
/// first; the stream ends only if the thread fails.
///
/// Losses of own links are told to others only while `speaks`, which is: while this router announces itself in the store.
/// A flare is believed until the store says otherwise, and without an announcement it never would.
///
/// # Errors
/// No netlink, no socket, or no thread.
pub fn start(
    config: &RouterConfig,
    instance: u64,
    speaks: Arc<AtomicBool>,
) -> anyhow::Result<(Reflex, mpsc::UnboundedReceiver<LinkNews>)> {
    let (sender, news) = mpsc::unbounded_channel();
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = Arc::new(EventFd::from_flags(flags).context("cannot make an event counter")?);
    let (orders, told) = mpsc::unbounded_channel();
    let mut thread = Thread {
        monitor: Monitor::open(&[Group::Link])?,
        socket: listen().with_context(|| format!("cannot listen for flares on UDP port {FLARE_PORT}"))?,
        lsp_agent: UnixDatagram::unbound().context("cannot make a datagram socket")?,
        lsp_socket: config.flare_socket(),
        template: Flare {
            plane: config.plane,
            hops: HOPS,
            instance,
            seq: 0,
            lost_ns: 0,
            router: config.node.clone(),
            interface: String::new(),
        },
        links: config.interfaces.iter().map(|i| (i.name.clone(), None)).collect(),
        bundles: Bundles::default(),
        seen: Seen::default(),
        news: sender,
        speaks,
        bfd: Bfd::open(&config.openr.bfd, &config.interfaces, instance)?,
        timers: config.openr.bfd.clone(),
        seed: instance,
        interfaces: config.interfaces.clone(),
        verdicts: Vec::new(),
        orders: told,
        wake: Arc::clone(&wake),
    };
    thread.lsp_agent.set_nonblocking(true)?;
    thread.read_links()?;
    std::thread::Builder::new()
        .name("reflex".to_owned())
        .spawn(move || {
            agent::Urgency::default().set(true);
            if let Err(e) = thread.run() {
                tracing::error!("the reflex has failed: {e:#}");
            }
        })
        .context("cannot start the reflex thread")?;
    Ok((Reflex { orders, wake }, news))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    ifindex: u32,
    /// What the kernel says of it.
    carrier: bool,
    /// Whether packets can pass: it has a carrier and, if it is a bundle, so has one of its members.
    up: bool,
    /// BFD says that nothing passes.
    silent: bool,
}

struct Thread {
    monitor: Monitor,
    socket: Socket,
    lsp_agent: UnixDatagram,
    lsp_socket: PathBuf,
    /// Own flares: what is the same in all.
    template: Flare,
    /// Backbone interfaces; nothing while one does not exist.
    links: BTreeMap<String, Option<Link>>,
    bundles: Bundles,
    seen: Seen,
    news: mpsc::UnboundedSender<LinkNews>,
    speaks: Arc<AtomicBool>,
    bfd: Option<Bfd>,
    /// What BFD runs with.
    timers: BfdTimers,
    /// Sessions' numbers follow from it.
    seed: u64,
    /// Where BFD runs.
    interfaces: Vec<CoreInterface>,
    verdicts: Vec<(usize, Verdict)>,
    orders: mpsc::UnboundedReceiver<Order>,
    wake: Arc<EventFd>,
}

impl Thread {
    fn run(&mut self) -> anyhow::Result<()> {
        while !self.news.is_closed() {
            let [links, flares, ordered, bfd] = self.wait()?;
            if links {
                self.kernel_events()?;
            }
            if flares {
                self.relay();
            }
            if ordered {
                // what has not been read is read for ever: once
                let _ = self.wake.read();
                while let Ok(order) = self.orders.try_recv() {
                    self.obey(order);
                }
            }
            self.judge(bfd);
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Leave => self.end_bfd(),
            Order::Bfd(timers) if timers == self.timers => {}
            Order::Bfd(timers) => {
                // sessions that begin anew, with a number of their own, are simpler than ones whose timers change
                self.end_bfd();
                self.seed = self.seed.rotate_left(17) ^ monotonic_ns();
                match Bfd::open(&timers, &self.interfaces, self.seed) {
                    Ok(bfd) => self.bfd = bfd,
                    Err(e) => tracing::error!("BFD does not run: {e:#}"),
                }
                tracing::info!(enabled = timers.enabled, "BFD runs with other timers");
                self.timers = timers;
                if let Some(bfd) = &mut self.bfd {
                    for (name, link) in &self.links {
                        let Some(link) = link else { continue };
                        bfd.set_link(name, link.ifindex, link.up);
                    }
                }
            }
        }
    }

    /// Ends BFD; nobody holds a link for silent any more.
    fn end_bfd(&mut self) {
        let Some(mut bfd) = self.bfd.take() else { return };
        bfd.goodbye();
        let mut heard = Vec::new();
        for (name, link) in &mut self.links {
            if let Some(link) = link
                && std::mem::take(&mut link.silent)
            {
                heard.push(name.clone());
            }
        }
        for name in heard {
            self.tell(LinkNews::Silent(name, false));
        }
    }

    /// Waits until something arrives or BFD has something to do. What is there: news of links, flares, orders, BFD
    /// packets.
    fn wait(&self) -> anyhow::Result<[bool; 4]> {
        let poll_for = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let [links, flares, wake] =
            [self.monitor.as_fd(), self.socket.as_fd(), self.wake.as_fd()].map(poll_for);
        let bfd = self.bfd.as_ref().map_or(self.wake.as_fd(), Bfd::as_fd);
        let mut ready = [links, flares, wake, poll_for(bfd)];
        let deadline = self.bfd.as_ref().and_then(Bfd::next_deadline);
        let wait = deadline.map(|at| TimeSpec::from(Duration::from_nanos(at.saturating_sub(monotonic_ns()))));
        match ppoll(&mut ready, wait, None) {
            Ok(_) => Ok(ready.map(|fd| fd.any().unwrap_or(true))),
            Err(nix::errno::Errno::EINTR) => Ok([false; 4]),
            Err(e) => Err(e).context("cannot wait for events"),
        }
    }

    /// Lets BFD work, and acts upon what it says.
    fn judge(&mut self, readable: bool) {
        let Some(bfd) = &mut self.bfd else { return };
        let mut verdicts = std::mem::take(&mut self.verdicts);
        bfd.wake(readable, &mut verdicts);
        for (session, verdict) in verdicts.drain(..) {
            let Some(interface) = self.bfd.as_ref().map(|bfd| bfd.interface(session).to_owned()) else {
                break;
            };
            self.follow(&interface, verdict);
        }
        // keeps its room
        self.verdicts = verdicts;
    }

    /// What BFD has found out about a link. It counts as lost while nothing passes, and only then.
    fn follow(&mut self, interface: &str, verdict: Verdict) {
        let Some(Some(link)) = self.links.get_mut(interface) else { return };
        let silent = matches!(verdict, Verdict::Broken(_));
        let changed = std::mem::replace(&mut link.silent, silent) != silent;
        match verdict {
            Verdict::Broken(why) if changed => {
                self.lost(interface, true);
                tracing::warn!(interface, "BFD: link lost: {why}");
            }
            Verdict::Passes => tracing::info!(interface, "BFD: session up"),
            Verdict::Unknown(why) if changed => {
                tracing::info!(interface, "BFD: link no longer held down: {why}");
            }
            Verdict::Unknown(why) => tracing::debug!(interface, "BFD: link not judged: {why}"),
            Verdict::Broken(_) => {}
        }
        if changed {
            self.tell(LinkNews::Silent(interface.to_owned(), silent));
        }
    }

    fn kernel_events(&mut self) -> anyhow::Result<()> {
        while let Some(event) = self.monitor.try_recv().context("cannot read kernel events")? {
            match event {
                Event::Link(link) => self.heard(&link),
                Event::LinkDeleted(link) => {
                    let bundle = self.bundles.gone(link.ifindex);
                    self.gone(&link.name);
                    if let Some(bundle) = bundle {
                        self.members_changed(bundle);
                    }
                }
                Event::Overrun => self.read_links()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What the kernel says of a link: a backbone interface, a member of one, or neither.
    fn heard(&mut self, info: &LinkInfo) {
        let bundles = self.bundles.told(info);
        if self.links.contains_key(&info.name) {
            self.told(&info.name, info.ifindex, info.has_carrier());
        }
        for bundle in bundles {
            self.members_changed(bundle);
        }
    }

    /// Members of a bundle came, went, or changed their carriers.
    fn members_changed(&mut self, bundle: u32) {
        let found =
            self.links.iter().find_map(|(name, link)| Some((name, link.filter(|l| l.ifindex == bundle)?)));
        let Some((name, link)) = found.map(|(name, link)| (name.clone(), link)) else { return };
        let Some(up) = self.bundles.up(bundle) else { return };
        self.tell(LinkNews::Members(name.clone(), up));
        self.told(&name, link.ifindex, link.carrier);
    }

    fn told(&mut self, name: &str, ifindex: u32, carrier: bool) {
        let Some(link) = self.links.get_mut(name) else { return };
        let up = carrier && self.bundles.up(ifindex) != Some(0);
        let before = *link;
        let silent = up && before.is_some_and(|b| b.silent && b.ifindex == ifindex);
        *link = Some(Link { ifindex, carrier, up, silent });
        if before.is_some_and(|b| b.up && !b.silent) && !up {
            self.lost(name, carrier);
        }
        if let Some(bfd) = &mut self.bfd {
            bfd.set_link(name, ifindex, up);
        }
        if before.is_none_or(|b| b.ifindex != ifindex)
            && let Err(e) = self.socket.join_multicast_v6(&GROUP, ifindex)
        {
            tracing::warn!(interface = name, "cannot hear flares: {e}");
        }
        self.tell(LinkNews::Is(name.to_owned(), ifindex, up));
        if before.is_some_and(|b| b.silent) && !silent {
            self.tell(LinkNews::Silent(name.to_owned(), false));
        }
    }

    fn gone(&mut self, name: &str) {
        let Some(link) = self.links.get_mut(name) else { return };
        let before = link.take();
        if before.is_some_and(|b| b.up && !b.silent) {
            self.lost(name, false);
        }
        if let Some(bfd) = &mut self.bfd {
            bfd.set_link(name, 0, false);
        }
        self.tell(LinkNews::Gone(name.to_owned()));
        if before.is_some_and(|b| b.silent) {
            self.tell(LinkNews::Silent(name.to_owned(), false));
        }
    }

    /// An own link is lost: everybody is told, ourselves first in the table of those who know. `silently`: the kernel has
    /// nothing to say of it.
    fn lost(&mut self, interface: &str, silently: bool) {
        if !self.speaks.load(Ordering::Relaxed) {
            return;
        }
        self.template.seq += 1;
        let flare =
            Flare { lost_ns: monotonic_ns(), interface: interface.to_owned(), ..self.template.clone() };
        self.seen.is_new(&flare);
        let bytes = flare.encode();
        if silently {
            self.hand_over(&bytes);
        }
        // else the own lsp-agent hears the kernel itself
        self.send(&bytes, None);
    }

    /// Reads all flares that are there; new ones go on to all other links, then to the lsp-agent.
    fn relay(&mut self) {
        let mut buffer = [0; MAX_FLARE + 1];
        loop {
            let (length, from) = match receive(&self.socket, &mut buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // nothing left, or the error of an earlier packet, which is gone once it is reported
                Err(_) => return,
            };
            let bytes = buffer.get(..length).unwrap_or_default();
            match Flare::decode(bytes) {
                Ok(mut flare) if flare.plane == self.template.plane => {
                    if !self.seen.is_new(&flare) {
                        continue;
                    }
                    flare.hops = flare.hops.saturating_sub(1);
                    if flare.hops > 0 {
                        self.send(&flare.encode(), Some(from));
                    }
                    self.hand_over(bytes);
                }
                Ok(flare) => tracing::warn!("flare of plane {} refused: wrong cabling?", flare.plane),
                Err(e) => tracing::warn!("flare refused: {e}"),
            }
        }
    }

    /// Sends to all links that are up, except the one with this index. A link that fails says so by itself.
    fn send(&self, bytes: &[u8], except: Option<u32>) {
        let up = self.links.values().flatten().filter(|link| link.up && Some(link.ifindex) != except);
        for link in up {
            let to = SocketAddrV6::new(GROUP, FLARE_PORT, 0, link.ifindex);
            let _ = self.socket.send_to(bytes, &to.into());
        }
    }

    fn hand_over(&self, bytes: &[u8]) {
        // without an lsp-agent there is nobody to hear it; one that starts later reads the store
        let _ = self.lsp_agent.send_to(bytes, &self.lsp_socket);
    }

    fn tell(&self, news: LinkNews) {
        // an ending program does not listen any more
        let _ = self.news.send(news);
    }

    /// Reads the state of all interfaces; those that do not exist (yet) are announced by events later.
    fn read_links(&mut self) -> anyhow::Result<()> {
        let mut socket = rtnl::Socket::open(rtnl::socket::ROUTE)?;
        let infos = rtnl::link::dump(&mut socket)?;
        // all members first: half a bundle must not be taken for what is left of it
        self.bundles = Bundles::default();
        for info in &infos {
            self.bundles.told(info);
        }
        let names: Vec<String> = self.links.keys().cloned().collect();
        for name in names {
            match infos.iter().find(|info| info.name == name) {
                Some(info) => {
                    self.told(&name, info.ifindex, info.has_carrier());
                    self.members_changed(info.ifindex);
                }
                None => self.gone(&name),
            }
        }
        Ok(())
    }
}

fn listen() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_multicast_loop_v6(false)?;
    socket.set_multicast_hops_v6(1)?;
    socket.set_tclass_v6(CONTROL_TCLASS)?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, FLARE_PORT, 0, 0).into())?;
    Ok(socket)
}

/// One datagram: its length and the index of the interface that it came by.
fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, u32)> {
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{SockaddrIn6, recvfrom};
    let (length, from) = recvfrom::<SockaddrIn6>(socket.as_raw_fd(), buffer)?;
    // a link-local sender's address names the interface
    Ok((length, from.map_or(0, |from| from.scope_id())))
}

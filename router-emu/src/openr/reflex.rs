//! The reflex: a thread that does nothing but pass on the loss of links, ahead of everything else on the router.
//!
//! It alone hears the kernel about links. When an interface goes down it sends a [`Flare`] out of all others, hands
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

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtnl::link::LinkInfo;
use rtnl::monitor::{Event, Group, Monitor};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use super::flare::{Flare, HOPS, MAX_FLARE, Seen};
use crate::agent::{self, monotonic_ns};
use crate::config::{CONTROL_TCLASS, FLARE_PORT, RouterConfig};

/// Group on which routers hear flares; a group of our own, so that hosts are not woken.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0xeb, 0xf1);

/// What the rest of the program is told.
#[derive(Clone, Debug)]
pub enum LinkNews {
    /// A backbone interface exists; whether packets can pass.
    Is(String, u32, bool),
    /// A backbone interface is gone.
    Gone(String),
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
) -> anyhow::Result<mpsc::UnboundedReceiver<LinkNews>> {
    let (sender, news) = mpsc::unbounded_channel();
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
        seen: Seen::default(),
        news: sender,
        speaks,
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
    Ok(news)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    ifindex: u32,
    up: bool,
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
    seen: Seen,
    news: mpsc::UnboundedSender<LinkNews>,
    speaks: Arc<AtomicBool>,
}

impl Thread {
    fn run(&mut self) -> anyhow::Result<()> {
        while !self.news.is_closed() {
            let mut ready = [
                PollFd::new(self.monitor.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e).context("cannot wait for events"),
            }
            self.kernel_events()?;
            self.relay();
        }
        Ok(())
    }

    fn kernel_events(&mut self) -> anyhow::Result<()> {
        while let Some(event) = self.monitor.try_recv().context("cannot read kernel events")? {
            match event {
                Event::Link(link) => self.told(&link),
                Event::LinkDeleted(link) => self.gone(&link.name),
                Event::Overrun => self.read_links()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn told(&mut self, info: &LinkInfo) {
        let Some(link) = self.links.get_mut(&info.name) else { return };
        let now = Link { ifindex: info.ifindex, up: info.up && info.running && info.lower_up };
        let before = link.replace(now);
        if before.is_some_and(|b| b.up) && !now.up {
            self.lost(&info.name);
        }
        if before.is_none_or(|b| b.ifindex != now.ifindex)
            && let Err(e) = self.socket.join_multicast_v6(&GROUP, now.ifindex)
        {
            tracing::warn!(interface = info.name, "cannot hear flares: {e}");
        }
        self.tell(LinkNews::Is(info.name.clone(), now.ifindex, now.up));
    }

    fn gone(&mut self, name: &str) {
        let Some(link) = self.links.get_mut(name) else { return };
        if link.take().is_some_and(|b| b.up) {
            self.lost(name);
        }
        self.tell(LinkNews::Gone(name.to_owned()));
    }

    /// An own link is lost: everybody is told, ourselves first in the table of those who know.
    fn lost(&mut self, interface: &str) {
        if !self.speaks.load(Ordering::Relaxed) {
            return;
        }
        self.template.seq += 1;
        let flare =
            Flare { lost_ns: monotonic_ns(), interface: interface.to_owned(), ..self.template.clone() };
        self.seen.is_new(&flare);
        // the lsp-agent hears the kernel itself
        self.send(&flare.encode(), None);
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
        let names: Vec<String> = self.links.keys().cloned().collect();
        for name in names {
            match infos.iter().find(|info| info.name == name) {
                Some(info) => self.told(info),
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

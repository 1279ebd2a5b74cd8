//! Reads every frame that arrives at this namespace until standard input ends, then prints what it saw, counted by kind.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket, sockopt,
};
use tests::capture::{Counted, Seen, dissect};

/// `sll_pkttype` of frames that are addressed to this node.
const PACKET_HOST: u8 = 0;

/// Enough for Ethernet, ten labels and an IPv6 header.
const HEAD: usize = 14 + 40 + 40;

pub fn run() -> anyhow::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let packets =
        socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).context("packet socket")?;
    // as much as is allowed; the default loses frames when the processor is busy
    let _ = setsockopt(&packets, sockopt::RcvBufForce, &(8 << 20));
    let names: BTreeMap<usize, String> = nix::net::if_::if_nameindex()
        .context("interfaces")?
        .iter()
        .filter_map(|i| Some((usize::try_from(i.index()).ok()?, i.name().to_string_lossy().into_owned())))
        .collect();
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    let stdin = std::io::stdin();
    let mut seen = Seen::new();
    let mut frame = [0u8; HEAD];
    loop {
        let mut fds =
            [PollFd::new(packets.as_fd(), PollFlags::POLLIN), PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e).context("poll"),
        }
        let ended = fds[1].revents().is_some_and(|r| !r.is_empty());
        loop {
            match recvfrom::<LinkAddr>(packets.as_raw_fd(), &mut frame) {
                Ok((len, Some(from))) => {
                    let to_us = from.as_ref().sll_pkttype == PACKET_HOST;
                    let name = names.get(&from.ifindex()).filter(|name| *name != "lo");
                    if let (true, Some(name)) = (to_us, name)
                        && let Some(kind) = dissect(&frame[..len.min(HEAD)], name)
                    {
                        *seen.entry(kind).or_default() += 1;
                    }
                }
                Err(Errno::EAGAIN) => break,
                Ok(_) | Err(Errno::EINTR | Errno::ENETDOWN) => {}
                Err(e) => return Err(e).context("packet socket"),
            }
        }
        if ended && nix::unistd::read(&stdin, &mut [0; 64]).unwrap_or(0) == 0 {
            break;
        }
    }
    for (kind, packets) in seen {
        writeln!(out, "{}", serde_json::to_string(&Counted { kind, packets })?)?;
    }
    Ok(())
}

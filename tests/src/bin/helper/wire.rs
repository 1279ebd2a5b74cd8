//! Reads every frame of one interface, in both directions, until standard input ends, then prints what kinds there were.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket, sockopt,
};
use serde_json::json;

/// EtherTypes: MACsec, and the hellos of key-agents.
const MACSEC: [u8; 2] = [0x88, 0xe5];
const HELLO: [u8; 2] = [0x88, 0xb5];
/// The first bytes of all addresses of hosts, and of all routers of plane 1.
const ADDRESSES: [&[u8]; 2] = [&[0x20, 0x01, 0x0d, 0xb8, 0], &[0xfd, 0, 0, 1, 0, 0, 0, 0]];

/// Prints `{"encrypted":…,"hellos":…,"other":…,"readable":…}`; the last counts frames in which an address of the lab stands.
pub fn run(interface: &str) -> anyhow::Result<()> {
    let index = nix::net::if_::if_nametoindex(interface).with_context(|| interface.to_owned())?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let packets =
        socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).context("packet socket")?;
    let _ = setsockopt(&packets, sockopt::RcvBufForce, &(8 << 20));
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    let stdin = std::io::stdin();
    let mut frame = vec![0u8; 16 * 1024];
    let [mut encrypted, mut hellos, mut other, mut readable] = [0_u64; 4];
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
                Ok((length, Some(from))) if u32::try_from(from.ifindex()) == Ok(index) => {
                    let frame = &frame[..length];
                    match frame.get(12..14) {
                        Some(kind) if kind == MACSEC => encrypted += 1,
                        Some(kind) if kind == HELLO => hellos += 1,
                        _ => other += 1,
                    }
                    let shows = |address: &&[u8]| frame.windows(address.len()).any(|bytes| bytes == *address);
                    readable += u64::from(ADDRESSES.iter().any(shows));
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
    let seen = json!({"encrypted": encrypted, "hellos": hellos, "other": other, "readable": readable});
    writeln!(out, "{seen}")?;
    Ok(())
}

//! Makes the guest's kernel patch its own code while nothing else runs.
//!
//! The kernel switches rarely used paths on by rewriting a few bytes of running code ("static keys"): the first packet
//! filter, the first socket that wants arrival times, the first use of each hash secret. Under QEMU's translator (seen with
//! 7.2) another processor can come to run such an instruction in its half-written state, and the guest dies of
//! `Oops: int3`. That was seen twice in some eighty labs: half a second into the boot, and while the agents started
//! together. So an emulated guest boots with one processor, has the switches thrown that a lab throws (of twelve that used
//! to be thrown under load, two are left), and starts the other processors then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::{fs, io};

use nix::sys::socket::{setsockopt, sockopt};
use rtnl::{Socket, nft, socket, tc};

use super::ifconfig;

/// Interface index of `lo`.
const LO: u32 = 1;

/// Uses everything once that a lab uses. What cannot be used is left to the lab, which says better what is wrong.
pub fn up() {
    let mut failed = Vec::new();
    let mut tell = |what: &str, result: Result<(), String>| {
        if let Err(why) = result {
            failed.push(format!("{what}: {why}"));
        }
    };
    tell("lo", ifconfig::up("lo").map_err(|e| format!("{e:#}")));
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        tell("sockets", sockets(address).map_err(|e| e.to_string()));
    }
    tell("queues", queues().map_err(|e| e.to_string()));
    tell("counters", nft::Counters::open("testbed").map(drop).map_err(|e| e.to_string()));
    if !failed.is_empty() {
        tracing::debug!("not tried before the lab: {}", failed.join("; "));
    }
}

/// Starts the processors that the kernel was told not to start by itself.
pub fn processors() {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu") else { return };
    for path in entries.flatten().map(|entry| entry.path().join("online")) {
        // the first processor has no such file, and one that runs already stays as it is
        if fs::read(&path).is_ok_and(|state| state.starts_with(b"0"))
            && let Err(e) = fs::write(&path, "1")
        {
            tracing::warn!("{}: {e}; this processor stays idle", path.display());
        }
    }
}

/// Secrets of TCP, UDP and flow hashes; arrival times.
fn sockets(address: IpAddr) -> io::Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    drop((listener.accept()?, stream));
    let receiver = UdpSocket::bind((address, 0))?;
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
    let sender = UdpSocket::bind((address, 0))?;
    sender.connect(receiver.local_addr()?)?;
    sender.send(b"warm")?;
    receiver.recv(&mut [0; 8])?;
    // kept open for good: with the last such socket the switch would go back
    std::mem::forget(receiver);
    Ok(())
}

/// A classifying queue, kept for the same reason; on `lo` of a namespace that has no traffic but ours.
fn queues() -> Result<(), rtnl::KernelError> {
    let mut socket = Socket::open(socket::ROUTE)?;
    let root = tc::handle(1, 0);
    socket.request(&tc::prio(LO, tc::ROOT, root, &tc::Prio::last_by_default(4)))?;
    let program = tc::classify::program(&tc::classify::Classes::backbone(1));
    socket.request(&tc::bpf_filter(LO, root, &program))
}

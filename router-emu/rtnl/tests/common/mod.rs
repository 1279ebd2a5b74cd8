//! What the tests on the real kernel share: two joined namespaces, skipped with a printed reason where the caller
//! may not make any.

#![allow(dead_code, clippy::unwrap_used, clippy::missing_panics_doc)] // each test program uses a part of it

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, OwnedFd};

use ipnet::Ipv6Net;
use rtnl::{Socket, link, netns, socket, sysctl};

/// Two namespaces joined by a veth pair (`left` 1001, `right` 1002), both ends up, and a socket in the first.
pub struct Pair {
    pub left: OwnedFd,
    pub right: OwnedFd,
    pub socket: Socket,
}

pub const LEFT_MAC: [u8; 6] = [0x02, 0xeb, 0, 0, 0x03, 0xe9];
pub const RIGHT_MAC: [u8; 6] = [0x02, 0xeb, 0, 0, 0x03, 0xea];

pub fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

/// Makes the pair, or says why the test is skipped.
pub fn pair() -> Option<Pair> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: making namespaces needs root");
        return None;
    }
    let (left, right) = (netns::create().unwrap(), netns::create().unwrap());
    for namespace in [&left, &right] {
        let settings = [
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv6.conf.all.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.keep_addr_on_down", "1"),
            ("net.ipv6.conf.all.keep_addr_on_down", "1"),
        ];
        for result in sysctl::write(namespace.as_fd(), &settings).unwrap() {
            result.unwrap();
        }
    }
    let a = link::LinkEnd { netns: left.as_fd(), name: "left", ifindex: 1001, mac: LEFT_MAC, mtu: 9216 };
    let b = link::LinkEnd { netns: right.as_fd(), name: "right", ifindex: 1002, mac: RIGHT_MAC, mtu: 9216 };
    Socket::open(socket::ROUTE).unwrap().request(&link::create_veth(&a, &b)).unwrap();
    let mut socket = Socket::open_in(left.as_fd(), socket::ROUTE).unwrap();
    socket.all(&[link::set_up(1, true), link::set_up(1001, true)]).unwrap();
    let mut other = Socket::open_in(right.as_fd(), socket::ROUTE).unwrap();
    other.all(&[link::set_up(1, true), link::set_up(1002, true)]).unwrap();
    Some(Pair { left, right, socket })
}

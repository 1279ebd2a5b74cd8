//! The two interface settings that process 1 makes before any netlink code runs (netdevice(7)).

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

nix::ioctl_read_bad!(get_flags, libc::SIOCGIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_flags, libc::SIOCSIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_address, libc::SIOCSIFADDR, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_netmask, libc::SIOCSIFNETMASK, libc::ifreq);

/// Sets the interface up.
pub fn up(name: &str) -> Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut request = request(name)?;
    // SAFETY: the request is a valid ifreq that outlives the call, and the kernel fills the flags.
    // JUSTIFICATION: the ioctl interface; this runs before anything that speaks netlink.
    unsafe { get_flags(socket.as_raw_fd(), &raw mut request) }
        .with_context(|| format!("no interface {name}"))?;
    // SAFETY: the kernel has just filled this member.
    // JUSTIFICATION: ifreq is a union.
    unsafe { request.ifr_ifru.ifru_flags |= libc::c_short::try_from(libc::IFF_UP)? };
    // SAFETY: the request is a valid ifreq that outlives the call.
    // JUSTIFICATION: as above.
    unsafe { set_flags(socket.as_raw_fd(), &raw const request) }
        .with_context(|| format!("cannot set {name} up"))?;
    Ok(())
}

/// Gives the interface an IPv4 address.
pub fn address(name: &str, address: Ipv4Addr, mask: Ipv4Addr) -> Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let fd = socket.as_raw_fd();
    let with = |ip: Ipv4Addr| -> Result<libc::ifreq> {
        let mut request = request(name)?;
        let mut data = [0; 14];
        for (to, from) in data.iter_mut().zip([0, 0].into_iter().chain(ip.octets())) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let family = libc::sa_family_t::try_from(libc::AF_INET)?;
        request.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: family, sa_data: data };
        Ok(request)
    };
    let (own, net) = (with(address)?, with(mask)?);
    // SAFETY: both requests are valid ifreqs that outlive the calls.
    // JUSTIFICATION: the ioctl interface; this runs before anything that speaks netlink.
    unsafe {
        set_address(fd, &raw const own).with_context(|| format!("cannot give {name} {address}"))?;
        set_netmask(fd, &raw const net).with_context(|| format!("cannot give {name} the mask {mask}"))?;
    }
    Ok(())
}

fn request(name: &str) -> Result<libc::ifreq> {
    anyhow::ensure!(name.len() < libc::IFNAMSIZ, "interface name {name} is longer than the kernel allows");
    // SAFETY: ifreq is plain data for which all zeros is a valid value.
    // JUSTIFICATION: libc offers no other constructor.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

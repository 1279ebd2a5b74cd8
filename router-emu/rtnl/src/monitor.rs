//! Kernel events, decoded.
//!
//! The socket is non-blocking: wrap the descriptor (`AsRawFd`) in the runtime's readiness type and call
//! [`Monitor::try_recv`] until it returns nothing. Subscribe before taking a dump, so that nothing falls
//! between the two. After [`Event::Overrun`] events are missing: take the dump again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::sys::socket::{MsgFlags, recv};

use crate::addr::{self, AddressInfo};
use crate::link::{self, LinkInfo};
use crate::mpls::{self, LabelRoute};
use crate::nexthop::{self, Entry};
use crate::route::{self, Route};
use crate::{KernelError, netns, socket, wire};

/// What to be told about (`RTNLGRP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Links appear, change, go.
    Link,
    /// IPv6 addresses.
    Address6,
    /// IPv6 routes of all tables.
    Route6,
    /// MPLS label routes.
    Mpls,
    /// Nexthop objects; silent when the kernel deletes them with a link.
    Nexthop,
}

impl Group {
    /// The kernel's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Link => 1,
            Self::Address6 => 9,
            Self::Route6 => 11,
            Self::Mpls => 27,
            Self::Nexthop => 32,
        }
    }
}

/// A change in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link appeared or changed; its flags tell carrier (`lower_up`) and state.
    Link(LinkInfo),
    /// A link is gone.
    LinkDeleted(LinkInfo),
    /// An IPv6 address appeared or changed.
    Address6(AddressInfo),
    /// An IPv6 address is gone.
    Address6Deleted(AddressInfo),
    /// An IPv6 route appeared or was replaced.
    Route6(Route),
    /// An IPv6 route is gone.
    Route6Deleted(Route),
    /// A label route appeared or was replaced.
    Label(LabelRoute),
    /// A label route is gone.
    LabelDeleted(LabelRoute),
    /// A nexthop object or group appeared or was replaced.
    Nexthop(Entry),
    /// A nexthop object or group was deleted by somebody.
    NexthopDeleted(Entry),
    /// Events were lost because they came faster than they were read.
    Overrun,
}

/// A non-blocking subscription in one network namespace.
pub struct Monitor {
    inner: netlink_sys::Socket,
    buffer: Vec<u8>,
    ready: VecDeque<Event>,
}

impl Monitor {
    /// Subscribes in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses the socket or a group.
    pub fn open(groups: &[Group]) -> Result<Self, KernelError> {
        let doing = "subscribe to kernel events";
        let failed = |e: io::Error| KernelError::from_io(doing, &e);
        let inner = socket::open_raw(socket::ROUTE).map_err(failed)?;
        for group in groups {
            inner.add_membership(group.number()).map_err(failed)?;
        }
        inner.set_non_blocking(true).map_err(failed)?;
        Ok(Self { inner, buffer: vec![0; 64 * 1024], ready: VecDeque::new() })
    }

    /// Subscribes in another namespace, without moving the calling thread.
    ///
    /// # Errors
    /// When the namespace cannot be entered or the kernel refuses.
    pub fn open_in(namespace: BorrowedFd<'_>, groups: &[Group]) -> Result<Self, KernelError> {
        netns::enter(namespace, || Self::open(groups))?
    }

    /// The next event, or nothing if none is waiting.
    ///
    /// # Errors
    /// A failure of the socket; lost events are not an error but [`Event::Overrun`].
    pub fn try_recv(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match recv(self.inner.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    self.ready.extend(decode(self.buffer.get(..length).unwrap_or_default()));
                }
                Err(nix::errno::Errno::ENOBUFS) => return Ok(Some(Event::Overrun)),
                Err(nix::errno::Errno::EAGAIN) => return Ok(None),
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        socket::inner_fd(&self.inner)
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// Decodes the events in a datagram; messages of other kinds are left out.
pub fn decode(datagram: &[u8]) -> Vec<Event> {
    wire::messages(datagram).filter_map(|message| decode_one(message.kind, message.body)).collect()
}

/// Decodes one message.
fn decode_one(kind: u16, body: &[u8]) -> Option<Event> {
    Some(match kind {
        link::NEW => Event::Link(link::decode(body)?),
        link::DEL => Event::LinkDeleted(link::decode(body)?),
        addr::NEW => Event::Address6(addr::decode(body)?),
        addr::DEL => Event::Address6Deleted(addr::decode(body)?),
        route::NEW => match route::decode(body) {
            Some(route) => Event::Route6(route),
            None => Event::Label(mpls::decode(body)?),
        },
        route::DEL => match route::decode(body) {
            Some(route) => Event::Route6Deleted(route),
            None => Event::LabelDeleted(mpls::decode(body)?),
        },
        nexthop::NEW => Event::Nexthop(nexthop::decode(body)?),
        nexthop::DEL => Event::NexthopDeleted(nexthop::decode(body)?),
        wire::MSG_OVERRUN => Event::Overrun,
        _ => return None,
    })
}

//! What the core is told and what it wants done. The core itself touches neither sockets nor clocks.

use std::net::Ipv6Addr;
use std::rc::Rc;
use std::sync::Arc;

use super::drain::Drains;
use super::spf::RouteTable;
use crate::config::RouterConfig;
use crate::proto::Publication;

/// Number of a store session, given by whoever does the I/O; never used twice.
pub type SessionId = u64;

/// Something happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A deadline may have passed.
    Tick,
    /// An interface got or lost its carrier.
    Link {
        /// Interface.
        interface: String,
        /// Whether packets can pass.
        up: bool,
    },
    /// BFD has found that nothing passes on an interface, or takes it back.
    Silent {
        /// Interface.
        interface: String,
        /// Whether nothing passes.
        silent: bool,
    },
    /// Members of a bundle got or lost their carriers.
    Members {
        /// The bundle's interface.
        interface: String,
        /// How many have a carrier now.
        up: u16,
    },
    /// A discovery packet.
    Packet {
        /// Interface that it arrived on.
        interface: String,
        /// Link-local address of the sender.
        from: Ipv6Addr,
        /// When the kernel took it, monotonic nanoseconds.
        arrived: u64,
        /// The packet.
        bytes: Vec<u8>,
    },
    /// A discovery packet could not be sent.
    SendFailed {
        /// Interface.
        interface: String,
    },
    /// A connection that was asked for stands.
    Connected {
        /// Its session.
        session: SessionId,
        /// To whom.
        node: String,
        /// Over which interface.
        interface: String,
    },
    /// A connection that was asked for failed.
    ConnectFailed {
        /// To whom.
        node: String,
    },
    /// Somebody connected.
    Accepted {
        /// Its session.
        session: SessionId,
        /// Interface that it came by.
        interface: String,
    },
    /// A session ended.
    Closed {
        /// Which.
        session: SessionId,
    },
    /// Bytes of a session.
    Bytes {
        /// Which.
        session: SessionId,
        /// As they came.
        bytes: Vec<u8>,
    },
    /// The operator drains or undrains.
    SetDrain {
        /// Interface, empty for the router itself.
        interface: String,
        /// Hard drain.
        overloaded: bool,
        /// Soft drain.
        metric_increment: u32,
    },
    /// Another version of the configuration runs. What cannot change while the router runs is the same.
    Configure(Box<RouterConfig>),
    /// The program ends and means to return.
    Goodbye,
}

/// Something is to be done. In the order given: what other routers wait for comes first.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Multicast on an interface.
    Send(String, Vec<u8>),
    /// Write to a session.
    Write(SessionId, Rc<[u8]>),
    /// Connect to a neighbour's store.
    Connect {
        /// To whom.
        node: String,
        /// Over which interface.
        interface: String,
        /// Link-local address.
        address: Ipv6Addr,
        /// TCP port.
        port: u16,
    },
    /// End a session.
    Close(SessionId),
    /// Tell the subscribers.
    Publish(Publication),
    /// The shortest paths are these now.
    Routes(Arc<RouteTable>),
    /// Keep the drains over a restart.
    SaveDrains(Drains),
}

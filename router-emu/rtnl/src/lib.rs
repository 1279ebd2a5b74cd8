//! Routing netlink, pipelined: what the testbed and the router programs say to the kernel.
//!
//! In this room: sockets that send many messages at once and report each one's fate with the kernel's own
//! words ([`socket`]), the requests they carry and the dumps they bring back (links, addresses, neighbours,
//! IPv6 routes, MPLS label routes, nexthop objects, policy rules, queues, nftables counters, MACsec keys), an event
//! monitor, network namespaces and their sysctls. Messages that `netlink-packet-route` can encode are built
//! with its types; what it lacks (nexthop objects, queue options, DSCP rules, nftables rules) is encoded here.
//! Dumps are decoded here throughout, attribute by attribute, so that an attribute which a newer kernel adds or
//! shapes differently cannot break a read.
//!
//! Not in this room: any idea of a lab, a plan or an agent; asynchrony (callers wrap [`monitor::Monitor`] in
//! their runtime's descriptor type); forking `ip`, `tc` or `nft`.

pub mod addr;
mod error;
pub mod link;
pub mod macsec;
pub mod monitor;
pub mod mpls;
pub mod neigh;
pub mod netns;
pub mod nexthop;
pub mod nft;
mod request;
pub mod route;
pub mod rule;
pub mod socket;
pub mod sysctl;
pub mod tc;
pub mod wire;

pub use error::KernelError;
pub use request::{Mode, Request};
pub use socket::Socket;

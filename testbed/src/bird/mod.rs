//! BGP with BIRD 2: what a router's and an aggregator's BIRD is told, and a client for its control socket.
//!
//! In this room: the text of `bird.conf` and `drain.conf` as a pure function of the lab, the command line that
//! starts BIRD, the parser of BIRD's replies and an asynchronous client with a deadline on every call. Not in
//! this room: starting processes, writing files, kernel routes of anyone but BIRD (host prefixes on an aggregator
//! are the orchestrator's static routes), and the decision when a plane may be drained.
//!
//! Who tells whom what:
//!
//! ```text
//!  aggregator fa.S (AS 65100+S)                      router ebPP.S (AS 64600+P)           other routers of plane P
//!  ── own 2001:db8:S::/48 ───────── eBGP ──────────►  ── DC prefixes, next hop self ─ iBGP ─►
//!  ◄── DC prefixes of other sites, fd00:P::/64 ─────  ◄─────────────────────────────────────
//!  main: ECMP over the planes                        main: own site's prefix; table 200: the others over the
//!                                                    IGP; table 1000+site: the same, sorted by egress router
//! ```

pub mod control;
pub mod drain;
pub mod render;
pub mod reply;

#[cfg(test)]
mod native;

pub use control::{Control, ControlError, Reload, Reloaded, TableCount};
pub use drain::Drain;
pub use render::{BirdFiles, RenderError, command_line, render};
pub use reply::{Protocol, Reply, ReplyLine, ReplyParser};

/// AS number of the routers of a plane is this plus the plane's number.
pub const PLANE_AS: u32 = 64_600;
/// AS number of a site's aggregator is this plus the site id.
pub const SITE_AS: u32 = 65_100;
/// Name of the main configuration file in `/run/testbed/<node>/`.
pub const CONF_FILE: &str = "bird.conf";
/// Name of the file beside it that holds nothing but the drain state.
pub const DRAIN_FILE: &str = "drain.conf";
/// Name of the control socket beside it.
pub const SOCKET_FILE: &str = "bird.ctl";

//! How the command line talks to a lab's supervisor.
//!
//! In this room: the frames, the requests and replies, the client, the server's accept loop. Not in this room:
//! what a request does (that is `supervise`).
//!
//! One connection carries one request. The client sends `Call` (token and request), then possibly input; the
//! server answers with any number of frames and closes after `Done` or `Failed`. Closing early cancels.

pub mod client;
pub mod configuration;
pub mod faults;
pub mod frame;
pub mod protocol;
pub mod server;

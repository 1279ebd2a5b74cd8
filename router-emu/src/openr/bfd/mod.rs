//! Bidirectional forwarding detection on the backbone links: finds links that lose everything with the carrier up.
//!
//! In this room: the packets ([`packet`]), one session as a value without sockets or clocks ([`session`]), all sessions of a
//! router ([`table`]), the sockets ([`wire`]) and all that together for the reflex thread ([`driver`]). RFC 5880 in
//! asynchronous mode, RFC 5881 for one hop. Not in this room: what follows from a verdict (the reflex, discovery).
//!
//! # A dead program is not a dead link
//!
//! These sessions live in openr, and die with it, while the router forwards on. Neighbours must then keep the link (graceful
//! restart). On SIGTERM a session says `AdminDown`. After SIGKILL it says nothing; but the dead program's *kernel* does:
//! it closes the sockets, and answers the neighbour's next packet with an ICMPv6 "port unreachable" from the other end of the
//! link. That answer proves more than a BFD packet would: both directions work, the kernel that forwards is alive, only
//! nobody speaks BFD. A wire that swallows packets swallows the answers, too. So silence together with that answer is no
//! failure, and silence without it is one. A program that returned before anybody missed it is known by its new
//! discriminator.
//!
//! A process of its own for BFD would only have moved the question: it can be killed as well. Its C bit would then be set
//! and the same answer would be needed. Hence one process less, and a rule that holds for every BFD that runs over a
//! kernel's UDP. The answers are rate-limited by the kernel that gives them (six at once, then one in a quarter of a second or slower), which is
//! ample: one within the detection time is enough. With a multiplier below 3 there may be no packet of ours in that time
//! for it to answer, and a killed openr costs its links; a *stopped* openr (SIGSTOP) does so always, its sockets are open.
//!
//! # When a verdict counts
//!
//! Only a session that was Up and is no longer holds down its link, until it is Up again, or until BFD can no longer tell
//! ([`session::Verdict::Unknown`]), or until the carrier has gone and come. A neighbour that never speaks BFD is left to
//! discovery's own timers (RFC 5882, section 4.1, with the adjacency formed before the session is Up).

pub mod driver;
pub mod packet;
pub mod session;
pub mod table;
pub mod wire;

#[cfg(test)]
mod channel_tests;
#[cfg(test)]
mod session_tests;

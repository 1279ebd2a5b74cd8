//! The key-agent: keys of the router's encrypted circuits (MACsec, IEEE 802.1AE), agreed with the neighbour and changed
//! without a lost frame.
//!
//! In this room: what is derived from the key that both ends of a circuit were given ([`kdf`]), the file of those
//! ([`keys`]), the one frame that the ends exchange ([`hello`]), the agreement of one circuit ([`circuit`], a value that is
//! told what was heard and what time it is), and the program around it. Not in this room: the interfaces themselves,
//! which are there without a key before the agent starts, and who gives out the keys of circuits.
//!
//! Each end chooses the keys with which it sends. A key is offered; the other end adds it to those that it takes and says
//! so; only then it is sent with, and a second later the other end forgets the one before. All state is the kernel's: an
//! agent that was killed reads back which keys are there, and goes on.
//!
//! It does less than MKA (IEEE 802.1X, clause 9), and is not it on the wire: two members a circuit, no key server, and no key
//! travels, because both ends derive it from the name that its sender gave it. What it takes from there are the derivation
//! of keys (6.2.1), the check value of every frame, and that a frame counts only if it names a recent one of our own.

pub mod agent;
pub mod circuit;
pub mod hello;
pub mod kdf;
pub mod keys;
mod port;
mod service;
#[cfg(test)]
mod tests;

//! Queues: shaping (TBF), strict priority (prio), queues (pfifo), delay and loss (netem), and the classifier
//! that finds a packet's class behind its labels ([`classify`]).
//!
//! The option encodings follow the kernel's `include/uapi/linux/pkt_sched.h`. Rates are bits per second here and
//! bytes per second on the wire; times are nanoseconds here and, where the kernel wants them, ticks of 64 ns.

pub mod classify;
mod options;
mod stats;

pub use options::{Netem, Prio, Tbf};
pub use stats::{Details, QdiscInfo, Stats, decode, dump};

use crate::wire::Attrs;
use crate::{Mode, Request};

/// `RTM_NEWQDISC`.
pub const NEW_QDISC: u16 = 36;
/// `RTM_DELQDISC`.
pub const DEL_QDISC: u16 = 37;
/// `RTM_GETQDISC`.
pub const GET_QDISC: u16 = 38;
/// `RTM_NEWTFILTER`.
pub const NEW_FILTER: u16 = 44;

/// Parent of a device's outermost queue (`TC_H_ROOT`).
pub const ROOT: u32 = 0xffff_ffff;

/// Length of `struct tcmsg`.
pub(crate) const HEADER: usize = 20;
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_NAME: u16 = 7;
/// `ETH_P_ALL`.
const ETH_P_ALL: u16 = 3;

/// A handle or class id from its two halves: `handle(2, 1)` is `2:1`, and `handle(2, 0)` is `2:`.
pub const fn handle(major: u16, minor: u16) -> u32 {
    // Widening; `From` is not const.
    ((major as u32) << 16) | minor as u32
}

/// How an error names a handle.
fn name(id: u32) -> String {
    if id == ROOT { "root".to_owned() } else { format!("{:x}:{:x}", id >> 16, id & 0xffff) }
}

/// `struct tcmsg`.
fn header(ifindex: u32, handle: u32, parent: u32, info: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (i, word) in [ifindex, handle, parent, info].into_iter().enumerate() {
        bytes[4 + 4 * i..8 + 4 * i].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Creates or replaces a queue of any kind, with options already encoded.
pub fn replace(ifindex: u32, parent: u32, handle: u32, kind: &str, options: &[u8]) -> Request {
    let mut body = Attrs::after(&header(ifindex, handle, parent, 0));
    body.str(TCA_KIND, kind).put(TCA_OPTIONS, options);
    let doing = format!("put a {kind} queue on link {ifindex} at {}", name(parent));
    Request::new(NEW_QDISC, Mode::Replace.flags(), body.as_bytes(), doing)
}

/// Token bucket: never sends faster than a rate, nor a burst above its size.
pub fn tbf(ifindex: u32, parent: u32, handle: u32, tbf: &Tbf) -> Request {
    replace(ifindex, parent, handle, "tbf", &tbf.encode())
}

/// Strict priority among bands; band 1 first. Class ids of the bands are `handle + 1` and up.
pub fn prio(ifindex: u32, parent: u32, handle: u32, prio: &Prio) -> Request {
    replace(ifindex, parent, handle, "prio", &prio.encode())
}

/// A first-in-first-out queue of so many packets.
pub fn pfifo(ifindex: u32, parent: u32, handle: u32, packets: u32) -> Request {
    replace(ifindex, parent, handle, "pfifo", &packets.to_ne_bytes())
}

/// Delay, jitter, loss, rate. A child queue gets packets after their delay.
pub fn netem(ifindex: u32, parent: u32, handle: u32, netem: &Netem) -> Request {
    replace(ifindex, parent, handle, "netem", &netem.encode())
}

/// Removes a queue and everything beneath it; at [`ROOT`] the device gets its default back.
pub fn delete(ifindex: u32, parent: u32) -> Request {
    let body = header(ifindex, 0, parent, 0);
    Request::new(DEL_QDISC, 0, &body, format!("remove the queue of link {ifindex} at {}", name(parent)))
}

/// Attaches a classic-BPF classifier for all protocols to a classful queue; the program's return value is the
/// class id.
pub fn bpf_filter(ifindex: u32, parent: u32, program: &[classify::Instruction]) -> Request {
    let priority = 1u32 << 16;
    let info = priority | u32::from(ETH_P_ALL.to_be());
    let mut body = Attrs::after(&header(ifindex, 1, parent, info));
    body.str(TCA_KIND, "bpf");
    body.nest_plain(TCA_OPTIONS, |options| {
        let bytes: Vec<u8> = program.iter().flat_map(classify::Instruction::encode).collect();
        options.u16(TCA_BPF_OPS_LEN, u16::try_from(program.len()).unwrap_or(u16::MAX));
        options.put(TCA_BPF_OPS, &bytes);
        options.str(TCA_BPF_NAME, "class-by-dscp");
    });
    let doing = format!("attach the classifier to link {ifindex} at {}", name(parent));
    Request::new(NEW_FILTER, Mode::Replace.flags(), body.as_bytes(), doing)
}

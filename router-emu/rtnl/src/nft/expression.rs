//! The expressions of a counting rule, in nftables' register language.

use super::filter::{Filter, Verdict};
use super::{CounterRule, mask};
use crate::wire::{self, Attrs};

/// The register that everything goes through (`NFT_REG_1`, 16 bytes).
const REGISTER: u32 = 1;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
/// Length of an interface name in the kernel, zeros included.
const NAME_LENGTH: usize = 16;
/// `NFT_META_IIFNAME`.
const META_IIFNAME: u32 = 6;
/// `NFT_PAYLOAD_NETWORK_HEADER`.
const NETWORK_HEADER: u32 = 1;
/// Offset and length of the destination in an IPv6 header.
const DESTINATION: (u32, u32) = (24, 16);
/// Offset and length of the first half of version, class and flow label.
const CLASS: (u32, u32) = (0, 2);
/// The DSCP in those two bytes.
const DSCP_MASK: u16 = 0x0fc0;
/// Bits to its right.
const DSCP_SHIFT: u16 = 6;
/// Offset and length of the source in an IPv6 header.
const SOURCE: (u32, u32) = (8, 16);
/// `NFT_PAYLOAD_TRANSPORT_HEADER`.
const TRANSPORT_HEADER: u32 = 2;
/// Length of a TCP port.
const PORT_LENGTH: u32 = 2;
/// `NFT_META_PRIORITY`, `NFT_META_NFPROTO`, `NFT_META_L4PROTO`.
const META_PRIORITY: u32 = 2;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
/// `NFPROTO_IPV6` and `IPPROTO_TCP`.
const IPV6: u8 = 10;
const TCP: u8 = 6;
/// `NFT_REG_VERDICT`, `NF_DROP`, `NFT_REJECT_TCP_RST`.
const VERDICT_REGISTER: u32 = 0;
const DROP: u32 = 0;
const TCP_RESET: u32 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;

/// Writes the expressions of a rule as list elements.
pub fn write(list: &mut Attrs, rule: &CounterRule) {
    if let Some(iif) = &rule.iif {
        let mut name: Vec<u8> = iif.bytes().take(NAME_LENGTH - 1).collect();
        name.resize(NAME_LENGTH, 0);
        element(list, "meta", |meta| {
            meta.be32(1, REGISTER).be32(2, META_IIFNAME);
        });
        equals(list, &name);
    }
    if let Some(prefix) = rule.dst.as_ref().filter(|p| p.prefix_len() > 0) {
        payload(list, DESTINATION);
        if prefix.prefix_len() < 128 {
            and(list, &mask(prefix).octets());
        }
        equals(list, &prefix.network().octets());
    }
    if let Some(range) = &rule.dscp {
        let field = |dscp: u8| (u16::from(dscp & 0x3f) << DSCP_SHIFT).to_be_bytes();
        payload(list, CLASS);
        and(list, &DSCP_MASK.to_be_bytes());
        element(list, "range", |e| {
            e.be32(1, REGISTER).be32(2, 0);
            e.nest(3, |from| {
                from.put(DATA_VALUE, &field(*range.start()));
            });
            e.nest(4, |to| {
                to.put(DATA_VALUE, &field(*range.end()));
            });
        });
    }
    element(list, "counter", |e| {
        e.be64(COUNTER_BYTES, 0).be64(COUNTER_PACKETS, 0);
    });
}

/// Which packets of a connection a filter's rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// Those that leave.
    Leaving,
    /// The answers.
    Returning,
}

/// Writes the expressions of a filter as list elements.
pub fn filter(list: &mut Attrs, filter: &Filter, way: Filtered) {
    for (key, value) in [(META_FAMILY, IPV6), (META_PROTOCOL, TCP)] {
        element(list, "meta", |meta| {
            meta.be32(1, REGISTER).be32(2, key);
        });
        equals(list, &[value]);
    }
    // the destination port stands behind the source port
    let (address, port) = if way == Filtered::Leaving { (DESTINATION, PORT_LENGTH) } else { (SOURCE, 0) };
    payload(list, address);
    equals(list, &filter.to.octets());
    element(list, "payload", |e| {
        e.be32(1, REGISTER).be32(2, TRANSPORT_HEADER).be32(3, port).be32(4, PORT_LENGTH);
    });
    equals(list, &filter.port.to_be_bytes());
    match filter.verdict {
        Verdict::Drop => immediate(list, VERDICT_REGISTER, |data| {
            data.nest(DATA_VERDICT, |verdict| {
                verdict.be32(VERDICT_CODE, DROP);
            });
        }),
        Verdict::Reset => element(list, "reject", |e| {
            e.be32(1, TCP_RESET);
        }),
        Verdict::Priority(class) => {
            immediate(list, REGISTER, |data| {
                data.put(DATA_VALUE, &class.to_ne_bytes());
            });
            element(list, "meta", |meta| {
                meta.be32(2, META_PRIORITY).be32(3, REGISTER);
            });
        }
    }
}

/// Loads a constant.
fn immediate(list: &mut Attrs, register: u32, data: impl FnOnce(&mut Attrs)) {
    element(list, "immediate", |e| {
        e.be32(1, register);
        e.nest(2, data);
    });
}

/// One expression.
fn element(list: &mut Attrs, name: &str, data: impl FnOnce(&mut Attrs)) {
    list.nest(LIST_ELEMENT, |element| {
        element.str(EXPRESSION_NAME, name);
        element.nest(EXPRESSION_DATA, data);
    });
}

/// Loads part of the network header.
fn payload(list: &mut Attrs, (offset, length): (u32, u32)) {
    element(list, "payload", |e| {
        e.be32(1, REGISTER).be32(2, NETWORK_HEADER).be32(3, offset).be32(4, length);
    });
}

/// Keeps the bits of a mask.
fn and(list: &mut Attrs, mask: &[u8]) {
    element(list, "bitwise", |e| {
        e.be32(1, REGISTER).be32(2, REGISTER).be32(3, u32::try_from(mask.len()).unwrap_or_default());
        e.nest(4, |value| {
            value.put(DATA_VALUE, mask);
        });
        e.nest(5, |xor| {
            xor.put(DATA_VALUE, &vec![0; mask.len()]);
        });
    });
}

/// Goes on only if the register equals a value.
fn equals(list: &mut Attrs, value: &[u8]) {
    element(list, "cmp", |e| {
        e.be32(1, REGISTER).be32(2, 0);
        e.nest(3, |data| {
            data.put(DATA_VALUE, value);
        });
    });
}

/// Packets and bytes of the first counter in a rule's expressions.
pub fn counter(expressions: &[u8]) -> Option<(u64, u64)> {
    let elements = wire::attrs(expressions).filter(|(kind, _)| *kind == LIST_ELEMENT);
    let mut counters = elements.filter_map(|(_, element)| {
        let fields = wire::attrs(element);
        let name = wire::text(wire::find(fields, EXPRESSION_NAME)?);
        let data = wire::attrs(wire::find(fields, EXPRESSION_DATA).filter(|_| name == "counter")?);
        let packets = wire::be64_at(wire::find(data, COUNTER_PACKETS)?, 0)?;
        Some((packets, wire::be64_at(wire::find(data, COUNTER_BYTES)?, 0)?))
    });
    counters.next()
}

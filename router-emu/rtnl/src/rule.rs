//! IPv6 policy rules, including classification by DSCP with a mask (`FRA_DSCP`, `FRA_DSCP_MASK`).

use std::ops::RangeInclusive;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::wire;
use crate::{KernelError, Mode, Request, Socket};

/// `RTM_NEWRULE`.
pub const NEW: u16 = 32;
/// `RTM_DELRULE`.
pub const DEL: u16 = 33;
/// `RTM_GETRULE`.
pub const GET: u16 = 34;

/// Length of `struct fib_rule_hdr`.
const HEADER: usize = 12;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PROTOCOL: u16 = 21;
const FRA_DSCP: u16 = 25;
const FRA_DSCP_MASK: u16 = 30;
/// All six bits of a code point.
const FULL_DSCP: u8 = 0x3f;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;

/// A rule that sends matching packets to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Priority; lower is asked first.
    pub priority: u32,
    /// Table to look in.
    pub table: u32,
    /// Who installed it (`RTPROT_*`).
    pub protocol: u8,
    /// Name of the interface the packet came in by.
    pub iif: Option<String>,
    /// Value and mask of the DSCP, six bits each (the mask needs Linux 6.14 or newer; a full mask does not).
    pub dscp: Option<(u8, u8)>,
    /// Value and mask of the packet mark.
    pub fwmark: Option<(u32, u32)>,
}

/// Adds a rule; EEXIST if the same one is there.
pub fn add(rule: &Rule) -> Request {
    let doing = format!("add rule {} to table {}", rule.priority, rule.table);
    Request::typed(&RouteNetlinkMessage::NewRule(message(rule)), Mode::Create, doing)
}

/// Deletes the rule; everything given must match.
pub fn delete(rule: &Rule) -> Request {
    let doing = format!("delete rule {} to table {}", rule.priority, rule.table);
    Request::typed(&RouteNetlinkMessage::DelRule(message(rule)), Mode::Change, doing)
}

/// The typed message.
fn message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.action = RuleAction::ToTable;
    message.header.table = u8::try_from(rule.table).unwrap_or_default();
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(RouteProtocol::from(rule.protocol)),
    ];
    if let Some(iif) = &rule.iif {
        message.attributes.push(RuleAttribute::Iifname(iif.clone()));
    }
    if let Some((mark, mask)) = rule.fwmark {
        message.attributes.push(RuleAttribute::FwMark(mark));
        message.attributes.push(RuleAttribute::FwMask(mask));
    }
    if let Some((value, mask)) = rule.dscp {
        message.attributes.push(RuleAttribute::Other(DefaultNla::new(FRA_DSCP, vec![value])));
        // Left out when full, so that kernels without the mask can still match one code point.
        if mask != FULL_DSCP {
            message.attributes.push(RuleAttribute::Other(DefaultNla::new(FRA_DSCP_MASK, vec![mask])));
        }
    }
    message
}

/// Decodes the body of `RTM_NEWRULE`; nothing for other families than IPv6 and other actions than a table.
pub fn decode(body: &[u8]) -> Option<Rule> {
    if i32::from(*body.first()?) != libc::AF_INET6 || *body.get(7)? != TO_TABLE {
        return None;
    }
    let mut rule = Rule { table: u32::from(*body.get(4)?), ..Rule::default() };
    let (mut dscp, mut dscp_mask) = (None, FULL_DSCP);
    let (mut mark, mut mark_mask) = (None, u32::MAX);
    for (kind, value) in wire::attrs_after(body, HEADER) {
        match kind {
            FRA_IIFNAME => rule.iif = Some(wire::text(value)),
            FRA_PRIORITY => rule.priority = wire::u32_at(value, 0)?,
            FRA_FWMARK => mark = wire::u32_at(value, 0),
            FRA_FWMASK => mark_mask = wire::u32_at(value, 0)?,
            FRA_TABLE => rule.table = wire::u32_at(value, 0)?,
            FRA_PROTOCOL => rule.protocol = *value.first()?,
            FRA_DSCP => dscp = value.first().copied(),
            FRA_DSCP_MASK => dscp_mask = *value.first()?,
            _ => {}
        }
    }
    rule.dscp = dscp.map(|value| (value, dscp_mask));
    rule.fwmark = mark.map(|mark| (mark, mark_mask)).filter(|(mark, mask)| *mark != 0 || *mask != 0);
    Some(rule)
}

/// Reads all IPv6 rules to tables, by priority.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn dump(socket: &mut Socket) -> Result<Vec<Rule>, KernelError> {
    let mut header = [0; HEADER];
    header[0] = 10; // AF_INET6
    let mut rules = socket.dump(&Request::dump(GET, &header, "list IPv6 rules"), |m| decode(m.body))?;
    rules.sort();
    Ok(rules)
}

/// The fewest (value, mask) pairs that together match exactly a range of code points, ascending. Code points
/// above 63 do not exist and are left out.
pub fn dscp_masks(range: RangeInclusive<u8>) -> Vec<(u8, u8)> {
    let (mut next, last) = (*range.start(), (*range.end()).min(FULL_DSCP));
    let mut pairs = Vec::new();
    while next <= last {
        // The largest aligned block that starts here and does not reach past the end.
        let mut size = 1;
        while size < 64 && next % (size * 2) == 0 && next + (size * 2 - 1) <= last {
            size *= 2;
        }
        pairs.push((next, FULL_DSCP & !(size - 1)));
        next += size;
    }
    pairs
}

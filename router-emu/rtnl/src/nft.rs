//! Traffic counters by nftables: a table of ours with one forward chain of counting rules.
//!
//! A rule counts packets that come in by an interface, go to a prefix and carry a DSCP of a range, and carries a
//! tag by which its owner finds it again (`nft list ruleset` shows it as a comment). Counting rules pass every
//! packet on. Changes are transactions: all of a call's changes happen, or none.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use ipnet::Ipv6Net;

use crate::wire::{self, Attrs};
use crate::{KernelError, Request, Socket, socket};

mod expression;
pub mod filter;

/// nftables' part of netfilter's message types.
const SUBSYSTEM: u16 = 10;
/// Start of a transaction.
const BATCH_BEGIN: u16 = 0x10;
/// End of a transaction.
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = 0;
const DEL_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DEL_RULE: u16 = 8;
/// `NFPROTO_IPV6`: tables of IPv6 packets.
const FAMILY: u8 = 10;
/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
/// `NF_INET_FORWARD`.
const FORWARD: u32 = 2;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;
/// User data that the `nft` program shows as a comment.
const USERDATA_COMMENT: u8 = 0;
/// Longest comment, its terminating zero included.
const MAX_COMMENT: usize = 128;
/// Name of the one chain.
const CHAIN: &str = "forward";

/// What a rule counts; `None` matches anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CounterRule {
    /// Name of the interface by which packets come in.
    pub iif: Option<String>,
    /// Destination.
    pub dst: Option<Ipv6Net>,
    /// Code points, 0 to 63.
    pub dscp: Option<RangeInclusive<u8>>,
    /// By which the owner finds the counter again; at most 127 bytes.
    pub tag: String,
}

/// A counter as read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// The rule's handle.
    pub handle: u64,
    /// The rule's tag.
    pub tag: String,
    /// Packets since the rule was made.
    pub packets: u64,
    /// Bytes of IPv6 since the rule was made.
    pub bytes: u64,
}

/// One change of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Append a rule; its counter starts at zero.
    Add(CounterRule),
    /// Remove the rule of this handle.
    Delete(u64),
}

/// Our table in one namespace.
pub struct Counters {
    socket: Socket,
    table: String,
}

impl Counters {
    /// Opens the counters of the calling thread's namespace and makes the table and its chain if they are not
    /// there; what they hold already stays.
    ///
    /// # Errors
    /// When the kernel has no nftables or refuses.
    pub fn open(table: &str) -> Result<Self, KernelError> {
        let mut counters = Self { socket: Socket::open(socket::NETFILTER)?, table: table.to_owned() };
        let ensure = counters.ensure_requests();
        transaction(&mut counters.socket, &ensure)?;
        Ok(counters)
    }

    /// Opens the counters of another namespace, without moving the calling thread.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or as [`Self::open`].
    pub fn open_in(namespace: BorrowedFd<'_>, table: &str) -> Result<Self, KernelError> {
        crate::netns::enter(namespace, || Self::open(table))?
    }

    /// Carries out changes, all or none. Counters of rules that are not named keep counting.
    ///
    /// # Errors
    /// The first refusal; then nothing has changed.
    pub fn change(&mut self, changes: &[Change]) -> Result<(), KernelError> {
        let requests: Vec<Request> = changes.iter().map(|change| self.change_request(change)).collect();
        transaction(&mut self.socket, &requests)
    }

    /// Replaces all rules at once; every counter starts at zero. Prefer [`Self::converge`], which keeps counts.
    ///
    /// # Errors
    /// The first refusal; then nothing has changed.
    pub fn replace(&mut self, rules: &[CounterRule]) -> Result<(), KernelError> {
        let flush = Request::new(kind(DEL_RULE), 0, self.rule_body().as_bytes(), "remove all counting rules");
        let mut requests = vec![flush];
        requests.extend(rules.iter().map(|rule| self.change_request(&Change::Add(rule.clone()))));
        transaction(&mut self.socket, &requests)
    }

    /// Brings the rules to the wanted set by tag: missing ones are added, others removed, rules whose tag is
    /// wanted stay with their counts. Two rules that count different things need different tags.
    ///
    /// # Errors
    /// The first refusal; then nothing has changed.
    pub fn converge(&mut self, rules: &[CounterRule]) -> Result<(), KernelError> {
        let mut wanted: BTreeMap<&str, &CounterRule> = rules.iter().map(|r| (r.tag.as_str(), r)).collect();
        let mut changes = Vec::new();
        for counter in self.read()? {
            if wanted.remove(counter.tag.as_str()).is_none() {
                changes.push(Change::Delete(counter.handle));
            }
        }
        changes.extend(wanted.into_values().cloned().map(Change::Add));
        if changes.is_empty() { Ok(()) } else { self.change(&changes) }
    }

    /// Reads all counters, in the order of the rules.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn read(&mut self) -> Result<Vec<Counter>, KernelError> {
        let request = Request::dump(kind(GET_RULE), self.rule_body().as_bytes(), "read traffic counters");
        self.socket.dump(&request, |m| if m.kind == kind(NEW_RULE) { decode(m.body) } else { None })
    }

    /// Removes the table with everything in it.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn remove(mut self) -> Result<(), KernelError> {
        let mut body = Attrs::after(&[FAMILY, 0, 0, 0]);
        body.str(TABLE_NAME, &self.table);
        let request = Request::new(kind(DEL_TABLE), 0, body.as_bytes(), "remove the counter table");
        transaction(&mut self.socket, &[request])
    }

    /// Table and chain, created if missing.
    fn ensure_requests(&self) -> [Request; 2] {
        let mut table = Attrs::after(&[FAMILY, 0, 0, 0]);
        table.str(TABLE_NAME, &self.table);
        let mut chain = Attrs::after(&[FAMILY, 0, 0, 0]);
        chain.str(CHAIN_TABLE, &self.table).str(CHAIN_NAME, CHAIN);
        chain.nest(CHAIN_HOOK, |hook| {
            hook.be32(HOOK_NUMBER, FORWARD).be32(HOOK_PRIORITY, 0);
        });
        chain.be32(CHAIN_POLICY, ACCEPT).str(CHAIN_TYPE, "filter");
        [
            Request::new(
                kind(NEW_TABLE),
                wire::F_CREATE,
                table.as_bytes(),
                format!("make table {}", self.table),
            ),
            Request::new(kind(NEW_CHAIN), wire::F_CREATE, chain.as_bytes(), format!("make chain {CHAIN}")),
        ]
    }

    /// Header, table and chain of a message about rules.
    fn rule_body(&self) -> Attrs {
        let mut body = Attrs::after(&[FAMILY, 0, 0, 0]);
        body.str(RULE_TABLE, &self.table).str(RULE_CHAIN, CHAIN);
        body
    }

    /// The message of a change.
    fn change_request(&self, change: &Change) -> Request {
        let mut body = self.rule_body();
        match change {
            Change::Add(rule) => {
                body.nest(RULE_EXPRESSIONS, |list| expression::write(list, rule));
                body.put(RULE_USERDATA, &comment(&rule.tag));
                let flags = wire::F_CREATE | wire::F_APPEND;
                Request::new(
                    kind(NEW_RULE),
                    flags,
                    body.as_bytes(),
                    format!("add counting rule {}", rule.tag),
                )
            }
            Change::Delete(handle) => {
                body.be64(RULE_HANDLE, *handle);
                Request::new(kind(DEL_RULE), 0, body.as_bytes(), format!("remove counting rule {handle}"))
            }
        }
    }
}

/// Sends one transaction and returns the first refusal.
fn transaction(socket: &mut Socket, requests: &[Request]) -> Result<(), KernelError> {
    // res_id names the subsystem, in network order.
    let header = [0, 0, 0, u8::try_from(SUBSYSTEM).unwrap_or_default()];
    let begin = Request::new(BATCH_BEGIN, 0, &header, "begin an nftables transaction");
    let end = Request::new(BATCH_END, 0, &header, "end an nftables transaction");
    let mut datagram = Vec::new();
    let begin_seq = socket.next_seq();
    begin.append_to(&mut datagram, begin_seq, 0);
    for request in requests {
        let seq = socket.next_seq();
        request.append_to(&mut datagram, seq, wire::F_ACK);
    }
    let end_seq = socket.next_seq();
    end.append_to(&mut datagram, end_seq, 0);
    let doing = requests.first().map_or("change nftables", Request::doing);
    let failed = |e: io::Error| KernelError::from_io(doing, &e);
    socket.send(&datagram).map_err(failed)?;
    let mut first_refusal = None;
    let mut missing = requests.len();
    while missing > 0 {
        let length = socket.receive().map_err(failed)?;
        for message in wire::messages(socket.received(length)) {
            let index = message.seq.wrapping_sub(begin_seq);
            if message.kind != wire::MSG_ERROR || index > end_seq.wrapping_sub(begin_seq) {
                continue;
            }
            // An answer to the first message is about the transaction as a whole, and the only one.
            if index == 0 {
                crate::socket::outcome(&message, doing)?;
                continue;
            }
            let request = usize::try_from(index).ok().and_then(|i| requests.get(i - 1));
            if let Err(e) = crate::socket::outcome(&message, request.map_or(doing, Request::doing)) {
                first_refusal = first_refusal.or(Some(e));
            }
            missing -= usize::from(request.is_some());
        }
    }
    first_refusal.map_or(Ok(()), Err)
}

/// Removes every table for IPv6 packets of the calling thread's namespace (`nft_flush` in
/// net/netfilter/nf_tables_api.c).
///
/// # Errors
/// When the kernel has no nftables or refuses.
pub fn remove_all() -> Result<(), KernelError> {
    let request = Request::new(kind(DEL_TABLE), 0, &[FAMILY, 0, 0, 0], "remove all tables for IPv6");
    transaction(&mut Socket::open(socket::NETFILTER)?, &[request])
}

/// A message type of the subsystem.
const fn kind(message: u16) -> u16 {
    (SUBSYSTEM << 8) | message
}

/// User data with the tag as a comment: type, length, text, zero.
fn comment(tag: &str) -> Vec<u8> {
    let mut text: Vec<u8> = tag.bytes().take(MAX_COMMENT - 1).collect();
    text.push(0);
    let mut bytes = vec![USERDATA_COMMENT, u8::try_from(text.len()).unwrap_or(u8::MAX)];
    bytes.extend(text);
    bytes
}

/// The comment in user data.
fn parse_comment(mut rest: &[u8]) -> Option<String> {
    while let [kind, length, after @ ..] = rest {
        let value = after.get(..usize::from(*length))?;
        if *kind == USERDATA_COMMENT {
            return Some(wire::text(value));
        }
        rest = after.get(usize::from(*length)..)?;
    }
    None
}

/// Decodes the body of a rule message; nothing for rules without a counter.
pub fn decode(body: &[u8]) -> Option<Counter> {
    let attributes = wire::attrs_after(body, HEADER);
    let (packets, bytes) = expression::counter(wire::find(attributes, RULE_EXPRESSIONS)?)?;
    Some(Counter {
        handle: wire::be64_at(wire::find(attributes, RULE_HANDLE)?, 0)?,
        tag: wire::find(attributes, RULE_USERDATA).and_then(parse_comment).unwrap_or_default(),
        packets,
        bytes,
    })
}

/// The network part of a prefix, as a mask.
fn mask(prefix: &Ipv6Net) -> Ipv6Addr {
    prefix.netmask()
}

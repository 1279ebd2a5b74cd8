//! Filters for connections that a namespace opens: to one address and TCP port, packets are dropped, answered with a
//! reset, or given a priority by which a queue can tell them.
//!
//! They live in a table of ours for all families (`inet`, so that one module serves: `nft_reject_inet`) with one
//! chain for what leaves and one for what comes back. The whole table is replaced in one transaction; existing
//! connections are hit like new ones, because packets are looked at, not connections.

use std::net::Ipv6Addr;

use super::expression::{self, Filtered};
use super::{
    ACCEPT, CHAIN_HOOK, CHAIN_NAME, CHAIN_POLICY, CHAIN_TABLE, CHAIN_TYPE, DEL_TABLE, GET_RULE, HOOK_NUMBER,
    HOOK_PRIORITY, NEW_CHAIN, NEW_RULE, NEW_TABLE, RULE_CHAIN, RULE_EXPRESSIONS, RULE_TABLE, RULE_USERDATA,
    TABLE_NAME, comment, kind, parse_comment, transaction,
};
use crate::wire::{self, Attrs};
use crate::{KernelError, Request, Socket, socket};

/// `NFPROTO_INET`: tables of IPv4 and IPv6.
const INET: u8 = 1;
/// `NF_INET_LOCAL_IN` and `NF_INET_LOCAL_OUT`.
const CHAINS: [(&str, u32); 2] = [("input", 1), ("output", 3)];

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is lost, and so is every answer.
    Drop,
    /// It is lost, and its sender gets a TCP reset (RFC 9293).
    Reset,
    /// It gets this `skb->priority`: the class id of a classful queue.
    Priority(u32),
}

/// One filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// Destination.
    pub to: Ipv6Addr,
    /// Its TCP port.
    pub port: u16,
    /// What happens.
    pub verdict: Verdict,
}

impl Filter {
    /// By which it is found again.
    fn tag(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Drop => "drop".to_owned(),
            Verdict::Reset => "reset".to_owned(),
            Verdict::Priority(class) => class.to_string(),
        };
        format!("{} {} {verdict}", self.to, self.port)
    }

    fn parse(tag: &str) -> Option<Self> {
        let mut words = tag.split(' ');
        let (to, port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let verdict = match words.next()? {
            "drop" => Verdict::Drop,
            "reset" => Verdict::Reset,
            class => Verdict::Priority(class.parse().ok()?),
        };
        Some(Self { to, port, verdict })
    }
}

/// Makes the table of this name in the calling thread's namespace hold exactly these filters, all at once; without
/// any the table goes.
///
/// # Errors
/// When the kernel has no nftables, lacks a part of it (`nft_reject_inet`), or refuses; then nothing has changed.
pub fn replace(table: &str, filters: &[Filter]) -> Result<(), KernelError> {
    let mut socket = Socket::open(socket::NETFILTER)?;
    let mut body = Attrs::after(&[INET, 0, 0, 0]);
    body.str(TABLE_NAME, table);
    let make = Request::new(kind(NEW_TABLE), wire::F_CREATE, body.as_bytes(), "make the table of filters");
    let remove = Request::new(kind(DEL_TABLE), 0, body.as_bytes(), "remove the table of filters");
    // made first, so that there is one to remove
    let mut requests = vec![make.clone(), remove];
    if !filters.is_empty() {
        requests.push(make);
        requests.extend(CHAINS.map(|(name, hook)| chain(table, name, hook)));
        for filter in filters {
            requests.push(rule(table, filter, Filtered::Leaving));
            if filter.verdict == Verdict::Drop {
                requests.push(rule(table, filter, Filtered::Returning));
            }
        }
    }
    transaction(&mut socket, &requests)
}

/// The filters of the table of this name in the calling thread's namespace, sorted; none if there is no such table.
///
/// # Errors
/// The kernel's refusal or a failure of the socket.
pub fn read(table: &str) -> Result<Vec<Filter>, KernelError> {
    let mut socket = Socket::open(socket::NETFILTER)?;
    let mut body = Attrs::after(&[INET, 0, 0, 0]);
    body.str(RULE_TABLE, table).str(RULE_CHAIN, CHAINS[1].0);
    let request = Request::dump(kind(GET_RULE), body.as_bytes(), "read filters");
    let decode = |body: &[u8]| {
        let tag = wire::find(wire::attrs_after(body, 4), RULE_USERDATA).and_then(parse_comment)?;
        Filter::parse(&tag)
    };
    let mut found =
        socket.dump(&request, |m| if m.kind == kind(NEW_RULE) { decode(m.body) } else { None })?;
    found.sort_unstable();
    Ok(found)
}

fn chain(table: &str, name: &str, hook: u32) -> Request {
    let mut chain = Attrs::after(&[INET, 0, 0, 0]);
    chain.str(CHAIN_TABLE, table).str(CHAIN_NAME, name);
    chain.nest(CHAIN_HOOK, |place| {
        place.be32(HOOK_NUMBER, hook).be32(HOOK_PRIORITY, 0);
    });
    chain.be32(CHAIN_POLICY, ACCEPT).str(CHAIN_TYPE, "filter");
    Request::new(kind(NEW_CHAIN), wire::F_CREATE, chain.as_bytes(), format!("make chain {name}"))
}

fn rule(table: &str, filter: &Filter, way: Filtered) -> Request {
    let name = if way == Filtered::Leaving { CHAINS[1].0 } else { CHAINS[0].0 };
    let mut body = Attrs::after(&[INET, 0, 0, 0]);
    body.str(RULE_TABLE, table).str(RULE_CHAIN, name);
    body.nest(RULE_EXPRESSIONS, |list| expression::filter(list, filter, way));
    body.put(RULE_USERDATA, &comment(&filter.tag()));
    let flags = wire::F_CREATE | wire::F_APPEND;
    Request::new(kind(NEW_RULE), flags, body.as_bytes(), format!("filter {}", filter.tag()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_back() {
        for verdict in [Verdict::Drop, Verdict::Reset, Verdict::Priority(0x4_0002)] {
            let filter = Filter { to: "fd00:1::3".parse().unwrap(), port: 60101, verdict };
            assert_eq!(Filter::parse(&filter.tag()), Some(filter));
        }
        assert_eq!(Filter::parse("by hand"), None);
    }
}

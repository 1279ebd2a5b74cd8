//! What programs have put into a namespace, and taking it away as a loss of power does; filters of connections.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, BorrowedFd};

use rtnl::nexthop::Entry;
use rtnl::nft::filter::{self, Verdict};
use rtnl::route::{Filter, Route as KernelRoute, Via};
use rtnl::rule::Rule;
use rtnl::{KernelError, Request, Socket, mpls, netns, nexthop, nft, route, rule};

use super::execute::{Failures, no_namespace};
use super::{LinuxKernel, queue};
use crate::apply::{ApplyError, PROTOCOL};
use crate::plan::{self, Action, Change, Fate};

/// Table of our filters.
const FILTERS: &str = "testbed";
/// Protocols of routes that no program put there: the kernel's own, of its start, ours, of router advertisements
/// (`include/uapi/linux/rtnetlink.h`).
const NO_PROGRAM: [u8; 4] = [2, 3, PROTOCOL, 9];
/// `RTPROT_KERNEL`, of rules that every namespace has.
const KERNEL: u8 = 2;

/// Something that a program put into a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Put {
    /// A label route.
    Label(mpls::LabelRoute),
    /// A route.
    Route(KernelRoute),
    /// A rule.
    Rule(Rule),
    /// A group of next hops.
    Group(nexthop::Group),
    /// A next hop.
    Nexthop(nexthop::Object),
}

impl Put {
    /// The request that removes it.
    pub fn removal(&self) -> Request {
        match self {
            Self::Label(found) => mpls::delete(found.label),
            // without a next hop any matches
            Self::Route(found) => route::delete(&KernelRoute { via: Via::None, ..found.clone() }),
            Self::Rule(found) => rule::delete(found),
            Self::Group(found) => nexthop::delete(found.id),
            Self::Nexthop(found) => nexthop::delete(found.id),
        }
    }
}

impl std::fmt::Display for Put {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Label(found) => write!(f, "label {} proto {}", found.label, found.protocol),
            Self::Route(found) => {
                write!(f, "route {} table {} metric {}", found.dst, found.table, found.metric)?;
                write!(f, " proto {}", found.protocol)
            }
            Self::Rule(found) => write!(f, "rule {} proto {}", found.priority, found.protocol),
            Self::Group(found) => write!(f, "group {} of {}", found.id, found.members.len()),
            Self::Nexthop(found) => write!(f, "next hop {}", found.id),
        }
    }
}

/// Everything that programs have put into a namespace, in an order in which it can be removed: what uses before what is
/// used.
///
/// # Errors
/// When the kernel refuses a question.
pub fn put_by_programs(socket: &mut Socket) -> Result<Vec<Put>, KernelError> {
    let by_program = |protocol: u8| !NO_PROGRAM.contains(&protocol);
    let labels = mpls::dump(socket).or_else(|e| if e.is_unsupported() { Ok(Vec::new()) } else { Err(e) })?;
    let mut put: Vec<Put> =
        labels.into_iter().filter(|found| by_program(found.protocol)).map(Put::Label).collect();
    let routes = route::dump(socket, Filter::default())?;
    put.extend(routes.into_iter().filter(|found| by_program(found.protocol)).map(Put::Route));
    put.extend(rule::dump(socket)?.into_iter().filter(|found| found.protocol != KERNEL).map(Put::Rule));
    let (mut groups, mut objects) = (Vec::new(), Vec::new());
    for entry in nexthop::dump(socket)? {
        match entry {
            Entry::Group(found) => groups.push(Put::Group(found)),
            Entry::Object(found) => objects.push(Put::Nexthop(found)),
        }
    }
    put.extend(groups);
    put.extend(objects);
    Ok(put)
}

impl LinuxKernel {
    /// Removes what programs put into namespaces.
    pub(super) fn wipe(&mut self, actions: &[Action]) -> Failures {
        let wiped = actions.iter().enumerate().filter_map(|(index, action)| {
            let node = action.change.node();
            self.held_mut(node)
                .and_then(|held| wipe(&mut held.socket, held.fd.as_fd()))
                .err()
                .map(|e| (index, e))
        });
        wiped.collect()
    }

    /// Makes filters what they are to be, one visit a namespace.
    pub(super) fn filters(&mut self, actions: &[Action]) -> Result<Failures, ApplyError> {
        let mut failures = Failures::new();
        let (mut fds, mut work) = (Vec::new(), Vec::new());
        for (index, action) in actions.iter().enumerate() {
            let Change::SetFilters { node, filters } = &action.change else { continue };
            match self.held.get(node) {
                Some(held) => {
                    fds.push(held.fd.as_fd());
                    work.push((index, filters.iter().map(to_kernel).collect::<Vec<_>>()));
                }
                None => failures.push((index, no_namespace(node))),
            }
        }
        let visit = |i: usize| {
            let (index, filters) = work.get(i)?;
            filter::replace(FILTERS, filters).err().map(|e| (*index, e))
        };
        failures.extend(netns::tour(&fds, visit)?.into_iter().flatten());
        Ok(failures)
    }
}

/// Removes everything of programs from a namespace. What the removal of something else has taken already is fine.
fn wipe(socket: &mut Socket, namespace: BorrowedFd<'_>) -> Result<(), KernelError> {
    let gone = |errno: i32| [libc::ENOENT, libc::ESRCH].contains(&errno);
    let requests: Vec<Request> = put_by_programs(socket)?.iter().map(Put::removal).collect();
    let results = socket.batch(&requests).map_err(|e| KernelError::from_io("wipe a namespace", &e))?;
    if let Some(error) = results.into_iter().filter_map(Result::err).find(|e| !gone(e.errno)) {
        return Err(error);
    }
    match netns::enter(namespace, nft::remove_all)? {
        Err(e) if !e.is_unsupported() && !gone(e.errno) => Err(e),
        _ => Ok(()),
    }
}

fn to_kernel(filter: &plan::Filter) -> filter::Filter {
    let verdict = match filter.fate {
        Fate::Lost => Verdict::Drop,
        Fate::Reset => Verdict::Reset,
        Fate::Late(number) => Verdict::Priority(queue::late_class(number)),
    };
    filter::Filter { to: filter.to, port: filter.port, verdict }
}

/// The filters of the calling thread's namespace; none where the kernel has no nftables.
pub fn read_filters() -> std::collections::BTreeSet<plan::Filter> {
    let late = |class: u32| (1..=u8::MAX).find(|number| queue::late_class(*number) == class);
    let of_kernel = |found: filter::Filter| {
        let fate = match found.verdict {
            Verdict::Drop => Fate::Lost,
            Verdict::Reset => Fate::Reset,
            Verdict::Priority(class) => Fate::Late(late(class)?),
        };
        Some(plan::Filter { to: found.to, port: found.port, fate })
    };
    filter::read(FILTERS).unwrap_or_default().into_iter().filter_map(of_kernel).collect()
}

/// Whether the calling thread's namespace can have filters of all kinds; leaves none.
pub fn can_filter() -> bool {
    let one = |port, verdict| filter::Filter { to: Ipv6Addr::LOCALHOST, port, verdict };
    let all = [one(1, Verdict::Drop), one(2, Verdict::Reset), one(3, Verdict::Priority(1))];
    filter::replace(FILTERS, &all).is_ok() && filter::replace(FILTERS, &[]).is_ok()
}

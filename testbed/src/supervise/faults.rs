//! Nodes that lose power, connections between controllers and agents that break, kernel state that disappears.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use router_emu::agent::Urgency;
use rtnl::{Request, Socket, tc};
use topologies::lab::{Lab, Link, Role};
use topologies::units::Period;

use super::events::monotonic_ns;
use super::world::{World, converge};
use crate::api::protocol::{KernelDelete, KernelPart, NodeChange, RpcChange, RpcOrder, RpcStatus};
use crate::apply::linux::{LinuxKernel, Put, put_by_programs};
use crate::carrier::features::Feature;
use crate::failure::{Code, Failure};
use crate::plan::{self, Faults, LATE_QUEUES, RPC_PROGRAMS, RpcFault, RpcHow};

/// Longest delay of a connection.
const LONGEST: Period = Period(60_000_000);

/// A number of a sequence that a seed stands for (SplitMix64, Steele, Lea and Flood, 2014).
pub fn drawn(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Failure::new(Code::Usage, message).hint(hint).into()
}

/// Takes the interfaces of nodes down, now.
fn cut_power(kernel: &mut LinuxKernel, lab: &Lab, nodes: &BTreeSet<String>) -> anyhow::Result<()> {
    // losing a link is not put off by what runs there, as for a cut
    let _hurry = Urgency::hold();
    for node in lab.nodes.iter().filter(|node| nodes.contains(&node.name)) {
        let down = node.interfaces.iter().flat_map(|interface| {
            interface.members.iter().map(|member| member.ifindex).chain([interface.ifindex])
        });
        let requests: Vec<Request> = down.map(|ifindex| rtnl::link::set_up(ifindex, false)).collect();
        kernel.socket(&node.name).context("a node without a namespace")?.all(&requests)?;
    }
    Ok(())
}

impl World {
    /// Crashes nodes or boots them; says of each what was done, and tells it in the events.
    pub async fn node(&self, names: &[String], change: NodeChange) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        let crash = change == NodeChange::Crash;
        let (mut faults, mut notes, mut changed) = (self.view().faults, Vec::new(), BTreeSet::new());
        for name in names {
            lab.node(name).with_context(|| format!("no node {name}"))?;
            let differs =
                if crash { faults.crashed.insert(name.clone()) } else { faults.crashed.remove(name) };
            if differs {
                changed.insert(name.clone());
            } else {
                notes.push(format!("{name}: {}", if crash { "has crashed already" } else { "already up" }));
            }
        }
        if changed.is_empty() {
            return Ok(notes);
        }
        // said before it is done, so that nobody sees the effect without the cause
        self.set(|v| v.faults.clone_from(&faults));
        let at = monotonic_ns();
        // first only killed, not waited for: the links go with the programs
        let dying = crash.then(|| self.programs.set_crashed(&faults.crashed));
        let (wanted, known, options, nodes) =
            (Arc::clone(&lab), faults.clone(), self.options(), changed.clone());
        if let Some(dying) = dying {
            let (lab, nodes) = (Arc::clone(&lab), changed.clone());
            self.with_kernel(&lab.name.clone(), move |kernel| cut_power(kernel, &lab, &nodes)).await?;
            // what they put into the kernel can be taken once they put nothing any more
            dying.done().await;
        }
        let work = move |kernel: &mut LinuxKernel| {
            converge(kernel, &wanted, &known, options, Some(with_neighbours(&wanted, &nodes)))
        };
        self.with_kernel(&lab.name, work).await?;
        if !crash {
            self.programs.set_crashed(&faults.crashed).done().await;
        }
        let (kind, done) = if crash { ("node.crashed", "crashed") } else { ("node.restored", "booted") };
        for name in changed {
            let links = lab.links.iter().filter(|l| l.ends().iter().any(|end| end.node == name)).count();
            self.events.emit_at(at, kind, &name, format!("with {links} links"));
            notes.push(format!("{name}: {done}"));
        }
        Ok(notes)
    }

    /// Breaks connections or mends them; says of each pair what was done, and tells it in the events.
    pub async fn rpc(&self, order: &RpcOrder) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        let mut faults = self.view().faults;
        let changed = change_rpc(&mut faults, &lab, order)?;
        let mut notes = Vec::new();
        if changed.is_empty() {
            notes.push("already so".to_owned());
            return Ok(notes);
        }
        let needs: &[Feature] = match order.change {
            RpcChange::Delay(_) => &[Feature::Filters, Feature::Prio, Feature::Netem],
            RpcChange::Cut | RpcChange::Refuse => &[Feature::Filters],
            RpcChange::Restore => &[],
        };
        let options = self.provide_for("breaking connections", needs)?;
        self.set(|v| v.faults.clone_from(&faults));
        let at = monotonic_ns();
        let nodes: BTreeSet<String> = order.from.iter().cloned().collect();
        let wanted = Arc::clone(&lab);
        let work = move |kernel: &mut LinuxKernel| converge(kernel, &wanted, &faults, options, Some(nodes));
        self.with_kernel(&lab.name, work).await?;
        let (kind, done) = match order.change {
            RpcChange::Cut => ("rpc.cut", "cut".to_owned()),
            RpcChange::Refuse => ("rpc.refused", "refused".to_owned()),
            RpcChange::Delay(by) => ("rpc.delayed", format!("delay {by}")),
            RpcChange::Restore => ("rpc.restored", "restored".to_owned()),
        };
        for ((from, to), programs) in changed {
            let (subject, programs) = (format!("{from} > {to}"), programs.join(", "));
            self.events.emit_at(at, kind, &subject, format!("{done}: {programs}"));
            notes.push(format!("{subject}: {done} ({programs})"));
        }
        Ok(notes)
    }

    /// Deletes something of a node's kernel, which nothing but its agent or the next `up` puts back.
    pub async fn kernel_delete(&self, order: KernelDelete) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        lab.node(&order.node).with_context(|| format!("no node {}", order.node))?;
        let node = order.node.clone();
        let work = move |kernel: &mut LinuxKernel| delete(kernel, &order);
        let (deleted, of) = self.with_kernel(&lab.name, work).await?;
        self.events.emit("kernel.deleted", &node, deleted.clone());
        let back = "only its agent puts it back, if it notices, or `up`, if it is of the lab file";
        Ok(vec![format!("{node}: deleted {deleted} (one of {of}); {back}")])
    }
}

/// Nodes and those at the other ends of their links.
fn with_neighbours(lab: &Lab, nodes: &BTreeSet<String>) -> BTreeSet<String> {
    let touching = lab.links.iter().filter(|link| link.ends().iter().any(|end| nodes.contains(&end.node)));
    let ends = touching.flat_map(Link::ends).map(|end| end.node.clone());
    ends.chain(nodes.iter().cloned()).collect()
}

/// What a change comes to: programs by caller and called.
type Changed = BTreeMap<(String, String), Vec<String>>;

/// Puts an order into the faults in force.
fn change_rpc(faults: &mut Faults, lab: &Lab, order: &RpcOrder) -> anyhow::Result<Changed> {
    let meant = paths(lab, order)?;
    let mut changed = Changed::new();
    for (from, to, program) in meant {
        let how = match order.change {
            RpcChange::Cut => Some(RpcHow::Cut),
            RpcChange::Refuse => Some(RpcHow::Refused),
            RpcChange::Delay(by) => Some(RpcHow::Delay(by)),
            RpcChange::Restore => None,
        };
        let differs = match how {
            Some(how) => faults.set_rpc(RpcFault {
                from: from.clone(),
                to: to.clone(),
                program: program.to_owned(),
                how,
            }),
            None => faults.restore_rpc(&from, &to, Some(program)),
        };
        if differs {
            changed.entry((from, to)).or_default().push(program.to_owned());
        }
    }
    if let RpcChange::Delay(by) = order.change {
        check_delay(faults, lab, &order.from, by)?;
    }
    Ok(changed)
}

/// The connections that an order means: caller, called, program.
fn paths(lab: &Lab, order: &RpcOrder) -> anyhow::Result<Vec<(String, String, &'static str)>> {
    for name in order.from.iter().chain(&order.to) {
        lab.node(name).with_context(|| format!("no node {name}"))?;
    }
    let is_host = |name: &String| lab.node(name).is_some_and(|node| node.role == Role::Host);
    if let Some(other) = order.from.iter().find(|name| !is_host(name)) {
        return Err(usage(
            format!("{other} is no host: no controller calls from there"),
            "name hosts with --from, as `status --format json` tells them of controllers",
        ));
    }
    let names: Vec<&str> = RPC_PROGRAMS.iter().map(|(name, _)| *name).collect();
    if let Some(program) = order.program.as_deref().filter(|program| !names.contains(program)) {
        let hint = format!("programs that answer calls: {}", names.join(", "));
        return Err(usage(format!("no program {program} answers calls from other nodes"), hint));
    }
    let meant = |program: &&str| order.program.as_deref().is_none_or(|wanted| wanted == *program);
    let mut paths = Vec::new();
    for (from, to) in order.from.iter().flat_map(|from| order.to.iter().map(move |to| (from, to))) {
        let there = names.iter().filter(|p| from != to && meant(p) && !plan::ports(lab, to, p).is_empty());
        paths.extend(there.map(|program| (from.clone(), to.clone(), *program)));
    }
    if paths.is_empty() {
        let program = order.program.as_deref().unwrap_or("program");
        return Err(usage(
            format!("no {program} at the called nodes answers calls from other nodes"),
            "routers have agents; etcd and nhg-tm run on hosts",
        ));
    }
    Ok(paths)
}

/// Whether hosts can have these delays of their connections.
fn check_delay(faults: &Faults, lab: &Lab, hosts: &[String], by: Period) -> anyhow::Result<()> {
    if by.0 == 0 || by > LONGEST {
        return Err(usage(format!("a delay of {by} is out of range"), "from 1us to 60s"));
    }
    for host in hosts {
        if plan::delays(&faults.rpc, host).len() > LATE_QUEUES {
            return Err(usage(
                format!("connections of {host} have {LATE_QUEUES} different delays already"),
                "use one of those, or `rpc restore` some",
            ));
        }
        let mut impaired = lab.links.iter().filter(|link| !faults.harm(&link.name, host).is_none());
        if let Some(link) = impaired.next() {
            return Err(usage(
                format!("link {} is impaired where {host} sends", link.name),
                "`link restore` it: an interface has one delay or the other",
            ));
        }
    }
    Ok(())
}

/// What is wrong with connections, for status.
pub fn rpc_status(faults: &Faults) -> Vec<RpcStatus> {
    let of = |fault: &RpcFault| RpcStatus {
        from: fault.from.clone(),
        to: fault.to.clone(),
        program: fault.program.clone(),
        state: fault.how.to_string(),
    };
    faults.rpc.iter().map(of).collect()
}

/// Deletes one thing; what, and of how many it was chosen.
fn delete(kernel: &mut LinuxKernel, order: &KernelDelete) -> anyhow::Result<(String, usize)> {
    let socket = kernel.socket(&order.node).context("a node without a namespace")?;
    let mut found = candidates(socket, order.part)?;
    let all: Vec<String> = found.iter().map(|(text, _)| text.clone()).collect();
    found.retain(|(text, _)| order.which.as_deref().is_none_or(|which| text.contains(which)));
    let of = found.len();
    let nth = drawn(order.seed, 0) % u64::try_from(of.max(1))?;
    let Some((text, request)) = found.into_iter().nth(usize::try_from(nth)?) else {
        let shown: Vec<&str> = all.iter().take(5).map(String::as_str).collect();
        let hint = if shown.is_empty() {
            "programs of this node have put nothing of the kind there".to_owned()
        } else {
            format!("there are {}, such as: {}", all.len(), shown.join("; "))
        };
        return Err(usage(format!("nothing of the kind to delete in {}", order.node), hint));
    };
    socket.request(&request)?;
    Ok((text, of))
}

/// What can be deleted, in words, sorted.
fn candidates(socket: &mut Socket, part: KernelPart) -> anyhow::Result<Vec<(String, Request)>> {
    let mut found: Vec<(String, Request)> = match part {
        KernelPart::Queue => {
            let links = rtnl::link::dump(socket)?;
            let roots = tc::dump(socket, None)?.into_iter().filter(|q| q.parent == tc::ROOT && q.handle != 0);
            let name = |q: &tc::QdiscInfo| Some(links.iter().find(|l| l.ifindex == q.ifindex)?.name.clone());
            let text =
                |q: tc::QdiscInfo| Some((format!("queue of {}", name(&q)?), tc::delete(q.ifindex, tc::ROOT)));
            roots.filter_map(text).collect()
        }
        KernelPart::Route | KernelPart::Group => {
            let of_kind = |put: &Put| match put {
                Put::Route(_) | Put::Label(_) => part == KernelPart::Route,
                Put::Group(_) => part == KernelPart::Group,
                Put::Rule(_) | Put::Nexthop(_) => false,
            };
            let put = put_by_programs(socket)?.into_iter().filter(of_kind);
            put.map(|put| (put.to_string(), put.removal())).collect()
        }
    };
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = "
name: small
planes: 1
sites:
  prn: {id: 1, kind: dc}
  lla: {id: 2, kind: dc}
links:
  - {between: [prn, lla], capacity: 400G, rtt: 10ms}
";

    fn order(from: &str, to: &str, program: Option<&str>, change: RpcChange) -> RpcOrder {
        RpcOrder {
            from: vec![from.to_owned()],
            to: vec![to.to_owned()],
            program: program.map(str::to_owned),
            change,
        }
    }

    #[test]
    fn connections_have_one_fault_at_most_and_are_mended() {
        let lab = Lab::from_str(LAB, "small.yaml").unwrap().0;
        let mut faults = Faults::default();
        let mut go = |program, change| {
            let changed = change_rpc(&mut faults, &lab, &order("h1.prn", "eb01.lla", program, change))?;
            anyhow::Ok((changed.into_values().next().unwrap_or_default(), rpc_status(&faults)))
        };
        let (programs, status) = go(None, RpcChange::Cut).unwrap();
        assert_eq!((programs.len(), status.len()), (5, 5), "{programs:?}");
        let (programs, status) = go(Some("lsp-agent"), RpcChange::Delay(Period(200_000))).unwrap();
        assert_eq!((programs, status.len()), (vec!["lsp-agent".to_owned()], 5));
        assert!(status.iter().any(|s| s.program == "lsp-agent" && s.state == "delay 200ms"));
        assert_eq!(go(Some("lsp-agent"), RpcChange::Delay(Period(200_000))).unwrap().0.len(), 0);
        assert!(go(Some("bird"), RpcChange::Cut).unwrap_err().to_string().contains("bird"));
        assert!(go(Some("etcd"), RpcChange::Cut).unwrap_err().to_string().contains("etcd"));
        assert!(go(None, RpcChange::Delay(Period(0))).is_err());
        go(None, RpcChange::Restore).unwrap();
        let from_router = order("eb01.prn", "eb01.lla", None, RpcChange::Cut);
        assert!(change_rpc(&mut faults, &lab, &from_router).unwrap_err().to_string().contains("no host"));
        assert_eq!(faults, Faults::default());
    }

    #[test]
    fn draws_are_those_of_the_seed() {
        // the first values of the reference implementation for seed 1234567
        assert_eq!(drawn(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(drawn(1_234_567, 1), 3_203_168_211_198_807_973);
    }
}

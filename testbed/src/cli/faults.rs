//! `node`, `rpc`, `kernel`, and the numbers of `link impair`: breaking things and mending them.

use topologies::lab::{Lab, Role};
use topologies::scalar::BadValue;
use topologies::units::{Capacity, Period, Share};

use super::args::{Global, KernelVerb, NodeVerb, RpcPath, RpcVerb};
use super::fault_args::{Harm, KernelWhat};
use super::operate::{fetch_status, perform, time};
use super::target::Running;
use crate::api::protocol::{KernelDelete, KernelPart, NodeChange, Request, RpcChange, RpcOrder};
use crate::failure::{Code, Failure};
use crate::plan::Impairment;
use crate::selection::nodes;

fn usage(message: String, hint: &str) -> anyhow::Error {
    Failure::new(Code::Usage, message).hint(hint).into()
}

/// `5%` or `0.25%` in parts per million.
fn share(text: &str) -> anyhow::Result<u32> {
    let Share(ppm) = text.parse().map_err(|bad: BadValue| usage(bad.message, &bad.hint))?;
    // what is more than all is refused where it is checked
    Ok(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// What the options of `link impair` mean.
pub fn impairment(harm: &Harm) -> anyhow::Result<Impairment> {
    let share = |text: &Option<String>| text.as_deref().map_or(Ok(0), share);
    let period = |text: &Option<String>| text.as_deref().map_or(Ok(0), time).map(Period);
    let rate = harm.rate.as_deref().map(str::parse::<Capacity>).transpose();
    Ok(Impairment {
        loss_ppm: share(&harm.loss)?,
        corrupt_ppm: share(&harm.corrupt)?,
        duplicate_ppm: share(&harm.duplicate)?,
        reorder_ppm: share(&harm.reorder)?,
        delay: period(&harm.delay)?,
        jitter: period(&harm.jitter)?,
        rate: rate.map_err(|bad| usage(bad.message, &bad.hint))?,
    })
}

/// `node crash | restore`.
pub async fn node(global: &Global, verb: NodeVerb) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let (names, change) = match verb {
        NodeVerb::Crash { nodes: selector } => (nodes(&lab, &selector)?, NodeChange::Crash),
        NodeVerb::Restore { nodes: selector } if selector == "all" => {
            let status = fetch_status(&running).await?;
            let crashed = status.nodes.into_iter().filter(|node| node.state != "up");
            (crashed.map(|node| node.name).collect(), NodeChange::Restore)
        }
        NodeVerb::Restore { nodes: selector } => (nodes(&lab, &selector)?, NodeChange::Restore),
    };
    perform(global, &running, Request::Node { nodes: names, change }).await
}

/// `rpc cut | delay | refuse | restore`.
pub async fn rpc(global: &Global, verb: RpcVerb) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let all = |role: Option<Role>| -> Vec<String> {
        let meant = lab.nodes.iter().filter(|node| role.is_none_or(|role| node.role == role));
        meant.map(|node| node.name.clone()).collect()
    };
    let chosen = |text: &str, role| if text == "all" { Ok(all(role)) } else { nodes(&lab, text) };
    let order = |path: RpcPath, change| -> anyhow::Result<RpcOrder> {
        let (from, to) = (chosen(&path.from, Some(Role::Host))?, chosen(&path.to, None)?);
        Ok(RpcOrder { from, to, program: path.program, change })
    };
    let order = match verb {
        RpcVerb::Cut(path) => order(path, RpcChange::Cut)?,
        RpcVerb::Refuse(path) => order(path, RpcChange::Refuse)?,
        RpcVerb::Delay { path, delay } => order(path, RpcChange::Delay(Period(time(&delay)?)))?,
        RpcVerb::Restore { from, to, program } => order(RpcPath { from, to, program }, RpcChange::Restore)?,
    };
    perform(global, &running, Request::Rpc(order)).await
}

/// `kernel delete`.
pub async fn kernel(global: &Global, verb: KernelVerb) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let KernelVerb::Delete { node, what, which, seed } = verb;
    let part = match what {
        KernelWhat::Route => KernelPart::Route,
        KernelWhat::Group => KernelPart::Group,
        KernelWhat::Queue => KernelPart::Queue,
    };
    let node = one(&lab, &node)?;
    perform(global, &running, Request::KernelDelete(KernelDelete { node, part, which, seed })).await
}

/// The one node that a selector means.
fn one(lab: &Lab, selector: &str) -> anyhow::Result<String> {
    let mut names = nodes(lab, selector)?;
    match names.pop().filter(|_| names.is_empty()) {
        Some(name) => Ok(name),
        None => Err(usage(format!("`{selector}` means several nodes"), "name one")),
    }
}

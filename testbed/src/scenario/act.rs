//! What steps do to the lab. Whatever breaks something says first how that is taken back.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use scenario::model::{Action, Drain, LinkFault, Pick, ProgramFault, RpcFault};
use scenario::record::Fault;
use scenario::vars::Vars;
use tokio::io::AsyncReadExt as _;
use topologies::lab::Lab;

use super::engine::{Engine, Place};
use super::undo::{Inverse, Undo};
use crate::api::protocol::{
    DrainParts, DrainPlanes, KernelDelete, KernelPart, LinkChange, NodeChange, PartMode, ProgramAction,
    RpcChange, RpcOrder,
};
use crate::api::server::Writer;
use crate::failure::{Code, Failure};
use crate::plan::Impairment;
use crate::selection;
use crate::supervise::events::monotonic_ns;
use crate::supervise::{controller, exec, leader};

/// Most bytes of a command's output that are kept.
const MAX_OUTPUT: u64 = 64 << 10;

/// The change that a fault of links is, and the one that takes it back.
fn link_change(
    fault: &LinkFault,
    lab: &Lab,
    seed: u64,
) -> anyhow::Result<(&'static str, LinkChange, LinkChange)> {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(match fault {
        LinkFault::Cut => ("cut", LinkChange::Cut, LinkChange::Restore),
        LinkFault::CutMember(n) => ("cut member", LinkChange::CutMember(*n), LinkChange::RestoreMember(*n)),
        LinkFault::Delay(rtt) => ("delay", LinkChange::Delay(*rtt), LinkChange::ClearDelay),
        LinkFault::Impair { from, ppm, delay, jitter, rate } => {
            let from = from.as_ref().map(|from| selection::nodes(lab, from)).transpose()?.unwrap_or_default();
            let [loss_ppm, corrupt_ppm, duplicate_ppm, reorder_ppm] = *ppm;
            let harm = Impairment {
                loss_ppm,
                corrupt_ppm,
                duplicate_ppm,
                reorder_ppm,
                delay: *delay,
                jitter: *jitter,
                rate: *rate,
            };
            let none = LinkChange::Impair { from: from.clone(), harm: Impairment::default() };
            ("impair", LinkChange::Impair { from, harm }, none)
        }
        LinkFault::Flap { period, count, jitter } => {
            let (period_ms, jitter_ms) = (ms(*period), ms(*jitter));
            ("flap", LinkChange::Flap { period_ms, count: *count, jitter_ms, seed }, LinkChange::Restore)
        }
    })
}

fn program_action(fault: ProgramFault) -> (&'static str, ProgramAction, Option<ProgramAction>) {
    match fault {
        ProgramFault::Kill => ("kill", ProgramAction::Kill, None),
        ProgramFault::Restart => ("restart", ProgramAction::Restart, None),
        ProgramFault::Stop => ("stop", ProgramAction::Stop, Some(ProgramAction::Resume)),
        ProgramFault::Pause => ("pause", ProgramAction::Pause, Some(ProgramAction::Continue)),
        ProgramFault::CrashLoop => ("crash loop", ProgramAction::CrashLoop, Some(ProgramAction::Resume)),
    }
}

impl Engine {
    /// Does what a step says; notes for people. Groups, checks and traffic are the engine's.
    pub(super) async fn act(
        &self,
        action: &Action,
        at: &Place,
        vars: &mut Vars,
    ) -> anyhow::Result<Vec<String>> {
        let lab = self.world.lab()?;
        let silent = Writer::new(Box::new(tokio::io::sink()));
        match action {
            Action::Pick { what, name } => {
                let picked = self.pick(what, &lab, at, vars).await?;
                vars.insert(name.clone(), picked.clone());
                Ok(vec![format!("${name} is {picked}")])
            }
            Action::Link { links, fault } => self.break_links((links, fault), &lab, at, vars).await,
            Action::Restore(links) => {
                let links = if links == "all" {
                    lab.links.iter().map(|link| link.name.clone()).collect()
                } else {
                    selection::links(&lab, &Self::filled(links, vars)?)?
                };
                self.undos.close(
                    &["cut", "cut member", "delay", "impair", "flap"],
                    &links,
                    &self.observer.book,
                );
                let notes = self.world.link(&links, LinkChange::Restore).await?;
                Ok(notes.into_iter().filter(|note| !note.contains("already")).collect())
            }
            Action::Crash(nodes) => {
                let nodes = selection::nodes(&lab, &Self::filled(nodes, vars)?)?;
                self.breaks("crash", nodes.clone(), at, Inverse::Boot(nodes.clone()));
                self.world.node(&nodes, NodeChange::Crash).await
            }
            Action::Boot(nodes) => {
                let nodes = selection::nodes(&lab, &Self::filled(nodes, vars)?)?;
                self.undos.close(&["crash"], &nodes, &self.observer.book);
                self.world.node(&nodes, NodeChange::Restore).await
            }
            Action::Program { programs, fault } => {
                self.break_programs(programs, *fault, &lab, at, vars).await
            }
            Action::Resume(programs) => self.resume(programs, &lab, vars).await,
            Action::Rpc { from, to, program, fault } => {
                let from = selection::nodes(&lab, &Self::filled(from, vars)?)?;
                let to = selection::nodes(&lab, &Self::filled(to, vars)?)?;
                self.break_rpc((from, to, program.clone()), *fault, at).await
            }
            Action::Delete { node, what, which } => {
                self.delete(&Self::filled(node, vars)?, what, which.as_ref(), &lab, at).await
            }
            Action::Drain(drain) => self.drain(drain, &lab, at, vars).await,
            Action::Undrain(drain) => match self.order(drain, &lab, vars, false)? {
                Inverse::Planes(order) => {
                    let planes: Vec<String> = order.planes.iter().map(|p| format!("plane {p}")).collect();
                    self.undos.close(&["drain"], &planes, &self.observer.book);
                    self.world.drain(&order, &silent).await
                }
                Inverse::Parts(parts) => {
                    let names: Vec<String> = parts.links.iter().chain(&parts.routers).cloned().collect();
                    self.undos.close(&["drain"], &names, &self.observer.book);
                    self.world.drain_parts(&parts, &silent).await
                }
                _ => Ok(Vec::new()),
            },
            Action::Cycle(plane) => {
                let state = leader::cycle(&lab, *plane, false).await?;
                Ok(vec![format!("plane {plane}: cycle {}, {} LSPs", state.cycle, state.lsps)])
            }
            Action::Apply { file, lab: next } => {
                self.breaks("apply", vec![file.clone()], at, Inverse::Lab(Box::new((*lab).clone())));
                let (plan, programs) = self.world.apply((**next).clone(), &silent).await?;
                Ok(vec![format!("{} kernel actions, {} program changes", plan.actions.len(), programs.len())])
            }
            Action::Exec { node, command, exit, prints, timeout } => {
                let nodes = selection::nodes(&lab, &Self::filled(node, vars)?)?;
                let words: Vec<String> =
                    command.iter().map(|w| Self::filled(w, vars)).collect::<Result<_, _>>()?;
                self.exec(&nodes, &words, (*exit, prints.as_deref(), *timeout)).await
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Notes a fault that is about to begin.
    fn breaks(&self, kind: &str, subjects: Vec<String>, at: &Place, inverse: Inverse) {
        let fault = Fault {
            step: at.id.clone(),
            kind: kind.to_owned(),
            subjects,
            from_ns: monotonic_ns(),
            until_ns: 0,
        };
        self.undos.add(Undo { fault, inverse }, &self.observer.book);
    }

    /// Notes a fault that is over as soon as it is made.
    fn harms(&self, kind: &str, subjects: Vec<String>, at: &Place) {
        let now = monotonic_ns();
        let fault =
            Fault { step: at.id.clone(), kind: kind.to_owned(), subjects, from_ns: now, until_ns: now };
        let _ = self.observer.book.send(scenario::record::Entry::Fault(fault));
    }

    async fn break_links(
        &self,
        (links, fault): (&str, &LinkFault),
        lab: &Lab,
        at: &Place,
        vars: &Vars,
    ) -> anyhow::Result<Vec<String>> {
        let links = selection::links(lab, &Self::filled(links, vars)?)?;
        let fault = match fault {
            LinkFault::Impair { from: Some(from), ppm, delay, jitter, rate } => LinkFault::Impair {
                from: Some(Self::filled(from, vars)?),
                ppm: *ppm,
                delay: *delay,
                jitter: *jitter,
                rate: *rate,
            },
            other => other.clone(),
        };
        let (kind, change, inverse) = link_change(&fault, lab, self.seed(at))?;
        self.breaks(kind, links.clone(), at, Inverse::Links(links.clone(), inverse));
        let notes = self.world.link(&links, change).await?;
        if matches!(fault, LinkFault::Flap { .. }) {
            self.undos.close(&["flap"], &links, &self.observer.book);
        }
        Ok(notes)
    }

    /// The programs that a step means.
    fn programs(&self, text: &str, lab: &Lab, vars: &Vars) -> anyhow::Result<Vec<(String, String)>> {
        let text = Self::filled(text, vars)?;
        let (name, nodes) = text.split_once('@').map_or((text.as_str(), None), |(n, at)| (n, Some(at)));
        Ok(selection::programs(lab, &self.world.programs.status(), name, nodes)?)
    }

    async fn break_programs(
        &self,
        programs: &str,
        fault: ProgramFault,
        lab: &Lab,
        at: &Place,
        vars: &Vars,
    ) -> anyhow::Result<Vec<String>> {
        let programs = self.programs(programs, lab, vars)?;
        let names: Vec<String> = programs.iter().map(|(node, name)| format!("{node}/{name}")).collect();
        self.touched(&names);
        let (kind, action, inverse) = program_action(fault);
        match inverse {
            Some(inverse) => self.breaks(kind, names, at, Inverse::Programs(programs.clone(), inverse)),
            None => self.harms(kind, names, at),
        }
        self.world.act(&programs, action).await
    }

    async fn resume(&self, programs: &str, lab: &Lab, vars: &Vars) -> anyhow::Result<Vec<String>> {
        let programs = self.programs(programs, lab, vars)?;
        let names: Vec<String> = programs.iter().map(|(node, name)| format!("{node}/{name}")).collect();
        self.undos.close(&["stop", "pause", "crash loop"], &names, &self.observer.book);
        let state = self.world.programs.status();
        let paused = |(node, name): &(String, String)| {
            state.iter().any(|p| p.node == *node && p.name == *name && p.state == "paused")
        };
        let (hanging, down): (Vec<_>, Vec<_>) = programs.into_iter().partition(paused);
        let mut notes = self.world.act(&hanging, ProgramAction::Continue).await?;
        notes.extend(self.world.act(&down, ProgramAction::Resume).await?);
        Ok(notes)
    }

    async fn break_rpc(
        &self,
        (from, to, program): (Vec<String>, Vec<String>, Option<String>),
        fault: RpcFault,
        at: &Place,
    ) -> anyhow::Result<Vec<String>> {
        let change = match fault {
            RpcFault::Cut => RpcChange::Cut,
            RpcFault::Refuse => RpcChange::Refuse,
            RpcFault::Delay(by) => RpcChange::Delay(by),
            RpcFault::Restore => RpcChange::Restore,
        };
        let subjects = vec![format!("{} to {}", from.join(", "), to.join(", "))];
        let order = RpcOrder { from, to, program, change };
        if change == RpcChange::Restore {
            self.undos.close(&["rpc"], &subjects, &self.observer.book);
        } else {
            self.breaks("rpc", subjects, at, Inverse::Rpc(order.clone()));
        }
        self.world.rpc(&order).await
    }

    async fn delete(
        &self,
        nodes: &str,
        what: &str,
        which: Option<&String>,
        lab: &Lab,
        at: &Place,
    ) -> anyhow::Result<Vec<String>> {
        let part = match what {
            "route" => KernelPart::Route,
            "group" => KernelPart::Group,
            _ => KernelPart::Queue,
        };
        let nodes = selection::nodes(lab, nodes)?;
        self.harms("delete", nodes.clone(), at);
        let mut notes = Vec::new();
        for node in nodes {
            let order = KernelDelete { node, part, which: which.cloned(), seed: self.seed(at) };
            notes.extend(self.world.kernel_delete(order).await?);
        }
        Ok(notes)
    }

    /// What a drain asks for.
    fn order(&self, drain: &Drain, lab: &Lab, vars: &Vars, begins: bool) -> anyhow::Result<Inverse> {
        Ok(match drain {
            Drain::Planes { planes, force, withdraw, timeout } => Inverse::Planes(DrainPlanes {
                planes: planes.clone(),
                drain: begins,
                force: *force,
                withdraw: *withdraw,
                timeout_s: timeout.as_secs().max(1),
            }),
            Drain::Parts { links, routers, soft } => {
                let text = |text: &Option<String>| text.as_ref().map(|t| Self::filled(t, vars)).transpose();
                let links = text(links)?.map(|t| selection::links(lab, &t)).transpose()?.unwrap_or_default();
                let routers =
                    text(routers)?.map(|t| selection::nodes(lab, &t)).transpose()?.unwrap_or_default();
                let mode = if *soft { PartMode::Avoid } else { PartMode::Exclude };
                let reason = format!("scenario {}", self.scenario.title.name);
                Inverse::Parts(DrainParts { links, routers, mode: begins.then_some(mode), reason })
            }
        })
    }

    async fn drain(&self, drain: &Drain, lab: &Lab, at: &Place, vars: &Vars) -> anyhow::Result<Vec<String>> {
        let silent = Writer::new(Box::new(tokio::io::sink()));
        match self.order(drain, lab, vars, true)? {
            Inverse::Planes(order) => {
                let subjects = order.planes.iter().map(|plane| format!("plane {plane}")).collect();
                self.breaks("drain", subjects, at, Inverse::Planes(order.clone()));
                self.world.drain(&order, &silent).await
            }
            Inverse::Parts(parts) => {
                let subjects = parts.links.iter().chain(&parts.routers).cloned().collect();
                self.breaks("drain", subjects, at, Inverse::Parts(parts.clone()));
                self.world.drain_parts(&parts, &silent).await
            }
            _ => Ok(Vec::new()),
        }
    }

    /// A seed for this step: the run's, and the step's place.
    fn seed(&self, at: &Place) -> u64 {
        at.id.bytes().fold(self.scenario.seed, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
        })
    }

    async fn pick(&self, what: &Pick, lab: &Lab, at: &Place, vars: &Vars) -> anyhow::Result<String> {
        let mut random = StdRng::seed_from_u64(self.seed(at));
        let mut any = |names: Vec<String>| -> anyhow::Result<String> {
            anyhow::ensure!(!names.is_empty(), "there is nothing to choose from");
            Ok(names[random.random_range(0..names.len())].clone())
        };
        match what {
            Pick::Links(text) => any(selection::links(lab, &Self::filled(text, vars)?)?),
            Pick::Nodes(text) => any(selection::nodes(lab, &Self::filled(text, vars)?)?),
            Pick::Hop { plane, from, to, class } => hop(lab, *plane, (from, to, class)).await,
        }
    }

    /// Runs a command in nodes, one after the other; each must end and print as expected.
    async fn exec(
        &self,
        nodes: &[String],
        words: &[String],
        (exit, prints, timeout): (i32, Option<&str>, Duration),
    ) -> anyhow::Result<Vec<String>> {
        let mut notes = Vec::new();
        for node in nodes {
            let run = output(&self.world.reaper, node, words);
            let (code, printed) = tokio::time::timeout(timeout, run)
                .await
                .map_err(|_| Failure::new(Code::TimedOut, format!("{node}: no end after {timeout:?}")))??;
            let last = printed.trim_end().lines().next_back().unwrap_or_default().to_owned();
            if code != exit {
                let message = format!("{node}: exit code {code}, expected {exit}: {last}");
                return Err(Failure::new(Code::Failed, message).into());
            }
            if let Some(wanted) = prints
                && !printed.contains(wanted)
            {
                let message =
                    format!("{node}: `{wanted}` is not in what it printed, which ends with: {last}");
                return Err(Failure::new(Code::Failed, message).into());
            }
            notes.push(format!("{node}: {last}"));
        }
        Ok(notes)
    }
}

/// Exit code and output of a command in a node. Dropped, it takes the command with it.
async fn output(
    reaper: &Arc<crate::supervise::reaper::Reaper>,
    node: &str,
    words: &[String],
) -> anyhow::Result<(i32, String)> {
    struct Group(nix::unistd::Pid);
    impl Drop for Group {
        fn drop(&mut self) {
            let _ = nix::sys::signal::killpg(self.0, nix::sys::signal::Signal::SIGKILL);
        }
    }
    use std::os::unix::process::CommandExt as _;
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env("TESTBED_NODE", node).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    exec::in_node(&mut command, node, true)?;
    let mut child = reaper
        .spawn(&mut command)
        .map_err(|why| Failure::new(Code::Usage, format!("cannot run `{program}` in {node}: {why}")))?;
    let group = Group(child.pid);
    let stdout = tokio::process::ChildStdout::from_std(child.stdout.take().context("no pipe")?)?;
    let stderr = tokio::process::ChildStderr::from_std(child.stderr.take().context("no pipe")?)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut stdout, mut stderr) = (stdout.take(MAX_OUTPUT), stderr.take(MAX_OUTPUT));
    let (a, b) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    a.and(b)?;
    let exit = child.exit.await.context("the command's exit was not seen")?;
    // it has ended; what it left behind is not waited for
    std::mem::forget(group);
    out.extend(err);
    Ok((exit.number(), String::from_utf8_lossy(&out).into_owned()))
}

/// A link in the middle of the first path that a plane's controller has placed for a pair of sites.
async fn hop(lab: &Lab, plane: u8, (from, to, class): (&str, &str, &str)) -> anyhow::Result<String> {
    let state = leader::cycle(lab, plane, true).await?;
    let document = controller::document(lab, &state);
    let mesh = if class == "icp" { "gold" } else { class };
    let bundles = document["mesh"].as_array().into_iter().flatten();
    let bundle = bundles
        .into_iter()
        .find(|b| b["from"] == from && b["to"] == to && b["mesh"] == mesh)
        .with_context(|| format!("plane {plane} has no bundle from {from} to {to} in {mesh}"))?;
    let hops: Vec<&str> =
        bundle["lsps"][0]["primary"].as_array().into_iter().flatten().filter_map(|h| h.as_str()).collect();
    let middle =
        hops.get(hops.len() / 2).with_context(|| format!("no path from {from} to {to} is placed"))?;
    let links = selection::links(lab, middle)?;
    links.into_iter().next().with_context(|| format!("no link at {middle}"))
}

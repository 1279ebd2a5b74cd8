//! Steps in a few words, as progress lines and reports have them.

use std::time::Duration;

use crate::model::{Action, Check, Drain, Each, LinkFault, Pick, ProgramFault, RpcFault, Step, Timing};
use crate::vars::{Vars, substitute};

/// A time as files have it: `1.5s`, `200ms`.
pub fn time(time: Duration) -> String {
    let period = topologies::units::Period::try_from(time).unwrap_or_default();
    if period.0 == 0 { "0s".to_owned() } else { period.to_string() }
}

/// A step with the names that are known filled in.
pub fn step(step: &Step, vars: &Vars) -> String {
    let filled = |text: &str| substitute(text, vars).unwrap_or_else(|_| text.to_owned());
    let mut text = filled(&action(&step.action));
    if let Some(hold) = step.hold {
        text += &format!(" for {}", time(hold));
    }
    match &step.timing {
        Timing::Next => text,
        Timing::At(at) => format!("at {}: {text}", time(*at)),
        Timing::After(after) => format!("after {}: {text}", time(*after)),
        Timing::When(condition, _) => format!("when {}: {text}", filled(condition)),
    }
}

fn link(fault: &LinkFault, links: &str) -> String {
    match fault {
        LinkFault::Cut => format!("cut {links}"),
        LinkFault::CutMember(number) => format!("cut member {number} of {links}"),
        LinkFault::Delay(rtt) => format!("round-trip time {rtt} on {links}"),
        LinkFault::Impair { from, ppm, delay, jitter, rate } => {
            let words = ["loss", "corrupt", "duplicate", "reorder"];
            let shares = words.iter().zip(ppm).filter(|(_, ppm)| **ppm > 0);
            let mut harm: Vec<String> = shares
                .map(|(word, ppm)| format!("{word} {}", topologies::units::Share(u64::from(*ppm))))
                .collect();
            harm.extend((delay.0 > 0).then(|| format!("delay {delay}")));
            harm.extend((jitter.0 > 0).then(|| format!("jitter {jitter}")));
            harm.extend(rate.map(|rate| format!("rate {rate}")));
            let from = from.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
            format!("impair {links}{from}: {}", harm.join(", "))
        }
        LinkFault::Flap { period, count, .. } => {
            format!("flap {links} {count} times, every {}", time(*period))
        }
    }
}

fn drain(drain: &Drain) -> String {
    match drain {
        Drain::Planes { planes, .. } => {
            let numbers: Vec<String> = planes.iter().map(ToString::to_string).collect();
            format!("plane {}", numbers.join(", "))
        }
        Drain::Parts { links, routers, .. } => {
            let parts: Vec<&str> = links.iter().chain(routers).map(String::as_str).collect();
            parts.join(", ")
        }
    }
}

fn check(condition: &str, how: &Check) -> String {
    match how {
        Check::Never => format!("never {condition}"),
        Check::Eventually => format!("eventually {condition}"),
        Check::Expect { within, stable_for } => {
            let mut text = format!("expect {condition}");
            if *within > Duration::ZERO {
                text += &format!(" within {}", time(*within));
            }
            if *stable_for > Duration::ZERO {
                text += &format!(", stable for {}", time(*stable_for));
            }
            text
        }
    }
}

fn action(action: &Action) -> String {
    match action {
        Action::Wait(length) => format!("wait {}", time(*length)),
        Action::Check { condition, how } => check(condition, how),
        Action::Pick { what, name } => match what {
            Pick::Links(text) | Pick::Nodes(text) => format!("pick {name} from {text}"),
            Pick::Hop { plane, from, to, class } => {
                format!("pick {name}: a hop from {from} to {to}, {class}, plane {plane}")
            }
        },
        Action::Send(names) => format!("send {}", names.join(", ")),
        Action::Silence(names) => format!("silence {}", names.join(", ")),
        Action::Link { links, fault } => link(fault, links),
        Action::Restore(links) => format!("restore {links}"),
        Action::Crash(nodes) => format!("crash {nodes}"),
        Action::Boot(nodes) => format!("boot {nodes}"),
        Action::Program { programs, fault } => {
            let word = match fault {
                ProgramFault::Kill => "kill",
                ProgramFault::Stop => "stop",
                ProgramFault::Restart => "restart",
                ProgramFault::Pause => "pause",
                ProgramFault::CrashLoop => "crash loop of",
            };
            format!("{word} {programs}")
        }
        Action::Resume(programs) => format!("resume {programs}"),
        Action::Rpc { from, to, program, fault } => {
            let program = program.as_ref().map(|p| format!(" ({p})")).unwrap_or_default();
            let word = match fault {
                RpcFault::Cut => "cut".to_owned(),
                RpcFault::Refuse => "refuse".to_owned(),
                RpcFault::Delay(by) => format!("delay by {by}"),
                RpcFault::Restore => "restore".to_owned(),
            };
            format!("calls from {from} to {to}{program}: {word}")
        }
        Action::Delete { node, what, .. } => format!("delete a {what} of {node}"),
        Action::Drain(what) => format!("drain {}", drain(what)),
        Action::Undrain(what) => format!("undrain {}", drain(what)),
        Action::Cycle(plane) => format!("cycle of plane {plane}"),
        Action::Apply { file, .. } => format!("apply {file}"),
        Action::Exec { node, command, .. } => format!("exec {node}: {}", command.join(" ")),
        Action::Parallel(steps) => format!("{} steps at the same time", steps.len()),
        Action::Repeat(times, _) => format!("{times} times"),
        Action::Each { what, name, .. } => match what {
            Each::Links(text) | Each::Nodes(text) => format!("for each {name} of {text}"),
            Each::Planes(planes) => format!("for each {name} of {} planes", planes.len()),
        },
        Action::Steps(steps) => format!("{} steps", steps.len()),
    }
}

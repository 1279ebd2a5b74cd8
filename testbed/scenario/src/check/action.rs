//! What a step does: exactly one of the many keys that say so.

use std::time::Duration;

use topologies::parse::{At, Given, Place, Text};
use topologies::scalar::{Switch, Whole};
use topologies::units::{Period, Share};

use super::Reader;
use crate::file::{
    DeleteEntry, DrainEntry, EachEntry, ExecEntry, FlapEntry, ImpairEntry, PickEntry, RepeatEntry, RpcEntry,
    StepEntry,
};
use crate::model::{Action, Check, Drain, Each, LinkFault, Pick, ProgramFault, RpcFault, Step};
use crate::vars::Vars;
use crate::words::{AnyText, List, Name};

/// Keys that say what a step does.
const ACTIONS: &str = "wait, expect, never, eventually, pick, send, silence, cut, cut_member, delay, impair, flap, restore, \
                       crash, boot, kill, stop, restart, pause, crash_loop, resume, rpc, delete, drain, undrain, cycle, \
                       apply, exec, parallel, repeat, for_each, steps";
/// Longest wait for a drain's counters, or for a command, if the step says nothing.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest period of a link that goes up and down: the kernel needs its time for both.
const LEAST_FLAP: Duration = Duration::from_millis(50);

type Found = Vec<(&'static str, Option<Action>)>;

impl Reader<'_> {
    /// The one action of a step; none if there is an error in it, or none or several are said.
    pub(super) fn action(
        &mut self,
        step: &At<StepEntry>,
        id: &str,
        vars: &mut Vars,
        depth: usize,
    ) -> Option<Action> {
        let At { value: entry, place } = step;
        let mut found = self.checks(entry, vars);
        found.extend(self.link_actions(entry, vars));
        found.extend(self.node_actions(entry, vars));
        found.extend(self.service_actions(entry, vars));
        found.extend(self.groups(entry, id, vars, depth));
        match found.len() {
            0 => {
                self.report.error(*place, "this step does nothing", format!("add one of {ACTIONS}"));
                None
            }
            1 => found.pop().and_then(|(_, action)| action),
            _ => {
                let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
                let message = format!("a step does one thing, and this one has {}", names.join(", "));
                self.report.error(
                    *place,
                    message,
                    "write a step for each; `parallel` lets them go on together",
                );
                None
            }
        }
    }

    fn checks(&mut self, entry: &StepEntry, vars: &mut Vars) -> Found {
        let mut found = Found::new();
        if entry.wait.0.is_some() {
            found.push(("wait", self.time(&entry.wait, "wait").map(Action::Wait)));
        }
        if let Some(text) = &entry.expect.0 {
            self.condition(text, vars);
            let within = self.time(&entry.within, "within").unwrap_or_default();
            let stable_for = self.time(&entry.stable_for, "stable_for").unwrap_or_default();
            let how = Check::Expect { within, stable_for };
            found.push(("expect", Some(Action::Check { condition: text.raw.clone(), how })));
        }
        for (name, text, how) in
            [("never", &entry.never, Check::Never), ("eventually", &entry.eventually, Check::Eventually)]
        {
            if let Some(text) = &text.0 {
                self.condition(text, vars);
                found.push((name, Some(Action::Check { condition: text.raw.clone(), how })));
            }
        }
        if let Some(pick) = &entry.pick.0 {
            found.push(("pick", self.pick(pick, vars)));
        }
        for (name, names) in [("send", &entry.send), ("silence", &entry.silence)] {
            if let Some(names) = &names.0 {
                let names = self.traffic_names(names, name == "send");
                found.push((
                    name,
                    Some(if name == "send" { Action::Send(names) } else { Action::Silence(names) }),
                ));
            }
        }
        found
    }

    fn traffic_names(&mut self, text: &Text<List<Name>>, begins: bool) -> Vec<String> {
        let mut read = Vec::new();
        for name in self.report.read(text, "name of traffic").map_or_else(Vec::new, |names| names.0) {
            if !self.traffic.contains(&name.0) {
                let hint = topologies::near::suggestion(&name.0, self.traffic.iter().map(String::as_str));
                self.report.error(text.place, format!("no traffic is called `{}`", name.0), hint);
            }
            if begins {
                self.started.insert(name.0.clone());
            }
            read.push(name.0);
        }
        read
    }

    fn pick(&mut self, pick: &At<PickEntry>, vars: &mut Vars) -> Option<Action> {
        let At { value: pick, place } = pick;
        let mut found: Vec<(Pick, String)> = Vec::new();
        if let Some(text) = &pick.links.0 {
            found.extend(
                self.select(text, ("links", true), vars).map(|(text, first)| (Pick::Links(text), first)),
            );
        }
        if let Some(text) = &pick.nodes.0 {
            found.extend(
                self.select(text, ("nodes", false), vars).map(|(text, first)| (Pick::Nodes(text), first)),
            );
        }
        if let Some(path) = &pick.hop_of.0 {
            let At { value: path, place } = path;
            let plane = u8::try_from(self.report.whole(&path.plane, "plane", 1)).unwrap_or(u8::MAX);
            let from = self.site(&path.from, *place, "from");
            let to = self.site(&path.to, *place, "to");
            let class =
                self.report.read_given(&path.class, "class").map_or("gold", |class| class.0).to_owned();
            if let (Some(from), Some(to)) = (from, to) {
                found.push((Pick::Hop { plane, from, to, class }, self.some_link()));
            }
        }
        let said = [pick.links.0.is_some(), pick.nodes.0.is_some(), pick.hop_of.0.is_some()];
        if said.into_iter().filter(|said| *said).count() != 1 {
            self.report.error(*place, "`pick` chooses one thing", "write one of `links`, `nodes`, `hop_of`");
        }
        let name = self.report.need(&pick.name, *place, "as")?;
        let (what, sample) = found.pop()?;
        let name = self.name(name, sample, vars)?;
        Some(Action::Pick { what, name })
    }

    fn site(&mut self, text: &Given<Text<AnyText>>, place: Place, what: &str) -> Option<String> {
        let text = self.report.need(text, place, what)?;
        let name = self.report.read(text, what)?.0;
        if self.lab.site(&name).is_none() {
            let hint = topologies::near::suggestion(&name, self.lab.sites.iter().map(|s| s.name.as_str()));
            self.report.error(text.place, format!("the lab has no site `{name}`"), hint);
        }
        Some(name)
    }

    fn link_actions(&mut self, entry: &StepEntry, vars: &Vars) -> Found {
        let mut found = Found::new();
        let links = ("links", true);
        if let Some(text) = &entry.cut.0 {
            let links = self.select(text, ("cut", true), vars).map(|(text, _)| text);
            found.push(("cut", links.map(|links| Action::Link { links, fault: LinkFault::Cut })));
        }
        if let Some(text) = &entry.restore.0 {
            let all = text.raw == "all";
            let links = if all {
                Some(text.raw.clone())
            } else {
                self.select(text, ("restore", true), vars).map(|(t, _)| t)
            };
            found.push(("restore", links.map(Action::Restore)));
        }
        if let Some(At { value, place }) = &entry.cut_member.0 {
            let selected = self.selector(&value.links, *place, links, vars);
            let number = self.report.read_needed(&value.member, *place, "member", "member");
            found.push((
                "cut_member",
                selected.zip(number).map(|((links, _), number)| {
                    let number = u16::try_from(number.get()).unwrap_or(u16::MAX);
                    Action::Link { links, fault: LinkFault::CutMember(number) }
                }),
            ));
        }
        if let Some(At { value, place }) = &entry.delay.0 {
            let selected = self.selector(&value.links, *place, links, vars);
            let rtt = self.report.read_needed(&value.rtt, *place, "rtt", "round-trip time");
            if !self.lab.emulate_delay {
                let hint = "write `delay: emulated` in the lab file";
                self.report.error(*place, "the lab only declares delay", hint);
            }
            found.push((
                "delay",
                selected
                    .zip(rtt)
                    .map(|((links, _), rtt)| Action::Link { links, fault: LinkFault::Delay(rtt) }),
            ));
        }
        if let Some(impair) = &entry.impair.0 {
            found.push(("impair", self.impair(impair, vars)));
        }
        if let Some(flap) = &entry.flap.0 {
            found.push(("flap", self.flap(flap, vars)));
        }
        found
    }

    fn impair(&mut self, entry: &At<ImpairEntry>, vars: &Vars) -> Option<Action> {
        let At { value: entry, place } = entry;
        let links = self.selector(&entry.links, *place, ("links", true), vars);
        let from = entry.from.0.as_ref().and_then(|text| self.select(text, ("from", false), vars));
        let ppm = [
            self.share(&entry.loss, "loss"),
            self.share(&entry.corrupt, "corrupt"),
            self.share(&entry.duplicate, "duplicate"),
            self.share(&entry.reorder, "reorder"),
        ];
        let period = |reader: &mut Self, text: &Given<Text<Period>>, what| {
            reader.report.read_given(text, what).unwrap_or_default()
        };
        let (delay, jitter) = (period(self, &entry.delay, "delay"), period(self, &entry.jitter, "jitter"));
        let rate = self.report.read_given(&entry.rate, "rate");
        if ppm == [0; 4] && delay.0 == 0 && jitter.0 == 0 && rate.is_none() {
            let hint = "add one of loss, corrupt, duplicate, reorder, delay, jitter, rate";
            self.report.error(*place, "`impair` does no harm", hint);
        }
        let fault = LinkFault::Impair { from: from.map(|(text, _)| text), ppm, delay, jitter, rate };
        links.map(|(links, _)| Action::Link { links, fault })
    }

    /// Parts per million; more than all is reported.
    fn share(&mut self, text: &Given<Text<Share>>, what: &str) -> u32 {
        let Some(share) = self.report.read_given(text, what) else { return 0 };
        match u32::try_from(share.0) {
            Ok(ppm) if ppm <= 1_000_000 => ppm,
            _ => {
                if let Some(text) = &text.0 {
                    self.report.error(
                        text.place,
                        format!("{what}: {} is more than all", text.raw),
                        "100% is the most",
                    );
                }
                0
            }
        }
    }

    fn flap(&mut self, entry: &At<FlapEntry>, vars: &Vars) -> Option<Action> {
        let At { value: entry, place } = entry;
        let links = self.selector(&entry.links, *place, ("links", true), vars);
        self.report.need(&entry.period, *place, "period");
        let period = self.time(&entry.period, "period");
        let count = self.report.read_needed(&entry.count, *place, "count", "count");
        let jitter = self.time(&entry.jitter, "jitter").unwrap_or_default();
        if period.is_some_and(|period| period < LEAST_FLAP || jitter >= period / 2) {
            let hint = "at least 50ms, and more than twice the jitter";
            self.report.error(*place, "the period of `flap` is too short", hint);
        }
        let fault = LinkFault::Flap { period: period?, count: count?.get(), jitter };
        links.map(|(links, _)| Action::Link { links, fault })
    }

    fn node_actions(&mut self, entry: &StepEntry, vars: &Vars) -> Found {
        let mut found = Found::new();
        if let Some(text) = &entry.crash.0 {
            let nodes = self.select(text, ("crash", false), vars);
            found.push(("crash", nodes.map(|(text, _)| Action::Crash(text))));
        }
        if let Some(text) = &entry.boot.0 {
            let nodes = self.select(text, ("boot", false), vars);
            found.push(("boot", nodes.map(|(text, _)| Action::Boot(text))));
        }
        for (name, text, fault) in [
            ("kill", &entry.kill, ProgramFault::Kill),
            ("stop", &entry.stop, ProgramFault::Stop),
            ("restart", &entry.restart, ProgramFault::Restart),
            ("pause", &entry.pause, ProgramFault::Pause),
            ("crash_loop", &entry.crash_loop, ProgramFault::CrashLoop),
        ] {
            if let Some(text) = &text.0 {
                let programs = self.programs(text, name, vars);
                found.push((name, programs.map(|programs| Action::Program { programs, fault })));
            }
        }
        if let Some(text) = &entry.resume.0 {
            found.push(("resume", self.programs(text, "resume", vars).map(Action::Resume)));
        }
        if let Some(At { value, place }) = &entry.delete.0 {
            found.push(("delete", self.delete(value, *place, vars)));
        }
        if let Some(At { value, place }) = &entry.exec.0 {
            found.push(("exec", self.exec(value, *place, vars)));
        }
        found
    }

    /// `lsp-agent@eb01.*`: which programs there are is known only where they run, which nodes is known here.
    fn programs(&mut self, text: &Text<AnyText>, what: &str, vars: &Vars) -> Option<String> {
        let read = self.report.read(text, what)?.0;
        let filled = self.filled(&read, text.place, vars)?;
        if let Some((_, nodes)) = filled.split_once('@') {
            let lab = self.lab;
            let nodes = nodes.parse::<topologies::Selector>().and_then(|s| s.nodes(lab).map(|_| ()));
            if let Err(bad) = nodes {
                self.report.error(text.place, bad.message, bad.hint);
                return None;
            }
        }
        Some(read)
    }

    fn delete(&mut self, entry: &DeleteEntry, place: Place, vars: &Vars) -> Option<Action> {
        let node = self.selector(&entry.node, place, ("node", false), vars);
        let what = self.report.read_needed(&entry.what, place, "what", "thing to delete");
        let which = self.text(&entry.which, "which");
        Some(Action::Delete { node: node?.0, what: what?.0.to_owned(), which })
    }

    fn exec(&mut self, entry: &ExecEntry, place: Place, vars: &Vars) -> Option<Action> {
        let node = self.selector(&entry.node, place, ("node", false), vars);
        let mut command = Vec::new();
        for word in &entry.command {
            self.filled(&word.raw, word.place, vars);
            command.push(word.raw.clone());
        }
        if command.is_empty() {
            self.report.error(place, "field `command` is missing", "add `command: [program, argument]`");
        }
        let exit = self.report.read_given(&entry.exit, "exit").map_or(0, Whole::get);
        let prints = self.text(&entry.prints, "prints");
        let timeout = self.time(&entry.timeout, "timeout").unwrap_or(TIMEOUT);
        let exit = i32::try_from(exit).unwrap_or(0);
        Some(Action::Exec { node: node?.0, command, exit, prints, timeout })
    }

    fn service_actions(&mut self, entry: &StepEntry, vars: &Vars) -> Found {
        let mut found = Found::new();
        if let Some(At { value, place }) = &entry.rpc.0 {
            found.push(("rpc", self.rpc(value, *place, vars)));
        }
        for (name, drain) in [("drain", &entry.drain), ("undrain", &entry.undrain)] {
            if let Some(At { value, place }) = &drain.0 {
                let drain = self.drain(value, *place, vars);
                found.push((name, drain.map(if name == "drain" { Action::Drain } else { Action::Undrain })));
            }
        }
        if let Some(text) = &entry.cycle.0 {
            let plane = self.report.read(text, "plane").and_then(|plane| self.plane(plane.get(), text.place));
            found.push(("cycle", plane.map(Action::Cycle)));
        }
        if let Some(text) = &entry.apply.0 {
            found.push(("apply", self.apply(text)));
        }
        found
    }

    fn apply(&mut self, text: &Text<AnyText>) -> Option<Action> {
        let file = self.report.read(text, "apply")?.0;
        match (self.find)(&file) {
            Ok(mut lab) => {
                // it is the same lab, changed
                lab.name.clone_from(&self.lab.name);
                Some(Action::Apply { file, lab: Box::new(lab) })
            }
            Err(why) => {
                let hint = "name a ready-made lab, or a lab file relative to this one";
                self.report.error(text.place, format!("the lab `{file}` cannot be had: {why}"), hint);
                None
            }
        }
    }

    fn plane(&mut self, number: u32, place: Place) -> Option<u8> {
        let plane = u8::try_from(number).ok().filter(|plane| self.lab.plane(*plane).is_some());
        if plane.is_none() {
            let planes: Vec<String> = self.lab.planes.iter().map(|p| p.id.to_string()).collect();
            self.report.error(
                place,
                format!("the lab has no plane {number}"),
                format!("planes: {}", planes.join(", ")),
            );
        }
        plane
    }

    fn planes(&mut self, text: &Text<List<Whole<1, 8>>>) -> Vec<u8> {
        let numbers = self.report.read(text, "plane").map_or_else(Vec::new, |list| list.0);
        numbers.into_iter().filter_map(|number| self.plane(number.get(), text.place)).collect()
    }

    fn rpc(&mut self, entry: &RpcEntry, place: Place, vars: &Vars) -> Option<Action> {
        let from = self.selector(&entry.from, place, ("from", false), vars);
        let to = self.selector(&entry.to, place, ("to", false), vars);
        let program = self.text(&entry.program, "program");
        let word = self.report.read_needed(&entry.fault, place, "fault", "fault of connections")?.0;
        let delay = self.report.read_given(&entry.delay, "delay");
        if (word == "delay") != delay.is_some() {
            self.report.error(
                place,
                "`delay` and its time go together",
                "write `fault: delay` and `delay: 200ms`",
            );
        }
        let fault = match word {
            "cut" => RpcFault::Cut,
            "refuse" => RpcFault::Refuse,
            "delay" => RpcFault::Delay(delay?),
            _ => RpcFault::Restore,
        };
        Some(Action::Rpc { from: from?.0, to: to?.0, program, fault })
    }

    fn drain(&mut self, entry: &DrainEntry, place: Place, vars: &Vars) -> Option<Drain> {
        let switch = |reader: &mut Self, text: &Given<Text<Switch>>, what| {
            reader.report.read_given(text, what).is_some_and(|s| s.0)
        };
        let (force, withdraw) =
            (switch(self, &entry.force, "force"), switch(self, &entry.withdraw, "withdraw"));
        let soft = switch(self, &entry.soft, "soft");
        let timeout = self.time(&entry.timeout, "timeout").unwrap_or(TIMEOUT);
        let parts = entry.links.0.is_some() || entry.routers.0.is_some();
        match (&entry.plane.0, parts) {
            (Some(planes), false) => {
                let planes = self.planes(planes);
                Some(Drain::Planes { planes, force, withdraw, timeout })
            }
            (None, true) => {
                let links = entry.links.0.as_ref().and_then(|text| self.select(text, ("links", true), vars));
                let routers =
                    entry.routers.0.as_ref().and_then(|text| self.select(text, ("routers", false), vars));
                let text = |found: Option<(String, String)>| found.map(|(text, _)| text);
                Some(Drain::Parts { links: text(links), routers: text(routers), soft })
            }
            _ => {
                let hint = "write `plane`, or `links` and `routers`";
                self.report.error(place, "it is not said what to drain", hint);
                None
            }
        }
    }

    fn groups(&mut self, entry: &StepEntry, id: &str, vars: &mut Vars, depth: usize) -> Found {
        let mut found = Found::new();
        if let Some(steps) = &entry.parallel.0 {
            found.push(("parallel", Some(Action::Parallel(self.steps(steps, id, vars, depth + 1)))));
        }
        if let Some(steps) = &entry.steps.0 {
            found.push(("steps", Some(Action::Steps(self.steps(steps, id, vars, depth + 1)))));
        }
        if let Some(At { value, place }) = &entry.repeat.0 {
            found.push(("repeat", self.repeat(value, *place, (id, vars, depth))));
        }
        if let Some(At { value, place }) = &entry.for_each.0 {
            found.push(("for_each", self.each(value, *place, (id, vars, depth))));
        }
        found
    }

    fn inner(
        &mut self,
        steps: &Given<Vec<At<StepEntry>>>,
        place: Place,
        (id, vars, depth): (&str, &mut Vars, usize),
    ) -> Option<Vec<Step>> {
        let steps = self.report.need(steps, place, "steps")?;
        Some(self.steps(steps, id, vars, depth + 1))
    }

    fn repeat(&mut self, entry: &RepeatEntry, place: Place, at: (&str, &mut Vars, usize)) -> Option<Action> {
        let times = self.report.read_needed(&entry.times, place, "times", "times");
        let steps = self.inner(&entry.steps, place, at);
        Some(Action::Repeat(times?.get(), steps?))
    }

    fn each(
        &mut self,
        entry: &EachEntry,
        place: Place,
        (id, vars, depth): (&str, &mut Vars, usize),
    ) -> Option<Action> {
        let mut found: Vec<(Each, String)> = Vec::new();
        if let Some(text) = &entry.links.0 {
            found.extend(
                self.select(text, ("links", true), vars).map(|(text, first)| (Each::Links(text), first)),
            );
        }
        if let Some(text) = &entry.nodes.0 {
            found.extend(
                self.select(text, ("nodes", false), vars).map(|(text, first)| (Each::Nodes(text), first)),
            );
        }
        if let Some(planes) = &entry.planes.0 {
            let numbers = self.planes(planes);
            let first = numbers.first().map(ToString::to_string).unwrap_or_default();
            found.push((Each::Planes(numbers), first));
        }
        if found.len() > 1 {
            self.report.error(
                place,
                "`for_each` goes over one kind of thing",
                "keep one of `links`, `nodes`, `planes`",
            );
        } else if found.is_empty() && self.report.is_clean() {
            self.report.error(place, "`for_each` goes over nothing", "add one of `links`, `nodes`, `planes`");
        }
        let name = self.report.need(&entry.name, place, "as")?;
        let (what, sample) = found.pop()?;
        let name = self.name(name, sample, vars)?;
        let steps = self.inner(&entry.steps, place, (id, vars, depth))?;
        // the name means something only within
        vars.remove(&name);
        Some(Action::Each { what, name, steps })
    }
}

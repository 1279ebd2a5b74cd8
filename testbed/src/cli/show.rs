//! Text for people: status, links, programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::api::protocol::{
    ClassQueue, Event, Health, LinkStatus, PartMode, ProgramChange, ProgramStatus, RpcStatus, Status,
};
use crate::failure::{Code, Failure};
use crate::figures::{rate, short};
use crate::plan::Plan;

/// Prints a result to standard output. That whoever reads it closes it early (`| head`) is fine, and gives false; that it
/// cannot be written (a full disk) is not, since the caller would take what is there for the whole.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => {
            Err(Failure::new(Code::Failed, format!("cannot write the result to standard output: {e}")).into())
        }
    }
}

/// Prints a line of a result.
pub fn line(text: impl std::fmt::Display) -> anyhow::Result<bool> {
    print(format!("{text}\n"))
}

/// Says something on standard error, if that can be written. What control characters it quotes are spelt out: a lab file
/// must not command the terminal of whoever checks it.
pub fn complain(text: impl std::fmt::Display) {
    let mut safe = String::new();
    for c in text.to_string().chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe.push('\n');
    let _ = std::io::stderr().write_all(safe.as_bytes());
}

/// Prints a JSON document.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<bool> {
    line(serde_json::to_string_pretty(value)?)
}

/// Colours for a person at a terminal: none if standard output is something else, or if `NO_COLOR` is set
/// (<https://no-color.org>).
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// What standard output wants.
    pub fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self(std::io::stdout().is_terminal() && !unwanted)
    }

    /// What standard error wants.
    pub fn of_stderr() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self(std::io::stderr().is_terminal() && !unwanted)
    }

    /// Whether there are colours.
    pub fn on(self) -> bool {
        self.0
    }

    /// Text about what is well.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Text about what wants a look.
    pub fn warn(self, text: &str) -> String {
        self.with("33", text)
    }

    /// Text about what is wrong.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Text that matters less.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Text that matters more.
    pub fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    /// `padded` in the colour of the state that `word` names, if it names one.
    fn state(self, word: &str, padded: &str) -> String {
        let code = match word {
            "ready" | "up" | "running" => "32",
            "drained" | "drained (soft)" | "stopped" | "converging" | "paused" => "33",
            "degraded" | "cut" | "waiting" | "down" | "crashed" | "crash-loop" => "31",
            _ => return padded.to_owned(),
        };
        self.with(code, padded)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Rows of cells as left-aligned columns; words for states in their colours.
pub fn table(paint: Paint, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[&str], style: &dyn Fn(&str, &str) -> String| {
        // nothing is padded at the end of a line
        let filled = cells.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1);
        let padded = cells.iter().zip(&widths).take(filled).enumerate().map(|(i, (cell, &width))| {
            let width = if i + 1 == filled { 0 } else { width };
            style(cell, &format!("{cell:<width$}"))
        });
        padded.collect::<Vec<_>>().join("  ") + "\n"
    };
    let mut text = line(header, &|_, padded| paint.with("2", padded));
    for row in rows {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        text += &line(&cells, &|word, padded| paint.state(word, padded));
    }
    text
}

/// The whole status for a terminal.
pub fn status(paint: Paint, s: &Status) -> String {
    let state = s.state.to_string();
    let mut out = format!(
        "lab {}   {}   carrier {}   up {}   bandwidth 1:{}\n\n",
        s.lab,
        paint.state(&state, &state),
        s.carrier,
        duration(s.uptime_s),
        s.bandwidth_divisor
    );
    let rows: Vec<Vec<String>> = s
        .planes
        .iter()
        .map(|p| {
            vec![
                p.plane.to_string(),
                p.state.to_string(),
                format!("{}/{}", p.lsps.programmed, p.lsps.wanted),
                p.lsps.on_backup.to_string(),
                format!("{}/{}", p.bgp.up, p.bgp.wanted),
                p.traffic.packets.to_string(),
                drops(&p.queues),
                p.reason.clone(),
            ]
        })
        .collect();
    out += &table(
        paint,
        &["PLANE", "STATE", "LSPS", "ON BACKUP", "BGP", "PACKETS IN", "DROPPED", "NOTE"],
        &rows,
    );
    for p in s.planes.iter().filter(|p| p.controllers.replicas > 1) {
        let leader =
            p.controllers.leader.as_deref().map_or("none leads".to_owned(), |l| format!("{l} leads"));
        let _ = writeln!(out, "plane {}: {} controllers, {leader}", p.plane, p.controllers.replicas);
    }
    let _ =
        writeln!(out, "\n{} nodes, {}, {}", s.nodes.len(), links_line(&s.links), programs_line(&s.programs));
    let marked: Vec<&LinkStatus> =
        s.links.iter().filter(|l| !l.faults.is_empty() || l.drained.is_some()).collect();
    if !marked.is_empty() {
        out.push('\n');
        out += &link_table(paint, &marked);
    }
    for (node, mode) in s.nodes.iter().filter_map(|n| Some((n, n.drained?))) {
        let _ = writeln!(out, "\nrouter {}: {}", node.name, drained(mode));
    }
    out += &broken(paint, s);
    if s.state == Health::Ready
        && let (Some(a), Some(b)) = host_pair(s)
    {
        let _ = writeln!(out, "\ntry: testbed exec {a} -- ping -c3 {b}");
    }
    out
}

/// Packets that full queues dropped, by class: `bronze 12, silver 3`.
fn drops(queues: &[ClassQueue]) -> String {
    let lost = queues.iter().filter(|q| q.dropped > 0).map(|q| format!("{} {}", q.class, q.dropped));
    let lost: Vec<String> = lost.rev().collect();
    if lost.is_empty() { "0".to_owned() } else { lost.join(", ") }
}

/// The same for a link, with the sending end: `eb01.prn: bronze 12`.
fn link_drops(link: &LinkStatus) -> String {
    let lossy = link.queues.iter().filter(|end| end.classes.iter().any(|q| q.dropped > 0));
    let ends: Vec<String> = lossy.map(|end| format!("{}: {}", end.from, drops(&end.classes))).collect();
    match (link.queues.is_empty(), ends.is_empty()) {
        (true, _) => "-".to_owned(),
        (false, true) => "0".to_owned(),
        (false, false) => ends.join("; "),
    }
}

fn host_pair(s: &Status) -> (Option<&str>, Option<&str>) {
    let mut hosts = s.nodes.iter().filter(|n| n.role == topologies::lab::Role::Host).map(|n| n.name.as_str());
    (hosts.next(), hosts.next_back())
}

fn links_line(links: &[LinkStatus]) -> String {
    let cut = links.iter().filter(|l| l.state != "up").count();
    let hurt = links.iter().filter(|l| l.state == "up" && !l.faults.is_empty()).count();
    let hurt = if hurt == 0 { String::new() } else { format!(", {hurt} impaired") };
    if cut == 0 {
        format!("{} links up{hurt}", links.len())
    } else {
        format!("{} links, {cut} cut{hurt}", links.len())
    }
}

fn programs_line(programs: &[ProgramStatus]) -> String {
    let running = programs.iter().filter(|p| p.state == "running").count();
    format!("{running} of {} programs running", programs.len())
}

/// Links for a terminal.
pub fn links(paint: Paint, s: &Status) -> String {
    link_table(paint, &s.links.iter().collect::<Vec<_>>())
}

/// `up`, or what is the matter with it: `cut`, `member 2 cut`, `drained`.
fn link_state(link: &LinkStatus) -> String {
    let mut words = link.faults.clone();
    words.extend(link.drained.map(|mode| drained(mode).to_owned()));
    if words.is_empty() { link.state.clone() } else { words.join(", ") }
}

/// How a part is drained, in a word.
fn drained(mode: PartMode) -> &'static str {
    match mode {
        PartMode::Exclude => "drained",
        PartMode::Avoid => "drained (soft)",
    }
}

fn link_table(paint: Paint, links: &[&LinkStatus]) -> String {
    let rows: Vec<Vec<String>> = links
        .iter()
        .map(|l| {
            vec![
                l.name.clone(),
                link_state(l),
                l.plane.map_or_else(|| "-".to_owned(), |p| p.to_string()),
                capacity(l),
                if l.rate_bps == 0 { "-".to_owned() } else { format!("{:.1} Mbit/s", mega(l.rate_bps)) },
                l.rtt.clone(),
                l.srlgs.join(","),
                link_drops(l),
            ]
        })
        .collect();
    table(paint, &["LINK", "STATE", "PLANE", "CAPACITY", "EMULATED", "RTT", "SRLGS", "DROPPED"], &rows)
}

/// `400G`; of a bundle with its members, and what is left of it: `300G of 400G, 3 of 4`.
fn capacity(link: &LinkStatus) -> String {
    let left = link.capacity_left.as_ref().map(|left| format!("{left} of ")).unwrap_or_default();
    let members = link.members.map(|m| format!(", {} of {}", m.up, m.total)).unwrap_or_default();
    format!("{left}{}{members}", link.capacity)
}

fn mega(bps: u64) -> f64 {
    f64::from(u32::try_from(bps / 1000).unwrap_or(u32::MAX)) / 1000.0
}

/// Nodes, connections and programs that are not as they should be.
fn broken(paint: Paint, s: &Status) -> String {
    let mut out = String::new();
    let crashed: Vec<&str> = s.nodes.iter().filter(|n| n.state != "up").map(|n| n.name.as_str()).collect();
    if !crashed.is_empty() {
        let _ = writeln!(out, "\ncrashed: {}", crashed.join(", "));
    }
    if !s.rpc.is_empty() {
        out.push('\n');
        out += &rpc_table(paint, &s.rpc);
    }
    // those that are down with their node are told of with it
    let odd = |p: &&ProgramStatus| p.state != "crashed" && (p.state != "running" || p.restarts > 0);
    let odd: Vec<&ProgramStatus> = s.programs.iter().filter(odd).collect();
    if !odd.is_empty() {
        out.push('\n');
        out += &program_table(paint, &odd);
    }
    out
}

/// Broken connections: a line for all programs of a node with which the same is wrong.
fn rpc_table(paint: Paint, broken: &[RpcStatus]) -> String {
    let mut rows: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for one in broken {
        rows.entry((&one.from, &one.to, &one.state)).or_default().push(&one.program);
    }
    let row = |((from, to, state), programs): ((&str, &str, &str), Vec<&str>)| {
        vec![from.to_owned(), to.to_owned(), state.to_owned(), programs.join(", ")]
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(row).collect();
    table(paint, &["CALLS FROM", "TO", "STATE", "PROGRAMS"], &rows)
}

fn program_table(paint: Paint, programs: &[&ProgramStatus]) -> String {
    let rows: Vec<Vec<String>> = programs
        .iter()
        .map(|p| {
            vec![
                format!("{}/{}", p.node, p.name),
                p.state.clone(),
                p.restarts.to_string(),
                p.last_exit.clone().unwrap_or_default().chars().take(60).collect(),
            ]
        })
        .collect();
    table(paint, &["PROGRAM", "STATE", "RESTARTS", "LAST EXIT"], &rows)
}

/// What is or was to be done: in the kernel, then to programs, then how much of both.
pub fn plan(plan: &Plan, programs: &[ProgramChange]) -> String {
    let mut out = if plan.is_empty() && !programs.is_empty() { String::new() } else { plan.to_string() };
    if programs.is_empty() {
        return out;
    }
    let _ = writeln!(out, "programs ({})", programs.len());
    let signs = [("start", '+'), ("stop", '-'), ("restart", '~')];
    for change in programs {
        let sign = signs.iter().find(|(word, _)| *word == change.change).map_or('~', |(_, sign)| *sign);
        let _ = writeln!(out, "  {sign} {}/{}  ({})", change.node, change.program, change.reason);
    }
    let count = |word: &str| programs.iter().filter(|change| change.change == word).count();
    let _ = writeln!(
        out,
        "{} to start, {} to restart, {} to stop.",
        count("start"),
        count("restart"),
        count("stop")
    );
    out
}

/// One event for a terminal.
pub fn event(e: &Event) -> String {
    let seconds = e.unix_ms / 1000;
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}.{:03}  {:<18} {:<24} {}", e.unix_ms % 1000, e.kind, e.subject, e.detail)
}

/// A controller's state for a terminal.
pub fn cycle(document: &serde_json::Value) -> String {
    let get = |name: &str| document.get(name).cloned().unwrap_or_default();
    let time = |name: &str| short(Duration::from_micros(get(name).as_u64().unwrap_or(0)));
    format!(
        "plane {}  cycle {}  epoch {}\nsnapshot {}, te {}, program {}\npairs ok {}, failed {}; LSPs {}, without a path inside limits {}\n",
        get("plane"),
        get("cycle"),
        get("epoch"),
        time("snapshot_us"),
        time("te_us"),
        time("program_us"),
        get("pairs_ok"),
        get("pairs_failed"),
        get("lsps"),
        get("unrouted"),
    )
}

/// Every placed path of a cycle: a line for all LSPs of a bundle that share primary and backup.
pub fn mesh(document: &serde_json::Value) -> String {
    let list = |value: &serde_json::Value, name: &str| {
        value.get(name).and_then(serde_json::Value::as_array).cloned().unwrap_or_default()
    };
    let text = |value: &serde_json::Value, name: &str| {
        value.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let bps = |value: &serde_json::Value| value.get("bps").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let demands = list(document, "demands");
    let mut rows = Vec::new();
    for bundle in list(document, "mesh") {
        let key = |v: &serde_json::Value| (text(v, "from"), text(v, "to"), text(v, "mesh"));
        let demand = demands.iter().find(|d| key(d) == key(&bundle)).map_or(0, bps);
        let mut groups: Vec<((String, String), usize, u64)> = Vec::new();
        for lsp in list(&bundle, "lsps") {
            let paths = (hops(&lsp, "primary"), hops(&lsp, "backup"));
            match groups.iter_mut().find(|(have, ..)| *have == paths) {
                Some((_, number, placed)) => (*number, *placed) = (*number + 1, *placed + bps(&lsp)),
                None => groups.push((paths, 1, bps(&lsp))),
            }
        }
        for (i, ((primary, backup), number, placed)) in groups.into_iter().enumerate() {
            let (from, to, mesh) = key(&bundle);
            let first = i == 0;
            let pair = if first { format!("{from} > {to}") } else { String::new() };
            let wanted = if first { rate(demand) } else { String::new() };
            let mesh = if first { mesh } else { String::new() };
            rows.push(vec![pair, mesh, wanted, number.to_string(), rate(placed), primary, backup]);
        }
    }
    table(Paint(false), &["PAIR", "MESH", "DEMAND", "LSPS", "PLACED", "PRIMARY", "BACKUP"], &rows)
}

/// Sites along a path, `prn chi frc`: the router of each hop, and where the last one leads.
fn hops(lsp: &serde_json::Value, name: &str) -> String {
    let hops = lsp.get(name).and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    let hops: Vec<&str> = hops.iter().filter_map(serde_json::Value::as_str).collect();
    let sites = hops.iter().filter_map(|hop| hop.split(':').next()?.split_once('.')).map(|(_, site)| site);
    // an interface is named after the site that it leads to
    let last = hops.last().and_then(|hop| hop.split(":to-").nth(1));
    let all: Vec<&str> = sites.chain(last).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" ") }
}

/// Values that are compared, in the order of `compare`'s table.
const COMPARED: [&str; 17] = [
    "program",
    "gold",
    "silver",
    "bronze",
    "backup",
    "leader",
    "restarts",
    "cycle",
    "snapshot_us",
    "te_us",
    "program_us",
    "pairs_ok",
    "pairs_failed",
    "lsps",
    "protected",
    "unrouted",
    "max_utilisation_permille",
];

/// The planes for a terminal: a column each, a row a value.
pub fn compare(paint: Paint, document: &serde_json::Value) -> String {
    let planes = document["planes"].as_array().map_or(&[][..], Vec::as_slice);
    let cell = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let row = |name: &str| {
        let cells = planes.iter().map(|plane| cell(&plane[name]));
        [name.to_owned()].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = COMPARED.iter().map(|name| row(name)).collect();
    let header: Vec<String> = planes.iter().map(|p| format!("PLANE {}", p["plane"])).collect();
    let header: Vec<&str> = [""].into_iter().chain(header.iter().map(String::as_str)).collect();
    table(paint, &header, &rows)
}

/// `93784` as `1d 2h 3m`.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_and_without_colours() {
        let rows = [
            vec!["1".to_owned(), "ready".to_owned(), String::new()],
            vec!["12".into(), "x".into(), "n".into()],
        ];
        let plain = table(Paint(false), &["P", "STATE", "NOTE"], &rows);
        assert_eq!(plain, "P   STATE  NOTE\n1   ready\n12  x      n\n");
        let coloured = table(Paint(true), &["P", "STATE", "NOTE"], &rows);
        assert!(coloured.contains("\x1b[32mready\x1b[0m\n"), "{coloured:?}");
        let stripped = coloured.replace("\x1b[32m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
        assert_eq!(stripped, plain);
    }
}

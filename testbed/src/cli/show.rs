//! Text for people: status, links, programs.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use crate::api::protocol::{ClassQueue, Event, Health, LinkStatus, ProgramStatus, Status};

/// Prints a JSON document; a closed pipe is no error.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
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

    /// `padded` in the colour of the state that `word` names, if it names one.
    fn state(self, word: &str, padded: &str) -> String {
        let code = match word {
            "ready" | "up" | "running" => "32",
            "drained" | "stopped" | "converging" | "paused" => "33",
            "degraded" | "cut" | "waiting" | "down" => "31",
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
    let cut: Vec<&LinkStatus> = s.links.iter().filter(|l| l.state != "up").collect();
    if !cut.is_empty() {
        out.push('\n');
        out += &link_table(paint, &cut);
    }
    let odd: Vec<&ProgramStatus> =
        s.programs.iter().filter(|p| p.state != "running" || p.restarts > 0).collect();
    if !odd.is_empty() {
        out.push('\n');
        out += &program_table(paint, &odd);
    }
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
    if cut == 0 { format!("{} links up", links.len()) } else { format!("{} links, {cut} cut", links.len()) }
}

fn programs_line(programs: &[ProgramStatus]) -> String {
    let running = programs.iter().filter(|p| p.state == "running").count();
    format!("{running} of {} programs running", programs.len())
}

/// Links for a terminal.
pub fn links(paint: Paint, s: &Status) -> String {
    link_table(paint, &s.links.iter().collect::<Vec<_>>())
}

fn link_table(paint: Paint, links: &[&LinkStatus]) -> String {
    let rows: Vec<Vec<String>> = links
        .iter()
        .map(|l| {
            vec![
                l.name.clone(),
                l.state.clone(),
                l.plane.map_or_else(|| "-".to_owned(), |p| p.to_string()),
                l.capacity.clone(),
                if l.rate_bps == 0 { "-".to_owned() } else { format!("{:.1} Mbit/s", mega(l.rate_bps)) },
                l.rtt.clone(),
                l.srlgs.join(","),
                link_drops(l),
            ]
        })
        .collect();
    table(paint, &["LINK", "STATE", "PLANE", "CAPACITY", "EMULATED", "RTT", "SRLGS", "DROPPED"], &rows)
}

fn mega(bps: u64) -> f64 {
    f64::from(u32::try_from(bps / 1000).unwrap_or(u32::MAX)) / 1000.0
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

/// One event for a terminal.
pub fn event(e: &Event) -> String {
    let seconds = e.unix_ms / 1000;
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}.{:03}  {:<18} {:<24} {}", e.unix_ms % 1000, e.kind, e.subject, e.detail)
}

/// A controller's state for a terminal.
pub fn cycle(document: &serde_json::Value) -> String {
    let get = |name: &str| document.get(name).cloned().unwrap_or_default();
    format!(
        "plane {}  cycle {}  epoch {}\nsnapshot {} us, te {} us, program {} us\npairs ok {}, failed {}; LSPs {}, without a path inside limits {}\n",
        get("plane"),
        get("cycle"),
        get("epoch"),
        get("snapshot_us"),
        get("te_us"),
        get("program_us"),
        get("pairs_ok"),
        get("pairs_failed"),
        get("lsps"),
        get("unrouted"),
    )
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

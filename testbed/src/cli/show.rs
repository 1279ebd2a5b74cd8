//! Text for people: status, links, programs.

use std::fmt::Write as _;
use std::io::Write as _;

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

/// Rows of cells as left-aligned columns.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (cell, width) in cells.zip(&widths) {
            let _ = write!(out, "{cell:<width$}  ");
        }
        text.push_str(out.trim_end());
        text.push('\n');
    };
    line(&mut header.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

/// The whole status for a terminal.
pub fn status(s: &Status) -> String {
    let mut out = format!(
        "lab {}   {}   carrier {}   up {}   bandwidth 1:{}\n\n",
        s.lab,
        s.state,
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
    out += &table(&["PLANE", "STATE", "LSPS", "ON BACKUP", "BGP", "PACKETS IN", "DROPPED", "NOTE"], &rows);
    let _ =
        writeln!(out, "\n{} nodes, {}, {}", s.nodes.len(), links_line(&s.links), programs_line(&s.programs));
    let cut: Vec<&LinkStatus> = s.links.iter().filter(|l| l.state != "up").collect();
    if !cut.is_empty() {
        out.push('\n');
        out += &link_table(&cut);
    }
    let odd: Vec<&ProgramStatus> =
        s.programs.iter().filter(|p| p.state != "running" || p.restarts > 0).collect();
    if !odd.is_empty() {
        out.push('\n');
        out += &program_table(&odd);
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
pub fn links(s: &Status) -> String {
    link_table(&s.links.iter().collect::<Vec<_>>())
}

fn link_table(links: &[&LinkStatus]) -> String {
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
    table(&["LINK", "STATE", "PLANE", "CAPACITY", "EMULATED", "RTT", "SRLGS", "DROPPED"], &rows)
}

fn mega(bps: u64) -> f64 {
    f64::from(u32::try_from(bps / 1000).unwrap_or(u32::MAX)) / 1000.0
}

fn program_table(programs: &[&ProgramStatus]) -> String {
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
    table(&["PROGRAM", "STATE", "RESTARTS", "LAST EXIT"], &rows)
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

/// `93784` as `1d 2h 3m`.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86400, seconds / 3600 % 24),
    }
}

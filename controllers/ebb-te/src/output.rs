//! What the command prints: tables for people, one JSON document for programs, and the plots.

use std::fmt::Write as _;

use serde::Serialize;
use te::report::{FailureKind, Report};
use te::{Bundle, Graph, LinkId, LspMesh, Mesh, PathId, TeSettings};
use topologies::units::Capacity;

use crate::network::Network;
use crate::plot::{Axis, Plot, Series};
use crate::table::Table;

/// Version of the JSON document.
pub const FORMAT: &str = "ebb-te/1";

/// Everything that was computed.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// What was read.
    pub network: &'a Network,
    /// Its graph.
    pub graph: &'a Graph,
    /// How it was computed.
    pub settings: &'a TeSettings,
    /// The paths.
    pub mesh: &'a LspMesh,
    /// The measures.
    pub report: &'a Report,
}

/// LSPs of a bundle that share both paths.
struct Alike {
    lsps: u32,
    primary: Option<PathId>,
    backup: Option<PathId>,
}

fn alike(bundle: &Bundle, mesh: &LspMesh) -> Vec<Alike> {
    let links = |p: Option<PathId>| p.map(|p| mesh.paths.get(p));
    let mut groups: Vec<Alike> = Vec::new();
    for l in &bundle.lsps {
        let same =
            |g: &&mut Alike| (links(g.primary), links(g.backup)) == (links(l.primary), links(l.backup));
        match groups.iter_mut().find(same) {
            Some(g) => g.lsps += 1,
            None => groups.push(Alike { lsps: 1, primary: l.primary, backup: l.backup }),
        }
    }
    groups
}

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    topology: &'a str,
    notes: &'a [String],
    settings: &'a TeSettings,
    report: &'a Report,
    links: Vec<LinkEntry<'a>>,
    bundles: Vec<BundleEntry<'a>>,
}

#[derive(Serialize)]
struct LinkEntry<'a> {
    from: &'a str,
    to: &'a str,
    interface: &'a str,
    rtt_us: u32,
    capacity_bps: u64,
    /// Per class, in the order of the class rounds.
    used_bps: Vec<u64>,
    utilisation: f64,
}

#[derive(Serialize)]
struct BundleEntry<'a> {
    from: &'a str,
    to: &'a str,
    mesh: Mesh,
    lsp_bps: u64,
    paths: Vec<PathEntry<'a>>,
}

#[derive(Serialize)]
struct PathEntry<'a> {
    lsps: u32,
    primary: Option<Hops<'a>>,
    backup: Option<Hops<'a>>,
}

#[derive(Serialize)]
struct Hops<'a> {
    rtt_us: u64,
    /// Nodes from source to destination.
    nodes: Vec<&'a str>,
    /// Interface by which each node but the last is left.
    interfaces: Vec<&'a str>,
}

impl<'a> Outcome<'a> {
    /// The JSON document, indented.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let (graph, mesh) = (self.graph, self.mesh);
        let utilisation = mesh.utilisation(graph);
        let link = |l: LinkId| LinkEntry {
            from: graph.name(graph.from(l)),
            to: graph.name(graph.to(l)),
            interface: graph.interface(l),
            rtt_us: graph.rtt_us(l),
            capacity_bps: graph.capacity_bps(l),
            used_bps: mesh.classes.iter().map(|c| c.used[l.ix()]).collect(),
            utilisation: utilisation.get(l.ix()).copied().unwrap_or(0.0),
        };
        let path = |a: Alike| PathEntry {
            lsps: a.lsps,
            primary: a.primary.map(|p| self.hops(p)),
            backup: a.backup.map(|p| self.hops(p)),
        };
        let bundle = |b: &Bundle| BundleEntry {
            from: graph.name(b.src),
            to: graph.name(b.dst),
            mesh: b.mesh,
            lsp_bps: b.lsp_bps,
            paths: alike(b, mesh).into_iter().map(path).collect(),
        };
        let document = Document {
            format: FORMAT,
            topology: &self.network.name,
            notes: &self.network.notes,
            settings: self.settings,
            report: self.report,
            links: graph.links().map(link).collect(),
            bundles: mesh.bundles.iter().map(bundle).collect(),
        };
        serde_json::to_string_pretty(&document)
    }

    fn hops(&self, path: PathId) -> Hops<'a> {
        let (graph, links) = (self.graph, self.mesh.paths.get(path));
        let first = links.first().map(|&l| graph.name(graph.from(l)));
        Hops {
            rtt_us: graph.path_rtt_us(links),
            nodes: first.into_iter().chain(links.iter().map(|&l| graph.name(graph.to(l)))).collect(),
            interfaces: links.iter().map(|&l| graph.interface(l)).collect(),
        }
    }

    /// Tables, with `rows` of the table of paths (0: all).
    pub fn tables(&self, rows: usize) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}: {} nodes, {} directed links, {} LSPs per pair and class, backups by {}\n",
            self.network.name, self.report.nodes, self.report.links, self.settings.lsps, self.settings.backup
        );
        out.push_str(&self.classes());
        out.push('\n');
        out.push_str(&self.hot_links());
        out.push('\n');
        out.push_str(&self.failures());
        out.push('\n');
        out.push_str(&self.paths(rows));
        out
    }

    fn classes(&self) -> String {
        let heading = [
            "class",
            "primaries",
            "reserved",
            "demand",
            "LSPs",
            "over limit",
            "no path",
            "no backup",
            "fullest link",
            "planned",
            "best possible",
            "stretch",
            "longest",
        ];
        let mut table = Table::new(&heading, &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let share = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), percent);
        for ((c, s), settings) in
            self.report.classes.iter().zip(&self.report.stretch).zip(&self.settings.classes)
        {
            table.row(vec![
                c.mesh.name().to_owned(),
                settings.algorithm.to_string(),
                format!("{} %", settings.reserved_percent),
                rate(c.demand_bps),
                (c.placed + c.unrouted).to_string(),
                c.over_limit.to_string(),
                c.unrouted.to_string(),
                (c.placed - c.protected.min(c.placed)).to_string(),
                percent(c.max_of_usable),
                share(c.planned),
                share(c.least_possible),
                format!("{:.3}", s.mean),
                format!("{:.2}", s.max),
            ]);
        }
        table.render()
    }

    fn hot_links(&self) -> String {
        const ROWS: usize = 10;
        let all = self.mesh.utilisation(self.graph);
        let mut links: Vec<LinkId> = self.graph.links().filter(|l| all.get(l.ix()).is_some()).collect();
        links.sort_by(|a, b| all[b.ix()].total_cmp(&all[a.ix()]).then(a.cmp(b)));
        let u = &self.report.utilisation;
        let mut table = Table::new(&["hottest links", "capacity", "used"], &[1, 2]);
        for l in links.into_iter().take(ROWS) {
            let g = self.graph;
            table.row(vec![
                format!("{} -> {} ({})", g.name(g.from(l)), g.name(g.to(l)), g.interface(l)),
                rate(g.capacity_bps(l)),
                percent(all[l.ix()]),
            ]);
        }
        format!(
            "Link utilisation: max {}, mean {}, {} link(s) over 100 %\n{}",
            percent(u.max),
            percent(u.mean),
            u.overloaded,
            table.render()
        )
    }

    fn failures(&self) -> String {
        let heading = ["class", "intact", "links: mean", "worst", "at", "risk groups: mean", "worst", "at"];
        let mut table = Table::new(&heading, &[1, 2, 3, 5, 6]);
        let d = &self.report.deficit;
        for (&mesh, &intact) in d.meshes.iter().zip(&d.intact) {
            let mut row = vec![mesh.name().to_owned(), percent(intact)];
            for kind in [FailureKind::Link, FailureKind::Srlg] {
                match d.worst(mesh, kind) {
                    Some((failure, worst)) => {
                        let name = if worst > 0.0 { failure.name.clone() } else { "-".to_owned() };
                        row.extend([percent(d.mean(mesh, kind)), percent(worst), name]);
                    }
                    None => row.extend(["-", "-", "-"].map(str::to_owned)),
                }
            }
            table.row(row);
        }
        format!(
            "Bandwidth deficit over all single failures, share of the class's traffic\n{}",
            table.render()
        )
    }

    fn paths(&self, rows: usize) -> String {
        let mut lines: Vec<(u64, &Bundle, Alike)> = Vec::new();
        for b in &self.mesh.bundles {
            for a in alike(b, self.mesh) {
                let rtt = a.primary.map_or(u64::MAX, |p| self.graph.path_rtt_us(self.mesh.paths.get(p)));
                lines.push((rtt, b, a));
            }
        }
        let all = lines.len();
        if rows > 0 {
            lines.sort_by_key(|l| std::cmp::Reverse(l.0));
            lines.truncate(rows);
        }
        let what = if lines.len() < all {
            format!("Paths: the {} longest of {all}; all with --paths 0 or --format json\n", lines.len())
        } else {
            "Paths\n".to_owned()
        };
        let mut table =
            Table::new(&["class", "from", "to", "LSPs", "of", "RTT", "primary", "backup"], &[3, 4, 5]);
        let spell = |p: Option<PathId>| p.map_or_else(|| "none".to_owned(), |p| self.hops(p).nodes.join(" "));
        for (rtt, b, a) in lines {
            table.row(vec![
                b.mesh.name().to_owned(),
                self.graph.name(b.src).to_owned(),
                self.graph.name(b.dst).to_owned(),
                a.lsps.to_string(),
                rate(b.lsp_bps),
                if rtt == u64::MAX { "-".to_owned() } else { milliseconds(rtt) },
                spell(a.primary),
                spell(a.backup),
            ]);
        }
        what + &table.render()
    }

    /// File names and contents of the plots.
    pub fn plots(&self) -> [(&'static str, String); 3] {
        [
            ("utilisation.svg", self.utilisation_plot().svg()),
            ("stretch.svg", self.stretch_plot().svg()),
            ("deficit.svg", self.deficit_plot().svg()),
        ]
    }

    fn subtitle(&self) -> String {
        let algorithms: Vec<String> =
            self.settings.classes.iter().map(|c| format!("{} {}", c.mesh.name(), c.algorithm)).collect();
        format!("{}; {}; backups {}", self.network.name, algorithms.join(", "), self.settings.backup)
    }

    fn utilisation_plot(&self) -> Plot {
        let u = &self.report.utilisation;
        let mut name = String::new();
        let mut series = Vec::new();
        for (class, cdf) in self.report.classes.iter().zip(&u.cdf) {
            if !name.is_empty() {
                name.push_str(" + ");
            }
            name.push_str(class.mesh.name());
            series.push(Series {
                name: name.clone(),
                colour: colour(class.mesh),
                dashed: false,
                points: curve(cdf.points(), 0.0),
            });
        }
        Plot {
            title: "How full are the links?".into(),
            subtitle: self.subtitle(),
            x: Axis {
                label: "link utilisation by primaries (% of capacity)".into(),
                min: 0.0,
                // round, and with the full link in sight when it is near
                max: if u.max > 0.6 {
                    (u.max * 105.0).max(105.0)
                } else {
                    (u.max * 10.0).ceil().max(1.0) * 10.0
                },
            },
            y: Axis { label: "links used that much or less (%)".into(), min: 0.0, max: 100.0 },
            series,
            mark: Some((100.0, "full".into())),
            note: None,
        }
    }

    fn stretch_plot(&self) -> Plot {
        let most = self.report.stretch.iter().map(|s| s.max).fold(1.0, f64::max);
        let line = |mesh: Mesh, what: &str, cdf: &te::report::Cdf| Series {
            name: format!("{}, {what}", mesh.name()),
            colour: colour(mesh),
            dashed: what != "mean of pair",
            points: cdf.points().iter().map(|p| (p.0, p.1 * 100.0)).collect(),
        };
        let both = self.report.stretch.iter();
        let series: Vec<Series> = both
            .flat_map(|s| {
                if s.max > 1.0005 {
                    vec![
                        line(s.mesh, "mean of pair", &s.average_cdf),
                        line(s.mesh, "longest of pair", &s.max_cdf),
                    ]
                } else {
                    vec![]
                }
            })
            .collect();
        let straight: Vec<&str> =
            self.report.stretch.iter().filter(|s| s.max <= 1.0005).map(|s| s.mesh.name()).collect();
        let note = (series.is_empty()).then(|| "no class takes a detour that can be felt".to_owned());
        let also = if straight.is_empty() || series.is_empty() {
            String::new()
        } else {
            format!("; no detours for {}", straight.join(" and "))
        };
        Plot {
            title: "How much longer are paths than they need be?".into(),
            subtitle: self.subtitle() + &also,
            x: Axis {
                label: "stretch of a pair's LSPs (RTT / least RTT; below 40 ms counts as 40 ms)".into(),
                min: 1.0,
                max: (1.0 + (most - 1.0) * 1.05).max(1.2),
            },
            y: shares("pairs with that or less", floor_of(&series)),
            series,
            mark: None,
            note,
        }
    }

    fn deficit_plot(&self) -> Plot {
        let d = &self.report.deficit;
        let worst = |mesh| d.of(mesh, FailureKind::Link).into_iter().chain(d.of(mesh, FailureKind::Srlg));
        let (spared, hit): (Vec<Mesh>, Vec<Mesh>) =
            d.meshes.iter().partition(|&&mesh| worst(mesh).all(|deficit| deficit <= 0.0));
        let line = |mesh: Mesh, name: &str, kind: FailureKind| {
            let cdf = d.cdf(mesh, kind);
            let start = cdf.points().first().filter(|p| p.0 > 0.0).map_or(-1.0, |_| 0.0);
            Series {
                name: format!("{}, {name}", mesh.name()),
                colour: colour(mesh),
                dashed: kind == FailureKind::Srlg,
                points: curve(cdf.points(), start),
            }
        };
        let lines = |&mesh| {
            [line(mesh, "single links", FailureKind::Link), line(mesh, "risk groups", FailureKind::Srlg)]
        };
        let mut series: Vec<Series> = hit.iter().flat_map(lines).collect();
        series.retain(|s| !s.points.is_empty());
        let most = series.iter().filter_map(|s| s.points.last()).map(|p| p.0).fold(0.0, f64::max);
        let count = |kind| d.failures.iter().filter(|f| f.kind == kind).count();
        let names: Vec<&str> = spared.iter().map(|m| m.name()).collect();
        let also = if spared.is_empty() || hit.is_empty() {
            String::new()
        } else {
            format!("; nothing for {}", names.join(" and "))
        };
        Plot {
            title: format!(
                "What do {} failures of links and {} of risk groups cost?",
                count(FailureKind::Link),
                count(FailureKind::Srlg)
            ),
            subtitle: self.subtitle() + &also,
            x: Axis {
                label: "traffic of the class that is lost or meets congestion after failover (%)".into(),
                min: 0.0,
                max: (most * 1.05).max(1.0),
            },
            y: shares("failures that cost that or less", floor_of(&series)),
            series,
            mark: None,
            note: hit.is_empty().then(|| "no single failure costs any class anything".to_owned()),
        }
    }
}

/// Points in per cent; `start` puts a point on the bottom before them, unless it is negative.
fn curve(points: &[(f64, f64)], start: f64) -> Vec<(f64, f64)> {
    let first = (start >= 0.0 && !points.is_empty()).then_some((start, 0.0));
    first.into_iter().chain(points.iter().map(|p| (p.0 * 100.0, p.1 * 100.0))).collect()
}

/// A vertical axis in per cent; one that does not begin at nothing says so.
fn shares(what: &str, min: f64) -> Axis {
    let unit = if min > 0.0 { format!("(%, axis from {min:.0})") } else { "(%)".to_owned() };
    Axis { label: format!("{what} {unit}"), min, max: 100.0 }
}

/// Where the vertical axis may begin: lines that start high leave the rest of the plot empty.
fn floor_of(series: &[Series]) -> f64 {
    let least = series.iter().filter_map(|s| s.points.first()).map(|p| p.1).fold(100.0, f64::min);
    let floor = ((least - 5.0) / 10.0).floor() * 10.0;
    if floor < 50.0 || least >= 100.0 { 0.0 } else { floor }
}

fn colour(mesh: Mesh) -> &'static str {
    match mesh {
        Mesh::Gold => "#c98a00",
        Mesh::Silver => "#5b6f86",
        Mesh::Bronze => "#8c3b12",
    }
}

/// 0.1234 as `12.3 %`; what is not nothing never shows as it.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p < 0.1 => format!("{p:.4} %"),
        p => format!("{p:.1} %"),
    }
}

/// To three digits: `98.8G`.
fn rate(bps: u64) -> String {
    let mut step = 1u64;
    while bps / step >= 1000 {
        step *= 10;
    }
    Capacity((bps + step / 2) / step * step).to_string()
}

fn milliseconds(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [percent(0.0), percent(0.000_01), percent(0.5), percent(1.234)],
            ["0 %", "0.0010 %", "50.0 %", "123.4 %"]
        );
        assert_eq!(
            [rate(98_765_432_100), rate(1), rate(999_999), rate(400_000_000_000)],
            ["98.8G", "0.001k", "1M", "400G"]
        );
        assert_eq!(milliseconds(56_789), "56.7 ms");
    }
}

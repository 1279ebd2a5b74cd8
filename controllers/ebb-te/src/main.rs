//! The `ebb-te` command.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use ebb_te::network::{Network, resolve};
use ebb_te::options::{Format, Options};
use ebb_te::output::Outcome;
use ebb_te::read::{self, Defaults};
use te::report::Report;
use te::{PlaneSettings, TeSettings};

/// What went wrong, in words, and the exit code.
struct Failure(String, u8);

#[allow(clippy::needless_pass_by_value)] // takes errors as map_err gives them
fn bad_input(words: impl ToString) -> Failure {
    Failure(words.to_string(), 2)
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(Failure(words, code)) => {
            eprintln!("ebb-te: {words}");
            ExitCode::from(code)
        }
    }
}

/// Writes to standard output; a reader that has gone away (`| head`) is no error.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn run(options: &Options) -> Result<String, Failure> {
    let network = topology(options)?;
    for note in &network.notes {
        eprintln!("note: {note}");
    }
    let graph = network.graph().map_err(bad_input)?;
    let shares = options.shares().map_err(bad_input)?;
    let mut demands = demands(options, &network)?;
    for d in &mut demands {
        let scaled = u128::from(d.bps) * u128::from(options.scale) / 100;
        d.bps = u64::try_from(scaled).unwrap_or(u64::MAX);
    }
    let resolved = resolve(&graph, &demands, shares).map_err(|missing| {
        let known: Vec<&str> = graph.nodes().take(12).map(|n| graph.name(n)).collect();
        bad_input(format!(
            "a demand names the node {missing:?}, which the topology does not have\nhint: it has {}{}",
            known.join(", "),
            if graph.node_count() > known.len() { ", …" } else { "" }
        ))
    })?;
    let settings = settings(options, &network)?;
    let mesh = te::compute(&graph, &resolved, &settings).map_err(bad_input)?;
    let report = Report::new(&graph, &mesh);
    let outcome =
        Outcome { network: &network, graph: &graph, settings: &settings, mesh: &mesh, report: &report };
    if let Some(folder) = &options.plots {
        plots(folder, &outcome)?;
    }
    match options.format {
        Format::Table => Ok(outcome.tables(options.paths)),
        Format::Json => match outcome.json() {
            Ok(text) => Ok(text + "\n"),
            Err(e) => Err(Failure(format!("the report cannot be written as JSON: {e}"), 5)),
        },
    }
}

fn topology(options: &Options) -> Result<Network, Failure> {
    let defaults = Defaults {
        capacity_bps: options.capacity.0,
        rtt_us: u32::try_from(options.rtt.0).unwrap_or(u32::MAX),
        plane: options.plane,
    };
    // the lab's own look-up: names of ready-made labs, else a path
    let (text, file) = topologies::labs::source(&options.topology).map_err(bad_input)?;
    read::topology(&text, &file, &defaults).map_err(|problems| {
        bad_input(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

fn settings(options: &Options, network: &Network) -> Result<TeSettings, Failure> {
    let Some(path) = &options.settings else { return Ok(options.te_settings(network)) };
    let file = path.display();
    let text = fs::read_to_string(path).map_err(|e| {
        bad_input(format!("{file}: cannot read the settings: {e}\nhint: give a readable JSON file"))
    })?;
    let planes: PlaneSettings = serde_json::from_str(&text).map_err(|e| {
        bad_input(format!("{file}:{}:{}: {e}\nhint: docs/ebb-te.md shows every field", e.line(), e.column()))
    })?;
    planes.of(options.plane).map_err(|e| bad_input(format!("{file}: {e}")))
}

fn demands(options: &Options, network: &Network) -> Result<Vec<ebb_te::NetworkDemand>, Failure> {
    if let Some(path) = &options.matrix {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| {
            bad_input(format!("{file}: cannot read the matrix: {e}\nhint: give a readable UTF-8 text file"))
        })?;
        return read::matrix(&text, &file).map_err(bad_input);
    }
    if let Some(total) = options.gravity {
        return Ok(network.gravity(total.0));
    }
    if network.demands.is_empty() {
        return Err(bad_input(format!(
            "{} holds no demands\nhint: give --matrix FILE, or --gravity RATE for a made-up matrix",
            options.topology
        )));
    }
    Ok(network.demands.clone())
}

fn plots(folder: &Path, outcome: &Outcome<'_>) -> Result<(), Failure> {
    let failed = |path: &Path, e: &std::io::Error| {
        bad_input(format!(
            "{}: cannot write the plots: {e}\nhint: --plots takes a folder that can be made or written to",
            path.display()
        ))
    };
    fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
    for (name, svg) in outcome.plots() {
        let path = folder.join(name);
        fs::write(&path, svg).map_err(|e| failed(&path, &e))?;
    }
    Ok(())
}

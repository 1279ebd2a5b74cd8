//! `probe`: streams between hosts, and what became of them.

use tokio::signal::unix::{SignalKind, signal};
use topologies::lab::{Lab, Role};

use super::args::{Format, Global, Probe};
use super::progress::Progress;
use super::show;
use super::target::Running;
use crate::api::client::Connection;
use crate::api::protocol::{Input, Reply, Request};
use crate::failure::{Code, Failure};
use crate::probe::{Class, HostSpec, Spec, StreamSpec, table};

/// Runs the probes; Ctrl-C ends them early and still reports.
pub async fn probe(global: &Global, args: Probe) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let spec = spec(&lab, &args)?;
    let mut progress = Progress::new(global.quiet);
    progress.say(&format!(
        "{} {} of {} packets/s for {} s",
        spec.streams.len(),
        if spec.streams.len() == 1 { "stream" } else { "streams" },
        args.rate,
        args.duration
    ));
    let mut connection = Connection::open(&running.endpoint, &running.token, Request::Probe { spec }).await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let report = loop {
        tokio::select! {
            _ = interrupt.recv() => connection.send(&Input::Stop).await?,
            reply = connection.reply() => match reply? {
                Reply::Progress(text) => progress.say(&text),
                Reply::Probe(report) => break report,
                Reply::Done => return Err(Failure::new(Code::Internal, "the probe sent no report").into()),
                _ => {}
            },
        }
    };
    if global.format == Format::Json {
        show::json(&report)?;
    } else {
        show::print(table::render(&report))?;
    }
    let lost = report.lost();
    match args.max_lost {
        Some(limit) if lost > limit => {
            show::complain(format!("testbed: {lost} packets lost, at most {limit} allowed"));
            Ok(Code::Failed.number())
        }
        _ => Ok(0),
    }
}

fn spec(lab: &Lab, args: &Probe) -> anyhow::Result<Spec> {
    let ends = |wanted: Option<&String>| -> anyhow::Result<Vec<String>> {
        let names = match wanted {
            Some(selector) => crate::selection::nodes(lab, selector)?,
            None => lab.nodes.iter().map(|n| n.name.clone()).collect(),
        };
        let hosts = names.into_iter().filter(|n| lab.node(n).is_some_and(|n| n.role == Role::Host));
        Ok(hosts.collect())
    };
    let (sources, sinks) = (ends(args.from.as_ref())?, ends(args.to.as_ref())?);
    let classes = args.class.iter().map(|c| c.parse::<Class>());
    let classes: Vec<Class> =
        classes.collect::<Result<_, _>>().map_err(|e| Failure::new(Code::Usage, e.to_string()))?;
    if !(args.duration.is_finite() && args.duration > 0.0 && args.duration <= 86_400.0) {
        return Err(Failure::new(Code::Usage, "--duration must be above 0 and at most 86400 seconds").into());
    }
    // no classes: nothing but the defaults
    let mut spec = Spec::all_pairs(lab, &[], 1).lasting(std::time::Duration::from_secs_f64(args.duration));
    spec.payload = args.size;
    for from in &sources {
        for to in sinks.iter().filter(|to| *to != from) {
            for class in &classes {
                spec.streams.push(StreamSpec {
                    from: from.clone(),
                    to: to.clone(),
                    class: *class,
                    pps: args.rate,
                    flows: args.flows,
                });
            }
        }
    }
    for node in lab.hosts() {
        let host = HostSpec { address: node.address, sources: node.local_prefixes.first().copied() };
        spec.hosts.insert(node.name.clone(), host);
    }
    if spec.streams.is_empty() {
        return Err(Failure::new(Code::Usage, "no stream: source and destination must be different hosts")
            .hint("hosts are named h1.SITE; `testbed status --format json` lists them")
            .into());
    }
    spec.check().map_err(|e| Failure::new(Code::Usage, e.to_string()))?;
    Ok(spec)
}

//! `config`: the configurations of routers.

use std::io::Read as _;

use router_emu::config_agent::edit::Edit;
use serde_json::{Value, json};
use topologies::lab::Lab;
use topologies::units::{Capacity, Rtt};

use super::args::{ConfigAction, ConfigPush, ConfigRollout, Format, Global};
use super::progress::Progress;
use super::show;
use super::target::Running;
use crate::api::protocol::{ConfigChange, ConfigOrder, ConfigVerb, Reply, Request, RolloutOrder};
use crate::failure::{Code, Failure};
use crate::selection::nodes;

/// `config show | push | confirm | rollback | history`.
pub async fn config(global: &Global, action: ConfigAction) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let (routers, verb, look): (_, _, fn(&Value) -> String) = match action {
        ConfigAction::Show { routers, version } => (routers, ConfigVerb::Show { version }, shown),
        ConfigAction::History { routers } => (routers, ConfigVerb::Show { version: 0 }, history),
        ConfigAction::Confirm { routers } => (routers, ConfigVerb::Confirm, states),
        ConfigAction::Rollback { routers, to } => (routers, ConfigVerb::Rollback { to }, states),
        ConfigAction::Rollout(args) => return rollout(global, &running, &lab, args).await,
        ConfigAction::Push(args) => {
            let verb = push(&args)?;
            (args.routers, verb, states)
        }
    };
    let nodes = select(&lab, &routers)?;
    ask(global, &running, Request::Config(ConfigOrder { nodes, verb }), look).await?;
    Ok(0)
}

/// Makes a call that answers with a document, prints it and gives it back.
async fn ask(
    global: &Global,
    running: &Running,
    request: Request,
    look: impl Fn(&Value) -> String,
) -> anyhow::Result<Value> {
    let mut progress = Progress::new(global.quiet);
    let mut document = Value::Null;
    running
        .call(request, |reply| match reply {
            Reply::Progress(text) => progress.say(&text),
            Reply::Document(d) => document = d,
            _ => {}
        })
        .await?;
    if global.format == Format::Json {
        show::json(&document)?;
    } else {
        print!("{}", look(&document));
    }
    Ok(document)
}

async fn rollout(global: &Global, running: &Running, lab: &Lab, args: ConfigRollout) -> anyhow::Result<u8> {
    let soak_ms = milliseconds("--soak", args.soak)?;
    let confirm_within_ms = match args.confirm_within {
        Some(seconds) => milliseconds("--confirm-within", seconds)?,
        None => soak_ms.saturating_mul(3),
    };
    let order = RolloutOrder {
        nodes: select(lab, &args.routers)?,
        edits: args.set.iter().map(|text| edit(text)).collect::<Result<_, _>>()?,
        canary: !args.no_canary,
        soak_ms,
        confirm_within_ms,
        from: args.from,
        comment: args.comment,
    };
    let line = |end: &Value| {
        let text = |field: &str| end[field].as_str().unwrap_or_default().to_owned();
        format!("{}: {}\n", text("outcome"), text("detail"))
    };
    let end = ask(global, running, Request::Rollout(order), line).await?;
    Ok(if end["outcome"] == "done" { 0 } else { Code::Failed.number() })
}

fn milliseconds(option: &str, seconds: f64) -> anyhow::Result<u64> {
    let time = std::time::Duration::try_from_secs_f64(seconds)
        .map_err(|e| Failure::new(Code::Usage, format!("{option} {seconds}: {e}")))?;
    Ok(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Routers that a selector means; `all` means all of them.
fn select(lab: &Lab, text: &str) -> anyhow::Result<Vec<String>> {
    Ok(nodes(lab, if text == "all" { "role:router" } else { text })?)
}

fn push(args: &ConfigPush) -> anyhow::Result<ConfigVerb> {
    let change = match &args.file {
        Some(file) => ConfigChange::Whole(document(file)?),
        None => ConfigChange::Edits(args.set.iter().map(|text| edit(text)).collect::<Result<_, _>>()?),
    };
    Ok(ConfigVerb::Push {
        change,
        confirm_within_ms: milliseconds("--confirm-within", args.confirm_within.unwrap_or(0.0))?,
        comment: args.comment.clone(),
        check_only: args.check,
    })
}

fn document(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        file => std::fs::read_to_string(file).map(|content| text = content),
    };
    read.map_err(|e| Failure::new(Code::Usage, format!("cannot read {file}: {e}")))?;
    Ok(text)
}

/// Reads `PATH=VALUE`. Capacities and round-trip times have units, as in lab files.
pub fn edit(text: &str) -> Result<Edit, Failure> {
    let wrong = |why: String| {
        Failure::new(Code::Usage, format!("--set {text}: {why}")).hint(
            "write PATH=VALUE: interfaces.to-chi.capacity=200G, interfaces.*.enabled=false, openr.bfd.tx=50",
        )
    };
    let (path, value) = text.split_once('=').ok_or_else(|| wrong("no value".into()))?;
    let with_unit = |field: &str, number: Result<u64, String>| {
        let path = path.rsplit_once('.').map_or(String::new(), |(way, _)| format!("{way}.")) + field;
        number.map(|number| Edit { path, value: json!(number) }).map_err(&wrong)
    };
    match path.rsplit('.').next().unwrap_or_default() {
        "capacity" => {
            let number = value.parse::<Capacity>().map(|rate| rate.0).map_err(|e| e.to_string());
            with_unit("capacity_bps", number)
        }
        "rtt" => {
            with_unit("declared_rtt_us", value.parse::<Rtt>().map(|rtt| rtt.0).map_err(|e| e.to_string()))
        }
        "srlgs" => {
            let names: Vec<&str> = value.split(',').filter(|name| !name.is_empty()).collect();
            Ok(Edit { path: path.to_owned(), value: json!(names) })
        }
        _ => {
            // what is no JSON is text
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            Ok(Edit { path: path.to_owned(), value })
        }
    }
}

fn routers(document: &Value) -> &[Value] {
    document["routers"].as_array().map_or(&[], Vec::as_slice)
}

/// One router: its configuration. Several: their states.
fn shown(document: &Value) -> String {
    match routers(document) {
        [router] => serde_json::to_string_pretty(&router["config"]).unwrap_or_default() + "\n",
        _ => states(document),
    }
}

fn states(document: &Value) -> String {
    let row = |router: &Value| {
        let number = &router["running"];
        let by = router["history"].as_array().and_then(|all| all.iter().find(|v| v["version"] == *number));
        let text = |field: &str| by.and_then(|v| v[field].as_str()).unwrap_or("-").to_owned();
        let note = match (&router["confirm_left_ms"], router["problem"].as_str()) {
            (_, Some(problem)) if !problem.is_empty() => problem.to_owned(),
            (Value::Number(left), _) => {
                format!("goes back in {:.1} s unless confirmed", left.as_f64().unwrap_or(0.0) / 1000.0)
            }
            _ => text("comment"),
        };
        let shut = router["shut"].as_array().map_or(0, Vec::len);
        vec![
            router["node"].as_str().unwrap_or_default().to_owned(),
            number.to_string(),
            text("writer"),
            shut.to_string(),
            note,
        ]
    };
    let rows: Vec<Vec<String>> = routers(document).iter().map(row).collect();
    show::table(show::Paint::of_stdout(), &["ROUTER", "VERSION", "BY", "SHUT", "NOTE"], &rows)
}

fn history(document: &Value) -> String {
    let mut rows = Vec::new();
    for router in routers(document) {
        for version in router["history"].as_array().into_iter().flatten() {
            let text = |field: &str| version[field].as_str().unwrap_or_default().to_owned();
            let runs = if version["version"] == router["running"] { "runs" } else { "" };
            rows.push(vec![
                router["node"].as_str().unwrap_or_default().to_owned(),
                version["version"].to_string(),
                runs.to_owned(),
                text("fate"),
                text("writer"),
                text("hash"),
                text("comment"),
            ]);
        }
    }
    show::table(show::Paint::of_stdout(), &["ROUTER", "VERSION", "", "FATE", "BY", "HASH", "COMMENT"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_with_units() {
        let good = |text: &str| edit(text).map(|e| (e.path, e.value)).unwrap();
        let capacity = ("interfaces.to-chi.capacity_bps".to_owned(), json!(200_000_000_000_u64));
        assert_eq!(good("interfaces.to-chi.capacity=200G"), capacity);
        let rtt = ("interfaces.to-frc.2.declared_rtt_us".to_owned(), json!(1_500));
        assert_eq!(good("interfaces.to-frc.2.rtt=1.5ms"), rtt);
        assert_eq!(good("interfaces.*.enabled=false").1, json!(false));
        assert_eq!(good("interfaces.a.srlgs=x,y").1, json!(["x", "y"]));
        assert_eq!(good("openr.bfd.tx=50").1, json!(50));
        let error = edit("interfaces.to-chi.capacity=200").unwrap_err();
        assert!(error.message.starts_with("--set interfaces.to-chi.capacity=200: "), "{error}");
        assert!(edit("openr").unwrap_err().message.ends_with("no value"));
    }
}

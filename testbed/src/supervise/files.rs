//! What programs read: configurations rendered from the lab, and the programs that the lab wants.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use router_emu::config::{BfdTimers, CoreInterface, OpenrTimers, RouterConfig};
use router_emu::config_agent::core::disabled;
use router_emu::config_agent::journal::Journal;
use topologies::lab::{Lab, Node, ProgramKind, Role, SiteKind};

use super::programs::ProgramSpec;
use super::{controller, etcd, keys};
use crate::api::protocol::ProgramChange;
use crate::bird;
use crate::plan::bonded_members;
use crate::state::StateDir;

/// Folder of a node's sockets and configurations inside the world.
pub fn run_dir(node: &str) -> PathBuf {
    Path::new("/run/testbed").join(node)
}

/// The lab's hosts file: every node's name, in every node.
pub fn hosts(lab: &Lab) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
    for node in &lab.nodes {
        let _ = writeln!(text, "{} {}", node.address, node.name);
    }
    text
}

/// Configuration of a router's agents.
pub fn router_config(lab: &Lab, node: &Node) -> RouterConfig {
    let core = node.interfaces.iter().filter(|i| i.core).filter_map(|i| {
        let link = lab.link(&i.link)?;
        Some(CoreInterface {
            name: i.name.clone(),
            label: i.static_label?,
            peer_link_local: i.peer_link_local,
            capacity_bps: link.capacity.0,
            members: bonded_members(link),
            declared_rtt_us: if lab.emulate_delay { 0 } else { link.rtt.0 },
            srlgs: link.srlgs.clone(),
            enabled: true,
        })
    });
    RouterConfig {
        node: node.name.clone(),
        plane: node.plane.unwrap_or(0),
        site: node.site_id,
        site_name: node.site.clone(),
        is_dc: lab.sites.iter().any(|s| s.name == node.site && s.kind == SiteKind::Dc),
        loopback: node.address,
        run_dir: run_dir(&node.name),
        state_dir: run_dir(&node.name).join("state"),
        fabric_interface: node.interfaces.iter().find(|i| !i.core).map(|i| i.name.clone()),
        interfaces: core.collect(),
        max_labels: lab.te.max_labels,
        // shortest paths can wait until the repair of label-switched paths is through: they only carry what has none
        openr: OpenrTimers { spf_min: 60, hello: hello(lab), bfd: bfd_timers(lab), ..OpenrTimers::default() },
        macsec: keys::config(lab, node),
    }
}

/// Hellos measure the round-trip time: where it is real, ten of them, which a step needs to be believed, should not take
/// minutes.
fn hello(lab: &Lab) -> u64 {
    if lab.emulate_delay { 1_000 } else { OpenrTimers::default().hello }
}

fn bfd_timers(lab: &Lab) -> BfdTimers {
    let Some(bfd) = &lab.bfd else { return BfdTimers::default() };
    let interval = u64::try_from(bfd.interval.as_millis()).unwrap_or(u64::MAX);
    BfdTimers { enabled: true, tx: interval, rx: interval, multiplier: bfd.multiplier }
}

/// A program with the files that it needs, path and text.
struct Prepared {
    spec: ProgramSpec,
    files: Vec<(PathBuf, String)>,
}

fn kind_name(kind: ProgramKind) -> &'static str {
    match kind {
        ProgramKind::Bird => "bird",
        ProgramKind::Openr => "openr",
        ProgramKind::FibAgent => "fib-agent",
        ProgramKind::LspAgent => "lsp-agent",
        ProgramKind::RouteAgent => "route-agent",
        ProgramKind::ConfigAgent => "config-agent",
        ProgramKind::KeyAgent => "key-agent",
        ProgramKind::EbbController => "ebb-controller",
        ProgramKind::Etcd => "etcd",
        ProgramKind::NhgTm => "nhg-tm",
    }
}

/// Niceness: what forwards and repairs comes before what computes.
fn niceness(kind: ProgramKind) -> i32 {
    match kind {
        ProgramKind::Openr | ProgramKind::LspAgent => -10,
        ProgramKind::FibAgent
        | ProgramKind::RouteAgent
        | ProgramKind::KeyAgent
        | ProgramKind::Bird
        | ProgramKind::Etcd => -5,
        ProgramKind::EbbController | ProgramKind::NhgTm | ProgramKind::ConfigAgent => 0,
    }
}

fn prepare(
    lab: &Lab,
    node: &Node,
    kind: ProgramKind,
    bin: &Path,
    state: &StateDir,
) -> anyhow::Result<Vec<Prepared>> {
    let name = kind_name(kind);
    let dir = run_dir(&node.name);
    let spec = |name: &str, argv: Vec<String>, config: &str| ProgramSpec {
        node: node.name.clone(),
        name: name.to_owned(),
        argv,
        again: None,
        log: state.log(&node.name, name),
        config: config.to_owned(),
        nice: niceness(kind),
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    match kind {
        ProgramKind::Bird => {
            let config = bird::render(lab, node, bird::Drain::Normal)?.bird_conf;
            let with_program = |mut argv: Vec<String>| {
                argv.insert(0, bird_binary());
                argv
            };
            let mut spec = spec(name, with_program(bird::command_line(&dir, false)), &config);
            spec.again = Some(with_program(bird::command_line(&dir, true)));
            Ok(vec![Prepared { spec, files: vec![(dir.join(bird::CONF_FILE), config)] }])
        }
        ProgramKind::EbbController => {
            let mut prepared = Vec::new();
            let all = lab.planes.iter().flat_map(|plane| controller::replicas(lab, plane.id));
            for replica in all.filter(|replica| replica.host == node.name) {
                let config = serde_json::to_string_pretty(&controller::config(lab, &replica))?;
                let name = &replica.program;
                let path = dir.join(format!("{name}.json"));
                let own = lab.plane(replica.plane).and_then(|plane| plane.controller_program.clone());
                let program = own.unwrap_or_else(|| text(&bin.join("ebb-controller")));
                let argv = vec![program, "--config".into(), text(&path)];
                prepared.push(Prepared { spec: spec(name, argv, &config), files: vec![(path, config)] });
            }
            Ok(prepared)
        }
        ProgramKind::NhgTm => {
            let all = lab.matrices_on(&node.name).filter_map(|plane| controller::matrix(lab, plane));
            let one = |matrix: controller::Matrix| {
                let config = serde_json::to_string_pretty(&matrix.config)?;
                let path = dir.join(format!("{}.json", matrix.program));
                let argv = vec![text(&bin.join(name)), "--config".into(), text(&path)];
                anyhow::Ok(Prepared {
                    spec: spec(&matrix.program, argv, &config),
                    files: vec![(path, config)],
                })
            };
            all.map(one).collect()
        }
        ProgramKind::Etcd => {
            let argv = etcd::command_line(lab, node, &dir);
            Ok(vec![Prepared { spec: spec(name, argv, ""), files: Vec::new() }])
        }
        ProgramKind::Openr
        | ProgramKind::FibAgent
        | ProgramKind::LspAgent
        | ProgramKind::RouteAgent
        | ProgramKind::ConfigAgent
        | ProgramKind::KeyAgent => {
            let config = router_config(lab, node);
            let path = dir.join("router.json");
            let argv = vec![text(&bin.join(name)), "--config".into(), text(&path)];
            let read = serde_json::to_string_pretty(&what_it_reads(kind, config.clone()))?;
            let whole = serde_json::to_string_pretty(&config)?;
            Ok(vec![Prepared { spec: spec(name, argv, &read), files: vec![(path, whole)] }])
        }
    }
}

/// The part of the router's configuration that makes a program start again when it changes. What may change while the
/// router runs is told by the config-agent, which takes a changed base over when it starts.
fn what_it_reads(kind: ProgramKind, mut config: RouterConfig) -> RouterConfig {
    // openr takes over no configuration with other interfaces than those that it started with
    if !matches!(kind, ProgramKind::ConfigAgent | ProgramKind::KeyAgent | ProgramKind::Openr) {
        config.macsec = None;
    }
    if kind != ProgramKind::ConfigAgent {
        config.openr = OpenrTimers::default();
        for interface in &mut config.interfaces {
            interface.capacity_bps = 0;
            // openr watches the members, and learns of them when it starts
            if kind != ProgramKind::Openr {
                interface.members = 0;
            }
            interface.declared_rtt_us = 0;
            interface.srlgs.clear();
        }
    }
    config
}

/// Interfaces that the routers' running configurations keep down: node, interface.
pub fn shut(lab: &Lab) -> BTreeSet<(String, String)> {
    lab.nodes
        .iter()
        .flat_map(|node| shut_by(lab, node).into_iter().map(|name| (node.name.clone(), name)))
        .collect()
}

/// Interfaces that a router's running configuration keeps down, as its config-agent has written it down. If the lab changes
/// the router's base, the base runs.
pub fn shut_by(lab: &Lab, node: &Node) -> Vec<String> {
    if !node.programs.contains(&ProgramKind::ConfigAgent) {
        return Vec::new();
    }
    let base = router_config(lab, node);
    match Journal::load(&base.state_dir) {
        Ok(Some(journal)) if journal.base == base => disabled(journal.running()).map(str::to_owned).collect(),
        // a journal that cannot be read is put aside by the agent, which then runs the base
        _ => Vec::new(),
    }
}

fn bird_binary() -> String {
    for path in ["/usr/sbin/bird", "/sbin/bird", "/usr/local/sbin/bird"] {
        if Path::new(path).exists() {
            return path.to_owned();
        }
    }
    "bird".to_owned()
}

fn prepare_all(lab: &Lab, state: &StateDir) -> anyhow::Result<Vec<Prepared>> {
    let exe = std::env::current_exe().context("cannot find the testbed's own program file")?;
    let bin = exe.parent().context("the testbed's program file has no folder")?;
    let mut all = Vec::new();
    for node in &lab.nodes {
        for kind in &node.programs {
            all.extend(prepare(lab, node, *kind, bin, state)?);
        }
    }
    Ok(all)
}

/// The programs that the lab wants.
pub fn programs(lab: &Lab, state: &StateDir) -> anyhow::Result<Vec<ProgramSpec>> {
    Ok(prepare_all(lab, state)?.into_iter().map(|p| p.spec).collect())
}

/// What a first `up` of the lab would start.
pub fn first_start(lab: &Lab) -> Vec<ProgramChange> {
    let wanted = programs(lab, &StateDir::at("/nonexistent")).unwrap_or_default();
    let start = |spec: ProgramSpec| ProgramChange {
        node: spec.node,
        program: spec.name,
        change: "start".into(),
        reason: "wanted by the lab".into(),
    };
    wanted.into_iter().map(start).collect()
}

/// Writes all configurations and the hosts file; `drained` decides BIRD's drain files.
pub fn write(lab: &Lab, state: &StateDir, drained: &dyn Fn(u8) -> bird::Drain) -> anyhow::Result<()> {
    for node in &lab.nodes {
        let dir = run_dir(&node.name).join("state");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        if node.role == Role::Router {
            let plane = node.plane.unwrap_or(0);
            write_drain(&node.name, drained(plane))?;
        }
    }
    etcd::prepare(lab)?;
    keys::write(lab)?;
    for prepared in prepare_all(lab, state)? {
        for (path, text) in prepared.files {
            replace(&path, &text)?;
        }
    }
    // /etc/hosts is bound to this file: it must stay the same file
    let hosts_path = Path::new("/run/testbed/hosts");
    let mut file = std::fs::File::options().create(true).write(true).truncate(true).open(hosts_path)?;
    file.write_all(hosts(lab).as_bytes())?;
    Ok(())
}

/// Writes a router's drain file.
pub fn write_drain(node: &str, drain: bird::Drain) -> anyhow::Result<()> {
    replace(&run_dir(node).join(bird::DRAIN_FILE), &drain.conf())
}

/// Writes a file as a whole or not at all.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|have| have == text) {
        return Ok(());
    }
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, text).with_context(|| format!("cannot write {}", temporary.display()))?;
    std::fs::rename(&temporary, path).with_context(|| format!("cannot rename to {}", path.display()))
}

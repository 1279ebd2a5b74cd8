//! The words of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod config;

pub use super::fault_args::{KernelVerb, LinkAction, NodeVerb, ProgramArgs, ProgramVerb, RpcPath, RpcVerb};
pub use super::run_args::{ReportArgs, RunArgs, Shard};
pub use config::{ConfigAction, ConfigPush, ConfigRollout};

/// A working miniature of multi-plane networks on one Linux box.
#[derive(Debug, Parser)]
#[command(name = "testbed", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 fine, 1 a check failed or an action was refused, 2 bad usage or input, 3 warnings,\n\
4 the machine lacks something, 5 internal error, 124 timed out, 130 interrupted.\n\n\
Examples:\n  testbed up                                  the default lab, ebb-small\n  \
testbed exec h1.prn -- ping -c3 h1.lla\n  testbed link cut eb01.atn--eb01.prn\n  testbed drain plane 2\n  testbed down"
)]
pub struct Cli {
    /// For every verb.
    #[command(flatten)]
    pub global: Global,
    /// The verb.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every verb.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Lab by name; not needed while only one runs
    #[arg(short, long, global = true, value_name = "LAB", env = "TESTBED_LAB")]
    pub name: Option<String>,
    /// How to print results
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Say less: no progress lines
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more (twice: much more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring a lab up, or change the running one to what its file now says
    #[command(alias = "deploy")]
    Up(Up),
    /// Take the lab down; twice is fine
    #[command(alias = "destroy")]
    Down(Down),
    /// State of planes, links and programs
    #[command(alias = "inspect")]
    Status {
        /// Print again every second until interrupted
        #[arg(short, long)]
        watch: bool,
    },
    /// Run a command in a node; its exit code is returned
    Exec(Exec),
    /// A shell in a node
    Shell {
        /// Node, for example h1.prn
        node: String,
    },
    /// Log of a program
    Logs(Logs),
    /// What happened, one line an event
    Events {
        /// Wait for further events
        #[arg(short, long)]
        follow: bool,
        /// Those of the lab's earlier lives, too
        #[arg(long)]
        all: bool,
        /// Only the last so many
        #[arg(long, value_name = "LINES", conflicts_with = "follow")]
        last: Option<usize>,
    },
    /// Cut, impair and restore links
    Link {
        /// What to do.
        #[command(subcommand)]
        action: LinkAction,
    },
    /// Kill, stop and resume programs
    Program {
        /// What to do.
        #[command(subcommand)]
        action: ProgramVerb,
    },
    /// Crash nodes and boot them
    Node {
        /// What to do.
        #[command(subcommand)]
        action: NodeVerb,
    },
    /// Cut, delay, refuse and restore the connections of controllers to agents
    Rpc {
        /// What to do.
        #[command(subcommand)]
        action: RpcVerb,
    },
    /// Delete something of a node's kernel behind its agents' backs
    Kernel {
        /// What to do.
        #[command(subcommand)]
        action: KernelVerb,
    },
    /// Move the traffic off a plane, without loss
    Drain(DrainArgs),
    /// Let a drained plane carry traffic again
    Undrain(DrainArgs),
    /// Show, push, confirm and roll back the configurations of routers
    Config {
        /// What to do.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Run one controller cycle now and show its result
    Cycle(Cycle),
    /// Show the planes' controllers and their last cycles side by side
    Compare,
    /// Send sequence-numbered streams between hosts and report what was lost, and when
    Probe(Probe),
    /// What `up` would do, with the reason for each step
    Plan(Which),
    /// Check a lab file
    Validate(Which),
    /// JSON Schema of lab files, or of scenario files
    Schema {
        /// Of scenario files
        #[arg(long)]
        scenario: bool,
    },
    /// Run scenarios: break things on a schedule and check what must hold
    Run(RunArgs),
    /// Show past runs
    Report(ReportArgs),
    /// What this machine has, what labs need, what `--carrier auto` would take
    Doctor,
    /// Find and remove what dead labs left
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Draw the lab
    Graph(Graph),
    /// Shell completions
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// For the testbed's own processes
    #[command(hide = true, subcommand)]
    Internal(super::internal::Internal),
}

/// Which lab file.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// Lab file, or the name of a ready-made lab; `-` is standard input [default: the only *.testbed.yaml here, else ebb-small]
    pub lab: Option<String>,
}

/// `up`.
#[derive(Clone, Debug, Args)]
pub struct Up {
    /// Which lab
    #[command(flatten)]
    pub which: Which,
    /// Where the lab lives
    #[arg(long, value_enum, default_value_t = CarrierChoice::Auto)]
    pub carrier: CarrierChoice,
    /// Guest kernel: a vmlinuz, or a folder with boot/ and lib/modules/
    #[arg(long, value_name = "PATH", env = "TESTBED_KERNEL")]
    pub kernel: Option<PathBuf>,
    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Only print what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Longest wait for readiness, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub timeout: u64,
    /// Leave the lab running if it does not become ready
    #[arg(long)]
    pub keep_on_failure: bool,
}

/// Carriers, and `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CarrierChoice {
    /// Whatever this machine can do, said in one line
    Auto,
    /// Namespaces on this kernel
    Host,
    /// A QEMU guest
    Vm,
}

/// `down`.
#[derive(Clone, Debug, Args)]
pub struct Down {
    /// Every lab of this user
    #[arg(short, long)]
    pub all: bool,
}

/// `exec`.
#[derive(Clone, Debug, Args)]
pub struct Exec {
    /// Node or selector: h1.prn, role=router, plane:2, eb01.*
    pub nodes: String,
    /// Command, after `--`
    #[arg(last = true, required = true)]
    pub argv: Vec<String>,
}

/// `logs`.
#[derive(Clone, Debug, Args)]
pub struct Logs {
    /// Node, or node/program
    pub node: String,
    /// Program; all of the node if left out
    pub program: Option<String>,
    /// Last lines of each
    #[arg(short = 'n', long, default_value_t = 40, value_name = "LINES")]
    pub lines: usize,
}

/// `drain`, `undrain`.
#[derive(Clone, Debug, Args)]
pub struct DrainArgs {
    /// What to drain
    #[command(subcommand)]
    pub what: DrainWhat,
}

/// What can be drained.
#[derive(Clone, Debug, Subcommand)]
pub enum DrainWhat {
    /// A plane, or all
    Plane {
        /// Its number, or `all`
        plane: PlaneChoice,
        /// Even the last plane that carries traffic
        #[arg(long)]
        force: bool,
        /// Withdraw everything instead of de-preferring it: with all planes withdrawn, nothing passes any more
        #[arg(long)]
        withdraw: bool,
        /// Longest wait for the counters, seconds
        #[arg(long, default_value_t = 60, value_name = "SECONDS")]
        timeout: u64,
    },
    /// Backbone links: traffic engineering moves all paths off them, without loss
    Link {
        /// Links by selector: eb01.chi--eb01.frc, srlg:conduit-7
        links: String,
        /// How and why
        #[command(flatten)]
        how: DrainHow,
    },
    /// Routers: no path goes through them any more (paths still start and end there)
    Router {
        /// Routers by selector: eb01.chi, site=chi
        routers: String,
        /// How and why
        #[command(flatten)]
        how: DrainHow,
    },
}

/// A plane, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneChoice {
    /// One.
    One(u8),
    /// All.
    All,
}

impl std::str::FromStr for PlaneChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => text.parse().map(Self::One).map_err(|_| "write the number of a plane, or `all`".into()),
        }
    }
}

/// How links and routers are drained; means nothing to `undrain`.
#[derive(Clone, Debug, Args)]
pub struct DrainHow {
    /// Avoid it: paths use it only if there is no other way
    #[arg(long)]
    pub soft: bool,
    /// Why, for whoever looks at the drain database
    #[arg(long, value_name = "TEXT", default_value = "by command")]
    pub reason: String,
}

/// `cycle`.
#[derive(Clone, Debug, Args)]
pub struct Cycle {
    /// Plane
    pub plane: u8,
    /// With every placed path
    #[arg(long)]
    pub mesh: bool,
}

/// `probe`.
#[derive(Clone, Debug, Args)]
pub struct Probe {
    /// Source host; all hosts if left out
    #[arg(long)]
    pub from: Option<String>,
    /// Destination host; all hosts if left out
    #[arg(long)]
    pub to: Option<String>,
    /// Classes: icp, gold, silver, bronze
    #[arg(long, value_delimiter = ',', default_value = "icp,gold,silver,bronze")]
    pub class: Vec<String>,
    /// Packets a second of each stream
    #[arg(long, default_value_t = 20, value_name = "PPS")]
    pub rate: u32,
    /// Payload bytes
    #[arg(long, default_value_t = 200, value_name = "BYTES")]
    pub size: u16,
    /// Flows (source addresses) of each stream
    #[arg(long, default_value_t = 40)]
    pub flows: u16,
    /// How long to send, seconds
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub duration: f64,
    /// Fail (exit code 1) if more packets than this are lost
    #[arg(long, value_name = "PACKETS")]
    pub max_lost: Option<u64>,
}

/// `graph`.
#[derive(Clone, Debug, Args)]
pub struct Graph {
    /// Which lab
    #[command(flatten)]
    pub which: Which,
    /// Only this plane
    #[arg(long)]
    pub plane: Option<u8>,
    /// Kind of drawing
    #[arg(long, value_enum, default_value_t = GraphKind::Text)]
    pub kind: GraphKind,
}

/// Kinds of drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphKind {
    /// Plain text
    Text,
    /// Graphviz
    Dot,
    /// Mermaid
    Mermaid,
}

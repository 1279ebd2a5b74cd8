//! The words of the command line for breaking things and mending them.

use clap::{Args, Subcommand};

/// `link`.
#[derive(Clone, Debug, Subcommand)]
pub enum LinkAction {
    /// Cut: both ends lose the carrier
    Cut {
        /// Links: eb01.atn--eb01.prn, eb01.atn:to-prn, srlg:conduit-7
        links: String,
        /// Only this member of the bundle, from 1: the link stays, with less capacity
        #[arg(long, value_name = "NUMBER")]
        member: Option<u16>,
    },
    /// Undo what was done to a link: addresses, neighbours and routes come back
    Restore {
        /// Links; `all` for every one that anything was done to
        links: String,
        /// Only this member of the bundle
        #[arg(long, value_name = "NUMBER")]
        member: Option<u16>,
    },
    /// Give links another round-trip time, in a lab with `delay: emulated`
    Delay {
        /// Links
        links: String,
        /// Round-trip time, for example 40ms
        #[arg(required_unless_present = "clear", conflicts_with = "clear")]
        rtt: Option<String>,
        /// Back to the time that the lab file says
        #[arg(long)]
        clear: bool,
    },
    /// Harm what links carry, in one direction or both; `restore` ends it
    Impair {
        /// Links
        links: String,
        /// Only what these nodes send
        #[arg(long, value_name = "NODES")]
        from: Option<String>,
        /// How
        #[command(flatten)]
        harm: Harm,
    },
    /// Cut links and restore them, again and again
    Flap {
        /// Links
        links: String,
        /// Time from one cut to the next; the link is there for the second half of it
        #[arg(long, value_name = "TIME", default_value = "1s")]
        period: String,
        /// How often
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
        count: u32,
        /// Each cut and each return is late by up to this
        #[arg(long, value_name = "TIME")]
        jitter: Option<String>,
        /// What the lateness is drawn from: the same seed, the same sequence
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        seed: u64,
    },
    /// Links and their state
    Show {
        /// Links; all if left out
        links: Option<String>,
    },
}

/// `program`.
#[derive(Clone, Debug, Subcommand)]
pub enum ProgramVerb {
    /// SIGKILL; it is started again after a pause
    Kill(ProgramArgs),
    /// End it and leave it down
    Stop(ProgramArgs),
    /// SIGKILL, now and whenever it runs again, until it is resumed
    CrashLoop(ProgramArgs),
    /// Start what was stopped; let live what is in a crash loop
    Resume(ProgramArgs),
    /// Stop, then start
    Restart(ProgramArgs),
    /// Let it hang (SIGSTOP): it keeps its connections and locks and answers nothing
    Pause(ProgramArgs),
    /// Let a paused one go on (SIGCONT)
    Continue(ProgramArgs),
}

/// Which programs.
#[derive(Clone, Debug, Args)]
pub struct ProgramArgs {
    /// Program: openr, fib-agent, lsp-agent, route-agent, ebb-controller, nhg-tm, bird, etcd; `ebb-controller-1` means all replicas of
    /// plane 1
    pub program: String,
    /// Nodes by selector; every node that has the program if left out
    pub nodes: Option<String>,
}

/// What an impaired link does to packets.
#[derive(Clone, Debug, Args)]
pub struct Harm {
    /// Lose so many, at random: 5%
    #[arg(long, value_name = "PERCENT")]
    pub loss: Option<String>,
    /// Delay each by so much, on top of the lab's delay
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// Let the delay be off by up to this; packets then overtake each other
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Send no faster than this, in bits a second of the real network: 200G
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Turn a bit of so many
    #[arg(long, value_name = "PERCENT")]
    pub corrupt: Option<String>,
    /// Send so many twice
    #[arg(long, value_name = "PERCENT")]
    pub duplicate: Option<String>,
    /// Send so many at once, before those that wait for their delay
    #[arg(long, value_name = "PERCENT")]
    pub reorder: Option<String>,
}

/// `node`.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeVerb {
    /// Loss of power: programs and what they put into the kernel are gone, links lose their carrier at both ends
    Crash {
        /// Nodes: eb01.chi, site:chi
        nodes: String,
    },
    /// Boot what has crashed
    Restore {
        /// Nodes; `all` for every one that has crashed
        nodes: String,
    },
}

/// `rpc`.
#[derive(Clone, Debug, Subcommand)]
pub enum RpcVerb {
    /// Lose every packet, both ways: a partition
    Cut(RpcPath),
    /// Let the callers' packets be late
    Delay {
        /// Which connections
        #[command(flatten)]
        path: RpcPath,
        /// By how much
        #[arg(long, value_name = "TIME")]
        delay: String,
    },
    /// Reset connections, new ones and open ones
    Refuse(RpcPath),
    /// Mend connections
    Restore {
        /// Hosts that call; all if left out
        #[arg(long, value_name = "HOSTS", default_value = "all")]
        from: String,
        /// Nodes that are called; all if left out
        #[arg(long, value_name = "NODES", default_value = "all")]
        to: String,
        /// Only those to this program
        #[arg(long, value_name = "PROGRAM")]
        program: Option<String>,
    },
}

/// Which connections.
#[derive(Clone, Debug, Args)]
pub struct RpcPath {
    /// Hosts that call: h1.atn
    #[arg(long, value_name = "HOSTS")]
    pub from: String,
    /// Nodes that are called: eb01.prn, plane:1
    #[arg(long, value_name = "NODES")]
    pub to: String,
    /// Only calls of this program there: lsp-agent, route-agent, openr, config-agent, fib-agent, etcd, nhg-tm
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
}

/// `kernel`.
#[derive(Clone, Debug, Subcommand)]
pub enum KernelVerb {
    /// Delete a route, a group of next hops or the queues of an interface; only agents or `up` bring it back
    Delete {
        /// Node
        node: String,
        /// What: `route`, `group` or `queue`
        what: KernelWhat,
        /// Which one, by a part of how it is printed
        #[arg(long, value_name = "TEXT")]
        which: Option<String>,
        /// What the choice among several is drawn from
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        seed: u64,
    },
}

/// Kinds of things in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KernelWhat {
    /// A route or label route of an agent
    Route,
    /// A group of next hops
    Group,
    /// The queues of an interface
    Queue,
}

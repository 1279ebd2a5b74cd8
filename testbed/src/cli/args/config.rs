//! Arguments of `config`.

use clap::{Args, Subcommand};

/// `config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// The running configuration, of several routers in one line each
    Show {
        /// Routers: eb01.chi, plane:2, all
        #[arg(default_value = "all")]
        routers: String,
        /// Another version than the running one
        #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "VERSION")]
        version: u64,
    },
    /// Give routers another configuration
    Push(ConfigPush),
    /// Push a change to whole planes in-band, watch, and roll back if it does harm
    Rollout(ConfigRollout),
    /// What waits for its confirmation may stay
    Confirm {
        /// Routers: eb01.chi, plane:2, all
        routers: String,
    },
    /// Let an older version run again
    Rollback {
        /// Routers: eb01.chi, plane:2, all
        routers: String,
        /// Version; the one before the running one if left out
        #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "VERSION")]
        to: u64,
    },
    /// The versions that routers keep
    History {
        /// Routers: eb01.chi, plane:2, all
        routers: String,
    },
}

/// `config push`.
#[derive(Clone, Debug, Args)]
pub struct ConfigPush {
    /// Routers: eb01.chi, plane:2, all
    pub routers: String,
    /// Change a field: interfaces.to-chi.capacity=200G, interfaces.*.enabled=false, openr.bfd.tx=50
    #[arg(long, value_name = "PATH=VALUE", required_unless_present = "file", conflicts_with = "file")]
    pub set: Vec<String>,
    /// Replace everything by this document (JSON); `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<String>,
    /// Go back by itself unless `config confirm` comes in time
    #[arg(long, value_name = "SECONDS")]
    pub confirm_within: Option<f64>,
    /// Why, for the routers' histories
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub comment: String,
    /// Only have the routers check it
    #[arg(long)]
    pub check: bool,
}

/// `config rollout`.
#[derive(Clone, Debug, Args)]
pub struct ConfigRollout {
    /// Routers: plane:2, all
    pub routers: String,
    /// Change a field: interfaces.*.srlgs=, openr.bfd.tx=50
    #[arg(long, value_name = "PATH=VALUE", required = true)]
    pub set: Vec<String>,
    /// All planes at once, not one after the other
    #[arg(long)]
    pub no_canary: bool,
    /// How long each stage is watched
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub soak: f64,
    /// After this time a router goes back by itself unless it was told to keep the change [default: three times the soak]
    #[arg(long, value_name = "SECONDS")]
    pub confirm_within: Option<f64>,
    /// Host from which the routers are reached [default: the first]
    #[arg(long, value_name = "HOST")]
    pub from: Option<String>,
    /// Why, for the routers' histories
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub comment: String,
}

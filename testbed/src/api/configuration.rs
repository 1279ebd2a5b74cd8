//! What can be asked of routers' configurations.

use router_emu::config_agent::edit::Edit;
use serde::{Deserialize, Serialize};

/// What to do with the configurations of routers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfigOrder {
    /// Routers, by name (already selected).
    pub nodes: Vec<String>,
    /// What.
    pub verb: ConfigVerb,
}

/// See [`ConfigOrder`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigVerb {
    /// Versions, and the configuration of one of them.
    Show {
        /// 0: the running one.
        version: u64,
    },
    /// Change the running configurations.
    Push {
        /// What each router's becomes.
        change: ConfigChange,
        /// Milliseconds after which a router goes back by itself; 0: never.
        confirm_within_ms: u64,
        /// Why, for people.
        comment: String,
        /// Only check.
        check_only: bool,
    },
    /// What waits for its confirmation may stay.
    Confirm,
    /// Go back.
    Rollback {
        /// To this version; 0: to the one before.
        to: u64,
    },
}

/// A change that goes out to whole planes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolloutOrder {
    /// Routers, by name (already selected).
    pub nodes: Vec<String>,
    /// Fields that get other values.
    pub edits: Vec<Edit>,
    /// Plane by plane.
    pub canary: bool,
    /// How long each stage is watched, milliseconds.
    pub soak_ms: u64,
    /// Milliseconds after which a router that was not told to keep it goes back.
    pub confirm_within_ms: u64,
    /// Host from which the routers are reached; the first one if none.
    pub from: Option<String>,
    /// Why, for people.
    pub comment: String,
}

/// A change of configurations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigChange {
    /// Fields that get other values.
    Edits(Vec<Edit>),
    /// Everything is replaced by this document.
    Whole(String),
}

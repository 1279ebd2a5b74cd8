//! The lab file, field by field, as its author writes it. These types are also the source of the JSON Schema:
//! the comments here are its descriptions.
//!
//! Scalars are `Text`: not yet read. `check` reads them. For the same reason a required field is optional here and
//! required only in the schema (`extend`): `check` misses it, together with everything else that is wrong.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::name::{HostName, LabName, ProgramPath, SiteName, SrlgName};
use crate::parse::{At, Entries, Given, Text};
use crate::scalar::{Ratio, Switch, Whole};
use crate::units::{Capacity, Period, Rtt};
use crate::words::{BackupWord, DelayMode, LagMode, LockWord, Mesh, PrimaryWord, ReprogramWord, SiteWord};

/// Number of a plane.
pub type PlaneNumber = Whole<1, 8>;

/// Number among parallel links.
pub type ParallelNumber = Whole<1, 99>;

/// A lab: sites and links of one plane, and how many planes there are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name", "planes", "sites", "links"]))]
pub struct LabFile {
    /// Name of the lab; names its state folder too.
    #[serde(default)]
    pub name: Given<Text<LabName>>,
    /// How the real network is scaled down to this machine.
    #[serde(default)]
    pub scale: Given<ScaleEntry>,
    /// Whether links really delay packets (`emulated`) or only the control plane is told their RTT (`declared`,
    /// the default).
    #[serde(default)]
    pub delay: Given<Text<DelayMode>>,
    /// Whether the circuits of a bundle (`members` of a link) are links of their own that can fail one by one
    /// (`emulated`), or only a number (`declared`, the default). A link may say otherwise.
    #[serde(default)]
    pub lag: Given<Text<LagMode>>,
    /// How many parallel networks there are. Each has a router at every site and a copy of every link.
    #[serde(default)]
    pub planes: Given<Text<PlaneNumber>>,
    /// Sites by name.
    #[serde(default)]
    pub sites: Given<Entries<SiteName, At<SiteEntry>>>,
    /// Links between sites. Each becomes one link in every plane.
    #[serde(default)]
    pub links: Given<Vec<At<LinkEntry>>>,
    /// Where a plane differs from the others, by its number.
    #[serde(default)]
    pub overrides: Entries<PlaneNumber, At<PlaneEntry>>,
    /// Settings of the traffic-engineering controllers.
    #[serde(default)]
    pub te: Given<TeEntry>,
    /// Replicas of the planes' controllers, and the lock by which one of each plane leads.
    #[serde(default)]
    pub controllers: Given<ControllersEntry>,
    /// Detection of links that lose everything while both ends have a carrier; off without this field.
    #[serde(default)]
    pub bfd: Given<BfdEntry>,
    /// Encryption of all core links (MACsec); off without this field.
    #[serde(default)]
    pub macsec: Given<MacsecEntry>,
    /// Demand that controllers assume before counters have seen any.
    #[serde(default)]
    pub demands: Given<At<DemandsEntry>>,
}

/// Scale between the real network and its emulation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleEntry {
    /// Emulated rate per real capacity: at `1/20000` (the default) 400G is emulated as 20M.
    #[serde(default)]
    pub bandwidth: Given<Text<Ratio>>,
}

/// A site.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["kind"]))]
pub struct SiteEntry {
    /// Number of the site in labels and addresses. Without it, sites take the lowest free numbers in order of
    /// name, so that adding a site can renumber others.
    #[serde(default)]
    pub id: Given<Text<Whole<1, 254>>>,
    /// `dc` has an aggregator and hosts, `midpoint` only routers.
    #[serde(default)]
    pub kind: Given<Text<SiteWord>>,
    /// Hosts behind the aggregator of a `dc`; 1 by default.
    #[serde(default)]
    pub hosts: Given<Text<Whole<1, 99>>>,
    /// Share of a `dc` in gravity demand, relative to the other sites; 1 by default.
    #[serde(default)]
    pub weight: Given<Text<Whole<1, 1000>>>,
}

/// A link between two sites.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["between", "capacity", "rtt"]))]
pub struct LinkEntry {
    /// The two sites.
    #[schemars(length(equal = 2))]
    #[serde(default)]
    pub between: Given<At<Vec<Text<SiteName>>>>,
    /// Number of this link among parallel links between the same two sites; 1 by default. It stands in labels and
    /// interface names.
    #[serde(default)]
    pub parallel: Given<Text<ParallelNumber>>,
    /// Real capacity of the whole bundle.
    #[serde(default)]
    pub capacity: Given<Text<Capacity>>,
    /// Real round-trip time.
    #[serde(default)]
    pub rtt: Given<Text<Rtt>>,
    /// Physical circuits in the bundle; 1 by default.
    #[serde(default)]
    pub members: Given<Text<Whole<1, 64>>>,
    /// Whether the circuits are links of their own (`emulated`) or only a number (`declared`); as the lab's `lag` by
    /// default.
    #[serde(default)]
    pub lag: Given<Text<LagMode>>,
    /// Shared-risk groups: things whose failure takes several links down at once.
    #[serde(default)]
    pub srlgs: Vec<Text<SrlgName>>,
}

/// How one plane differs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaneEntry {
    /// Host on which this plane's controller runs. Without it, plane p takes `h1` of the p-th `dc` by name.
    #[serde(default)]
    pub controller: Given<Text<HostName>>,
    /// Program that runs as this plane's controllers in place of the testbed's own: a release is tried on one plane first.
    #[serde(default)]
    pub controller_program: Given<Text<ProgramPath>>,
    /// Links that differ in this plane.
    #[serde(default)]
    pub links: Vec<At<LinkOverride>>,
    /// Algorithms for primary paths that differ in this plane: planes are nearly equal networks, so a new algorithm is
    /// tried on one of them first.
    #[serde(default)]
    pub algorithms: Given<AlgorithmsEntry>,
    /// Algorithm for backup paths in this plane.
    #[serde(default)]
    pub backup: Given<Text<BackupWord>>,
}

/// How one link differs in a plane. What is not given stays as in the other planes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["between"]))]
pub struct LinkOverride {
    /// The two sites of the link.
    #[schemars(length(equal = 2))]
    #[serde(default)]
    pub between: Given<At<Vec<Text<SiteName>>>>,
    /// Which of the parallel links; 1 by default.
    #[serde(default)]
    pub parallel: Given<Text<ParallelNumber>>,
    /// `true` if the link does not exist in this plane.
    #[serde(default)]
    pub absent: Given<Text<Switch>>,
    /// Real capacity in this plane.
    #[serde(default)]
    pub capacity: Given<Text<Capacity>>,
    /// Real round-trip time in this plane.
    #[serde(default)]
    pub rtt: Given<Text<Rtt>>,
    /// Physical circuits in this plane.
    #[serde(default)]
    pub members: Given<Text<Whole<1, 64>>>,
    /// Shared-risk groups in this plane, instead of the link's own.
    #[serde(default)]
    pub srlgs: Given<Vec<Text<SrlgName>>>,
}

/// Traffic-engineering settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeEntry {
    /// Time between the starts of two controller cycles, `100ms` to `3600s`; `10s` by default.
    #[serde(default)]
    pub cycle: Given<Text<Period>>,
    /// Label-switched paths per pair of data centres and mesh; 16 by default.
    #[serde(default)]
    pub lsps: Given<Text<Whole<1, 63>>>,
    /// Largest label stack a router may push; 3 by default.
    #[serde(default)]
    pub max_labels: Given<Text<Whole<1, 8>>>,
    /// Percentage of the capacity left by higher classes that a class may use.
    #[serde(default)]
    pub reserved: Given<ReservedEntry>,
    /// Algorithm for primary paths by class; `cspf` by default.
    #[serde(default)]
    pub algorithms: Given<AlgorithmsEntry>,
    /// Algorithm for backup paths; `rba` by default.
    #[serde(default)]
    pub backup: Given<Text<BackupWord>>,
    /// Whether a cycle programs only the bundles whose paths have changed (`changed`, the default) or all (`always`).
    #[serde(default)]
    pub reprogram: Given<Text<ReprogramWord>>,
}

/// Replicas of the planes' controllers: one leads, the others stand by.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllersEntry {
    /// Controllers of each plane, on hosts of one data centre after the other; 1 by default.
    #[serde(default)]
    pub replicas: Given<Text<Whole<1, 9>>>,
    /// What makes sure that one of them leads: `embedded` (a file that all of them see, the default) or `etcd` (a
    /// lock service in the lab's own data centres).
    #[serde(default)]
    pub lock: Given<Text<LockWord>>,
    /// Members of the etcd cluster, each on the first host of another data centre: 1, 3 (the default) or 5.
    #[serde(default)]
    pub members: Given<Text<Whole<1, 5>>>,
}

/// Algorithms for primary paths by class: `cspf`, `hprr`, `mcf`, `ksp-mcf` (512 paths per pair), `ksp-mcf:64`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlgorithmsEntry {
    /// Gold.
    #[serde(default)]
    pub gold: Given<Text<PrimaryWord>>,
    /// Silver.
    #[serde(default)]
    pub silver: Given<Text<PrimaryWord>>,
    /// Bronze.
    #[serde(default)]
    pub bronze: Given<Text<PrimaryWord>>,
}

/// Bidirectional forwarding detection on all core links.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BfdEntry {
    /// How often both ends of a link send, `5ms` to `10s`; `20ms` by default.
    #[serde(default)]
    pub interval: Given<Text<Period>>,
    /// How many packets in a row may be missed, at least 3, so that a router agent that dies costs no link; 3 by default.
    #[serde(default)]
    pub multiplier: Given<Text<Whole<3, 50>>>,
}

/// Encryption of all core links.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MacsecEntry {
    /// How long a key is used before the next one takes over, `1s` to `3600s`; `30s` by default.
    #[serde(default)]
    pub rotate: Given<Text<Period>>,
}

/// Percentages by class.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservedEntry {
    /// Gold; 50 by default.
    #[serde(default)]
    pub gold: Given<Text<Whole<1, 100>>>,
    /// Silver; 80 by default.
    #[serde(default)]
    pub silver: Given<Text<Whole<1, 100>>>,
    /// Bronze; 100 by default.
    #[serde(default)]
    pub bronze: Given<Text<Whole<1, 100>>>,
}

/// Demand between data centres, in units of the real network and over all planes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemandsEntry {
    /// The same demand for every ordered pair of data centres. Not together with `gravity`.
    #[serde(default)]
    pub every_pair: Given<ClassRates>,
    /// Total demand, divided over all ordered pairs in proportion to the product of the two sites' weights.
    #[serde(default)]
    pub gravity: Given<ClassRates>,
    /// Demand of single pairs, instead of what `every_pair` or `gravity` gives them.
    #[serde(default)]
    pub pairs: Vec<At<PairDemand>>,
}

/// A rate per class; a class that is not given has none.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassRates {
    /// Gold, with the network's own control traffic.
    #[serde(default)]
    pub gold: Given<Text<Capacity>>,
    /// Silver.
    #[serde(default)]
    pub silver: Given<Text<Capacity>>,
    /// Bronze.
    #[serde(default)]
    pub bronze: Given<Text<Capacity>>,
}

/// Demand of one ordered pair in one class.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["from", "to", "class", "rate"]))]
pub struct PairDemand {
    /// Source.
    #[serde(default)]
    pub from: Given<Text<SiteName>>,
    /// Destination.
    #[serde(default)]
    pub to: Given<Text<SiteName>>,
    /// `gold`, `silver` or `bronze`.
    #[serde(default)]
    pub class: Given<Text<Mesh>>,
    /// Rate; `0k` for none.
    #[serde(default)]
    pub rate: Given<Text<Capacity>>,
}

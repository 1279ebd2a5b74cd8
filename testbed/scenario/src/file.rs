//! The scenario file, field by field, as its author writes it. These types are also the source of the JSON Schema: the
//! comments here are its descriptions. As in lab files, scalars are `Text` that `check` reads, so that everything that is
//! wrong can be said together.

use schemars::JsonSchema;
use serde::Deserialize;
use topologies::name::LabName;
use topologies::parse::{At, Entries, Given, Key, Text};
use topologies::scalar::{Switch, Whole};
use topologies::units::{Capacity, Period, Rtt, Share};

use crate::words::{AnyText, ClassWord, DeleteWord, List, Name, RpcWord};

/// A scenario: a lab, the traffic in it, what happens and what must hold.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["scenario", "about", "lab", "steps"]))]
pub struct ScenarioFile {
    /// Name of the scenario.
    #[serde(default)]
    pub scenario: Given<Text<LabName>>,
    /// What it shows, in a sentence or two.
    #[serde(default)]
    pub about: Given<Text<AnyText>>,
    /// Numbers of the rows of a check list that it shows, such as `R1`.
    #[serde(default)]
    pub shows: Vec<Text<AnyText>>,
    /// The lab that it needs: the name of a ready-made lab, or a lab file beside this one.
    #[serde(default)]
    pub lab: Given<Text<AnyText>>,
    /// Seed of everything that is chosen at random; 1 by default, and `testbed run --seed` has the last word.
    #[serde(default)]
    pub seed: Given<Text<Whole<0, 4_000_000_000>>>,
    /// Time between two looks at the whole lab; `1s` by default. A look costs the lab's processors a little.
    #[serde(default)]
    pub sample: Given<Text<Period>>,
    /// Traffic by name. It begins before the first step and ends after the last one, unless steps say `send`.
    #[serde(default)]
    pub traffic: Entries<Name, At<TrafficEntry>>,
    /// Events that mean harm and are expected, such as `program.exited`; others like them end the run with a warning.
    #[serde(default)]
    pub warnings: Vec<Text<AnyText>>,
    /// Longest time for the lab to be whole before the first step, and again after the last one; `120s` by default.
    #[serde(default)]
    pub settle: Given<Text<Period>>,
    /// What happens, in order.
    #[serde(default)]
    pub steps: Given<Vec<At<StepEntry>>>,
}

/// One class of traffic, or several that are the same.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficEntry {
    /// Sending hosts, as a selector; all by default.
    #[serde(default)]
    pub from: Given<Text<AnyText>>,
    /// Receiving hosts, as a selector; all by default.
    #[serde(default)]
    pub to: Given<Text<AnyText>>,
    /// Classes, with commas between them; `gold` by default.
    #[serde(default)]
    pub class: Given<Text<List<ClassWord>>>,
    /// Packets a second of each pair and class; 100 by default.
    #[serde(default)]
    pub rate: Given<Text<Whole<1, 50_000>>>,
    /// Source addresses of each pair and class, each of which takes paths of its own; 40 by default.
    #[serde(default)]
    pub flows: Given<Text<Whole<1, 1_000>>>,
    /// Bytes of a packet's payload; 100 by default.
    #[serde(default)]
    pub size: Given<Text<Whole<32, 8_900>>>,
}

/// A step: one thing to do or to check, and when.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepEntry {
    /// A name for people; what the step does, if left out.
    #[serde(default)]
    pub name: Given<Text<AnyText>>,
    /// When: time since the first step began. Not together with `after`.
    #[serde(default)]
    pub at: Given<Text<Period>>,
    /// When: time after the step before has ended.
    #[serde(default)]
    pub after: Given<Text<Period>>,
    /// When: as soon as this condition holds; within `60s`, or what `within` says.
    #[serde(default)]
    pub when: Given<Text<AnyText>>,
    /// With a fault: take it back after this time. With `never`: watch for this time only.
    #[serde(default, rename = "for")]
    pub hold: Given<Text<Period>>,

    /// Wait this long.
    #[serde(default)]
    pub wait: Given<Text<Period>>,
    /// Check a condition: it must hold at once, or `within` a time, or be `stable_for` a time.
    #[serde(default)]
    pub expect: Given<Text<AnyText>>,
    /// Longest wait for `expect` or `when`.
    #[serde(default)]
    pub within: Given<Text<Period>>,
    /// How long `expect` must hold without a break, once it does.
    #[serde(default)]
    pub stable_for: Given<Text<Period>>,
    /// Watch a condition from here to the end, or `for` a time: it must not hold.
    #[serde(default)]
    pub never: Given<Text<AnyText>>,
    /// Watch a condition from here to the end: it must hold once.
    #[serde(default)]
    pub eventually: Given<Text<AnyText>>,

    /// Choose something and give it a name, for `$name` in later steps.
    #[serde(default)]
    pub pick: Given<At<PickEntry>>,
    /// Begin traffic of these names, with commas between them.
    #[serde(default)]
    pub send: Given<Text<List<Name>>>,
    /// End traffic of these names.
    #[serde(default)]
    pub silence: Given<Text<List<Name>>>,

    /// Cut links (a selector): both ends lose their carrier.
    #[serde(default)]
    pub cut: Given<Text<AnyText>>,
    /// Cut one member of links.
    #[serde(default)]
    pub cut_member: Given<At<MemberEntry>>,
    /// Give links another round-trip time, where the lab emulates delay.
    #[serde(default)]
    pub delay: Given<At<DelayEntry>>,
    /// Harm what links carry.
    #[serde(default)]
    pub impair: Given<At<ImpairEntry>>,
    /// Cut and restore links again and again.
    #[serde(default)]
    pub flap: Given<At<FlapEntry>>,
    /// Mend links: all that was done to them.
    #[serde(default)]
    pub restore: Given<Text<AnyText>>,
    /// Take the power from nodes (a selector).
    #[serde(default)]
    pub crash: Given<Text<AnyText>>,
    /// Give it back.
    #[serde(default)]
    pub boot: Given<Text<AnyText>>,

    /// Kill programs, `lsp-agent` or `lsp-agent@eb01.*`; they are started again.
    #[serde(default)]
    pub kill: Given<Text<AnyText>>,
    /// Stop programs for good.
    #[serde(default)]
    pub stop: Given<Text<AnyText>>,
    /// Stop and start programs.
    #[serde(default)]
    pub restart: Given<Text<AnyText>>,
    /// Let programs hang (SIGSTOP).
    #[serde(default)]
    pub pause: Given<Text<AnyText>>,
    /// Kill programs whenever they run.
    #[serde(default)]
    pub crash_loop: Given<Text<AnyText>>,
    /// Start what was stopped, let go on what hangs, let live what is in a crash loop.
    #[serde(default)]
    pub resume: Given<Text<AnyText>>,

    /// Break the connections of controllers to agents.
    #[serde(default)]
    pub rpc: Given<At<RpcEntry>>,
    /// Delete something of a node's kernel behind its agents' back.
    #[serde(default)]
    pub delete: Given<At<DeleteEntry>>,

    /// Take planes, links or routers out of service without loss.
    #[serde(default)]
    pub drain: Given<At<DrainEntry>>,
    /// Take them back into service.
    #[serde(default)]
    pub undrain: Given<At<DrainEntry>>,
    /// Run one cycle of a plane's controller now.
    #[serde(default)]
    pub cycle: Given<Text<Whole<1, 8>>>,
    /// Change the lab to what another lab file says.
    #[serde(default)]
    pub apply: Given<Text<AnyText>>,
    /// Run a command in a node.
    #[serde(default)]
    pub exec: Given<At<ExecEntry>>,

    /// Steps that go on at the same time; the step ends when all of them have.
    #[serde(default)]
    pub parallel: Given<Vec<At<StepEntry>>>,
    /// The same steps several times.
    #[serde(default)]
    pub repeat: Given<At<RepeatEntry>>,
    /// The same steps for each of several things.
    #[serde(default)]
    pub for_each: Given<At<EachEntry>>,
    /// Steps in order, as one of those of `parallel`.
    #[serde(default)]
    pub steps: Given<Vec<At<StepEntry>>>,
}

/// What to choose: one of `links`, `nodes`, `hop_of`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["as"]))]
pub struct PickEntry {
    /// One of these links, by the seed.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// One of these nodes, by the seed.
    #[serde(default)]
    pub nodes: Given<Text<AnyText>>,
    /// A link in the middle of a path that a plane's controller has placed.
    #[serde(default)]
    pub hop_of: Given<At<PathEntry>>,
    /// Name for later steps, without the `$`.
    #[serde(default, rename = "as")]
    pub name: Given<Text<Name>>,
}

/// The first of the paths that a controller has placed for a pair of sites.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["from", "to"]))]
pub struct PathEntry {
    /// Plane; 1 by default.
    #[serde(default)]
    pub plane: Given<Text<Whole<1, 8>>>,
    /// Source site.
    #[serde(default)]
    pub from: Given<Text<AnyText>>,
    /// Destination site.
    #[serde(default)]
    pub to: Given<Text<AnyText>>,
    /// Class; `gold` by default.
    #[serde(default)]
    pub class: Given<Text<ClassWord>>,
}

/// A member of links.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["links", "member"]))]
pub struct MemberEntry {
    /// Links.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// Number of the member, from 1.
    #[serde(default)]
    pub member: Given<Text<Whole<1, 64>>>,
}

/// Another round-trip time.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["links", "rtt"]))]
pub struct DelayEntry {
    /// Links.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// Round-trip time of the real network.
    #[serde(default)]
    pub rtt: Given<Text<Rtt>>,
}

/// Harm to what links carry.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["links"]))]
pub struct ImpairEntry {
    /// Links.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// Only what these nodes send; both directions if left out.
    #[serde(default)]
    pub from: Given<Text<AnyText>>,
    /// Packets lost at random; `100%` is a black hole with the carrier up.
    #[serde(default)]
    pub loss: Given<Text<Share>>,
    /// Packets with one wrong bit.
    #[serde(default)]
    pub corrupt: Given<Text<Share>>,
    /// Packets that come twice.
    #[serde(default)]
    pub duplicate: Given<Text<Share>>,
    /// Packets that overtake others; needs a delay.
    #[serde(default)]
    pub reorder: Given<Text<Share>>,
    /// Delay of a direction on top of the lab's.
    #[serde(default)]
    pub delay: Given<Text<Period>>,
    /// By how much the delay is off.
    #[serde(default)]
    pub jitter: Given<Text<Period>>,
    /// Rate of the real network.
    #[serde(default)]
    pub rate: Given<Text<Capacity>>,
}

/// A link that comes and goes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["links", "period", "count"]))]
pub struct FlapEntry {
    /// Links.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// Time from one cut to the next.
    #[serde(default)]
    pub period: Given<Text<Period>>,
    /// How often.
    #[serde(default)]
    pub count: Given<Text<Whole<1, 10_000>>>,
    /// By how much each cut and return may come late.
    #[serde(default)]
    pub jitter: Given<Text<Period>>,
}

/// Broken connections.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["from", "to", "fault"]))]
pub struct RpcEntry {
    /// Hosts that call.
    #[serde(default)]
    pub from: Given<Text<AnyText>>,
    /// Nodes that are called.
    #[serde(default)]
    pub to: Given<Text<AnyText>>,
    /// Only calls of this program at those nodes, such as `lsp-agent`.
    #[serde(default)]
    pub program: Given<Text<AnyText>>,
    /// `cut` (no packet passes), `refuse` (connections are reset), `delay`, or `restore`.
    #[serde(default)]
    pub fault: Given<Text<RpcWord>>,
    /// How late, with `delay`.
    #[serde(default)]
    pub delay: Given<Text<Period>>,
}

/// Something to delete from a kernel.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["node", "what"]))]
pub struct DeleteEntry {
    /// Node.
    #[serde(default)]
    pub node: Given<Text<AnyText>>,
    /// `route`, `group` (of next hops), `queue`.
    #[serde(default)]
    pub what: Given<Text<DeleteWord>>,
    /// Which one: part of how it is printed; one by the seed if left out.
    #[serde(default)]
    pub which: Given<Text<AnyText>>,
}

/// What to drain: one of `plane`, `links`, `routers`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainEntry {
    /// Planes, with commas between them.
    #[serde(default)]
    pub plane: Given<Text<List<Whole<1, 8>>>>,
    /// Links.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// Routers.
    #[serde(default)]
    pub routers: Given<Text<AnyText>>,
    /// Even the last plane.
    #[serde(default)]
    pub force: Given<Text<Switch>>,
    /// Withdraw all routes of the plane rather than de-prefer them.
    #[serde(default)]
    pub withdraw: Given<Text<Switch>>,
    /// Links and routers: used only where there is no other way, rather than not at all.
    #[serde(default)]
    pub soft: Given<Text<Switch>>,
    /// Longest wait for the counters; `60s` by default.
    #[serde(default)]
    pub timeout: Given<Text<Period>>,
}

/// A command in a node.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["node", "command"]))]
pub struct ExecEntry {
    /// Node, or nodes.
    #[serde(default)]
    pub node: Given<Text<AnyText>>,
    /// Program and arguments.
    #[serde(default)]
    pub command: Vec<Text<AnyText>>,
    /// Exit code that it must have; 0 by default.
    #[serde(default)]
    pub exit: Given<Text<Whole<0, 255>>>,
    /// Text that must be in what it prints.
    #[serde(default)]
    pub prints: Given<Text<AnyText>>,
    /// Longest time it may take; `60s` by default.
    #[serde(default)]
    pub timeout: Given<Text<Period>>,
}

/// Steps several times.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["times", "steps"]))]
pub struct RepeatEntry {
    /// How often.
    #[serde(default)]
    pub times: Given<Text<Whole<1, 1_000>>>,
    /// What.
    #[serde(default)]
    pub steps: Given<Vec<At<StepEntry>>>,
}

/// Steps for each of several things: one of `links`, `nodes`, `planes`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["as", "steps"]))]
pub struct EachEntry {
    /// Links.
    #[serde(default)]
    pub links: Given<Text<AnyText>>,
    /// Nodes.
    #[serde(default)]
    pub nodes: Given<Text<AnyText>>,
    /// Planes, with commas between them.
    #[serde(default)]
    pub planes: Given<Text<List<Whole<1, 8>>>>,
    /// Name for the steps, without the `$`.
    #[serde(default, rename = "as")]
    pub name: Given<Text<Name>>,
    /// What.
    #[serde(default)]
    pub steps: Given<Vec<At<StepEntry>>>,
}

impl Key for Name {
    const PATTERN: &'static str = "^[a-z][a-z0-9_-]{0,31}$";
}

//! A lab file after its checks: plain values, every default filled in, every reference resolved.

use crate::lab::{Algorithms, BfdSettings, DemandFloor, Lock, MacsecSettings, SiteKind, TeSettings};
use crate::units::{Capacity, Rtt};

/// What the generator works from.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub name: String,
    pub divisor: u64,
    pub emulate_delay: bool,
    /// Sites by name.
    pub sites: Vec<SpecSite>,
    /// Links by sites and parallel number.
    pub links: Vec<SpecLink>,
    /// Controllers by plane.
    pub controllers: Vec<SpecController>,
    /// Controllers of each plane.
    pub replicas: u8,
    pub lock: Lock,
    pub te: TeSettings,
    pub bfd: Option<BfdSettings>,
    pub macsec: Option<MacsecSettings>,
    pub demands: Vec<DemandFloor>,
}

/// The controllers of a plane.
#[derive(Clone, Debug)]
pub(crate) struct SpecController {
    /// Host of the first of them.
    pub host: String,
    pub program: Option<String>,
    pub algorithms: Algorithms,
}

/// A site.
#[derive(Clone, Debug)]
pub(crate) struct SpecSite {
    pub name: String,
    pub id: u8,
    pub kind: SiteKind,
    /// 0 for a midpoint.
    pub hosts: u16,
    /// Share in gravity demand.
    pub weight: u32,
}

/// A link of the pattern that every plane repeats.
#[derive(Clone, Debug)]
pub(crate) struct SpecLink {
    /// The lesser site name.
    pub a: String,
    /// The greater site name.
    pub b: String,
    /// From 1.
    pub parallel: u32,
    /// Per plane, what the link is there; `None` if it is absent.
    pub planes: Vec<Option<LinkValues>>,
}

/// What a link is in a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkValues {
    pub capacity: Capacity,
    pub rtt: Rtt,
    pub members: u16,
    /// Whether the circuits of the bundle are links of their own.
    pub bonded: bool,
    /// Sorted.
    pub srlgs: Vec<String>,
}

/// Suffix of names of parallel links: nothing for the first, `.2` for the second.
pub(crate) fn parallel_suffix(parallel: u32) -> String {
    if parallel == 1 { String::new() } else { format!(".{parallel}") }
}

/// Name of a plane's router at a site.
pub(crate) fn router_name(plane: u8, site: &str) -> String {
    format!("eb{plane:02}.{site}")
}

/// Name of a site's aggregator.
pub(crate) fn aggregator_name(site: &str) -> String {
    format!("fa.{site}")
}

/// Name of the k-th host of a site.
pub(crate) fn host_name(number: u16, site: &str) -> String {
    format!("h{number}.{site}")
}

/// Name of a router's interface towards a site.
pub(crate) fn core_interface(site: &str, parallel: u32) -> String {
    format!("to-{site}{}", parallel_suffix(parallel))
}

/// Name of an interface's member, numbered from 1. No site name has the character between them.
pub(crate) fn member_interface(interface: &str, number: u16) -> String {
    format!("{interface}_{number}")
}

/// Name of what an encrypted interface or member sits on: `ct-` in place of `to-`, so that it is no longer, and comes first
/// wherever interfaces are in order of name.
pub(crate) fn wire_interface(interface: &str) -> String {
    format!("ct-{}", interface.strip_prefix("to-").unwrap_or(interface))
}

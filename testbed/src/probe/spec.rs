//! What to send.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use ipnet::Ipv6Net;
pub use router_emu::label::Class;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use topologies::lab::{Lab, Node};

use super::wire::HEADER;

/// Flows of a stream unless said otherwise: enough for 16 paths in each of several planes to be hit.
pub const DEFAULT_FLOWS: u16 = 40;
/// Payload bytes unless said otherwise.
pub const DEFAULT_PAYLOAD: u16 = 100;
/// Largest payload: an access link's MTU less the headers.
pub const MAX_PAYLOAD: u16 = 8_900;
/// Most packets per second of all streams together.
pub const MAX_RATE: u64 = 50_000;

/// A specification that cannot be run.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// Not a host and not a site with hosts.
    #[error("{name:?} is neither a host nor a site with hosts; hosts of this lab: {hosts}")]
    Host {
        /// As given.
        name: String,
        /// What there is.
        hosts: String,
    },
    /// A stream from a host to itself.
    #[error("both ends of the stream are {0}; a probe crosses the backbone between two hosts")]
    SameEnds(String),
    /// Nothing to send.
    #[error("no streams: a lab needs two DCs with hosts for probes")]
    Empty,
    /// A number out of range.
    #[error("{what} is {value}; it must be between {least} and {most}")]
    Range {
        /// Which number.
        what: &'static str,
        /// As given.
        value: u64,
        /// Smallest.
        least: u64,
        /// Largest.
        most: u64,
    },
}

/// A host that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Where packets to it go.
    pub address: Ipv6Addr,
    /// Prefix of which every address is the host's own: sources. Without it flows differ in their source port.
    pub sources: Option<Ipv6Net>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Class.
    pub class: Class,
    /// Packets per second.
    pub pps: u32,
    /// Flows.
    pub flows: u16,
}

/// A probe run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Hosts by name.
    pub hosts: BTreeMap<String, HostSpec>,
    /// Streams.
    pub streams: Vec<StreamSpec>,
    /// How long to send; `None`: until stopped.
    pub duration: Option<Duration>,
    /// Bytes of UDP payload.
    pub payload: u16,
    /// After the last packet the receiver listens at most this long …
    pub drain: Duration,
    /// … and stops before when nothing has come for this long.
    pub quiet: Duration,
    /// Time between snapshots.
    pub snapshot_every: Duration,
}

impl Spec {
    /// Streams between the first hosts of every ordered pair of DCs, in each of `classes`, `pps` packets a second
    /// each.
    pub fn all_pairs(lab: &Lab, classes: &[Class], pps: u32) -> Self {
        let mut firsts: BTreeMap<u8, &Node> = BTreeMap::new();
        for node in lab.hosts() {
            let first = firsts.entry(node.site_id).or_insert(node);
            // h2 before h10: shorter names first
            if (node.name.len(), &node.name) < (first.name.len(), &first.name) {
                *first = node;
            }
        }
        let mut spec = Self::empty();
        for from in firsts.values() {
            for to in firsts.values().filter(|to| to.name != from.name) {
                for class in classes {
                    spec.add(from, to, *class, pps);
                }
            }
        }
        spec
    }

    /// A stream in each of `classes` from one host to another; a site's name stands for its first host.
    pub fn pair(lab: &Lab, from: &str, to: &str, classes: &[Class], pps: u32) -> Result<Self, SpecError> {
        let (from, to) = (find_host(lab, from)?, find_host(lab, to)?);
        if from.name == to.name {
            return Err(SpecError::SameEnds(from.name.clone()));
        }
        let mut spec = Self::empty();
        for class in classes {
            spec.add(from, to, *class, pps);
        }
        Ok(spec)
    }

    fn empty() -> Self {
        Self {
            hosts: BTreeMap::new(),
            streams: Vec::new(),
            duration: None,
            payload: DEFAULT_PAYLOAD,
            drain: Duration::from_secs(1),
            quiet: Duration::from_millis(300),
            snapshot_every: Duration::from_secs(1),
        }
    }

    fn add(&mut self, from: &Node, to: &Node, class: Class, pps: u32) {
        for node in [from, to] {
            let host = HostSpec { address: node.address, sources: node.local_prefixes.first().copied() };
            self.hosts.insert(node.name.clone(), host);
        }
        self.streams.push(StreamSpec {
            from: from.name.clone(),
            to: to.name.clone(),
            class,
            pps,
            flows: DEFAULT_FLOWS,
        });
    }

    /// The same, for a fixed time.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// The same, with this many flows in every stream.
    #[must_use]
    pub fn with_flows(mut self, flows: u16) -> Self {
        for stream in &mut self.streams {
            stream.flows = flows;
        }
        self
    }

    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.streams.is_empty() {
            return Err(SpecError::Empty);
        }
        let range = |what, value: u64, least, most| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(SpecError::Range { what, value, least, most })
            }
        };
        let mut rate = 0;
        for stream in &self.streams {
            for name in [&stream.from, &stream.to] {
                if !self.hosts.contains_key(name) {
                    let hosts = self.hosts.keys().cloned().collect::<Vec<_>>().join(", ");
                    return Err(SpecError::Host { name: name.clone(), hosts });
                }
            }
            if stream.from == stream.to {
                return Err(SpecError::SameEnds(stream.from.clone()));
            }
            range("the rate of a stream in packets per second", stream.pps.into(), 1, MAX_RATE)?;
            range("the number of flows of a stream", stream.flows.into(), 1, 4096)?;
            rate += u64::from(stream.pps);
        }
        range("the rate of all streams in packets per second", rate, 1, MAX_RATE)?;
        range("the payload in bytes", self.payload.into(), HEADER as u64, MAX_PAYLOAD.into())
    }
}

fn find_host<'a>(lab: &'a Lab, name: &str) -> Result<&'a Node, SpecError> {
    let found = lab
        .hosts()
        .filter(|n| n.name == name || n.site == name)
        .min_by_key(|n| (n.name != name, n.name.len(), n.name.clone()));
    found.ok_or_else(|| SpecError::Host {
        name: name.to_string(),
        hosts: lab.hosts().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testlab;

    #[test]
    fn pairs_and_sites() {
        let lab = testlab::build(&["prn", "atn", "lla"], &["chi"], 2);
        let spec = Spec::all_pairs(&lab, &Class::ALL, 10);
        assert_eq!((spec.streams.len(), spec.hosts.len()), (24, 3));
        spec.check().unwrap();
        let one = Spec::pair(&lab, "prn", "h1.lla", &[Class::Gold], 1000).unwrap();
        assert_eq!(one.streams[0].from, "h1.prn");
        assert_eq!(one.hosts["h1.lla"].sources, Some("2001:db8:3:1:1::/80".parse().unwrap()));
        let error = Spec::pair(&lab, "chi", "lla", &[Class::Gold], 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"chi\" is neither a host nor a site with hosts; hosts of this lab: h1.atn, h1.lla, h1.prn"
        );
        assert_eq!(
            Spec::pair(&lab, "prn", "h1.prn", &[Class::Gold], 1),
            Err(SpecError::SameEnds("h1.prn".into()))
        );
    }

    #[test]
    fn numbers_out_of_range() {
        let lab = testlab::small();
        let spec = Spec::all_pairs(&lab, &[Class::Gold], 40_000);
        let text = spec.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "the rate of all streams in packets per second is 80000; it must be between 1 and 50000"
        );
        let error = "platinum".parse::<Class>().unwrap_err().to_string();
        assert_eq!(error, "\"platinum\" is no traffic class; there are icp, gold, silver and bronze");
        assert_eq!("icp".parse(), Ok(Class::Icp));
    }
}

//! Captures inside nodes: the helper reads frames there and sums up what it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use router_emu::label::Sid;
use serde::{Deserialize, Serialize};

use crate::cli::{Background, Cli};

/// Kind of frames: those with equal fields are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    /// Interface on which they arrived.
    pub interface: String,
    /// Label stack, outermost first.
    pub labels: Vec<u32>,
    /// DSCP of the IPv6 header.
    pub dscp: u8,
    /// First three groups of the source address, `2001:db8:1`.
    pub source: String,
    /// First three groups of the destination address.
    pub destination: String,
}

impl Kind {
    /// The binding SID at the bottom of the stack.
    pub fn sid(&self) -> Option<Sid> {
        self.labels.last().and_then(|label| Sid::decode(*label))
    }
}

/// A line of the helper's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// What.
    #[serde(flatten)]
    pub kind: Kind,
    /// How many.
    pub packets: u64,
}

/// What one node received.
pub type Seen = BTreeMap<Kind, u64>;

/// Reads one frame (from the Ethernet header on); `None` if it carries no IPv6.
pub fn dissect(frame: &[u8], interface: &str) -> Option<Kind> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let mut at = 14;
    let mut labels = Vec::new();
    match u16_at(12)? {
        0x86dd => {}
        0x8847 => loop {
            let entry = u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?);
            at += 4;
            labels.push(entry >> 12);
            if entry & 0x100 != 0 {
                break;
            }
        },
        _ => return None,
    }
    let header = frame.get(at..at + 40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let group = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let site = |at: usize| format!("{:x}:{:x}:{:x}", group(at), group(at + 2), group(at + 4));
    let class = u8::try_from(group(0) >> 4 & 0xff).ok()?;
    Some(Kind {
        interface: interface.to_owned(),
        labels,
        dscp: class >> 2,
        source: site(8),
        destination: site(24),
    })
}

/// A capture that runs.
pub struct Capture {
    /// Node.
    pub node: String,
    run: Background,
}

impl Capture {
    /// Starts a capture of everything that arrives at `node`; when this returns, it sees every frame.
    pub fn start(cli: &Cli, node: &str) -> anyhow::Result<Self> {
        let helper = cli.bin().join("e2e-helper");
        let helper = helper.to_str().context("path of the helper is no text")?;
        let mut run = cli.start_with_input(&["exec", node, "--", helper, "sniff"])?;
        run.wait_for_output("ready\n", Duration::from_secs(60))
            .with_context(|| format!("capture in {node}"))?;
        Ok(Self { node: node.to_owned(), run })
    }

    /// Starts captures in several nodes.
    pub fn start_all(cli: &Cli, nodes: &[String]) -> anyhow::Result<Vec<Self>> {
        nodes.iter().map(|node| Self::start(cli, node)).collect()
    }

    /// Ends it.
    pub fn finish(mut self) -> anyhow::Result<Seen> {
        self.run.close_input();
        let text = self.run.finish(Duration::from_secs(60))?.expect(0)?;
        let mut seen = Seen::new();
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let counted: Counted =
                serde_json::from_str(line).with_context(|| format!("capture said {line:?}"))?;
            *seen.entry(counted.kind).or_default() += counted.packets;
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(labels: &[u32], class: u16) -> Vec<u8> {
        let mut f = vec![0; 12];
        f.extend(if labels.is_empty() { [0x86, 0xdd] } else { [0x88, 0x47] });
        for (n, label) in labels.iter().enumerate() {
            let bottom = u32::from(n + 1 == labels.len());
            f.extend((label << 12 | bottom << 8 | 64).to_be_bytes());
        }
        f.extend((0x6000 | class << 4).to_be_bytes());
        f.extend([0; 6]);
        f.extend([0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 9]);
        f.extend([0x20, 0x01, 0x0d, 0xb8, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        f
    }

    /// Input: frames with three labels, with none, cut short, and of another protocol. Output: their fields or nothing.
    #[test]
    fn dissects() {
        let kind = dissect(&frame(&[1005, 1003, 526_372], 32 << 2), "to-prn").unwrap();
        assert_eq!(kind.labels, [1005, 1003, 526_372]);
        assert_eq!(
            (kind.dscp, kind.source.as_str(), kind.destination.as_str()),
            (32, "2001:db8:1", "2001:db8:4")
        );
        let sid = kind.sid().unwrap();
        assert_eq!((sid.src, sid.dst, sid.mesh.name()), (1, 4, "gold"));
        assert!(dissect(&frame(&[], 0), "fa").unwrap().labels.is_empty());
        assert_eq!(dissect(&frame(&[1005], 0)[..30], "fa"), None);
        assert_eq!(dissect(&[0; 60], "fa"), None);
    }
}

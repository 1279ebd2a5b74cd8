//! What a controller placed: `cycle PLANE --mesh --format json`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use router_emu::label::{Mesh, Sid};
use serde::Deserialize;

use crate::Cli;
use crate::model::Model;

/// Result of a cycle.
#[derive(Clone, Debug, Deserialize)]
pub struct Cycle {
    /// Plane.
    pub plane: u32,
    /// The controller that ran it, `host/program`.
    pub leader: String,
    /// Fencing number.
    pub epoch: u64,
    /// Count of cycles of this process.
    pub cycle: u64,
    /// Time of asking the routers, microseconds.
    pub snapshot_us: u64,
    /// Of computing paths.
    pub te_us: u64,
    /// Of writing.
    pub program_us: u64,
    /// Pairs and meshes programmed or unchanged.
    pub pairs_ok: u32,
    /// Pairs and meshes that failed.
    pub pairs_failed: u32,
    /// LSPs placed.
    pub lsps: u32,
    /// LSPs that found no room within the limits.
    pub unrouted: u32,
    /// What went wrong.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Bundles.
    #[serde(default)]
    pub mesh: Vec<Bundle>,
}

/// A bundle.
#[derive(Clone, Debug, Deserialize)]
pub struct Bundle {
    /// Binding SID.
    pub sid: u32,
    /// Source site, by name.
    pub from: String,
    /// Destination site, by name.
    pub to: String,
    /// Mesh, by name.
    pub mesh: String,
    /// Version bit.
    pub version: u8,
    /// LSPs.
    pub lsps: Vec<Lsp>,
}

/// An LSP.
#[derive(Clone, Debug, Deserialize)]
pub struct Lsp {
    /// The path in use.
    pub primary: Path,
    /// The path in waiting; empty if there is none.
    #[serde(default)]
    pub backup: Path,
    /// Real bit/s.
    pub bps: u64,
}

/// A path: its hops from the source on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Path {
    /// Hops.
    pub hops: Vec<Hop>,
}

/// A hop, `eb01.prn:to-atn` in the document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Hop {
    /// Router.
    pub router: String,
    /// Its outgoing interface.
    pub interface: String,
    /// Router at the far end.
    pub neighbor: String,
}

impl TryFrom<String> for Hop {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("hop `{text}` is not router:interface");
        let (router, interface) = text.split_once(':').ok_or_else(bad)?;
        let plane = router.split('.').next().ok_or_else(bad)?;
        let far = interface.strip_prefix("to-").and_then(|far| far.split('.').next()).ok_or_else(bad)?;
        let neighbor = format!("{plane}.{far}");
        Ok(Self { router: router.to_owned(), interface: interface.to_owned(), neighbor })
    }
}

impl Path {
    /// Routers in order.
    pub fn routers(&self) -> Vec<&str> {
        let first = self.hops.first().map(|h| h.router.as_str());
        first.into_iter().chain(self.hops.iter().map(|h| h.neighbor.as_str())).collect()
    }

    /// Names of the links, as the lab names them.
    pub fn links(&self) -> BTreeSet<String> {
        self.hops.iter().map(Hop::link).collect()
    }

    /// Static labels of all hops: what each router calls its outgoing interface.
    pub fn labels(&self, model: &Model) -> anyhow::Result<Vec<u32>> {
        let label = |hop: &Hop| {
            let site = hop.router.split('.').nth(1).context("router without a site")?;
            let labels = model.static_labels(site)?;
            let found = labels.into_iter().find(|(_, interface)| *interface == hop.interface);
            found
                .map(|(label, _)| label)
                .with_context(|| format!("no link at {}:{}", hop.router, hop.interface))
        };
        self.hops.iter().map(label).collect()
    }
}

impl Hop {
    /// Name of the link: both ends in order, and the number among parallels.
    pub fn link(&self) -> String {
        let (a, b) = (&self.router, &self.neighbor);
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        let parallel = self.interface.split_once('.').map(|(_, n)| format!(".{n}")).unwrap_or_default();
        format!("{a}--{b}{parallel}")
    }
}

impl Bundle {
    /// Source, destination, mesh, version.
    pub fn decoded(&self) -> anyhow::Result<Sid> {
        Sid::decode(self.sid).with_context(|| format!("{} is no binding SID", self.sid))
    }
}

impl Cycle {
    /// The bundle of a pair.
    pub fn bundle(&self, src: u8, dst: u8, mesh: Mesh) -> anyhow::Result<&Bundle> {
        let found = self.mesh.iter().find(|b| {
            Sid::decode(b.sid).is_some_and(|sid| sid.src == src && sid.dst == dst && sid.mesh == mesh)
        });
        found.with_context(|| format!("the mesh of plane {} has no bundle {src} > {dst} {mesh}", self.plane))
    }

    /// Real bit/s of the primaries of one mesh, by link and direction.
    pub fn load(&self, mesh: Mesh) -> anyhow::Result<BTreeMap<(String, String), u64>> {
        let mut load = BTreeMap::new();
        for bundle in &self.mesh {
            if bundle.decoded()?.mesh != mesh {
                continue;
            }
            for lsp in &bundle.lsps {
                for hop in &lsp.primary.hops {
                    *load.entry((hop.link(), hop.router.clone())).or_default() += lsp.bps;
                }
            }
        }
        Ok(load)
    }
}

/// Runs a cycle of a plane's controller now.
pub fn cycle(cli: &Cli, plane: u8) -> anyhow::Result<Cycle> {
    let cycle: Cycle = cli.json(&["cycle", &plane.to_string(), "--mesh"])?;
    ensure!(
        cycle.pairs_failed == 0 && cycle.errors.is_empty(),
        "cycle {} of plane {plane}: {} pairs failed: {:?}",
        cycle.cycle,
        cycle.pairs_failed,
        cycle.errors
    );
    Ok(cycle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: a bundle as the controller's document has it. Output: routers, link names, the number of a parallel link.
    #[test]
    fn reads_paths() {
        let text = r#"{"sid": 526372, "from": "prn", "to": "lla", "mesh": "gold", "version": 0,
            "lsps": [{"primary": ["eb01.prn:to-atn", "eb01.atn:to-chi.2"], "backup": [], "bps": 5}]}"#;
        let bundle: Bundle = serde_json::from_str(text).unwrap();
        let path = &bundle.lsps[0].primary;
        assert_eq!(path.routers(), ["eb01.prn", "eb01.atn", "eb01.chi"]);
        let links: Vec<_> = path.links().into_iter().collect();
        assert_eq!(links, ["eb01.atn--eb01.chi.2", "eb01.atn--eb01.prn"]);
        assert!(serde_json::from_str::<Hop>("\"eb01.prn\"").is_err());
    }
}

//! What a restarted route-agent must still know: epoch, map, and the traffic counted by rules that are gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::table::Table;
use super::traffic::{Count, Totals};
use crate::agent::write_atomically;
use crate::label::Mesh;

/// The state file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    epoch: u64,
    /// Egress site, mesh code, group id.
    map: Vec<(u8, u8, u32)>,
    /// Egress site, mesh code, packets, bytes.
    counted: Vec<(u8, u8, u64, u64)>,
}

impl StateFile {
    /// The file `route-agent.json` in a state folder.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("route-agent.json") }
    }

    /// Writes everything.
    pub fn save(&self, epoch: u64, table: &Table, totals: &Totals) -> anyhow::Result<()> {
        let map = table.map().iter().map(|(&(site, mesh), &group)| (site, mesh.code(), group)).collect();
        let counted = totals.before().iter();
        let counted = counted.map(|(&(site, mesh), c)| (site, mesh.code(), c.packets, c.bytes)).collect();
        write_atomically(&self.path, &serde_json::to_vec(&Content { epoch, map, counted })?)
    }

    /// Reads everything back; the epoch is returned. A file that is not there is an empty one.
    pub fn load(&self, table: &mut Table, totals: &mut Totals) -> anyhow::Result<u64> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(e) => anyhow::bail!("cannot read {}: {e}", self.path.display()),
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|e| {
            anyhow::anyhow!("{}: {e}; remove the file to start without it", self.path.display())
        })?;
        for (site, mesh, group) in content.map {
            if let Some(mesh) = Mesh::from_code(mesh) {
                table.set_map(site, mesh, Some(group));
            }
        }
        let counted = content.counted.into_iter();
        let counted = counted.filter_map(|(site, mesh, packets, bytes)| {
            Some(((site, Mesh::from_code(mesh)?), Count { packets, bytes }))
        });
        totals.resume(counted.collect::<BTreeMap<_, _>>());
        Ok(content.epoch)
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn what_is_saved_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path());
        let (mut table, mut totals) = (Table::default(), Totals::default());
        assert_eq!(file.load(&mut table, &mut totals).unwrap(), 0);
        table.set_map(3, Mesh::Gold, Some(9));
        totals.resume(BTreeMap::from([((3, Mesh::Gold), Count { packets: 1, bytes: 2 })]));
        file.save(5, &table, &totals).unwrap();
        let (mut again, mut counted) = (Table::default(), Totals::default());
        assert_eq!(file.load(&mut again, &mut counted).unwrap(), 5);
        assert_eq!(again.map(), table.map());
        assert_eq!(counted.before(), totals.before());
        std::fs::write(folder.path().join("route-agent.json"), "{").unwrap();
        assert!(file.load(&mut again, &mut counted).unwrap_err().to_string().contains("route-agent.json: "));
    }
}

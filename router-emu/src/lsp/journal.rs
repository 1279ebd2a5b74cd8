//! What a restarted lsp-agent must still know: epoch, bundles with their paths, paths in use, withdrawn links.
//!
//! A folder of small files, each replaced by rename, so that a bundle costs one small write: `epoch`, `<key>.bundle`
//! (the wire message; key in hexadecimal) and `links.json`. It guards against the death of the process, not of the
//! machine: nothing is flushed to a disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::bundle::{Active, Bundle};
use super::engine::Engine;
use crate::proto;

/// The journal's folder.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct LinkFile {
    /// Path in use of each LSP, one letter each, by key.
    active: BTreeMap<u32, String>,
    /// Endpoints without an adjacency: router, interface.
    withdrawn: Vec<(String, String)>,
}

impl Journal {
    /// Opens the folder `lsp-agent` in a state folder, creating it if need be.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let folder = state_dir.join("lsp-agent");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Remembers the highest epoch.
    pub fn epoch(&self, epoch: u64) -> io::Result<()> {
        replace(&self.folder.join("epoch"), epoch.to_string().as_bytes())
    }

    /// Remembers a bundle.
    pub fn put(&self, bundle: &Bundle) -> io::Result<()> {
        replace(&self.bundle_file(bundle.key()), &bundle.wire.encode_to_vec())
    }

    /// Forgets a bundle.
    pub fn remove(&self, key: u32) -> io::Result<()> {
        match std::fs::remove_file(self.bundle_file(key)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Remembers paths in use and withdrawn links.
    pub fn links(&self, engine: &Engine) -> io::Result<()> {
        let letters = |bundle: &Bundle| bundle.active.iter().map(|a| a.letter()).collect();
        let file = LinkFile {
            active: engine.bundles().iter().map(|(&key, bundle)| (key, letters(bundle))).collect(),
            withdrawn: engine.links().withdrawn(),
        };
        replace(&self.folder.join("links.json"), &serde_json::to_vec(&file)?)
    }

    /// Fills an engine with what is remembered. Files that cannot be read are left out; the sentences say which.
    pub fn restore(&self, engine: &mut Engine) -> io::Result<Vec<String>> {
        let mut skipped = Vec::new();
        let mut skip = |path: &Path, why: String| skipped.push(format!("{}: {why}", path.display()));
        let path = self.folder.join("epoch");
        match read(&path)?.map(|b| String::from_utf8_lossy(&b).trim().parse::<u64>()) {
            Some(Ok(epoch)) => drop(engine.fence(epoch)),
            Some(Err(e)) => skip(&path, e.to_string()),
            None => {}
        }
        let path = self.folder.join("links.json");
        let links: LinkFile = match read(&path)?.map(|bytes| serde_json::from_slice(&bytes)) {
            Some(Ok(links)) => links,
            Some(Err(e)) => {
                skip(&path, e.to_string());
                LinkFile::default()
            }
            None => LinkFile::default(),
        };
        for (router, interface) in &links.withdrawn {
            engine.links_mut().withdraw(router, interface);
        }
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&self.folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        files.sort();
        for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "bundle")) {
            let wire =
                proto::Bundle::decode(read(path)?.unwrap_or_default().as_slice()).map_err(|e| e.to_string());
            match wire.and_then(|wire| engine.compile(wire)) {
                Ok(bundle) => drop(engine.put(bundle)),
                Err(why) => skip(path, why),
            }
        }
        for (key, letters) in &links.active {
            let active: Option<Vec<Active>> = letters.chars().map(Active::from_letter).collect();
            engine.resume(*key, &active.unwrap_or_default());
        }
        Ok(skipped)
    }

    fn bundle_file(&self, key: u32) -> PathBuf {
        self.folder.join(format!("{key:08x}.bundle"))
    }
}

/// Replaces a file at once: readers see the old content or the new.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    std::fs::write(&fresh, content)?;
    std::fs::rename(&fresh, path)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

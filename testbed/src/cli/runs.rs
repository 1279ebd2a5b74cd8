//! Past runs, kept on the machine: a folder each, the oldest pruned.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use scenario::record::Run;
use scenario::report;

use crate::carrier::state_root;
use crate::failure::{Code, Failure};

/// Runs that are kept.
const KEPT: usize = 100;

/// Where they are.
pub struct Runs(PathBuf);

impl Runs {
    /// The folder of all runs of this user.
    pub fn open() -> anyhow::Result<Self> {
        let folder = state_root().join("runs");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// A run's folder.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.0.join(id)
    }

    /// Makes the folder of a new run, and gives the run its name.
    pub fn make(&self, run: &mut Run) -> anyhow::Result<PathBuf> {
        let date = report::figures::date(run.began_unix_ms);
        let stamp: String = date.chars().map(|c| if c.is_ascii_digit() { c } else { '-' }).collect();
        for number in 1.. {
            let again = if number == 1 { String::new() } else { format!("-{number}") };
            let id = format!("{}-{}{again}", stamp.trim_matches('-'), run.title.name);
            let folder = self.folder(&id);
            match std::fs::create_dir(&folder) {
                Ok(()) => {
                    run.id = id;
                    self.prune();
                    return Ok(folder);
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).with_context(|| format!("cannot make {}", folder.display())),
            }
        }
        anyhow::bail!("no name is left for the run's folder")
    }

    /// Writes what is known of a run.
    pub fn write(folder: &Path, run: &Run) -> anyhow::Result<()> {
        let files = [
            ("run.json", serde_json::to_string(run)?),
            ("report.html", report::html::html(run)),
            ("junit.xml", report::junit::junit(std::slice::from_ref(run))),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Removes the oldest beyond those that are kept. Names begin with their time.
    fn prune(&self) {
        let names = self.names();
        for name in names.iter().take(names.len().saturating_sub(KEPT)) {
            // somebody may look at it just now, or have removed it
            let _ = std::fs::remove_dir_all(self.folder(name));
        }
    }

    /// All runs, the oldest first.
    pub fn all(&self) -> Vec<Run> {
        self.names().iter().filter_map(|name| self.read(name).ok()).collect()
    }

    /// A run by its name, the end of its name (a scenario's: its last run), or the path of its folder.
    pub fn read(&self, id: &str) -> anyhow::Result<Run> {
        let by_name =
            self.names().into_iter().rev().find(|name| name == id || name.ends_with(&format!("-{id}")));
        let folder = by_name.map_or_else(|| PathBuf::from(id), |name| self.folder(&name));
        let path = if folder.is_dir() { folder.join("run.json") } else { folder };
        let text = std::fs::read_to_string(&path).map_err(|why| {
            Failure::new(Code::Usage, format!("no run `{id}`: {}: {why}", path.display()))
                .hint("`testbed report` lists them")
        })?;
        serde_json::from_str(&text).with_context(|| format!("{} is no record of a run", path.display()))
    }
}

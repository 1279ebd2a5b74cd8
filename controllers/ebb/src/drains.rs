//! The drain database: links and routers that traffic engineering leaves out or avoids.
//!
//! A table in SQLite, written by operators and read in every cycle (paper 3.3.1). The database is an outside thing: it can
//! be locked, full or broken. Then the cycle goes on with what was read last, and says so.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use router_emu::proto::{DrainMode, DrainRow};
use rusqlite::Connection;

/// Longest wait for somebody else's transaction.
const BUSY: Duration = Duration::from_millis(500);
/// Version of the table, in `user_version`.
const VERSION: i64 = 1;

/// What is drained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Router, `eb01.chi`.
    pub router: String,
    /// Its interface, if a link is meant: either end stands for both directions.
    pub interface: Option<String>,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}:{interface}", self.router),
            None => f.write_str(&self.router),
        }
    }
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No path uses it; paths still start and end at an excluded router.
    Exclude,
    /// Paths use it only if there is no other way.
    Avoid,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Exclude => "exclude",
            Self::Avoid => "avoid",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Exclude, Self::Avoid].into_iter().find(|mode| mode.name() == name)
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What.
    pub subject: Subject,
    /// How.
    pub mode: Mode,
    /// Why, for people.
    pub reason: String,
    /// Since when, Unix time in milliseconds.
    pub since_ms: u64,
}

impl Row {
    /// As the RPC tells it.
    pub fn to_wire(&self) -> DrainRow {
        let mode = match self.mode {
            Mode::Exclude => DrainMode::Exclude,
            Mode::Avoid => DrainMode::Avoid,
        };
        DrainRow {
            router: self.subject.router.clone(),
            interface: self.subject.interface.clone().unwrap_or_default(),
            mode: mode.into(),
            reason: self.reason.clone(),
            since_unix_ms: self.since_ms,
        }
    }
}

/// The open database; clones share it.
#[derive(Clone, Debug)]
pub struct Drains {
    connection: Arc<Mutex<Connection>>,
}

impl Drains {
    /// Opens the file and makes the table if it is not there.
    ///
    /// # Errors
    /// A file that cannot be opened, is no database, or is one of a newer release.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("cannot use the drain database {}", path.display());
        Self::prepare(Connection::open(path).with_context(what)?).with_context(what)
    }

    /// A database that ends with the process.
    ///
    /// # Errors
    /// No memory.
    pub fn in_memory() -> anyhow::Result<Self> {
        Self::prepare(Connection::open_in_memory()?)
    }

    fn prepare(connection: Connection) -> anyhow::Result<Self> {
        connection.busy_timeout(BUSY)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        match version {
            VERSION => {}
            0 => connection.execute_batch(&format!(
                "BEGIN;
                 CREATE TABLE drain (
                     router TEXT NOT NULL, interface TEXT NOT NULL, mode TEXT NOT NULL CHECK (mode IN ('exclude', 'avoid')),
                     reason TEXT NOT NULL, since_ms INTEGER NOT NULL, PRIMARY KEY (router, interface)
                 ) STRICT;
                 PRAGMA user_version = {VERSION};
                 COMMIT;"
            ))?,
            newer => bail!("its version is {newer}, this program knows {VERSION}"),
        }
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// All rows, by router and interface.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let connection = self.lock();
        let mut select = connection
            .prepare_cached("SELECT router, interface, mode, reason, since_ms FROM drain ORDER BY 1, 2")?;
        let rows = select.query_map([], |row| {
            let (interface, mode): (String, String) = (row.get(1)?, row.get(2)?);
            let subject =
                Subject { router: row.get(0)?, interface: Some(interface).filter(|i| !i.is_empty()) };
            let mode = Mode::from_name(&mode).unwrap_or(Mode::Exclude);
            let since_ms = u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0);
            Ok(Row { subject, mode, reason: row.get(3)?, since_ms })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Carries out requests of the RPC, all or none: a row without a mode is removed, any other written.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn change(&self, rows: &[DrainRow]) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let mut connection = self.lock();
        let change = connection.transaction()?;
        for row in rows {
            let mode = match row.mode() {
                DrainMode::None => {
                    change.execute(
                        "DELETE FROM drain WHERE router = ?1 AND interface = ?2",
                        (&row.router, &row.interface),
                    )?;
                    continue;
                }
                DrainMode::Exclude => Mode::Exclude,
                DrainMode::Avoid => Mode::Avoid,
            };
            change.execute(
                "INSERT INTO drain VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET mode = excluded.mode, reason = excluded.reason, since_ms = excluded.since_ms",
                (&row.router, &row.interface, mode.name(), &row.reason, now),
            )?;
        }
        change.commit()?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(router: &str, interface: &str, mode: DrainMode) -> DrainRow {
        let (router, interface) = (router.to_owned(), interface.to_owned());
        DrainRow { router, interface, mode: mode.into(), reason: "work".to_owned(), since_unix_ms: 0 }
    }

    fn names(drains: &Drains) -> Vec<(String, Mode)> {
        drains.rows().unwrap().into_iter().map(|r| (r.subject.to_string(), r.mode)).collect()
    }

    #[test]
    fn rows_are_written_changed_and_removed_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drains.db");
        let drains = Drains::open(&path).unwrap();
        let (link, node) =
            (row("eb01.chi", "to-frc", DrainMode::Exclude), row("eb01.lon", "", DrainMode::Avoid));
        drains.change(&[node, link]).unwrap();
        let expected = [("eb01.chi:to-frc".to_owned(), Mode::Exclude), ("eb01.lon".to_owned(), Mode::Avoid)];
        assert_eq!(names(&drains), expected);
        drop(drains);
        let drains = Drains::open(&path).unwrap();
        assert_eq!(names(&drains), expected);
        assert!(drains.rows().unwrap().iter().all(|r| r.since_ms > 0 && r.reason == "work"));
        drains
            .change(&[row("eb01.chi", "to-frc", DrainMode::Avoid), row("eb01.lon", "", DrainMode::None)])
            .unwrap();
        assert_eq!(names(&drains), [("eb01.chi:to-frc".to_owned(), Mode::Avoid)]);
    }

    #[test]
    fn a_locked_database_is_an_error_within_the_deadline_and_no_loss() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drains.db");
        let drains = Drains::open(&path).unwrap();
        drains.change(&[row("a", "", DrainMode::Exclude)]).unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        assert!(drains.rows().is_err());
        assert!(drains.change(&[row("b", "", DrainMode::Exclude)]).is_err());
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(names(&drains), [("a".to_owned(), Mode::Exclude)]);
    }

    #[test]
    fn what_is_no_database_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drains.db");
        std::fs::write(&path, "not a database, but longer than a header of one hundred bytes".repeat(4))
            .unwrap();
        let e = format!("{:#}", Drains::open(&path).unwrap_err());
        assert!(e.contains("drains.db") && e.contains("not a database"), "{e}");
    }
}

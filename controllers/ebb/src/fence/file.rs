//! The embedded lock: a file that all replicas see.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use router_emu::agent::write_atomically;

use super::{Bid, Lease, Lock};

/// The embedded lock, for one machine: `flock` on a file, and an epoch counter beside it.
///
/// The kernel frees the lock when the process ends, however it ends. All replicas must share the folder.
#[derive(Debug)]
pub struct FileLock {
    folder: PathBuf,
    held: Option<File>,
}

impl FileLock {
    /// A lock in `folder` (files `leader.lock` and `epoch`), not yet held.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), held: None }
    }

    fn epoch_path(&self) -> PathBuf {
        self.folder.join("epoch")
    }

    /// The stored epoch; 0 if there is none.
    fn stored(&self) -> anyhow::Result<u64> {
        let path = self.epoch_path();
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|e| {
                anyhow::anyhow!(
                    "{} does not hold a number: {e}; remove it, agents know the epoch",
                    path.display()
                )
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(anyhow::anyhow!("cannot read {}: {e}", path.display())),
        }
    }

    fn store(&self, epoch: u64) -> anyhow::Result<u64> {
        write_atomically(&self.epoch_path(), format!("{epoch}\n").as_bytes())?;
        Ok(epoch)
    }

    fn acquire(&mut self) -> anyhow::Result<Bid> {
        let path = self.folder.join("leader.lock");
        let fail = |e: io::Error| anyhow::anyhow!("cannot lock {}: {e}", path.display());
        std::fs::create_dir_all(&self.folder).map_err(fail)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Bid::Taken(None)),
            Err(TryLockError::Error(e)) => return Err(fail(e)),
        }
        let epoch = self.store(self.stored()?.saturating_add(1))?;
        self.held = Some(file);
        Ok(Bid::Won(epoch))
    }
}

impl Lock for FileLock {
    async fn try_acquire(&mut self) -> anyhow::Result<Bid> {
        self.acquire()
    }

    async fn raise_above(&mut self, seen: u64) -> anyhow::Result<Option<u64>> {
        if self.held.is_none() {
            return Ok(None);
        }
        self.store(self.stored()?.max(seen).saturating_add(1)).map(Some)
    }

    fn lease(&self) -> Lease {
        Lease::endless()
    }

    fn release(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_leader_and_rising_epochs() {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (FileLock::new(dir.path()), FileLock::new(dir.path()));
        assert_eq!(a.try_acquire().await.unwrap(), Bid::Won(1));
        assert_eq!(b.try_acquire().await.unwrap(), Bid::Taken(None));
        assert_eq!(b.raise_above(9).await.unwrap(), None);
        assert_eq!(a.raise_above(40).await.unwrap(), Some(41));
        a.release();
        // a process that another thread starts holds a copy of the lock until it becomes its program
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut epoch = b.try_acquire().await.unwrap();
        while epoch == Bid::Taken(None) && std::time::Instant::now() < until {
            tokio::task::yield_now().await;
            epoch = b.try_acquire().await.unwrap();
        }
        assert_eq!(epoch, Bid::Won(42));
        assert_eq!(a.try_acquire().await.unwrap(), Bid::Taken(None));
        drop(b);
        assert_eq!(a.try_acquire().await.unwrap(), Bid::Won(43));
    }

    #[tokio::test]
    async fn a_broken_counter_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("epoch"), "many").unwrap();
        let e = FileLock::new(dir.path()).try_acquire().await.unwrap_err().to_string();
        assert!(e.contains("epoch does not hold a number"), "{e}");
    }
}

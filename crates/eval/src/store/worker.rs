//! Several processes on one store. Each claims what it is going to compute. A claim is valid as long as its process lives:
//! the process holds a file lock, which the operating system releases when the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use monosplit_graph::{Error, Result};
use rusqlite::{TransactionBehavior, params};

use super::{Store, failure};

/// A process that works on a store.
#[derive(Debug)]
pub struct Worker {
    id: i64,
    path: PathBuf,
    /// Locked while the process lives.
    _lock: File,
}

impl Worker {
    /// Registers this process as a worker of the store.
    pub fn start(store: &Store) -> Result<Self> {
        let entered = || -> rusqlite::Result<i64> {
            let add = "INSERT INTO worker (process) VALUES (?1)";
            store.connection.execute(add, [std::process::id()])?;
            Ok(store.connection.last_insert_rowid())
        };
        let id = entered().map_err(|cause| store.failed(cause))?;
        let path = lock_path(&store.path, id);
        let failed = |cause| Error::io(&path, cause);
        // The file is locked before it gets its name, so that an unlocked file of that name means a dead worker.
        let mut unnamed = path.clone().into_os_string();
        unnamed.push(".new");
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(&unnamed).map_err(failed)?;
        lock.lock().map_err(failed)?;
        std::fs::rename(&unnamed, &path).map_err(failed)?;
        remove_dead(&store.path);
        Ok(Worker { id, path, _lock: lock })
    }

    pub(super) fn id(&self) -> i64 {
        self.id
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // If the file cannot be removed, the next worker recognises it as that of a dead worker.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn lock_path(store: &Path, id: i64) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(format!("-worker-{id}"));
    PathBuf::from(name)
}

impl Store {
    /// Claims the pairs `(configuration, image)` that no other worker has claimed, and returns them.
    pub fn claim(&mut self, worker: &Worker, model: i64, wanted: &[(i64, i64)]) -> Result<Vec<(i64, i64)>> {
        let add = "INSERT INTO claim (model, configuration, image, worker) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT DO NOTHING";
        let path = self.path.clone();
        let mut claimed = || -> rusqlite::Result<Vec<(i64, i64)>> {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut mine = Vec::new();
            for &(configuration, image) in wanted {
                let new =
                    transaction.prepare(add)?.execute(params![model, configuration, image, worker.id])?;
                if new == 1 {
                    mine.push((configuration, image));
                }
            }
            transaction.commit()?;
            Ok(mine)
        };
        claimed().map_err(|cause| failure(&path, cause))
    }

    /// Releases the claims of processes that have ended; returns whether there were any.
    pub fn release_abandoned_claims(&mut self, worker: &Worker) -> Result<bool> {
        let path = self.path.clone();
        let failed = |cause: rusqlite::Error| failure(&path, cause);
        let others = || -> rusqlite::Result<Vec<i64>> {
            let mut find = self.connection.prepare("SELECT DISTINCT worker FROM claim")?;
            find.query_map([], |row| row.get(0))?.collect()
        };
        let others = others().map_err(failed)?;
        let mut buried = false;
        for other in others.into_iter().filter(|&other| other != worker.id) {
            if is_alive(&lock_path(&self.path, other)) {
                continue;
            }
            let gone = self.connection.execute("DELETE FROM claim WHERE worker = ?1", [other]);
            buried |= gone.map_err(failed)? > 0;
            let _ = std::fs::remove_file(lock_path(&self.path, other));
        }
        Ok(buried)
    }
}

/// Removes the lock files of ended workers without claims.
fn remove_dead(store: &Path) {
    for lock in locks(store).filter(|lock| !is_alive(lock)) {
        let _ = std::fs::remove_file(lock);
    }
}

/// Whether a worker of any process holds its lock.
pub(super) fn has_live_worker(store: &Path) -> bool {
    locks(store).any(|lock| is_alive(&lock))
}

/// The locks beside a store.
fn locks(store: &Path) -> impl Iterator<Item = PathBuf> {
    let prefix = lock_path(store, 0).file_name().map(|name| name.to_string_lossy().into_owned());
    let prefix = prefix.unwrap_or_default().trim_end_matches('0').to_owned();
    let folder = store.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(move |path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.strip_prefix(&prefix).is_some_and(|rest| rest.parse::<i64>().is_ok())
    })
}

/// Whether a process holds the lock.
fn is_alive(lock: &Path) -> bool {
    let Ok(file) = OpenOptions::new().write(true).open(lock) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, configuration};
    use super::*;

    #[test]
    fn a_claim_is_exclusive_until_its_process_ends() {
        let scratch = Scratch::new("claims");
        let [mut one, mut other] = [(); 2].map(|()| Store::open(&scratch.store()).unwrap());
        let model = one.model("m", "p", "net").unwrap();
        let id = one.configuration(&configuration("a")).unwrap();
        let (first, second) = (Worker::start(&one).unwrap(), Worker::start(&other).unwrap());
        assert_eq!(one.claim(&first, model, &[(id, 1), (id, 2)]).unwrap(), [(id, 1), (id, 2)]);
        assert_eq!(other.claim(&second, model, &[(id, 2), (id, 3)]).unwrap(), [(id, 3)]);
        assert!(!other.release_abandoned_claims(&second).unwrap(), "the first is at work");
        let dead = lock_path(&scratch.store(), 77);
        std::fs::write(&dead, "").unwrap();
        drop(Worker::start(&one).unwrap());
        assert!(!dead.exists() && first.path.exists() && second.path.exists());
        drop(first);
        assert!(other.release_abandoned_claims(&second).unwrap());
        assert_eq!(other.claim(&second, model, &[(id, 1), (id, 2)]).unwrap(), [(id, 1), (id, 2)]);
    }
}

//! Atomic file writes: a file is either complete or absent, whatever happens while it is written.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

/// A temporary file that was changed within this time may still be in use.
const GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Writes `bytes` to `path` under a temporary name in the same folder and then renames, so that no
/// reader ever sees half a file. What was at `path` before is replaced.
pub fn write_atomically(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    check_replaceable(&path)?;
    let path = &destination(path.as_ref())?;
    let temporary = temporary_beside(path)?;
    remove_stale(path);
    let written = create_unfinished(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is reported, whether or not the temporary file can be removed.
        let _ = fs::remove_file(&temporary);
    }
    unfinished().remove(&temporary);
    written.map_err(|cause| Error::io(path, cause))
}

/// Removes the files that are being written and prevents new ones, for a process that is about to end. It takes a lock, and
/// must not be called from a signal handler.
pub fn abandon_unfinished_files() {
    let unfinished = unfinished();
    for temporary in unfinished.iter() {
        let _ = fs::remove_file(temporary);
    }
    std::mem::forget(unfinished);
}

/// The temporary names of files that are being written.
fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a temporary file and registers it as unfinished.
fn create_unfinished(temporary: &Path) -> std::io::Result<File> {
    let mut unfinished = unfinished();
    let file = OpenOptions::new().write(true).create_new(true).open(temporary)?;
    unfinished.insert(temporary.to_owned());
    Ok(file)
}

/// Makes this process refuse to replace what it has read: from now on every file that is given to [`keep`], as readers of
/// networks and pictures do, stays as it is. A program asks for it when it starts; without that, no list is kept.
pub fn protect_inputs() {
    kept().get_or_insert_default();
}

/// Marks a file as an input, if inputs are protected.
pub fn keep(path: impl AsRef<Path>) {
    if let Some(kept) = &mut *kept()
        && let Ok(path) = fs::canonicalize(path)
    {
        kept.insert(path);
    }
}

/// The input files, if they are protected.
fn kept() -> MutexGuard<'static, Option<BTreeSet<PathBuf>>> {
    static KEPT: Mutex<Option<BTreeSet<PathBuf>>> = Mutex::new(None);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error if there is a file at `path` that must not be replaced: a read-only one, which a rename would replace, one that is
/// no regular file, or a protected input.
pub fn check_replaceable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    if fs::canonicalize(path).is_ok_and(|path| kept().as_ref().is_some_and(|kept| kept.contains(&path))) {
        return Err(Error::argument(format!(
            "'{}' is what is read, and would be replaced; write to another file",
            path.display()
        )));
    }
    if !found.is_file() {
        return Err(Error::argument(format!(
            "'{}' is not a regular file and cannot be replaced by one",
            path.display()
        )));
    }
    if found.permissions().readonly() {
        return Err(Error::argument(format!(
            "'{}' is there and is read-only; choose another name, or allow writing to it",
            path.display()
        )));
    }
    Ok(())
}

/// The file that a path refers to, with symbolic links followed.
fn destination(path: &Path) -> Result<PathBuf> {
    match fs::metadata(path) {
        Ok(_) => fs::canonicalize(path).map_err(|cause| Error::io(path, cause)),
        Err(_) => match fs::read_link(path) {
            Ok(target) => Ok(path.parent().unwrap_or(Path::new("")).join(target)),
            Err(_) => Ok(path.to_owned()),
        },
    }
}

/// Removes temporary files of killed processes, before the first file is written into a folder. Which processes are alive is
/// known from `/proc`. Files that changed within [`GRACE_PERIOD`] stay, because they may belong to another machine that shares
/// the folder.
fn remove_stale(path: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let processes = Path::new("/proc");
    let first = SWEPT.lock().is_ok_and(|mut swept| swept.insert(folder.to_owned()));
    if !first || !processes.join("self").exists() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let middle = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".tmp"));
        let process = middle.and_then(|middle| middle.rsplit_once('.')?.1.split_once('-'));
        let Some(process) = process.and_then(|(process, _)| process.parse::<u32>().ok()) else { continue };
        let changed = entry.metadata().ok().and_then(|found| found.modified().ok());
        let old = changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > GRACE_PERIOD);
        if old && !processes.join(process.to_string()).exists() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn temporary_beside(path: &Path) -> Result<PathBuf> {
    static SERIAL: AtomicUsize = AtomicUsize::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::argument(format!("'{}' does not name a file to write", path.display())));
    };
    let mut temporary = OsString::from(".");
    temporary.push(name);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{serial}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_left_alone() {
        let folder = std::env::temp_dir().join(format!("monosplit-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (link, target) = (folder.join("link"), folder.join("target"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        for content in [b"first", b"later"] {
            write_atomically(&link, content).unwrap();
            assert_eq!(fs::read(&target).unwrap(), content);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        assert!(write_atomically("/dev/null", b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn read_only_files_are_not_replaced() {
        let folder = std::env::temp_dir().join(format!("monosplit-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("kept");
        write_atomically(&path, b"first").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        assert!(write_atomically(&path, b"later").unwrap_err().to_string().contains("read-only"));
        assert_eq!(fs::read(&path).unwrap(), b"first");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("monosplit-failed-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(write_atomically(folder.join("absent/map.png"), b"x").is_err());
        fs::create_dir(folder.join("taken.png")).unwrap();
        assert!(write_atomically(folder.join("taken.png"), b"x").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert!(write_atomically("..", b"x").is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_of_killed_processes_are_removed_and_those_of_running_ones_stay() {
        let folder = std::env::temp_dir().join(format!("monosplit-remains-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // No process has a number above 2²².
        let [dead, young, alive, other] = [
            ".a.png.4194999-3.tmp".to_owned(),
            ".b.png.4194999-4.tmp".to_owned(),
            format!(".c.png.{}-999.tmp", std::process::id()),
            ".d.png.notes.tmp".to_owned(),
        ]
        .map(|name| folder.join(name));
        for path in [&dead, &young, &alive, &other] {
            fs::write(path, "half").unwrap();
            let before = std::time::SystemTime::now() - 2 * GRACE_PERIOD;
            if path != &young {
                OpenOptions::new().write(true).open(path).unwrap().set_modified(before).unwrap();
            }
        }
        write_atomically(folder.join("map.png"), b"whole").unwrap();
        assert_eq!(dead.exists(), !Path::new("/proc/self").exists());
        assert!(young.exists() && alive.exists() && other.exists());
        let _ = fs::remove_dir_all(folder);
    }
}

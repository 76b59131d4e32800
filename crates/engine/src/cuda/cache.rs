//! What is found out about a card once and kept on disk: compiled kernels, and which algorithm is fastest for a
//! convolution. Without the folder everything is found out again, and another algorithm, with other last bits, may come out as
//! the fastest.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use monosplit_graph::{Fingerprint, write_atomically};

use super::device::OPTIONS;

/// The environment variable that names the folder.
const VARIABLE: &str = "MONOSPLIT_CACHE";

/// What is known about one kind of card and libraries.
pub(super) struct Cache {
    folder: Option<PathBuf>,
    file: String,
    algorithms: Mutex<HashMap<String, i32>>,
}

/// The folder for caches: the one that is named, or the system's own.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    base.or_else(home).map(|base| base.join("monosplit"))
}

/// The choices a file holds; none if there is no such file.
fn read(folder: Option<&PathBuf>, file: &str) -> HashMap<String, i32> {
    let text = folder.and_then(|folder| std::fs::read_to_string(folder.join(file)).ok());
    let line = |line: &str| {
        let (key, algorithm) = line.rsplit_once(' ')?;
        Some((key.to_string(), algorithm.parse().ok()?))
    };
    text.unwrap_or_default().lines().filter_map(line).collect()
}

impl Cache {
    /// What is known about `machine`, a card and its libraries.
    pub(super) fn of(machine: &str) -> Self {
        let folder = folder();
        let file = format!("convolutions-{:016x}.txt", Fingerprint::of(machine.as_bytes()));
        let algorithms = read(folder.as_ref(), &file);
        Cache { folder, file, algorithms: Mutex::new(algorithms) }
    }

    /// The algorithm for a convolution, if it has been chosen before.
    pub(super) fn algorithm(&self, convolution: &str) -> Option<i32> {
        self.algorithms.lock().unwrap_or_else(PoisonError::into_inner).get(convolution).copied()
    }

    /// Remembers the choice for a convolution.
    pub(super) fn keep_algorithm(&self, convolution: &str, algorithm: i32) {
        let mut algorithms = self.algorithms.lock().unwrap_or_else(PoisonError::into_inner);
        // Another process may have written since.
        for (key, other) in read(self.folder.as_ref(), &self.file) {
            algorithms.entry(key).or_insert(other);
        }
        algorithms.insert(convolution.to_string(), algorithm);
        let mut lines: Vec<String> = algorithms.iter().map(|(key, a)| format!("{key} {a}\n")).collect();
        lines.sort();
        self.write(&self.file, lines.concat().as_bytes());
    }

    /// Compiled code of a source, if it was kept whole.
    pub(super) fn code(&self, source: &str) -> Option<Vec<u8>> {
        let mut kept = std::fs::read(self.folder.as_ref()?.join(self.code_file(source))).ok()?;
        let split = kept.len().checked_sub(8)?;
        let sum = u64::from_le_bytes(kept.split_off(split).try_into().ok()?);
        (Fingerprint::of(&kept) == sum).then_some(kept)
    }

    /// Keeps compiled code, with its checksum behind it.
    pub(super) fn keep_code(&self, source: &str, code: &[u8]) {
        let whole = [code, &Fingerprint::of(code).to_le_bytes()].concat();
        self.write(&self.code_file(source), &whole);
    }

    fn code_file(&self, source: &str) -> String {
        let of = format!("{} {} {source}", self.file, OPTIONS.join(" "));
        format!("kernels-{:016x}-{}.bin", Fingerprint::of(of.as_bytes()), source.len())
    }

    /// A cache that cannot be written costs time and nothing else.
    fn write(&self, file: &str, bytes: &[u8]) {
        if let Some(folder) = &self.folder
            && std::fs::create_dir_all(folder).is_ok()
        {
            let _ = write_atomically(folder.join(file), bytes);
        }
    }
}

//! The cache on disk: compiled kernels, and the fastest algorithm of each convolution. Without it kernels are compiled and
//! algorithms are measured again, and another algorithm, with other last bits, may be chosen.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use monosplit_graph::{Fingerprint, write_atomically};

use super::compiler::OPTIONS;

/// The environment variable that names the folder.
const VARIABLE: &str = "MONOSPLIT_CACHE";

/// The cache for one kind of GPU and one version of the libraries.
pub(super) struct Cache {
    folder: Option<PathBuf>,
    file: String,
    algorithms: Mutex<HashMap<String, i32>>,
}

/// The cache folder: the one that the environment variable names, or that of the user.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    base.or_else(home).map(|base| base.join("monosplit"))
}

/// The algorithms a file lists; none if there is no such file.
fn read(folder: Option<&PathBuf>, file: &str) -> HashMap<String, i32> {
    let text = folder.and_then(|folder| std::fs::read_to_string(folder.join(file)).ok());
    let line = |line: &str| {
        let (key, algorithm) = line.rsplit_once(' ')?;
        Some((key.to_string(), algorithm.parse().ok()?))
    };
    text.unwrap_or_default().lines().filter_map(line).collect()
}

impl Cache {
    /// Opens the cache for `machine`, which names a GPU and its libraries.
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

    /// Stores the algorithm for a convolution.
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

    /// The compiled code of a source, if it is stored and its checksum is right.
    pub(super) fn code(&self, source: &str) -> Option<Vec<u8>> {
        let mut kept = std::fs::read(self.folder.as_ref()?.join(self.code_file(source))).ok()?;
        let split = kept.len().checked_sub(8)?;
        let sum = u64::from_le_bytes(kept.split_off(split).try_into().ok()?);
        (Fingerprint::of(&kept) == sum).then_some(kept)
    }

    /// Stores compiled code, followed by its checksum.
    pub(super) fn keep_code(&self, source: &str, code: &[u8]) {
        let whole = [code, &Fingerprint::of(code).to_le_bytes()].concat();
        self.write(&self.code_file(source), &whole);
    }

    fn code_file(&self, source: &str) -> String {
        let of = format!("{} {} {source}", self.file, OPTIONS.join(" "));
        format!("kernels-{:016x}-{}.bin", Fingerprint::of(of.as_bytes()), source.len())
    }

    /// Errors are ignored: a cache that cannot be written costs only time.
    fn write(&self, file: &str, bytes: &[u8]) {
        if let Some(folder) = &self.folder
            && std::fs::create_dir_all(folder).is_ok()
        {
            let _ = write_atomically(folder.join(file), bytes);
        }
    }
}

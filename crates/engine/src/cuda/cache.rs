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

/// A line of the file of algorithms: the convolution, its algorithm, and the checksum of both.
fn line(convolution: &str, algorithm: i32) -> String {
    let said = format!("{convolution} {algorithm}");
    format!("{said} {:016x}\n", Fingerprint::of(said.as_bytes()))
}

/// The algorithms a file lists; none if there is no such file. Lines whose checksum is another are left out, so that a damaged
/// file costs time and chooses nothing.
fn read(folder: Option<&PathBuf>, file: &str) -> HashMap<String, i32> {
    let bytes = folder.and_then(|folder| std::fs::read(folder.join(file)).ok()).unwrap_or_default();
    let entry = |line: &[u8]| {
        let (said, sum) = std::str::from_utf8(line).ok()?.rsplit_once(' ')?;
        if sum != format!("{:016x}", Fingerprint::of(said.as_bytes())) {
            return None;
        }
        let (convolution, algorithm) = said.rsplit_once(' ')?;
        Some((convolution.to_string(), algorithm.parse().ok()?))
    };
    bytes.split(|&byte| byte == b'\n').filter_map(entry).collect()
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
        let mut lines: Vec<String> = algorithms.iter().map(|(key, &chosen)| line(key, chosen)).collect();
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the processes that the test starts: their number.
    const CHILD: &str = "MONOSPLIT_TEST_CACHE_CHILD";
    const PROCESSES: i32 = 50;

    fn code(number: i32) -> Vec<u8> {
        vec![number as u8; 20_000 + number as usize]
    }

    /// What one process writes and reads of a folder that all share.
    fn use_cache(number: i32) {
        let cache = Cache::of("a card");
        for round in 0..20 {
            let other = (number + round) % PROCESSES;
            cache.keep_code(&format!("kernel {other}"), &code(other));
            cache.keep_algorithm(&format!("convolution {other}"), other);
            // Whatever the others are doing: what is there is whole.
            for read in 0..PROCESSES {
                let found = cache.code(&format!("kernel {read}"));
                assert!(found.is_none_or(|found| found == code(read)), "kernel {read}");
            }
        }
    }

    #[test]
    fn issue_35_a_flipped_bit_in_the_list_of_algorithms_chooses_nothing() {
        let folder = std::env::temp_dir().join(format!("monosplit-algorithms-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let known: HashMap<String, i32> =
            [("Result F32 1x3x8x8 4x3x3x3".to_string(), 115), ("Kernel F64 2x3x9x9 8x3x1x1".to_string(), 16)]
                .into();
        let whole: Vec<u8> = known.iter().flat_map(|(key, &chosen)| line(key, chosen).into_bytes()).collect();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(folder.join("list.txt"), damaged).unwrap();
            let found = read(Some(&folder), "list.txt");
            assert!(found.len() < known.len(), "bit {bit} goes unnoticed");
            assert!(found.iter().all(|(key, chosen)| known.get(key) == Some(chosen)), "bit {bit}: {found:?}");
        }
        std::fs::write(folder.join("list.txt"), whole).unwrap();
        assert_eq!(read(Some(&folder), "list.txt"), known);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn issue_35_fifty_processes_share_a_cache_folder() {
        if let Ok(number) = std::env::var(CHILD) {
            return use_cache(number.parse().unwrap());
        }
        let folder = std::env::temp_dir().join(format!("monosplit-cache-{}", std::process::id()));
        let start = |number: i32| {
            Command::new(std::env::current_exe().unwrap())
                .arg("fifty_processes_share_a_cache_folder")
                .envs([(CHILD, number.to_string()), (VARIABLE, folder.display().to_string())])
                .spawn()
                .unwrap()
        };
        let running: Vec<_> = (0..PROCESSES).map(start).collect();
        for mut process in running {
            assert!(process.wait().unwrap().success());
        }
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        let listed =
            files.iter().find(|file| file.extension().is_some_and(|ending| ending == "txt")).unwrap();
        // Algorithms that two processes wrote at once may be lost, and are measured again; none is another's.
        for line in std::fs::read_to_string(listed).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words.len() == 4 && words[1] == words[2], "{line}");
        }
        assert_eq!(files.len(), PROCESSES as usize + 1, "no unfinished file is left: {files:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

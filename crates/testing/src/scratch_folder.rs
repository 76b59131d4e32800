//! Folders for the files a test writes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A new empty folder, deleted when it is dropped.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes a folder that no other test has.
    #[expect(clippy::new_without_default, reason = "making a folder is an effect")]
    pub fn new() -> Self {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("monosplit-{}-{serial}", std::process::id()));
        // What a killed test of the same process number has left is in the way.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        ScratchFolder(path)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder, whether it exists or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and gives its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The names of what is in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_differ_and_are_deleted_with_what_is_in_them() {
        let (first, second) = (ScratchFolder::new(), ScratchFolder::new());
        assert_ne!(first.root(), second.root());
        first.write("b", "2");
        first.write("a", "1");
        assert_eq!(first.names(), ["a", "b"]);
        assert!(second.names().is_empty());
        let path = first.root().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}

//! `.npz` files as NumPy writes them: zip archives of `.npy` files.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use zip::ZipArchive;

/// The bytes of each file of an archive, by its name.
pub type ZipEntries = BTreeMap<String, Vec<u8>>;

/// The arrays of an `.npz` file, each as the bytes of an `.npy` file, by name.
///
/// # Panics
///
/// If the file cannot be read. It is meant for files that the repository keeps; `monosplit-graph` has the reader for files
/// of unknown origin.
pub fn read_npz(path: &Path) -> ZipEntries {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = ZipArchive::new(file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let count = archive.len();
    let read = |index| {
        let mut entry = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.name().unwrap().trim_end_matches(".npy").to_owned(), bytes)
    };
    (0..count).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_array_is_an_npy_file() {
        let arrays = read_npz(&crate::vectors("mlp").join("expected.npz"));
        assert_eq!(arrays.len(), 175);
        assert!(arrays.contains_key("logits"));
        assert!(arrays.values().all(|bytes| bytes.starts_with(b"\x93NUMPY")));
    }
}

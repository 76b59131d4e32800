//! `.npz` files as NumPy writes them: zip archives of `.npy` files, stored or deflated, without the 64-bit extension.

use std::collections::BTreeMap;
use std::path::Path;

/// The bytes of each file of an archive, by its name.
pub type ZipEntries = BTreeMap<String, Vec<u8>>;

/// The arrays of an `.npz` file, each as the bytes of an `.npy` file, by name.
///
/// # Panics
///
/// If the file cannot be read. It is meant for files that the repository keeps; `monosplit-graph` has the reader for files
/// of unknown origin.
pub fn read_npz(path: &Path) -> ZipEntries {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let u16_at = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let end = (0..bytes.len() - 21).rev().find(|&i| bytes[i..i + 4] == *b"PK\x05\x06").unwrap();
    let (count, mut at) = (u16_at(end + 10), u32_at(end + 16));
    let mut entries = ZipEntries::new();
    for _ in 0..count {
        let (method, packed, local) = (u16_at(at + 10), u32_at(at + 20), u32_at(at + 42));
        let (name, extra, comment) = (u16_at(at + 28), u16_at(at + 30), u16_at(at + 32));
        let key = std::str::from_utf8(&bytes[at + 46..at + 46 + name]).unwrap().trim_end_matches(".npy");
        let start = local + 30 + u16_at(local + 26) + u16_at(local + 28);
        let data = &bytes[start..start + packed];
        let data = match method {
            0 => data.to_vec(),
            8 => miniz_oxide::inflate::decompress_to_vec(data).unwrap(),
            other => panic!("{}: compression method {other}", path.display()),
        };
        entries.insert(key.to_owned(), data);
        at += 46 + name + extra + comment;
    }
    entries
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

//! The two containers of `torch.save`: a zip archive since PyTorch 1.6, and before that five pickles in a row
//! followed by raw storages.

use std::collections::HashMap;
use std::sync::Arc;

use super::checkpoint::{StorageReference, Storages, tensors};
use super::pickle::{Pickle, PickleValue};
use crate::archive::{Archive, EntryContent, is_archive};
use crate::element::ByteOrder;
use crate::{Error, FileBytes, Result, Tensor, shown};

/// The number a file from before PyTorch 1.6 starts with, `0x1950a86a20f9469cfc6c`.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const PROTOCOL: i64 = 1001;

/// Whether `bytes` start like a pickle.
pub(super) fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// The tensors of a file written by `torch.save`.
pub(super) fn read(bytes: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Vec<(String, Tensor)>> {
    if is_archive(bytes) { read_archive(bytes, file) } else { read_legacy(bytes, file) }
}

fn read_archive(bytes: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Vec<(String, Tensor)>> {
    let archive = Archive::read(bytes)?;
    let folders = archive.names().filter_map(|name| name.strip_suffix("data.pkl"));
    let folders = folders.filter(|folder| folder.is_empty() || folder.ends_with('/'));
    let folder = folders.min_by_key(|folder| (folder.len(), *folder));
    let folder = folder.ok_or_else(|| {
        Error::unsupported("the zip file has no 'data.pkl': it was not written by torch.save")
    })?;
    if archive.names().any(|name| name.strip_prefix(folder) == Some("constants.pkl")) {
        return Err(Error::unsupported(
            "the file is a TorchScript program: load it in Python and save it with \
             torch.save(model.state_dict(), …)",
        ));
    }
    let order = match stored(&archive, &format!("{folder}byteorder"))? {
        None | Some(b"little") => ByteOrder::Little,
        Some(b"big") => ByteOrder::Big,
        Some(_) => return Err(Error::malformed("the entry 'byteorder' is neither 'little' nor 'big'")),
    };
    let data = format!("{folder}data/");
    let mut by_key = HashMap::new();
    for name in archive.names() {
        if let (Some(key), Some(content)) = (name.strip_prefix(&*data), stored(&archive, name)?) {
            by_key.insert(key, content);
        }
    }
    let pickle = stored(&archive, &format!("{folder}data.pkl"))?.unwrap_or_default();
    tensors(&Pickle::read(pickle)?, Storages { by_key, order, file })
}

/// The content of an entry, if there is one; an error if it is compressed.
fn stored<'a>(archive: &Archive<'a>, name: &str) -> Result<Option<&'a [u8]>> {
    match archive.content(name)? {
        None => Ok(None),
        Some(EntryContent::Stored(bytes)) => Ok(Some(bytes)),
        Some(EntryContent::Compressed) => Err(Error::unsupported(format!(
            "the entry '{}' is compressed: weights are read from uncompressed zip files, as torch.save writes them",
            shown(name)
        ))),
    }
}

fn read_legacy(bytes: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Vec<(String, Tensor)>> {
    let mut rest = bytes;
    let mut next = || {
        let pickle = Pickle::read(rest)?;
        rest = &rest[pickle.length()..];
        Ok(pickle)
    };
    if next()?.root() != &PickleValue::Long(&MAGIC) {
        return Err(Error::unsupported(
            "the file is a Python pickle, but not one written by torch.save: save the weights with \
             torch.save(model.state_dict(), …)",
        ));
    }
    if next()?.root() != &PickleValue::Int(PROTOCOL) {
        return Err(Error::unsupported(format!("the file's torch.save protocol is not {PROTOCOL}")));
    }
    let _system: Pickle<'_> = next()?;
    let pickle = next()?;
    let keys = next()?;
    let by_key = legacy_storages(&pickle, &keys, rest)?;
    // Whatever machine wrote them, storages of this format are little-endian.
    tensors(&pickle, Storages { by_key, order: ByteOrder::Little, file })
}

/// The storages in `rest`: for each key its number of elements and the elements.
fn legacy_storages<'a>(
    pickle: &Pickle<'a>,
    keys: &Pickle<'a>,
    mut rest: &'a [u8],
) -> Result<HashMap<&'a str, &'a [u8]>> {
    let mut references = HashMap::new();
    for value in pickle.values() {
        if let PickleValue::Persistent(id) = value {
            let reference = StorageReference::read(pickle, *id)?;
            references.entry(reference.key).or_insert(reference);
        }
    }
    let PickleValue::List(ids) = keys.root() else {
        return Err(Error::malformed("the list of storages is missing"));
    };
    let mut storages = HashMap::new();
    for &id in ids {
        let PickleValue::Text(key) = keys.value(id) else {
            return Err(Error::malformed("a storage is not named by a text"));
        };
        let reference = references
            .get(key)
            .ok_or_else(|| Error::malformed(format!("no tensor refers to the storage '{}'", shown(key))))?;
        let truncated = || {
            Error::malformed(format!(
                "the storage '{}' is truncated: download or save the file again",
                shown(key)
            ))
        };
        let (length, after) = rest.split_first_chunk().ok_or_else(truncated)?;
        if usize::try_from(i64::from_le_bytes(*length)) != Ok(reference.length) {
            return Err(Error::malformed(format!(
                "the storage '{}' holds another number of elements than the {} it should",
                shown(key),
                reference.length
            )));
        }
        let size = reference.length.checked_mul(reference.width()).ok_or_else(truncated)?;
        let (content, after) = after.split_at_checked(size).ok_or_else(truncated)?;
        storages.insert(*key, content);
        rest = after;
    }
    Ok(storages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
        super::read(bytes, None)
    }

    fn text(text: &str) -> Vec<u8> {
        [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
    }

    /// The pickle of a call that rebuilds a vector of two from storage '7', of which `part` is meant.
    fn vector(offset: u8, part: &[u8]) -> Vec<u8> {
        let storage =
            [&text("storage")[..], b"ctorch\nFloatStorage\n", &text("7"), &text("cpu"), b"K\x04"].concat();
        [
            b"ctorch._utils\n_rebuild_tensor\n((",
            &storage[..],
            part,
            b"tQK",
            &[offset],
            b"K\x02\x85K\x01\x85tR",
        ]
        .concat()
    }

    /// A file from before PyTorch 1.6 whose one storage holds 0, 1, 2, 3.
    fn legacy(object: &[u8], length: i64) -> Vec<u8> {
        let magic = [b"\x80\x02\x8a\x0a", &MAGIC[..], b".\x80\x02M\xe9\x03.\x80\x02}."].concat();
        let keys = [b"\x80\x02](", &text("7")[..], b"e."].concat();
        let storage = [0f32, 1.0, 2.0, 3.0].map(f32::to_le_bytes).concat();
        [&magic, &b"\x80\x02"[..], object, b".", &keys, &length.to_le_bytes(), &storage].concat()
    }

    /// `{'w': value}`.
    fn dictionary(value: &[u8]) -> Vec<u8> {
        [b"}", &text("w")[..], value, b"s"].concat()
    }

    fn read_w(object: &[u8]) -> Result<Vec<f32>> {
        let tensors = read(&legacy(object, 4))?;
        assert_eq!((tensors.len(), &*tensors[0].0), (1, "w"));
        Ok(tensors[0].1.to_f32().to_vec())
    }

    #[test]
    fn a_storage_can_be_a_part_of_another() {
        assert_eq!(read_w(&dictionary(&vector(1, b"N"))).unwrap(), [1.0, 2.0]);
        let part = [b"(", &text("8")[..], b"K\x02K\x02t"].concat();
        assert_eq!(read_w(&dictionary(&vector(0, &part))).unwrap(), [2.0, 3.0]);
        assert!(read_w(&dictionary(&vector(1, &part))).is_err());
        let outside = [b"(", &text("8")[..], b"K\x03K\x02t"].concat();
        assert!(read_w(&dictionary(&vector(0, &outside))).is_err());
    }

    #[test]
    fn dictionaries_of_python_2_are_lists_of_pairs_and_their_texts_bytes() {
        let pair = [b"](U\x01w", &vector(2, b"N")[..], b"e"].concat();
        let object = [b"ccollections\nOrderedDict\n](", &pair[..], b"e\x85R"].concat();
        assert_eq!(read_w(&object).unwrap(), [2.0, 3.0]);
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        let object = [&dictionary(&vector(0, b"N"))[..], &text("w"), &vector(2, b"N"), b"s"].concat();
        assert_eq!(read_w(&object).unwrap(), [2.0, 3.0]);
    }

    #[test]
    fn storages_of_another_length_than_announced_are_refused() {
        for length in [3, 5, -1, i64::MAX, i64::MIN] {
            assert!(read(&legacy(&dictionary(&vector(0, b"N")), length)).is_err());
        }
    }

    #[test]
    fn parameters_around_parameters_end() {
        let wrapped = |times: usize| {
            let calls = b"ctorch._utils\n_rebuild_parameter\n".repeat(times);
            dictionary(&[&calls[..], &vector(0, b"N"), &b"\x85R".repeat(times)].concat())
        };
        assert_eq!(read_w(&wrapped(1)).unwrap(), [0.0, 1.0]);
        assert!(read_w(&wrapped(100_000)).is_err());
    }

    #[test]
    fn pickles_of_other_programs_are_told_apart() {
        assert!(read(b"\x80\x02}.").unwrap_err().to_string().contains("not one written by torch.save"));
        assert!(read(b"").is_err());
    }
}

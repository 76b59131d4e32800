//! The two containers of `torch.save`: a zip archive since PyTorch 1.6, and before that five pickles in a row
//! followed by raw storages.

use std::collections::HashMap;

use super::checkpoint::{StorageReference, Storages, tensors};
use super::element::ByteOrder;
use super::global::shown;
use super::pickle::{Pickle, Value};
use super::zip::Archive;
use crate::{Error, Result, Tensor};

/// The number a file from before PyTorch 1.6 starts with, `0x1950a86a20f9469cfc6c`.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const PROTOCOL: i64 = 1001;

/// Whether `bytes` start like a zip archive.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

/// Whether `bytes` start like a pickle.
pub(super) fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// The tensors of a file written by `torch.save`.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    if is_archive(bytes) { read_archive(bytes) } else { read_legacy(bytes) }
}

fn read_archive(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    let archive = Archive::read(bytes)?;
    let folder = archive.names().filter_map(|name| name.strip_suffix("data.pkl")).min_by_key(|f| f.len());
    let folder = folder.ok_or_else(|| {
        Error::unsupported("the zip file has no 'data.pkl': it was not written by torch.save")
    })?;
    if archive.names().any(|name| name.strip_prefix(folder) == Some("constants.pkl")) {
        return Err(Error::unsupported(
            "the file is a TorchScript program: load it in Python and save it with \
             torch.save(model.state_dict(), …)",
        ));
    }
    let order = match archive.get(&format!("{folder}byteorder"))? {
        None | Some(b"little") => ByteOrder::Little,
        Some(b"big") => ByteOrder::Big,
        Some(_) => return Err(Error::malformed("the entry 'byteorder' is neither 'little' nor 'big'")),
    };
    let data = format!("{folder}data/");
    let mut by_key = HashMap::new();
    for name in archive.names() {
        if let (Some(key), Some(content)) = (name.strip_prefix(&*data), archive.get(name)?) {
            by_key.insert(key, content);
        }
    }
    let pickle = archive.get(&format!("{folder}data.pkl"))?.unwrap_or_default();
    tensors(&Pickle::read(pickle)?, Storages { by_key, order })
}

fn read_legacy(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    let mut rest = bytes;
    let mut next = || {
        let pickle = Pickle::read(rest)?;
        rest = &rest[pickle.length()..];
        Ok(pickle)
    };
    if next()?.root() != &Value::Long(&MAGIC) {
        return Err(Error::unsupported(
            "the file is a Python pickle, but not one written by torch.save: save the weights with \
             torch.save(model.state_dict(), …)",
        ));
    }
    if next()?.root() != &Value::Int(PROTOCOL) {
        return Err(Error::unsupported(format!("the file's torch.save protocol is not {PROTOCOL}")));
    }
    let _system: Pickle<'_> = next()?;
    let pickle = next()?;
    let keys = next()?;
    let by_key = legacy_storages(&pickle, &keys, rest)?;
    // Whatever machine wrote them, storages of this format are little-endian.
    tensors(&pickle, Storages { by_key, order: ByteOrder::Little })
}

/// The storages in `rest`: for each key its number of elements and the elements.
fn legacy_storages<'a>(
    pickle: &Pickle<'a>,
    keys: &Pickle<'a>,
    mut rest: &'a [u8],
) -> Result<HashMap<&'a str, &'a [u8]>> {
    let mut references = HashMap::new();
    for value in pickle.values() {
        if let Value::Persistent(id) = value {
            let reference = StorageReference::read(pickle, *id)?;
            references.entry(reference.key).or_insert(reference);
        }
    }
    let Value::List(ids) = keys.root() else {
        return Err(Error::malformed("the list of storages is missing"));
    };
    let mut storages = HashMap::new();
    for &id in ids {
        let Value::Text(key) = keys.value(id) else {
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

//! The directory of a zip file whose entries are stored uncompressed, as `torch.save` writes them. Entries
//! are borrowed from the file, so no entry can be larger than what was read.

use std::collections::HashMap;

use super::global::shown;
use crate::{Error, Result};

const LOCAL_ENTRY: u32 = 0x0403_4b50;
const DIRECTORY_ENTRY: u32 = 0x0201_4b50;
const DIRECTORY_END: u32 = 0x0605_4b50;
const DIRECTORY_END_64: u32 = 0x0606_4b50;
const DIRECTORY_LOCATOR_64: u32 = 0x0706_4b50;
const DIRECTORY_END_LENGTH: usize = 22;
const LOCATOR_LENGTH: usize = 20;
const DIRECTORY_ENTRY_LENGTH: usize = 46;
const LOCAL_ENTRY_LENGTH: usize = 30;
const SIZES_64: u16 = 1;

/// The entries of a zip file by name.
///
/// Checksums are not compared: `torch.save` can be told not to compute them.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    entries: HashMap<&'a str, DirectoryEntry<'a>>,
}

impl<'a> Archive<'a> {
    /// Reads the directory at the end of `bytes`.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self> {
        let (offset, count) = directory(bytes)?;
        let mut entries = HashMap::new();
        let mut at = offset;
        for _ in 0..count {
            let entry = DirectoryEntry::read(bytes, at)?;
            at = entry.end;
            if let Some(twin) = entries.insert(entry.name, entry) {
                return Err(corrupt(&format!("names '{}' twice", shown(twin.name))));
            }
        }
        Ok(Archive { bytes, entries })
    }

    /// The content of the entry called `name`, if there is one; an error if it is not simply stored.
    pub(super) fn get(&self, name: &str) -> Result<Option<&'a [u8]>> {
        self.entries.get(name).map(|entry| entry.content(self.bytes)).transpose()
    }

    /// The names of all entries, in no particular order.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.entries.keys().copied()
    }
}

#[derive(Debug)]
struct DirectoryEntry<'a> {
    name: &'a str,
    flags: u16,
    method: u16,
    size: usize,
    compressed: usize,
    header: usize,
    end: usize,
}

impl<'a> DirectoryEntry<'a> {
    fn read(bytes: &'a [u8], at: usize) -> Result<Self> {
        if u32_at(bytes, at)? != DIRECTORY_ENTRY {
            return Err(corrupt("has an entry without its signature"));
        }
        let field = |offset| u16_at(bytes, at + offset);
        let (flags, method) = (field(8)?, field(10)?);
        let (compressed, size) = (u32_at(bytes, at + 20)?, u32_at(bytes, at + 24)?);
        let (name_length, extra_length) = (usize::from(field(28)?), usize::from(field(30)?));
        let comment_length = usize::from(field(32)?);
        let header = u32_at(bytes, at + 42)?;

        let name_at = at + DIRECTORY_ENTRY_LENGTH;
        let name = std::str::from_utf8(slice(bytes, name_at, name_length)?)
            .map_err(|_| corrupt("has an entry whose name is not UTF-8"))?;
        let extra = slice(bytes, name_at + name_length, extra_length)?;
        let [size, compressed, header] = widen([size, compressed, header], extra)?;
        let end = name_at + name_length + extra_length + comment_length;
        Ok(DirectoryEntry { name, flags, method, size, compressed, header, end })
    }

    fn content(&self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let name = shown(self.name);
        if self.flags & 1 != 0 {
            return Err(Error::unsupported(format!(
                "the entry '{name}' is encrypted: save the file without a password"
            )));
        }
        if self.method != 0 {
            return Err(Error::unsupported(format!(
                "the entry '{name}' is compressed: weights are read from uncompressed zip files, as torch.save \
                 writes them"
            )));
        }
        if self.size != self.compressed {
            return Err(corrupt(&format!("gives '{name}', which is stored, two different sizes")));
        }
        if u32_at(bytes, self.header)? != LOCAL_ENTRY {
            return Err(corrupt(&format!("points to no entry at '{name}'")));
        }
        // The lengths fit 16 bits and the header lies inside of the file, so this sum cannot overflow.
        let name_length = usize::from(u16_at(bytes, self.header + 26)?);
        let extra_length = usize::from(u16_at(bytes, self.header + 28)?);
        slice(bytes, self.header + LOCAL_ENTRY_LENGTH + name_length + extra_length, self.size)
    }
}

/// Where the directory starts and how many entries it has.
fn directory(bytes: &[u8]) -> Result<(usize, u64)> {
    let longest_tail = DIRECTORY_END_LENGTH + usize::from(u16::MAX);
    let first = bytes.len().saturating_sub(longest_tail);
    let end = (first..=bytes.len().saturating_sub(DIRECTORY_END_LENGTH)).rev().find(|&at| {
        u32_at(bytes, at) == Ok(DIRECTORY_END)
            && u16_at(bytes, at + 20)
                .is_ok_and(|comment| at + DIRECTORY_END_LENGTH + usize::from(comment) == bytes.len())
    });
    let end =
        end.ok_or_else(|| Error::malformed("the zip file has no directory at its end: it is truncated"))?;
    let (count, offset) = (u16_at(bytes, end + 10)?, u32_at(bytes, end + 16)?);
    let size = u32_at(bytes, end + 12)?;
    if count != u16::MAX && offset != u32::MAX && size != u32::MAX {
        return Ok((position(offset.into())?, count.into()));
    }
    let locator = end.checked_sub(LOCATOR_LENGTH).ok_or_else(|| corrupt("lacks its 64-bit part"))?;
    if u32_at(bytes, locator)? != DIRECTORY_LOCATOR_64 {
        return Err(corrupt("lacks its 64-bit part"));
    }
    let wide = position(u64_at(bytes, locator + 8)?)?;
    if u32_at(bytes, wide)? != DIRECTORY_END_64 {
        return Err(corrupt("has its 64-bit part elsewhere than it says"));
    }
    Ok((position(u64_at(bytes, wide + 48)?)?, u64_at(bytes, wide + 32)?))
}

/// Replaces the fields that are too large for 32 bits by those of the zip64 extra field, which lists just
/// them, in this order.
fn widen(fields: [u32; 3], extra: &[u8]) -> Result<[usize; 3]> {
    let mut wide: &[u8] = &[];
    let mut at = 0;
    while at + 4 <= extra.len() {
        let length = usize::from(u16_at(extra, at + 2)?);
        if u16_at(extra, at)? == SIZES_64 {
            wide = slice(extra, at + 4, length)?;
            break;
        }
        at += 4 + length;
    }
    let mut read = 0;
    let mut widened = [0; 3];
    for (to, field) in widened.iter_mut().zip(fields) {
        *to = if field == u32::MAX {
            read += 8;
            position(u64_at(wide, read - 8)?)?
        } else {
            position(field.into())?
        };
    }
    Ok(widened)
}

fn position(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| corrupt("points outside of the file"))
}

fn slice(bytes: &[u8], at: usize, length: usize) -> Result<&[u8]> {
    let end = at.checked_add(length);
    end.and_then(|end| bytes.get(at..end)).ok_or_else(|| corrupt("points outside of the file"))
}

fn array<const LENGTH: usize>(bytes: &[u8], at: usize) -> Result<[u8; LENGTH]> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or_else(|| corrupt("points outside of the file"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the zip directory {what}: the file is truncated or corrupt"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn put(bytes: &mut Vec<u8>, shorts: &[u16]) {
        bytes.extend(shorts.iter().flat_map(|short| short.to_le_bytes()));
    }

    /// A zip file with one entry, its directory 64 bits wide where asked.
    fn zip(name: &str, content: &[u8], method: u16, flags: u16, wide: bool) -> Vec<u8> {
        let mut bytes = LOCAL_ENTRY.to_le_bytes().to_vec();
        put(&mut bytes, &[20, flags, method, 0, 0, 0, 0]);
        bytes.extend([u32::MAX; 2].map(u32::to_le_bytes).concat());
        put(&mut bytes, &[name.len() as u16, 0]);
        bytes.extend(name.as_bytes());
        bytes.extend(content);

        let directory = bytes.len();
        bytes.extend(DIRECTORY_ENTRY.to_le_bytes());
        put(&mut bytes, &[20, 20, flags, method, 0, 0, 0, 0]);
        let (size, extra) = if wide { (u32::MAX, 20) } else { (content.len() as u32, 0) };
        bytes.extend([size; 2].map(u32::to_le_bytes).concat());
        put(&mut bytes, &[name.len() as u16, extra, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(name.as_bytes());
        if wide {
            put(&mut bytes, &[SIZES_64, 16]);
            bytes.extend([content.len() as u64; 2].map(u64::to_le_bytes).concat());
        }
        let directory_size = bytes.len() - directory;
        if wide {
            let end = bytes.len() as u64;
            bytes.extend(DIRECTORY_END_64.to_le_bytes());
            bytes.extend(44u64.to_le_bytes());
            put(&mut bytes, &[45, 45, 0, 0, 0, 0]);
            bytes.extend([1, 1, directory_size as u64, directory as u64].map(u64::to_le_bytes).concat());
            bytes.extend([DIRECTORY_LOCATOR_64, 0].map(u32::to_le_bytes).concat());
            bytes.extend(end.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
        }
        bytes.extend(DIRECTORY_END.to_le_bytes());
        let count = if wide { u16::MAX } else { 1 };
        put(&mut bytes, &[0, 0, count, count]);
        let directory = if wide { u32::MAX } else { directory as u32 };
        bytes.extend([directory_size as u32, directory].map(u32::to_le_bytes).concat());
        put(&mut bytes, &[0]);
        bytes
    }

    #[test]
    fn narrow_and_wide_directories_find_the_same_content() {
        for wide in [false, true] {
            let bytes = zip("a/data.pkl", b"content", 0, 0, wide);
            let archive = Archive::read(&bytes).unwrap();
            assert_eq!(archive.get("a/data.pkl"), Ok(Some(&b"content"[..])));
            assert_eq!(archive.get("a/other"), Ok(None));
            assert_eq!(archive.names().collect::<Vec<_>>(), ["a/data.pkl"]);
        }
    }

    #[test]
    fn compressed_and_encrypted_entries_are_named() {
        for (method, flags) in [(8, 0), (0, 1)] {
            let bytes = zip("a/data.pkl", b"content", method, flags, false);
            let error = Archive::read(&bytes).unwrap().get("a/data.pkl").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("a/data.pkl"));
        }
    }

    #[test]
    fn no_truncation_and_no_changed_byte_is_read_beyond_the_file() {
        for wide in [false, true] {
            let bytes = zip("n", b"content", 0, 0, wide);
            for length in 0..bytes.len() {
                assert!(Archive::read(&bytes[..length]).is_err());
            }
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Ok(archive) = Archive::read(&changed) {
                        let _ = archive.get("n");
                    }
                }
            }
        }
    }
}

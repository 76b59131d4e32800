//! The tags of a TIFF file, which are those of EXIF too: a directory of numbers, in either byte order, with offsets of 32
//! or (BigTIFF) 64 bits.

use std::collections::BTreeMap;

use monosplit_graph::{Error, Result};

/// Most tags of a directory.
const MAX_TAGS: u64 = 4096;

/// The first directory of a file.
pub(crate) struct Directory<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    entries: BTreeMap<u16, Entry<'a>>,
}

struct Entry<'a> {
    /// Bytes of one value, where it is an unsigned number.
    width: Option<usize>,
    values: &'a [u8],
}

/// The error of a file that is not what its tags say.
pub(crate) fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the TIFF is truncated or corrupt: {what}"))
}

impl<'a> Directory<'a> {
    /// Reads the first directory.
    pub(crate) fn first(bytes: &'a [u8]) -> Result<Self> {
        let (big_endian, version) = match *bytes {
            [b'I', b'I', low, high, ..] => (false, u16::from_le_bytes([low, high])),
            [b'M', b'M', high, low, ..] => (true, u16::from_be_bytes([high, low])),
            _ => return Err(corrupt("its header is missing")),
        };
        // Bytes of an offset, and of the number of tags.
        let (word, count) = match version {
            42 => (4, 2),
            43 => (8, 8),
            _ => return Err(corrupt("its version is unknown")),
        };
        let mut directory = Directory { bytes, big_endian, entries: BTreeMap::new() };
        let start = directory.number(word, word)?;
        let tags = directory.number(start, count)?;
        if tags > MAX_TAGS as usize {
            return Err(corrupt("it has too many tags"));
        }
        for index in 0..tags {
            let at = start.saturating_add(count).saturating_add(index * (4 + 2 * word));
            directory.read_entry(at, word)?;
        }
        Ok(directory)
    }

    fn read_entry(&mut self, at: usize, word: usize) -> Result<()> {
        let (tag, kind) = (self.number(at, 2)? as u16, self.number(at.saturating_add(2), 2)?);
        let values = self.number(at.saturating_add(4), word)?;
        let (size, is_unsigned) = match kind {
            1 => (1, true),
            3 => (2, true),
            4 | 13 => (4, true),
            16 | 18 => (8, true),
            2 | 6 | 7 => (1, false),
            8 => (2, false),
            9 | 11 => (4, false),
            5 | 10 | 12 | 17 => (8, false),
            _ => return Ok(()),
        };
        let length = values.checked_mul(size).ok_or_else(|| corrupt("a tag is too long"))?;
        let inline = at.saturating_add(4 + word);
        let start = if length <= word { inline } else { self.number(inline, word)? };
        // A tag that points outside is left out, as long as nothing asks for it.
        if let Some(values) = self.bytes.get(start..).and_then(|rest| rest.get(..length)) {
            self.entries.entry(tag).or_insert(Entry { width: is_unsigned.then_some(size), values });
        }
        Ok(())
    }

    /// Whether numbers begin with their high byte.
    pub(crate) fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// The first `most` values of a tag of unsigned numbers; `None` where the tag is absent.
    pub(crate) fn unsigned(&self, tag: u16, most: usize) -> Result<Option<Vec<u64>>> {
        let Some(entry) = self.entries.get(&tag) else { return Ok(None) };
        let width = entry.width.ok_or_else(|| corrupt(&format!("tag {tag} does not hold whole numbers")))?;
        Ok(Some(entry.values.chunks_exact(width).take(most).map(|value| self.decoded(value)).collect()))
    }

    fn number(&self, at: usize, width: usize) -> Result<usize> {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.get(..width));
        let value = self.decoded(bytes.ok_or_else(|| corrupt("it ends too early"))?);
        usize::try_from(value).map_err(|_| corrupt("an offset lies outside the file"))
    }

    fn decoded(&self, bytes: &[u8]) -> u64 {
        let add = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }
}

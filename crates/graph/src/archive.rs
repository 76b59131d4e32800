//! Zip archives, as `torch.save` and `numpy.savez` write them. Stored entries are borrowed from the file, so none of them is
//! larger than what was read; compressed ones are unpacked as far as their reader asks.

use std::io::{Cursor, Read};

use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::{Error, Result, shown};

/// The entries of a zip file.
#[derive(Clone)]
pub(crate) struct Archive<'a> {
    bytes: &'a [u8],
    zip: ZipArchive<Cursor<&'a [u8]>>,
    names: Vec<String>,
}

/// How an entry lies in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EntryContent<'a> {
    Stored(&'a [u8]),
    Compressed,
}

/// Whether `bytes` start like a zip archive.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

impl<'a> Archive<'a> {
    /// Reads the directory at the end of `bytes`.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self> {
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let zip = ZipArchive::with_config(config, Cursor::new(bytes)).map_err(|error| match error {
            ZipError::UnsupportedArchive(what) => Error::unsupported(format!("the zip file: {what}")),
            error => corrupt(&format!("cannot be read ({error})")),
        })?;
        if zip.has_duplicate_names() {
            return Err(corrupt("names an entry twice"));
        }
        let names = zip.file_names_raw().map(|name| std::str::from_utf8(name).map(str::to_owned));
        let names = names.collect::<Result<Vec<String>, _>>();
        let names = names.map_err(|_| corrupt("has an entry whose name is not UTF-8"))?;
        Ok(Archive { bytes, zip, names })
    }

    /// The names of all entries, in the order of the directory.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Where the entry called `name` lies, if there is one. Its checksum is not compared: `torch.save` can be told not to
    /// compute it.
    pub(crate) fn content(&self, name: &str) -> Result<Option<EntryContent<'a>>> {
        let Some(index) = self.zip.index_for_name_raw(name.as_bytes()) else { return Ok(None) };
        // The copy shares the directory, and has a position in the file of its own.
        let mut zip = self.zip.clone();
        let entry = zip.by_index_raw(index).map_err(|error| unreadable(name, &error))?;
        if entry.encrypted() {
            return Err(Error::unsupported(format!(
                "the entry '{}' is encrypted: save the file without a password",
                shown(name)
            )));
        }
        match entry.compression() {
            CompressionMethod::Stored => {}
            CompressionMethod::Deflated => return Ok(Some(EntryContent::Compressed)),
            other => {
                return Err(Error::unsupported(format!(
                    "the entry '{}' is compressed by '{other}': only stored and deflated entries are read",
                    shown(name)
                )));
            }
        }
        if entry.size() != entry.compressed_size() {
            return Err(corrupt(&format!("gives '{}', which is stored, two different sizes", shown(name))));
        }
        let start = entry.data_start().and_then(|start| usize::try_from(start).ok());
        let size = usize::try_from(entry.size()).ok();
        let range = start.zip(size).and_then(|(start, size)| Some(start..start.checked_add(size)?));
        let stored = range.and_then(|range| self.bytes.get(range));
        stored
            .map(|bytes| Some(EntryContent::Stored(bytes)))
            .ok_or_else(|| corrupt("points outside of the file"))
    }

    /// A reader of the entry called `name`, if there is one, that unpacks it and compares its checksum at the end.
    pub(crate) fn unpack(&mut self, name: &str) -> Result<Option<impl Read>> {
        let Some(index) = self.zip.index_for_name_raw(name.as_bytes()) else { return Ok(None) };
        self.zip.by_index(index).map(Some).map_err(|error| unreadable(name, &error))
    }
}

fn unreadable(name: &str, error: &ZipError) -> Error {
    let said = format!("the entry '{}' of the zip file cannot be read: {error}", shown(name));
    match error {
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) => {
            Error::unsupported(said)
        }
        _ => Error::malformed(said),
    }
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the zip directory {what}: the file is truncated or corrupt"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use std::io::Write;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    /// A zip file with one entry, its sizes 64 bits wide where asked.
    fn zip(name: &str, content: &[u8], method: CompressionMethod, wide: bool) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method).large_file(wide);
        writer.start_file(name, options).unwrap();
        writer.write_all(content).unwrap();
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn narrow_and_wide_directories_find_the_same_content() {
        for wide in [false, true] {
            let bytes = zip("a/data.pkl", b"content", CompressionMethod::Stored, wide);
            let archive = Archive::read(&bytes).unwrap();
            assert_eq!(archive.content("a/data.pkl"), Ok(Some(EntryContent::Stored(&b"content"[..]))));
            assert_eq!(archive.content("a/other"), Ok(None));
            assert_eq!(archive.names().collect::<Vec<_>>(), ["a/data.pkl"]);
        }
    }

    #[test]
    fn compressed_entries_are_unpacked_and_their_checksum_is_compared() {
        let text = b"again and again and again and again";
        let bytes = zip("a", text, CompressionMethod::Deflated, false);
        let mut archive = Archive::read(&bytes).unwrap();
        assert_eq!(archive.content("a"), Ok(Some(EntryContent::Compressed)));
        let mut unpacked = Vec::new();
        archive.unpack("a").unwrap().unwrap().read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
        let mut damaged = zip("a", text, CompressionMethod::Stored, false);
        let place = damaged.windows(text.len()).position(|window| window == text).unwrap();
        damaged[place] ^= 1;
        let mut archive = Archive::read(&damaged).unwrap();
        assert!(archive.unpack("a").unwrap().unwrap().read_to_end(&mut Vec::new()).is_err());
    }

    #[test]
    fn encrypted_entries_and_other_methods_are_named() {
        let mut bytes = zip("a/data.pkl", b"content", CompressionMethod::Stored, false);
        let directory = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        bytes[directory + 8] |= 1;
        let error = Archive::read(&bytes).unwrap().content("a/data.pkl").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("a/data.pkl"), "{error}");
        bytes[directory + 8] &= !1;
        // Twelve is bzip2.
        bytes[directory + 10] = 12;
        let error = Archive::read(&bytes).unwrap().content("a/data.pkl").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("a/data.pkl"), "{error}");
    }

    #[test]
    fn no_truncation_and_no_changed_byte_is_read_beyond_the_file() {
        for wide in [false, true] {
            let bytes = zip("n", b"content", CompressionMethod::Stored, wide);
            for length in 0..bytes.len() {
                assert!(Archive::read(&bytes[..length]).is_err());
            }
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Ok(mut archive) = Archive::read(&changed) {
                        let _ = archive.content("n");
                        if let Ok(Some(mut reader)) = archive.unpack("n") {
                            let _ = reader.read_to_end(&mut Vec::new());
                        }
                    }
                }
            }
        }
    }
}

//! NumPy's `.npz` files: zip archives of `.npy` files, stored (`savez`) or compressed (`savez_compressed`). An array is
//! unpacked only after its header has said how large it is.

use std::io::{Read, sink};

use crate::archive::{Archive, EntryContent, is_archive};
use crate::{Error, Result, Tensor, npy, shown};

/// How many bytes an array may take, unpacked or in memory, that is compressed in the file. Zeros take a thousandth of
/// their size, so that the size of a file says nothing.
pub const MAX_UNPACKED: usize = 1 << 30;

/// How many arrays a message lists.
const LISTED: usize = 16;

/// The arrays of a `.npz` file.
///
/// ```no_run
/// use monosplit_graph::npz::Arrays;
///
/// let bytes = std::fs::read("batch.npz").unwrap();
/// let images = Arrays::open(&bytes)?.read("images")?;
/// # Ok::<(), monosplit_graph::Error>(())
/// ```
pub struct Arrays<'a> {
    archive: Archive<'a>,
}

/// Whether `bytes` start like a `.npz` file, or any other zip archive.
pub fn is_npz(bytes: &[u8]) -> bool {
    is_archive(bytes)
}

impl<'a> Arrays<'a> {
    /// Reads the directory of a file.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let arrays = Arrays { archive: Archive::read(bytes)? };
        if arrays.names().next().is_none() {
            return Err(Error::malformed(
                "the zip archive holds no .npy arrays: write it with numpy.savez or numpy.savez_compressed",
            ));
        }
        Ok(arrays)
    }

    /// The names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archive.names().filter_map(|name| name.strip_suffix(".npy"))
    }

    /// The array of this name.
    pub fn read(&mut self, name: &str) -> Result<Tensor> {
        let array = self.read_entry(&format!("{name}.npy"));
        array.map_err(|error| error.context(format!("array '{}'", shown(name))))
    }

    /// The only array, or of several the one whose name is among `wanted`.
    pub fn choose(&mut self, wanted: &[&str]) -> Result<Tensor> {
        let names: Vec<&str> = self.names().collect();
        let found: Vec<&str> = match &names[..] {
            [only] => vec![only],
            several => several.iter().copied().filter(|name| wanted.contains(name)).collect(),
        };
        match &found[..] {
            [name] => {
                let name = (*name).to_owned();
                self.read(&name)
            }
            _ => Err(ambiguous(&names, wanted)),
        }
    }

    fn read_entry(&mut self, entry: &str) -> Result<Tensor> {
        let absent = || Error::argument(format!("there is no entry '{}' in the archive", shown(entry)));
        let corrupt = |error: std::io::Error| Error::malformed(format!("{error}: the file is corrupt"));
        let content = self.archive.content(entry)?.ok_or_else(absent)?;
        let mut packed = self.archive.unpack(entry)?.ok_or_else(absent)?;
        if let EntryContent::Stored(bytes) = content {
            // Read once for its checksum, which NumPy compares too.
            std::io::copy(&mut packed, &mut sink()).map_err(corrupt)?;
            return npy::read(bytes);
        }
        let mut bytes = Vec::new();
        packed.by_ref().take(npy::MAX_PREAMBLE as u64).read_to_end(&mut bytes).map_err(corrupt)?;
        let promised = npy::promised(&bytes)?;
        if promised.file.max(promised.memory) > MAX_UNPACKED {
            return Err(Error::unsupported(format!(
                "it unpacks to more than the {} MiB that are read of a compressed array: save it with \
                 numpy.savez, or in parts",
                MAX_UNPACKED >> 20
            )));
        }
        // One byte more than promised, so that the end is seen and the checksum compared.
        let rest = (promised.file + 1).saturating_sub(bytes.len());
        bytes.try_reserve_exact(rest).map_err(|_| Error::unsupported("there is no memory to unpack it"))?;
        packed.take(rest as u64).read_to_end(&mut bytes).map_err(corrupt)?;
        npy::read(&bytes)
    }
}

fn ambiguous(names: &[&str], wanted: &[&str]) -> Error {
    let quoted = |names: &[&str]| {
        let listed: Vec<String> =
            names.iter().take(LISTED).map(|name| format!("'{}'", shown(name))).collect();
        let more = if names.len() > LISTED { ", …" } else { "" };
        format!("{}{more}", listed.join(", "))
    };
    let expected = match wanted {
        [] => "expected one array".to_owned(),
        wanted => format!("expected one array, or one called {}", quoted(wanted)),
    };
    Error::argument(format!("{expected}; the file holds {}", quoted(names)))
}

//! The idx format of MNIST and Fashion-MNIST, plain or gzipped: a magic number, the lengths of the axes, the bytes.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use monosplit_graph::{Error, Result, open_regular};

/// The largest file that is unpacked.
const MAX_BYTES: usize = 1 << 30;

/// An array of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxArray {
    /// Lengths of the axes, one to three of them.
    pub lengths: Vec<usize>,
    /// The elements, row by row: as many as the product of the lengths.
    pub bytes: Vec<u8>,
}

impl IdxArray {
    /// The file of that name in `folder`, plain or with an ending `.gz`, with a dash or a dot before `idx`.
    pub fn find(folder: &Path, name: &str) -> Option<PathBuf> {
        let dotted = name.replacen("-idx", ".idx", 1);
        let names = [name.to_owned(), format!("{name}.gz"), dotted.clone(), format!("{dotted}.gz")];
        names.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
    }

    /// Reads the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let read = open_regular(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
        let about = |error: Error| error.context(path.display());
        if read.map_err(|cause| Error::io(path, cause))? > MAX_BYTES {
            let limit = MAX_BYTES >> 20;
            return Err(about(Error::malformed(format!(
                "the file is longer than {limit} MiB; use fewer pictures"
            ))));
        }
        IdxArray::read(&bytes).map_err(about)
    }

    /// Reads an idx file, unpacking it first if it is gzipped.
    pub fn read(file: &[u8]) -> Result<Self> {
        if file.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            let mut reader = MultiGzDecoder::new(file).take(MAX_BYTES as u64 + 1);
            reader.read_to_end(&mut unpacked).map_err(|cause| {
                Error::malformed(format!("the gzipped file cannot be unpacked ({cause}); fetch it again"))
                    .caused_by(cause)
            })?;
            if unpacked.len() > MAX_BYTES {
                return Err(Error::malformed(format!(
                    "the file unpacks to more than {} MiB; use fewer pictures",
                    MAX_BYTES >> 20
                )));
            }
            return IdxArray::parse(&unpacked);
        }
        IdxArray::parse(file)
    }

    fn parse(file: &[u8]) -> Result<Self> {
        let &[0, 0, element, rank, ref rest @ ..] = file else {
            return Err(Error::malformed("expected an idx file, which begins with two bytes of zero"));
        };
        if element != 0x08 {
            return Err(Error::unsupported(format!(
                "the idx file holds elements of type {element:#04x}; only bytes (0x08) are read"
            )));
        }
        if !(1..=3).contains(&rank) {
            return Err(Error::malformed(format!("expected an idx file of 1 or 3 axes, found {rank}")));
        }
        let (lengths, bytes) = rest
            .split_at_checked(4 * usize::from(rank))
            .ok_or_else(|| Error::malformed("the idx file ends within its header"))?;
        let (words, _) = lengths.as_chunks::<4>();
        let lengths: Vec<usize> = words.iter().map(|&word| u32::from_be_bytes(word) as usize).collect();
        let count = lengths.iter().try_fold(1usize, |n, &length| n.checked_mul(length));
        if count != Some(bytes.len()) {
            return Err(Error::malformed(format!(
                "the idx file says it holds {lengths:?} bytes, found {}: it is truncated or corrupt",
                bytes.len()
            )));
        }
        Ok(IdxArray { lengths, bytes: bytes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(element: u8, lengths: &[u32], bytes: &[u8]) -> Vec<u8> {
        let mut file = vec![0, 0, element, lengths.len() as u8];
        lengths.iter().for_each(|length| file.extend(length.to_be_bytes()));
        [&file, bytes].concat()
    }

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_gzipped_files_hold_the_same() {
        let plain = file(8, &[2, 2, 1], &[1, 2, 3, 4]);
        let expected = IdxArray { lengths: vec![2, 2, 1], bytes: vec![1, 2, 3, 4] };
        assert_eq!(IdxArray::read(&plain).unwrap(), expected);
        assert_eq!(IdxArray::read(&gzipped(&plain)).unwrap(), expected);
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(IdxArray::read(&[]).is_err());
    }

    #[test]
    fn a_wrong_magic_number_is_refused() {
        assert!(IdxArray::read(&[1, 0, 8, 1, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn elements_that_are_no_bytes_are_refused() {
        assert!(IdxArray::read(&file(0x0d, &[1], &[0; 4])).unwrap_err().to_string().contains("0x0d"));
    }

    #[test]
    fn too_many_axes_are_refused() {
        assert!(IdxArray::read(&file(8, &[1; 4], &[0])).is_err());
        assert!(IdxArray::read(&[0, 0, 8, 255]).is_err());
        assert!(IdxArray::read(&[0, 0, 8, 0]).is_err());
    }

    #[test]
    fn a_header_that_ends_early_is_refused() {
        assert!(IdxArray::read(&[0, 0, 8, 3, 0, 0, 0, 1]).is_err());
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        assert!(IdxArray::read(&file(8, &[u32::MAX; 3], &[0])).is_err());
        assert!(IdxArray::read(&file(8, &[u32::MAX, u32::MAX, 0], &[0])).is_err());
    }

    #[test]
    fn truncated_and_overlong_bytes_are_refused() {
        assert!(IdxArray::read(&file(8, &[3], &[0; 2])).is_err());
        assert!(IdxArray::read(&file(8, &[3], &[0; 4])).is_err());
    }

    #[test]
    fn a_truncated_or_corrupt_gzip_is_refused() {
        let whole = gzipped(&file(8, &[3000], &[7; 3000]));
        for length in 2..whole.len() {
            assert!(IdxArray::read(&whole[..length]).is_err(), "{length} of {}", whole.len());
        }
        let mut corrupt = whole.clone();
        let last = corrupt.len() - 6;
        corrupt[last] ^= 1;
        assert!(IdxArray::read(&corrupt).is_err());
    }
}

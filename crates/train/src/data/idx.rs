//! The idx format of MNIST and Fashion-MNIST, plain or gzipped: a magic number, the lengths of the axes, the bytes.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use monosplit_graph::{Error, Result};

use super::{Data, Samples};

/// The largest file that is unpacked.
const MAX_BYTES: usize = 1 << 30;
/// More classes than this are a sign of a file of something else.
const MAX_CLASSES: u32 = 1000;

/// The digits and clothes come in files of these names, with an ending `.gz` or none, a dot or a dash before `idx`.
const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// Reads the idx files of a folder; `None` if there are none.
pub(super) fn open(folder: &Path) -> Result<Option<Data>> {
    let find = |name: &str| {
        let dotted = name.replacen("-idx", ".idx", 1);
        let names = [name.to_owned(), format!("{name}.gz"), dotted.clone(), format!("{dotted}.gz")];
        names.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
    };
    let found: Vec<_> = FILES.iter().map(|name| find(name)).collect();
    if found.iter().all(Option::is_none) {
        return Ok(None);
    }
    let missing = FILES.iter().zip(&found).find(|(_, path)| path.is_none());
    if let Some((name, _)) = missing {
        return Err(Error::argument(format!(
            "{}: there are idx files but no '{name}', plain or with .gz",
            folder.display()
        )));
    }
    let mut arrays = Vec::new();
    for path in found.iter().flatten() {
        let bytes = std::fs::read(path).map_err(|cause| Error::io(path, &cause))?;
        let array = Array::read(&bytes);
        arrays.push(array.map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?);
    }
    let mut arrays = arrays.into_iter();
    let mut samples = || -> Result<Samples> {
        match (arrays.next(), arrays.next()) {
            (Some(images), Some(labels)) => join(images, labels),
            _ => Err(Error::argument("an idx file is missing")),
        }
    };
    let (train, test) = (samples()?, samples()?);
    if train.shape() != test.shape() || train.is_empty() || test.is_empty() {
        return Err(Error::malformed("the pictures to train on and those to test on are not of one size"));
    }
    let largest = train.labels().iter().chain(test.labels()).copied().max().unwrap_or(0);
    let classes = (0..=largest).map(|class| class.to_string()).collect();
    Ok(Some(Data { train, test, classes }))
}

/// An array of bytes.
#[derive(Debug, PartialEq)]
struct Array {
    lengths: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    /// Reads an idx file, unpacking it first if it is gzipped.
    fn read(file: &[u8]) -> Result<Self> {
        if file.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            let mut reader = MultiGzDecoder::new(file).take(MAX_BYTES as u64 + 1);
            reader.read_to_end(&mut unpacked).map_err(|cause| {
                Error::malformed(format!("the gzipped file cannot be unpacked ({cause}); fetch it again"))
            })?;
            if unpacked.len() > MAX_BYTES {
                return Err(Error::malformed(format!(
                    "the file unpacks to more than {} MiB",
                    MAX_BYTES >> 20
                )));
            }
            return Array::parse(&unpacked);
        }
        Array::parse(file)
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
        Ok(Array { lengths, bytes: bytes.to_vec() })
    }
}

fn join(images: Array, labels: Array) -> Result<Samples> {
    let (&[count, height, width], &[labelled]) = (images.lengths.as_slice(), labels.lengths.as_slice())
    else {
        return Err(Error::malformed("expected pictures in a file of 3 axes and labels in one of 1 axis"));
    };
    if count != labelled {
        return Err(Error::malformed(format!("there are {count} pictures and {labelled} labels")));
    }
    let labels: Vec<u32> = labels.bytes.into_iter().map(u32::from).collect();
    if labels.iter().any(|&label| label >= MAX_CLASSES) {
        return Err(Error::malformed(format!("a label is not below {MAX_CLASSES}")));
    }
    Samples::new([1, height, width], images.bytes, labels)
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
        let expected = Array { lengths: vec![2, 2, 1], bytes: vec![1, 2, 3, 4] };
        assert_eq!(Array::read(&plain).unwrap(), expected);
        assert_eq!(Array::read(&gzipped(&plain)).unwrap(), expected);
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(Array::read(&[]).is_err());
    }

    #[test]
    fn a_wrong_magic_number_is_refused() {
        assert!(Array::read(&[1, 0, 8, 1, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn elements_that_are_no_bytes_are_refused() {
        assert!(Array::read(&file(0x0d, &[1], &[0; 4])).unwrap_err().to_string().contains("0x0d"));
    }

    #[test]
    fn too_many_axes_are_refused() {
        assert!(Array::read(&file(8, &[1; 4], &[0])).is_err());
        assert!(Array::read(&[0, 0, 8, 255]).is_err());
        assert!(Array::read(&[0, 0, 8, 0]).is_err());
    }

    #[test]
    fn a_header_that_ends_early_is_refused() {
        assert!(Array::read(&[0, 0, 8, 3, 0, 0, 0, 1]).is_err());
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        assert!(Array::read(&file(8, &[u32::MAX; 3], &[0])).is_err());
        assert!(Array::read(&file(8, &[u32::MAX, u32::MAX, 0], &[0])).is_err());
    }

    #[test]
    fn truncated_and_overlong_bytes_are_refused() {
        assert!(Array::read(&file(8, &[3], &[0; 2])).is_err());
        assert!(Array::read(&file(8, &[3], &[0; 4])).is_err());
    }

    #[test]
    fn a_truncated_or_corrupt_gzip_is_refused() {
        let whole = gzipped(&file(8, &[3000], &[7; 3000]));
        for length in 2..whole.len() {
            assert!(Array::read(&whole[..length]).is_err(), "{length} of {}", whole.len());
        }
        let mut corrupt = whole.clone();
        let last = corrupt.len() - 6;
        corrupt[last] ^= 1;
        assert!(Array::read(&corrupt).is_err());
    }

    #[test]
    fn pictures_and_labels_must_fit() {
        let images = || Array { lengths: vec![2, 1, 1], bytes: vec![0, 1] };
        assert!(join(images(), Array { lengths: vec![2], bytes: vec![0, 1] }).is_ok());
        assert!(join(images(), Array { lengths: vec![3], bytes: vec![0, 1, 1] }).is_err());
        assert!(join(images(), images()).is_err());
    }
}

//! The idx files of MNIST and similar data sets: one of images, one of labels. There are no masks.

use std::path::Path;

use monosplit_graph::options::closest;
use monosplit_graph::{Error, Result};
use monosplit_image::{IdxArray, Picture};

use super::{Entry, Mask, Pixels};

const TEST: [&str; 2] = ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
const TRAIN: [&str; 2] = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"];

/// Whether a folder holds idx files.
pub(super) fn is_one(folder: &Path) -> bool {
    [TEST, TRAIN].iter().any(|names| IdxArray::find(folder, names[0]).is_some())
}

pub(super) fn entries(folder: &Path, part: Option<&str>) -> Result<Vec<Entry>> {
    let names = match part {
        None | Some("test" | "t10k") => TEST,
        Some("train") => TRAIN,
        Some(other) => {
            return Err(Error::argument(format!(
                "{}expected 'train' or 'test', the parts idx files have, found '{other}'",
                closest(other, &["train", "test"])
            )));
        }
    };
    let open = |name: &str| {
        let path = IdxArray::find(folder, name);
        let path = path.ok_or_else(|| {
            Error::argument(format!(
                "expected the file '{name}', plain or with .gz, found none in {}",
                folder.display()
            ))
        })?;
        IdxArray::open(&path)
    };
    let (images, labels) = (open(names[0])?, open(names[1])?);
    let (&[count, height, width], &[labelled]) = (images.lengths.as_slice(), labels.lengths.as_slice())
    else {
        return Err(Error::malformed("expected pictures in a file of 3 axes and labels in one of 1 axis"));
    };
    if count != labelled || height == 0 || width == 0 {
        return Err(Error::malformed(format!(
            "there are {count} pictures of {height}×{width} pixels and {labelled} labels"
        )));
    }
    let pictures = images.bytes.chunks_exact(height * width).zip(&labels.bytes);
    let entry = |(index, (bytes, &label)): (usize, (&[u8], &u8))| {
        let rgb = bytes.iter().flat_map(|&v| [v; 3]).collect();
        Ok(Entry {
            name: format!("{}[{index}]", names[0].split('-').next().unwrap_or_default()),
            pixels: Pixels::Held(Picture::new(width, height, rgb)?),
            label: Some(usize::from(label)),
            stratum: format!("{label:03}"),
            mask: Mask::Absent,
        })
    };
    pictures.enumerate().map(entry).collect()
}

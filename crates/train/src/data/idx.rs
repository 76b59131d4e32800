//! The four idx files of MNIST and Fashion-MNIST.

use std::path::Path;

use monosplit_graph::{Error, Result};
use monosplit_image::IdxArray;

use super::{Samples, TrainingData};

/// The largest number of classes accepted.
const MAX_CLASSES: u32 = 1000;

/// The names of the files, with or without `.gz`, and with a dot or a dash before `idx`.
const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// Reads the idx files of a folder; `None` if there are none.
pub(super) fn open(folder: &Path) -> Result<Option<TrainingData>> {
    let found: Vec<_> = FILES.iter().map(|name| IdxArray::find(folder, name)).collect();
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
        arrays.push(IdxArray::open(path)?);
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
    Ok(Some(TrainingData { train, test, classes }))
}

fn join(images: IdxArray, labels: IdxArray) -> Result<Samples> {
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
    use super::*;

    #[test]
    fn pictures_and_labels_must_fit() {
        let images = || IdxArray { lengths: vec![2, 1, 1], bytes: vec![0, 1] };
        assert!(join(images(), IdxArray { lengths: vec![2], bytes: vec![0, 1] }).is_ok());
        assert!(join(images(), IdxArray { lengths: vec![3], bytes: vec![0, 1, 1] }).is_err());
        assert!(join(images(), images()).is_err());
    }
}

//! Labelled images, held as bytes: the idx files of MNIST and similar data sets, and folders of images.

mod folder;
mod idx;

use std::path::Path;

use monosplit_graph::{Error, Fingerprint, Noise, Result, Tensor};

/// Labelled pictures of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Channels, height and width of a picture.
    shape: [usize; 3],
    /// Pictures one after the other, planes of bytes.
    pixels: Vec<u8>,
    labels: Vec<u32>,
}

/// The training and test samples of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingData {
    /// Training samples.
    pub train: Samples,
    /// Test samples.
    pub test: Samples,
    /// Names of the classes, in the order of their labels.
    pub classes: Vec<String>,
}

impl TrainingData {
    /// Opens a folder: idx files if it holds them, else pictures in one sub-folder per class or named in `labels.csv`.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Err(Error::argument(format!(
                "{}: expected a folder with idx files (train-images-idx3-ubyte, …) or with pictures",
                path.display()
            )));
        }
        let data = match idx::open(path)? {
            Some(data) => data,
            None => folder::open(path)?,
        };
        let (all, unseen) = (data.classes.len(), data.unseen());
        let with = all - unseen.len();
        if with < 2 {
            return Err(Error::argument(format!(
                "{}: there are samples of {with} class to train on, expected at least two",
                path.display()
            )));
        }
        if unseen.len() > with {
            return Err(Error::argument(format!(
                "{}: of {all} classes {with} have samples to train on, '{}' has none; check the labels",
                path.display(),
                unseen[0]
            )));
        }
        Ok(data)
    }

    /// The classes that have no samples to train on.
    pub fn unseen(&self) -> Vec<&str> {
        let mut seen = vec![false; self.classes.len()];
        for &label in &self.train.labels {
            if let Some(seen) = seen.get_mut(label as usize) {
                *seen = true;
            }
        }
        self.classes.iter().zip(seen).filter(|(_, seen)| !seen).map(|(class, _)| class.as_str()).collect()
    }

    /// A hash of pictures, labels and class names.
    pub fn fingerprint(&self) -> String {
        let mut all = Fingerprint::default();
        for samples in [&self.train, &self.test] {
            samples.shape.iter().for_each(|&length| all.add(&(length as u64).to_le_bytes()));
            all.add(&samples.pixels);
            samples.labels.iter().for_each(|label| all.add(&label.to_le_bytes()));
        }
        for class in &self.classes {
            all.add(class.as_bytes());
            all.add(&[0]);
        }
        format!("{} and {} samples, {:016x}", self.train.len(), self.test.len(), all.number())
    }
}

impl Samples {
    /// Labelled pictures; an error if the numbers of pixels and labels do not match.
    pub fn new(shape: [usize; 3], pixels: Vec<u8>, labels: Vec<u32>) -> Result<Self> {
        let size = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let expected = size.and_then(|size| size.checked_mul(labels.len()));
        if expected != Some(pixels.len()) || shape.contains(&0) {
            return Err(Error::argument(format!(
                "{} pictures of shape {shape:?} cannot be made of {} bytes",
                labels.len(),
                pixels.len()
            )));
        }
        Ok(Samples { shape, pixels, labels })
    }

    /// Number of pictures.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Channels, height and width.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The labels.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The bytes of one picture.
    pub fn picture(&self, index: usize) -> &[u8] {
        let size: usize = self.shape.iter().product();
        &self.pixels[index * size..(index + 1) * size]
    }

    /// Pictures as numbers from 0 to 1, `[N, channels, height, width]`.
    pub fn images(&self, indices: &[usize]) -> Result<Tensor> {
        let size: usize = self.shape.iter().product();
        let mut numbers = Vec::with_capacity(indices.len() * size);
        for &index in indices {
            numbers.extend(self.picture(index).iter().map(|&byte| f32::from(byte) / 255.0));
        }
        let [channels, height, width] = self.shape;
        Tensor::new([indices.len(), channels, height, width], numbers)
    }

    /// One-hot labels, `[N, classes]`.
    pub(crate) fn targets(&self, indices: &[usize], classes: usize) -> Result<Tensor> {
        let mut numbers = vec![0f32; indices.len() * classes];
        for (row, &index) in numbers.chunks_mut(classes).zip(indices) {
            if let Some(hit) = row.get_mut(self.labels[index] as usize) {
                *hit = 1.0;
            }
        }
        Tensor::new([indices.len(), classes], numbers)
    }

    /// A random subset of the pictures.
    pub fn subset(&self, count: usize, noise: Noise) -> Self {
        let mut chosen = noise.permutation(self.len());
        chosen.truncate(count);
        chosen.sort_unstable();
        let pixels = chosen.iter().flat_map(|&index| self.picture(index)).copied().collect();
        Samples {
            shape: self.shape,
            pixels,
            labels: chosen.iter().map(|&index| self.labels[index]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(labels: &[u32], classes: usize) -> TrainingData {
        let samples = |labels: &[u32]| {
            Samples::new([1, 1, 1], labels.iter().map(|&l| l as u8).collect(), labels.to_vec()).unwrap()
        };
        let classes = (0..classes).map(|class| class.to_string()).collect();
        TrainingData { train: samples(labels), test: samples(&[0]), classes }
    }

    #[test]
    fn classes_without_samples_are_named() {
        assert_eq!(data(&[0, 2, 2, 0], 4).unseen(), ["1", "3"]);
        assert!(data(&[0, 1], 2).unseen().is_empty());
    }

    #[test]
    fn a_fingerprint_tells_pictures_labels_and_classes_apart() {
        let one = data(&[0, 1, 1], 2);
        assert_eq!(one.fingerprint(), one.clone().fingerprint());
        let mut others = vec![data(&[0, 1, 0], 2), data(&[0, 1, 1], 3), data(&[1, 1, 0], 2)];
        let renamed = TrainingData { classes: vec!["0".into(), "one".into()], ..one.clone() };
        let mut brighter = one.clone();
        brighter.train.pixels[2] = 9;
        others.extend([renamed, brighter]);
        for other in others {
            assert_ne!(one.fingerprint(), other.fingerprint(), "{other:?}");
        }
    }
}

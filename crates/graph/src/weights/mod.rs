//! Bare weights: named tensors from `.safetensors` and PyTorch `.pth` files, by a reader that can never execute
//! anything. A `.pth` file is a Python program by design; here it is read as data, and a file that asks for
//! more than tensors, containers and numbers is refused.

mod checkpoint;
mod global;
mod pickle;
mod pth;
mod safetensors;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::archive::is_archive;
use crate::{Error, ErrorKind, FileBytes, Result, Tensor};

/// The prefix `torch.nn.DataParallel` puts before every name.
const DATA_PARALLEL: &str = "module.";

/// The most tensors a file may have. The largest networks of torchvision have about a thousand.
const MAX_TENSORS: usize = 1 << 16;

/// Named tensors in the order of their file.
///
/// ```
/// use monosplit_graph::{Tensor, weights::Weights};
///
/// let mut weights = Weights::from_iter([("fc.bias".to_owned(), Tensor::vector(vec![1f32, 2.0]))]);
/// assert_eq!(weights.get("fc.bias").unwrap().shape(), [2]);
/// let bias = weights.take("fc.bias")?;
/// assert!(weights.take("fc.weight").is_err() && weights.is_empty());
/// # Ok::<(), monosplit_graph::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Weights {
    entries: Vec<Option<(String, Tensor)>>,
    positions: HashMap<String, usize>,
    properties: Vec<(String, String)>,
}

impl Weights {
    /// Reads a weights file. Its format is recognised by its contents, not by its name. The file is mapped, and must
    /// [not change](FileBytes#the-file-must-not-change) as long as the weights live; [`Weights::from_bytes`] copies.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = FileBytes::open(path)?;
        Weights::of(&file, Some(&file)).map_err(|error| error.context(path.display()))
    }

    /// Reads weights of any format this module knows: a safetensors file, or one written by `torch.save`, of the zip
    /// format or the one before it.
    ///
    /// A PyTorch checkpoint that keeps its state dict under `state_dict`, `model_state_dict` or `model` is unwrapped;
    /// entries that are no tensors are passed over.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Weights::of(bytes, None)
    }

    /// Reads the weights in `bytes`, which may be those of a file.
    fn of(bytes: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Self> {
        if safetensors::is_safetensors(bytes) {
            let (tensors, properties) = safetensors::read(bytes, file)?;
            Ok(Weights { properties, ..Weights::from_file(tensors) })
        } else if is_archive(bytes) || pth::is_pickle(bytes) {
            let tensors = pth::read(bytes, file)?;
            if tensors.len() > MAX_TENSORS {
                return Err(Error::malformed(format!("the file has more than {MAX_TENSORS} tensors")));
            }
            Ok(Weights::from_file(tensors))
        } else {
            Err(Error::new(
                ErrorKind::Malformed,
                "expected weights in a safetensors file or one written by torch.save, found neither: the file \
                 is truncated or of another format",
            ))
        }
    }

    /// Reads a safetensors file.
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self> {
        let (tensors, properties) = safetensors::read(bytes, None)?;
        Ok(Weights { properties, ..Weights::from_file(tensors) })
    }

    /// The bytes of a safetensors file that holds the tensors, in order, and the properties.
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        safetensors::write(self.iter(), &self.properties)
    }

    /// What the file says of itself under `key` (safetensors' `__metadata__`).
    pub fn property(&self, key: &str) -> Option<&str> {
        self.properties.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Sets a property, replacing one of the same key.
    pub fn set_property(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        self.properties.retain(|(k, _)| *k != key);
        self.properties.push((key, value));
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let entry = self.entries.get(*self.positions.get(name)?)?;
        entry.as_ref().map(|(_, tensor)| tensor)
    }

    /// Removes the tensor called `name`; an error naming it if there is none.
    pub fn take(&mut self, name: &str) -> Result<Tensor> {
        let entry = self.positions.remove(name).and_then(|position| self.entries.get_mut(position)?.take());
        entry.map(|(_, tensor)| tensor).ok_or_else(|| {
            let example = self.names().next().map(|first| format!(", the first is '{first}'"));
            Error::new(
                ErrorKind::UnknownName,
                format!(
                    "expected a tensor called '{name}' among the weights; {} others are there{}",
                    self.len(),
                    example.unwrap_or_default()
                ),
            )
        })
    }

    /// The names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// The names and tensors, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().flatten().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    fn from_file(mut tensors: Vec<(String, Tensor)>) -> Self {
        if tensors.iter().all(|(name, _)| name.starts_with(DATA_PARALLEL)) {
            for (name, _) in &mut tensors {
                name.drain(..DATA_PARALLEL.len());
            }
        }
        Weights::from_iter(tensors)
    }
}

impl FromIterator<(String, Tensor)> for Weights {
    /// Of tensors with the same name the last one counts, at the place of the first.
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        let mut weights = Weights::default();
        for (name, tensor) in tensors {
            match weights.positions.get(&name) {
                Some(&position) => weights.entries[position] = Some((name, tensor)),
                None => {
                    weights.positions.insert(name.clone(), weights.entries.len());
                    weights.entries.push(Some((name, tensor)));
                }
            }
        }
        weights
    }
}

impl IntoIterator for Weights {
    type Item = (String, Tensor);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Option<(String, Tensor)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_parallel_prefixes_go_only_if_every_name_has_one() {
        let names = |names: [&str; 2]| {
            let tensors = names.map(|name| (name.to_owned(), Tensor::scalar(1f32)));
            Weights::from_file(tensors.into()).names().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names(["module.a", "module.b"]), ["a", "b"]);
        assert_eq!(names(["module.a", "b"]), ["module.a", "b"]);
    }

    #[test]
    fn taking_keeps_the_order_of_the_rest() {
        let tensors = ["c", "a", "b"].map(|name| (name.to_owned(), Tensor::scalar(1f32)));
        let mut weights = Weights::from_iter(tensors);
        weights.take("a").unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["c", "b"]);
        assert_eq!(weights.take("a").unwrap_err().kind(), ErrorKind::UnknownName);
        assert_eq!((weights.len(), weights.into_iter().count()), (2, 2));
    }

    #[test]
    fn other_files_are_not_mistaken_for_weights() {
        for bytes in
            [&b""[..], b"\x08", b"{}", b"\x89PNG\r\n\x1a\n", b"hello, this is text", b"\x93NUMPY\x01\x00"]
        {
            assert!(Weights::from_bytes(bytes).is_err());
        }
    }
}

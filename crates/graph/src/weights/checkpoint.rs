//! From the records in a pickle to tensors: finds the state dict inside of a checkpoint and reads each of its
//! tensors from the storage it refers to. What is not a tensor is passed over.

use std::collections::HashMap;
use std::sync::Arc;

use super::global::Global;
use super::pickle::{Id, Pickle, PickleValue};
use crate::element::{ByteOrder, Element, MAX_RANK, View};
use crate::{Error, FileBytes, Result, Tensor, shown};

/// Names under which training scripts keep the state dict, in the order they are tried.
const STATE_DICTS: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// Checkpoints inside of checkpoints, and parameters around tensors, are followed this deep.
const MAX_WRAPPERS: usize = 4;

/// Longest name of a tensor or a storage.
const MAX_NAME: usize = 1024;

/// How many times the bytes of its storages a checkpoint may fill with overlapping views, which share them in
/// the file but not in memory; small ones are free.
const MAX_OVERLAP: usize = 4;
const FREE_BYTES: usize = 1 << 24;

/// The raw numbers a pickle refers to.
pub(super) struct Storages<'a> {
    pub(super) by_key: HashMap<&'a str, &'a [u8]>,
    pub(super) order: ByteOrder,
    /// The file they are a part of, if they are.
    pub(super) file: Option<&'a Arc<FileBytes>>,
}

/// A storage as a pickle refers to it.
#[derive(Clone, Copy)]
pub(super) struct StorageReference<'a> {
    pub(super) key: &'a str,
    /// None for a storage of bytes, whose tensors name their type.
    pub(super) element: Option<Element>,
    /// Number of elements.
    pub(super) length: usize,
    /// First element and number of elements of the part that is meant, where it is not the whole.
    part: Option<(usize, usize)>,
}

impl<'a> StorageReference<'a> {
    /// Reads `('storage', class, key, location, length[, part])`.
    pub(super) fn read(pickle: &Pickle<'a>, id: Id) -> Result<Self> {
        let malformed = || Error::malformed("a storage is not described as torch.save describes it");
        let PickleValue::Tuple(fields) = pickle.value(id) else { return Err(malformed()) };
        let [tag, class, key, _, length, rest @ ..] = &fields[..] else { return Err(malformed()) };
        if pickle.value(*tag) != &PickleValue::Text("storage") {
            return Err(malformed());
        }
        let element = match pickle.value(*class) {
            PickleValue::Global(Global::Storage(element)) => Some(*element),
            PickleValue::Global(Global::Bytes) => None,
            _ => return Err(malformed()),
        };
        let part = match rest.first().map(|&part| pickle.value(part)) {
            None | Some(PickleValue::None) => None,
            Some(PickleValue::Tuple(part)) => match part[..] {
                [_, first, count] => Some((index(pickle, first)?, index(pickle, count)?)),
                _ => return Err(malformed()),
            },
            Some(_) => return Err(malformed()),
        };
        let key = name(pickle, *key).ok_or_else(malformed)?;
        Ok(StorageReference { key, element, length: index(pickle, *length)?, part })
    }

    /// Bytes of one element.
    pub(super) fn width(&self) -> usize {
        self.element.map_or(1, Element::width)
    }

    fn bytes(&self, storages: &Storages<'a>) -> Result<&'a [u8]> {
        let bytes = *storages
            .by_key
            .get(self.key)
            .ok_or_else(|| Error::malformed(format!("the file lacks the storage '{}'", shown(self.key))))?;
        let (first, count) = self.part.unwrap_or((0, self.length));
        let range = first.checked_mul(self.width()).zip(count.checked_mul(self.width()));
        let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
        range.and_then(|range| bytes.get(range)).ok_or_else(|| {
            Error::malformed(format!(
                "the storage '{}' should hold {} elements, but has only {} bytes: the file is truncated or corrupt",
                shown(self.key),
                self.length,
                bytes.len()
            ))
        })
    }
}

/// The tensors of the state dict in `pickle`, in its order.
pub(super) fn tensors<'a>(pickle: &Pickle<'a>, storages: Storages<'a>) -> Result<Vec<(String, Tensor)>> {
    let entries = state_dict(pickle)?;
    let mut order: Vec<(&str, Id)> = Vec::new();
    let mut position: HashMap<&str, usize> = HashMap::new();
    for &(key, value) in entries {
        if !is_tensor(pickle, value) {
            continue;
        }
        let Some(name) = name(pickle, key) else {
            return Err(Error::malformed(format!(
                "a tensor of the state dict is not named by a text of at most {MAX_NAME} bytes"
            )));
        };
        // As in Python, the last value of a key counts and its first place stays.
        let place = *position.entry(name).or_insert(order.len());
        match order.get_mut(place) {
            Some(entry) => entry.1 = value,
            None => order.push((name, value)),
        }
    }
    if order.is_empty() {
        return Err(no_tensors(pickle, entries));
    }
    let mut reader = Reader::new(pickle, storages);
    order
        .into_iter()
        .map(|(name, id)| {
            let tensor =
                reader.tensor(id).map_err(|error| error.context(format!("tensor '{}'", shown(name))))?;
            Ok((name.to_owned(), tensor))
        })
        .collect()
}

/// The entries of the innermost state dict.
fn state_dict<'p>(pickle: &'p Pickle<'_>) -> Result<&'p [(Id, Id)]> {
    let mut dictionary = pickle.root();
    for _ in 0..MAX_WRAPPERS {
        let PickleValue::Dictionary(entries) = dictionary else { break };
        let inner = STATE_DICTS.iter().find_map(|wanted| {
            entries.iter().rev().map(|&(key, value)| (pickle.value(key), pickle.value(value))).find_map(
                |(key, value)| {
                    (key == &PickleValue::Text(wanted) && matches!(value, PickleValue::Dictionary(_)))
                        .then_some(value)
                },
            )
        });
        match inner {
            Some(inner) => dictionary = inner,
            None => return Ok(entries),
        }
    }
    Err(Error::unsupported(
        "the file holds no dictionary of tensors: save it with torch.save(model.state_dict(), …)",
    ))
}

fn no_tensors(pickle: &Pickle<'_>, entries: &[(Id, Id)]) -> Error {
    const LISTED: usize = 8;
    let names: Vec<String> =
        entries.iter().filter_map(|&(key, _)| name(pickle, key)).take(LISTED).map(shown).collect();
    Error::unsupported(format!(
        "the file's dictionary holds no tensors, only [{}]; expected a state dict, or one under 'state_dict', \
         'model_state_dict' or 'model': save it with torch.save(model.state_dict(), …)",
        names.join(", ")
    ))
}

fn is_tensor(pickle: &Pickle<'_>, id: Id) -> bool {
    matches!(pickle.value(id), PickleValue::Call(..))
}

fn name<'a>(pickle: &Pickle<'a>, id: Id) -> Option<&'a str> {
    match pickle.value(id) {
        PickleValue::Text(text) if text.len() <= MAX_NAME => Some(text),
        _ => None,
    }
}

fn index(pickle: &Pickle<'_>, id: Id) -> Result<usize> {
    match pickle.value(id) {
        PickleValue::Int(number) => usize::try_from(*number).ok(),
        _ => None,
    }
    .ok_or_else(|| Error::malformed("a length, offset or stride is not a non-negative integer"))
}

fn indices(pickle: &Pickle<'_>, id: Id) -> Result<Vec<usize>> {
    match pickle.value(id) {
        PickleValue::Tuple(items) | PickleValue::List(items) if items.len() <= MAX_RANK => {
            items.iter().map(|&item| index(pickle, item)).collect()
        }
        _ => Err(Error::malformed(format!("a shape is not a tuple of at most {MAX_RANK} lengths"))),
    }
}

/// What a tensor looks at: a storage or a part of one, as which numbers, and how.
type Source<'a> = (&'a str, Option<(usize, usize)>, Element, View);

struct Reader<'p, 'a> {
    pickle: &'p Pickle<'a>,
    storages: Storages<'a>,
    /// Tensors by what they look at, so that tied weights share their elements.
    read: HashMap<Source<'a>, Tensor>,
    bytes_left: usize,
}

impl<'p, 'a> Reader<'p, 'a> {
    fn new(pickle: &'p Pickle<'a>, storages: Storages<'a>) -> Self {
        let held = storages.by_key.values().fold(0usize, |sum, storage| sum.saturating_add(storage.len()));
        let bytes_left = held.saturating_mul(MAX_OVERLAP).saturating_add(FREE_BYTES);
        Reader { pickle, storages, read: HashMap::new(), bytes_left }
    }

    fn tensor(&mut self, id: Id) -> Result<Tensor> {
        let (fields, with_type) = self.unwrapped(id)?;
        let [storage, offset, shape, strides, rest @ ..] = fields else { return Err(unusual()) };
        let PickleValue::Persistent(reference) = self.pickle.value(*storage) else { return Err(unusual()) };
        let storage = StorageReference::read(self.pickle, *reference)?;
        let element = match rest.get(2).map(|&field| self.pickle.value(field)) {
            Some(PickleValue::Global(Global::Type(element))) if with_type => *element,
            _ if with_type => return Err(unusual()),
            _ => storage.element.ok_or_else(unusual)?,
        };
        let view = View {
            offset: index(self.pickle, *offset)?,
            shape: indices(self.pickle, *shape)?,
            strides: indices(self.pickle, *strides)?,
        };
        let key = (storage.key, storage.part, element, view);
        if let Some(tensor) = self.read.get(&key) {
            return Ok(tensor.clone());
        }
        let gathered = key.3.gather(storage.bytes(&self.storages)?, element.width())?;
        self.bytes_left = self.bytes_left.checked_sub(gathered.len()).ok_or_else(|| {
            Error::malformed("too many tensors share too few storages: save contiguous() copies of them")
        })?;
        let tensor = Tensor::new(
            key.3.shape.clone(),
            element.read(&gathered, self.storages.order, self.storages.file)?,
        )?;
        self.read.insert(key, tensor.clone());
        Ok(tensor)
    }

    /// The arguments that rebuild the tensor inside of any parameters around it, and whether they end in the
    /// type of its numbers.
    fn unwrapped(&self, mut id: Id) -> Result<(&'p [Id], bool)> {
        for _ in 0..MAX_WRAPPERS {
            let PickleValue::Call(mut function, mut arguments) = *self.pickle.value(id) else {
                return Err(unusual());
            };
            if function == Global::TensorOfClass {
                (function, arguments) = self.rebuilt(arguments)?;
            }
            let PickleValue::Tuple(fields) = self.pickle.value(arguments) else { return Err(unusual()) };
            match function {
                Global::Tensor => return Ok((fields, false)),
                Global::TensorOfType => return Ok((fields, true)),
                Global::Parameter => id = *fields.first().ok_or_else(unusual)?,
                _ => return Err(unusual()),
            }
        }
        Err(unusual())
    }

    fn rebuilt(&self, arguments: Id) -> Result<(Global, Id)> {
        let PickleValue::Tuple(fields) = self.pickle.value(arguments) else { return Err(unusual()) };
        match fields[..] {
            [function, _, arguments, ..] => match self.pickle.value(function) {
                PickleValue::Global(function) => Ok((*function, arguments)),
                _ => Err(unusual()),
            },
            _ => Err(unusual()),
        }
    }
}

fn unusual() -> Error {
    Error::malformed(
        "it is not rebuilt as torch.save writes tensors: re-save it with torch.save(model.state_dict(), …)",
    )
}

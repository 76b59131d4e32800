//! The shapes of a network's inputs: as declared in the file, with what the file leaves open filled in by the
//! caller.

use super::model::{DimProto, ValueInfoProto};
use super::tensor_proto::DimensionProto;
use crate::error::{Error, ErrorKind, Hint, Result};
use crate::shape::{Dim, Shape};

/// What to decide where a file leaves something open.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    only: Option<Vec<usize>>,
    named: Vec<(String, Vec<usize>)>,
    kept: Vec<String>,
    any_samples: bool,
}

impl ImportOptions {
    /// The shape of the only input: without the batch axis (`3,224,224`), or with it to fix the batch size. Of several inputs it
    /// is that of each that leaves lengths open which it fits.
    #[must_use]
    pub fn input_shape(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.only = Some(lengths.into());
        self
    }

    /// The shape of the input of this name, as in [`ImportOptions::input_shape`].
    #[must_use]
    pub fn named_input_shape(mut self, name: impl Into<String>, lengths: impl Into<Vec<usize>>) -> Self {
        self.named.push((name.into(), lengths.into()));
        self
    }

    /// An input of this name that may be left out, because the file holds a value for it, stays an input; otherwise it is
    /// that value. A leading axis of open length is the samples.
    #[must_use]
    pub fn optional_input(mut self, name: impl Into<String>) -> Self {
        self.kept.push(name.into());
        self
    }

    /// The first axis of every input is of open length, whatever the file says: its samples.
    #[must_use]
    pub fn any_samples(mut self, any: bool) -> Self {
        self.any_samples = any;
        self
    }

    pub(crate) fn keeps(&self, name: &str) -> bool {
        self.kept.iter().any(|kept| kept == name)
    }

    pub(crate) fn check_names(&self, inputs: &[&ValueInfoProto]) -> Result<()> {
        let names = || inputs.iter().map(|i| format!("'{}'", i.name)).collect::<Vec<_>>().join(", ");
        if let Some((name, _)) = self.named.iter().find(|(name, _)| inputs.iter().all(|i| i.name != *name)) {
            return Err(Error::argument(format!("there is no input '{name}'; the inputs are {}", names())));
        }
        let fits = |info: &&ValueInfoProto| self.fitting(info, inputs.len() == 1).is_some();
        if let Some(lengths) = self.only.as_ref().filter(|_| !inputs.iter().any(fits)) {
            return Err(Error::argument(format!(
                "the shape {lengths:?} fits no input that leaves lengths open; the inputs are {}; give the shape of one by its \
                 name",
                names()
            )));
        }
        Ok(())
    }

    /// The shape that was given for all inputs, if it is that of this one.
    fn fitting(&self, info: &ValueInfoProto, is_only: bool) -> Option<&Vec<usize>> {
        let lengths = self.only.as_ref()?;
        let dims = info.tensor().and_then(|tensor| tensor.shape.as_ref()).map(|shape| &shape.dims[..]);
        let fits = |dims: &[DimensionProto]| {
            let rest = dims.get(dims.len().checked_sub(lengths.len())?..)?;
            let open = |dim: &DimensionProto| !matches!(dim.length, Some(DimProto::Value(1..)));
            let same = rest.iter().zip(lengths).all(|(dim, &length)| {
                open(dim)
                    || matches!(dim.length, Some(DimProto::Value(own)) if usize::try_from(own) == Ok(length))
            });
            Some(same && dims.len() <= lengths.len() + 1 && dims.iter().skip(1).any(open))
        };
        (is_only || dims.is_some_and(|dims| fits(dims) == Some(true))).then_some(lengths)
    }

    /// The shape of an input.
    pub(crate) fn shape_of(&self, info: &ValueInfoProto, is_only: bool) -> Result<Shape> {
        let tensor = info.tensor().ok_or_else(|| Error::unsupported("the input is not a tensor"))?;
        let named = self.named.iter().find(|(name, _)| *name == info.name).map(|(_, lengths)| lengths);
        let given = named.or(self.fitting(info, is_only));
        match (&tensor.shape, given) {
            (None, None) => {
                Err(Error::unsupported(format!("the shape of input '{}' is not in the file", info.name))
                    .hint(Hint::INPUT_SHAPE))
            }
            (None, Some(lengths)) => Ok(Shape::batched(lengths)),
            (Some(declared), given) => {
                let dims = &declared.dims;
                let resolved = resolve(&info.name, dims, given.map(Vec::as_slice));
                let shape = resolved.map_err(|error| match error.kind() {
                    ErrorKind::Unsupported => error.hint(example(dims, (!is_only).then_some(&*info.name))),
                    _ => error,
                })?;
                let any = self.any_samples && shape.rank() > 0 && !self.keeps(&info.name);
                Ok(match any {
                    true => Shape::new([&[Dim::Batch(1)], &shape.dims()[1..]].concat()),
                    false => shape,
                })
            }
        }
    }
}

fn resolve(name: &str, dims: &[DimensionProto], given: Option<&[usize]>) -> Result<Shape> {
    let mismatch = |lengths: &[usize]| {
        Error::argument(format!(
            "the shape {lengths:?} does not fit input '{name}', which has {} axes",
            dims.len()
        ))
    };
    let offset = match given {
        Some(lengths) if lengths.len() == dims.len() => 0,
        Some(lengths) if lengths.len() + 1 == dims.len() => 1,
        Some(lengths) => return Err(mismatch(lengths)),
        None => 0,
    };
    let mut resolved = Vec::with_capacity(dims.len());
    for (axis, dim) in dims.iter().enumerate() {
        let target = given.and_then(|lengths| axis.checked_sub(offset).and_then(|i| lengths.get(i)));
        resolved.push(match (&dim.length, target) {
            (_, Some(&length)) => Dim::Fixed(length),
            (Some(DimProto::Value(n)), None) if *n > 0 => Dim::Fixed(usize::try_from(*n).map_err(|_| {
                Error::malformed(format!("axis {axis} of input '{name}' has the length {n}"))
            })?),
            // Some converters write zero or minus one for a length that is open.
            _ if axis == 0 => Dim::Batch(1),
            (open, None) => return Err(not_fixed(name, axis, open.as_ref())),
        });
    }
    Ok(Shape::new(resolved))
}

fn not_fixed(name: &str, axis: usize, dim: Option<&DimProto>) -> Error {
    let symbol = match dim {
        Some(DimProto::Param(symbol)) if !symbol.is_empty() => format!(" ('{symbol}')"),
        _ => String::new(),
    };
    Error::unsupported(format!("axis {axis}{symbol} of input '{name}' is not fixed"))
}

/// The hint to give a shape, with one that fits what is fixed: usual sizes stand where it is open. Of several inputs it is that of
/// the input `name`.
fn example(dims: &[DimensionProto], name: Option<&str>) -> Hint {
    let usual = match dims.len() {
        4 => 224,
        5 => 16,
        _ => 128,
    };
    let length = |dim: &DimensionProto| match &dim.length {
        Some(DimProto::Value(length)) if *length > 0 => length.to_string(),
        _ => usual.to_string(),
    };
    let mut lengths: Vec<String> = dims.iter().skip(1).map(length).collect();
    // Of four axes one holds the channels: the second, unless the last is fixed as one or three.
    if let ([_, second, .., last], 4) = (dims, dims.len())
        && !matches!(second.length, Some(DimProto::Value(1..)))
        && !matches!(last.length, Some(DimProto::Value(1 | 3)))
    {
        lengths[0] = "3".to_owned();
    }
    let lengths = lengths.join(",");
    Hint::INPUT_SHAPE.about(name.map_or_else(|| lengths.clone(), |name| format!("{name}={lengths}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dims: &[DimProto]) -> ValueInfoProto {
        ValueInfoProto::new("x", 1, dims.to_vec())
    }

    fn symbol(name: &str) -> DimProto {
        DimProto::Param(name.into())
    }

    #[test]
    fn an_open_leading_axis_is_the_batch_and_others_must_be_given() {
        let open = info(&[symbol("unk__0"), DimProto::Value(3), symbol("height"), symbol("")]);
        let options = ImportOptions::default();
        let message = options.shape_of(&open, true).unwrap_err().to_string();
        assert!(message.contains("axis 2 ('height') of input 'x' is not fixed"), "{message}");
        let given = options.clone().input_shape([3, 5, 7]).shape_of(&open, true).unwrap();
        assert_eq!(given, Shape::batched(&[3, 5, 7]));
        let fixed = options.clone().named_input_shape("x", [2, 3, 5, 7]).shape_of(&open, true).unwrap();
        assert_eq!(fixed, Shape::fixed(&[2, 3, 5, 7]));
        assert!(options.clone().input_shape([3]).shape_of(&open, true).is_err());
        assert!(options.named_input_shape("z", [3]).check_names(&[&open]).is_err());
    }

    #[test]
    fn a_fixed_batch_stays() {
        let fixed = info(&[DimProto::Value(4), DimProto::Value(3)]);
        assert_eq!(ImportOptions::default().shape_of(&fixed, true).unwrap(), Shape::fixed(&[4, 3]));
    }
}

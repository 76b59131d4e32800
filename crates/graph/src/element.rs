//! How one number lies in a file: its type, its width and its byte order. Everything that reads raw
//! elements decodes them here, and nothing here trusts a length it was not shown.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::Pod;

use crate::half::{bf16_to_f32, f16_to_f32};
use crate::tensor::{Data, Kind, element_count};
use crate::{Error, FileBytes, Result};

/// More axes than PyTorch and NumPy allow are a sign of a hostile file.
pub(crate) const MAX_RANK: usize = 64;

/// Broadcast views larger than the storage behind them are only honoured up to this many elements.
const MAX_EXPANDED: usize = 1 << 16;

/// The type of the numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl Element {
    /// Bytes of one number.
    pub(crate) fn width(self) -> usize {
        match self {
            Element::Bool | Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::BF16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    /// Bytes of one number in memory: halves widen to single precision, every integer to `i64`.
    pub(crate) fn width_in_memory(self) -> usize {
        match self {
            Element::Bool => 1,
            Element::F16 | Element::BF16 | Element::F32 => 4,
            _ => 8,
        }
    }

    /// The kind of number it becomes.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Element::F16 | Element::BF16 | Element::F32 | Element::F64 => Kind::Float,
            Element::Bool => Kind::Bool,
            _ => Kind::Int,
        }
    }

    /// The number of the type in ONNX's list.
    pub(crate) fn onnx(self) -> i32 {
        match self {
            Element::F32 => 1,
            Element::U8 => 2,
            Element::I8 => 3,
            Element::U16 => 4,
            Element::I16 => 5,
            Element::I32 => 6,
            Element::I64 => 7,
            Element::Bool => 9,
            Element::F16 => 10,
            Element::F64 => 11,
            Element::U32 => 12,
            Element::U64 => 13,
            Element::BF16 => 16,
        }
    }

    /// The name ONNX Runtime's messages give it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Element::F32 => "float",
            Element::U8 => "uint8",
            Element::I8 => "int8",
            Element::U16 => "uint16",
            Element::I16 => "int16",
            Element::I32 => "int32",
            Element::I64 => "int64",
            Element::Bool => "bool",
            Element::F16 => "float16",
            Element::F64 => "double",
            Element::U32 => "uint32",
            Element::U64 => "uint64",
            Element::BF16 => "bfloat16",
        }
    }

    /// The least and the largest number of an integer type of up to 32 bits.
    pub(crate) fn range(self) -> Option<(f64, f64)> {
        Some(match self {
            Element::U8 => (0.0, u8::MAX.into()),
            Element::I8 => (i8::MIN.into(), i8::MAX.into()),
            Element::U16 => (0.0, u16::MAX.into()),
            Element::I16 => (i16::MIN.into(), i16::MAX.into()),
            Element::U32 => (0.0, u32::MAX.into()),
            Element::I32 => (i32::MIN.into(), i32::MAX.into()),
            _ => return None,
        })
    }

    /// The integer type with this range.
    pub(crate) fn of_range(min: f64, max: f64) -> Result<Self> {
        let all = [Element::U8, Element::I8, Element::U16, Element::I16, Element::U32, Element::I32];
        let found = all.into_iter().find(|element| element.range() == Some((min, max)));
        found.ok_or_else(|| Error::unsupported(format!("no integer type reaches from {min} to {max}")))
    }

    /// The numbers in `bytes`, used where they lie if they can be and are a part of `file`.
    pub(crate) fn read(self, bytes: &[u8], order: ByteOrder, file: Option<&Arc<FileBytes>>) -> Result<Data> {
        let Some(file) = file else { return self.decode(bytes, order) };
        let shared = match (self, order) {
            (Element::F32, ByteOrder::Little) => file.share(bytes).map(|elements| Data::F32(elements.into())),
            (Element::F64, ByteOrder::Little) => file.share(bytes).map(|elements| Data::F64(elements.into())),
            (Element::I64, ByteOrder::Little) => file.share(bytes).map(|elements| Data::I64(elements.into())),
            _ => None,
        };
        if let Some(shared) = shared {
            return Ok(shared);
        }
        let copied = self.decode(bytes, order)?;
        file.release(bytes);
        Ok(copied)
    }

    /// The numbers in `bytes`: halves widen to single precision, every integer to `i64`.
    pub(crate) fn decode(self, bytes: &[u8], order: ByteOrder) -> Result<Data> {
        if !bytes.len().is_multiple_of(self.width()) {
            return Err(Error::malformed(format!(
                "{} bytes are no whole number of {} numbers",
                bytes.len(),
                self.name()
            )));
        }
        Ok(match self {
            Element::Bool => bytes.iter().map(|&b| b != 0).collect::<Vec<_>>().into(),
            Element::I8 => words(bytes, order, |w| i64::from(i8::from_le_bytes(w))).into(),
            Element::I16 => words(bytes, order, |w| i64::from(i16::from_le_bytes(w))).into(),
            Element::I32 => words(bytes, order, |w| i64::from(i32::from_le_bytes(w))).into(),
            Element::I64 => wide_numbers::<i64>(bytes, order).into(),
            Element::U8 => words(bytes, order, |w| i64::from(u8::from_le_bytes(w))).into(),
            Element::U16 => words(bytes, order, |w| i64::from(u16::from_le_bytes(w))).into(),
            Element::U32 => words(bytes, order, |w| i64::from(u32::from_le_bytes(w))).into(),
            Element::U64 => unsigned(bytes, order)?,
            Element::F16 => words(bytes, order, |w| f16_to_f32(u16::from_le_bytes(w))).into(),
            Element::BF16 => words(bytes, order, |w| bf16_to_f32(u16::from_le_bytes(w))).into(),
            Element::F32 => wide_numbers::<f32>(bytes, order).into(),
            Element::F64 => wide_numbers::<f64>(bytes, order).into(),
        })
    }
}

/// The numbers of a type that is the same in the file and in memory.
fn wide_numbers<T: Pod>(bytes: &[u8], order: ByteOrder) -> Vec<T> {
    let mut numbers: Vec<T> = bytemuck::pod_collect_to_vec(bytes);
    if (order == ByteOrder::Little) != cfg!(target_endian = "little") {
        reverse_each::<T>(bytemuck::cast_slice_mut(&mut numbers));
    }
    numbers
}

/// The bytes of numbers, little end first: where they lie, if memory has them so.
fn little_endian<T: Pod>(numbers: &[T]) -> Cow<'_, [u8]> {
    let bytes: &[u8] = bytemuck::cast_slice(numbers);
    if cfg!(target_endian = "little") {
        return Cow::Borrowed(bytes);
    }
    let mut bytes = bytes.to_vec();
    reverse_each::<T>(&mut bytes);
    Cow::Owned(bytes)
}

fn reverse_each<T>(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(size_of::<T>()).for_each(<[u8]>::reverse);
}

impl Data {
    /// The elements as bytes, row-major, the little end of each first; one byte for a truth value.
    pub fn to_le_bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Data::F32(elements) => little_endian(elements),
            Data::F64(elements) => little_endian(elements),
            Data::I64(elements) => little_endian(elements),
            Data::Bool(elements) => Cow::Owned(elements.iter().map(|&v| u8::from(v)).collect()),
        }
    }
}

fn words<const WIDTH: usize, T>(bytes: &[u8], order: ByteOrder, number: impl Fn([u8; WIDTH]) -> T) -> Vec<T> {
    let (words, _) = bytes.as_chunks::<WIDTH>();
    match order {
        ByteOrder::Little => words.iter().map(|&word| number(word)).collect(),
        ByteOrder::Big => words
            .iter()
            .map(|&(mut word)| {
                word.reverse();
                number(word)
            })
            .collect(),
    }
}

fn unsigned(bytes: &[u8], order: ByteOrder) -> Result<Data> {
    let numbers = words(bytes, order, u64::from_le_bytes);
    let signed: Result<Vec<i64>, _> = numbers.into_iter().map(i64::try_from).collect();
    signed.map(Data::from).map_err(|_| {
        Error::unsupported("an unsigned 64-bit number exceeds 2^63 - 1, the largest we can hold")
    })
}

/// A window on a flat storage: element `(i, j, …)` lies at `offset + i·strides[0] + j·strides[1] + …`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

impl View {
    /// The view whose first axis varies fastest, as Fortran stores arrays.
    pub(crate) fn fortran(shape: &[usize]) -> Option<Self> {
        let mut strides = Vec::with_capacity(shape.len());
        let mut step = 1usize;
        for &length in shape {
            strides.push(step);
            step = step.checked_mul(length.max(1))?;
        }
        Some(View { offset: 0, shape: shape.to_vec(), strides })
    }

    /// The viewed elements of `width` bytes each, row-major; an error where the view leaves the storage or
    /// repeats it beyond measure.
    pub(crate) fn gather<'a>(&self, storage: &'a [u8], width: usize) -> Result<Cow<'a, [u8]>> {
        let held = storage.len() / width;
        let count = self.checked_count(held)?;
        if count == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        if self.is_contiguous() {
            return Ok(Cow::Borrowed(&storage[self.offset * width..(self.offset + count) * width]));
        }
        // An axis of length one is never walked, and its stride may be anything.
        let walked: Vec<(usize, usize)> = self
            .shape
            .iter()
            .copied()
            .zip(self.strides.iter().copied())
            .filter(|&(length, _)| length > 1)
            .collect();
        let mut gathered = Vec::with_capacity(count * width);
        let mut index = vec![0; walked.len()];
        let mut at = self.offset;
        for _ in 0..count {
            gathered.extend_from_slice(&storage[at * width..(at + 1) * width]);
            for (index, &(length, stride)) in index.iter_mut().zip(&walked).rev() {
                *index += 1;
                at += stride;
                if *index < length {
                    break;
                }
                at -= *index * stride;
                *index = 0;
            }
        }
        Ok(Cow::Owned(gathered))
    }

    /// Number of elements, once every one of them is known to lie among the `held` ones.
    fn checked_count(&self, held: usize) -> Result<usize> {
        if self.shape.len() != self.strides.len() || self.shape.len() > MAX_RANK {
            return Err(Error::malformed(format!(
                "a tensor needs one stride for each of at most {MAX_RANK} axes, found {} axes and {} strides",
                self.shape.len(),
                self.strides.len()
            )));
        }
        let outside = || {
            Error::malformed(format!(
                "shape {:?} with strides {:?} from element {} reaches outside of its storage of {held} elements",
                self.shape, self.strides, self.offset
            ))
        };
        let count = element_count(&self.shape).ok_or_else(outside)?;
        if count == 0 {
            return Ok(0);
        }
        let spans =
            self.shape.iter().zip(&self.strides).map(|(&length, &stride)| (length - 1).checked_mul(stride));
        let last = spans.into_iter().try_fold(self.offset, |at, span| at.checked_add(span?));
        if last.is_none_or(|last| last >= held) {
            return Err(outside());
        }
        if count > held && count > MAX_EXPANDED {
            return Err(Error::malformed(format!(
                "shape {:?} repeats a storage of {held} elements: save a contiguous() copy of the tensor",
                self.shape
            )));
        }
        Ok(count)
    }

    fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&length, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if length != 1 && stride != expected {
                return false;
            }
            expected *= length;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(offset: usize, shape: &[usize], strides: &[usize]) -> View {
        View { offset, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn byte_order_only_changes_the_order_of_bytes() {
        let little = [1.5f32, -2.25].map(f32::to_le_bytes).concat();
        let big = [1.5f32, -2.25].map(f32::to_be_bytes).concat();
        assert_eq!(
            Element::F32.decode(&little, ByteOrder::Little).unwrap(),
            Element::F32.decode(&big, ByteOrder::Big).unwrap()
        );
        assert!(Element::F32.decode(&little[1..], ByteOrder::Little).is_err());
    }

    #[test]
    fn elements_have_the_bytes_of_their_numbers() {
        let singles = [0.0f32, -1.5, f32::MIN_POSITIVE, f32::INFINITY, f32::from_bits(0x7fc0_1234)];
        let doubles = singles.map(f64::from);
        let integers = [0, -1, i64::MIN, i64::MAX, 0x0102_0304_0506_0708];
        let written = |data: Data| data.to_le_bytes().into_owned();
        assert_eq!(written(singles.to_vec().into()), singles.map(f32::to_le_bytes).concat());
        assert_eq!(written(doubles.to_vec().into()), doubles.map(f64::to_le_bytes).concat());
        assert_eq!(written(integers.to_vec().into()), integers.map(i64::to_le_bytes).concat());
        assert_eq!(written(vec![true, false].into()), [1, 0]);
        assert!(written(Vec::<f32>::new().into()).is_empty());
        // Bytes that begin at an odd address are read like others, in both orders.
        for skipped in 0..9 {
            let skip = vec![0u8; skipped];
            let little = [&skip[..], &integers.map(i64::to_le_bytes).concat()].concat();
            let big = [&skip[..], &integers.map(i64::to_be_bytes).concat()].concat();
            let data = Data::from(integers.to_vec());
            assert_eq!(Element::I64.decode(&little[skipped..], ByteOrder::Little).unwrap(), data);
            assert_eq!(Element::I64.decode(&big[skipped..], ByteOrder::Big).unwrap(), data);
        }
    }

    #[test]
    fn unsigned_numbers_beyond_the_signed_range_are_refused() {
        let bytes = u64::MAX.to_le_bytes();
        assert!(Element::U64.decode(&bytes, ByteOrder::Little).is_err());
        assert_eq!(
            Element::U64.decode(&[7, 0, 0, 0, 0, 0, 0, 0], ByteOrder::Little).unwrap(),
            vec![7i64].into()
        );
    }

    #[test]
    fn a_transposed_view_reads_columns_first() {
        let storage = [0u8, 1, 2, 3, 4, 5];
        assert_eq!(&*view(0, &[3, 2], &[1, 3]).gather(&storage, 1).unwrap(), &[0, 3, 1, 4, 2, 5]);
        assert_eq!(&*view(1, &[2, 2], &[3, 1]).gather(&storage, 1).unwrap(), &[1, 2, 4, 5]);
        assert_eq!(&*view(4, &[], &[]).gather(&storage, 1).unwrap(), &[4]);
        assert_eq!(&*view(0, &[2, 1, 2], &[1, usize::MAX, 3]).gather(&storage, 1).unwrap(), &[0, 3, 1, 4]);
        assert_eq!(&*view(2, &[3], &[0]).gather(&storage, 1).unwrap(), &[2, 2, 2]);
        assert_eq!(&*View::fortran(&[2, 3]).unwrap().gather(&storage, 1).unwrap(), &[0, 2, 4, 1, 3, 5]);
    }

    #[test]
    fn views_that_leave_or_multiply_their_storage_are_refused() {
        let storage = [0u8; 6];
        for hostile in [
            view(0, &[7], &[1]),
            view(6, &[1], &[1]),
            view(usize::MAX, &[2], &[1]),
            view(0, &[2], &[usize::MAX]),
            view(0, &[usize::MAX, usize::MAX], &[0, 0]),
            view(0, &[1 << 20, 1 << 20], &[0, 0]),
            view(0, &[1; 65], &[1; 65]),
            view(0, &[2], &[]),
        ] {
            assert!(hostile.gather(&storage, 1).is_err(), "{hostile:?}");
        }
        assert!(view(9, &[0, 5], &[5, 1]).gather(&storage, 1).unwrap().is_empty());
    }
}

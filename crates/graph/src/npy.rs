//! NumPy's `.npy` files, one array each: read in every version of the format, written so that NumPy and
//! everybody else can read them. Arrays of Python objects are pickles and are refused.

use crate::element::{ByteOrder, Element, MAX_RANK, View};
use crate::tensor::{Data, element_count};
use crate::{Error, Result, Tensor, shown};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// An honest header is some hundred bytes long.
const MAX_HEADER: usize = 1 << 16;

/// NumPy pads the header so that elements start at a multiple of this.
const ALIGNMENT: usize = 64;

/// Whether `bytes` start like a `.npy` file.
pub fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// The most bytes that come before the elements.
pub(crate) const MAX_PREAMBLE: usize = 12 + MAX_HEADER;

/// What the beginning of a file promises.
pub(crate) struct Promised {
    /// Bytes of the file.
    pub(crate) file: usize,
    /// Bytes of the array in memory.
    pub(crate) memory: usize,
}

/// What the first bytes of a file promise, of which at least [`MAX_PREAMBLE`] are given if there are so many.
pub(crate) fn promised(beginning: &[u8]) -> Result<Promised> {
    let (header, data) = split(beginning)?;
    let preamble = beginning.len() - data.len();
    let header = Header::read(header)?;
    let count = element_count(&header.shape);
    let size = |width: usize| count.and_then(|count| count.checked_mul(width));
    let file = size(header.element.width()).and_then(|size| size.checked_add(preamble));
    let promised = file.zip(size(header.element.width_in_memory()));
    promised
        .map(|(file, memory)| Promised { file, memory })
        .ok_or_else(|| Error::malformed(format!("the shape {:?} is too large", header.shape)))
}

/// Reads an array. Halves become single precision, integers `i64`; Fortran order becomes row-major.
pub fn read(bytes: &[u8]) -> Result<Tensor> {
    let (header, data) = split(bytes)?;
    let header = Header::read(header)?;
    let size = element_count(&header.shape).and_then(|count| count.checked_mul(header.element.width()));
    if size != Some(data.len()) {
        return Err(Error::malformed(format!(
            "the .npy header promises shape {:?} of {} numbers, found {} bytes: the file is truncated or corrupt",
            header.shape,
            header.element.name(),
            data.len()
        )));
    }
    let decoded = if header.fortran_order {
        let view = View::fortran(&header.shape)
            .ok_or_else(|| Error::malformed(format!("the shape {:?} is too large", header.shape)))?;
        header.element.decode(&view.gather(data, header.element.width())?, header.order)?
    } else {
        header.element.decode(data, header.order)?
    };
    Tensor::new(header.shape, decoded)
}

/// The bytes of a `.npy` file holding `tensor`.
pub fn write(tensor: &Tensor) -> Vec<u8> {
    let descr = match tensor.data() {
        Data::F32(_) => "<f4",
        Data::F64(_) => "<f8",
        Data::I64(_) => "<i8",
        Data::Bool(_) => "|b1",
    };
    let mut shape: String = tensor.shape().iter().map(|length| format!("{length}, ")).collect();
    let unneeded = if tensor.shape().len() == 1 { " " } else { ", " };
    shape.truncate(shape.trim_end_matches(unneeded).len());
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");

    let mut bytes = preamble(&header);
    bytes.extend_from_slice(&tensor.data().to_le_bytes());
    bytes
}

/// Magic, version, length and header; version 1 has two bytes for the length, version 2 has four.
fn preamble(header: &str) -> Vec<u8> {
    let padded = |before: usize| (before + header.len() + 1).next_multiple_of(ALIGNMENT) - before;
    let mut bytes = MAGIC.to_vec();
    let length = match u16::try_from(padded(10)) {
        Ok(length) => {
            bytes.extend([1, 0]);
            bytes.extend(length.to_le_bytes());
            usize::from(length)
        }
        Err(_) => {
            let length = padded(12);
            bytes.extend([2, 0]);
            bytes.extend((length as u32).to_le_bytes());
            length
        }
    };
    bytes.extend(header.as_bytes());
    bytes.extend(std::iter::repeat_n(b' ', length - header.len() - 1));
    bytes.push(b'\n');
    bytes
}

fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let truncated = || Error::malformed("the .npy file is truncated in its header");
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| Error::malformed("the file does not start as a .npy file"))?;
    let (&[version, _], rest) = rest.split_first_chunk().ok_or_else(truncated)?;
    let (length, rest) = match version {
        1 => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(truncated)?;
            (u16::from_le_bytes(*length).into(), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(truncated)?;
            (u32::from_le_bytes(*length), rest)
        }
        _ => {
            return Err(Error::unsupported(format!(
                "version {version} of the .npy format: versions 1, 2 and 3 are read"
            )));
        }
    };
    let length = usize::try_from(length).ok().filter(|&length| length <= MAX_HEADER);
    let length = length.ok_or_else(|| Error::malformed("the .npy header is longer than 64 KiB"))?;
    let (header, data) = rest.split_at_checked(length).ok_or_else(truncated)?;
    let header = std::str::from_utf8(header).map_err(|_| Error::malformed("the .npy header is not text"))?;
    Ok((header, data))
}

struct Header {
    element: Element,
    order: ByteOrder,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, whose keys come in any order.
    fn read(text: &str) -> Result<Self> {
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literal.expect("{")?;
        while !literal.accept("}") {
            let key = literal.string()?;
            literal.expect(":")?;
            let fresh = match key {
                "descr" => descr.replace(literal.descr()?).is_none(),
                "fortran_order" => fortran_order.replace(literal.boolean()?).is_none(),
                "shape" => shape.replace(literal.shape()?).is_none(),
                _ => false,
            };
            if !fresh {
                return Err(literal.unexpected("'descr', 'fortran_order' and 'shape', each once"));
            }
            if !literal.accept(",") {
                literal.expect("}")?;
                break;
            }
        }
        match (descr, fortran_order, shape) {
            (Some((element, order)), Some(fortran_order), Some(shape)) if literal.rest.trim().is_empty() => {
                Ok(Header { element, order, fortran_order, shape })
            }
            _ => Err(literal.unexpected("'descr', 'fortran_order' and 'shape', and nothing else")),
        }
    }
}

/// The few Python literals a header is made of.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn accept(&mut self, wanted: &str) -> bool {
        match self.rest.trim_start().strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.accept(wanted) { Ok(()) } else { Err(self.unexpected(wanted)) }
    }

    fn string(&mut self) -> Result<&'a str> {
        let quote = if self.accept("'") {
            '\''
        } else if self.accept("\"") {
            '"'
        } else {
            return Err(self.unexpected("a text"));
        };
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.unexpected("the end of a text"))?;
        self.rest = rest;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool> {
        if self.accept("True") {
            Ok(true)
        } else if self.accept("False") {
            Ok(false)
        } else {
            Err(self.unexpected("True or False"))
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>> {
        let mut shape = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            if shape.len() == MAX_RANK {
                return Err(self.unexpected("at most 64 axes"));
            }
            shape.push(self.length()?);
            if !self.accept(",") {
                // One number in parentheses is no tuple in Python.
                if shape.len() == 1 {
                    return Err(self.unexpected("a comma"));
                }
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }

    fn length(&mut self) -> Result<usize> {
        self.rest = self.rest.trim_start();
        let end = self.rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let length = digits.parse().map_err(|_| self.unexpected("the length of an axis"))?;
        // Python 2 marked long integers with a letter.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(length)
    }

    fn descr(&mut self) -> Result<(Element, ByteOrder)> {
        if self.rest.trim_start().starts_with('[') {
            return Err(Error::unsupported("the .npy array has named fields: save each field as an array"));
        }
        let descr = self.string()?;
        let (order, kind) = match descr.split_at_checked(1) {
            Some(("<" | "|", kind)) => (ByteOrder::Little, kind),
            Some((">", kind)) => (ByteOrder::Big, kind),
            _ => return Err(self.unexpected("a type like '<f4'")),
        };
        let element = match kind {
            "b1" => Element::Bool,
            "i1" => Element::I8,
            "i2" => Element::I16,
            "i4" => Element::I32,
            "i8" => Element::I64,
            "u1" => Element::U8,
            "u2" => Element::U16,
            "u4" => Element::U32,
            "u8" => Element::U64,
            "f2" => Element::F16,
            "f4" => Element::F32,
            "f8" => Element::F64,
            _ => {
                return Err(Error::unsupported(format!(
                    "the .npy array holds elements of type '{}': save real numbers, integers or booleans",
                    shown(descr)
                )));
            }
        };
        if descr.starts_with('|') && element.width() > 1 {
            return Err(self.unexpected("a byte order"));
        }
        Ok((element, order))
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found: String = self.rest.chars().take(24).collect();
        Error::malformed(format!("the .npy header should go on with {wanted}, found '{found}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0][..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn what_is_written_is_read_back() {
        for tensor in [
            Tensor::scalar(1.5f32),
            Tensor::vector(vec![1.0, f64::NEG_INFINITY]),
            Tensor::new([2, 0, 3], Vec::<i64>::new()).unwrap(),
            Tensor::new([2, 2], vec![i64::MIN, -1, 0, i64::MAX]).unwrap(),
            Tensor::new([1, 2], vec![true, false]).unwrap(),
            Tensor::new(vec![1; 64], vec![0.5f32]).unwrap(),
        ] {
            let bytes = write(&tensor);
            assert_eq!(read(&bytes).unwrap(), tensor);
            for length in 0..bytes.len() {
                assert!(read(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn headers_are_those_numpy_writes() {
        for (shape, expected) in [
            (vec![], "()"),
            (vec![1], "(1,)"),
            (vec![10], "(10,)"),
            (vec![1, 1], "(1, 1)"),
            (vec![0], "(0,)"),
        ] {
            let elements = vec![1f32; shape.iter().product()];
            let bytes = write(&Tensor::new(shape, elements).unwrap());
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {expected}, }}");
            assert_eq!(bytes[..10], *b"\x93NUMPY\x01\x00\x76\x00");
            assert_eq!(std::str::from_utf8(&bytes[10..127]).unwrap().trim_end_matches(' '), header);
            assert_eq!(bytes[127], b'\n');
        }
    }

    #[test]
    fn all_three_versions_are_read() {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n";
        for version in [2, 3] {
            let length = (header.len() as u32).to_le_bytes();
            let bytes = [MAGIC, &[version, 0][..], &length, header.as_bytes(), &[1, 2, 3]].concat();
            assert_eq!(read(&bytes).unwrap(), Tensor::vector(vec![1i64, 2, 3]));
        }
        assert!(read(b"\x93NUMPY\x04\x00\x00\x00\x00\x00").is_err());
        assert!(read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn hostile_headers_are_refused() {
        for header in [
            "",
            "{}",
            "{'descr': '|u1', 'fortran_order': False}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'more': 1}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} x",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|u1', 'fortran_order': 1, 'shape': (1,)}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '|f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': 'é1', 'fortran_order': False, 'shape': ()}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
            "{'descr': '<f8', 'fortran_order': True, 'shape': (2305843009213693952,)}",
            "{'descr': '<f8', 'fortran_order': True, 'shape': (0, 18446744073709551615, 2)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        ] {
            assert!(read(&file(header, &[7])).is_err(), "{header}");
        }
        let ones = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({})}}", "1,".repeat(65));
        assert!(read(&file(&ones, &[7])).is_err());
        assert!(read(&file("{'shape':(1L,),'fortran_order':True,\"descr\":'|u1'}", &[7])).is_ok());
    }
}

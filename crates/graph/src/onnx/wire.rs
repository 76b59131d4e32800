//! Protocol buffers on the wire: fields with a number and one of four encodings. Reading borrows from the
//! file and never allocates; writing goes back to front, so that every length is known when it is needed.

use crate::error::{Error, Result};

/// The content of one field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of one message, in file order.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    message: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], message: &'static str) -> Self {
        Reader { rest: bytes, message }
    }

    /// The next field and its number, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|&n| n > 0).ok_or_else(|| self.corrupt())?;
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| self.corrupt())?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(self.corrupt()),
        };
        Ok(Some((number, field)))
    }

    fn varint(&mut self) -> Result<u64> {
        let (value, length) = varint(self.rest).ok_or_else(|| self.corrupt())?;
        self.rest = &self.rest[length..];
        Ok(value)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(length).ok_or_else(|| {
            Error::malformed(format!(
                "not a complete ONNX file: {} needs {length} bytes where {} are left",
                self.message,
                self.rest.len()
            ))
        })?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| self.corrupt())
    }

    fn corrupt(&self) -> Error {
        Error::malformed(format!("not an ONNX file, or a corrupt one: {} cannot be read", self.message))
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

impl<'a> Field<'a> {
    fn mismatch(message: &str) -> Error {
        Error::malformed(format!(
            "not an ONNX file, or a corrupt one: {message} has a field of the wrong type"
        ))
    }

    /// The content as an integer.
    pub(crate) fn int(self) -> Result<i64> {
        match self {
            Field::Varint(v) => Ok(v as i64),
            _ => Err(Field::mismatch("an integer")),
        }
    }

    /// The content as a number.
    pub(crate) fn float(self) -> Result<f32> {
        match self {
            Field::Fixed32(v) => Ok(f32::from_bits(v)),
            _ => Err(Field::mismatch("a number")),
        }
    }

    /// The content as bytes.
    pub(crate) fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Field::mismatch("a string or message")),
        }
    }

    /// The content as text.
    pub(crate) fn text(self) -> Result<String> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Error::malformed("a name in the ONNX file is not valid UTF-8")),
        }
    }

    /// Appends one integer, or a packed run of them.
    pub(crate) fn ints(self, to: &mut Vec<i64>) -> Result<()> {
        match self {
            Field::Bytes(mut packed) => {
                while !packed.is_empty() {
                    let (value, length) =
                        varint(packed).ok_or_else(|| Field::mismatch("a list of integers"))?;
                    to.push(value as i64);
                    packed = &packed[length..];
                }
                Ok(())
            }
            _ => self.int().map(|v| to.push(v)),
        }
    }

    /// Appends one single-precision number, or a packed run of them.
    pub(crate) fn floats(self, to: &mut Vec<f32>) -> Result<()> {
        match self {
            Field::Bytes(packed) => {
                let (words, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(Field::mismatch("a list of numbers"));
                }
                to.extend(words.iter().map(|&w| f32::from_le_bytes(w)));
                Ok(())
            }
            _ => self.float().map(|v| to.push(v)),
        }
    }

    /// Appends one double-precision number, or a packed run of them.
    pub(crate) fn doubles(self, to: &mut Vec<f64>) -> Result<()> {
        match self {
            Field::Bytes(packed) => {
                let (words, rest) = packed.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(Field::mismatch("a list of numbers"));
                }
                to.extend(words.iter().map(|&w| f64::from_le_bytes(w)));
                Ok(())
            }
            Field::Fixed64(v) => {
                to.push(f64::from_bits(v));
                Ok(())
            }
            _ => Err(Field::mismatch("a list of numbers")),
        }
    }
}

/// A message being written, last field first.
#[derive(Default)]
pub(crate) struct Writer {
    reversed: Vec<u8>,
}

impl Writer {
    /// The finished message.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.reversed.reverse();
        self.reversed
    }

    fn varint(&mut self, mut value: u64) {
        let mut bytes = [0u8; 10];
        let mut length = 0;
        loop {
            bytes[length] = (value & 0x7f) as u8 | if value > 0x7f { 0x80 } else { 0 };
            length += 1;
            value >>= 7;
            if value == 0 {
                break;
            }
        }
        self.reversed.extend(bytes[..length].iter().rev());
    }

    fn key(&mut self, number: u32, encoding: u64) {
        self.varint(u64::from(number) << 3 | encoding);
    }

    /// An integer field.
    pub(crate) fn int(&mut self, number: u32, value: i64) {
        self.varint(value as u64);
        self.key(number, 0);
    }

    /// A single-precision field.
    pub(crate) fn float(&mut self, number: u32, value: f32) {
        self.reversed.extend(value.to_le_bytes().iter().rev());
        self.key(number, 5);
    }

    /// A string or bytes field.
    pub(crate) fn bytes(&mut self, number: u32, value: &[u8]) {
        self.reversed.extend(value.iter().rev());
        self.varint(value.len() as u64);
        self.key(number, 2);
    }

    /// A string field, left out if empty.
    pub(crate) fn text(&mut self, number: u32, value: &str) {
        if !value.is_empty() {
            self.bytes(number, value.as_bytes());
        }
    }

    /// A packed list of integers, left out if empty.
    pub(crate) fn ints(&mut self, number: u32, values: &[i64]) {
        if !values.is_empty() {
            self.message(number, |w| values.iter().rev().for_each(|&v| w.varint(v as u64)));
        }
    }

    /// A packed list of numbers, left out if empty.
    pub(crate) fn floats(&mut self, number: u32, values: &[f32]) {
        if !values.is_empty() {
            self.message(number, |w| {
                values.iter().rev().for_each(|v| w.reversed.extend(v.to_le_bytes().iter().rev()))
            });
        }
    }

    /// A field that is a message of its own.
    pub(crate) fn message(&mut self, number: u32, content: impl FnOnce(&mut Writer)) {
        let start = self.reversed.len();
        content(self);
        let length = self.reversed.len() - start;
        self.varint(length as u64);
        self.key(number, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_examples_of_the_wire_format() {
        let mut w = Writer::default();
        w.int(1, 150);
        assert_eq!(w.into_bytes(), [0x08, 0x96, 0x01]);
        let mut w = Writer::default();
        w.text(2, "testing");
        assert_eq!(w.into_bytes(), [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let mut w = Writer::default();
        w.message(3, |w| w.int(1, 150));
        assert_eq!(w.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut w = Writer::default();
        w.ints(6, &[3, 270, 86942]);
        assert_eq!(w.into_bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut w = Writer::default();
        w.ints(4, &[-1, i64::MIN, i64::MAX]);
        w.floats(3, &[1.5, f32::NEG_INFINITY]);
        w.float(2, -0.25);
        w.int(1, -7);
        let bytes = w.into_bytes();
        let mut reader = Reader::new(&bytes, "a test");
        assert_eq!(reader.next().unwrap().map(|(n, f)| (n, f.int().unwrap())), Some((1, -7)));
        assert_eq!(reader.next().unwrap().map(|(n, f)| (n, f.float().unwrap())), Some((2, -0.25)));
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        reader.next().unwrap().unwrap().1.floats(&mut floats).unwrap();
        reader.next().unwrap().unwrap().1.ints(&mut ints).unwrap();
        assert_eq!(floats, [1.5, f32::NEG_INFINITY]);
        assert_eq!(ints, [-1, i64::MIN, i64::MAX]);
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn bad_keys_lengths_and_varints_are_errors() {
        for bytes in [
            &[0x0a, 0x05, 1][..],
            &[0x0b],
            &[0x00, 0x01],
            &[0xff; 11],
            &[0x0d, 1, 2],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ] {
            assert!(Reader::new(bytes, "a test").next().is_err(), "{bytes:?}");
        }
    }
}

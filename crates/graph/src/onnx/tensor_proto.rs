//! Tensors and what a file declares of its values: the messages that describe data rather than nodes.

use std::borrow::Cow;

use super::model::StringStringEntry;
use super::wire::{Reader, Writer};
use crate::error::Result;

/// A tensor, its elements not yet looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TensorProto<'a> {
    pub(crate) name: String,
    pub(crate) dims: Vec<i64>,
    pub(crate) data_type: i64,
    pub(crate) floats: Vec<f32>,
    pub(crate) ints: Vec<i64>,
    pub(crate) doubles: Vec<f64>,
    pub(crate) raw: Option<Cow<'a, [u8]>>,
    pub(crate) external: Vec<StringStringEntry>,
    pub(crate) is_external: bool,
    pub(crate) is_segment: bool,
}

/// The length of an axis as declared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DimProto {
    Value(i64),
    Param(String),
    Unknown,
}

/// A name and what is declared of its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ValueInfoProto {
    pub(crate) name: String,
    pub(crate) is_tensor: bool,
    pub(crate) data_type: i64,
    pub(crate) shape: Option<Vec<DimProto>>,
}

impl<'a> TensorProto<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut tensor = TensorProto::default();
        let mut reader = Reader::new(bytes, "a tensor");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => field.ints(&mut tensor.dims)?,
                2 => tensor.data_type = field.int()?,
                3 => tensor.is_segment = true,
                4 => field.floats(&mut tensor.floats)?,
                5 | 7 | 11 => field.ints(&mut tensor.ints)?,
                8 => tensor.name = field.text()?,
                9 => tensor.raw = Some(Cow::Borrowed(field.bytes()?)),
                10 => field.doubles(&mut tensor.doubles)?,
                13 => tensor.external.push(StringStringEntry::decode(field.bytes()?)?),
                14 => tensor.is_external = field.int()? == 1,
                _ => {}
            }
        }
        Ok(tensor)
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        if self.is_external {
            w.int(14, 1);
        }
        self.external.iter().rev().for_each(|p| w.message(13, |w| p.encode(w)));
        if let Some(raw) = &self.raw {
            w.bytes(9, raw);
        }
        w.text(8, &self.name);
        w.ints(7, &self.ints);
        w.floats(4, &self.floats);
        w.int(2, self.data_type);
        w.ints(1, &self.dims);
    }
}

impl ValueInfoProto {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut info = ValueInfoProto::default();
        let mut reader = Reader::new(bytes, "a value");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => info.name = field.text()?,
                2 => info.decode_type(field.bytes()?)?,
                _ => {}
            }
        }
        Ok(info)
    }

    fn decode_type(&mut self, bytes: &[u8]) -> Result<()> {
        let mut reader = Reader::new(bytes, "a type");
        while let Some((number, field)) = reader.next()? {
            if number != 1 {
                continue;
            }
            self.is_tensor = true;
            let mut tensor = Reader::new(field.bytes()?, "a tensor type");
            while let Some((number, field)) = tensor.next()? {
                match number {
                    1 => self.data_type = field.int()?,
                    2 => self.shape = Some(decode_shape(field.bytes()?)?),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.message(2, |w| {
            w.message(1, |w| {
                if let Some(dims) = &self.shape {
                    w.message(2, |w| dims.iter().rev().for_each(|d| w.message(1, |w| d.encode(w))));
                }
                w.int(1, self.data_type);
            })
        });
        w.text(1, &self.name);
    }
}

fn decode_shape(bytes: &[u8]) -> Result<Vec<DimProto>> {
    let mut dims = Vec::new();
    let mut reader = Reader::new(bytes, "a shape");
    while let Some((number, field)) = reader.next()? {
        if number != 1 {
            continue;
        }
        let mut dim = DimProto::Unknown;
        let mut axis = Reader::new(field.bytes()?, "an axis");
        while let Some((number, field)) = axis.next()? {
            match number {
                1 => dim = DimProto::Value(field.int()?),
                2 => dim = DimProto::Param(field.text()?),
                _ => {}
            }
        }
        dims.push(dim);
    }
    Ok(dims)
}

impl DimProto {
    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            DimProto::Value(v) => w.int(1, *v),
            DimProto::Param(name) => w.text(2, name),
            DimProto::Unknown => {}
        }
    }
}

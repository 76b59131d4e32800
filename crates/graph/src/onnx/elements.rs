//! The elements of a tensor in a file: stored as bytes, as typed lists or in a file of their own, in any of
//! ONNX's number types. Sizes are checked against the file before anything is allocated.

use super::files::Files;
use super::model::TensorProto;
use crate::element::{ByteOrder, Element};
use crate::error::{Error, Result};
use crate::half::{bf16_to_f32, f16_to_f32};
use crate::tensor::{Data, Tensor, element_count};

/// The type with this number in ONNX's list, if it can be read.
pub(crate) fn element(number: impl Into<i64>) -> Result<Element> {
    let number = number.into();
    Ok(match number {
        1 => Element::F32,
        2 => Element::U8,
        3 => Element::I8,
        4 => Element::U16,
        5 => Element::I16,
        6 => Element::I32,
        7 => Element::I64,
        9 => Element::Bool,
        10 => Element::F16,
        11 => Element::F64,
        12 => Element::U32,
        13 => Element::U64,
        16 => Element::BF16,
        0 => return Err(Error::malformed("a tensor has no element type")),
        8 | 14 | 15 | 17.. => {
            let name = match number {
                8 => "strings",
                14 | 15 => "complex numbers",
                _ => "an 8-bit or smaller quantised type",
            };
            return Err(Error::unsupported(format!(
                "tensors of {name} (ONNX type {number}) are not supported"
            )));
        }
        _ => return Err(Error::malformed(format!("there is no element type {number}"))),
    })
}

/// The tensor a message of a network with these files describes.
pub(crate) fn tensor(proto: &TensorProto, files: &Files<'_>) -> Result<Tensor> {
    decode(proto, files).map_err(|e| {
        if proto.name.is_empty() {
            return e;
        }
        e.context(format!("tensor '{}'", proto.name))
    })
}

fn decode(proto: &TensorProto, files: &Files<'_>) -> Result<Tensor> {
    let element = element(proto.data_type)?;
    let shape = lengths(&proto.dims)?;
    let count =
        element_count(&shape).filter(|n| n.checked_mul(element.width()).is_some()).ok_or_else(|| {
            Error::malformed(format!("the shape {shape:?} has more elements than can be addressed"))
        })?;
    if proto.segment.is_some() {
        return Err(Error::unsupported("tensors stored in segments are not supported"));
    }
    let size = count * element.width();
    let data = if proto.is_external() {
        external(proto, files, element, size)?
    } else if let Some(raw) = &proto.raw {
        expect(raw.len(), size, "bytes", &shape)?;
        element.read(raw, ByteOrder::Little, files.own)?
    } else {
        from_lists(element, proto, count, &shape)?
    };
    Tensor::new(shape, data)
}

fn expect(found: usize, expected: usize, what: &str, shape: &[usize]) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::malformed(format!("the shape {shape:?} needs {expected} {what}, the file has {found}")))
}

/// Axis lengths as declared in a file.
pub(crate) fn lengths(dims: &[i64]) -> Result<Vec<usize>> {
    let bad = |d: i64| Error::malformed(format!("an axis has the length {d}"));
    dims.iter().map(|&d| usize::try_from(d).map_err(|_| bad(d))).collect()
}

fn from_lists(element: Element, proto: &TensorProto, count: usize, shape: &[usize]) -> Result<Data> {
    let ints = || {
        let ints = proto.ints();
        expect(ints.len(), count, "elements", shape).map(|()| ints)
    };
    let halves = |convert: fn(u16) -> f32| {
        Ok::<Data, Error>(ints()?.iter().map(|&v| convert(v as u16)).collect::<Vec<_>>().into())
    };
    match element {
        Element::F32 => {
            expect(proto.floats.len(), count, "elements", shape)?;
            Ok(proto.floats.clone().into())
        }
        Element::F64 => {
            expect(proto.doubles.len(), count, "elements", shape)?;
            Ok(proto.doubles.clone().into())
        }
        Element::F16 => halves(f16_to_f32),
        Element::BF16 => halves(bf16_to_f32),
        Element::Bool => Ok(ints()?.iter().map(|&v| v != 0).collect::<Vec<_>>().into()),
        Element::U64 => {
            ints()?.iter().map(|&v| unsigned(v as u64)).collect::<Result<Vec<_>>>().map(Data::from)
        }
        _ => Ok(ints()?.into()),
    }
}

fn unsigned(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| Error::unsupported(format!("the integer {value} is too large")))
}

fn external(proto: &TensorProto, files: &Files<'_>, element: Element, expected: usize) -> Result<Data> {
    let entry = |key: &str| proto.external.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let number = |key: &str| match entry(key) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            Error::malformed(format!("the {key} '{text}' of its external data is not a number"))
        }),
    };
    let location = entry("location").ok_or_else(|| Error::malformed("its external data has no location"))?;
    let offset = number("offset")?.unwrap_or(0);
    let file = files.beside(location)?;
    let size = file.len() as u64;
    let length = number("length")?.unwrap_or(expected as u64);
    if length != expected as u64 {
        return Err(Error::malformed(format!("needs {expected} bytes, its external data has {length}")));
    }
    let end = offset.checked_add(length).filter(|&end| end <= size);
    let bytes = end.and_then(|end| file.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?));
    let bytes = bytes.ok_or_else(|| {
        Error::malformed(format!("needs {length} bytes at {offset} of '{location}', which has only {size}"))
    })?;
    element.read(bytes, ByteOrder::Little, Some(&file))
}

#[cfg(test)]
mod tests {
    use super::super::model::StringStringEntry;
    use super::*;

    fn raw(data_type: i32, dims: &[i64], bytes: &[u8]) -> TensorProto {
        TensorProto {
            dims: dims.to_vec(),
            data_type,
            raw: Some(bytes.to_vec().into()),
            ..TensorProto::default()
        }
    }

    #[test]
    fn every_number_type_is_read_from_bytes() {
        let one_and_minus_two: [(i32, &[u8]); 8] = [
            (1, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]),
            (3, &[1, 0xfe]),
            (5, &[1, 0, 0xfe, 0xff]),
            (6, &[1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]),
            (7, &[1, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (10, &[0, 0x3c, 0, 0xc0]),
            (11, &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0]),
            (16, &[0x80, 0x3f, 0, 0xc0]),
        ];
        for (kind, bytes) in one_and_minus_two {
            let t = tensor(&raw(kind, &[2], bytes), &Files::default()).unwrap();
            assert_eq!(&*t.to_f64(), &[1.0, -2.0], "type {kind}");
        }
        assert_eq!(&*tensor(&raw(2, &[2], &[1, 254]), &Files::default()).unwrap().to_f64(), &[1.0, 254.0]);
        assert_eq!(
            tensor(&raw(9, &[2], &[0, 2]), &Files::default()).unwrap().data(),
            &vec![false, true].into()
        );
    }

    #[test]
    fn typed_lists_hold_half_precision_as_bits() {
        let proto =
            TensorProto { dims: vec![2], data_type: 10, int32s: vec![0x3c00, 0xc000], ..Default::default() };
        assert_eq!(&*tensor(&proto, &Files::default()).unwrap().to_f32(), &[1.0, -2.0]);
    }

    #[test]
    fn sizes_that_do_not_fit_the_shape_are_refused_before_allocating() {
        for dims in
            [&[1 << 40][..], &[1 << 31, 1 << 31], &[i64::MAX, i64::MAX], &[-1], &[3], &[0, 1 << 62, 1 << 62]]
        {
            assert!(tensor(&raw(1, dims, &[0; 8]), &Files::default()).is_err(), "{dims:?}");
            let empty = TensorProto { dims: dims.to_vec(), data_type: 1, ..Default::default() };
            assert!(tensor(&empty, &Files::default()).is_err(), "{dims:?}");
        }
    }

    fn external(entries: &[(&str, &str)]) -> TensorProto {
        TensorProto {
            dims: vec![2],
            data_type: 1,
            location: 1,
            external: entries.iter().map(|(k, v)| StringStringEntry::new(*k, *v)).collect(),
            ..TensorProto::default()
        }
    }

    #[test]
    fn external_data_is_read_from_inside_the_folder_only() {
        let folder = std::env::temp_dir().join(format!("monosplit-external-{}", std::process::id()));
        let inner = folder.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("w.data"), [0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]).unwrap();
        std::fs::write(folder.join("secret"), [0; 8]).unwrap();
        let read = |entries: &[(&str, &str)]| tensor(&external(entries), &Files::new(None, Some(&inner)));
        let good = read(&[("location", "w.data"), ("offset", "4"), ("length", "8")]).unwrap();
        assert_eq!(&*good.to_f32(), &[1.0, -2.0]);
        assert_eq!(read(&[("location", "./w.data"), ("offset", "4")]).unwrap(), good);

        let absolute = folder.join("secret").display().to_string();
        for location in ["../secret", &absolute, "x/../../secret", "..\\secret"] {
            let error = read(&[("location", location)]).unwrap_err();
            assert!(error.to_string().contains("outside"), "{error}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.join("secret"), inner.join("link")).unwrap();
            let error = read(&[("location", "link")]).unwrap_err();
            assert!(error.to_string().contains("outside"), "{error}");
        }
        for entries in [
            &[("location", "absent"), ("length", "8")][..],
            &[("location", "w.data"), ("offset", "8"), ("length", "8")],
            &[("location", "w.data"), ("offset", "18446744073709551615"), ("length", "8")],
            &[("location", "w.data"), ("length", "12")],
            &[("location", "w.data"), ("offset", "-1")],
            &[("location", ".")],
            &[("offset", "0")],
        ] {
            assert!(read(entries).is_err(), "{entries:?}");
        }
        assert!(tensor(&external(&[("location", "w.data")]), &Files::default()).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

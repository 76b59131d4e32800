//! The elements of a tensor in a file: stored as bytes, as typed lists or in a file of their own, in any of
//! ONNX's number types. Sizes are checked against the file before anything is allocated.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use super::model::TensorProto;
use crate::error::{Error, Result};
use crate::half::{bf16_to_f32, f16_to_f32};
use crate::tensor::{Data, Kind, Tensor, element_count};

/// ONNX's number types that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataType {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl DataType {
    /// The type with this number in ONNX's list.
    pub(crate) fn from_number(number: i64) -> Result<Self> {
        Ok(match number {
            1 => DataType::F32,
            2 => DataType::U8,
            3 => DataType::I8,
            4 => DataType::U16,
            5 => DataType::I16,
            6 => DataType::I32,
            7 => DataType::I64,
            9 => DataType::Bool,
            10 => DataType::F16,
            11 => DataType::F64,
            12 => DataType::U32,
            13 => DataType::U64,
            16 => DataType::Bf16,
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

    /// The kind of number it becomes.
    pub(crate) fn kind(self) -> Kind {
        match self {
            DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16 => Kind::Float,
            DataType::Bool => Kind::Bool,
            _ => Kind::Int,
        }
    }

    fn size(self) -> usize {
        match self {
            DataType::F64 | DataType::I64 | DataType::U64 => 8,
            DataType::F32 | DataType::I32 | DataType::U32 => 4,
            DataType::F16 | DataType::Bf16 | DataType::I16 | DataType::U16 => 2,
            DataType::I8 | DataType::U8 | DataType::Bool => 1,
        }
    }
}

/// The tensor a message describes; `folder` is where files of external data lie.
pub(crate) fn tensor(proto: &TensorProto, folder: Option<&Path>) -> Result<Tensor> {
    decode(proto, folder).map_err(|e| {
        if proto.name.is_empty() {
            return e;
        }
        Error::new(e.kind(), format!("tensor '{}': {e}", proto.name))
    })
}

fn decode(proto: &TensorProto, folder: Option<&Path>) -> Result<Tensor> {
    let kind = DataType::from_number(proto.data_type)?;
    let shape = lengths(&proto.dims)?;
    let count = element_count(&shape)
        .filter(|n| n.checked_mul(kind.size()).is_some())
        .ok_or_else(|| Error::malformed(format!("the shape {shape:?} is absurd")))?;
    if proto.is_segment {
        return Err(Error::unsupported("tensors stored in segments are not supported"));
    }
    let data = if proto.is_external {
        from_bytes(kind, &external(proto, folder, count * kind.size())?)?
    } else if let Some(raw) = &proto.raw {
        expect(raw.len(), count * kind.size(), "bytes", &shape)?;
        from_bytes(kind, raw)?
    } else {
        from_lists(kind, proto, count, &shape)?
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

fn from_lists(kind: DataType, proto: &TensorProto, count: usize, shape: &[usize]) -> Result<Data> {
    let ints = || expect(proto.ints.len(), count, "elements", shape).map(|()| &proto.ints);
    let halves = |convert: fn(u16) -> f32| {
        Ok::<Data, Error>(ints()?.iter().map(|&v| convert(v as u16)).collect::<Vec<_>>().into())
    };
    match kind {
        DataType::F32 => {
            expect(proto.floats.len(), count, "elements", shape)?;
            Ok(proto.floats.clone().into())
        }
        DataType::F64 => {
            expect(proto.doubles.len(), count, "elements", shape)?;
            Ok(proto.doubles.clone().into())
        }
        DataType::F16 => halves(f16_to_f32),
        DataType::Bf16 => halves(bf16_to_f32),
        DataType::Bool => Ok(ints()?.iter().map(|&v| v != 0).collect::<Vec<_>>().into()),
        DataType::U64 => {
            ints()?.iter().map(|&v| unsigned(v as u64)).collect::<Result<Vec<_>>>().map(Data::from)
        }
        _ => Ok(ints()?.clone().into()),
    }
}

fn unsigned(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| Error::unsupported(format!("the integer {value} is too large")))
}

fn words<const N: usize, T>(bytes: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&w| convert(w)).collect()
}

fn from_bytes(kind: DataType, bytes: &[u8]) -> Result<Data> {
    Ok(match kind {
        DataType::F32 => words(bytes, f32::from_le_bytes).into(),
        DataType::F64 => words(bytes, f64::from_le_bytes).into(),
        DataType::F16 => words(bytes, |w| f16_to_f32(u16::from_le_bytes(w))).into(),
        DataType::Bf16 => words(bytes, |w| bf16_to_f32(u16::from_le_bytes(w))).into(),
        DataType::I8 => words(bytes, |w| i64::from(i8::from_le_bytes(w))).into(),
        DataType::I16 => words(bytes, |w| i64::from(i16::from_le_bytes(w))).into(),
        DataType::I32 => words(bytes, |w| i64::from(i32::from_le_bytes(w))).into(),
        DataType::I64 => words(bytes, i64::from_le_bytes).into(),
        DataType::U8 => words(bytes, |w| i64::from(u8::from_le_bytes(w))).into(),
        DataType::U16 => words(bytes, |w| i64::from(u16::from_le_bytes(w))).into(),
        DataType::U32 => words(bytes, |w| i64::from(u32::from_le_bytes(w))).into(),
        DataType::U64 => {
            let wide = words(bytes, u64::from_le_bytes);
            wide.into_iter().map(unsigned).collect::<Result<Vec<_>>>()?.into()
        }
        DataType::Bool => words(bytes, |[b]: [u8; 1]| b != 0).into(),
    })
}

fn external(proto: &TensorProto, folder: Option<&Path>, expected: usize) -> Result<Vec<u8>> {
    let entry = |key: &str| proto.external.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let number = |key: &str| match entry(key) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            Error::malformed(format!("the {key} '{text}' of its external data is not a number"))
        }),
    };
    let location = entry("location").ok_or_else(|| Error::malformed("its external data has no location"))?;
    let folder = folder.ok_or_else(|| {
        Error::unsupported(format!("its data lies in the file '{location}', which was not given"))
    })?;
    let offset = number("offset")?.unwrap_or(0);
    let (mut file, size) = open_inside(folder, location)?;
    let length = match number("length")? {
        Some(length) => length,
        None => size.saturating_sub(offset),
    };
    if length != expected as u64 {
        return Err(Error::malformed(format!("needs {expected} bytes, its external data has {length}")));
    }
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(Error::malformed(format!(
            "needs {length} bytes at {offset} of '{location}', which has only {size}"
        )));
    }
    let io = |e: std::io::Error| Error::io(Path::new(location), &e);
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = vec![0; expected];
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}

fn open_inside(folder: &Path, location: &str) -> Result<(File, u64)> {
    let outside =
        || Error::malformed(format!("its external data '{location}' lies outside the model's folder"));
    let relative = Path::new(location);
    let plain = relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !plain || location.contains('\\') {
        return Err(outside());
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let missing = |e: std::io::Error| {
        Error::new(
            crate::error::ErrorKind::Io,
            format!("its external data '{location}' cannot be read beside the model: {e}"),
        )
    };
    let root = folder.canonicalize().map_err(missing)?;
    let path = root.join(relative).canonicalize().map_err(missing)?;
    if !path.starts_with(&root) {
        return Err(outside());
    }
    // Asked before it is opened: opening a pipe would wait for a writer.
    let metadata = path.metadata().map_err(missing)?;
    if !metadata.is_file() {
        return Err(Error::malformed(format!("its external data '{location}' is not a file")));
    }
    let file = File::open(&path).map_err(missing)?;
    crate::keep(&path);
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::super::model::StringStringEntry;
    use super::*;
    use std::borrow::Cow;

    fn raw(data_type: i64, dims: &[i64], bytes: &[u8]) -> TensorProto<'static> {
        TensorProto {
            dims: dims.to_vec(),
            data_type,
            raw: Some(Cow::Owned(bytes.to_vec())),
            ..TensorProto::default()
        }
    }

    #[test]
    fn every_number_type_is_read_from_bytes() {
        let one_and_minus_two: [(i64, &[u8]); 8] = [
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
            let t = tensor(&raw(kind, &[2], bytes), None).unwrap();
            assert_eq!(&*t.to_f64(), &[1.0, -2.0], "type {kind}");
        }
        assert_eq!(&*tensor(&raw(2, &[2], &[1, 254]), None).unwrap().to_f64(), &[1.0, 254.0]);
        assert_eq!(tensor(&raw(9, &[2], &[0, 2]), None).unwrap().data(), &vec![false, true].into());
    }

    #[test]
    fn typed_lists_hold_half_precision_as_bits() {
        let proto =
            TensorProto { dims: vec![2], data_type: 10, ints: vec![0x3c00, 0xc000], ..Default::default() };
        assert_eq!(&*tensor(&proto, None).unwrap().to_f32(), &[1.0, -2.0]);
    }

    #[test]
    fn sizes_that_do_not_fit_the_shape_are_refused_before_allocating() {
        for dims in
            [&[1 << 40][..], &[1 << 31, 1 << 31], &[i64::MAX, i64::MAX], &[-1], &[3], &[0, 1 << 62, 1 << 62]]
        {
            assert!(tensor(&raw(1, dims, &[0; 8]), None).is_err(), "{dims:?}");
            let empty = TensorProto { dims: dims.to_vec(), data_type: 1, ..Default::default() };
            assert!(tensor(&empty, None).is_err(), "{dims:?}");
        }
    }

    fn external(entries: &[(&str, &str)]) -> TensorProto<'static> {
        TensorProto {
            dims: vec![2],
            data_type: 1,
            is_external: true,
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
        let read = |entries: &[(&str, &str)]| tensor(&external(entries), Some(&inner));
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
        assert!(tensor(&external(&[("location", "w.data")]), None).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

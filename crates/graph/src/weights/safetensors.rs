//! The safetensors format: the length of a JSON header, the header, and the tensors end to end. Types and the checks of
//! offsets are those of the crate `safetensors`. Its reader is not used: of a name that occurs twice it takes the last,
//! which the format forbids, and tensors without elements come in another order with every run.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::MAX_TENSORS;
use crate::element::{ByteOrder, Element, MAX_RANK};
use crate::tensor::{Data, element_count};
use crate::{Error, FileBytes, Result, Tensor, shown};

/// The longest header the format allows.
const MAX_HEADER: usize = 100_000_000;

/// The key of the properties, which no tensor can have.
const PROPERTIES: &str = "__metadata__";

/// Whether `bytes` start like a safetensors file.
pub(super) fn is_safetensors(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'{') && split(bytes).is_ok()
}

/// Named tensors, and the properties of their file.
type Contents = (Vec<(String, Tensor)>, Vec<(String, String)>);

/// The tensors of a safetensors file, in the order of its header, and its properties by name.
pub(super) fn read(bytes: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Contents> {
    let (header, data) = split(bytes)?;
    // A copy: who writes to a mapped file must not change a text that was checked.
    let header = header.to_vec();
    let header: Header = serde_json::from_slice(&header)
        .map_err(|error| Error::malformed(format!("the safetensors header: {error}")))?;
    check_cover(&header.tensors, data.len())?;
    let tensors: Result<Vec<(String, Tensor)>> = header
        .tensors
        .into_iter()
        .map(|(name, info)| {
            let read = tensor(info, data, file);
            let tensor = read.map_err(|error| error.context(format!("tensor '{}'", shown(&name))))?;
            Ok((name, tensor))
        })
        .collect();
    Ok((tensors?, header.properties.into_iter().collect()))
}

/// The bytes of a safetensors file.
pub(super) fn write<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a Tensor)>,
    properties: &[(String, String)],
) -> Result<Vec<u8>> {
    let mut header = Header { properties: properties.iter().cloned().collect(), tensors: Vec::new() };
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        if name == PROPERTIES {
            return Err(Error::argument(format!("no tensor can have the name '{PROPERTIES}'")));
        }
        let start = data.len();
        data.extend_from_slice(&tensor.data().to_le_bytes());
        let dtype = dtype(tensor.data());
        let info = TensorInfo { dtype, shape: tensor.shape().to_vec(), data_offsets: (start, data.len()) };
        header.tensors.push((name.to_owned(), info));
    }
    let mut header = serde_json::to_vec(&header)
        .map_err(|error| Error::argument(format!("the header of a safetensors file: {error}")))?;
    // The tensors begin at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() > MAX_HEADER {
        return Err(Error::argument("the names of the tensors take more room than the format has"));
    }
    Ok([&(header.len() as u64).to_le_bytes()[..], &header, &data].concat())
}

fn dtype(elements: &Data) -> Dtype {
    match elements {
        Data::F32(_) => Dtype::F32,
        Data::F64(_) => Dtype::F64,
        Data::I64(_) => Dtype::I64,
        Data::Bool(_) => Dtype::BOOL,
    }
}

fn split(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let (length, rest) =
        bytes.split_first_chunk().ok_or_else(|| Error::malformed("the file is shorter than 8 bytes"))?;
    let length = u64::from_le_bytes(*length);
    let split = usize::try_from(length).ok().filter(|&length| length <= MAX_HEADER);
    split.and_then(|length| rest.split_at_checked(length)).ok_or_else(|| {
        Error::malformed(format!(
            "the header claims {length} bytes, the file has {}: it is truncated or no safetensors file",
            bytes.len()
        ))
    })
}

/// The header: a JSON object of the properties and the tensors.
struct Header {
    properties: BTreeMap<String, String>,
    tensors: Vec<(String, TensorInfo)>,
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.properties.is_empty() {
            map.serialize_entry(PROPERTIES, &self.properties)?;
        }
        for (name, info) in &self.tensors {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Header, A::Error> {
        let mut header = Header { properties: BTreeMap::new(), tensors: Vec::new() };
        let mut seen = HashSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("two entries are named '{}'", shown(&name))));
            }
            if name == PROPERTIES {
                header.properties = entries.next_value()?;
                continue;
            }
            if header.tensors.len() == MAX_TENSORS {
                return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
            }
            let info = entries.next_value();
            let info =
                info.map_err(|error| A::Error::custom(format!("tensor '{}': {error}", shown(&name))))?;
            header.tensors.push((name, info));
        }
        Ok(header)
    }
}

fn tensor(info: TensorInfo, data: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Tensor> {
    if info.shape.len() > MAX_RANK {
        return Err(Error::malformed(format!("it has more than {MAX_RANK} axes")));
    }
    let element = element(info.dtype)?;
    let (start, end) = info.data_offsets;
    let size = element_count(&info.shape).and_then(|count| count.checked_mul(element.width()));
    match data.get(start..end) {
        Some(bytes) if Some(bytes.len()) == size => {
            Tensor::new(info.shape, element.read(bytes, ByteOrder::Little, file)?)
        }
        _ => Err(Error::malformed(format!(
            "bytes {start} to {end} of the data cannot hold {} numbers of shape {:?}",
            element.name(),
            info.shape
        ))),
    }
}

/// Tensors must cover the data exactly: neither holes that could hide something nor overlaps that multiply.
fn check_cover(tensors: &[(String, TensorInfo)], length: usize) -> Result<()> {
    let mut sorted = tensors.to_vec();
    sorted.sort_by_key(|(_, info)| info.data_offsets);
    let covered = sorted.last().map_or(0, |(_, info)| info.data_offsets.1);
    Metadata::new(None, sorted).map_err(|error| Error::malformed(error.to_string()))?;
    if covered != length {
        return Err(Error::malformed(format!(
            "the tensors take {covered} bytes, the file holds {length}: it is truncated or corrupt"
        )));
    }
    Ok(())
}

fn element(dtype: Dtype) -> Result<Element> {
    Ok(match dtype {
        Dtype::BOOL => Element::Bool,
        Dtype::I8 => Element::I8,
        Dtype::I16 => Element::I16,
        Dtype::I32 => Element::I32,
        Dtype::I64 => Element::I64,
        Dtype::U8 => Element::U8,
        Dtype::U16 => Element::U16,
        Dtype::U32 => Element::U32,
        Dtype::U64 => Element::U64,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::BF16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        other => {
            return Err(Error::unsupported(format!(
                "it holds numbers of type '{other}': convert them to float32 before saving"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Contents> {
        super::read(bytes, None)
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn a_file_written_by_hand_is_read() {
        let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},
                        "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   "#;
        let bytes = file(header, &[0, 0, 0x80, 0x3f, 3, 255]);
        assert!(is_safetensors(&bytes));
        let expected =
            [("b".to_owned(), Tensor::vector(vec![3i64, 255])), ("a".to_owned(), Tensor::scalar(1f32))];
        assert_eq!(read(&bytes).unwrap(), (expected.to_vec(), vec![("format".to_owned(), "pt".to_owned())]));
    }

    #[test]
    fn what_is_written_reads_back() {
        let tensors = vec![
            (
                "weights \"of\" \\ a\nlayer, größe".to_owned(),
                Tensor::new([2, 1], vec![1.5f32, -0.0]).unwrap(),
            ),
            ("steps".to_owned(), Tensor::scalar(i64::MIN)),
            ("mask".to_owned(), Tensor::vector(vec![true, false, true])),
            ("none".to_owned(), Tensor::new([0, 3], Vec::<f64>::new()).unwrap()),
            ("double".to_owned(), Tensor::scalar(f64::MIN_POSITIVE)),
        ];
        let properties = vec![("settings".to_owned(), "a = \"1\"\n\tb = 2".to_owned())];
        let bytes = write(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)), &properties).unwrap();
        assert!(is_safetensors(&bytes));
        assert_eq!(read(&bytes).unwrap(), (tensors, properties));
        assert_eq!(read(&write([].into_iter(), &[]).unwrap()).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn headers_that_do_not_fit_the_data_are_refused() {
        let tensor = |dtype: &str, shape: &str, start: u64, end: u64| {
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}}}"#)
        };
        for header in [
            tensor("F32", "[2]", 0, 4),
            tensor("F32", "[1]", 0, 8),
            tensor("F32", "[1]", 2, 6),
            tensor("F32", "[1]", 4, 0),
            tensor("F32", "[18446744073709551615,2]", 0, 4),
            tensor("F32", "[4611686018427387905]", 0, 4),
            tensor("F32", "[1.0]", 0, 4),
            tensor("F8_E4M3", "[4]", 0, 4),
            tensor("F32", &format!("[{}1]", "1,".repeat(64)), 0, 4),
            r#"{"a":{"dtype":"F32","shape":[1]}}"#.to_owned(),
            r#"{"a":[]}"#.to_owned(),
            r#"[]"#.to_owned(),
            r#"{"a":{"dtype":"X7","shape":[1],"data_offsets":[0,4]}}"#.to_owned(),
            r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,4]}}"#.to_owned(),
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},}"#.to_owned(),
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#
                .to_owned(),
            format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)),
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#
                .to_owned(),
        ] {
            assert!(read(&file(&header, &[0; 4])).is_err(), "{header}");
        }
        assert!(read(&file(&tensor("F32", "[1]", 0, 4), &[0; 4])).is_ok());
    }

    #[test]
    fn a_file_of_very_many_tensors_is_refused_at_once() {
        let names = 0..3 * MAX_TENSORS;
        let tensors: Vec<String> =
            names.map(|i| format!(r#""t{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#)).collect();
        let entries = |count: usize| file(&format!("{{{}}}", tensors[..count].join(",")), &[]);
        assert_eq!(read(&entries(MAX_TENSORS)).unwrap().0.len(), MAX_TENSORS);
        let error = read(&entries(tensors.len())).unwrap_err().to_string();
        assert!(error.contains("more than 65536 tensors"), "{error}");
    }

    #[test]
    fn a_header_longer_than_the_file_is_refused() {
        for length in [9u64, 1 << 40, u64::MAX] {
            let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
            assert!(read(&bytes).is_err() && !is_safetensors(&bytes));
        }
    }
}

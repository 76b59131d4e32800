//! The safetensors format: the length of a JSON header, the header, and the tensors end to end.

use std::sync::Arc;

use super::global::shown;
use super::json::Json;
use crate::element::{ByteOrder, Element, MAX_RANK};
use crate::tensor::{Data, element_count};
use crate::{Error, FileBytes, Result, Tensor};

/// The longest header the format allows.
const MAX_HEADER: usize = 100_000_000;

/// Whether `bytes` start like a safetensors file.
pub(super) fn is_safetensors(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'{') && split(bytes).is_ok()
}

/// Named tensors, and the properties of their file.
type Contents = (Vec<(String, Tensor)>, Vec<(String, String)>);

/// The tensors of a safetensors file, in the order of its header, and the texts of its metadata.
pub(super) fn read(bytes: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Contents> {
    let (header, data) = split(bytes)?;
    // A copy: who writes to a mapped file must not change a text that was checked.
    let header =
        String::from_utf8(header.to_vec()).map_err(|_| Error::malformed("the header is not UTF-8"))?;
    let Json::Object(entries) = Json::read(&header)? else {
        return Err(Error::malformed("the header is not a JSON object"));
    };
    let mut records = Vec::with_capacity(entries.len());
    let mut properties = Vec::new();
    for (name, description) in entries {
        if name == "__metadata__" {
            properties = texts(description);
        } else {
            let record = Record::read(description).map_err(|error| about(&name, &error))?;
            records.push((name, record));
        }
    }
    check_cover(&records, data.len())?;
    let tensors: Result<Vec<(String, Tensor)>> = records
        .into_iter()
        .map(|(name, record)| {
            let tensor = record.tensor(data, file).map_err(|error| about(&name, &error))?;
            Ok((name, tensor))
        })
        .collect();
    Ok((tensors?, properties))
}

fn texts(metadata: Json) -> Vec<(String, String)> {
    let Json::Object(entries) = metadata else { return Vec::new() };
    let text = |(key, value)| match value {
        Json::Text(text) => Some((key, text)),
        _ => None,
    };
    entries.into_iter().filter_map(text).collect()
}

/// The bytes of a safetensors file.
pub(super) fn write<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a Tensor)>,
    properties: &[(String, String)],
) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    if !properties.is_empty() {
        let texts: Vec<String> =
            properties.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
        entries.push(format!("\"__metadata__\":{{{}}}", texts.join(",")));
    }
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        if name == "__metadata__" {
            return Err(Error::argument("no tensor can have the name '__metadata__'"));
        }
        let start = data.len();
        let kind = encode(tensor.data(), &mut data);
        entries.push(format!(
            "{}:{{\"dtype\":\"{kind}\",\"shape\":{:?},\"data_offsets\":[{start},{}]}}",
            quoted(name),
            tensor.shape(),
            data.len()
        ));
    }
    let mut header = format!("{{{}}}", entries.join(","));
    // The tensors begin at a multiple of eight bytes.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    if header.len() > MAX_HEADER {
        return Err(Error::argument("the names of the tensors take more room than the format has"));
    }
    Ok([&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat())
}

/// Appends the elements, little end first; the name of their type.
fn encode(elements: &Data, bytes: &mut Vec<u8>) -> &'static str {
    match elements {
        Data::F32(elements) => {
            bytes.extend(elements.iter().flat_map(|v| v.to_le_bytes()));
            "F32"
        }
        Data::F64(elements) => {
            bytes.extend(elements.iter().flat_map(|v| v.to_le_bytes()));
            "F64"
        }
        Data::I64(elements) => {
            bytes.extend(elements.iter().flat_map(|v| v.to_le_bytes()));
            "I64"
        }
        Data::Bool(elements) => {
            bytes.extend(elements.iter().map(|&v| u8::from(v)));
            "BOOL"
        }
    }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if (c as u32) < 0x20 => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
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

struct Record {
    element: Element,
    shape: Vec<usize>,
    start: usize,
    end: usize,
}

impl Record {
    fn read(description: Json) -> Result<Self> {
        let malformed = || {
            Error::malformed(
                "its description is not {\"dtype\": …, \"shape\": […], \"data_offsets\": [start, end]}",
            )
        };
        let Json::Object(fields) = description else { return Err(malformed()) };
        let (mut element, mut shape, mut offsets) = (None, None, None);
        for (key, value) in fields {
            match (&*key, value) {
                ("dtype", Json::Text(name)) => element = Some(element_named(&name)?),
                ("shape", Json::Array(items)) => shape = Some(numbers(items).ok_or_else(malformed)?),
                ("data_offsets", Json::Array(items)) => offsets = Some(numbers(items).ok_or_else(malformed)?),
                _ => return Err(malformed()),
            }
        }
        match (element, shape, offsets.as_deref()) {
            (Some(element), Some(shape), Some(&[start, end])) if shape.len() <= MAX_RANK => {
                Ok(Record { element, shape, start, end })
            }
            _ => Err(malformed()),
        }
    }

    fn tensor(&self, data: &[u8], file: Option<&Arc<FileBytes>>) -> Result<Tensor> {
        let size = element_count(&self.shape).and_then(|count| count.checked_mul(self.element.width()));
        match data.get(self.start..self.end) {
            Some(bytes) if Some(bytes.len()) == size => {
                Tensor::new(self.shape.clone(), self.element.read(bytes, ByteOrder::Little, file)?)
            }
            _ => Err(Error::malformed(format!(
                "bytes {} to {} of the data cannot hold shape {:?} of {:?}",
                self.start, self.end, self.shape, self.element
            ))),
        }
    }
}

/// Tensors must cover the data exactly: neither holes that could hide something nor overlaps that multiply.
fn check_cover(records: &[(String, Record)], length: usize) -> Result<()> {
    let mut ranges: Vec<(usize, usize)> =
        records.iter().map(|(_, record)| (record.start, record.end)).collect();
    ranges.sort_unstable();
    let mut covered = 0;
    for (start, end) in ranges {
        if start != covered || end < start {
            return Err(Error::malformed(format!(
                "the tensors leave a hole or overlap at byte {covered} of the data"
            )));
        }
        covered = end;
    }
    if covered != length {
        return Err(Error::malformed(format!(
            "the tensors take {covered} bytes, the file holds {length}: it is truncated or corrupt"
        )));
    }
    Ok(())
}

fn numbers(items: Vec<Json>) -> Option<Vec<usize>> {
    items
        .into_iter()
        .map(|item| match item {
            Json::Number(number) => usize::try_from(number).ok(),
            _ => None,
        })
        .collect()
}

fn element_named(name: &str) -> Result<Element> {
    Ok(match name {
        "BOOL" => Element::Bool,
        "I8" => Element::I8,
        "I16" => Element::I16,
        "I32" => Element::I32,
        "I64" => Element::I64,
        "U8" => Element::U8,
        "U16" => Element::U16,
        "U32" => Element::U32,
        "U64" => Element::U64,
        "F16" => Element::F16,
        "BF16" => Element::BF16,
        "F32" => Element::F32,
        "F64" => Element::F64,
        _ => {
            return Err(Error::unsupported(format!(
                "it holds numbers of type '{}': convert them to float32 before saving",
                shown(name)
            )));
        }
    })
}

fn about(name: &str, error: &Error) -> Error {
    error.clone().context(format!("tensor '{}'", shown(name)))
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
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#
                .to_owned(),
        ] {
            assert!(read(&file(&header, &[0; 4])).is_err(), "{header}");
        }
        assert!(read(&file(&tensor("F32", "[1]", 0, 4), &[0; 4])).is_ok());
    }

    #[test]
    fn a_header_longer_than_the_file_is_refused() {
        for length in [9u64, 1 << 40, u64::MAX] {
            let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
            assert!(read(&bytes).is_err() && !is_safetensors(&bytes));
        }
    }
}

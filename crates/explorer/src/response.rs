//! What a session answers: a header in JSON and arrays beside it.

use serde_json::{Map, Value, json};

use monosplit::Error;
use monosplit::graph::shortened;

/// The longest error in characters: names from files may be of any length.
const LONGEST_ERROR: usize = 600;

/// An answer. The header has the fields of the answer, or `error` with one line that says what is wrong.
#[derive(Clone, Debug, Default)]
pub struct Response {
    header: Map<String, Value>,
    arrays: Vec<Array>,
}

/// An array of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its name, by which the header speaks of it.
    pub name: String,
    /// Its lengths, the last axis fastest.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Values,
}

/// The values of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Real numbers.
    F32(Vec<f32>),
    /// Bytes: pixels or the content of a file.
    U8(Vec<u8>),
}

impl Values {
    fn kind(&self) -> &'static str {
        match self {
            Values::F32(_) => "f32",
            Values::U8(_) => "u8",
        }
    }

    fn byte_count(&self) -> usize {
        match self {
            Values::F32(values) => 4 * values.len(),
            Values::U8(values) => values.len(),
        }
    }
}

impl Response {
    /// An answer with these fields; what is no object has none.
    pub fn new(fields: Value) -> Self {
        let header = match fields {
            Value::Object(header) => header,
            _ => Map::new(),
        };
        Response { header, arrays: Vec::new() }
    }

    /// The answer to a request that failed.
    pub fn failure(error: &Error) -> Self {
        let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Response::new(json!({ "error": shortened(&line, LONGEST_ERROR), "kind": error.kind().name() }))
    }

    /// Adds a field.
    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.header.insert(field.to_owned(), value.into());
    }

    /// Adds an array.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, shape: impl Into<Vec<usize>>, values: Values) -> Self {
        self.add(name, shape, values);
        self
    }

    /// Adds an array.
    pub fn add(&mut self, name: impl Into<String>, shape: impl Into<Vec<usize>>, values: Values) {
        self.arrays.push(Array { name: name.into(), shape: shape.into(), values });
    }

    /// The header.
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }

    /// The arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// What went wrong, where the request failed.
    pub fn error(&self) -> Option<&str> {
        self.header.get("error").and_then(Value::as_str)
    }

    /// The answer as bytes: the length of the header as a little-endian `u32`, the header with an entry for each array
    /// (`arrays`: name, kind, shape, and where it starts), then the arrays. Arrays start at multiples of four bytes, counted
    /// from the first byte behind the header, which is padded with spaces.
    pub fn encode(&self) -> Vec<u8> {
        let mut described = Vec::new();
        let mut end = 0;
        for array in &self.arrays {
            let bytes = array.values.byte_count();
            described.push(json!({
                "name": array.name, "kind": array.values.kind(), "shape": array.shape, "start": end, "bytes": bytes,
            }));
            end += bytes.next_multiple_of(4);
        }
        let mut header = self.header.clone();
        header.insert("arrays".to_owned(), Value::Array(described));
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(4), b' ');
        let mut bytes = Vec::with_capacity(4 + text.len() + end);
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
        for array in &self.arrays {
            match &array.values {
                Values::F32(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
                Values::U8(values) => bytes.extend(values),
            }
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

impl From<Error> for Response {
    fn from(error: Error) -> Self {
        Response::failure(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what [`Response::encode`] wrote as the page does.
    #[test]
    fn arrays_are_where_the_header_says() {
        let response = Response::new(json!({"title": "α"}))
            .with("picture", [3], Values::U8(vec![1, 2, 3]))
            .with("map", [1, 2], Values::F32(vec![0.5, -1.0]));
        let bytes = response.encode();
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
        assert_eq!(header["title"], "α");
        let map = &header["arrays"][1];
        let start = 4 + length + map["start"].as_u64().unwrap() as usize;
        assert_eq!(start % 4, 0);
        assert_eq!(bytes[start..start + 4], 0.5f32.to_le_bytes());
        assert_eq!(
            bytes[start + 4..start + map["bytes"].as_u64().unwrap() as usize],
            (-1.0f32).to_le_bytes()
        );
    }
}

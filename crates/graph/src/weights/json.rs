//! Strict JSON, as far as a safetensors header uses it: objects, arrays, texts and non-negative integers.

use std::collections::HashSet;

use crate::{Error, Result};

/// A header nests three deep.
const MAX_DEPTH: usize = 8;

/// A JSON value.
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    Text(String),
    Number(u64),
}

impl Json {
    /// Reads the one value `text` holds.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        match parser.peek() {
            None => Ok(value),
            Some(_) => Err(parser.unexpected("the end")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > MAX_DEPTH {
            return Err(Error::malformed(format!("the JSON header nests more than {MAX_DEPTH} deep")));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("an object, an array, a text or a non-negative integer")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        if !self.accept(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.unexpected("a key"));
                }
                let key = self.string()?;
                if !seen.insert(key.clone()) {
                    return Err(self.unexpected("a key that did not occur before"));
                }
                self.expect(b':')?;
                entries.push((key, self.value(depth + 1)?));
                if !self.accept(b',') {
                    break;
                }
            }
            self.expect(b'}')?;
        }
        Ok(Json::Object(entries))
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        if !self.accept(b']') {
            loop {
                items.push(self.value(depth + 1)?);
                if !self.accept(b',') {
                    break;
                }
            }
            self.expect(b']')?;
        }
        Ok(Json::Array(items))
    }

    fn number(&mut self) -> Result<Json> {
        let rest = &self.text[self.at..];
        let digits = &rest[..rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())];
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(self.unexpected("a number without leading zeros"));
        }
        let number = digits.parse().map_err(|_| self.unexpected("a number below 2^64"))?;
        self.at += digits.len();
        Ok(Json::Number(number))
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            string.push_str(&rest[..plain]);
            self.at += plain;
            match rest.as_bytes().get(plain) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                _ => return Err(self.unexpected("the end of a text")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let kind = self.text.as_bytes().get(self.at + 1).copied();
        let plain = match kind {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("an escape of JSON")),
        };
        self.at += 2;
        Ok(plain)
    }

    /// `\uXXXX`, or two of them that make one character outside of the basic plane.
    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.code_unit()?;
        let mut units = vec![first];
        if (0xd800..0xdc00).contains(&first) {
            units.push(self.code_unit()?);
        }
        match char::decode_utf16(units).next() {
            Some(Ok(character)) => Ok(character),
            _ => Err(self.unexpected("a pair of surrogates")),
        }
    }

    fn code_unit(&mut self) -> Result<u16> {
        let digits =
            self.text.get(self.at..).and_then(|rest| rest.strip_prefix("\\u")).and_then(|rest| rest.get(..4));
        let unit = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = unit.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.unexpected("four hexadecimal digits after \\u"))?;
        self.at += 6;
        Ok(unit)
    }

    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn accept(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        if self.accept(wanted) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", char::from(wanted)))) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        Error::malformed(format!("expected {wanted} at byte {} of the JSON header", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_escapes_are_read() {
        let read =
            Json::read(" {\"a\\n\\u00e9\\ud83d\\ude00\": [0, 18446744073709551615], \"é\": {}} ").unwrap();
        let numbers = Json::Array(vec![Json::Number(0), Json::Number(u64::MAX)]);
        let expected = vec![("a\né😀".to_owned(), numbers), ("é".to_owned(), Json::Object(vec![]))];
        assert_eq!(read, Json::Object(expected));
    }

    #[test]
    fn what_is_not_strict_json_is_refused() {
        for text in [
            "",
            "{",
            "{]",
            "[1,]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "[01]",
            "[-1]",
            "[1.5]",
            "[1e3]",
            "[18446744073709551616]",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\n\"",
            "[] []",
            "{\"a\":1,\"a\":2}",
            "null",
            "'a'",
            "\"\\u12é\"",
        ] {
            assert!(Json::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(Json::read(&"[".repeat(1 << 20)).is_err());
    }
}

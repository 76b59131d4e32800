//! A table of a description, read key by key. Keys that are left at the end are unknown; the error suggests the closest
//! known key.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use monosplit_graph::options::closest;
use monosplit_graph::{Error, Result};

use super::value::{SourceLocation, Value, ValueKind};

/// A table and the keys that were read.
pub(super) struct Section<'a> {
    value: &'a Value,
    path: String,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn root(value: &'a Value) -> Self {
        Section { value, path: String::new(), asked: RefCell::default() }
    }

    pub(super) fn location(&self) -> &SourceLocation {
        &self.value.location
    }

    fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(key);
        self.value.get(key)
    }

    fn named(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An error about a key.
    pub(super) fn error(&self, key: &str, description: impl std::fmt::Display) -> Error {
        let location = self.value.get(key).map_or(&self.value.location, |value| &value.location);
        location.error(format!("{}: {description}", self.named(key)))
    }

    /// An error about the text of a key.
    pub(super) fn about(&self, key: &str, text: &str, error: &Error) -> Error {
        let location = self.value.get(key).map_or(&self.value.location, |value| &value.location);
        location.error(format!("{} \"{text}\": {error}", self.named(key)))
    }

    fn wrong(&self, key: &str, expected: &str, found: &Value) -> Error {
        found.location.error(format!(
            "{}: expected {expected}, found {}",
            self.named(key),
            found.kind.description()
        ))
    }

    /// Whether a key is given. It counts as read.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// A text, if given.
    pub(super) fn text(&self, key: &'static str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value { kind: ValueKind::Text(text), .. }) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, "a text", other)),
        }
    }

    /// A required text.
    pub(super) fn needed(&self, key: &'static str, what: &str) -> Result<String> {
        self.text(key)?.ok_or_else(|| self.missing(key, what))
    }

    /// A required list of at least one text.
    pub(super) fn needed_texts(&self, key: &'static str, what: &str) -> Result<Vec<String>> {
        match self.texts(key)? {
            None => Err(self.missing(key, what)),
            Some(none) if none.is_empty() => {
                Err(self.error(key, format!("expected {what}, found an empty list")))
            }
            Some(texts) => Ok(texts),
        }
    }

    /// An error about a missing key. It suggests an unknown key that may be a misspelling of it.
    pub(super) fn missing(&self, key: &str, what: &str) -> Error {
        match self.misspelt(key) {
            Some((found, value)) => value.location.error(format!(
                "{}: there is no such key; did you mean '{key}'? It is needed: expected {what}",
                self.named(found)
            )),
            None => self.error(key, format!("expected {what}, found nothing")),
        }
    }

    /// An unread key that may be a misspelling of `key`.
    fn misspelt(&self, key: &str) -> Option<(&'a str, &'a Value)> {
        let ValueKind::Table(table) = &self.value.kind else { return None };
        let asked = self.asked.borrow();
        let others = table.iter().filter(|(other, _)| !asked.contains(&other.as_str()));
        others.map(|(other, value)| (&**other, value)).find(|(other, _)| !closest(other, &[key]).is_empty())
    }

    /// A file or folder, relative to the file of the key.
    pub(super) fn path(&self, key: &'static str) -> Result<Option<PathBuf>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        Ok(Some(self.folder(key).join(text)))
    }

    /// Files by names that the user chose, relative to the file of the key.
    pub(super) fn paths_by_name(&self, key: &'static str) -> Result<Vec<(String, PathBuf)>> {
        let Some(inner) = self.section(key)? else { return Ok(Vec::new()) };
        let ValueKind::Table(table) = &inner.value.kind else { return Ok(Vec::new()) };
        let path = |(name, value): &(String, Value)| match &value.kind {
            ValueKind::Text(text) => Ok((name.clone(), inner.folder(name).join(text))),
            _ => Err(inner.wrong(name, "a file", value)),
        };
        table.iter().map(path).collect()
    }

    /// The folder of the file that has this key.
    pub(super) fn folder(&self, key: &str) -> PathBuf {
        let beside = self.value.get(key).and_then(|value| value.location.file.parent().map(PathBuf::from));
        beside.unwrap_or_default()
    }

    /// A whole number in a range.
    pub(super) fn count(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = match value.kind {
            ValueKind::Whole(number) => usize::try_from(number).ok().filter(|number| range.contains(number)),
            _ => None,
        };
        found.map(Some).ok_or_else(|| {
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            self.wrong(key, &expected, value)
        })
    }

    /// A truth value.
    pub(super) fn flag(&self, key: &'static str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value { kind: ValueKind::Flag(flag), .. }) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(key, "true or false", other)),
        }
    }

    /// One of several words.
    pub(super) fn one_of<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", words.join(", "));
        let ValueKind::Text(text) = &value.kind else { return Err(self.wrong(key, &expected, value)) };
        let found = choices.iter().find(|(word, _)| word == text);
        found.map(|(_, choice)| Some(*choice)).ok_or_else(|| {
            let close = closest(text, &words);
            value.location.error(format!("{}: {close}expected {expected}, found \"{text}\"", self.named(key)))
        })
    }

    /// Texts: one, or a list of them; numbers and truth values are taken as they are written.
    pub(super) fn texts(&self, key: &'static str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = match &value.kind {
            ValueKind::List(list) => list.iter().collect(),
            _ => vec![value],
        };
        let text = |value: &Value| match &value.kind {
            ValueKind::Text(text) => Ok(text.clone()),
            ValueKind::Whole(_) | ValueKind::Real(_) | ValueKind::Flag(_) => Ok(value.kind.description()),
            _ => Err(self.wrong(key, "a text or a list of texts", value)),
        };
        list.into_iter().map(text).collect::<Result<Vec<_>>>().map(Some)
    }

    /// A table inside, if given.
    pub(super) fn section(&self, key: &'static str) -> Result<Option<Section<'a>>> {
        match self.get(key) {
            None => Ok(None),
            Some(value @ Value { kind: ValueKind::Table(_), .. }) => {
                Ok(Some(Section { value, path: self.named(key), asked: RefCell::default() }))
            }
            Some(other) => Err(self.wrong(key, &format!("a table [{}]", self.named(key)), other)),
        }
    }

    /// A list of tables, empty if not given.
    pub(super) fn sections(&self, key: &'static str) -> Result<Vec<Section<'a>>> {
        let expected = format!("a list of tables, [[{}]] or {key} = [{{…}}]", self.named(key));
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let ValueKind::List(list) = &value.kind else { return Err(self.wrong(key, &expected, value)) };
        let one = |(number, value): (usize, &'a Value)| match value.kind {
            ValueKind::Table(_) => {
                let path = format!("{}[{}]", self.named(key), number + 1);
                Ok(Section { value, path, asked: RefCell::default() })
            }
            _ => Err(self.wrong(key, &expected, value)),
        };
        list.iter().enumerate().map(one).collect()
    }

    /// All keys with their texts, for tables with keys chosen by the user.
    pub(super) fn named_texts(&self) -> Result<Vec<(String, Vec<String>)>> {
        let ValueKind::Table(table) = &self.value.kind else { return Ok(Vec::new()) };
        let texts = |(key, value): &(String, Value)| {
            let wrong = |value: &Value| self.wrong(key, "a list of texts", value);
            let ValueKind::List(list) = &value.kind else { return Err(wrong(value)) };
            let text = |value: &Value| match &value.kind {
                ValueKind::Text(text) => Ok(text.clone()),
                _ => Err(wrong(value)),
            };
            Ok((key.clone(), list.iter().map(text).collect::<Result<Vec<_>>>()?))
        };
        table.iter().map(texts).collect()
    }

    /// An error if a key was not read.
    pub(super) fn finish(&self) -> Result<()> {
        let ValueKind::Table(table) = &self.value.kind else { return Ok(()) };
        let asked = self.asked.borrow();
        let Some((key, value)) = table.iter().find(|(key, _)| !asked.contains(&key.as_str())) else {
            return Ok(());
        };
        let close = closest(key, &asked);
        Err(value.location.error(format!(
            "{}: there is no such key; {close}keys here are {}",
            self.named(key),
            asked.join(", ")
        )))
    }
}

//! Options written after a name, `key=value,key=value`. Methods and metrics are configured in this form.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Error, Result};

/// Options of one method or metric, by name. Reading an option marks it; one that was never read is unknown.
#[derive(Clone, Debug, Default)]
pub struct Options {
    owner: &'static str,
    known: Vec<&'static str>,
    given: Vec<(String, String)>,
    read: Vec<String>,
    settled: Vec<(String, String)>,
}

impl Options {
    /// `key=value,key=value`
    pub fn parse(text: &str) -> Result<Self> {
        let mut options = Options::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                Error::argument(format!("expected options as key=value,key=value, found '{part}'"))
            })?;
            options.add(key, value)?;
        }
        Ok(options)
    }

    /// Adds an option that has not been given yet.
    pub fn add(&mut self, key: &str, value: &str) -> Result<()> {
        let (before, key) = (self.given.len(), key.trim());
        self.set(key, value);
        match self.given.len() > before {
            true => Ok(()),
            false => Err(Error::argument(format!("option '{key}' is given twice; give it once"))),
        }
    }

    /// Sets an option; the last value counts.
    pub fn set(&mut self, key: &str, value: &str) {
        let key = key.trim().to_ascii_lowercase().replace('_', "-");
        self.given.retain(|(known, _)| *known != key);
        self.given.push((key, value.trim().to_owned()));
    }

    /// The same options, said to be those of `owner`, which knows these keys.
    #[must_use]
    pub fn of(self, owner: &'static str, known: impl IntoIterator<Item = &'static str>) -> Self {
        Options { owner, known: known.into_iter().collect(), ..self }
    }

    /// An error if an option was given that was never read.
    pub fn all_used(&self) -> Result<()> {
        let Some((key, _)) = self.given.first() else { return Ok(()) };
        let owner = self.owner;
        Err(Error::argument(match &*self.known {
            [] => format!("{owner} has no option '{key}'; it has none"),
            known => format!(
                "{owner} has no option '{key}'; {}its options are {}",
                closest(key, known),
                known.join(", ")
            ),
        }))
    }

    /// What an option that was read came to, as a text that means the same; none if it was not read, or was not given
    /// and has no text of its own.
    pub fn settled(&self, key: &str) -> Option<&str> {
        self.settled.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Whether an option has been read, given or not.
    pub fn is_read(&self, key: &str) -> bool {
        self.read.iter().any(|known| known == key)
    }

    /// Whether an option was given.
    pub fn is_given(&self, key: &str) -> bool {
        self.given.iter().any(|(known, _)| known == key)
    }

    /// The text of an option, if given, without reading it.
    pub fn given_text(&self, key: &str) -> Option<String> {
        self.given.iter().find(|(known, _)| known == key).map(|(_, text)| text.clone())
    }

    /// The text of an option, if given.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.read.push(key.to_owned());
        let at = self.given.iter().position(|(known, _)| known == key)?;
        let text = self.given.remove(at).1;
        self.settle(key, &text);
        Some(text)
    }

    /// A number in a range.
    pub fn number(&mut self, key: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64> {
        let text = self.given.iter().find(|(known, _)| known == key).map(|(_, text)| text.clone());
        let (owner, above_zero) = (self.owner, *range.start() == f64::MIN_POSITIVE);
        let most = *range.end();
        self.within(key, default, range, "a number").map_err(|error| match text {
            // The least number above zero has more digits than anybody reads.
            Some(text) if above_zero && most == f64::MAX => {
                Error::argument(format!("{owner}: option '{key}' is a number above 0, found '{text}'"))
            }
            Some(text) if above_zero => Error::argument(format!(
                "{owner}: option '{key}' is a number above 0 and at most {most}, found '{text}'"
            )),
            _ => error,
        })
    }

    /// A whole number in a range.
    pub fn count(&mut self, key: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize> {
        self.within(key, default, range, "a whole number")
    }

    /// A seed.
    pub fn seed(&mut self) -> Result<u64> {
        self.within("seed", 0, 0..=u64::MAX, "a whole number")
    }

    fn settle(&mut self, key: &str, value: &str) {
        self.settled.retain(|(known, _)| known != key);
        self.settled.push((key.to_owned(), value.to_owned()));
    }

    fn within<T: FromStr + PartialOrd + Display>(
        &mut self,
        key: &str,
        default: T,
        range: RangeInclusive<T>,
        what: &str,
    ) -> Result<T> {
        let Some(text) = self.text(key) else {
            self.settle(key, &default.to_string());
            return Ok(default);
        };
        let value = text.parse::<T>().ok().filter(|value| range.contains(value));
        if let Some(value) = &value {
            self.settle(key, &value.to_string());
        }
        value.ok_or_else(|| {
            let (owner, low, high) = (self.owner, range.start(), range.end());
            Error::argument(format!("{owner}: option '{key}' is {what} from {low} to {high}, found '{text}'"))
        })
    }

    /// One of several words.
    pub fn one_of<T: Copy>(&mut self, key: &str, default: T, choices: &[(&str, T)]) -> Result<T> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let found = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
        if let Some((word, _)) = found {
            self.settle(key, word);
        }
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            Error::argument(format!(
                "{}: option '{key}' is one of {}, found '{text}'",
                self.owner,
                words.join(", ")
            ))
        })
    }

    /// Yes or no.
    pub fn flag(&mut self, key: &str, default: bool) -> Result<bool> {
        self.one_of(key, default, &[("yes", true), ("no", false), ("true", true), ("false", false)])
    }
}

impl Display for Options {
    /// What was given, in the order of the alphabet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut given: Vec<String> = self.given.iter().map(|(key, value)| format!("{key}={value}")).collect();
        given.sort();
        f.write_str(&given.join(","))
    }
}

/// `did you mean 'x'? ` where a name is close, else nothing.
pub fn closest(wanted: &str, names: &[&str]) -> String {
    let best = names.iter().map(|name| (strsim::levenshtein(wanted, name), name)).min();
    match best {
        Some((apart, name)) if apart <= 1 + wanted.chars().count() / 4 => format!("did you mean '{name}'? "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        let mut options = Options::parse("steps=0").unwrap();
        let refused = options.count("steps", 50, 1..=1000).unwrap_err().to_string();
        assert!(refused.contains("from 1 to 1000") && refused.contains("'0'"), "{refused}");
        let mut options = Options::parse("open=0").unwrap();
        let refused = options.number("open", 0.5, f64::MIN_POSITIVE..=1.0).unwrap_err().to_string();
        assert!(refused.contains("above 0 and at most 1, found '0'"), "{refused}");
    }

    #[test]
    fn what_options_came_to_is_told_by_those_that_were_read() {
        let mut options = Options::parse("steps=07,how=Fast,left=1").unwrap();
        options.count("steps", 50, 1..=1000).unwrap();
        options.number("noise", 0.25, 0.0..=1.0).unwrap();
        options.one_of("how", 0, &[("slow", 0), ("fast", 1)]).unwrap();
        options.one_of("where", 0, &[("here", 0)]).unwrap();
        let settled = ["steps", "noise", "how", "where", "left"].map(|key| options.settled(key));
        assert_eq!(settled, [Some("7"), Some("0.25"), Some("fast"), None, None]);
        assert!(options.is_read("where") && !options.is_read("left"));
    }

    #[test]
    fn an_option_given_twice_is_refused() {
        assert!(
            Options::parse("file=a,seed=1,file=b").unwrap_err().to_string().contains("'file' is given twice")
        );
        assert!(Options::parse("a_b=1,A-b=1").is_err());
    }
}

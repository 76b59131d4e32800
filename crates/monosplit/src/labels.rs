//! Names of classes.

use std::path::Path;

use monosplit_graph::metadata::CLASSES;
use monosplit_graph::{Error, ErrorKind, Hint, Result, read_csv, shortened};

use crate::model::{self, Model};

/// The largest file of names that is read. That of the 21,841 classes of ImageNet has one megabyte.
const MAX_FILE: u64 = 64 << 20;

/// The longest name of a class in characters. The longest of ImageNet have 120 with all their synonyms.
const LONGEST_NAME: usize = 250;

const IMAGENET: &str = include_str!("../assets/imagenet-classes.txt");

/// The names of the classes may be given.
const LABELS: Hint = Hint::new("labels", "give its labels, or a number");
/// A prediction tells which classes there are.
const CLASSES_LIST: Hint =
    Hint::new("classes", "give the name of a class as its labels have it, or a number");

/// The names of a network's classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    names: Vec<String>,
}

impl Labels {
    /// The names in a text file, one a line and some perhaps in quotes as in CSV files, of which there must be `classes`.
    pub fn open(path: &Path, classes: usize) -> Result<Self> {
        let malformed = |said: String| Error::malformed(format!("{}: {said}", path.display()));
        let file = model::read_file(path, MAX_FILE)?;
        let text = std::str::from_utf8(&file).map_err(|_| {
            malformed("expected class names, one a line, found bytes that are no text".into())
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_end();
        // Names take more memory than their text, so they are counted first.
        let count = text.lines().count();
        if count != classes {
            return Err(malformed(format!("expected {classes} class names, one a line, found {count}")));
        }
        let names = text.lines().map(|line| bounded(&unquoted(line.trim()))).collect();
        Ok(Labels { names })
    }

    /// The names in a text, one a line.
    pub fn from_text(text: &str) -> Self {
        Labels { names: text.lines().map(|line| bounded(line.trim())).collect() }
    }

    /// The names as text, one a line.
    pub fn to_text(&self) -> String {
        self.names.join("\n")
    }

    /// What the scores of the network's target are called; without one the names in the metadata of the network's file, as
    /// files written by training have them, or else the built-in ones.
    pub fn of(model: &Model, classes: usize) -> Self {
        let target = model.target.as_ref().and_then(|target| target.names.as_ref());
        if let Some(names) = target.filter(|names| names.len() == classes) {
            return Labels { names: names.clone() };
        }
        let held = model.metadata(CLASSES).filter(|text| text.lines().count() == classes);
        held.map_or_else(|| Labels::built_in(classes), Labels::from_text)
    }

    /// The built-in names: ImageNet's for 1000 classes and, as TensorFlow's networks have them, for 1001 with `background`
    /// first; none otherwise.
    pub fn built_in(classes: usize) -> Self {
        let imagenet = IMAGENET.lines().map(str::to_owned);
        let names = match classes {
            1000 => imagenet.collect(),
            1001 => std::iter::once("background".to_owned()).chain(imagenet).collect(),
            _ => Vec::new(),
        };
        Labels { names }
    }

    /// The class of a number or a name, whatever its case; the error for an unknown name suggests similar ones.
    pub fn find(&self, text: &str, classes: usize) -> Result<usize> {
        if let Ok(class) = text.trim().parse::<usize>() {
            return match class < classes {
                true => Ok(class),
                false => Err(Error::argument(format!(
                    "there is no class {class}: the network has {classes} classes, 0 to {}",
                    classes.saturating_sub(1)
                ))),
            };
        }
        let plain = |name: &str| name.trim().to_lowercase().replace('_', " ");
        let wanted = plain(text);
        if let Some(class) = self.names.iter().position(|name| plain(name) == wanted) {
            return Ok(class);
        }
        let similar = self.names.iter().filter(|name| plain(name).contains(&wanted)).map(String::as_str);
        let similar: Vec<&str> = similar.take(5).collect();
        let unknown =
            |more: &str| Error::new(ErrorKind::UnknownName, format!("no class is called '{text}'{more}"));
        Err(match (self.names.is_empty(), similar.is_empty()) {
            (true, _) => unknown("; the network's class names are not known").hint(LABELS),
            (_, true) => unknown("").hint(CLASSES_LIST),
            _ => unknown(&format!("; did you mean '{}'?", similar.join("', '"))),
        })
    }

    /// The name of a class; its number if it has none.
    pub fn name(&self, class: usize) -> String {
        self.named(class).unwrap_or_else(|| format!("class {class}"))
    }

    /// The name of a class, if it has one.
    pub fn named(&self, class: usize) -> Option<String> {
        self.names.get(class).filter(|name| !name.is_empty()).cloned()
    }
}

/// A name without its middle where it is far longer than names are: it is printed, drawn and written into files.
fn bounded(name: &str) -> String {
    shortened(name, LONGEST_NAME).into_owned()
}

/// A name that is in quotes as a whole, without them. Others are as they are: `tench, Tinca tinca` is one name.
fn unquoted(line: &str) -> String {
    let records = if line.starts_with('"') { read_csv(line).unwrap_or_default() } else { Vec::new() };
    match &*records {
        [record] if record.cells.len() == 1 => record.cells[0].clone(),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_in_quotes() {
        for (line, name) in [
            ("tench, Tinca tinca", "tench, Tinca tinca"),
            (r#""tench, Tinca tinca""#, "tench, Tinca tinca"),
            (r#""the ""great"" white""#, r#"the "great" white"#),
            (r#""a" or "b", c"#, r#""a" or "b", c"#),
            (r#"5" pipe"#, r#"5" pipe"#),
        ] {
            assert_eq!(unquoted(line), name);
        }
    }

    #[test]
    fn issue_35_names_of_any_length_are_bounded() {
        let labels = Labels::from_text(&format!("cat\n{}\ndog", "x".repeat(1 << 20)));
        assert_eq!([0, 1, 2].map(|class| labels.name(class).chars().count()), [3, LONGEST_NAME, 3]);
    }

    /// Classes every user of ImageNet knows by number.
    #[test]
    fn imagenet_is_in_its_usual_order() {
        let labels = Labels::built_in(1000);
        assert_eq!(labels.names.len(), 1000);
        assert_eq!(
            [0, 207, 281, 999].map(|class| labels.name(class)),
            ["tench", "golden retriever", "tabby", "toilet tissue"]
        );
        assert_eq!(Labels::built_in(1001).name(282), "tabby");
        assert_eq!(Labels::built_in(37).name(3), "class 3");
    }
}

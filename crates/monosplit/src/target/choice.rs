//! The texts of targets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use monosplit_explain::{AxisIndex, Cells, Summary};
use monosplit_graph::options::closest;
use monosplit_graph::{Error, Result, read_csv};

/// The longest text that is read; paths and class names are shorter.
const MAX_TEXT: usize = 1 << 14;
/// The most indices of a cell.
const MAX_INDICES: usize = 64;

/// The kinds of targets, and how each is written.
const KINDS: [(&str, &str); 9] = [
    ("class", "class:NAME, class:top or class:top2"),
    ("contrast", "contrast:A,B"),
    ("region", "region:MASK[,class=K] or region:auto"),
    ("cell", "cell:OUTPUT[i,j,…] or cell:OUTPUT[best=K]"),
    ("sum", "sum:OUTPUT"),
    ("mean", "mean:OUTPUT"),
    ("norm", "norm:OUTPUT"),
    ("similarity", "similarity:REFERENCE"),
    ("head", "head:FILE.onnx"),
];

/// A target as it is written. Classes are numbers, names, `top` or `top2`; an output that is left out is the first.
///
/// ```
/// use monosplit::TargetChoice;
///
/// let choice: TargetChoice = "region:mask.png,class=dog".parse()?;
/// assert_eq!(choice.to_string(), "region:mask.png,class=dog");
/// assert!("cell:boxes[0,best]".parse::<TargetChoice>().is_ok());
/// assert!("region".parse::<TargetChoice>().is_err());
/// # Ok::<_, monosplit::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetChoice {
    /// The score of a class.
    Class(String),
    /// The score of a class less that of another.
    Contrast {
        /// The class.
        class: String,
        /// The other.
        against: String,
    },
    /// The sum of a class's map over a region.
    Region {
        /// The region.
        mask: MaskChoice,
        /// The class; without it the one with the largest sum.
        class: Option<String>,
        /// The output.
        output: Option<String>,
    },
    /// Some numbers of an output.
    Cell {
        /// The output.
        output: Option<String>,
        /// Which numbers.
        cells: CellChoice,
    },
    /// All numbers of an output as one.
    Summary {
        /// The output.
        output: Option<String>,
        /// How they become one.
        summary: Summary,
    },
    /// The cosine to a reference: a picture, or an array of the output's numbers.
    Similarity {
        /// The file.
        reference: PathBuf,
        /// The output.
        output: Option<String>,
    },
    /// A graph from outputs to one number for each sample.
    Head(PathBuf),
}

/// The region of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaskChoice {
    /// A picture, white inside, or an array of weights.
    File(PathBuf),
    /// Where the network itself finds the class.
    Auto,
}

/// The numbers of an output that a target takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellChoice {
    /// Those at these indices.
    At(Cells),
    /// That of the best cell of a class.
    BestOf(String),
}

impl TargetChoice {
    /// Whether it is about class scores as they are.
    pub fn is_class(&self) -> bool {
        matches!(self, TargetChoice::Class(_))
    }

    /// Whether it is about scores of classes, which are logits unless probabilities are asked for. Other targets take outputs
    /// as the network returns them.
    pub fn is_about_classes(&self) -> bool {
        matches!(self, TargetChoice::Class(_) | TargetChoice::Contrast { .. } | TargetChoice::Region { .. })
    }

    /// The file that it names.
    pub fn file(&self) -> Option<&Path> {
        match self {
            TargetChoice::Region { mask: MaskChoice::File(path), .. }
            | TargetChoice::Similarity { reference: path, .. }
            | TargetChoice::Head(path) => Some(path),
            _ => None,
        }
    }

    /// The same with file names without their folders, which say nothing of the target and may be private.
    #[must_use]
    pub fn without_folders(&self) -> Self {
        self.with_file(|path| path.file_name().map_or_else(|| path.to_owned(), PathBuf::from))
    }

    /// The same with the whole path of its file, where a relative one starts at `folder`.
    #[must_use]
    pub fn in_folder(&self, folder: &Path) -> Self {
        self.with_file(|path| {
            let path = folder.join(path);
            std::path::absolute(&path).unwrap_or(path)
        })
    }

    fn with_file(&self, bare: impl Fn(&Path) -> PathBuf) -> Self {
        match self.clone() {
            TargetChoice::Region { mask: MaskChoice::File(path), class, output } => {
                TargetChoice::Region { mask: MaskChoice::File(bare(&path)), class, output }
            }
            TargetChoice::Similarity { reference, output } => {
                TargetChoice::Similarity { reference: bare(&reference), output }
            }
            TargetChoice::Head(path) => TargetChoice::Head(bare(&path)),
            other => other,
        }
    }

    fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_TEXT {
            return Err(Error::argument(format!(
                "a target has at most {MAX_TEXT} bytes, found {}",
                text.len()
            )));
        }
        let text = text.trim();
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let (kind, rest) = (kind.trim(), rest.trim());
        let needed = |what: &str| match rest.is_empty() {
            true => Err(misread(text, &format!("expected {what} behind '{kind}:'"))),
            false => Ok(rest.to_owned()),
        };
        match kind {
            "class" => Ok(TargetChoice::Class(needed("a class")?)),
            "contrast" => contrast(text, rest),
            "region" => {
                needed("a mask, or auto,")?;
                let (file, [class, output]) = keyed(text, rest, ["class", "output"])?;
                let file = named(text, file)?;
                let mask = if file == "auto" { MaskChoice::Auto } else { MaskChoice::File(file.into()) };
                let class = class.map(|class| named(text, class)).transpose()?;
                let output = output.map(|output| named(text, output)).transpose()?;
                Ok(TargetChoice::Region { mask, class, output })
            }
            "cell" => cell(text, rest),
            "sum" | "mean" | "norm" => {
                let summary = match kind {
                    "sum" => Summary::Sum,
                    "mean" => Summary::Mean,
                    _ => Summary::Norm,
                };
                Ok(TargetChoice::Summary { output: some(rest), summary })
            }
            "similarity" => {
                needed("a picture or an array")?;
                let (file, [output]) = keyed(text, rest, ["output"])?;
                let output = output.map(|output| named(text, output)).transpose()?;
                Ok(TargetChoice::Similarity { reference: named(text, file)?.into(), output })
            }
            "head" => Ok(TargetChoice::Head(needed("an ONNX file")?.into())),
            other => {
                let names = KINDS.map(|(name, _)| name);
                let meant = closest(other, &names);
                let ways = KINDS.map(|(_, written)| written).join(", ");
                Err(misread(text, &format!("{meant}expected {ways}")))
            }
        }
    }
}

impl FromStr for TargetChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        TargetChoice::parse(text)
    }
}

impl fmt::Display for TargetChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = |output: &Option<String>| output.clone().unwrap_or_default();
        let keyed = |key: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!(",{key}={value}"))
        };
        match self {
            TargetChoice::Class(class) => write!(f, "class:{class}"),
            TargetChoice::Contrast { class, against } => {
                write!(f, "contrast:{},{}", quoted(class), quoted(against))
            }
            TargetChoice::Region { mask, class, output } => {
                match mask {
                    MaskChoice::File(path) => write!(f, "region:{}", path.display())?,
                    MaskChoice::Auto => f.write_str("region:auto")?,
                }
                write!(f, "{}{}", keyed("class", class), keyed("output", output))
            }
            TargetChoice::Cell { output: name, cells: CellChoice::At(cells) } => {
                write!(f, "cell:{}[{cells}]", output(name))
            }
            TargetChoice::Cell { output: name, cells: CellChoice::BestOf(class) } => {
                write!(f, "cell:{}[best={class}]", output(name))
            }
            TargetChoice::Summary { output: name, summary } => {
                let word = match summary {
                    Summary::Sum => "sum",
                    Summary::Mean => "mean",
                    Summary::Norm => "norm",
                };
                write!(f, "{word}:{}", output(name))
            }
            TargetChoice::Similarity { reference, output } => {
                write!(f, "similarity:{}{}", reference.display(), keyed("output", output))
            }
            TargetChoice::Head(path) => write!(f, "head:{}", path.display()),
        }
    }
}

fn misread(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    Error::argument(format!("'{shown}' is no target: {why}"))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn named(text: &str, word: &str) -> Result<String> {
    some(word.trim()).ok_or_else(|| misread(text, "a name is empty"))
}

/// A name as a cell of a CSV line.
fn quoted(name: &str) -> String {
    match name.contains([',', '"']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}

/// A text with `,KEY=VALUE` behind it, in any order; values reach to the next key. A value holds commas, but no `,WORD=`: a word
/// that is none of the keys is a mistake unless it may be a part of a file's name. `whole` is the text of the target.
fn keyed<'t, const K: usize>(
    whole: &str,
    text: &'t str,
    keys: [&str; K],
) -> Result<(&'t str, [Option<&'t str>; K])> {
    let mut found: Vec<(usize, usize, usize)> = keys
        .iter()
        .enumerate()
        .filter_map(|(key, name)| {
            let marker = format!(",{name}=");
            text.find(&marker).map(|at| (at, at + marker.len(), key))
        })
        .collect();
    found.sort_unstable();
    let end = found.first().map_or(text.len(), |&(at, ..)| at);
    let mut start = 0;
    while let Some(at) = text[start..].find(',').map(|comma| start + comma) {
        start = at + 1;
        let Some((word, _)) = text[start..].split_once('=') else { break };
        let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic() || "_ ".contains(c));
        if !is_word || found.iter().any(|&(known, ..)| known == at) {
            continue;
        }
        if found.iter().any(|&(.., key)| keys[key] == word) {
            return Err(misread(whole, &format!("'{word}' is given twice; give it once")));
        }
        let meant = closest(word, &keys);
        // A file may be called `a,b=c.png`: its ending is yet to come then.
        let name = text[..at].rsplit(['/', '\\']).next().unwrap_or_default();
        let in_file = at < end && text[at..end].contains('.') && !name.contains('.') && meant.is_empty();
        if !in_file {
            let known = keys.map(|key| format!("{key}=…")).join(" or ");
            return Err(misread(whole, &format!("'{word}' is no key of it; {meant}expected {known}")));
        }
    }
    let mut values = [None; K];
    for (index, &(_, start, key)) in found.iter().enumerate() {
        let until = found.get(index + 1).map_or(text.len(), |&(at, ..)| at);
        values[key] = text.get(start..until);
    }
    Ok((&text[..end], values))
}

fn contrast(text: &str, rest: &str) -> Result<TargetChoice> {
    let classes =
        || misread(text, "expected two classes, contrast:A,B; a name with a comma stands in quotes");
    let records = read_csv(rest).map_err(|_| classes())?;
    let [record] = &records[..] else { return Err(classes()) };
    match &record.cells[..] {
        [class, against] if !class.is_empty() && !against.is_empty() => {
            Ok(TargetChoice::Contrast { class: class.clone(), against: against.clone() })
        }
        _ => Err(classes()),
    }
}

fn cell(text: &str, rest: &str) -> Result<TargetChoice> {
    let form =
        "expected indices in brackets, cell:OUTPUT[i,j,…], each a number, a range a:b or best, or [best=K]";
    let inner = rest.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    let Some((output, indices)) = inner else { return Err(misread(text, form)) };
    let output = some(output.trim());
    if let Some(class) = indices.trim().strip_prefix("best=") {
        return Ok(TargetChoice::Cell { output, cells: CellChoice::BestOf(named(text, class)?) });
    }
    if indices.matches(',').count() >= MAX_INDICES {
        return Err(misread(text, &format!("there are more than {MAX_INDICES} indices")));
    }
    let words = indices.split(',').map(str::trim).filter(|word| !word.is_empty() || indices.contains(','));
    let indices = words.map(|word| index(word).ok_or_else(|| misread(text, form))).collect::<Result<_>>()?;
    Ok(TargetChoice::Cell { output, cells: CellChoice::At(Cells::Each(indices)) })
}

fn index(word: &str) -> Option<AxisIndex> {
    if word == "best" {
        return Some(AxisIndex::Best);
    }
    let bound = |word: &str| match word.trim() {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    };
    match word.split_once(':') {
        Some((from, to)) => Some(AxisIndex::Range(bound(from)?, bound(to)?)),
        None => word.parse().ok().map(AxisIndex::At),
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Noise;

    use super::*;

    fn parse(text: &str) -> Result<TargetChoice> {
        text.parse()
    }

    #[test]
    fn texts_mean_what_they_say() {
        use AxisIndex::{At, Best, Range};
        let cells = |output: Option<&str>, indices: &[AxisIndex]| TargetChoice::Cell {
            output: output.map(str::to_owned),
            cells: CellChoice::At(Cells::Each(indices.to_vec())),
        };
        for (text, expected) in [
            ("class:tench, Tinca tinca", TargetChoice::Class("tench, Tinca tinca".into())),
            (
                "contrast:\"tench, Tinca tinca\",top2",
                TargetChoice::Contrast { class: "tench, Tinca tinca".into(), against: "top2".into() },
            ),
            (
                "region:a,b.png,output=o,class=x, y",
                TargetChoice::Region {
                    mask: MaskChoice::File("a,b.png".into()),
                    class: Some("x, y".into()),
                    output: Some("o".into()),
                },
            ),
            ("region:auto", TargetChoice::Region { mask: MaskChoice::Auto, class: None, output: None }),
            (
                "similarity:a.b/c,d=e.npy",
                TargetChoice::Similarity { reference: "a.b/c,d=e.npy".into(), output: None },
            ),
            (
                "cell:a[b][0, -1,2:,:3,best]",
                cells(Some("a[b]"), &[At(0), At(-1), Range(Some(2), None), Range(None, Some(3)), Best]),
            ),
            ("cell:[]", cells(None, &[])),
            (
                "cell:s[best=dog]",
                TargetChoice::Cell { output: Some("s".into()), cells: CellChoice::BestOf("dog".into()) },
            ),
            ("sum", TargetChoice::Summary { output: None, summary: Summary::Sum }),
            ("norm: out:0", TargetChoice::Summary { output: Some("out:0".into()), summary: Summary::Norm }),
            ("similarity:C:/a.png", TargetChoice::Similarity { reference: "C:/a.png".into(), output: None }),
            ("head:h.onnx", TargetChoice::Head("h.onnx".into())),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        let bare = parse("region:/home/me/mask.png,class=2").unwrap().without_folders();
        assert_eq!(bare.to_string(), "region:mask.png,class=2");
    }

    #[test]
    fn a_mistake_is_answered_in_one_line_with_how_it_is_written() {
        for (text, words) in [
            ("", "expected class:NAME"),
            ("clas:3", "did you mean 'class'?"),
            ("class:", "expected a class"),
            ("contrast:a", "contrast:A,B"),
            ("contrast:a,b,c", "in quotes"),
            ("region:", "expected a mask"),
            ("region:,class=3", "a name is empty"),
            ("region:m.png,class=", "a name is empty"),
            ("cell:y", "in brackets"),
            ("cell:y[1.5]", "a range a:b"),
            ("cell:y[99999999999999999999]", "each a number"),
            ("cell:y[1,,2]", "each a number"),
            ("cell:y[1:2:3]", "a range a:b"),
            ("head:", "an ONNX file"),
            ("similarity:", "a picture"),
            ("region:auto,clas=1", "did you mean 'class'?"),
            ("region:m.png,class=1,ouput=y", "did you mean 'output'?"),
            ("region:m.png,class=1,class=2", "given twice"),
            ("region:m.png,k=1", "expected class=… or output=…"),
            ("region:auto,class =1", "did you mean 'class'?"),
            ("similarity:r.npy,class=1", "expected output=…"),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(words) && said.lines().count() == 1, "{text}: {said}");
        }
        assert!(parse(&"x".repeat(MAX_TEXT + 1)).is_err());
        assert!(parse(&format!("cell:y[{}]", "0,".repeat(100))).is_err());
    }

    /// Whatever is accepted is written so that it is read as the same again, and nothing panics.
    #[test]
    fn texts_of_random_pieces_are_refused_or_read_the_same_again() {
        const PIECES: [&str; 30] = [
            "class",
            "contrast",
            "region",
            "cell",
            "sum",
            "norm",
            "similarity",
            "head",
            ":",
            ":",
            ",",
            "[",
            "]",
            "best",
            "best=",
            "=",
            "class=",
            "output=",
            "auto",
            "top2",
            "-1",
            "7",
            "0:3",
            " ",
            "\"",
            "é",
            "a.png",
            "\n",
            "9e9",
            "",
        ];
        let (noise, mut read) = (Noise::new(29).stream("targets"), 0);
        for case in 0..20_000u64 {
            let length = (noise.uniform(case * 16) * 12.0) as u64;
            let piece = |i: u64| {
                PIECES[(noise.uniform(case * 16 + i + 1) * PIECES.len() as f64) as usize % PIECES.len()]
            };
            let start = if case % 2 == 0 { format!("{}:", piece(14)) } else { String::new() };
            let text = start + &(0..length).map(piece).collect::<String>();
            match parse(&text) {
                Ok(choice) => {
                    read += 1;
                    let written = choice.to_string();
                    assert_eq!(
                        parse(&written).as_ref().ok(),
                        Some(&choice),
                        "{text:?} was written {written:?}"
                    );
                }
                Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{text:?}: {error}"),
            }
        }
        assert!(read > 500, "{read}");
    }
}

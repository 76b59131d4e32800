//! The result of `monosplit explain` for one input, as text, as JSON and as overlays.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use monosplit::catalogue::ConfiguredMethod;
use monosplit::explain::{Explanation, SaliencyMap, Settings};
use monosplit::graph::batch::rows;
use monosplit::graph::{Error, Result, write_atomically};
use monosplit::render::{self, TokenText};
use monosplit::{Labels, RankedClass, Sample, ScoreKind, unit_figure};

use serde::Serialize;

use super::drawn_files::{DrawnFiles, in_file_name};
use crate::failure::Failure;
use crate::output_style;
use crate::table::printable;

/// What stands before the lines of a text.
const INDENT: &str = "    ";

/// What is the same for all inputs.
pub(crate) struct ExplainContext {
    pub(crate) labels: Labels,
    pub(crate) score_kind: ScoreKind,
    /// The maps, in their order.
    pub(crate) descriptions: Vec<MapDescription>,
    /// The run-time numbers of the methods.
    pub(crate) settings: Settings,
    /// Lines of equal value on each side of zero.
    pub(crate) contours: usize,
    /// Whether a target is explained and no class.
    pub(crate) is_target: bool,
    /// The class that a target names.
    pub(crate) named_class: Option<usize>,
}

/// The method and the layer of a map.
pub(crate) struct MapDescription {
    /// The name of the method in the catalogue.
    pub(crate) method: String,
    /// The title in captions.
    pub(crate) title: String,
    /// The layer as it is named; none is the image.
    pub(crate) layer: Option<String>,
    /// α, where the method has one.
    pub(crate) alpha: Option<f64>,
    /// The input that the map is of, where inputs were named.
    pub(crate) explained: Option<String>,
}

impl MapDescription {
    /// A method at a layer.
    pub(crate) fn new(chosen: &ConfiguredMethod, layer: Option<String>) -> Self {
        let (method, title) = (chosen.name.to_owned(), chosen.title.clone());
        MapDescription { method, title, layer, alpha: chosen.alpha, explained: None }
    }

    /// A method at an input that was named.
    pub(crate) fn of_input(chosen: &ConfiguredMethod, input: &str) -> Self {
        MapDescription { explained: Some(input.to_owned()), ..MapDescription::new(chosen, None) }
    }

    /// The layer's name in texts; that of the input where the map is at one.
    pub(crate) fn layer_name(&self) -> &str {
        self.own_place().unwrap_or("the image")
    }

    /// The layer or the input that was named.
    pub(crate) fn own_place(&self) -> Option<&str> {
        self.layer.as_deref().or(self.explained.as_deref())
    }
}

/// The result for one input.
pub(crate) struct InputResult {
    pub(crate) input: String,
    pub(crate) class: usize,
    score: f64,
    confidence: Option<f64>,
    time: Duration,
    maps: Vec<MapResult>,
}

/// One map of an input.
struct MapResult {
    /// Its position among the maps of the context.
    index: usize,
    range: (f32, f32),
    exponent: i32,
    facts: Vec<(&'static str, f64)>,
    remark: Option<String>,
    picture: Option<PathBuf>,
    /// The words of a text with their values.
    text: Option<TokenText>,
}

/// The file that a map was drawn into.
struct Drawn {
    path: PathBuf,
    remark: Option<String>,
    text: Option<TokenText>,
}

/// What a map is of: a sample, and the words of its tokens if it is a text.
#[derive(Clone, Copy)]
pub(crate) struct Explained<'a> {
    pub(crate) sample: &'a Sample,
    pub(crate) words: Option<&'a [String]>,
}

impl ExplainContext {
    /// The number of the class of a result: of a target that names one, its only score is of that class.
    fn class_of(&self, result: &InputResult) -> usize {
        self.named_class.unwrap_or(result.class)
    }

    /// The result for row `row` of a batch, without its maps.
    pub(crate) fn result(
        &self,
        sample: &Sample,
        row: usize,
        explained: &Explanation,
        time: Duration,
    ) -> Result<InputResult> {
        let class = explained.classes[row];
        let scores = explained.logits.to_f64();
        let classes = scores.len() / explained.classes.len().max(1);
        let ranked = RankedClass::best(&scores[row * classes..(row + 1) * classes], classes, self.score_kind);
        let ranked = ranked.ok_or_else(|| {
            Error::argument(format!(
                "{}: the network returned numbers that are not finite; try --precision f64, and check the preprocessing",
                sample.name
            ))
        })?;
        let (score, confidence) =
            ranked.iter().find(|r| r.class == class).map_or((f64::NAN, None), |r| (r.score, r.probability));
        Ok(InputResult { input: sample.name.clone(), class, score, confidence, time, maps: Vec::new() })
    }

    /// Draws a map of the input into one of `files` and adds it to the result.
    pub(crate) fn add_map(
        &self,
        result: &mut InputResult,
        index: usize,
        explained: Explained<'_>,
        (map, row): (&SaliencyMap, usize),
        files: &mut DrawnFiles,
    ) -> Result<()> {
        let drawn = self.drawn(result, index, explained, (map, row), files)?;
        let mut found = MapResult {
            index,
            range: range(map, row),
            exponent: map.exponents[row],
            facts: map.diagnostics.iter().map(|of| (of.name, of.values[row])).collect(),
            remark: None,
            picture: None,
            text: None,
        };
        match drawn {
            Some(drawn) => {
                (found.remark, found.picture, found.text) = (drawn.remark, Some(drawn.path), drawn.text);
            }
            None => {
                let said = "there is no drawing of a map of these axes; --raw FILE writes its numbers";
                found.remark = Some(said.to_owned());
            }
        }
        result.maps.push(found);
        Ok(())
    }

    /// Draws a map as what it is of: a text in a page, others as a picture. None if nothing shows such a map.
    fn drawn(
        &self,
        result: &InputResult,
        index: usize,
        Explained { sample, words }: Explained<'_>,
        (map, row): (&SaliencyMap, usize),
        files: &mut DrawnFiles,
    ) -> Result<Option<Drawn>> {
        let description = &self.descriptions[index];
        let caption = self.caption(result, description, sample);
        let options = render::OverlayOptions { contours: self.contours, ..render::OverlayOptions::default() };
        let mut path = |ending: &str| files.next(&sample.name, (&self.descriptions, index), ending);
        let values = rows(&map.values, std::iter::once(row))?;
        let shape = values.shape()[1..].to_vec();
        let own = values.reshaped(shape)?;
        if let Some(words) = words.filter(|words| own.shape() == [words.len()]) {
            let text = TokenText::new(words.to_vec(), &own.to_f32())?;
            let page = render::Page::new(&sample.name).paragraph(&caption.text()).tokens(&text);
            let path = path("html")?;
            write_atomically(&path, page.finish().as_bytes())?;
            return Ok(Some(Drawn { path, remark: None, text: Some(text) }));
        }
        // Units of a layer are not the columns of the table, even where there are as many.
        let figure = match own.shape() {
            [_] if sample.tensor.shape().len() == 2 && description.layer.is_some() => {
                Some(unit_figure(&own, &caption)?)
            }
            _ => sample.figure(&own, &caption, &options)?,
        };
        if let Some(scene) = figure {
            let path = path("png")?;
            scene.write(&path)?;
            return Ok(Some(Drawn { path, remark: None, text: None }));
        }
        if own.shape().len() != 2 {
            return Ok(None);
        }
        let field = render::ScalarField::from_tensor(&map.values, row)?;
        let drawn = sample.overlay(&field, &caption, &options)?;
        let path = path("png")?;
        drawn.picture.save(&path)?;
        Ok(Some(Drawn { path, remark: drawn.note.map(|note| note.to_string()), text: None }))
    }

    fn caption(
        &self,
        result: &InputResult,
        description: &MapDescription,
        sample: &Sample,
    ) -> render::Caption {
        let name = self.labels.named(result.class).unwrap_or_else(|| result.class.to_string());
        render::Caption {
            method: match &description.explained {
                Some(input) => format!("{} of {input}", description.title),
                None => description.title.clone(),
            },
            layer: match &description.explained {
                Some(_) => String::new(),
                // A series or a table is no image, and there is no other layer to tell it from.
                None if description.layer.is_none() && sample.tensor.shape().len() != 4 => String::new(),
                None => description.layer_name().to_owned(),
            },
            class: if self.is_target { String::new() } else { name.clone() },
            target: if self.is_target { name } else { String::new() },
            confidence: result.confidence,
            alpha: description.alpha,
        }
    }

    pub(crate) fn print(&self, result: &InputResult, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "{}", printable(&result.input))?;
        let name = printable(&self.labels.name(result.class)).to_string();
        let class = self.class_of(result);
        match result.confidence {
            Some(p) => writeln!(out, "  {:>6.2} %  {class:>4}  {name}", 100.0 * p)?,
            None => writeln!(out, "  {:>12.6}  {class:>4}  {name}", result.score)?,
        }
        let milliseconds = result.time.as_secs_f64() * 1e3;
        for map in &result.maps {
            let scale = match map.exponent {
                0 => String::new(),
                exponent => format!(" times 2^{exponent}"),
            };
            let description = &self.descriptions[map.index];
            let at = match self.descriptions.iter().all(|other| other.title == description.title) {
                _ if self.descriptions.len() == 1 => String::new(),
                true => format!(" at {}", description.layer_name()),
                false => format!(" of {} at {}", description.title, description.layer_name()),
            };
            writeln!(
                out,
                "  map{} from {} to {}{scale}, {milliseconds:.0} ms",
                printable(&at),
                render::number(f64::from(map.range.0)),
                render::number(f64::from(map.range.1))
            )?;
            for (name, value) in &map.facts {
                writeln!(out, "  {name} {}", render::number(*value))?;
            }
            if let Some(remark) = &map.remark {
                writeln!(out, "  {}", printable(remark))?;
            }
            if let Some(text) = &map.text {
                let room = output_style::columns().saturating_sub(INDENT.len()).max(1);
                for line in text.to_terminal(room, output_style::colours()).lines() {
                    writeln!(out, "{INDENT}{line}")?;
                }
            }
            if let Some(path) = &map.picture {
                writeln!(out, "  {}", printable(&path.display().to_string()))?;
            }
        }
        Ok(())
    }
}

/// The result for one input, for programs.
#[derive(Serialize)]
pub(crate) struct InputOutput<'a> {
    input: &'a str,
    class: usize,
    name: String,
    score: f64,
    confidence: Option<f64>,
    milliseconds: f64,
    maps: Vec<MapOutput<'a>>,
}

#[derive(Serialize)]
struct MapOutput<'a> {
    method: &'a str,
    title: &'a str,
    layer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    explained_input: Option<&'a str>,
    min: f64,
    max: f64,
    exponent: i32,
    facts: Vec<FactOutput<'a>>,
    remark: Option<&'a str>,
    picture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<TokenOutput<'a>>>,
}

/// A token and its value in the map.
#[derive(Serialize)]
struct TokenOutput<'a> {
    token: &'a str,
    value: f64,
}

#[derive(Serialize)]
struct FactOutput<'a> {
    name: &'a str,
    value: f64,
}

impl InputResult {
    pub(crate) fn output<'a>(&'a self, context: &'a ExplainContext) -> InputOutput<'a> {
        InputOutput {
            input: &self.input,
            class: context.class_of(self),
            name: context.labels.name(self.class),
            score: self.score,
            confidence: self.confidence,
            milliseconds: self.time.as_secs_f64() * 1e3,
            maps: self.maps.iter().map(|map| map.output(&context.descriptions[map.index])).collect(),
        }
    }
}

impl MapResult {
    fn output<'a>(&'a self, description: &'a MapDescription) -> MapOutput<'a> {
        MapOutput {
            method: &description.method,
            title: &description.title,
            layer: description.layer_name(),
            min: self.range.0.into(),
            max: self.range.1.into(),
            exponent: self.exponent,
            facts: self.facts.iter().map(|&(name, value)| FactOutput { name, value }).collect(),
            remark: self.remark.as_deref(),
            picture: self.picture.as_ref().map(|path| path.display().to_string()),
            explained_input: description.explained.as_deref(),
            tokens: self.text.as_ref().map(|text| {
                let tokens = text.tokens().iter();
                tokens.map(|(token, value)| TokenOutput { token, value: f64::from(*value) }).collect()
            }),
        }
    }
}

fn range(map: &SaliencyMap, row: usize) -> (f32, f32) {
    let length = map.values.len() / map.exponents.len().max(1);
    let values = &map.values.to_f32()[row * length..(row + 1) * length];
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

/// The file for the numbers of each map: FILE for a single map; otherwise the layer or the method is put before its
/// ending.
pub(crate) fn raw_paths(path: &Path, descriptions: &[MapDescription]) -> Vec<PathBuf> {
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let of = |map: &MapDescription| {
        let alone = |same: &dyn Fn(&MapDescription) -> bool| {
            descriptions.iter().filter(|&other| same(other)).count() == 1
        };
        let layer = map.own_place().unwrap_or("input");
        let told = match descriptions.iter().all(|other| other.method == map.method) {
            _ if descriptions.len() == 1 => return path.to_owned(),
            true => layer.to_owned(),
            false if alone(&|other| other.method == map.method) => map.method.clone(),
            false => format!("{}.{layer}", map.method),
        };
        path.with_file_name(format!("{stem}.{}.npy", in_file_name(&told)))
    };
    let mut paths: Vec<PathBuf> = Vec::with_capacity(descriptions.len());
    for mut next in descriptions.iter().map(of) {
        let plain = next.with_extension("");
        let mut number = 2;
        while paths.contains(&next) {
            next = PathBuf::from(format!("{}-{number}.npy", plain.display()));
            number += 1;
        }
        paths.push(next);
    }
    paths
}

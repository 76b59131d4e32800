//! `monosplit compare`: several methods beside each other, in one figure.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit_explain::{Explained, Explainer, Map, Question, Request, Settings};
use monosplit_graph::{Error, Result};
use monosplit_render as render;
use monosplit_render::{Cell, Format, Grid, HeatmapOptions, OverlayOptions, Row};

use super::class::ClassArgs;
use super::compute::ComputeArgs;
use super::method::{FinishArgs, known_of};
use super::network::NetworkArgs;
use super::preprocessing::PreprocessingArgs;
use super::progress::Bar;
use super::run::check_writable;
use crate::catalogue::{self, Chosen};
use crate::failure::Failure;
use crate::input::{Feed, Sample, Source};
use crate::labels::Labels;
use crate::layer_choice::chosen_layer;
use crate::model::{Model, Origin};
use crate::prediction::{Meaning, Ranked};
use crate::table::printable;

/// More rows than this make a page nobody can look at.
const MOST_ROWS: usize = 64;
/// What is compared unless somebody says.
const METHODS: &str =
    "splitcam,splitgrad,splitlrp:map=pos,layercam,gradcam,guided-backprop,input-x-gradient,saliency";

/// Draws several methods beside each other, in one figure
#[derive(Args)]
#[command(override_usage = "monosplit compare MODEL PICTURE... [OPTIONS]
       monosplit compare --arch NAME --weights FILE PICTURE... [OPTIONS]")]
#[command(long_about = "\
Draws several methods beside each other: one row for each picture, one column for each method.

  monosplit compare resnet18.onnx cat.jpg dog.jpg
  monosplit compare resnet18.onnx photos/ --methods splitcam,gradcam,occlusion:stride=16
  monosplit compare vgg16.onnx cat.jpg --methods splitcam@features.14,splitcam@features.28 -o layers

Each method is read off at a layer of its own choice, or at the one named after an `@`. The figure
is written as FILE.png and FILE.svg, or, if FILE ends in .png, .svg or .pdf, in that format alone.")]
pub(crate) struct Compare {
    /// The network, an ONNX file (not with --arch), then pictures, folders of pictures, or .npy
    /// batches.
    #[arg(value_name = "MODEL PICTURE", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    /// The methods, separated by commas: NAME[:KEY=VALUE,…][@LAYER].
    #[arg(long, value_name = "NAMES", default_value = METHODS, hide_default_value = true)]
    methods: String,

    #[command(flatten)]
    class: ClassArgs,

    /// Write the figure to this file.
    #[arg(short, long, alias = "out", value_name = "FILE", default_value = "compared")]
    output: PathBuf,

    /// The colours of a map end at this percentile of its magnitudes, so that a few extreme
    /// places do not pale all others; 100 is the largest magnitude.
    #[arg(verbatim_doc_comment, long, value_name = "PERCENT", default_value_t = 99.5, value_parser = percentile)]
    clip: f64,

    #[command(flatten)]
    finish: FinishArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

/// A column of the figure.
struct Column {
    chosen: Chosen,
    layer: Option<String>,
}

/// Columns with the same run-time numbers, compiled together.
struct Group {
    columns: Vec<usize>,
    explainer: Explainer,
    settings: Settings,
}

impl Compare {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let outputs = self.outputs()?;
        outputs.iter().try_for_each(|path| check_writable(path))?;
        let (origin, inputs) = self.files()?;
        let sources = Source::list(inputs)?;
        let words = catalogue::words(&self.methods)?;
        let model = Model::open(origin, &self.network.options_for(self.compute.precision()))?;
        let preprocess = self.preprocessing.for_sources(&model, &sources)?;
        let known = known_of(preprocess.as_ref())?;
        let columns = words.iter().map(|word| column(&model, word, &known)).collect::<Result<Vec<_>>>()?;
        let groups = self.groups(&model, &columns)?;
        let (labels, meaning) = self.class.labels(&model)?;
        let classes = self.class.classes(&model, &labels)?;
        let mut feed = Feed::new(&model, sources, preprocess)?;
        let mut rows = Vec::new();
        while let Some(sample) = feed.take(1)?.pop() {
            if rows.len() == MOST_ROWS {
                return Err(Error::argument(format!(
                    "a figure has at most {MOST_ROWS} rows; name fewer pictures"
                ))
                .into());
            }
            let class = classes.of(rows.len(), 1)?;
            let mut maps: Vec<Option<Map>> = vec![None; columns.len()];
            let mut explained = None;
            for group in &groups {
                let bar = Bar::new(1);
                let question =
                    Question { progress: &bar, ..Question::new(&sample.tensor, &class, &group.settings) };
                let mut found = group.explainer.answer(&question)?;
                for (&column, map) in group.columns.iter().zip(std::mem::take(&mut found.maps)) {
                    maps[column] = Some(map);
                }
                explained = Some(found);
            }
            let explained = explained.ok_or_else(|| Error::argument("name at least one method"))?;
            let caption = caption(&explained, &labels, meaning);
            writeln!(out, "{}: {}", printable(&sample.name), printable(&caption))?;
            out.flush()?;
            for (word, map) in words.iter().zip(&maps) {
                if map.as_ref().is_some_and(|map| map.values.shape().len() != 3) {
                    writeln!(out, "  {word}: the map does not have two axes to draw; its place stays empty")?;
                }
            }
            rows.push(row(&sample, caption, &maps, &self.overlay())?);
        }
        classes.all_used(rows.len())?;
        let grid = Grid { columns: headers(&columns), rows, ..Grid::default() };
        let scene = grid.into_scene()?;
        for path in outputs {
            scene.write(&path)?;
            writeln!(out, "{}", printable(&path.display().to_string()))?;
        }
        Ok(())
    }

    /// How maps are drawn.
    fn overlay(&self) -> OverlayOptions {
        let clip = (self.clip < 100.0).then_some(self.clip);
        OverlayOptions {
            heatmap: HeatmapOptions { clip, ..HeatmapOptions::default() },
            ..OverlayOptions::default()
        }
    }

    fn files(&self) -> Result<(Origin, &[PathBuf])> {
        self.network.split(&self.files, "nothing to compare; name a picture, a folder or a .npy file")
    }

    /// The files that are written.
    fn outputs(&self) -> Result<Vec<PathBuf>> {
        const OTHERS: [&str; 7] = ["jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff"];
        let ending = self.output.extension().map(|ending| ending.to_ascii_lowercase());
        match Format::of(&self.output) {
            Ok(_) => return Ok(vec![self.output.clone()]),
            Err(error) if ending.is_some_and(|ending| OTHERS.iter().any(|other| ending == *other)) => {
                return Err(error);
            }
            Err(_) => {}
        }
        let both = ["png", "svg"].map(|ending| {
            let mut name = self.output.clone().into_os_string();
            name.push(".");
            name.push(ending);
            PathBuf::from(name)
        });
        Ok(both.to_vec())
    }

    fn groups(&self, model: &Model, columns: &[Column]) -> Result<Vec<Group>> {
        let mut sorted: Vec<(Settings, Vec<usize>)> = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            let settings = &column.chosen.settings;
            match sorted.iter_mut().find(|(known, _)| known == settings) {
                Some((_, members)) => members.push(index),
                None => sorted.push((settings.clone(), vec![index])),
            }
        }
        let (engine, finish) = (self.compute.engine()?, self.finish.finish());
        let group = |(settings, members): (Settings, Vec<usize>)| {
            let request = |&index: &usize| {
                let Column { chosen, layer } = &columns[index];
                Request::of(chosen.method.clone(), layer.clone()).finish(finish)
            };
            let requests: Vec<Request> = members.iter().map(request).collect();
            let explainer = Explainer::new(model.graph(), &requests, &*engine)?;
            Ok(Group { columns: members, explainer, settings })
        };
        sorted.into_iter().map(group).collect()
    }
}

/// `NAME[:KEY=VALUE,…][@LAYER]`
fn column(model: &Model, word: &str, known: &[(&'static str, String)]) -> Result<Column> {
    let (method, layer) = match word.split_once('@') {
        Some((method, layer)) => (method, Some(layer.to_owned())),
        None => (word, None),
    };
    let chosen = catalogue::parse_knowing(method, &[], known)?;
    let layer = layer.or_else(|| chosen_layer(model.graph(), chosen.method.place()));
    Ok(Column { chosen, layer })
}

fn headers(columns: &[Column]) -> Vec<String> {
    let header = |column: &Column| match &column.layer {
        Some(layer) => format!("{} {layer}", column.chosen.title),
        None => column.chosen.title.clone(),
    };
    std::iter::once("picture".to_owned()).chain(columns.iter().map(header)).collect()
}

fn caption(explained: &Explained, labels: &Labels, meaning: Meaning) -> String {
    let class = explained.classes[0];
    let scores = explained.logits.to_f64();
    let ranked = Ranked::best(&scores, scores.len(), meaning).unwrap_or_default();
    let name = labels.name(class);
    match ranked.iter().find(|ranked| ranked.class == class).and_then(|ranked| ranked.probability) {
        Some(probability) => format!("{name} {:.1}%", 100.0 * probability),
        None => name,
    }
}

/// A percentile that leaves something below it.
fn percentile(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= 100.0);
    number.ok_or_else(|| "expected a number above 0 and at most 100".to_owned())
}

fn row(sample: &Sample, caption: String, maps: &[Option<Map>], options: &OverlayOptions) -> Result<Row> {
    let Some(picture) = &sample.picture else {
        return Err(Error::argument(format!(
            "{} is no picture; `monosplit explain` draws the maps of arrays",
            sample.name
        )));
    };
    let mut cells = vec![Some(Cell::picture(picture.clone()))];
    for map in maps {
        cells.push(match map {
            Some(map) if map.values.shape().len() == 3 => {
                let map = render::Map::from_tensor(&map.values, 0)?;
                Some(Cell::overlay(picture, &map, options)?)
            }
            _ => None,
        });
    }
    let label =
        std::path::Path::new(&sample.name).file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Row { label: label.unwrap_or_default(), caption, cells })
}

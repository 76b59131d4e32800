//! `monosplit explain`: where in the picture a network found its answer.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use monosplit_engine::{Cpu, Profile};
use monosplit_explain::{
    Class, ClosedFormula, Explained, Explainer, Map, Method, Part, Request, Stream, Term, Whole,
};
use monosplit_graph::{Dim, Error, Kind, Result, Tensor, npy};
use monosplit_image::{Picture, write_atomically};
use monosplit_render as render;

use super::compute::ComputeArgs;
use super::method::MethodArgs;
use super::network::{NetworkArgs, PiecewiseArgs};
use super::preprocessing::PreprocessingArgs;
use super::profile;
use super::run::{check_folder, check_writable, remark};
use crate::failure::{Failure, note};
use crate::inference::stack;
use crate::input::{Feed, Sample, Source};
use crate::json::Json;
use crate::labels::Labels;
use crate::layer_choice::default_layer;
use crate::model::{Model, Origin};
use crate::prediction::{Meaning, Ranked};
use crate::table::{Align, Table, printable};

/// How many samples are explained at once unless told otherwise.
const BATCH: usize = 4;
/// More inputs than this are worth a progress line.
const FEW: usize = 4;

/// Shows where in a picture a network found its answer
#[derive(Args)]
#[command(override_usage = "monosplit explain MODEL INPUT... [OPTIONS]
       monosplit explain --arch NAME --weights FILE INPUT... [OPTIONS]")]
#[command(long_about = "\
Shows where in a picture a network found its answer.

  monosplit explain resnet18.onnx cat.jpg
  monosplit explain resnet18.onnx photos/ --method splitgrad --layer layer1.0.conv2
  monosplit explain resnet18.onnx cat.jpg --class 'Egyptian cat' --alpha 0.3 --stream h
  monosplit explain pets.onnx x.npy --method splitlrp --map pos --raw maps.npy

The network f is split into two monotone convex networks, f = g − h, and the map is read off the
pair at a layer. For every input an overlay is written as a PNG (blue below zero, red above, on one
scale that is symmetric about zero); --raw also writes the numbers themselves, [N, H, W], exactly as
they are defined and without any normalisation.

Numbers too large for single precision are written without their power of two, which is printed.

Without options: SplitCAM of stream g at the input of the last convolution that looks at more than
one place, for the class with the highest score, α = 0.4.")]
pub(crate) struct Explain {
    /// The network, an ONNX file (not with --arch), then what to explain: pictures, folders of
    /// pictures, or .npy batches.
    #[arg(value_name = "MODEL INPUT", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    piecewise: PiecewiseArgs,

    #[command(flatten)]
    method: MethodArgs,

    /// The class that is explained: its number, its name, or `top1` for the one with the highest
    /// score of each input.
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "top1",
        allow_negative_numbers = true,
        verbatim_doc_comment
    )]
    class: String,

    /// Class names, one a line. For networks with 1000 classes those of ImageNet are built in.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    labels: Option<PathBuf>,

    /// Write the pictures into this folder, which is made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "explained")]
    out: PathBuf,

    /// Write the maps of all inputs as float32 into a .npy file.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    raw: Option<PathBuf>,

    /// Explain N samples at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: Option<u32>,

    /// Take the map of stream g apart: how much of it each layer's hidden gradient contributed.
    #[arg(long)]
    by_layer: bool,

    /// Show where the time went, node by node.
    #[arg(long)]
    profile: bool,

    /// Print the results as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

/// What is known of one explained input.
struct Answer {
    input: String,
    class: usize,
    score: f64,
    confidence: Option<f64>,
    range: (f32, f32),
    exponent: i32,
    remark: Option<String>,
    picture: Option<PathBuf>,
    time: Duration,
}

/// What stays the same for all inputs.
struct Setting {
    labels: Labels,
    meaning: Meaning,
    layer: String,
    method: Method,
    alpha: Option<f64>,
}

impl Explain {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (origin, inputs) = self.files()?;
        let sources = Source::list(inputs)?;
        if let Some(path) = &self.raw {
            check_writable(path)?;
        }
        check_folder(&self.out)?;
        let settings = self.method.settings()?;
        let model = Model::open(origin, &self.network.options_for(self.compute.precision))?;
        let engine = self.compute.engine();
        let total = sources.len();
        let preprocess = self.preprocessing.for_sources(&model, &sources)?;
        let mut feed = Feed::new(&model, sources, preprocess)?;
        let mut waiting = feed.take(1)?;
        let model = match waiting.first() {
            Some(first) => self.piecewise.apply(model, &first.tensor, &engine)?,
            None => model,
        };
        let setting = self.setting(&model)?;
        let class = self.class(&model, &setting.labels)?;
        let request = Request::new(setting.method, setting.layer.clone()).finish(self.method.finish());
        let explainer = Explainer::new(model.graph(), &self.method.split(), &[request], &engine)?;
        let terms = self.closed_formula(&model, &setting, &engine)?;
        if !self.json {
            self.announce(&setting, out)?;
        }
        let batch = self.batch_size(&explainer);
        let mut names = FileNames::default();
        let (mut answers, mut maps) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        let mut profile = Profile::default();
        loop {
            let mut samples = std::mem::take(&mut waiting);
            samples.extend(feed.take(batch - samples.len())?);
            if samples.is_empty() {
                break;
            }
            let started = Instant::now();
            let images = images(&samples, explainer.samples())?;
            let explained = if self.profile {
                let (explained, times) = explainer.explain_profiled(&images, &class, &settings)?;
                profile.nodes.extend(times.nodes);
                explained
            } else {
                explainer.explain(&images, &class, &settings)?
            };
            let time = started.elapsed() / samples.len() as u32;
            for (row, sample) in samples.iter().enumerate() {
                let answer = self.answer(sample, row, &explained, &setting, &mut names, time)?;
                if !self.json {
                    setting.print(&answer, out)?;
                }
                answers.push(answer);
            }
            if let Some(terms) = &terms {
                print_terms(&terms.terms(&images, &explained.classes, settings.alpha[0])?, &samples, out)?;
            }
            if self.raw.is_some() {
                maps.push(kept(&explained.maps[0], samples.len())?);
            }
            out.flush()?;
            progress(feed.opened(), total, begun);
        }
        if let Some(path) = &self.raw {
            write_atomically(path, &npy::write(&stack(&maps, Kind::Float)?))?;
        }
        if self.json {
            let profile = self.profile.then(|| profile::json(&profile));
            writeln!(out, "{}", self.json(&model, &setting, &answers, profile))?;
            return Ok(());
        }
        if self.profile {
            profile::print(&profile, out)?;
        }
        out.flush()?;
        if let Some(remark) = remark(&model) {
            note(&remark);
        }
        Ok(())
    }

    fn files(&self) -> Result<(Origin, &[PathBuf])> {
        self.network.split(&self.files, "nothing to explain; name a picture, a folder or a .npy file")
    }

    fn setting(&self, model: &Model) -> Result<Setting> {
        let classes = model.classes().ok_or_else(|| {
            model.unfit(
                "expected one score for each class at the first output; there is nothing to explain".into(),
            )
        })?;
        let labels = match &self.labels {
            Some(path) => Labels::open(path, classes)?,
            None => Labels::built_in(classes),
        };
        let output = model.graph().outputs().first().map_or("", |output| output.name.as_str());
        let layer = match self.method.layer() {
            Some(layer) => layer.to_owned(),
            None => {
                default_layer(model.graph()).ok_or_else(|| model.unfit("name a layer with --layer".into()))?
            }
        };
        Ok(Setting {
            labels,
            meaning: Meaning::of(classes, output, &model.report().outputs),
            layer,
            method: self.method.method()?,
            alpha: self.method.alpha_shown(),
        })
    }

    fn class(&self, model: &Model, labels: &Labels) -> Result<Class> {
        let classes = model.classes().unwrap_or(0);
        match self.class.to_ascii_lowercase().as_str() {
            "top1" | "top" => Ok(Class::Top),
            _ => labels.find(&self.class, classes).map(Class::Index),
        }
    }

    /// The map taken apart, if that is asked for and the method has the terms.
    fn closed_formula(
        &self,
        model: &Model,
        setting: &Setting,
        engine: &Cpu,
    ) -> Result<Option<ClosedFormula>> {
        if !self.by_layer {
            return Ok(None);
        }
        let whole = match setting.method {
            Method::SplitCam(Stream::G, Part::Combined) => Whole::SplitCam,
            Method::SplitGrad(Stream::G, Part::Combined) => Whole::SplitGrad,
            _ => {
                let message = "--by-layer takes splitcam and splitgrad of stream g apart, combined part";
                return Err(Error::argument(message));
            }
        };
        if self.json {
            return Err(Error::argument("--by-layer prints a table; leave out --json"));
        }
        ClosedFormula::new(model.graph(), &self.method.split(), &setting.layer, whole, engine).map(Some)
    }

    fn batch_size(&self, explainer: &Explainer) -> usize {
        match explainer.samples() {
            Dim::Fixed(fixed) => fixed.max(1),
            Dim::Batch(_) => self.batch.map_or(BATCH, |batch| batch as usize),
        }
    }

    fn announce(&self, setting: &Setting, out: &mut dyn Write) -> Result<(), Failure> {
        let chosen = if self.method.layer().is_none() { " (chosen; --layer names another)" } else { "" };
        writeln!(out, "{} at {}{chosen}", self.method.describe(), printable(&setting.layer))?;
        Ok(())
    }

    fn answer(
        &self,
        sample: &Sample,
        row: usize,
        explained: &Explained,
        setting: &Setting,
        names: &mut FileNames,
        time: Duration,
    ) -> Result<Answer> {
        let class = explained.classes[row];
        let scores = explained.logits.to_f64();
        let classes = scores.len() / explained.classes.len().max(1);
        let ranked = Ranked::best(&scores[row * classes..(row + 1) * classes], classes, setting.meaning);
        let ranked = ranked.ok_or_else(|| {
            Error::argument(format!(
                "{}: the network returned numbers that are not finite; try --precision f64, and check the preprocessing",
                sample.name
            ))
        })?;
        let (score, confidence) =
            ranked.iter().find(|r| r.class == class).map_or((f64::NAN, None), |r| (r.score, r.probability));
        let map = &explained.maps[0];
        let mut answer = Answer {
            input: sample.name.clone(),
            class,
            score,
            confidence,
            range: range(map, row),
            exponent: map.exponents[row],
            remark: None,
            picture: None,
            time,
        };
        if map.values.shape().len() == 3 {
            let map = render::Map::from_tensor(&map.values, row)?;
            let path = self.out.join(names.next(&sample.name, setting.method.name()));
            answer.remark = self.draw(sample, &map, &answer, setting, &path)?;
            answer.picture = Some(path);
        } else {
            answer.remark =
                Some("the map does not have two axes to draw; --raw FILE writes its numbers".to_owned());
        }
        Ok(answer)
    }

    /// Writes the overlay (or, where there is no picture, the map alone); what is remarkable about the map.
    fn draw(
        &self,
        sample: &Sample,
        map: &render::Map,
        answer: &Answer,
        setting: &Setting,
        path: &Path,
    ) -> Result<Option<String>> {
        std::fs::create_dir_all(&self.out).map_err(|cause| Error::io(&self.out, &cause))?;
        let mut options = render::OverlayOptions::default();
        let page;
        let picture = match &sample.picture {
            Some(picture) => picture,
            None => {
                options.layout = render::Layout::Single;
                options.opacity = 1.0;
                page = blank(sample, map)?;
                &page
            }
        };
        let caption = render::Caption {
            method: self.method.describe(),
            layer: setting.layer.clone(),
            class: setting.labels.named(answer.class).unwrap_or_else(|| answer.class.to_string()),
            confidence: answer.confidence,
            alpha: setting.alpha,
        };
        let drawn = render::overlay(picture, map, &caption, &options)?;
        let (width, height) = (drawn.picture.width(), drawn.picture.height());
        monosplit_image::write_png(path, width, height, (&drawn.picture).into())?;
        Ok(drawn.note.map(|note| note.to_string()))
    }

    fn json(&self, model: &Model, setting: &Setting, answers: &[Answer], profile: Option<Json>) -> Json {
        let answers = answers.iter().map(|answer| {
            Json::Object(vec![
                ("input", answer.input.as_str().into()),
                ("class", answer.class.into()),
                ("name", setting.labels.name(answer.class).into()),
                ("score", answer.score.into()),
                ("confidence", answer.confidence.into()),
                ("min", f64::from(answer.range.0).into()),
                ("max", f64::from(answer.range.1).into()),
                ("exponent", Json::Whole(i64::from(answer.exponent))),
                ("remark", answer.remark.clone().into()),
                ("picture", answer.picture.as_ref().map(|path| path.display().to_string()).into()),
                ("milliseconds", (answer.time.as_secs_f64() * 1e3).into()),
            ])
        });
        let mut object = vec![
            ("network", model.origin().to_string().into()),
            ("note", remark(model).into()),
            ("method", self.method.describe().into()),
            ("layer", setting.layer.as_str().into()),
            ("alpha", setting.alpha.into()),
            ("inputs", answers.collect()),
        ];
        object.extend(profile.map(|profile| ("profile", profile)));
        Json::Object(object)
    }
}

impl Setting {
    fn print(&self, answer: &Answer, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "{}", printable(&answer.input))?;
        let name = printable(&self.labels.name(answer.class)).to_string();
        match answer.confidence {
            Some(p) => writeln!(out, "  {:>6.2} %  {:>4}  {name}", 100.0 * p, answer.class)?,
            None => writeln!(out, "  {:>12.6}  {:>4}  {name}", answer.score, answer.class)?,
        }
        let scale = match answer.exponent {
            0 => String::new(),
            exponent => format!(" times 2^{exponent}"),
        };
        let milliseconds = answer.time.as_secs_f64() * 1e3;
        writeln!(
            out,
            "  map from {} to {}{scale}, {milliseconds:.0} ms",
            render::number(f64::from(answer.range.0)),
            render::number(f64::from(answer.range.1))
        )?;
        if let Some(remark) = &answer.remark {
            writeln!(out, "  {}", printable(remark))?;
        }
        if let Some(path) = &answer.picture {
            writeln!(out, "  {}", printable(&path.display().to_string()))?;
        }
        Ok(())
    }
}

/// The mean magnitude of every term of the closed formula, and its share of them all.
fn print_terms(terms: &[Term], samples: &[Sample], out: &mut dyn Write) -> Result<(), Failure> {
    for (row, sample) in samples.iter().enumerate() {
        let magnitude = |term: &Term| {
            let length = term.share.len() / term.share.shape()[0].max(1);
            let values = &term.share.to_f64()[row * length..(row + 1) * length];
            values.iter().map(|v| v.abs()).sum::<f64>() / length.max(1) as f64
        };
        let total: f64 = terms.iter().map(magnitude).sum();
        let mut table =
            Table::new(&[("term", Align::Left, 40), ("mean", Align::Right, 12), ("share", Align::Right, 8)]);
        for (i, term) in terms.iter().enumerate() {
            let name = if i == 0 { "ordinary gradient".to_owned() } else { term.layer.clone() };
            let share = 100.0 * magnitude(term) / total.max(f64::MIN_POSITIVE);
            table.row([name, render::number(magnitude(term)), format!("{share:.1} %")]);
        }
        writeln!(out, "  what each layer contributed to the map of {}:", printable(&sample.name))?;
        for line in table.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

/// A light page of the size of the input, or of the map, for samples that are no pictures.
fn blank(sample: &Sample, map: &render::Map) -> Result<Picture> {
    let (width, height) = match *sample.tensor.shape() {
        [_, 1 | 3, height, width] | [_, height, width, 1 | 3] => (width, height),
        _ => (map.width(), map.height()),
    };
    Picture::new(width, height, vec![0xff; width * height * 3])
}

/// The samples as one batch; a network of fixed batch size gets the last sample repeated.
fn images(samples: &[Sample], wanted: Dim) -> Result<Tensor> {
    let mut tensors: Vec<Tensor> = samples.iter().map(|sample| sample.tensor.clone()).collect();
    if let (Dim::Fixed(size), Some(last)) = (wanted, tensors.last().cloned()) {
        tensors.resize(size.max(tensors.len()), last);
    }
    stack(&tensors, Kind::Float)
}

/// The maps of the first `count` samples, in single precision.
fn kept(map: &Map, count: usize) -> Result<Tensor> {
    let mut shape = map.values.shape().to_vec();
    let row = map.values.len() / shape[0].max(1);
    shape[0] = count;
    Tensor::new(shape, map.values.to_f32()[..count * row].to_vec())
}

fn range(map: &Map, row: usize) -> (f32, f32) {
    let length = map.values.len() / map.exponents.len().max(1);
    let values = &map.values.to_f32()[row * length..(row + 1) * length];
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

/// Names for the pictures of one run, none given twice.
#[derive(Default)]
struct FileNames(std::collections::HashSet<String>);

impl FileNames {
    fn next(&mut self, input: &str, method: &str) -> String {
        let stem = Path::new(input).file_name().map_or_else(|| "input".into(), |name| name.to_string_lossy());
        let stem = match stem.rsplit_once('.') {
            Some((stem, ending)) if !ending.contains('[') => stem.to_owned(),
            _ => stem.replace(".npy[", "-").replace(']', ""),
        };
        let mut name = format!("{stem}.{method}.png");
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{stem}-{number}.{method}.png");
            number += 1;
        }
        name
    }
}

fn progress(opened: usize, total: usize, begun: Instant) {
    let mut errors = std::io::stderr();
    if total <= FEW || !errors.is_terminal() || std::io::stdout().is_terminal() {
        return;
    }
    let left = begun.elapsed().as_secs_f64() / opened.max(1) as f64 * (total - opened) as f64;
    let end = if opened == total { "\r\u{1b}[K" } else { "" };
    let _ = write!(errors, "\rmonosplit: {opened} of {total} inputs, {left:.0} s left \u{1b}[K{end}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_picture_overwrites_another_of_the_same_run() {
        let mut names = FileNames::default();
        assert_eq!(names.next("a/cat.jpg", "splitcam"), "cat.splitcam.png");
        assert_eq!(names.next("b/cat.jpg", "splitcam"), "cat-2.splitcam.png");
        assert_eq!(names.next("x.npy[3]", "splitcam"), "x-3.splitcam.png");
    }
}

//! `monosplit explain`: where in the picture a network found its answer.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use monosplit::catalogue::{ConfiguredMethod, ValueBounds};
use monosplit::engine::{Engine, Profile, ProfiledEngine};
use monosplit::explain::{BatchPosition, ExplainBatch, Explainer, MapRequest, SaliencyMap, chosen_layer};
use monosplit::graph::batch::{samples_interact, stack};
use monosplit::graph::{Dim, Error, Kind, Result, Tensor, npy, write_atomically};
use monosplit::{LayerDecomposition, Model, Origin, Sample, SampleReader, channel_magnitudes};
use serde::Serialize;

use super::by_layer;
use super::cancelled_channels;
use super::class::{ClassArgs, Classes};
use super::compute::ComputeArgs;
use super::drawing::contours;
use super::explain_compiled::CompiledFile;
use super::explain_result::{ExplainContext, FileNames, InputOutput, InputResult, MapDescription, raw_paths};
use super::inputs::{SkippedOutput, remember_skipped, skipped_outputs};
use super::method::MethodArgs;
use super::network::{NetworkArgs, PiecewiseArgs};
use super::network_input;
use super::preprocessing::PreprocessingArgs;
use super::profile::{self, NodeOutput};
use super::progress::Bar;
use super::run::{check_folder, check_writable, remark};
use super::target::opened_for;
use crate::failure::{Failure, note};
use crate::json;
use crate::table::printable;

/// The default batch size.
const BATCH: usize = 4;
/// With more inputs than this, a progress line is shown.
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
  monosplit explain resnet18.onnx cat.jpg --target contrast:top,top2

The network f is split into two monotone convex networks, f = g − h, and the map is read off the
pair at a layer. For every input an overlay is written as a PNG (blue below zero, red above, on one
scale that is symmetric about zero); --raw also writes the numbers themselves, [N, H, W], exactly as
they are defined and without any normalisation. A file that `monosplit compile` wrote holds its own
maps: they are what is shown, for any --class, and --alpha where it is an input of the file. If
there are several, --method and --layer pick one.

Numbers too large for single precision are written without their power of two, which is printed.

Without options: SplitCAM of stream g at what enters the last layer that mixes places (in most
networks the last convolution that looks at more than one place), for the class with the highest
score, α = 0.4.")]
pub(crate) struct Explain {
    /// The network, an ONNX file (not with --arch), then what to explain: pictures, folders of
    /// pictures, .npy and .npz batches, or - for one of these on standard input.
    #[arg(value_name = "MODEL INPUT", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    pub(super) piecewise: PiecewiseArgs,

    #[command(flatten)]
    pub(super) method: MethodArgs,

    #[command(flatten)]
    pub(super) class: ClassArgs,

    /// The value of an input that is not explained, where the network has several: a .npy file
    /// with one sample for all, or one for each that is explained. May be given several times.
    #[arg(long = "input", value_name = "NAME=FILE", verbatim_doc_comment)]
    given: Vec<String>,

    /// Write the pictures into this folder, which is made if it is not there.
    #[arg(short = 'o', long, value_name = "DIR", default_value = "explained")]
    out: PathBuf,

    /// Write the maps of all inputs as float32 (float64 with --precision f64) into a .npy
    /// file, one for each of several layers.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    raw: Option<PathBuf>,

    /// Draw N lines of equal value on each side of zero.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = contours)]
    pub(super) contours: usize,

    /// Explain N samples at once [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: Option<u32>,

    /// What the map owes to each layer: of stream g, what each layer's hidden gradient
    /// contributed; of lrp, the relevance that lies on each.
    #[arg(long, verbatim_doc_comment)]
    pub(super) by_layer: bool,

    /// Show where the time went and how often each step ran.
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

impl Explain {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (origin, inputs) = self.files()?;
        let sources = self.preprocessing.inputs.list(inputs)?;
        if let Some(path) = &self.raw {
            check_writable(path)?;
        }
        check_folder(&self.out)?;
        let choice = self.method.choice()?;
        let target = self.class.target.choice()?;
        let options = opened_for(self.network.options_for(self.compute.precision()), target.as_ref());
        let model = network_input::open(&options.optional_inputs(true), origin)?;
        let model = if self.given.is_empty() { model } else { model.with_inputs(self.given_inputs()?)? };
        if let Some(file) = CompiledFile::of(&model) {
            file.check(self, &choice)?;
        }
        let engine = self.compute.engine()?;
        let preprocess = self.preprocessing.for_sources(&model, &sources)?;
        let model = self.class.with_target(model, target.as_ref(), preprocess.as_ref(), &*engine)?;
        let chosen = choice.resolve(&ValueBounds::of_inputs(&model, preprocess.as_ref())?, model.graph())?;
        let mut reader = self.class.fitting(self.preprocessing.reader(&model, sources, preprocess)?);
        // Piecewise-linear functions are fitted to the first sample, or to its batch where samples depend on each other.
        let samples = model.input()?.shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
        let ahead = if samples_interact(model.graph()) { self.batch_size(samples) } else { 1 };
        let waiting = reader.take(ahead)?;
        let tensors: Vec<Tensor> = waiting.iter().map(|sample| sample.tensor.clone()).collect();
        let model = match tensors.is_empty() {
            true => model,
            false => self.piecewise.apply(model, &stack(&tensors, Kind::Float)?, &*engine)?.0,
        };
        let profiled = self.profile.then(|| ProfiledEngine::new(&*engine));
        let engine = profiled.as_ref().map_or(&*engine, |profiled| profiled as &dyn Engine);
        let prepared = match CompiledFile::of(&model) {
            Some(file) => file.prepared(self, &choice, engine)?,
            None => self.prepared(&model, &chosen, engine)?,
        };
        if !self.json {
            self.announce(&prepared, out)?;
        }
        let classes = self.class.classes(&model, &prepared.context.labels)?;
        let run = InputLoop { explain: self, model: &model, prepared: &prepared };
        let found = run.all(reader, waiting, &classes, out)?;
        let profile = profiled.map(|profiled| profiled.take_profile());
        self.conclude(&model, &run, &found, profile, out)
    }

    /// Writes the numbers, the profile and the remark that follow the last input.
    fn conclude(
        &self,
        model: &Model,
        run: &InputLoop<'_>,
        found: &Outcome,
        profile: Option<Profile>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.raw {
            for (path, maps) in raw_paths(path, &run.prepared.context.descriptions).iter().zip(&found.maps) {
                write_atomically(path, &npy::write(&stack(maps, Kind::Float)?))?;
            }
        }
        if self.json {
            return json::print(&self.output(model, run.prepared, found, profile), out);
        }
        if let Some(profile) = profile {
            profile::print(profile, out)?;
        }
        out.flush()?;
        if let Some(remark) = remark(model, self.batch_size(run.prepared.explainer.samples())) {
            note(&remark);
        }
        Ok(())
    }

    /// The arrays that were given for inputs, by name.
    fn given_inputs(&self) -> Result<Vec<(String, Tensor)>> {
        let read = |text: &String| {
            let (name, file) = text
                .split_once('=')
                .ok_or_else(|| Error::argument(format!("expected --input NAME=FILE, found '{text}'")))?;
            Ok((name.to_owned(), Model::input_array(Path::new(file))?))
        };
        self.given.iter().map(read).collect()
    }

    fn files(&self) -> Result<(Origin, &[PathBuf])> {
        self.network.split(&self.files, "nothing to explain; name a picture, a folder or a .npy file")
    }

    /// Compiles the maps.
    fn prepared(&self, model: &Model, chosen: &ConfiguredMethod, engine: &dyn Engine) -> Result<ExplainJob> {
        let (labels, score_kind) = self.class.labels(model)?;
        let (layers, remark) = match self.method.layers() {
            [] => {
                let found = chosen_layer(model.graph(), chosen.method.default_layer());
                let what = found.as_ref().map_or(String::new(), |layer| format!(": {}", layer.what));
                (vec![found.map(|layer| layer.name)], format!(" (chosen{what}; --layer names another)"))
            }
            layers => (layers.iter().cloned().map(Some).collect(), String::new()),
        };
        let finish = self.method.finish();
        let request =
            |layer: &Option<String>| MapRequest::of(chosen.method.clone(), layer.clone()).finish(finish);
        let mut requests: Vec<MapRequest> = layers.iter().map(request).collect();
        requests.extend(channel_magnitudes(model.graph(), chosen, finish, &requests));
        let explainer = Explainer::new(model.graph(), &requests, engine)?;
        let in_double = requests.iter().any(|request| request.needs_double_precision(model.graph()));
        let precision = if in_double { ", in double precision" } else { "" };
        let by_layer = self.by_layer(model, chosen, &layers, engine)?;
        let descriptions = layers.into_iter().map(|layer| MapDescription::new(chosen, layer)).collect();
        // Piecewise-linear functions have added layers.
        let settings = chosen.clone().for_network(model.graph())?.settings;
        let is_target = model.target().is_some_and(|target| !target.is_class());
        let contours = self.contours;
        let context = ExplainContext { labels, score_kind, descriptions, settings, contours, is_target };
        Ok(ExplainJob { context, explainer, by_layer, remark, precision })
    }

    /// The decomposition by layer, if `--by-layer` was given.
    fn by_layer(
        &self,
        model: &Model,
        chosen: &ConfiguredMethod,
        layers: &[Option<String>],
        engine: &dyn Engine,
    ) -> Result<Option<LayerDecomposition>> {
        if self.by_layer && self.json {
            return Err(Error::argument("--by-layer prints a table; leave out --json"));
        }
        let decomposition = self.by_layer.then(|| LayerDecomposition::new(model, chosen, layers, engine));
        decomposition.transpose().map_err(|error| error.context("--by-layer"))
    }

    fn batch_size(&self, samples: Dim) -> usize {
        match samples {
            Dim::Fixed(fixed) => fixed.max(1),
            Dim::Batch(_) => self.batch.map_or(BATCH, |batch| batch as usize),
        }
    }

    fn announce(&self, prepared: &ExplainJob, out: &mut dyn Write) -> Result<(), Failure> {
        let remark = if self.method.layers().is_empty() { prepared.remark.as_str() } else { "" };
        for alike in prepared.context.descriptions.chunk_by(|a, b| a.title == b.title) {
            let layers: Vec<&str> = alike.iter().map(MapDescription::layer_name).collect();
            let (title, precision) = (printable(&alike[0].title), prepared.precision);
            writeln!(out, "{title} at {}{precision}{remark}", printable(&layers.join(", ")))?;
        }
        Ok(())
    }

    fn output<'a>(
        &self,
        model: &Model,
        prepared: &'a ExplainJob,
        found: &'a Outcome,
        profile: Option<Profile>,
    ) -> ExplainOutput<'a> {
        let ExplainJob { context, explainer, .. } = prepared;
        let first = context.descriptions.first();
        ExplainOutput {
            network: model.origin().to_string(),
            target: model.target().map(ToString::to_string),
            note: remark(model, self.batch_size(explainer.samples())),
            method: first.map(|map| &*map.method),
            title: first.map(|map| &*map.title),
            alpha: first.and_then(|map| map.alpha),
            inputs: found.results.iter().map(|result| result.output(context)).collect(),
            skipped: skipped_outputs(),
            profile: profile.map(profile::outputs),
        }
    }
}

/// The results for programs.
#[derive(Serialize)]
struct ExplainOutput<'a> {
    network: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    note: Option<String>,
    method: Option<&'a str>,
    title: Option<&'a str>,
    alpha: Option<f64>,
    inputs: Vec<InputOutput<'a>>,
    skipped: Vec<SkippedOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Vec<NodeOutput>>,
}

/// Compiled maps.
pub(super) struct ExplainJob {
    pub(super) context: ExplainContext,
    pub(super) explainer: Explainer,
    /// The decomposition by layer.
    pub(super) by_layer: Option<LayerDecomposition>,
    /// The remark on the layer where none was named.
    pub(super) remark: String,
    /// The remark on the precision where the method needs more than was asked for.
    pub(super) precision: &'static str,
}

/// The loop over all inputs.
struct InputLoop<'a> {
    explain: &'a Explain,
    model: &'a Model,
    prepared: &'a ExplainJob,
}

/// The outcome of the loop: the results, the numbers for each layer if they are to be written, and the times.
struct Outcome {
    results: Vec<InputResult>,
    maps: Vec<Vec<Tensor>>,
}

impl InputLoop<'_> {
    fn all(
        &self,
        mut reader: SampleReader,
        mut waiting: Vec<Sample>,
        classes: &Classes,
        out: &mut dyn Write,
    ) -> Result<Outcome, Failure> {
        let ExplainJob { context, explainer, by_layer, .. } = self.prepared;
        let batch = self.explain.batch_size(explainer.samples());
        let mut names = FileNames::default();
        let (mut results, mut maps) = (Vec::new(), vec![Vec::new(); context.descriptions.len()]);
        // Results on the terminal show the progress themselves, and of many inputs only the inputs are counted.
        let counted = reader.total() > FEW && !std::io::stdout().is_terminal();
        let inputs = counted.then(|| Bar::counting("inputs"));
        waiting.extend(reader.take(batch - waiting.len())?);
        loop {
            let samples = std::mem::replace(&mut waiting, reader.take(batch)?);
            if samples.is_empty() {
                break;
            }
            let started = Instant::now();
            let class = classes.of(results.len(), samples.len())?;
            let tensors: Vec<Tensor> = samples.iter().map(|sample| sample.tensor.clone()).collect();
            let images = stack(&tensors, Kind::Float)?;
            let bar = Bar::new(samples.len());
            let position = Some(BatchPosition { offset: results.len(), is_last: waiting.is_empty() });
            let others = self.model.given_inputs(results.len(), samples.len())?;
            let batch = ExplainBatch {
                progress: if counted { &monosplit::explain::NoProgress } else { &bar },
                position,
                other_inputs: &others,
                ..ExplainBatch::new(&images, &class, &context.settings)
            };
            let mut explained = explainer.explain_batch(&batch)?;
            let sizes = explained.maps.split_off(context.descriptions.len());
            if results.is_empty() {
                self.remark_on_cancelled_channels(&explained.maps, &sizes);
            }
            let time = started.elapsed() / samples.len() as u32;
            for (row, sample) in samples.iter().enumerate() {
                let mut result = context.result(sample, row, &explained, time)?;
                for (index, map) in explained.maps.iter().enumerate() {
                    let place = (self.explain.out.as_path(), &mut names);
                    context.add_map(&mut result, index, sample, (map, row), place)?;
                }
                if !self.explain.json {
                    context.print(&result, out)?;
                }
                results.push(result);
            }
            if let Some(decomposition) = by_layer {
                let alpha = context.settings.alpha[0];
                let contributions = decomposition.contributions(&images, &explained.classes, alpha)?;
                by_layer::print(&contributions, &samples, out)?;
            }
            if self.explain.raw.is_some() {
                for (kept, map) in maps.iter_mut().zip(explained.maps) {
                    kept.push(self.explain.compute.in_precision(map.values)?);
                }
            }
            out.flush()?;
            if let Some(inputs) = &inputs {
                inputs.show(reader.opened().saturating_sub(waiting.len()), reader.total());
            }
        }
        classes.all_used(results.len())?;
        remember_skipped(&reader);
        Ok(Outcome { results, maps })
    }

    fn remark_on_cancelled_channels(&self, maps: &[SaliencyMap], sizes: &[SaliencyMap]) {
        for (description, (map, size)) in
            self.prepared.context.descriptions.iter().zip(maps.iter().zip(sizes))
        {
            if let Some(remark) = cancelled_channels::remark(description.layer_name(), map, size) {
                note(&remark);
            }
        }
    }
}

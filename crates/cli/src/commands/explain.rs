//! `monosplit explain`: where in the picture a network found its answer.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use monosplit::catalogue::{ConfiguredMethod, MethodChoice, ValueBounds};
use monosplit::engine::{Engine, Profile, ProfiledEngine};
use monosplit::explain::{BatchPosition, ExplainBatch, Explainer, MapRequest, SaliencyMap, chosen_layer};
use monosplit::graph::batch::{rows, samples_interact, stack};
use monosplit::graph::{Dim, Error, Graph, Kind, LayerName, Result, Tensor, npy, write_atomically};
use monosplit::image::Preprocess;
use monosplit::{
    InputFile, LayerDecomposition, Model, Origin, Sample, SampleReader, TargetChoice, Vocabulary,
    channel_magnitudes,
};
use serde::Serialize;

use super::by_layer;
use super::cancelled_channels;
use super::class::{ClassArgs, Classes};
use super::compute::ComputeArgs;
use super::drawing::contours;
use super::drawn_files::DrawnFiles;
use super::explain_compiled::CompiledFile;
use super::explain_named::words;
use super::explain_result::{ExplainContext, Explained, InputOutput, InputResult, MapDescription, raw_paths};
use super::inputs::{SkippedOutput, remember_skipped, skipped_outputs};
use super::method::MethodArgs;
use super::named_inputs::{ExplainedInputArgs, GivenInputArgs, NamedInputs, TokenArgs, graph_inputs};
use super::network::{NetworkArgs, PiecewiseArgs};
use super::network_input::{self, RecentShapes};
use super::preprocessing::PreprocessingArgs;
use super::profile::{self, NodeOutput};
use super::progress::Bar;
use super::run::{check_writable, remark};
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
  monosplit explain bert.onnx ids.npy --input mask=mask.npy --tokens vocab.txt --method gradient
  monosplit explain two.onnx --input image=cat.jpg --input facts=facts.csv --of image,facts

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
    /// pictures, .npy and .npz batches, .csv tables, or - for a picture or a batch on standard
    /// input.
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

    /// Write the pictures into this folder, which is made if it is not there; a name that ends in
    /// .png is that of the picture itself.
    #[arg(short = 'o', long, value_name = "PATH", default_value = "explained", verbatim_doc_comment)]
    pub(super) out: PathBuf,

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
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) given: GivenInputArgs,

    #[command(flatten)]
    of: ExplainedInputArgs,

    #[command(flatten)]
    pub(super) tokens: TokenArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    pub(super) preprocessing: PreprocessingArgs,
}

impl Explain {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (origin, inputs) = self.files()?;
        // A compiled file explains what it was compiled to: none of its inputs is different.
        let (own, given) = match inputs {
            [] if monosplit::holds_maps(origin.path()) => self.given.first_apart()?,
            _ => (None, self.given.clone()),
        };
        let own: Vec<PathBuf> = own.into_iter().collect();
        let inputs = if inputs.is_empty() { &own[..] } else { inputs };
        let sources = self.preprocessing.inputs.list(inputs)?;
        if let Some(path) = &self.raw {
            check_writable(path)?;
        }
        let files = DrawnFiles::at(&self.out)?;
        let choice = self.method.choice()?;
        let target = self.class.target.choice()?;
        let options = opened_for(self.network.options_for(self.compute.precision()), target.as_ref());
        let inputs_of = (&given, &self.preprocessing);
        let opened = network_input::open_for(&options.optional_inputs(true), origin, inputs_of, &sources)?;
        let named = match CompiledFile::of(&opened.model) {
            Some(_) => None,
            None => self.of.chosen(&opened.model, &self.given, inputs)?,
        };
        if let Some(named) = named {
            return self.explain_named(&named, opened.model, (&choice, target.as_ref()), &sources, out);
        }
        let is_compiled = match CompiledFile::of(&opened.model) {
            Some(file) => file.check(self, &choice).map(|()| true)?,
            None => false,
        };
        let may_hold_ids = is_compiled && graph_inputs(&opened.model).any(|input| input.kind == Kind::Int);
        let vocabulary = self.tokens.vocabulary(&opened.model, may_hold_ids)?;
        let engine = self.compute.engine()?;
        let profiled = self.profile.then(|| ProfiledEngine::new(&*engine));
        let engine = profiled.as_ref().map_or(&*engine, |profiled| profiled as &dyn Engine);
        let total = sources.len();
        let groups = opened.same_shapes(sources);
        let (mut recent, mut state) = (RecentShapes::new(), LoopState::new(files, total));
        let last = groups.len().saturating_sub(1);
        for (index, (shape, sources)) in groups.into_iter().enumerate() {
            let ready = recent.get(&shape, || -> Result<ReadyNetwork, Failure> {
                let network = opened.model(shape.as_deref().filter(|_| index > 0))?;
                self.ready((network, &given), &sources, (&choice, target.as_ref()), engine)
            })?;
            let (reader, waiting) = match ready.begun.take() {
                Some(begun) => begun,
                None => (self.reader(&ready.model, sources, ready.preprocess.clone())?, Vec::new()),
            };
            if index == 0 && !self.json {
                self.announce(&ready.job, out)?;
            }
            let classes = self.class.classes(&ready.model, &ready.job.context.labels)?;
            let (model, prepared) = (&ready.model, &ready.job);
            let run = InputLoop { explain: self, model, prepared, vocabulary: &vocabulary, engine };
            run.all((reader, waiting), &classes, &mut state, index == last, out)?;
            if index == last {
                classes.all_used(state.outcome.results.len())?;
                let batch = self.batch_size(ready.job.explainer.samples());
                let profile = profiled.as_ref().map(ProfiledEngine::take_profile);
                self.conclude(&ready.model, (&ready.job.context, batch), &state.outcome, profile, out)?;
            }
        }
        Ok(())
    }

    /// Compiles the maps of a network for inputs of one shape.
    fn ready(
        &self,
        (model, given): (Model, &GivenInputArgs),
        sources: &[InputFile],
        (choice, target): (&MethodChoice, Option<&TargetChoice>),
        engine: &dyn Engine,
    ) -> Result<ReadyNetwork, Failure> {
        let model = given.fixed(model, &self.preprocessing)?;
        let preprocess = self.preprocessing.for_sources(&model, sources)?;
        let model = self.class.with_target(model, target, preprocess.as_ref(), engine)?;
        let chosen = choice.resolve(&ValueBounds::of_inputs(&model, preprocess.as_ref())?, model.graph())?;
        let mut reader = self.reader(&model, sources.to_vec(), preprocess.clone())?;
        // Piecewise-linear functions are fitted to the first sample, or to its batch where samples depend on each other.
        let samples = model.input()?.shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
        let ahead = if samples_interact(model.graph()) { self.batch_size(samples) } else { 1 };
        let waiting = reader.take(ahead)?;
        let tensors: Vec<Tensor> = waiting.iter().map(|sample| sample.tensor.clone()).collect();
        let model = match tensors.is_empty() {
            true => model,
            false => self.piecewise.apply(model, &stack(&tensors, Kind::Float)?, engine)?.0,
        };
        let job = match CompiledFile::of(&model) {
            Some(file) => file.prepared(self, choice, engine)?,
            None => self.prepared(&model, &chosen, engine)?,
        };
        Ok(ReadyNetwork { model, preprocess, job, begun: Some((reader, waiting)) })
    }

    fn reader(
        &self,
        model: &Model,
        sources: Vec<InputFile>,
        preprocess: Option<Preprocess>,
    ) -> Result<SampleReader> {
        Ok(self.class.fitting(self.preprocessing.reader(model, sources, preprocess)?))
    }

    /// Explains inputs that are known by their names.
    fn explain_named(
        &self,
        named: &NamedInputs,
        model: Model,
        (choice, target): (&MethodChoice, Option<&TargetChoice>),
        sources: &[InputFile],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let engine = self.compute.engine()?;
        let preprocess = self.preprocessing.known(&model);
        let model = self.class.with_target(model, target, preprocess.as_ref(), &*engine)?;
        let profiled = self.profile.then(|| ProfiledEngine::new(&*engine));
        let engine = profiled.as_ref().map_or(&*engine, |profiled| profiled as &dyn Engine);
        let (job, found) = named.explain(self, &model, choice, sources, engine, out)?;
        let profile = profiled.map(|profiled| profiled.take_profile());
        self.conclude(&model, (&job.context, self.named_batch()), &found, profile, out)
    }

    /// How many samples of named inputs are explained at once.
    pub(super) fn named_batch(&self) -> usize {
        self.batch.map_or(BATCH, |batch| batch as usize)
    }

    /// Writes the numbers, the profile and the remark that follow the last input.
    fn conclude(
        &self,
        model: &Model,
        (context, batch): (&ExplainContext, usize),
        found: &Outcome,
        profile: Option<Profile>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.raw {
            for (path, maps) in raw_paths(path, &context.descriptions).iter().zip(&found.maps) {
                write_atomically(path, &npy::write(&stack(maps, Kind::Float)?))?;
            }
        }
        if self.json {
            return json::print(&self.output(model, (context, batch), found, profile), out);
        }
        if let Some(profile) = profile {
            profile::print(profile, out)?;
        }
        out.flush()?;
        if let Some(remark) = remark(model, batch) {
            note(&remark);
        }
        Ok(())
    }

    fn files(&self) -> Result<(Origin, &[PathBuf])> {
        let nothing = "nothing to explain; name a picture, a folder, a .npy or a .csv file";
        if self.given.are_given() {
            return self.network.split_any(&self.files);
        }
        self.network.split(&self.files, nothing)
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
        let explainer = Explainer::new(model.graph(), &requests, engine)
            .map_err(|error| self.layer_of_target(model).unwrap_or(error))?;
        let in_double = requests.iter().any(|request| request.needs_double_precision(model.graph()));
        let precision = if in_double { ", in double precision" } else { "" };
        let by_layer = self.by_layer(model, chosen, &layers, engine)?;
        let descriptions = layers.into_iter().map(|layer| MapDescription::new(chosen, layer)).collect();
        // Piecewise-linear functions have added layers.
        let settings = chosen.clone().for_network(model.graph())?.settings;
        let is_target = model.target().is_some_and(|target| !target.is_class());
        let (contours, named_class) = (self.contours, model.named_class());
        let context =
            ExplainContext { labels, score_kind, descriptions, settings, contours, is_target, named_class };
        Ok(ExplainJob { context, explainer, by_layer, remark, precision })
    }

    /// An error if a layer of the network was named that the target does not depend on.
    fn layer_of_target(&self, model: &Model) -> Option<Error> {
        let target = model.target()?;
        let is_in = |layer: &str, graph: &Graph| LayerName::parse(layer).value(graph).is_ok();
        let mut layers = self.method.layers().iter();
        let layer = layers.find(|layer| !is_in(layer, model.graph()) && is_in(layer, model.original()))?;
        Some(model.unfit(format!(
            "layer '{layer}' is not on the way to {target}; name one that it is computed from, or leave out --layer"
        )))
    }

    /// The decomposition by layer, if `--by-layer` was given.
    fn by_layer(
        &self,
        model: &Model,
        chosen: &ConfiguredMethod,
        layers: &[Option<String>],
        engine: &dyn Engine,
    ) -> Result<Option<ByLayer>> {
        if self.by_layer && self.json {
            return Err(Error::argument("--by-layer prints a table; leave out --json"));
        }
        let by_layer = self.by_layer.then(|| {
            if !model.has_given_inputs() {
                return LayerDecomposition::new(model, chosen, layers, engine).map(ByLayer::OfAll);
            }
            let first = model.given_inputs(0, 1)?.into_iter().map(|(name, value)| (name.to_owned(), value));
            let held = model.clone().with_held_inputs(&first.collect::<Vec<_>>())?;
            // A method without a decomposition is refused before anything is written.
            LayerDecomposition::new(&held, chosen, layers, engine)?;
            Ok(ByLayer::OfEach { chosen: Box::new(chosen.clone()), layers: layers.to_vec() })
        });
        by_layer.transpose().map_err(|error| error.context("--by-layer"))
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
        (context, batch): (&'a ExplainContext, usize),
        found: &'a Outcome,
        profile: Option<Profile>,
    ) -> ExplainOutput<'a> {
        let first = context.descriptions.first();
        ExplainOutput {
            network: model.origin().to_string(),
            target: model.target().map(ToString::to_string),
            note: remark(model, batch),
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

/// A network for inputs of one shape with its compiled maps.
struct ReadyNetwork {
    model: Model,
    preprocess: Option<Preprocess>,
    job: ExplainJob,
    /// A reader of the inputs that it was made for, and the samples that were read for it.
    begun: Option<(SampleReader, Vec<Sample>)>,
}

/// What goes on from the inputs of one shape to those of the next.
struct LoopState {
    files: DrawnFiles,
    outcome: Outcome,
    /// The number of files, and of those that were opened.
    total: usize,
    opened: usize,
    /// Counts the inputs, where nothing else shows the progress.
    bar: Option<Bar>,
}

impl LoopState {
    fn new(files: DrawnFiles, total: usize) -> Self {
        // Results on the terminal show the progress themselves, and of many inputs only the inputs are counted.
        let counted = total > FEW && !std::io::stdout().is_terminal();
        let bar = counted.then(|| Bar::counting("inputs"));
        LoopState { files, outcome: Outcome::default(), total, opened: 0, bar }
    }
}

/// Compiled maps.
pub(super) struct ExplainJob {
    pub(super) context: ExplainContext,
    pub(super) explainer: Explainer,
    /// The decomposition by layer.
    pub(super) by_layer: Option<ByLayer>,
    /// The remark on the layer where none was named.
    pub(super) remark: String,
    /// The remark on the precision where the method needs more than was asked for.
    pub(super) precision: &'static str,
}

/// The decomposition of maps by layer.
pub(super) enum ByLayer {
    /// One for all samples.
    OfAll(LayerDecomposition),
    /// One for each, which holds the inputs that are given beside it as constants.
    OfEach { chosen: Box<ConfiguredMethod>, layers: Vec<Option<String>> },
}

/// The loop over all inputs.
struct InputLoop<'a> {
    explain: &'a Explain,
    model: &'a Model,
    prepared: &'a ExplainJob,
    /// What the token ids of a compiled file stand for.
    vocabulary: &'a Vocabulary,
    engine: &'a dyn Engine,
}

/// The outcome of the loop: the results, the numbers for each layer if they are to be written, and the times.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) results: Vec<InputResult>,
    maps: Vec<Vec<Tensor>>,
}

impl Outcome {
    /// Keeps the numbers of a batch if they are to be written.
    pub(super) fn keep(&mut self, explain: &Explain, maps: Vec<SaliencyMap>) -> Result<()> {
        if explain.raw.is_some() {
            self.maps.resize_with(maps.len(), Vec::new);
            for (kept, map) in self.maps.iter_mut().zip(maps) {
                let values = explain.compute.in_precision(map.values)?;
                if kept.first().is_some_and(|first: &Tensor| first.shape()[1..] != values.shape()[1..]) {
                    return Err(Error::argument(
                        "the inputs have maps of different sizes, which one array cannot hold; leave out --raw, or give \
                         inputs of one size",
                    ));
                }
                kept.push(values);
            }
        }
        Ok(())
    }
}

impl InputLoop<'_> {
    fn all(
        &self,
        (mut reader, mut waiting): (SampleReader, Vec<Sample>),
        classes: &Classes,
        state: &mut LoopState,
        are_last: bool,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let ExplainJob { context, explainer, by_layer, .. } = self.prepared;
        let batch = self.explain.batch_size(explainer.samples());
        waiting.extend(reader.take(batch.saturating_sub(waiting.len()))?);
        loop {
            let samples = std::mem::replace(&mut waiting, reader.take(batch)?);
            if samples.is_empty() {
                break;
            }
            let started = Instant::now();
            let first = state.outcome.results.len();
            let class = classes.of(first, samples.len())?;
            let tensors: Vec<Tensor> = samples.iter().map(|sample| sample.tensor.clone()).collect();
            let images = stack(&tensors, self.model.input()?.kind)?;
            let bar = Bar::new(samples.len());
            let position = Some(BatchPosition { offset: first, is_last: are_last && waiting.is_empty() });
            let others = self.model.given_inputs(first, samples.len())?;
            let batch = ExplainBatch {
                progress: if state.bar.is_some() { &monosplit::explain::NoProgress } else { &bar },
                position,
                other_inputs: &others,
                ..ExplainBatch::new(&images, &class, &context.settings)
            };
            let mut explained = explainer.explain_batch(&batch)?;
            let sizes = explained.maps.split_off(context.descriptions.len());
            if first == 0 {
                self.remark_on_cancelled_channels(&explained.maps, &sizes);
            }
            let time = started.elapsed() / samples.len() as u32;
            for (row, sample) in samples.iter().enumerate() {
                let mut result = context.result(sample, row, &explained, time)?;
                for (index, map) in explained.maps.iter().enumerate() {
                    let own = self.sample_of(index, (sample, row), &others)?;
                    let sample = own.as_ref().unwrap_or(sample);
                    let is_text = sample.tensor.kind() == Kind::Int;
                    let words = is_text.then(|| words(self.vocabulary, &sample.tensor));
                    let of = Explained { sample, words: words.as_deref() };
                    context.add_map(&mut result, index, of, (map, row), &mut state.files)?;
                }
                if !self.explain.json {
                    context.print(&result, out)?;
                }
                state.outcome.results.push(result);
            }
            if let Some(decomposition) = by_layer {
                self.print_by_layer(decomposition, (&samples, &images), &explained.classes, &others, out)?;
            }
            state.outcome.keep(self.explain, explained.maps)?;
            out.flush()?;
            if let Some(bar) = &state.bar {
                let opened = state.opened + reader.opened();
                bar.show(opened.saturating_sub(waiting.len()), state.total);
            }
        }
        state.opened += reader.opened();
        remember_skipped(&reader);
        Ok(())
    }

    /// Prints what each layer contributes to the maps of a batch.
    fn print_by_layer(
        &self,
        by_layer: &ByLayer,
        (samples, images): (&[Sample], &Tensor),
        classes: &[usize],
        given: &[(&str, Tensor)],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let alpha = self.prepared.context.settings.alpha[0];
        match by_layer {
            ByLayer::OfAll(decomposition) => {
                by_layer::print(&decomposition.contributions(images, classes, alpha)?, samples, out)
            }
            ByLayer::OfEach { chosen, layers } => {
                for (row, sample) in samples.iter().enumerate() {
                    let own = |(name, value): &(&str, Tensor)| {
                        Ok(((*name).to_owned(), rows(value, std::iter::once(row))?))
                    };
                    let own = given.iter().map(own).collect::<Result<Vec<_>>>()?;
                    let model = self.model.clone().with_held_inputs(&own)?;
                    let decomposition = LayerDecomposition::new(&model, chosen, layers, self.engine)
                        .map_err(|error| error.context("--by-layer"))?;
                    let found = decomposition.contributions(&sample.tensor, &classes[row..=row], alpha)?;
                    by_layer::print(&found, std::slice::from_ref(sample), out)?;
                }
                Ok(())
            }
        }
    }

    /// The sample that a map is of, where a compiled file explains an input that was given by name.
    fn sample_of(
        &self,
        index: usize,
        (sample, row): (&Sample, usize),
        given: &[(&str, Tensor)],
    ) -> Result<Option<Sample>> {
        let explained = self.prepared.context.descriptions[index].explained.as_deref();
        let Some((_, value)) = given.iter().find(|(name, _)| Some(*name) == explained) else {
            return Ok(None);
        };
        let tensor = rows(value, std::iter::once(row))?;
        Ok(Some(Sample { name: sample.name.clone(), tensor, picture: None, features: None }))
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

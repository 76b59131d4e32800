//! `monosplit run`: the predictions of a network.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::graph::batch::{samples_interact, stack};
use monosplit::graph::{Error, Kind, Result, Tensor, check_replaceable, npy, write_atomically};
use monosplit::{Inference, InputFile, Labels, Model, Origin, RankedClass, Sample, SampleReader, ScoreKind};
use serde::Serialize;

use super::compute::ComputeArgs;
use super::inputs::{SkippedOutput, remember_skipped, skipped_outputs};
use super::named_inputs::GivenInputArgs;
use super::network::NetworkArgs;
use super::network_input::{self, RecentShapes};
use super::preprocessing::PreprocessingArgs;
use super::profile::{self, NodeOutput};
use super::progress::Bar;
use crate::failure::{Failure, note};
use crate::json;
use crate::table::printable;

/// The default batch size.
const BATCH: usize = 8;

/// With more inputs than this, a progress line is shown.
const FEW: usize = 8;

/// Run a network on pictures and show the classes it finds.
#[derive(Args)]
#[command(override_usage = "monosplit run MODEL INPUT... [OPTIONS]
       monosplit run --arch NAME --weights FILE INPUT... [OPTIONS]")]
#[command(long_about = "\
Runs a network on pictures and shows the classes it finds, the most probable first.

  monosplit run resnet18.onnx cat.jpg
  monosplit run resnet18.onnx photos/ --top 1
  monosplit run --arch resnet18 --weights resnet18-f37072fd.pth cat.jpg dog.png
  monosplit run squeezenet.onnx cat.jpg --preset imagenet-bgr
  monosplit run pets.onnx x.npy --labels pets-labels.txt --raw logits.npy
  monosplit run bert.onnx --input input_ids=ids.npy --input attention_mask=mask.npy

An INPUT is a picture (JPEG, PNG, WebP, GIF, BMP, TIFF or PPM), a folder of them (taken in the order
of their names), a .npy array of samples that are already as the network reads them, [N, C, H, W],
or - for a picture or array on standard input; of a .npz file with several arrays it is the one that
has the name of the network's input. Pictures are turned upright and brought to the network's size
exactly as torchvision does it, except that one which has that size already goes in as it is;
--preset, --fit and the options below them say how.

Probabilities are the softmax of the logits. If the network itself ends in a softmax or a sigmoid
over classes, that one is taken off first, so that it is not applied twice; a note says so. Of a
network with several outputs the first is used, or the one that --output names. A network written
down for a certain batch size runs on any number of inputs. In one written down in training mode
the samples of a batch depend on each other; a note says so.")]
pub(crate) struct RunCommand {
    /// The network, an ONNX file (not with --arch), then what to run it on.
    #[arg(value_name = "MODEL INPUT")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    /// How many classes to show for each input.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// Names of the classes, one a line. Without it, networks of 1000 classes get the names of
    /// ImageNet, and those of 1001 the same with `background` before them, as TensorFlow has it.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    labels: Option<PathBuf>,

    /// Write the logits of all inputs to FILE, an array [N, classes] of float32 (of float64 with
    /// --precision f64), in NumPy's format. The file appears when it is complete.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    raw: Option<PathBuf>,

    /// How many inputs are computed together; more need more memory [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: Option<u32>,

    /// Also show how long each layer took.
    #[arg(long)]
    profile: bool,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    given: GivenInputArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

/// How the first output is shown.
struct ScoreFormat {
    labels: Labels,
    score_kind: ScoreKind,
    top: usize,
}

/// The best classes of one input.
struct Prediction {
    input: String,
    best: Vec<RankedClass>,
}

/// What goes on from the inputs of one shape to those of the next.
#[derive(Default)]
struct LoopState {
    total: usize,
    opened: usize,
    /// How many samples were run.
    run: usize,
    predictions: Vec<Prediction>,
    raw: Vec<Tensor>,
}

impl LoopState {
    /// Keeps what is to be written.
    fn keep(&mut self, scores: Tensor) -> Result<()> {
        if self.raw.first().is_some_and(|first| first.shape()[1..] != scores.shape()[1..]) {
            return Err(Error::argument(
                "the inputs have outputs of different sizes, which one array cannot hold; leave out --raw, or give inputs \
                 of one size",
            ));
        }
        self.raw.push(scores);
        Ok(())
    }
}

impl RunCommand {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (origin, inputs) = self.files()?;
        let (own, given) = match inputs {
            [] => self.given.first_apart()?,
            _ => (None, self.given.clone()),
        };
        let named: Vec<PathBuf> = own.into_iter().collect();
        let inputs = if inputs.is_empty() { &named[..] } else { inputs };
        let sources = self.preprocessing.inputs.list(inputs)?;
        if let Some(path) = &self.raw {
            check_writable(path)?;
        }
        let options = self.network.options_for(self.compute.precision());
        let opened = network_input::open_for(&options, origin, (&given, &self.preprocessing), &sources)?;
        let format = self.format(&opened.model)?;
        let engine = self.compute.engine()?;
        let mut state = LoopState { total: sources.len(), ..LoopState::default() };
        let groups = opened.same_shapes(sources);
        let (mut recent, last) = (RecentShapes::new(), groups.len().saturating_sub(1));
        for (index, (shape, sources)) in groups.into_iter().enumerate() {
            let (model, inference) = recent.get(&shape, || -> Result<(Model, Inference)> {
                let model = opened.model(shape.as_deref().filter(|_| index > 0))?;
                let model = given.fixed(model, &self.preprocessing)?;
                let inference = Inference::new(&model, &*engine)?;
                Ok((model, if self.profile { inference.profiled() } else { inference }))
            })?;
            self.run(model, inference, sources, format.as_ref(), &mut state, out)?;
            if index == last {
                let LoopState { predictions, raw, .. } = std::mem::take(&mut state);
                self.finish(model, inference, format.as_ref(), predictions, &raw, out)?;
            }
        }
        Ok(())
    }

    /// Runs the network on inputs of one shape.
    fn run(
        &self,
        model: &Model,
        inference: &mut Inference,
        sources: Vec<InputFile>,
        format: Option<&ScoreFormat>,
        state: &mut LoopState,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let batch = self.batch(model)?;
        let mut reader = self.reader(model, sources)?;
        let bar = Bar::counting("inputs");
        // Results on the terminal show the progress themselves.
        let unseen = self.json || !std::io::stdout().is_terminal();
        loop {
            let samples = reader.take(batch)?;
            if samples.is_empty() {
                break;
            }
            let tensors: Vec<Tensor> = samples.iter().map(|sample| sample.tensor.clone()).collect();
            let others = model.given_inputs(state.run, tensors.len())?;
            let scores = inference.run_beside(&tensors, &others)?;
            state.run += tensors.len();
            let found =
                format.as_ref().map_or(Ok(Vec::new()), |format| format.predictions(&samples, &scores))?;
            if self.json {
                state.predictions.extend(found);
            } else if let Some(format) = &format {
                found.iter().try_for_each(|prediction| format.print(prediction, out))?;
                out.flush()?;
            }
            if self.raw.is_some() {
                state.keep(rows_of_classes(scores)?)?;
            }
            if unseen && state.total > FEW {
                bar.show(state.opened + reader.opened(), state.total);
            }
        }
        state.opened += reader.opened();
        remember_skipped(&reader);
        Ok(())
    }

    fn files(&self) -> Result<(Origin, &[PathBuf])> {
        if self.given.are_given() {
            return self.network.split_any(&self.files);
        }
        self.network
            .split(&self.files, "nothing to run the network on; name a picture, a folder or a .npy file")
    }

    fn format(&self, model: &Model) -> Result<Option<ScoreFormat>> {
        let Some(classes) = model.classes() else {
            return match (&self.raw, &self.labels) {
                (Some(_), None) => Ok(None),
                _ => {
                    Err(model
                        .unfit_output("expected one score for each class; --raw FILE writes it as it is"))
                }
            };
        };
        let labels = match &self.labels {
            Some(path) => Labels::open(path, classes)?,
            None => Labels::of(model, classes),
        };
        let score_kind = model.score_kind();
        Ok(Some(ScoreFormat { labels, score_kind, top: self.top as usize }))
    }

    fn batch(&self, model: &Model) -> Result<usize> {
        let asked = self.batch.map(|batch| batch as usize);
        match (model.fixed_batch()?, asked) {
            (Some(fixed), Some(asked)) if asked % fixed != 0 => Err(model.unfit(format!(
                "the network was written down for batches of {fixed}; --batch {asked} is no multiple of that"
            ))),
            (Some(fixed), None) => Ok(BATCH.next_multiple_of(fixed)),
            (_, asked) => Ok(asked.unwrap_or(BATCH)),
        }
    }

    fn reader(&self, model: &Model, sources: Vec<InputFile>) -> Result<SampleReader> {
        let preprocess = self.preprocessing.for_sources(model, &sources)?;
        self.preprocessing.reader(model, sources, preprocess)
    }

    fn finish(
        &self,
        model: &Model,
        inference: &Inference,
        format: Option<&ScoreFormat>,
        predictions: Vec<Prediction>,
        raw: &[Tensor],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.raw {
            write_atomically(path, &npy::write(&stack(raw, Kind::Float)?))?;
        }
        let note_on_output = remark(model, self.batch(model)?);
        if self.json {
            let predictions = predictions.iter().zip(format.into_iter().cycle());
            let found = RunOutput {
                network: model.origin().to_string(),
                note: note_on_output,
                inputs: predictions.map(|(prediction, format)| format.output(prediction)).collect(),
                skipped: skipped_outputs(),
                profile: self.profile.then(|| profile::outputs(inference.profile().clone())),
            };
            return json::print(&found, out);
        }
        if self.profile {
            profile::print(inference.profile().clone(), out)?;
        }
        out.flush()?;
        if let Some(remark) = note_on_output {
            note(&remark);
        }
        Ok(())
    }
}

/// The predictions for programs.
#[derive(Serialize)]
struct RunOutput<'a> {
    network: String,
    note: Option<String>,
    inputs: Vec<PredictionOutput<'a>>,
    skipped: Vec<SkippedOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Vec<NodeOutput>>,
}

#[derive(Serialize)]
struct PredictionOutput<'a> {
    input: &'a str,
    top: Vec<ClassOutput>,
}

#[derive(Serialize)]
struct ClassOutput {
    class: usize,
    name: String,
    score: f64,
    probability: Option<f64>,
}

/// The remark on how the scores were computed, if there is one.
pub(crate) fn remark(model: &Model, batch: usize) -> Option<String> {
    let mut remarks: Vec<String> = scores_remark(model).into_iter().collect();
    if samples_interact(model.graph()) {
        remarks.push(format!(
            "the samples of a batch depend on each other in this network (it was written down in training mode); \
             they were taken in the order given, up to {batch} together, which --batch changes"
        ));
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// The remark on what the scores are, where the network ends in a softmax or a sigmoid.
pub(crate) fn scores_remark(model: &Model) -> Option<String> {
    let output = &model.graph().outputs().first()?.name;
    let found = &model.report().outputs;
    let logits = |ends: &str| {
        format!("the network ends in a {ends} at '{output}'; what enters it was taken as logits")
    };
    if found.softmax.contains(output) {
        Some(logits("softmax"))
    } else if found.sigmoid.contains(output) {
        Some(format!("{}, and each class has a probability of its own", logits("sigmoid")))
    } else if found.kept.contains(output) {
        Some(format!("the scores are the probabilities at '{output}'"))
    } else {
        None
    }
}

impl ScoreFormat {
    fn predictions(&self, samples: &[Sample], scores: &Tensor) -> Result<Vec<Prediction>> {
        let all = scores.to_f64();
        let rows = all.chunks_exact((all.len() / samples.len().max(1)).max(1));
        samples
            .iter()
            .zip(rows)
            .map(|(sample, row)| {
                let best = RankedClass::best(row, self.top, self.score_kind).ok_or_else(|| {
                    Error::argument(format!(
                        "{}: the network returned numbers that are not finite; try --precision f64, \
                         and check the preprocessing",
                        sample.name
                    ))
                })?;
                Ok(Prediction { input: sample.name.clone(), best })
            })
            .collect()
    }

    fn print(&self, prediction: &Prediction, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "{}", printable(&prediction.input))?;
        for ranked in &prediction.best {
            let name = printable(&self.labels.name(ranked.class));
            match ranked.probability {
                Some(p) => writeln!(out, "  {:>6.2} %  {:>4}  {name}", 100.0 * p, ranked.class)?,
                None => writeln!(out, "  {:>12.6}  {:>4}  {name}", ranked.score, ranked.class)?,
            }
        }
        Ok(())
    }

    fn output<'a>(&self, prediction: &'a Prediction) -> PredictionOutput<'a> {
        let top = prediction.best.iter().map(|ranked| ClassOutput {
            class: ranked.class,
            name: self.labels.name(ranked.class),
            score: ranked.score,
            probability: ranked.probability,
        });
        PredictionOutput { input: &prediction.input, top: top.collect() }
    }
}

/// Scores without trailing axes of length one.
fn rows_of_classes(scores: Tensor) -> Result<Tensor> {
    let shape = scores.shape();
    match shape.len() > 2 && shape[2..].iter().all(|&length| length == 1) {
        true => {
            let shape = shape[..2].to_vec();
            scores.reshaped(shape)
        }
        false => Ok(scores),
    }
}

/// Checks before the work begins that a file can be written.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(Error::argument(format!(
            "{}: this is a folder, expected a file to write",
            path.display()
        )));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Error::argument(format!("{}: there is no folder {}", path.display(), folder.display())))
        }
        _ => check_replaceable(path),
    }
}

//! The input of figures: a network, pictures, and the classes to explain.

use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::catalogue::ValueBounds;
use monosplit::explain::Explanation;
use monosplit::graph::{Error, Result, shortened};
use monosplit::{InputFile, Labels, Model, RankedClass, Sample, SampleReader, ScoreKind, TargetChoice};

use super::class::{ClassArgs, Classes};
use super::compute::ComputeArgs;
use super::drawing::DrawingArgs;
use super::inputs::remember_skipped;
use super::named_inputs::GivenInputArgs;
use super::network::NetworkArgs;
use super::network_input;
use super::preprocessing::PreprocessingArgs;
use super::run::scores_remark;
use super::target::opened_for;
use crate::failure::note;

/// The largest number of rows of a figure.
pub(crate) const MOST_ROWS: usize = 64;
/// What is said where there is nothing to draw.
const NOTHING: &str = "nothing to draw; name a picture, a folder of pictures, a .npy or a .csv file";
/// The longest label of a picture in characters.
const LONGEST_LABEL: usize = 40;

/// The network and the pictures, and how they are computed and drawn.
#[derive(Args)]
pub(crate) struct FigureInputArgs {
    /// The network, an ONNX file (not with --arch), then pictures, folders of pictures,
    /// .npy and .npz batches, .csv tables, or - for one of these on standard input.
    #[arg(value_name = "MODEL PICTURE", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    pub(crate) class: ClassArgs,

    #[command(flatten)]
    pub(crate) drawing: DrawingArgs,

    #[command(flatten)]
    pub(crate) compute: ComputeArgs,

    #[command(flatten)]
    pub(crate) given: GivenInputArgs,

    #[command(flatten)]
    pub(crate) preprocessing: PreprocessingArgs,
}

/// The opened network and the files to draw, before anything of them is read.
pub(crate) struct OpenedFigure<'a> {
    pub(crate) model: Model,
    pub(crate) target: Option<TargetChoice>,
    /// The files without a name as they were given.
    pub(crate) files: &'a [PathBuf],
    pub(crate) sources: Vec<InputFile>,
}

/// The opened network with a reader of its pictures.
pub(crate) struct FigureInput {
    pub(crate) model: Model,
    reader: SampleReader,
    pub(crate) labels: Labels,
    pub(crate) score_kind: ScoreKind,
    pub(crate) classes: Classes,
    /// The bounds of the preprocessed values.
    pub(crate) bounds: ValueBounds,
}

impl FigureInputArgs {
    pub(crate) fn open(&self) -> Result<FigureInput> {
        self.read(self.opened()?)
    }

    /// Opens the network.
    pub(crate) fn opened(&self) -> Result<OpenedFigure<'_>> {
        let (origin, files) = match self.given.are_given() {
            true => self.network.split_any(&self.files)?,
            false => self.network.split(&self.files, NOTHING)?,
        };
        let sources = self.preprocessing.inputs.list(files)?;
        let target = self.class.target.choice()?;
        let options = opened_for(self.network.options_for(self.compute.precision()), target.as_ref());
        let inputs_of = (&self.given, &self.preprocessing);
        let model = network_input::open_for(&options, origin, inputs_of, &sources)?.model;
        Ok(OpenedFigure { model, target, files, sources })
    }

    /// Gets ready to read the pictures.
    pub(crate) fn read(
        &self,
        OpenedFigure { model, target, sources, .. }: OpenedFigure<'_>,
    ) -> Result<FigureInput> {
        if sources.is_empty() {
            return Err(Error::argument(NOTHING));
        }
        let model = self.given.held(model, &self.preprocessing)?;
        let preprocess = self.preprocessing.for_sources(&model, &sources)?;
        let engine = self.compute.engine()?;
        let model = self.class.with_target(model, target.as_ref(), preprocess.as_ref(), &*engine)?;
        let bounds = ValueBounds::of_inputs(&model, preprocess.as_ref())?;
        let (labels, score_kind) = self.class.labels(&model)?;
        let classes = self.class.classes(&model, &labels)?;
        scores_remark(&model).iter().for_each(|remark| note(remark));
        let reader = self.class.fitting(self.preprocessing.reader(&model, sources, preprocess)?);
        Ok(FigureInput { model, reader, labels, score_kind, classes, bounds })
    }
}

impl FigureInput {
    /// The next picture; none at the end.
    pub(crate) fn next_sample(&mut self) -> Result<Option<Sample>> {
        let sample = self.reader.take(1)?.pop();
        if sample.is_none() {
            remember_skipped(&self.reader);
        }
        Ok(sample)
    }

    /// An error if there are more pictures than rows.
    pub(crate) fn check_rows(&self) -> Result<()> {
        match self.reader.total() > MOST_ROWS {
            true => {
                Err(Error::argument(format!("a figure has at most {MOST_ROWS} rows; name fewer pictures")))
            }
            false => Ok(()),
        }
    }

    /// The name of the explained class with its probability, where it has one.
    pub(crate) fn named(&self, explained: &Explanation) -> String {
        class_words(&self.labels, self.score_kind, explained)
    }
}

/// The name of the explained class of a sample with its probability, where it has one.
pub(crate) fn class_words(labels: &Labels, score_kind: ScoreKind, explained: &Explanation) -> String {
    let class = explained.classes[0];
    let scores = explained.logits.to_f64();
    let ranked = RankedClass::best(&scores, scores.len(), score_kind).unwrap_or_default();
    let name = labels.name(class);
    match ranked.iter().find(|ranked| ranked.class == class).and_then(|ranked| ranked.probability) {
        Some(probability) => format!("{name} {:.1}%", 100.0 * probability),
        None => name,
    }
}

/// The label of a sample in a figure: its file without the folders, and without its middle where it is so long that nothing
/// beside it would be seen.
pub(crate) fn short_name(sample: &Sample) -> String {
    let name = Path::new(&sample.name).file_name();
    let name = name.map_or_else(|| sample.name.clone(), |name| name.to_string_lossy().into_owned());
    shortened(&name, LONGEST_LABEL).into_owned()
}

//! The input of figures: a network, pictures, and the classes to explain.

use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::catalogue::ValueBounds;
use monosplit::explain::Explanation;
use monosplit::graph::{Error, Result, shortened};
use monosplit::{Labels, Model, RankedClass, Sample, SampleReader, ScoreKind};

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
const MOST_ROWS: usize = 64;
/// The longest label of a picture in characters.
const LONGEST_LABEL: usize = 40;

/// The network and the pictures, and how they are computed and drawn.
#[derive(Args)]
pub(crate) struct FigureInputArgs {
    /// The network, an ONNX file (not with --arch), then pictures, folders of pictures,
    /// or - for a picture on standard input.
    #[arg(value_name = "MODEL PICTURE", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    class: ClassArgs,

    #[command(flatten)]
    pub(crate) drawing: DrawingArgs,

    #[command(flatten)]
    pub(crate) compute: ComputeArgs,

    #[command(flatten)]
    given: GivenInputArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
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
        let nothing = "nothing to draw; name a picture or a folder of pictures";
        let (origin, inputs) = self.network.split(&self.files, nothing)?;
        let sources = self.preprocessing.inputs.list(inputs)?;
        let target = self.class.target.choice()?;
        let options = opened_for(self.network.options_for(self.compute.precision()), target.as_ref());
        let inputs_of = (&self.given, &self.preprocessing);
        let model = network_input::open_for(&options, origin, inputs_of, &sources)?.model;
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
        let class = explained.classes[0];
        let scores = explained.logits.to_f64();
        let ranked = RankedClass::best(&scores, scores.len(), self.score_kind).unwrap_or_default();
        let name = self.labels.name(class);
        match ranked.iter().find(|ranked| ranked.class == class).and_then(|ranked| ranked.probability) {
            Some(probability) => format!("{name} {:.1}%", 100.0 * probability),
            None => name,
        }
    }
}

/// The label of a sample in a figure: its file without the folders, and without its middle where it is so long that nothing
/// beside it would be seen.
pub(crate) fn short_name(sample: &Sample) -> String {
    let name = Path::new(&sample.name).file_name();
    let name = name.map_or_else(|| sample.name.clone(), |name| name.to_string_lossy().into_owned());
    shortened(&name, LONGEST_LABEL).into_owned()
}

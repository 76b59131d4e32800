//! Where a network comes from and how it is opened.

use std::fmt;
use std::path::{Path, PathBuf};

use monosplit_engine::Precision;
use monosplit_graph::onnx::{self, ImportReport};
use monosplit_graph::passes::{CanonicalOptions, Stored};
use monosplit_graph::{Graph, Result};
use monosplit_image::Preset;

use crate::model::{self, Model};
use crate::output_choice::OutputChoice;
use crate::target::TargetChoice;

/// Where a network comes from. A path is the path of an ONNX file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// An ONNX file.
    Onnx(PathBuf),
    /// The weights of a known architecture.
    Architecture {
        /// Its name, torchvision's.
        name: String,
        /// A `.safetensors` or `.pth` file.
        weights: PathBuf,
    },
}

impl Origin {
    /// The network in an ONNX file.
    pub fn onnx(path: impl Into<PathBuf>) -> Self {
        Origin::Onnx(path.into())
    }

    /// The architecture `name` with the weights in a file.
    pub fn architecture(name: impl Into<String>, weights: impl Into<PathBuf>) -> Self {
        Origin::Architecture { name: name.into(), weights: weights.into() }
    }

    /// The file the network is read from.
    pub fn path(&self) -> &Path {
        match self {
            Origin::Onnx(path) => path,
            Origin::Architecture { weights, .. } => weights,
        }
    }
}

impl From<PathBuf> for Origin {
    fn from(path: PathBuf) -> Self {
        Origin::Onnx(path)
    }
}

impl<T: AsRef<Path> + ?Sized> From<&T> for Origin {
    fn from(path: &T) -> Self {
        Origin::Onnx(path.as_ref().to_owned())
    }
}

impl From<String> for Origin {
    fn from(path: String) -> Self {
        Origin::Onnx(path.into())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Onnx(path) => write!(f, "{}", path.display()),
            Origin::Architecture { name, weights } => write!(f, "{name} with {}", weights.display()),
        }
    }
}

/// How a network is opened.
///
/// ```
/// # fn main() -> monosplit::Result<()> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/pets-small.onnx");
/// let model = monosplit::Model::options().input_shape([3, 128, 128]).open(file)?;
/// assert_eq!(model.sample_shape()?, [3, 128, 128]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelOptions {
    pub(crate) input_shape: Option<Vec<usize>>,
    pub(crate) named_shapes: Vec<(String, Vec<usize>)>,
    pub(crate) canonical: CanonicalOptions,
    pub(crate) transform_input: bool,
    pub(crate) optional_inputs: bool,
    pub(crate) target_inputs: bool,
    pub(crate) open_batch: bool,
    pub(crate) output: Option<String>,
    pub(crate) output_word: Option<String>,
    pub(crate) preset: Option<Preset>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions {
            input_shape: None,
            named_shapes: Vec::new(),
            canonical: CanonicalOptions::default(),
            transform_input: true,
            optional_inputs: false,
            target_inputs: false,
            open_batch: false,
            output: None,
            output_word: None,
            preset: None,
        }
    }
}

impl ModelOptions {
    /// The shape of one sample, without the batch axis, where the file leaves it open; for an architecture, the size of
    /// the image.
    #[must_use]
    pub fn input_shape(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.input_shape = Some(lengths.into());
        self
    }

    /// The same for the input of this name, where there are several.
    #[must_use]
    pub fn named_input_shape(mut self, name: impl Into<String>, lengths: impl Into<Vec<usize>>) -> Self {
        self.named_shapes.push((name.into(), lengths.into()));
        self
    }

    /// Which parts of the canonical form are wanted.
    #[must_use]
    pub fn canonical(mut self, canonical: CanonicalOptions) -> Self {
        self.canonical = canonical;
        self
    }

    /// Whether batch norms are merged into the layers beside them; they are by default. Where they stay, the split shifts
    /// sensitivities at them too, and LRP has a rule for them.
    #[must_use]
    pub fn fold_batch_norms(mut self, fold: bool) -> Self {
        self.canonical.fold_batch_norm = fold;
        self
    }

    /// The precision the network will be run in: weights that folding changes are stored in it.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        if precision == Precision::F64 {
            self.canonical.stored = Stored::Double;
        }
        self
    }

    /// Whether images are changed as torchvision changes them for its pretrained weights of an architecture (GoogLeNet);
    /// they are by default.
    #[must_use]
    pub fn transform_input(mut self, transform: bool) -> Self {
        self.transform_input = transform;
        self
    }

    /// Whether the optional inputs (the class, α, …) of a file that [`Compilation`](crate::Compilation) wrote stay inputs.
    /// By default they become constants of their default value.
    #[must_use]
    pub fn optional_inputs(mut self, keep: bool) -> Self {
        self.optional_inputs = keep;
        self
    }

    /// The same for the inputs of its target: mask, reference, the other class and the cell.
    #[must_use]
    pub fn target_inputs(mut self, keep: bool) -> Self {
        self.target_inputs = keep;
        self
    }

    /// Whether the batch size of a file that fixes it is taken as open.
    #[must_use]
    pub fn open_batch(mut self, open: bool) -> Self {
        self.open_batch = open;
        self
    }

    /// The scores that are run and explained; by default the logits of the first output.
    #[must_use]
    pub fn output(mut self, choice: OutputChoice) -> Self {
        self.output = choice.name;
        self.output_word = choice.word;
        self.canonical.logits = !choice.probabilities;
        self
    }

    /// How pictures are made ready, in place of what the network's file names or its graph tells.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = Some(preset);
        self
    }

    /// Opens the network for a target: outputs that it takes as they are keep a final softmax or sigmoid, and a region is
    /// one of logits.
    #[must_use]
    pub fn target(mut self, target: &TargetChoice) -> Self {
        self.canonical.logits &= target.is_about_classes();
        self.canonical.map_logits |= matches!(target, TargetChoice::Region { .. });
        self
    }

    /// Opens a network and brings it into canonical form.
    pub fn open(&self, origin: impl Into<Origin>) -> Result<Model> {
        Model::with_options(origin.into(), self)
    }

    /// Reads a network from the bytes of an ONNX file; `name` stands for it in errors. Weights in files of their own are
    /// not found this way.
    pub fn read(&self, name: impl Into<String>, bytes: &[u8]) -> Result<Model> {
        let name = name.into();
        let report = onnx::import_report(bytes, None, &model::import_options(bytes, self));
        self.open_report(name.clone(), report.map_err(|error| error.context(name))?)
    }

    /// Brings the network of a file that has been read already into canonical form; an error if it could not all be read.
    pub fn open_report(&self, origin: impl Into<Origin>, report: ImportReport) -> Result<Model> {
        Model::from_report(origin.into(), report, self)
    }

    /// Brings a graph that has been read already into canonical form; `origin` names it in errors.
    pub fn open_graph(&self, origin: impl Into<Origin>, graph: Graph) -> Result<Model> {
        Model::from_graph(origin.into(), graph, self)
    }

    /// Reads an ONNX file as far as it can be read: where the graph is missing, the problems say why.
    pub fn import_report(&self, path: impl AsRef<Path>) -> Result<ImportReport> {
        model::import_report(path.as_ref(), self)
    }
}

//! The parts of an experiment as types.

use std::path::PathBuf;

use monosplit_image::{Filter, Fit, Preset};

use crate::dataset::DataOptions;

/// The network of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelPart {
    /// An ONNX file.
    pub file: Option<PathBuf>,
    /// A known architecture instead.
    pub architecture: Option<String>,
    /// Its weights.
    pub weights: Option<PathBuf>,
    /// Its preprocessing; that of the file, or ImageNet's, if not given.
    pub preset: Option<Preset>,
    /// How images are resized and cropped.
    pub fit: Fit,
    /// The interpolation of the resizing.
    pub filter: Filter,
    /// Names of its classes, one a line.
    pub labels: Option<PathBuf>,
    /// Which scores are meant: the name of an output, `logit` or `probability`, or both with a comma between.
    pub output: Option<String>,
    /// Whether batch norms are merged into the layers beside them.
    pub batch_norms: BatchNorms,
    /// What of its outputs is explained, where it is not the score of a class.
    pub target: Option<String>,
    /// Where relative paths in the target start.
    pub target_folder: PathBuf,
    /// Files of the inputs beside the picture, by name, each with one sample for all pictures.
    pub inputs: Vec<(String, PathBuf)>,
}

/// What becomes of the batch norms of a network when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchNorms {
    /// They are merged into the layers beside them.
    #[default]
    Fold,
    /// They stay layers, at which sensitivities are shifted too.
    Keep,
}

/// The images of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct DataPart {
    /// The folder of the data set.
    pub folder: Option<PathBuf>,
    /// How it is read.
    pub options: DataOptions,
    /// The part configurations are chosen on.
    pub validation: Option<String>,
    /// The part they are compared on.
    pub test: Option<String>,
    /// Of a data set without parts, how many images of each class are for validation.
    pub validation_per_class: Option<usize>,
    /// At most this many images for validation.
    pub validation_images: Option<usize>,
    /// At most this many images to compare on.
    pub test_images: Option<usize>,
    /// Which class is explained.
    pub class: ExplainedClass,
}

/// Which class of an image is explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainedClass {
    /// The label.
    #[default]
    Label,
    /// The predicted class.
    Top,
}

/// The layers of a method's maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapLayers {
    /// The default layer of the method.
    Usual,
    /// The image.
    Image,
    /// Every convolution, or this many of them, evenly spaced; and on which side of them.
    Convolutions(Option<usize>, LayerSide),
    /// These layers.
    Named(Vec<String>),
}

/// Where a map stands at a convolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerSide {
    /// At what enters it.
    #[default]
    Input,
    /// At what leaves it.
    Output,
    /// At what leaves the activation behind it, after batch norm and the sum of a residual block; where there is none, at what
    /// leaves the convolution.
    Activation,
}

/// What makes the maps of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapsFrom {
    /// A method of the catalogue with its fixed options.
    Method(String),
    /// A folder or file of maps that were made elsewhere.
    Files(PathBuf),
}

/// A method with the options to choose from.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodPart {
    /// Its name.
    pub title: Option<String>,
    /// The family it is listed under; that of the catalogue if not given.
    pub family: Option<String>,
    /// What makes the maps.
    pub source: MapsFrom,
    /// Further options, one configuration for each.
    pub formulas: Vec<String>,
    /// The layers, one configuration for each.
    pub layers: MapLayers,
    /// Whether the absolute value is taken; both if both are listed.
    pub absolute: Vec<bool>,
}

/// How configurations are chosen: for each criterion the one of best average rank over its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionPart {
    /// Names of criteria and the metrics of each.
    pub criteria: Vec<(String, Vec<String>)>,
}

/// A fixed configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Its name.
    pub title: Option<String>,
    /// The family it is listed under.
    pub family: Option<String>,
    /// The method with its options.
    pub method: String,
    /// The layer.
    pub layers: MapLayers,
    /// Whether the absolute value is taken.
    pub absolute: bool,
}

/// An ablation: one option varied, all else equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AblationPart {
    /// Its name.
    pub name: String,
    /// The option.
    pub vary: String,
    /// Its values.
    pub values: Vec<String>,
    /// The configuration that is varied.
    pub of: Vec<Fixed>,
    /// The metrics.
    pub metrics: Vec<String>,
    /// Whether on validation images rather than those of the comparison.
    pub on_validation: bool,
}

/// Curves over layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayersPart {
    /// The methods; their layers are those of the curves.
    pub of: Vec<Fixed>,
    /// The metrics.
    pub metrics: Vec<String>,
    /// Whether on validation images, as in the paper, rather than those of the comparison.
    pub on_validation: bool,
}

/// The randomisation check.
#[derive(Clone, Debug, PartialEq)]
pub struct SanityPart {
    /// How many layers, counted from the last, are randomised.
    pub randomise: usize,
    /// The standard deviation of the random weights; that of the layer's own weights if not given.
    pub deviation: Option<f64>,
    /// The configurations; those of the comparison if empty.
    pub of: Vec<Fixed>,
    /// The largest number of images.
    pub images: Option<usize>,
}

/// Run times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimingPart {
    /// The configurations; those of the comparison if empty.
    pub of: Vec<Fixed>,
    /// The largest number of images.
    pub images: Option<usize>,
}

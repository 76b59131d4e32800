//! From the text of a target to a network that has its head: names become classes, files are read, pictures made ready.

use std::path::Path;

use monosplit_engine::Engine;
use monosplit_explain::{
    AxisIndex, Cells, Class, Mask, Parameters, Rival, Summary, Target, inputs, target_output,
};
use monosplit_graph::passes::CanonicalOptions;
use monosplit_graph::{Error, Graph, Result, Tensor, array_file, element_count};
use monosplit_image::{Filter, Picture, Preprocess};

use super::choice::{CellChoice, MaskChoice, TargetChoice};
use crate::input::ModelInput;
use crate::labels::Labels;
use crate::model::{self, Model};

/// The largest array that is read.
const MAX_ARRAY: u64 = 1 << 30;

/// What the texts and files of a target are read with.
#[derive(Clone, Copy)]
pub struct TargetContext<'a> {
    /// A file of class names, one a line.
    pub labels: Option<&'a Path>,
    /// How pictures become what the network reads; without it, pictures must have the size that is needed.
    pub preprocess: Option<&'a Preprocess>,
    /// Runs the network on the picture of a reference.
    pub engine: &'a dyn Engine,
    /// Whether what the target is given (a mask, a reference, another class) is a part of the network or an input of it.
    pub parameters: Parameters,
}

impl<'a> TargetContext<'a> {
    /// No class names of its own, no preprocessing; parameters are constants.
    pub fn new(engine: &'a dyn Engine) -> Self {
        TargetContext { labels: None, preprocess: None, engine, parameters: Parameters::Constant }
    }
}

/// The target of a network.
#[derive(Clone, Debug)]
pub(crate) struct ModelTarget {
    pub(crate) choice: TargetChoice,
    /// Which of the scores is explained.
    pub(crate) class: Class,
    /// The class that the only score is of, where it is a part of the target.
    pub(crate) named_class: Option<usize>,
    /// What the scores are called; none are those of the classes.
    pub(crate) names: Option<Vec<String>>,
    /// The values of the inputs that the target added.
    pub(crate) parameters: Vec<(&'static str, Tensor)>,
    /// The network with these values, and the class that the target names, as constants, where they are inputs.
    pub(crate) settled: Option<Graph>,
}

impl Model {
    /// The network whose scores are those of a target, for which it was opened ([`ModelOptions::target`]).
    ///
    /// [`ModelOptions::target`]: crate::ModelOptions::target
    pub fn with_target(self, choice: &TargetChoice, context: &TargetContext<'_>) -> Result<Model> {
        if self.target.is_some() {
            return Err(self.unfit("the network has a target already; open it anew for another".into()));
        }
        let (origin, about) = (self.origin().to_string(), choice.to_string());
        self.grafted(choice, context).map_err(|error| match error.is_about(&origin) {
            true => error,
            false => error.context(about).context(&origin),
        })
    }

    /// The network as it is opened for a target: with the ends of its outputs where the target takes them as they are.
    pub fn reopened_for(&self, choice: &TargetChoice) -> Result<Model> {
        let options = self.opened_with().clone().target(choice);
        match options == *self.opened_with() {
            true => Ok(self.clone()),
            false => Model::from_graph(self.origin().clone(), self.original().clone(), &options),
        }
    }

    fn grafted(&self, choice: &TargetChoice, context: &TargetContext<'_>) -> Result<Model> {
        let reader = TargetReader { model: self, context };
        let Resolved { target, class, named_class, names } = reader.resolve(choice)?;
        let mut model = self.clone();
        let mut own = ModelTarget {
            choice: choice.clone(),
            class,
            named_class,
            names: None,
            parameters: Vec::new(),
            settled: None,
        };
        if !choice.is_class() {
            let grafted = target.graft(self.graph(), context.parameters)?;
            own.names = Some(names.all(scores(&grafted.graph)?)?);
            own.parameters = grafted.parameters;
            if context.parameters == Parameters::Input {
                own.settled = Some(target.graft(self.graph(), Parameters::Constant)?.graph);
            }
            model = model.with_canonical(grafted.graph);
        }
        model.target = Some(own);
        Ok(model)
    }

    /// The target that was grafted behind its outputs.
    pub fn target(&self) -> Option<&TargetChoice> {
        self.target.as_ref().map(|target| &target.choice)
    }

    /// Which of the scores is explained unless another is named: the highest, or the one that the target says, or the default
    /// of a compiled file's input.
    pub fn explained_class(&self) -> Class {
        match &self.target {
            Some(target) => target.class.clone(),
            None => self.default_class().map_or(Class::Top, Class::Index),
        }
    }

    /// The class that a compiled file explains where none is given, if that is always the same.
    fn default_class(&self) -> Option<usize> {
        let (_, value) = self.defaults().iter().find(|(name, _)| name == inputs::CLASS)?;
        usize::try_from(*value.to_i64()?.first()?).ok()
    }

    /// The class that the only score is of, where a target names it.
    pub fn named_class(&self) -> Option<usize> {
        self.target.as_ref()?.named_class
    }

    /// The network in which default layers are looked for: what a target is given changes none of them.
    pub fn graph_of_layers(&self) -> &Graph {
        let settled = self.target.as_ref().and_then(|target| target.settled.as_ref());
        settled.unwrap_or_else(|| self.graph())
    }

    /// The inputs that a target added, with their values.
    pub fn target_parameters(&self) -> &[(&'static str, Tensor)] {
        self.target.as_ref().map_or(&[], |target| &target.parameters)
    }
}

/// The number of scores of a sample.
fn scores(graph: &Graph) -> Result<usize> {
    let output = graph.outputs().first().and_then(|output| graph.node(output.node).shape.fixed_at(1));
    output.ok_or_else(|| Error::shape("the target has no scores"))
}

/// A target with what its scores are called.
struct Resolved {
    target: Target,
    class: Class,
    named_class: Option<usize>,
    names: Names,
}

impl Resolved {
    /// A target with one score, or of which the best is explained.
    fn top(target: Target, names: Names) -> Self {
        Resolved { target, class: Class::Top, named_class: None, names }
    }
}

/// What scores are called.
enum Names {
    /// The only score.
    One(String),
    /// A text around the name of each class.
    Classes { before: &'static str, labels: Labels, behind: String },
    /// The indices of each cell of an output.
    Cells { output: String, cells: Cells, lengths: Vec<usize> },
}

impl Names {
    fn all(&self, count: usize) -> Result<Vec<String>> {
        let name = |score: usize| match self {
            Names::One(name) => Ok(name.clone()),
            Names::Classes { before, labels, behind } => {
                Ok(format!("{before}{}{behind}", labels.name(score)))
            }
            Names::Cells { output, cells, lengths } => {
                Ok(format!("{output}[{}]", cells.named(lengths, score)?))
            }
        };
        (0..count).map(name).collect()
    }
}

/// A class as it is written.
#[derive(PartialEq)]
enum ClassWord {
    Index(usize),
    Top,
    Second,
}

/// Reads what a target names.
struct TargetReader<'a> {
    model: &'a Model,
    context: &'a TargetContext<'a>,
}

impl TargetReader<'_> {
    fn resolve(&self, choice: &TargetChoice) -> Result<Resolved> {
        match choice {
            TargetChoice::Class(word) => {
                let classes = self.model.expect_classes()?;
                let labels = self.labels(classes)?;
                let class = match self.class(word, &labels, classes)? {
                    ClassWord::Index(class) => Class::Index(class),
                    ClassWord::Top => Class::Top,
                    ClassWord::Second => Class::Second,
                };
                let names = Names::One(String::new());
                Ok(Resolved { target: Target::Class { output: None }, class, named_class: None, names })
            }
            TargetChoice::Contrast { class, against } => self.contrast(class, against),
            TargetChoice::Region { mask, class, output } => self.region(mask, class.as_deref(), output),
            TargetChoice::Cell { output, cells } => self.cell(output, cells),
            TargetChoice::Summary { output, summary } => {
                let word = match summary {
                    Summary::Sum => "sum",
                    Summary::Mean => "mean",
                    Summary::Norm => "norm",
                };
                let name = target_output(self.model.graph(), output.as_deref())?.name;
                let target = Target::Summary { output: output.clone(), summary: *summary };
                Ok(Resolved::top(target, Names::One(format!("{word} of {name}"))))
            }
            TargetChoice::Similarity { reference, output } => {
                let names = Names::One(format!("similarity to {}", file_name(reference)));
                let reference = self.reference(reference, output.as_deref())?;
                let target = Target::Similarity { output: output.clone(), reference };
                Ok(Resolved::top(target, names))
            }
            TargetChoice::Head(path) => {
                // A head is taken as it is: its end may be meant.
                let options = Model::options().canonical(CanonicalOptions::default().logits(false));
                let head = options.open(path)?;
                let target = Target::Head { graph: Box::new(head.graph().clone()) };
                Ok(Resolved::top(target, Names::One(file_name(path))))
            }
        }
    }

    /// The names of so many classes.
    fn labels(&self, classes: usize) -> Result<Labels> {
        match self.context.labels {
            Some(path) => Labels::open(path, classes),
            None => Ok(Labels::of(self.model, classes)),
        }
    }

    fn class(&self, word: &str, labels: &Labels, classes: usize) -> Result<ClassWord> {
        match word.to_ascii_lowercase().as_str() {
            "top" | "top1" => Ok(ClassWord::Top),
            "top2" if classes < 2 => Err(Error::argument(format!(
                "there is no second best class among {classes}; name top, or the only class"
            ))),
            "top2" => Ok(ClassWord::Second),
            _ => labels.find(word, classes).map(ClassWord::Index),
        }
    }

    /// The lengths of a sample's axes at an output.
    fn lengths(&self, output: Option<&str>) -> Result<(String, Vec<usize>)> {
        let graph = self.model.graph();
        let output = target_output(graph, output)?;
        let dims = graph.node(output.node).shape.dims().get(1..).unwrap_or_default();
        Ok((output.name, dims.iter().filter_map(|dim| dim.fixed()).collect()))
    }

    fn contrast(&self, class: &str, against: &str) -> Result<Resolved> {
        let (_, lengths) = self.lengths(None)?;
        let classes = element_count(&lengths).unwrap_or(0);
        let labels = self.labels(classes)?;
        let (own, other) = (self.class(class, &labels, classes)?, self.class(against, &labels, classes)?);
        if own == other {
            return Err(self.model.unfit(format!(
                "contrast:{class},{against} is the difference of a score to itself, which is always zero; name two classes"
            )));
        }
        let (rival, rival_name) = match other {
            ClassWord::Index(class) => (Rival::Class(class), labels.name(class)),
            ClassWord::Top => (Rival::Top, "the best".to_owned()),
            ClassWord::Second => (Rival::Second, "the second best".to_owned()),
        };
        let behind = format!(" against {rival_name}");
        let (index, class, names) = match own {
            ClassWord::Index(index) => {
                let name = Names::One(format!("{}{behind}", labels.name(index)));
                (Some(index), Class::Index(index), name)
            }
            ClassWord::Top => (None, Class::Top, Names::Classes { before: "", labels, behind }),
            ClassWord::Second => (None, Class::Second, Names::Classes { before: "", labels, behind }),
        };
        let target = Target::Contrast { output: None, class: index, against: rival };
        Ok(self.explained(target, class, names, classes))
    }

    fn region(&self, mask: &MaskChoice, class: Option<&str>, output: &Option<String>) -> Result<Resolved> {
        let (name, lengths) = self.lengths(output.as_deref())?;
        let classes = lengths.first().copied().unwrap_or(0);
        let labels = self.labels(classes)?;
        let class = class.map(|word| self.class(word, &labels, classes)).transpose()?;
        let behind = match mask {
            MaskChoice::Auto => " where it is found".to_owned(),
            MaskChoice::File(path) => format!(" in {}", file_name(path)),
        };
        let mask = match mask {
            MaskChoice::Auto => Mask::Predicted,
            MaskChoice::File(path) => {
                Mask::Given(self.mask(path, &name, lengths.get(1..).unwrap_or_default())?)
            }
        };
        let (index, class, names) = match class.unwrap_or(ClassWord::Top) {
            ClassWord::Index(index) => {
                let name = Names::One(format!("{}{behind}", labels.name(index)));
                (Some(index), Class::Index(index), name)
            }
            ClassWord::Top => (None, Class::Top, Names::Classes { before: "", labels, behind }),
            ClassWord::Second => (None, Class::Second, Names::Classes { before: "", labels, behind }),
        };
        let target = Target::Region { output: output.clone(), mask, class: index };
        Ok(self.explained(target, class, names, classes))
    }

    /// A target whose class is a part of it where parameters are constants, and is chosen among its scores otherwise.
    fn explained(&self, target: Target, class: Class, names: Names, classes: usize) -> Resolved {
        match (self.context.parameters, class) {
            (Parameters::Constant, Class::Index(class)) => {
                Resolved { named_class: Some(class), ..Resolved::top(target, names) }
            }
            (Parameters::Input, class @ Class::Index(_)) => {
                let labels = self.labels(classes).unwrap_or_else(|_| Labels::from_text(""));
                let names = Names::Classes { before: "", labels, behind: String::new() };
                Resolved { target, class, named_class: None, names }
            }
            (_, class) => Resolved { target, class, named_class: None, names },
        }
    }

    fn cell(&self, output: &Option<String>, cells: &CellChoice) -> Result<Resolved> {
        let (name, lengths) = self.lengths(output.as_deref())?;
        let cells = match cells {
            CellChoice::At(cells) => cells.clone(),
            CellChoice::BestOf(word) => {
                let classes = if lengths.len() > 2 { lengths.first() } else { lengths.last() };
                let classes = classes.copied().unwrap_or(0);
                match word.parse() {
                    // Where a number is no class, the error says along which axis classes were sought.
                    Ok(class) => Cells::BestOf(class),
                    Err(_) => Cells::BestOf(self.labels(classes)?.find(word, classes)?),
                }
            }
        };
        let has_best = match &cells {
            Cells::Each(indices) => indices.contains(&AxisIndex::Best),
            _ => true,
        };
        let names = match has_best {
            true => Names::Cells { output: name, cells: cells.clone(), lengths },
            false => Names::One(format!("{name}[{cells}]")),
        };
        Ok(Resolved::top(Target::Cell { output: output.clone(), cells }, names))
    }

    /// The weights of the places of an output: an array as it is, or a picture, brought to the size of the places as the
    /// pictures that are explained are brought to that of the network.
    fn mask(&self, path: &Path, output: &str, places: &[usize]) -> Result<Tensor> {
        if array_file::is_array_name(path) {
            return array(path);
        }
        let &[height, width] = places else {
            return Err(Error::argument(format!(
                "{}: a picture is a mask of two axes, and the places of output '{output}' are {places:?}; name an output of maps, \
                 [C, H, W]{}",
                path.display(),
                if places.is_empty() { "" } else { ", or give an array of that shape" }
            )));
        };
        let mut picture = Picture::open(path)?.to_grey();
        let is_fitting = |picture: &Picture| (picture.height(), picture.width()) == (height, width);
        if let Some(preprocess) = self.context.preprocess.filter(|_| !is_fitting(&picture)) {
            picture = preprocess.clone().filter(Filter::Nearest).apply(&picture)?.picture;
        }
        if !is_fitting(&picture) {
            picture = picture.resize(width, height, Filter::Nearest)?;
        }
        let inside = |pixel: &[u8]| if pixel[0] > 127 { 1f32 } else { 0.0 };
        let values: Vec<f32> = picture.rgb().chunks_exact(3).map(inside).collect();
        if values.iter().all(|&value| value == 0.0) {
            return Err(Error::argument(format!(
                "{}: no place is inside the mask, which is white there and black elsewhere",
                path.display()
            )));
        }
        Tensor::new([height, width], values)
    }

    /// The numbers of an output: those of an array, or what the network returns for a picture.
    fn reference(&self, path: &Path, output: Option<&str>) -> Result<Tensor> {
        if array_file::is_array_name(path) {
            return array(path);
        }
        let model = self.model;
        model.input().map_err(|_| {
            let reads = model.input_facts().into_iter().map(|input| format!("'{}'", input.name));
            model.unfit(format!(
                "the reference of a picture is what the network returns for it, and the network also reads other inputs ({}); give the \
                 reference as a .npy array, or the others beside the picture",
                reads.collect::<Vec<_>>().join(", ")
            ))
        })?;
        let preprocess = match self.context.preprocess {
            Some(preprocess) => preprocess.clone(),
            None => model.preprocess()?,
        };
        let picture = Picture::open(path)?;
        let input = ModelInput::new(model, model.picture_input()?.order)?;
        let sample = input.picture(&picture, &preprocess)?.tensor;
        let sample = match model.fixed_batch()? {
            Some(size) => crate::stack(&vec![sample; size], monosplit_graph::Kind::Float)?,
            None => sample,
        };
        let mut graph = model.graph().clone();
        let output = target_output(&graph, output)?;
        graph.set_outputs(vec![output]);
        let others = model.given_inputs(0, sample.shape()[0])?.into_iter().map(|(_, value)| value);
        let inputs: Vec<Tensor> = std::iter::once(sample).chain(others).collect();
        let outputs = self.context.engine.compile(&graph.pruned()?)?.run(&inputs)?;
        let first = outputs.first().ok_or_else(|| Error::argument("the network returned nothing"))?;
        monosplit_graph::batch::rows(first, 0..1)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The array in a file, all of whose numbers are finite.
fn array(path: &Path) -> Result<Tensor> {
    let about = |error: Error| error.context(path.display());
    let tensor = array_file::read(&model::read_file(path, MAX_ARRAY)?, &[]).map_err(about)?;
    let values = tensor.to_f64();
    if values.is_empty() {
        return Err(about(Error::argument("the array has no elements; give one that has")));
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(about(Error::argument("some numbers are not finite; give finite ones")));
    }
    if values.iter().all(|&value| value == 0.0) {
        return Err(about(Error::argument(
            "all numbers are zero, so that the target would be zero for every input; give some that are not",
        )));
    }
    match tensor.kind() {
        monosplit_graph::Kind::Float => Ok(tensor),
        _ => Tensor::new(tensor.shape().to_vec(), values.into_vec()),
    }
}

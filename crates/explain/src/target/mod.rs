//! Targets: what is explained of a network's outputs. A target is a head of a few nodes that is grafted behind the outputs, so
//! that methods see a network with scores `[N, K]` and need to know nothing of it. Choices that depend on the data are made
//! from the forward pass of the unperturbed sample: between scores by the explained class, within a head by values that are
//! [held](held).

mod cell;
mod head;
pub(crate) mod held;

use monosplit_graph::metadata::SCORES;
use monosplit_graph::{Error, ErrorKind, Graph, Hint, Kind, Node, NodeId, Output, Result, Tensor};

pub use cell::{AxisIndex, Cells};
pub use held::{HeldNetwork, HeldValues, settled};

/// The outputs of the network tell what there is.
const OUTPUTS: Hint = Hint::new("outputs", "the outputs of the graph list all");

/// What the names of nodes begin with that choose or weigh by what a target is given.
const CHOICE: &str = "target chosen ";

/// Whether a node chooses or weighs by what a target is given. It is no layer of the network, and is the same whether that is a
/// constant or an input.
pub(crate) fn is_choice(node: &Node) -> bool {
    node.label.tensor.starts_with(CHOICE)
}

/// What is explained of a network. Outputs are addressed by name; none is the first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Target {
    /// The class scores at an output, as they are.
    Class {
        /// The output.
        output: Option<String>,
    },
    /// The score of a class less that of another: why this and not that.
    Contrast {
        /// The output.
        output: Option<String>,
        /// The class; without it every class has its score, `[N, classes]`.
        class: Option<usize>,
        /// The other class.
        against: Rival,
    },
    /// The sum of a class's map `[N, C, …]` over a region.
    Region {
        /// The output.
        output: Option<String>,
        /// The region.
        mask: Mask,
        /// The class; without it every class has its score, `[N, C]`.
        class: Option<usize>,
    },
    /// Some numbers of an output, added up, or the best of several.
    Cell {
        /// The output.
        output: Option<String>,
        /// Which numbers of a sample.
        cells: Cells,
    },
    /// All numbers of an output as one.
    Summary {
        /// The output.
        output: Option<String>,
        /// How they become one.
        summary: Summary,
    },
    /// The cosine of the angle between an output and a reference.
    Similarity {
        /// The output.
        output: Option<String>,
        /// The reference, with as many numbers as the output has for a sample.
        reference: Tensor,
    },
    /// The output of a graph that reads outputs of the network by name, one number for each sample. A graph with one input
    /// whose name is no output's reads the first.
    Head {
        /// The graph.
        graph: Box<Graph>,
    },
}

/// The class that another is contrasted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// This class.
    Class(usize),
    /// The class with the highest score.
    Top,
    /// The class with the second highest score.
    Second,
}

/// A region of the places of an output.
#[derive(Clone, Debug)]
pub enum Mask {
    /// A weight for each place, usually 0 or 1: the spatial axes of the output.
    Given(Tensor),
    /// Where the network itself finds the class: where its score is the highest of all classes, or, if it is the only one,
    /// where it is above zero (above a half behind a sigmoid).
    Predicted,
}

/// How all numbers of an output become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The root of the sum of their squares.
    Norm,
}

/// Where the mask, the reference and the other class of a target come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parameters {
    /// They are constants of the grafted graph.
    #[default]
    Constant,
    /// They are [inputs](parameter_inputs) of the grafted graph. A class that a target names is left to the explained class.
    Input,
}

/// Names of the inputs that a target adds to those of the network.
pub mod parameter_inputs {
    /// The mask of a region, `[1, 1, …]` or one for each sample.
    pub const MASK: &str = "target_mask";
    /// The reference of a similarity, `[1, D]` or one for each sample.
    pub const REFERENCE: &str = "target_reference";
    /// The class that another is contrasted with, one for all samples or one for each.
    pub const AGAINST: &str = "target_against";
    /// The indices of a cell along the axes that have a single one, `[1, axes]` or a row for each sample. Negative ones count
    /// from the end.
    pub const CELL: &str = "target_cell";

    /// All of them.
    pub const ALL: [&str; 4] = [MASK, REFERENCE, AGAINST, CELL];
}

/// The name of the value that says for each sample, `[N]`, whether the class or the cell exists that an input of the target
/// names. In its place the nearest one is explained.
pub const TARGET_IN_RANGE: &str = "target_in_range";

/// A network with the head of a target.
#[derive(Clone, Debug)]
pub struct Grafted {
    /// The graph. Its only output holds the scores `[N, K]`.
    pub graph: Graph,
    /// The inputs that the target added, with the values that it has.
    pub parameters: Vec<(&'static str, Tensor)>,
}

impl Target {
    /// Grafts the head behind the outputs of `network`, whose first input is explained.
    pub fn graft(&self, network: &Graph, parameters: Parameters) -> Result<Grafted> {
        let mut head = head::Head::new(network, parameters);
        let (name, scores) = head.write(self)?;
        let head::Head { mut graph, given, .. } = head;
        graph.set_outputs(vec![Output { name, node: scores }]);
        if !matches!(self, Target::Class { .. }) {
            graph.set_metadata(SCORES, TARGET_SCORE);
        }
        Ok(Grafted { graph: graph.pruned()?, parameters: given })
    }

    /// The output that it is about, where it is one.
    pub fn output(&self) -> Option<&str> {
        match self {
            Target::Class { output }
            | Target::Contrast { output, .. }
            | Target::Region { output, .. }
            | Target::Cell { output, .. }
            | Target::Summary { output, .. }
            | Target::Similarity { output, .. } => output.as_deref(),
            Target::Head { .. } => None,
        }
    }
}

/// The output of this name; the first without one. An error if it does not hold real numbers of each sample.
pub fn target_output(network: &Graph, name: Option<&str>) -> Result<Output> {
    let outputs = network.outputs();
    let found = match name {
        Some(name) => outputs.iter().find(|output| output.name == name),
        None => outputs.first(),
    };
    let Some(found) = found else {
        let names: Vec<String> = outputs.iter().map(|output| format!("'{}'", output.name)).collect();
        let wanted = name.unwrap_or_default();
        let message = format!("there is no output '{wanted}'; the outputs are {}", names.join(", "));
        return Err(Error::new(ErrorKind::UnknownName, message).hint(OUTPUTS));
    };
    check_samples(network, &found.name, found.node)?;
    Ok(found.clone())
}

/// An error if a value is not made of real numbers with samples along the first axis.
fn check_samples(network: &Graph, name: &str, value: NodeId) -> Result<()> {
    let node = network.node(value);
    if node.kind != Kind::Float {
        return Err(Error::unsupported(format!(
            "output '{name}' holds numbers of kind {}, through which nothing can be explained; name an output of real \
             numbers, such as what they were computed from",
            node.kind
        )));
    }
    let samples = network.inputs().first().and_then(|&input| network.node(input).shape.dims().first());
    let rest = node.shape.dims().get(1..).unwrap_or_default();
    if node.shape.dims().first() != samples || rest.iter().any(|dim| dim.fixed().is_none()) {
        return Err(Error::shape(format!(
            "output '{name}' has the shape {}, expected samples along its first axis and fixed lengths along the others; \
             name another output, or export the network with them",
            node.shape
        )));
    }
    Ok(())
}

/// Whether the scores of a network are those of a target, which have no probabilities.
pub fn is_target_score(network: &Graph) -> bool {
    network.metadata().iter().any(|(key, value)| key == SCORES && value == TARGET_SCORE)
}

/// What the metadata of a graph say of the scores of a target.
const TARGET_SCORE: &str = "score";

#[cfg(test)]
mod tests;

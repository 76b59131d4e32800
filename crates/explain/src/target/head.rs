//! The nodes of each target.

use std::collections::HashMap;

use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::{Dim, Error, Graph, Kind, Label, NodeId, Op, Result, Shape, Tensor, axis_indices};

use super::cell::{Cells, Taken};
use super::held;
use super::{
    CHOICE, Mask, Parameters, Rival, Summary, TARGET_IN_RANGE, Target, check_samples, parameter_inputs,
    target_output,
};

/// Squares below this count as this: it keeps the slope of a root at zero finite, and is lost beside any other number.
const SMALLEST_SQUARE: f64 = 1e-30;
/// The name of the score in graphs.
const SCORE: &str = "target";

/// A network that gets a head.
pub(super) struct Head {
    pub(super) graph: Graph,
    parameters: Parameters,
    /// The inputs that were added, with the values they have.
    pub(super) given: Vec<(&'static str, Tensor)>,
}

impl Head {
    pub(super) fn new(network: &Graph, parameters: Parameters) -> Self {
        Head { graph: network.clone(), parameters, given: Vec::new() }
    }

    /// Writes the nodes of a target; returns the name of the output and the scores `[N, K]`.
    pub(super) fn write(&mut self, target: &Target) -> Result<(String, NodeId)> {
        if let Target::Head { graph } = target {
            return Ok((SCORE.to_owned(), self.grafted(graph)?));
        }
        let output = target_output(&self.graph, target.output())?;
        let (name, value) = (output.name.as_str(), output.node);
        let scores = match target {
            Target::Class { .. } | Target::Head { .. } => return Ok((output.name, value)),
            Target::Contrast { class, against, .. } => self.contrast(name, value, *class, *against)?,
            Target::Region { mask, class, .. } => self.region(name, value, mask, *class)?,
            Target::Cell { cells, .. } => self.cell(name, value, cells)?,
            Target::Summary { summary, .. } => self.summary(value, *summary)?,
            Target::Similarity { reference, .. } => self.similarity(name, value, reference)?,
        };
        Ok((SCORE.to_owned(), self.named(scores)?))
    }

    /// The lengths of a sample's axes.
    fn lengths(&self, value: NodeId) -> Vec<usize> {
        let dims = self.graph.node(value).shape.dims().get(1..).unwrap_or_default();
        dims.iter().filter_map(|dim| dim.fixed()).collect()
    }

    fn samples(&self, value: NodeId) -> Dim {
        self.graph.node(value).shape.dims().first().copied().unwrap_or(Dim::Fixed(1))
    }

    /// All numbers of a sample in a row, `[N, count]`.
    fn flat(&mut self, value: NodeId) -> Result<NodeId> {
        let count: usize = self.lengths(value).iter().product();
        let shape = Shape::new([self.samples(value), Dim::Fixed(count)]);
        self.graph.reshaped(value, shape)
    }

    /// The scores under the name by which layers are listed.
    fn named(&mut self, scores: NodeId) -> Result<NodeId> {
        let label = self.graph.label_mut(scores);
        if label.display().is_empty() {
            *label = Label::named(SCORE);
            return Ok(scores);
        }
        self.graph.add_named(Label::named(SCORE), Op::Identity, &[scores])
    }

    /// `f_A − f_B`, or `f − f_B` where no class is named.
    fn contrast(
        &mut self,
        name: &str,
        value: NodeId,
        class: Option<usize>,
        against: Rival,
    ) -> Result<NodeId> {
        let classes = match self.lengths(value)[..] {
            [classes, ref rest @ ..] if classes > 1 && rest.iter().all(|&length| length == 1) => classes,
            ref other => {
                return Err(Error::shape(format!(
                    "output '{name}' has samples of shape {other:?}, expected the scores of at least two classes to compare; \
                     name an output that holds them"
                )));
            }
        };
        let scores = self.flat(value)?;
        let rival = match (self.parameters, against) {
            (Parameters::Input, Rival::Class(class)) => {
                check_class(name, class, classes)?;
                let number = Tensor::new([1, 1], vec![class as i64])?;
                let given = self.parameter(parameter_inputs::AGAINST, number, scores)?;
                let given = self.existing(given, &[classes])?;
                let table = self.graph.constant(Tensor::vector(axis_indices(classes)?));
                let is_rival = self.graph.binary(Binary::Equal, given, table)?;
                self.sum_where(scores, is_rival, 1)?
            }
            (_, Rival::Class(class)) => self.element(name, scores, class, classes)?,
            (_, Rival::Top | Rival::Second) => {
                let is_top = self.is_largest(scores)?;
                let chosen = if against == Rival::Top { is_top } else { self.is_second(scores, is_top)? };
                let chosen = self.held(chosen, "rival")?;
                let own = self.weighted(scores, chosen)?;
                let sum = self.graph.reduced(Reduction::Sum, own, &[1], true)?;
                self.choice(sum)
            }
        };
        let differences = self.graph.minus(scores, rival)?;
        // Last, so that a class that is named is explained like one that is chosen: rules that look at all elements of a value
        // (the stabilisers of the split) find the same.
        match (class, self.parameters) {
            (Some(class), Parameters::Constant) => self.element(name, differences, class, classes),
            (Some(class), Parameters::Input) => check_class(name, class, classes).map(|()| differences),
            (None, _) => Ok(differences),
        }
    }

    /// The score of one class, `[N, 1]`.
    fn element(&mut self, name: &str, scores: NodeId, class: usize, classes: usize) -> Result<NodeId> {
        check_class(name, class, classes)?;
        self.graph.add(Op::Slice { axis: 1, start: class, step: 1, length: 1 }, &[scores])
    }

    /// The sum of a value's elements along an axis where `chosen` holds.
    fn sum_where(&mut self, value: NodeId, chosen: NodeId, axis: usize) -> Result<NodeId> {
        // No product with ones and zeros: an infinite element beside the chosen one would become NaN.
        let own = self.graph.masked(chosen, value)?;
        let own = self.choice(own);
        let sum = self.graph.reduced(Reduction::Sum, own, &[axis], true)?;
        Ok(self.choice(sum))
    }

    /// A value times what the target is given.
    fn weighted(&mut self, value: NodeId, given: NodeId) -> Result<NodeId> {
        let product = self.graph.times(value, given)?;
        Ok(self.choice(product))
    }

    /// A node under the name of those that choose.
    fn choice(&mut self, id: NodeId) -> NodeId {
        *self.graph.label_mut(id) = Label::named(format!("{CHOICE}{}", id.index()));
        id
    }

    /// Whether an element is the first largest along axis 1.
    fn is_largest(&mut self, value: NodeId) -> Result<NodeId> {
        let shape = self.graph.node(value).shape.clone();
        let (rank, length) = (shape.rank(), shape.fixed_at(1).unwrap_or(0));
        let winner = self.graph.add(Op::ArgMax { axis: 1, keep: true }, &[value])?;
        let mut dims = vec![1; rank];
        dims[1] = length;
        let table = Tensor::new(dims, axis_indices(length)?)?;
        let table = self.graph.constant(table);
        self.graph.binary(Binary::Equal, winner, table)
    }

    /// Whether an element is the second largest along axis 1, where `is_top` says which is the largest.
    fn is_second(&mut self, value: NodeId, is_top: NodeId) -> Result<NodeId> {
        let least = self.graph.number(f64::NEG_INFINITY);
        let others = self.graph.select(is_top, least, value)?;
        self.is_largest(others)
    }

    /// Truth values or whole numbers as weights that perturbations of the sample do not change.
    fn held(&mut self, chosen: NodeId, what: &str) -> Result<NodeId> {
        let label = Label::named(held::name(what));
        self.graph.add_named(label, Op::Cast { to: Kind::Float }, &[chosen])
    }

    /// A value of the target that is an input, one for all samples of `of` or one for each.
    fn parameter(&mut self, name: &'static str, value: Tensor, of: NodeId) -> Result<NodeId> {
        let input = self.graph.input(name, Shape::fixed(value.shape()), value.kind());
        let mut dims = self.graph.node(input).shape.dims().to_vec();
        dims[0] = self.samples(of);
        self.given.push((name, value));
        self.graph.add(Op::Expand { shape: Shape::new(dims) }, &[input])
    }

    /// Numbers `[N, axes]` that an input of the target holds as indices along axes of these lengths: the nearest one where there
    /// is no such element. Which samples' numbers all exist is told under a name, since no ONNX operator raises an error.
    fn existing(&mut self, given: NodeId, lengths: &[usize]) -> Result<NodeId> {
        let last: Vec<i64> = lengths.iter().map(|&length| length as i64 - 1).collect();
        let [zero, one] = [0i64, 1].map(|number| self.graph.constant(Tensor::scalar(number)));
        let last = self.graph.constant(Tensor::vector(last));
        let is_low = self.graph.binary(Binary::Less, given, zero)?;
        let at_least = self.graph.select(is_low, zero, given)?;
        let is_high = self.graph.binary(Binary::Greater, at_least, last)?;
        let nearest = self.graph.select(is_high, last, at_least)?;
        let is_other = self.graph.binary(Binary::Or, is_low, is_high)?;
        let is_other = self.graph.select(is_other, one, zero)?;
        let others = self.graph.add(Op::Cast { to: Kind::Float }, &[is_other])?;
        let others = self.graph.reduced(Reduction::Sum, others, &[1], false)?;
        let half = self.graph.number(0.5);
        let exist = self.graph.binary(Binary::Less, others, half)?;
        *self.graph.label_mut(exist) = Label::named(TARGET_IN_RANGE);
        let column = Shape::new([self.samples(given), Dim::Fixed(1)]);
        let column = self.graph.reshaped(exist, column)?;
        // `nearest` alone is the same; without this select nothing reads `exist`, and the output would be left out.
        self.graph.select(column, given, nearest)
    }

    /// `Σ_p m_p f_c(p)` over the places `p`.
    fn region(&mut self, name: &str, value: NodeId, mask: &Mask, class: Option<usize>) -> Result<NodeId> {
        let lengths = self.lengths(value);
        let (channels, places) = match lengths.split_first() {
            Some((&channels, places)) if !places.is_empty() && channels > 0 => (channels, places),
            _ => {
                return Err(Error::shape(format!(
                    "output '{name}' has samples of shape {lengths:?}, expected maps of classes over places, [C, H, W]; name \
                     an output that has them, or one number of this one: cell:{name}[{}]",
                    vec!["0"; lengths.len()].join(",")
                )));
            }
        };
        class.map_or(Ok(()), |class| check_class(name, class, channels))?;
        let alone = class.filter(|_| self.parameters == Parameters::Constant);
        let weights = match mask {
            Mask::Given(mask) => {
                let mask = fitting(mask, places).ok_or_else(|| {
                    Error::shape(format!(
                        "the mask has the shape {:?}, expected that of the places of output '{name}', {places:?}; give an array of \
                         that shape, or a picture, which is scaled",
                        mask.shape()
                    ))
                })?;
                match self.parameters {
                    Parameters::Constant => self.graph.constant(mask),
                    Parameters::Input => self.parameter(parameter_inputs::MASK, mask, value)?,
                }
            }
            Mask::Predicted => {
                let found = match channels {
                    1 => self.is_positive(value)?,
                    _ => self.is_largest(value)?,
                };
                self.held(found, "mask")?
            }
        };
        let inside = self.weighted(value, weights)?;
        let axes: Vec<usize> = (2..lengths.len() + 1).collect();
        let sums = self.graph.reduced(Reduction::Sum, inside, &axes, false)?;
        match (mask, alone) {
            (Mask::Predicted, None) if channels > 1 => self.without_empty(sums, weights, &axes),
            // Last, as in a contrast.
            (_, Some(class)) => self.element(name, sums, class, channels),
            _ => Ok(sums),
        }
    }

    /// Sums over regions, below all others where a region is empty: a sum of nothing would be the largest of negative ones. How
    /// far below is a whole number, through which no gradient goes.
    fn without_empty(&mut self, sums: NodeId, weights: NodeId, axes: &[usize]) -> Result<NodeId> {
        let places = self.graph.reduced(Reduction::Sum, weights, axes, false)?;
        let found = self.graph.more_than(places, 0.0)?;
        let least = self.graph.reduced(Reduction::Min, sums, &[1], true)?;
        let below = self.graph.offset(-1.0, least)?;
        let below = self.graph.add(Op::Cast { to: Kind::Int }, &[below])?;
        let (nothing, below) = (self.graph.number(0.0), self.held(below, "nowhere")?);
        let added = self.graph.select(found, nothing, below)?;
        let sums = self.graph.plus(sums, added)?;
        Ok(self.choice(sums))
    }

    /// Where a single map finds its class.
    fn is_positive(&mut self, value: NodeId) -> Result<NodeId> {
        let mut end = value;
        while let Op::Identity | Op::Reshape { .. } = self.graph.node(end).op {
            end = self.graph.node(end).inputs[0];
        }
        let bound = if self.graph.node(end).op == Op::Unary(Unary::Sigmoid) { 0.5 } else { 0.0 };
        self.graph.more_than(value, bound)
    }

    /// The sum over ranges, for each cell among which the best is wanted.
    fn cell(&mut self, name: &str, value: NodeId, cells: &Cells) -> Result<NodeId> {
        let lengths = self.lengths(value);
        let taken = cells.taken(name, &lengths)?;
        let chosen: Vec<usize> = match self.parameters {
            Parameters::Constant => Vec::new(),
            Parameters::Input => (0..taken.len()).filter(|&axis| taken[axis].single).collect(),
        };
        let mut part = value;
        for (axis, Taken { elements, .. }) in taken.iter().enumerate() {
            let slice = Op::Slice { axis: axis + 1, start: elements.start, step: 1, length: elements.len() };
            if lengths[axis] != elements.len() && !chosen.contains(&axis) {
                part = self.graph.add(slice, &[part])?;
            }
        }
        if !chosen.is_empty() {
            // First, so that what is left is added up as it is where the indices are constants.
            part = self.chosen_elements(part, &taken, &chosen)?;
        }
        let summed: Vec<usize> =
            (0..taken.len()).filter(|&axis| !taken[axis].best).map(|axis| axis + 1).collect();
        if summed.iter().any(|&axis| taken[axis - 1].elements.len() > 1) {
            part = self.graph.reduced(Reduction::Sum, part, &summed, true)?;
        }
        self.flat(part)
    }

    /// The elements along these axes whose indices are an input.
    fn chosen_elements(&mut self, value: NodeId, taken: &[Taken], axes: &[usize]) -> Result<NodeId> {
        let lengths = self.lengths(value);
        let (rank, lengths) = (lengths.len() + 1, axes.iter().map(|&axis| lengths[axis]).collect::<Vec<_>>());
        let indices: Vec<i64> = axes.iter().map(|&axis| taken[axis].elements.start as i64).collect();
        let given = Tensor::new([1, indices.len()], indices)?;
        let given = self.parameter(parameter_inputs::CELL, given, value)?;
        let zero = self.graph.constant(Tensor::scalar(0i64));
        let counts = lengths.iter().map(|&length| length as i64).collect::<Vec<_>>();
        let counts = self.graph.constant(Tensor::vector(counts));
        let is_from_end = self.graph.binary(Binary::Less, given, zero)?;
        let from_end = self.graph.binary(Binary::Add, given, counts)?;
        let given = self.graph.select(is_from_end, from_end, given)?;
        let given = self.existing(given, &lengths)?;
        let mut part = value;
        for (column, (&axis, &length)) in axes.iter().zip(&lengths).enumerate() {
            let index = Op::Slice { axis: 1, start: column, step: 1, length: 1 };
            let index = self.graph.add(index, &[given])?;
            let dims: Vec<Dim> =
                std::iter::once(self.samples(value)).chain(vec![Dim::Fixed(1); rank - 1]).collect();
            let index = self.graph.reshaped(index, Shape::new(dims))?;
            let mut table = vec![1; rank];
            table[axis + 1] = length;
            let table = self.graph.constant(Tensor::new(table, axis_indices(length)?)?);
            let is_chosen = self.graph.binary(Binary::Equal, index, table)?;
            part = self.sum_where(part, is_chosen, axis + 1)?;
        }
        Ok(part)
    }

    fn summary(&mut self, value: NodeId, summary: Summary) -> Result<NodeId> {
        let flat = self.flat(value)?;
        let is_single = self.graph.node(flat).shape.fixed_at(1) == Some(1);
        match summary {
            // A sum of one number would be another layer, at which the split is shifted.
            Summary::Sum | Summary::Mean if is_single => Ok(flat),
            Summary::Sum => self.graph.reduced(Reduction::Sum, flat, &[1], true),
            Summary::Mean => self.graph.reduced(Reduction::Mean, flat, &[1], true),
            Summary::Norm => {
                let squares = self.squares(flat)?;
                self.graph.unary(Unary::Sqrt, squares)
            }
        }
    }

    /// `Σ v²`, above zero.
    fn squares(&mut self, flat: NodeId) -> Result<NodeId> {
        let squares = self.graph.times(flat, flat)?;
        let sum = self.graph.reduced(Reduction::Sum, squares, &[1], true)?;
        self.graph.offset(SMALLEST_SQUARE, sum)
    }

    /// `y·r / (‖y‖ ‖r‖)`
    fn similarity(&mut self, name: &str, value: NodeId, reference: &Tensor) -> Result<NodeId> {
        let flat = self.flat(value)?;
        let count = self.graph.node(flat).shape.fixed_at(1).unwrap_or(0);
        if reference.len() != count {
            return Err(Error::shape(format!(
                "the reference has {} numbers, of shape {:?}, and output '{name}' {count} for each sample; give the output of \
                 this network for another input, or a picture",
                reference.len(),
                reference.shape()
            )));
        }
        let reference = reference.clone().reshaped([1, count])?;
        let reference = match self.parameters {
            Parameters::Constant => self.graph.constant(reference),
            Parameters::Input => self.parameter(parameter_inputs::REFERENCE, reference, value)?,
        };
        let product = self.weighted(flat, reference)?;
        let mut cosine = self.graph.reduced(Reduction::Sum, product, &[1], true)?;
        let inverse = self.inverse_length(reference)?;
        cosine = self.weighted(cosine, inverse)?;
        let inverse = self.inverse_length(flat)?;
        self.graph.times(cosine, inverse)
    }

    /// `1 / ‖v‖`
    fn inverse_length(&mut self, flat: NodeId) -> Result<NodeId> {
        let squares = self.squares(flat)?;
        let length = self.graph.unary(Unary::Sqrt, squares)?;
        self.graph.unary(Unary::Reciprocal, length)
    }

    /// The output of a graph that reads the network's.
    fn grafted(&mut self, head: &Graph) -> Result<NodeId> {
        let mut given = HashMap::new();
        for &input in head.inputs() {
            let node = head.node(input);
            let wanted = node.label.tensor.as_str();
            let is_known = self.graph.outputs().iter().any(|output| output.name == wanted);
            let name = if is_known || head.inputs().len() > 1 { Some(wanted) } else { None };
            let output = target_output(&self.graph, name).map_err(|error| error.context("the head"))?;
            let found = &self.graph.node(output.node).shape;
            if found.rank() != node.shape.rank() || found.broadcast(&node.shape).is_err() {
                return Err(Error::shape(format!(
                    "input '{wanted}' of the head has the shape {}, and output '{}' of the network {found}; export the head \
                     for that shape",
                    node.shape, output.name
                )));
            }
            given.insert(input, output.node);
        }
        let map = head.copy_into_with(&mut self.graph, &given).map_err(|error| error.context("the head"))?;
        let Some(output) = head.outputs().first() else {
            return Err(Error::argument("the head has no output; export it with one number for each sample"));
        };
        let score = map[output.node];
        check_samples(&self.graph, &output.name, score).map_err(|error| error.context("the head"))?;
        let lengths = self.lengths(score);
        if lengths.iter().product::<usize>() != 1 {
            return Err(Error::shape(format!(
                "the head returns samples of shape {lengths:?} at '{}', expected one number for each; end it in a sum or a \
                 choice",
                output.name
            )));
        }
        let score = self.flat(score)?;
        self.named(score)
    }
}

/// A mask `[1, 1, places]`; none if its shape is another.
fn fitting(mask: &Tensor, places: &[usize]) -> Option<Tensor> {
    let ones = mask.shape().len().checked_sub(places.len())?;
    let fits = mask.shape()[..ones].iter().all(|&length| length == 1) && mask.shape()[ones..] == *places;
    let shape = [&[1, 1], places].concat();
    fits.then(|| mask.clone().reshaped(shape).ok())?
}

fn check_class(output: &str, class: usize, classes: usize) -> Result<()> {
    match class < classes {
        true => Ok(()),
        false => Err(Error::argument(format!(
            "there is no class {class}: output '{output}' has {classes}, 0 to {}",
            classes.saturating_sub(1)
        ))),
    }
}

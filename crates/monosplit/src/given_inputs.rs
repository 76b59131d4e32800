//! Inputs of a network that are given beside the one that is explained, and held fixed like weights.

use std::path::Path;

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Result, Tensor, array_file};

use crate::input::{InputFile, SampleReader};
use crate::model::{self, Model};

/// The largest array that is read.
const MAX_ARRAY: u64 = 1 << 30;

impl Model {
    /// The network with values for some of its inputs, by name: for each, one sample for all, or one for each sample that is
    /// explained. The input that is left is explained.
    pub fn with_inputs(self, given: Vec<(String, Tensor)>) -> Result<Model> {
        let mut checked = Vec::with_capacity(given.len());
        for (name, value) in given {
            if checked.iter().any(|(known, _)| *known == name) {
                return Err(self.unfit(format!("input '{name}' is given twice; give it once")));
            }
            let value = fitting(self.graph(), &name, value).map_err(|error| error.context(self.origin()))?;
            checked.push((name, value));
        }
        let optional: Vec<&str> = self.defaults().iter().map(|(name, _)| name.as_str()).collect();
        let graph = given_last(self.graph(), &checked, &optional)?;
        let mut model = self.with_canonical(graph);
        model.given = checked;
        Ok(model)
    }

    /// Whether values were given for some of the inputs.
    pub fn has_given_inputs(&self) -> bool {
        !self.given.is_empty()
    }

    /// The values of the other inputs for `count` samples from `first` on.
    pub fn given_inputs(&self, first: usize, count: usize) -> Result<Vec<(&str, Tensor)>> {
        let each = self.given.iter().map(|(name, value)| {
            let all = value.shape().first().copied().unwrap_or(0);
            let wanted: Vec<usize> = (first..first + count).map(|row| if all == 1 { 0 } else { row }).collect();
            if wanted.last().is_some_and(|&last| last >= all) {
                return Err(self.unfit(format!(
                    "input '{name}' was given for {all} samples, but there are more; give one for all, or one for each"
                )));
            }
            Ok((name.as_str(), rows(value, wanted.into_iter())?))
        });
        each.collect()
    }

    /// The samples of an input in a file: a picture, which is made ready as that input wants it, an array or a table.
    pub fn read_input(&self, name: &str, path: &Path) -> Result<Tensor> {
        let view = self.reading_input(name)?;
        let sources = InputFile::list(&[path.to_owned()])?;
        let is_picture = sources.iter().any(InputFile::is_picture);
        let preprocess = is_picture.then(|| view.preprocess()).transpose()?;
        let mut reader = SampleReader::new(&view, sources, preprocess)?.skip_unreadable(false);
        let samples = reader.take(usize::MAX).map_err(|error| error.context(format!("input '{name}'")))?;
        let values: Vec<Tensor> = samples.into_iter().map(|sample| sample.tensor).collect();
        stack(&values, view.input()?.kind)
    }

    /// The array in a file, for an input.
    pub fn input_array(path: &Path) -> Result<Tensor> {
        array_file::read(&model::read_file(path, MAX_ARRAY)?, &[])
            .map_err(|error| error.context(path.display()))
    }
}

/// A value in the shape and kind of an input.
pub(crate) fn fitting(graph: &Graph, name: &str, value: Tensor) -> Result<Tensor> {
    let mut inputs = graph.inputs().iter().map(|&id| graph.node(id));
    let Some(node) = inputs.find(|node| node.label.tensor == name) else {
        return Err(model::unknown_input(graph, name));
    };
    let rest = node.shape.dims().get(1..).unwrap_or_default();
    let lengths: Option<Vec<usize>> = rest.iter().map(|dim| dim.fixed()).collect();
    let misfit = || {
        let (expected, found) = (&node.shape, value.shape());
        Error::shape(format!("input '{name}' expects the shape {expected}, found {found:?}"))
    };
    let lengths = lengths.ok_or_else(misfit)?;
    let value = match value.shape() {
        shape if *shape == lengths => value.reshaped([&[1], &lengths[..]].concat())?,
        [samples, rest @ ..] if *rest == lengths && *samples > 0 => value,
        _ => return Err(misfit()),
    };
    of_kind(value, node.kind, name)
}

/// Numbers as an input reads them. Whole numbers are read as integers, zeros and ones as truth values, whatever the file writes them
/// as.
pub(crate) fn of_kind(value: Tensor, kind: Kind, name: &str) -> Result<Tensor> {
    /// Beyond this, real numbers skip integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.kind() == kind {
        return Ok(value);
    }
    let (shape, numbers) = (value.shape().to_vec(), value.to_f64());
    let (fits, expected): (fn(f64) -> bool, &str) = match kind {
        Kind::Float => (|_| true, ""),
        Kind::Int => (|number| number.fract() == 0.0 && number.abs() <= EXACT, "whole numbers"),
        Kind::Bool => (|number| number == 0.0 || number == 1.0, "truth values, 0 and 1"),
    };
    if let Some(number) = numbers.iter().find(|&&number| !fits(number)) {
        return Err(Error::argument(format!("input '{name}' reads {expected}, found {number}")));
    }
    match kind {
        Kind::Float => Tensor::new(shape, numbers.into_vec()),
        Kind::Int => Tensor::new(shape, numbers.iter().map(|&number| number as i64).collect::<Vec<_>>()),
        Kind::Bool => Tensor::new(shape, numbers.iter().map(|&number| number != 0.0).collect::<Vec<_>>()),
    }
}

/// The graph with the inputs that are given behind the others. Those that may be left out have lengths of their own.
fn given_last(graph: &Graph, given: &[(String, Tensor)], optional: &[&str]) -> Result<Graph> {
    let is_given = |name: &str| given.iter().any(|(known, _)| known == name);
    let mut sorted = Graph::new();
    let mut copies = std::collections::HashMap::new();
    for last in [false, true] {
        for &id in graph.inputs().iter().filter(|&&id| is_given(&graph.node(id).label.tensor) == last) {
            copies.insert(id, sorted.add_copy(graph.node(id), &[])?);
        }
    }
    let samples = |id| graph.node(id).shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
    let is_needed = |id: &&NodeId| !optional.contains(&&*graph.node(**id).label.tensor);
    let mut batches = graph.inputs().iter().filter(is_needed).map(|&id| samples(id));
    if let Some(first) = batches.next()
        && batches.any(|other| other != first)
    {
        return Err(Error::unsupported(
            "the inputs of the network have different numbers of samples along their first axes; export it with one batch \
             axis for all",
        ));
    }
    let map = graph.copy_into_with(&mut sorted, &copies)?;
    graph.outputs().iter().for_each(|output| sorted.output(output.name.clone(), map[output.node]));
    graph.metadata().iter().for_each(|(key, value)| sorted.set_metadata(key, value));
    Ok(sorted)
}

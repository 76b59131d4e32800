//! The explained inputs of a network as one real value, so that every method explains them as it explains an image.
//!
//! A real input is that value as it is. Token ids are looked up in a table of the network: the value is what is looked up,
//! `[N, E, T]`, with the embedding along the channel axis. Several inputs are one vector `[N, total]` that the network
//! takes apart again: paths, noise and relevance are joint, and each input has the map of its part. All other inputs of the
//! network are held fixed.

use std::collections::HashMap;

use monosplit_engine::Engine;
use monosplit_graph::passes::with_real_input;
use monosplit_graph::{
    Dim, Error, ErrorKind, Graph, Kind, Label, NodeId, Op, Result, Shape, Tensor, element_count,
};

use crate::channels::Axes;
use crate::target::parameter_inputs;
use crate::token_lookup::TokenLookup;

/// An explained input: a part of the value that is explained.
#[derive(Clone, Debug, PartialEq)]
pub struct InputPart {
    name: String,
    tokens: Option<usize>,
    rows: Option<usize>,
    start: usize,
    /// The axes of a sample in the explained value; for token ids embedding and tokens.
    dims: Vec<usize>,
    pub(crate) axes: Axes,
    is_whole: bool,
}

impl InputPart {
    /// The name of the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of tokens of a sample; none if the input holds real numbers.
    pub fn tokens(&self) -> Option<usize> {
        self.tokens
    }

    /// The number of rows of the table, where token ids are looked up in it as they are.
    pub fn rows(&self) -> Option<usize> {
        self.rows
    }

    /// The shape of a sample of the part: that of the input, or `[embedding, tokens]`.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The number of elements of a sample.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether a sample has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An error if a number among token ids is no row of their table.
    fn check_rows(&self, value: &Tensor) -> Result<()> {
        let Some((rows, ids)) = self.rows.map(|rows| rows as i64).zip(value.to_i64()) else { return Ok(()) };
        match ids.iter().find(|&&id| id < -rows || id >= rows) {
            Some(id) => Err(Error::argument(format!(
                "input '{}' holds the token id {id}, but its table has {rows} rows, 0 to {}",
                self.name,
                rows - 1
            ))),
            None => Ok(()),
        }
    }

    /// Whether there are other parts beside this one.
    pub(crate) fn is_one_of_several(&self) -> bool {
        !self.is_whole
    }

    /// The part of an attribution of the explained value, in the shape of the part.
    pub(crate) fn of(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        if self.is_whole {
            return Ok(value);
        }
        let samples = g.node(value).shape.dims()[0];
        let op = Op::Slice { axis: 1, start: self.start, step: 1, length: self.len() };
        let own = g.add(op, &[value])?;
        g.reshaped(own, batch_shape(samples, &self.dims))
    }

    /// The shape of the part.
    pub(crate) fn shape(&self, samples: Dim) -> Shape {
        batch_shape(samples, &self.dims)
    }
}

/// A network prepared for the explanation of some of its inputs.
#[derive(Clone, Debug)]
pub struct ExplainedInputs {
    network: Graph,
    encoder: Graph,
    parts: Vec<InputPart>,
}

/// An input and the real value that is explained in its place.
struct Source {
    input: NodeId,
    lookup: Option<TokenLookup>,
    dims: Vec<usize>,
    axes: Axes,
}

impl ExplainedInputs {
    /// Prepares `graph` for the explanation of the inputs of these names.
    pub fn new(graph: &Graph, names: &[&str]) -> Result<Self> {
        let mut graph = graph.clone();
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return Err(Error::argument(format!("input '{name}' is named twice; name it once")));
            }
            if let Some(real) = with_real_input(&graph, input_named(&graph, name)?)? {
                graph = real;
            }
        }
        if names.is_empty() {
            return Err(Error::argument("no input is explained; name one"));
        }
        let sources = names.iter().map(|name| Source::new(&graph, input_named(&graph, name)?));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        check_samples(&graph)?;
        let mut start = 0;
        let mut parts = Vec::with_capacity(sources.len());
        for (name, source) in names.iter().zip(&sources) {
            let part = InputPart {
                name: (*name).to_owned(),
                tokens: source.lookup.as_ref().map(|_| source.dims[1]),
                rows: source.lookup.as_ref().and_then(|found| found.rows),
                start,
                dims: source.dims.clone(),
                axes: source.axes,
                is_whole: sources.len() == 1,
            };
            start += part.len();
            parts.push(part);
        }
        Ok(ExplainedInputs {
            encoder: encoder(&graph, &sources, &parts)?,
            network: network(&graph, &sources, &parts)?,
            parts,
        })
    }

    /// The network: its first input is the explained value, the others follow in their order.
    pub fn network(&self) -> &Graph {
        &self.network
    }

    /// The explained inputs, in the order in which they were named.
    pub fn parts(&self) -> &[InputPart] {
        &self.parts
    }

    /// A graph that was made of [`network`](ExplainedInputs::network), as its explanation is, with the explained inputs themselves
    /// in place of the value that is made of them.
    pub fn with_encoder(&self, graph: &Graph) -> Result<Graph> {
        let mut whole = Graph::new();
        let encoded = self.encoder.copy_into_with(&mut whole, &HashMap::new())?;
        let name = |graph: &Graph, id: NodeId| graph.node(id).label.tensor.clone();
        let value = self.network.inputs().first().map(|&id| name(&self.network, id));
        let mut known = HashMap::new();
        for &id in graph.inputs() {
            let own = name(graph, id);
            // The network may read token ids beside their embedding, to see which of them are padding.
            let same = self.encoder.inputs().iter().find(|&&input| name(&self.encoder, input) == own);
            if value.as_ref() == Some(&own) {
                known.insert(id, encoded[self.encoder.outputs()[0].node]);
            } else if let Some(&same) = same {
                known.insert(id, encoded[same]);
            }
        }
        let map = graph.copy_into_with(&mut whole, &known)?;
        graph.outputs().iter().for_each(|output| whole.output(output.name.clone(), map[output.node]));
        graph.metadata().iter().for_each(|(key, value)| whole.set_metadata(key, value));
        Ok(whole)
    }

    /// Compiles what makes the explained value from the inputs.
    pub fn encoder(&self, engine: &dyn Engine) -> Result<InputEncoder> {
        Ok(InputEncoder { inputs: self.clone(), program: engine.compile(&self.encoder)? })
    }
}

/// Makes the explained value of a batch from its inputs.
pub struct InputEncoder {
    inputs: ExplainedInputs,
    program: Box<dyn monosplit_engine::Program>,
}

impl InputEncoder {
    /// The explained value of a batch; `values` holds the explained inputs in their order.
    pub fn encode(&self, values: &[Tensor]) -> Result<Tensor> {
        if values.len() != self.inputs.parts.len() {
            let (found, needed) = (values.len(), self.inputs.parts.len());
            return Err(Error::argument(format!("{found} inputs were given where {needed} are explained")));
        }
        self.inputs.parts.iter().zip(values).try_for_each(|(part, value)| part.check_rows(value))?;
        let mut outputs = self.program.run(values)?;
        outputs.pop().ok_or_else(|| Error::argument("the inputs gave no value"))
    }
}

impl Source {
    fn new(graph: &Graph, input: NodeId) -> Result<Self> {
        let node = graph.node(input);
        let lookup = match node.kind {
            Kind::Float => None,
            _ => Some(TokenLookup::find(graph, input)?),
        };
        let shape = lookup.as_ref().map_or(&node.shape, |found| &graph.node(found.gather).shape);
        let dims: Option<Vec<usize>> =
            shape.dims().get(1..).unwrap_or_default().iter().map(|dim| dim.fixed()).collect();
        let dims = dims.filter(|dims| shape.rank() > 0 && element_count(dims).is_some_and(|n| n > 0));
        let dims = dims.ok_or_else(|| {
            Error::shape(format!(
                "input '{}' has the shape {}, expected samples along its first axis and fixed lengths behind it",
                node.label.tensor, node.shape
            ))
        })?;
        let (dims, axes) = match &lookup {
            Some(found) => {
                let tokens = dims.iter().product::<usize>() / found.width;
                (vec![found.width, tokens], Axes { channels: Some(1), image_channels: 1 })
            }
            None => (dims, Axes::of(graph, input, input)),
        };
        Ok(Source { input, lookup, dims, axes })
    }

    /// The value of the network that the part stands for.
    fn value(&self) -> NodeId {
        self.lookup.as_ref().map_or(self.input, |found| found.gather)
    }
}

/// The graph from the explained inputs to the explained value.
fn encoder(graph: &Graph, sources: &[Source], parts: &[InputPart]) -> Result<Graph> {
    let mut g = Graph::new();
    let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
    for source in sources {
        copies.insert(source.input, g.add_copy(graph.node(source.input), &[])?);
    }
    let needed = graph.ancestors(sources.iter().map(Source::value));
    for (id, node) in graph.nodes().filter(|(id, _)| needed[id.index()]) {
        if copies.contains_key(&id) {
            continue;
        }
        if node.op == Op::Input {
            return Err(Error::unsupported(format!(
                "what is looked up also depends on input '{}'; explain the network from its embedding on",
                node.label.tensor
            )));
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| copies[input]).collect();
        copies.insert(id, g.add_copy(node, &inputs)?);
    }
    let samples = samples(graph);
    let mut values = Vec::with_capacity(sources.len());
    for (source, part) in sources.iter().zip(parts) {
        let mut value = copies[&source.value()];
        if source.lookup.is_some() {
            let rows = g.reshaped(value, batch_shape(samples, &[part.dims[1], part.dims[0]]))?;
            value = g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[rows])?;
        }
        values.push(if parts.len() > 1 {
            let flat = g.reshaped(value, batch_shape(samples, &[part.len()]))?;
            g.add(Op::Identity, &[flat])?
        } else {
            g.add(Op::Identity, &[value])?
        });
    }
    let value = if values.len() > 1 { g.add(Op::Concat { axis: 1 }, &values)? } else { values[0] };
    g.output("value", value);
    g.pruned()
}

/// The graph from the explained value, and the inputs that are not explained, to the outputs.
fn network(graph: &Graph, sources: &[Source], parts: &[InputPart]) -> Result<Graph> {
    let mut g = Graph::new();
    let samples = samples(graph);
    let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
    let joint = (parts.len() > 1).then(|| {
        let name = parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join("+");
        g.input(name, batch_shape(samples, &[parts.iter().map(InputPart::len).sum()]), Kind::Float)
    });
    let mut own = Vec::with_capacity(parts.len());
    for part in parts {
        let label = Label { tensor: part.value_name(), ..Label::default() };
        let value = match joint {
            None => {
                let id = g.input("", part.shape(samples), Kind::Float);
                *g.label_mut(id) = label;
                id
            }
            Some(joint) => {
                let op = Op::Slice { axis: 1, start: part.start, step: 1, length: part.len() };
                let flat = g.add(op, &[joint])?;
                // The part is a value of its own even where its shape is that of the slice: layers are named after it.
                let shape = part.shape(samples);
                g.add_named(label, Op::Reshape { shape }, &[flat])?
            }
        };
        own.push(value);
    }
    let is_explained = |id: NodeId| sources.iter().any(|source| source.value() == id);
    let needed = graph.ancestors_until(graph.outputs().iter().map(|output| output.node), is_explained);
    for &id in graph.inputs().iter().filter(|&&id| !is_explained(id)) {
        let is_source = sources.iter().any(|source| source.input == id);
        if !is_source || needed[id.index()] {
            copies.insert(id, g.add_copy(graph.node(id), &[])?);
        }
    }
    for (source, &value) in sources.iter().zip(&own) {
        let value = match &source.lookup {
            None => value,
            Some(found) => {
                let rows = g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[value])?;
                let looked_up = g.reshaped(rows, graph.node(found.gather).shape.clone())?;
                g.label_mut(looked_up).absorb(graph.node(found.gather).label.clone());
                looked_up
            }
        };
        copies.insert(source.value(), value);
    }
    for (id, node) in graph.nodes().filter(|(id, _)| needed[id.index()]) {
        if !copies.contains_key(&id) {
            let inputs: Vec<NodeId> = node.inputs.iter().map(|input| copies[input]).collect();
            copies.insert(id, g.add_copy(node, &inputs)?);
        }
    }
    graph.outputs().iter().for_each(|output| g.output(output.name.clone(), copies[&output.node]));
    graph.metadata().iter().for_each(|(key, value)| g.set_metadata(key, value));
    Ok(g)
}

impl InputPart {
    /// What the value of the part is called in the network. A part of several is no input, and modules may have the names
    /// of inputs.
    fn value_name(&self) -> String {
        match (self.tokens, self.is_whole) {
            (Some(_), _) => format!("{}/embedded", self.name),
            (None, true) => self.name.clone(),
            (None, false) => format!("{}/part", self.name),
        }
    }

    /// The layer of the network that returns the part.
    pub(crate) fn layer(&self) -> String {
        format!("{}:out", self.value_name())
    }
}

/// The length of the sample axis of a network's inputs.
fn samples(graph: &Graph) -> Dim {
    let first = graph.inputs().first().and_then(|&id| graph.node(id).shape.dims().first().copied());
    first.unwrap_or(Dim::Fixed(1))
}

/// An error if the inputs have different numbers of samples.
fn check_samples(graph: &Graph) -> Result<()> {
    let all = samples(graph);
    // What a target is given is brought to the number of samples where it is read.
    let is_target = |id: &NodeId| parameter_inputs::ALL.contains(&&*graph.node(*id).label.tensor);
    let differs = |id: &&NodeId| graph.node(**id).shape.dims().first() != Some(&all) && !is_target(id);
    match graph.inputs().iter().find(differs) {
        Some(&id) => Err(Error::unsupported(format!(
            "input '{}' of shape {} has another number of samples along its first axis than input '{}'; export the \
             network with one batch axis for all",
            graph.node(id).label.tensor,
            graph.node(id).shape,
            graph.node(graph.inputs()[0]).label.tensor
        ))),
        None => Ok(()),
    }
}

fn batch_shape(samples: Dim, dims: &[usize]) -> Shape {
    Shape::new(std::iter::once(samples).chain(dims.iter().map(|&n| Dim::Fixed(n))).collect::<Vec<_>>())
}

/// The input of this name.
fn input_named(graph: &Graph, name: &str) -> Result<NodeId> {
    let found = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == name);
    found.copied().ok_or_else(|| {
        let names = graph.inputs().iter().map(|&id| format!("'{}'", graph.node(id).label.tensor));
        let names = names.collect::<Vec<_>>().join(", ");
        Error::new(ErrorKind::UnknownName, format!("there is no input '{name}'; the inputs are {names}"))
    })
}

#[cfg(test)]
mod tests {
    use monosplit_engine::Cpu;
    use monosplit_graph::op::Binary;

    use super::*;
    use crate::methods::Gradient;
    use crate::{Class, ExplainBatch, Explainer, MapRequest, Settings};

    /// A network that takes one sample at a time is given the rows of the other inputs that belong to the sample.
    #[test]
    fn other_inputs_follow_the_samples_of_a_fixed_batch() {
        let mut g = Graph::new();
        let shape = || Shape::fixed(&[1, 2]);
        let (a, b) = (g.input("a", shape(), Kind::Float), g.input("b", shape(), Kind::Float));
        let y = g.binary(Binary::Mul, a, b).unwrap();
        g.output("y", y);
        let inputs = ExplainedInputs::new(&g, &["a"]).unwrap();
        let explainer =
            Explainer::new(inputs.network(), &[MapRequest::at_input(Gradient)], &Cpu::default()).unwrap();
        let of = |numbers: [f32; 4]| Tensor::new([2, 2], numbers.to_vec()).unwrap();
        let (value, others) = (of([1.0, 2.0, 3.0, 4.0]), [("b", of([5.0, 6.0, 7.0, 8.0]))]);
        let (class, settings) = (Class::Index(1), Settings::default());
        let batch = ExplainBatch { other_inputs: &others, ..ExplainBatch::new(&value, &class, &settings) };
        let found = explainer.explain_batch(&batch).unwrap();
        assert_eq!(*found.maps[0].values.to_f64(), [0.0, 6.0, 0.0, 8.0]);
    }
}

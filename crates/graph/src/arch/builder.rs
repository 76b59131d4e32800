//! The layers PyTorch builds networks from, as functions that append them to a graph. An architecture written
//! with them reads like its PyTorch source: each layer takes its module's name, finds its parameters under it
//! and infers its input channels from what enters.

use std::collections::HashMap;

use super::ArchOptions;
use super::state_dict::StateDict;
use crate::error::{Error, Result};
use crate::graph::{Graph, Label, NodeId};
use crate::op::{Binary, Divisor, Op, Unary, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// The ε of PyTorch's `BatchNorm2d`.
const BATCH_NORM_EPSILON: f64 = 1e-5;

/// A square `Conv2d`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conv {
    channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    groups: usize,
    bias: bool,
}

impl Conv {
    /// To `channels` channels, stride 1, no padding, no bias.
    pub(super) const fn new(channels: usize, kernel: usize) -> Self {
        Conv { channels, kernel, stride: 1, padding: 0, groups: 1, bias: false }
    }

    pub(super) const fn stride(self, stride: usize) -> Self {
        Conv { stride, ..self }
    }

    pub(super) const fn padding(self, padding: usize) -> Self {
        Conv { padding, ..self }
    }

    pub(super) const fn groups(self, groups: usize) -> Self {
        Conv { groups, ..self }
    }

    pub(super) const fn biased(self) -> Self {
        Conv { bias: true, ..self }
    }
}

/// A square pooling window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    kernel: usize,
    stride: usize,
    padding: usize,
    ceil: bool,
}

impl Pool {
    /// No padding, positions that hang over the edge left out.
    pub(super) const fn new(kernel: usize, stride: usize) -> Self {
        Pool { kernel, stride, padding: 0, ceil: false }
    }

    pub(super) const fn padding(self, padding: usize) -> Self {
        Pool { padding, ..self }
    }

    pub(super) const fn ceil(self) -> Self {
        Pool { ceil: true, ..self }
    }

    fn window(self) -> Window {
        square(self.kernel, self.stride, self.padding, self.ceil)
    }
}

fn square(kernel: usize, stride: usize, padding: usize, ceil: bool) -> Window {
    Window { stride: vec![stride; 2], pad: vec![(padding, padding); 2], ceil, ..Window::new(vec![kernel; 2]) }
}

/// A member of a [`Builder::sequential`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Layer {
    Conv(Conv),
    BatchNorm,
    Relu,
    Relu6,
    MaxPool(Pool),
    /// A fully connected layer to this many features.
    Linear(usize),
    /// The fully connected layer that names the classes.
    Classes,
    Dropout(f64),
}

/// Where the parameters come from.
enum Source<'a> {
    Given(&'a StateDict<'a>),
    /// Nowhere yet: each becomes an input of the graph, so that its name and shape are known without its values.
    Declared,
}

/// A graph in the making and the module it is at.
pub(super) struct Builder<'a> {
    graph: Graph,
    source: Source<'a>,
    classes: usize,
    path: String,
    uses: HashMap<String, usize>,
}

impl<'a> Builder<'a> {
    /// Builds with the parameters in `weights`.
    pub(super) fn with_weights(weights: &'a StateDict<'a>, classes: usize) -> Self {
        Builder::new(Source::Given(weights), classes)
    }

    /// Builds with every parameter as an input of the graph.
    pub(super) fn without_weights(classes: usize) -> Self {
        Builder::new(Source::Declared, classes)
    }

    fn new(source: Source<'a>, classes: usize) -> Self {
        Builder { graph: Graph::new(), source, classes, path: String::new(), uses: HashMap::new() }
    }

    /// The image that enters.
    pub(super) fn image(&mut self, options: &ArchOptions) -> NodeId {
        let (height, width) = options.input;
        self.graph.input("x", Shape::batched(&[3, height, width]), Kind::Float)
    }

    /// The finished graph, handing out `logits`.
    pub(super) fn finish(mut self, logits: NodeId) -> Graph {
        self.graph.output("logits", logits);
        self.graph
    }

    /// Number of classes of the last layer.
    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// Runs `module` with all names inside it relative to `name`.
    pub(super) fn within<T>(&mut self, name: &str, module: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let inner = self.absolute(name);
        let outer = std::mem::replace(&mut self.path, inner);
        let made = module(self);
        self.path = outer;
        made
    }

    fn absolute(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Channels of an `[N, C, …]` value.
    pub(super) fn channels(&self, x: NodeId) -> Result<usize> {
        self.axis(x, 1)
    }

    /// The length of a fixed axis.
    pub(super) fn axis(&self, x: NodeId, axis: usize) -> Result<usize> {
        let node = self.graph.node(x);
        node.shape.fixed_at(axis).ok_or_else(|| {
            Error::shape(format!("axis {axis} of {} has no fixed length", node.shape))
                .at(node.label.display())
        })
    }

    /// Adds a node named as PyTorch's exporters name it: a module's second use is `relu_1`.
    pub(super) fn node(&mut self, name: &str, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let path = self.absolute(name);
        let uses = self.uses.entry(path.clone()).or_default();
        let name = if *uses == 0 { path } else { format!("{path}_{uses}") };
        *uses += 1;
        self.graph.add_named(Label { module: name.clone(), ..Label::named(name) }, op, inputs)
    }

    /// A constant that is part of the architecture, not of its weights.
    pub(super) fn constant(&mut self, name: &str, tensor: Tensor) -> NodeId {
        let label = Label::named(self.absolute(name));
        self.graph.named_constant(label, tensor)
    }

    fn parameter(&mut self, module: &str, parameter: &str, shape: &[usize]) -> Result<NodeId> {
        let name = format!("{}.{parameter}", self.absolute(module));
        Ok(match self.source {
            Source::Declared => self.graph.input(name, Shape::fixed(shape), Kind::Float),
            Source::Given(weights) => {
                let tensor = weights.tensor(&name, shape).map_err(Error::argument)?.clone();
                self.graph.named_constant(Label::named(name), tensor)
            }
        })
    }

    pub(super) fn conv(&mut self, name: &str, x: NodeId, conv: Conv) -> Result<NodeId> {
        let Conv { channels, kernel, stride, padding, groups, bias } = conv;
        let mut inputs = vec![x];
        let shape = [channels, self.channels(x)? / groups, kernel, kernel];
        inputs.push(self.parameter(name, "weight", &shape)?);
        if bias {
            inputs.push(self.parameter(name, "bias", &[channels])?);
        }
        self.node(name, Op::Conv { window: square(kernel, stride, padding, false), groups }, &inputs)
    }

    pub(super) fn batch_norm(&mut self, name: &str, x: NodeId) -> Result<NodeId> {
        self.batch_norm_with(name, x, BATCH_NORM_EPSILON)
    }

    pub(super) fn batch_norm_with(&mut self, name: &str, x: NodeId, epsilon: f64) -> Result<NodeId> {
        let mut inputs = vec![x];
        let channels = self.channels(x)?;
        for parameter in ["weight", "bias", "running_mean", "running_var"] {
            inputs.push(self.parameter(name, parameter, &[channels])?);
        }
        self.node(name, Op::BatchNorm { epsilon }, &inputs)
    }

    pub(super) fn linear(&mut self, name: &str, x: NodeId, features: usize) -> Result<NodeId> {
        let shape = [features, self.axis(x, 1)?];
        let weight = self.parameter(name, "weight", &shape)?;
        let bias = self.parameter(name, "bias", &[features])?;
        self.node(name, Op::MatMul { trans_a: false, trans_b: true }, &[x, weight, bias])
    }

    pub(super) fn relu(&mut self, name: &str, x: NodeId) -> Result<NodeId> {
        self.node(name, Op::Unary(Unary::Relu), &[x])
    }

    pub(super) fn relu6(&mut self, name: &str, x: NodeId) -> Result<NodeId> {
        self.node(name, Op::Unary(Unary::Clip { min: 0.0, max: 6.0 }), &[x])
    }

    pub(super) fn dropout(&mut self, name: &str, x: NodeId, ratio: f64) -> Result<NodeId> {
        self.node(name, Op::Dropout { ratio }, &[x])
    }

    pub(super) fn max_pool(&mut self, name: &str, x: NodeId, pool: Pool) -> Result<NodeId> {
        self.node(name, Op::MaxPool(pool.window()), &[x])
    }

    pub(super) fn average_pool(&mut self, name: &str, x: NodeId, pool: Pool) -> Result<NodeId> {
        self.node(name, Op::AveragePool { window: pool.window(), divisor: Divisor::Padded }, &[x])
    }

    pub(super) fn add(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.node("add", Op::Binary(Binary::Add), &[a, b])
    }

    /// Joins along the channels.
    pub(super) fn cat(&mut self, values: &[NodeId]) -> Result<NodeId> {
        self.node("cat", Op::Concat { axis: 1 }, values)
    }

    /// All axes but the batch made one.
    pub(super) fn flatten(&mut self, x: NodeId) -> Result<NodeId> {
        let shape = &self.graph.node(x).shape;
        let features = shape.count().and_then(|n| n.over(Dim::Batch(1))).ok_or_else(|| {
            Error::shape(format!("{shape} cannot be flattened to features per sample")).at("flatten")
        })?;
        let shape = Shape::new([Dim::Batch(1), features]);
        self.node("flatten", Op::Reshape { shape }, &[x])
    }

    pub(super) fn layer(&mut self, name: &str, x: NodeId, layer: Layer) -> Result<NodeId> {
        match layer {
            Layer::Conv(conv) => self.conv(name, x, conv),
            Layer::BatchNorm => self.batch_norm(name, x),
            Layer::Relu => self.relu(name, x),
            Layer::Relu6 => self.relu6(name, x),
            Layer::MaxPool(pool) => self.max_pool(name, x, pool),
            Layer::Linear(features) => self.linear(name, x, features),
            Layer::Classes => self.linear(name, x, self.classes),
            Layer::Dropout(ratio) => self.dropout(name, x, ratio),
        }
    }

    /// PyTorch's `Sequential`: layers named by their position.
    pub(super) fn sequential(&mut self, name: &str, x: NodeId, layers: &[Layer]) -> Result<NodeId> {
        self.within(name, |b| {
            layers.iter().enumerate().try_fold(x, |x, (i, &layer)| b.layer(&i.to_string(), x, layer))
        })
    }
}

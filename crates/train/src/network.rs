//! Builds the graph of an architecture with a restriction. The same code builds the training graph and the exported network: a
//! [`ParameterSource`] decides whether parameters are inputs or constants, and whether norms use the statistics of the batch or
//! the running ones.

use monosplit_graph::op::{Divisor, Unary, Window};
use monosplit_graph::{Dim, Error, Graph, Label, NodeId, Op, Result, Shape};

use crate::architecture::{Architecture, LayerSpec};
use crate::restriction::Restriction;

/// The role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Weight,
    Bias,
    Scale,
    Shift,
}

/// A trained array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) role: Role,
    /// The fan-in of its layer.
    pub(crate) fan_in: usize,
    /// Whether it is restricted: its effective value is a non-negative transform of it.
    pub(crate) positive: bool,
}

/// Where the parameters and norms of a network come from.
pub(crate) trait ParameterSource {
    /// The effective value of a parameter.
    fn parameter(&mut self, g: &mut Graph, parameter: Parameter) -> Result<NodeId>;

    /// `x` normalised per channel, then scaled and shifted.
    fn normalised(&mut self, g: &mut Graph, x: NodeId, norm: &Norm) -> Result<NodeId>;
}

/// A norm and its parameters.
pub(crate) struct Norm {
    pub(crate) name: String,
    pub(crate) scale: NodeId,
    pub(crate) shift: NodeId,
}

/// The class scores of a network, and of its streams where it is a difference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    pub(crate) logits: NodeId,
    pub(crate) streams: Option<(NodeId, NodeId)>,
}

/// A network to be built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkSpec<'a> {
    pub(crate) architecture: &'a Architecture,
    pub(crate) restriction: Restriction,
    pub(crate) classes: usize,
}

impl NetworkSpec<'_> {
    /// Appends the network that reads `x: [N, channels, height, width]`.
    pub(crate) fn build(&self, g: &mut Graph, x: NodeId, values: &mut dyn ParameterSource) -> Result<Scores> {
        if !self.restriction.is_difference() {
            let logits = self.stream(g, x, "", values)?;
            return Ok(Scores { logits, streams: None });
        }
        let seen = match self.restriction.is_inverted() {
            false => x,
            true => {
                let one = g.number(1.0);
                g.add_named(
                    Label::named("inverted"),
                    Op::Binary(monosplit_graph::op::Binary::Sub),
                    &[one, x],
                )?
            }
        };
        // g comes last: explanations attribute to the last layer by default, and g is the evidence for a class.
        let second = self.stream(g, seen, "h.", values)?;
        let first = self.stream(g, x, "g.", values)?;
        let difference = Op::Binary(monosplit_graph::op::Binary::Sub);
        let logits = g.add_named(Label::named("difference"), difference, &[first, second])?;
        Ok(Scores { logits, streams: Some((first, second)) })
    }

    fn stream(
        &self,
        g: &mut Graph,
        x: NodeId,
        prefix: &str,
        values: &mut dyn ParameterSource,
    ) -> Result<NodeId> {
        let mut stream =
            Stream { spec: self, prefix, values, value: x, bound: false, counts: Default::default() };
        let layers = self.architecture.layers();
        for (index, layer) in layers.iter().enumerate() {
            let normalised = layers.get(index + 1) == Some(&LayerSpec::Norm);
            stream.layer(g, *layer, normalised)?;
        }
        Ok(stream.value)
    }
}

/// One stream under construction.
struct Stream<'a> {
    spec: &'a NetworkSpec<'a>,
    prefix: &'a str,
    values: &'a mut dyn ParameterSource,
    value: NodeId,
    /// Whether the value is no longer affine in the input: from here on only non-negative weights keep it convex.
    bound: bool,
    /// Layers so far, by kind.
    counts: std::collections::HashMap<&'static str, usize>,
}

impl Stream<'_> {
    fn name(&mut self, kind: &'static str) -> String {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        format!("{}{kind}{count}", self.prefix)
    }

    fn layer(&mut self, g: &mut Graph, layer: LayerSpec, normalised: bool) -> Result<()> {
        self.value = match layer {
            LayerSpec::Conv { channels, kernel, stride, pad } => {
                let mut window = Window::new([kernel, kernel]);
                window.stride = vec![stride; 2];
                window.pad = vec![(pad, pad); 2];
                self.convolution(g, channels, window, !normalised)?
            }
            LayerSpec::Dense { width } => {
                let name = self.name("dense");
                self.dense(g, name, width, !normalised)?
            }
            LayerSpec::Scores => {
                let name = format!("{}scores", self.prefix);
                self.dense(g, name, self.spec.classes, true)?
            }
            LayerSpec::Norm => self.norm(g)?,
            LayerSpec::Average { size } => {
                let label = Label::named(self.name("average"));
                let op = Op::AveragePool { window: squares(size), divisor: Divisor::Padded };
                g.add_named(label, op, &[self.value])?
            }
            LayerSpec::Maxout { rank } => {
                let name = self.name("maxout");
                maxout(g, self.value, rank, &name)?
            }
            LayerSpec::Relu => {
                let label = Label::named(self.name("relu"));
                g.add_named(label, Op::Unary(Unary::Relu), &[self.value])?
            }
            LayerSpec::Pool { size } => {
                let label = Label::named(self.name("pool"));
                g.add_named(label, Op::MaxPool(squares(size)), &[self.value])?
            }
        };
        self.bound |= !matches!(layer, LayerSpec::Norm | LayerSpec::Average { .. });
        Ok(())
    }

    /// Length of axis 1 and number of elements of one sample.
    fn size(&self, g: &Graph) -> Result<(usize, usize)> {
        let shape = &g.node(self.value).shape;
        let sample = Shape::new(&shape.dims()[1..]).count().and_then(Dim::fixed);
        shape
            .fixed_at(1)
            .zip(sample)
            .ok_or_else(|| Error::shape(format!("expected samples of fixed size, found {shape}")))
    }

    fn weights(&mut self, g: &mut Graph, name: &str, shape: Vec<usize>, bias: bool) -> Result<Vec<NodeId>> {
        let restriction = self.spec.restriction;
        let (outputs, fan_in) = (shape[0], shape[1..].iter().product());
        let weight = Parameter {
            name: format!("{name}.weight"),
            shape,
            role: Role::Weight,
            fan_in,
            positive: restriction.is_monotone() || (restriction.is_convex() && self.bound),
        };
        let mut nodes = vec![self.values.parameter(g, weight)?];
        if bias {
            let bias = self.vector(format!("{name}.bias"), outputs, Role::Bias, fan_in);
            nodes.push(self.values.parameter(g, bias)?);
        }
        Ok(nodes)
    }

    fn vector(&self, name: String, length: usize, role: Role, fan_in: usize) -> Parameter {
        let positive = self.spec.restriction.is_convex();
        Parameter { name, shape: vec![length], role, fan_in, positive }
    }

    /// An affine map before a norm has no bias: the norm would cancel it.
    fn convolution(&mut self, g: &mut Graph, channels: usize, window: Window, bias: bool) -> Result<NodeId> {
        if g.node(self.value).shape.rank() != 4 {
            return Err(Error::argument("a convolution cannot follow a dense layer"));
        }
        let name = self.name("conv");
        let shape = [&[channels, self.size(g)?.0], window.kernel.as_slice()].concat();
        let operands = [vec![self.value], self.weights(g, &name, shape, bias)?].concat();
        g.add_named(Label::named(name), Op::Conv { window, groups: 1 }, &operands)
    }

    fn dense(&mut self, g: &mut Graph, name: String, width: usize, bias: bool) -> Result<NodeId> {
        let (_, elements) = self.size(g)?;
        let samples = g.node(self.value).shape.dims()[0];
        let flat = g.reshaped(self.value, Shape::new([samples, Dim::Fixed(elements)]))?;
        let operands = [vec![flat], self.weights(g, &name, vec![width, elements], bias)?].concat();
        g.add_named(Label::named(name), Op::MatMul { trans_a: false, trans_b: true }, &operands)
    }

    fn norm(&mut self, g: &mut Graph) -> Result<NodeId> {
        let name = self.name("norm");
        let channels = self.size(g)?.0;
        let scale = self.vector(format!("{name}.scale"), channels, Role::Scale, 1);
        let shift = self.vector(format!("{name}.shift"), channels, Role::Shift, 1);
        let scale = self.values.parameter(g, scale)?;
        let shift = self.values.parameter(g, shift)?;
        self.values.normalised(g, self.value, &Norm { name, scale, shift })
    }
}

fn squares(size: usize) -> Window {
    let mut window = Window::new([size, size]);
    window.stride = vec![size; 2];
    window
}

/// The maximum of every `rank` neighbouring channels: pooling over an axis of their own, so that no elements are moved. Without
/// spatial axes the channels are the last axis, along which pooling is fast.
fn maxout(g: &mut Graph, x: NodeId, rank: usize, name: &str) -> Result<NodeId> {
    let shape = g.node(x).shape.clone();
    let dims = shape.dims();
    let places = Shape::new(&dims[2..]).count();
    let (Some(channels), Some(places)) = (dims[1].over(Dim::Fixed(rank)), places) else {
        return Err(Error::argument(format!("{} channels cannot be put into groups of {rank}", dims[1])));
    };
    let one = Dim::Fixed(1);
    let (contest, mut window) = match places == one {
        true => (vec![dims[0], one, dims[1]], Window::new([rank])),
        false => (vec![dims[0], channels, Dim::Fixed(rank), places], Window::new([rank, 1])),
    };
    window.stride = window.kernel.clone();
    let contest = g.reshaped(x, Shape::new(contest))?;
    let won = g.add_named(Label::named(name), Op::MaxPool(window), &[contest])?;
    g.reshaped(won, Shape::new([&[dims[0], channels], &dims[2..]].concat()))
}

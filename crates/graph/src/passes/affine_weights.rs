//! The constant weights of affine nodes, with new ones made from them: scaled for each pair of channels, or with another bias.

use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::tensor::{Data, Tensor};

/// The precision new weights are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stored {
    /// That of the weights they replace. In single precision the rounding of a folded weight shows at about 1e-8 of
    /// the result when the graph is run in double precision.
    #[default]
    AsBefore,
    /// Double, for graphs that are run in it.
    Double,
}

/// How many elements of new weights may still be made, and how they are stored.
pub(super) struct Folding {
    pub(super) left: usize,
    pub(super) stored: Stored,
}

/// Which channels a weight connects.
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) output: usize,
    pub(super) input: usize,
}

/// What the rows and columns of weights stand for.
enum WeightLayout {
    /// Rows are output channels, columns the input channels of a group.
    Convolution { groups: usize },
    /// Rows are input channels, columns the output channels of a group.
    Transposed { groups: usize },
    /// Rows are inputs, columns are outputs.
    InputsByOutputs,
    /// Rows are outputs, columns are inputs.
    OutputsByInputs,
}

/// The constant weights of an affine node, element by element.
pub(super) struct AffineWeights<'a> {
    layout: WeightLayout,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    stored: Stored,
}

impl<'a> AffineWeights<'a> {
    /// `None` if `node` is not affine in its first input along its channels, its weights are not known, or there are more
    /// than may still be made.
    pub(super) fn of(graph: &'a Graph, node: &'a Node, folding: &mut Folding) -> Option<Self> {
        let layout = match node.op {
            Op::Conv { groups, .. } => WeightLayout::Convolution { groups },
            Op::ConvTranspose { groups, .. } => WeightLayout::Transposed { groups },
            Op::MatMul { .. } if graph.node(node.inputs[1]).shape.rank() != 2 => return None,
            Op::MatMul { trans_b: false, .. } => WeightLayout::InputsByOutputs,
            Op::MatMul { trans_b: true, .. } => WeightLayout::OutputsByInputs,
            _ => return None,
        };
        let weight = graph.constant_value(*node.inputs.get(1)?)?;
        let bias = match node.inputs.get(2) {
            Some(&id) => Some(graph.constant_value(id)?),
            None => None,
        };
        let one_row = bias.is_none_or(|b| b.shape().iter().rev().skip(1).all(|&n| n == 1));
        folding.left = folding.left.checked_sub(weight.len())?;
        (one_row && !weight.is_empty()).then_some(AffineWeights {
            layout,
            weight,
            bias,
            stored: folding.stored,
        })
    }

    pub(super) fn outputs(&self) -> usize {
        let shape = self.weight.shape();
        match self.layout {
            WeightLayout::Transposed { groups } => shape[1] * groups,
            WeightLayout::InputsByOutputs => shape[1],
            WeightLayout::Convolution { .. } | WeightLayout::OutputsByInputs => shape[0],
        }
    }

    /// What the weight at `[row, column, …]` connects.
    fn connection(&self, row: usize, column: usize) -> Connection {
        let (rows, columns) = (self.weight.shape()[0], self.weight.shape()[1]);
        match self.layout {
            WeightLayout::Convolution { groups } => {
                Connection { output: row, input: row / (rows / groups) * columns + column }
            }
            WeightLayout::Transposed { groups } => {
                Connection { output: row / (rows / groups) * columns + column, input: row }
            }
            WeightLayout::InputsByOutputs => Connection { output: column, input: row },
            WeightLayout::OutputsByInputs => Connection { output: row, input: column },
        }
    }

    pub(super) fn for_each_weight(&self, mut act: impl FnMut(Connection, f64)) {
        let columns = self.weight.shape()[1];
        let taps: usize = self.weight.shape()[2..].iter().product();
        for (i, chunk) in self.weight.to_f64().chunks(taps.max(1)).enumerate() {
            let connection = self.connection(i / columns, i % columns);
            chunk.iter().for_each(|&w| act(connection, w));
        }
    }

    pub(super) fn scaled_weight(&self, factor: impl Fn(Connection) -> f64) -> Option<Tensor> {
        let mut scaled = Vec::with_capacity(self.weight.len());
        self.for_each_weight(|from, weight| scaled.push(weight * factor(from)));
        self.stored(self.weight.shape().to_vec(), scaled)
    }

    /// The bias broadcast to all output channels, each element changed by `change(bias, channel)`.
    pub(super) fn new_bias(&self, change: impl Fn(f64, usize) -> f64) -> Option<Tensor> {
        let outputs = self.outputs();
        let zero = Tensor::vector(vec![0.0f64]);
        let old = self.bias.unwrap_or(&zero);
        let elements = old.to_f64();
        let element = |channel: usize| elements.get(if elements.len() == 1 { 0 } else { channel });
        let changed: Option<Vec<f64>> =
            (0..outputs).map(|channel| element(channel).map(|&bias| change(bias, channel))).collect();
        self.stored(vec![outputs], changed?)
    }

    /// `None` if a number does not fit the weight's precision.
    fn stored(&self, shape: Vec<usize>, values: Vec<f64>) -> Option<Tensor> {
        let data: Data = match self.weight.data() {
            Data::F32(_) if self.stored == Stored::AsBefore => {
                values.iter().map(|&v| v as f32).collect::<Vec<_>>().into()
            }
            _ => values.into(),
        };
        let finite = match &data {
            Data::F32(values) => values.iter().all(|v| v.is_finite()),
            Data::F64(values) => values.iter().all(|v| v.is_finite()),
            _ => true,
        };
        Tensor::new(shape, data).ok().filter(|_| finite)
    }
}

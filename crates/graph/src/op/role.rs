//! The table of operators: one row for each [`Op`] that says what the op is. Passes, planners, engines and rule sets ask
//! it instead of listing ops themselves. The table has no default row, so a new op does not compile without one.

use std::ops::Range;

use super::{Op, Padding, Reduction, Window};
use crate::shape::{Dim, Shape};

/// What an op is: one row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct OpProperties<'a> {
    /// How many values it reads.
    pub arity: Arity,
    /// What family of ops it belongs to.
    pub role: Role,
    /// Whether and how its value depends linearly on what it reads.
    pub linearity: Linearity,
    /// When its value is known to have no negative element.
    pub non_negative: NonNegative,
    /// Where it reads and writes channels.
    pub channels: ChannelAxis,
    /// Which positions of its input an output position depends on.
    pub receptive_field: ReceptiveField<'a>,
    /// How many multiplications with addition define it.
    pub cost: Cost,
}

/// How many values an op reads. Those beyond `least` are optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity {
    /// The fewest values.
    pub least: usize,
    /// The most values; `usize::MAX` if there is no bound.
    pub most: usize,
}

impl Arity {
    const fn exactly(count: usize) -> Self {
        Arity { least: count, most: count }
    }

    /// `count` values and a bias that may be absent.
    const fn with_bias(count: usize) -> Self {
        Arity { least: count, most: count + 1 }
    }

    const ONE_OR_MORE: Arity = Arity { least: 1, most: usize::MAX };
}

/// The family of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads nothing: an input of the graph or a constant.
    Source,
    /// Computes each element from the elements at the same position of all operands, which are broadcast.
    Elementwise,
    /// Copies elements to other positions; may repeat, drop or surround them.
    Movement(Movement),
    /// A convolution or its transpose, with the weights as second operand.
    Convolution,
    /// A batched matrix product.
    MatrixProduct,
    /// A normalisation by given or computed statistics.
    Normalisation,
    /// A softmax or its logarithm.
    Softmax,
    /// Combines or distributes the elements under a sliding window without weights.
    Pooling,
    /// Combines the elements along axes.
    Reduction,
    /// Interpolates between elements.
    Resampling,
}

/// How a movement places elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// The value is its operand.
    Identity,
    /// The same elements in the same order under another shape.
    View,
    /// All elements once, in another order.
    Permutation,
    /// Some of the elements, each any number of times.
    Selection,
    /// The elements of several operands side by side.
    Concatenation,
    /// The elements with others around them.
    Padding,
    /// Every element as often as the new shape asks.
    Broadcast,
}

/// How the value depends on the operands, element by element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linearity {
    /// Not linearly, or on no real number.
    Nonlinear,
    /// Each element is an element of one of these operands, its negative, or a constant.
    Selection(Range<usize>),
    /// Each element is a weighted sum of elements of these operands. The weights follow from attributes and shapes.
    WeightedSum(Range<usize>),
    /// Linear in each of these operands, all others held.
    Product(Range<usize>),
}

impl Linearity {
    /// Whether there is an operand the value is linear in.
    pub fn is_linear(&self) -> bool {
        *self != Linearity::Nonlinear
    }

    /// Whether the value is linear, up to a constant, in the operand `index`, all others held.
    pub fn is_linear_in(&self, index: usize) -> bool {
        match self {
            Linearity::Nonlinear => false,
            Linearity::Selection(operands)
            | Linearity::WeightedSum(operands)
            | Linearity::Product(operands) => operands.contains(&index),
        }
    }
}

/// When a value is known to have no negative element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NonNegative {
    /// Whatever is read.
    Always,
    /// If none of these operands has one.
    IfAll(Range<usize>),
    /// If one of these operands has none.
    IfAny(Range<usize>),
    /// Nothing is known.
    Unknown,
}

/// Where an op reads and writes channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelAxis {
    /// In the first operand and the value at axis 1.
    Second,
    /// In the first operand and the value at the last axis, if it is this one.
    Normalised(usize),
    /// In the first operand and the value at the last axis, if the second operand is a matrix of weights.
    Last,
    /// Where these operands have them, as long as the rank stays.
    Kept(Range<usize>),
    /// Where the movement of axes takes them.
    Moved,
    /// The op does not tell.
    Unknown,
}

/// Which positions along the spatial axes (those behind samples and channels) an output position depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceptiveField<'a> {
    /// No position: the op reads nothing.
    Nothing,
    /// The same position of each operand.
    Pointwise,
    /// The positions under a window.
    Window(&'a Window),
    /// The positions whose windows cover it: the transpose of a window.
    TransposedWindow(&'a Window),
    /// Any position.
    Everything,
}

/// How many multiplications with addition define an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// For each output element, the elements of one row of the weights (all axes of the second operand but the first).
    WeightsPerOutput,
    /// The same for each element of the first operand.
    WeightsPerInput,
    /// For each output element, the length of the axis of the first operand that is summed over, counted from the last.
    InnerAxis(usize),
    /// Too few to count.
    Negligible,
}

/// A number of multiplications with addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiplyAdds {
    /// This many for each element of the value.
    PerOutput(usize),
    /// This many for each element of the first operand.
    PerInput(usize),
    /// Too few to count.
    Negligible,
}

impl MultiplyAdds {
    /// All of them, given the number of elements of the value and of the first operand.
    pub fn total(self, outputs: usize, inputs: usize) -> usize {
        match self {
            MultiplyAdds::PerOutput(each) => outputs.saturating_mul(each),
            MultiplyAdds::PerInput(each) => inputs.saturating_mul(each),
            MultiplyAdds::Negligible => 0,
        }
    }
}

impl Cost {
    /// The number, for operands of these shapes. A batch axis counts as one sample.
    pub fn multiply_adds(self, operands: &[&Shape]) -> MultiplyAdds {
        let length = |dim: &Dim| match *dim {
            Dim::Fixed(n) | Dim::Batch(n) => n,
        };
        let weights = || operands[1].dims()[1..].iter().map(length).fold(1, usize::saturating_mul);
        match self {
            Cost::WeightsPerOutput => MultiplyAdds::PerOutput(weights()),
            Cost::WeightsPerInput => MultiplyAdds::PerInput(weights()),
            Cost::InnerAxis(from_last) => {
                MultiplyAdds::PerOutput(operands[0].dims().iter().nth_back(from_last).map_or(1, length))
            }
            Cost::Negligible => MultiplyAdds::Negligible,
        }
    }
}

const ALL: Range<usize> = 0..usize::MAX;
const FIRST: Range<usize> = 0..1;
const SECOND: Range<usize> = 1..2;

impl<'a> OpProperties<'a> {
    /// A movement of the elements of the first operand, whose sign and linearity follow from that.
    fn movement(movement: Movement, channels: ChannelAxis, receptive_field: ReceptiveField<'a>) -> Self {
        OpProperties {
            arity: Arity::exactly(1),
            role: Role::Movement(movement),
            linearity: Linearity::Selection(FIRST),
            non_negative: NonNegative::IfAll(FIRST),
            channels,
            receptive_field,
            cost: Cost::Negligible,
        }
    }

    /// An op on `[N, C, …]` that slides a window without weights and keeps channels apart.
    fn pooling(arity: usize, linearity: Linearity, sign_of: Range<usize>, field: ReceptiveField<'a>) -> Self {
        OpProperties {
            arity: Arity::exactly(arity),
            role: Role::Pooling,
            linearity,
            non_negative: NonNegative::IfAll(sign_of),
            channels: ChannelAxis::Second,
            receptive_field: field,
            cost: Cost::Negligible,
        }
    }

    /// A convolution or its transpose.
    fn convolution(receptive_field: ReceptiveField<'a>, cost: Cost) -> Self {
        OpProperties {
            arity: Arity::with_bias(2),
            role: Role::Convolution,
            linearity: Linearity::Product(0..3),
            non_negative: NonNegative::Unknown,
            channels: ChannelAxis::Second,
            receptive_field,
            cost,
        }
    }

    /// An op that is neither linear nor counted, of unknown sign.
    fn nonlinear(
        arity: Arity,
        role: Role,
        channels: ChannelAxis,
        receptive_field: ReceptiveField<'a>,
    ) -> Self {
        OpProperties {
            arity,
            role,
            linearity: Linearity::Nonlinear,
            non_negative: NonNegative::Unknown,
            channels,
            receptive_field,
            cost: Cost::Negligible,
        }
    }

    fn elementwise(operands: usize, linearity: Linearity, non_negative: NonNegative) -> Self {
        OpProperties {
            arity: Arity::exactly(operands),
            role: Role::Elementwise,
            linearity,
            non_negative,
            channels: ChannelAxis::Kept(0..operands),
            receptive_field: ReceptiveField::Pointwise,
            cost: Cost::Negligible,
        }
    }
}

/// The field of an op that mixes elements along `axis` only.
fn along(axis: usize) -> ReceptiveField<'static> {
    if axis == 1 { ReceptiveField::Pointwise } else { ReceptiveField::Everything }
}

impl Op {
    /// The op's row of the table.
    pub fn properties(&self) -> OpProperties<'_> {
        use ReceptiveField::{Everything, Nothing, Pointwise, TransposedWindow};
        type Row<'a> = OpProperties<'a>;
        match self {
            Op::Input | Op::Constant(_) => {
                Row::nonlinear(Arity::exactly(0), Role::Source, ChannelAxis::Unknown, Nothing)
            }
            Op::Conv { window, .. } => {
                Row::convolution(ReceptiveField::Window(window), Cost::WeightsPerOutput)
            }
            Op::ConvTranspose { window, .. } => {
                Row::convolution(TransposedWindow(window), Cost::WeightsPerInput)
            }
            Op::MatMul { trans_a, .. } => OpProperties {
                arity: Arity::with_bias(2),
                role: Role::MatrixProduct,
                linearity: Linearity::Product(0..3),
                non_negative: NonNegative::Unknown,
                channels: if *trans_a { ChannelAxis::Unknown } else { ChannelAxis::Last },
                receptive_field: Everything,
                cost: Cost::InnerAxis(usize::from(*trans_a)),
            },
            Op::BatchNorm { .. } => OpProperties {
                linearity: Linearity::Product(FIRST),
                ..Row::nonlinear(Arity::exactly(5), Role::Normalisation, ChannelAxis::Second, Pointwise)
            },
            Op::LayerNorm { axis, .. } => {
                let channels = ChannelAxis::Normalised(*axis);
                Row::nonlinear(Arity::with_bias(2), Role::Normalisation, channels, Everything)
            }
            Op::GroupNorm { .. } => {
                Row::nonlinear(Arity::exactly(3), Role::Normalisation, ChannelAxis::Second, Everything)
            }
            Op::LocalResponseNorm { .. } => {
                Row::nonlinear(Arity::exactly(1), Role::Normalisation, ChannelAxis::Second, Pointwise)
            }
            Op::Unary(function) => Row::elementwise(1, function.linearity(), function.non_negative()),
            Op::Binary(function) => Row::elementwise(2, function.linearity(), function.non_negative()),
            Op::Where => Row::elementwise(3, Linearity::Selection(1..3), NonNegative::IfAll(1..3)),
            Op::Cast { .. } => Row::elementwise(1, Linearity::Selection(FIRST), NonNegative::Unknown),
            Op::Softmax { axis } => OpProperties {
                non_negative: NonNegative::Always,
                ..Row::nonlinear(Arity::exactly(1), Role::Softmax, ChannelAxis::Unknown, along(*axis))
            },
            Op::LogSoftmax { axis } => {
                Row::nonlinear(Arity::exactly(1), Role::Softmax, ChannelAxis::Unknown, along(*axis))
            }
            Op::MaxPool(window) => {
                Row::pooling(1, Linearity::Nonlinear, FIRST, ReceptiveField::Window(window))
            }
            Op::AveragePool { window, .. } => {
                Row::pooling(1, Linearity::WeightedSum(FIRST), FIRST, ReceptiveField::Window(window))
            }
            Op::AveragePoolTranspose { window, .. } => {
                Row::pooling(1, Linearity::WeightedSum(FIRST), FIRST, TransposedWindow(window))
            }
            Op::WinnerGather(window) => {
                Row::pooling(2, Linearity::Selection(SECOND), SECOND, ReceptiveField::Window(window))
            }
            Op::WinnerScatter(window) => {
                Row::pooling(2, Linearity::WeightedSum(SECOND), SECOND, TransposedWindow(window))
            }
            Op::Reduce { reduction, axes, keep } => OpProperties {
                arity: Arity::exactly(1),
                role: Role::Reduction,
                linearity: match reduction {
                    Reduction::Sum | Reduction::Mean => Linearity::WeightedSum(FIRST),
                    Reduction::Max | Reduction::Min | Reduction::Product => Linearity::Nonlinear,
                },
                non_negative: match reduction {
                    Reduction::Sum | Reduction::Mean | Reduction::Max | Reduction::Min => {
                        NonNegative::IfAll(FIRST)
                    }
                    Reduction::Product => NonNegative::Unknown,
                },
                channels: match *keep || axes.is_empty() {
                    true => ChannelAxis::Kept(FIRST),
                    false => ChannelAxis::Unknown,
                },
                receptive_field: Everything,
                cost: Cost::Negligible,
            },
            Op::ArgMax { .. } => {
                Row::nonlinear(Arity::exactly(1), Role::Reduction, ChannelAxis::Unknown, Everything)
            }
            Op::Concat { axis } => OpProperties {
                arity: Arity::ONE_OR_MORE,
                linearity: Linearity::Selection(ALL),
                non_negative: NonNegative::IfAll(ALL),
                ..Row::movement(Movement::Concatenation, ChannelAxis::Kept(ALL), along(*axis))
            },
            Op::Slice { axis, .. } => {
                Row::movement(Movement::Selection, ChannelAxis::Kept(FIRST), along(*axis))
            }
            Op::Pad { padding, .. } => OpProperties {
                non_negative: match padding {
                    Padding::Constant(number) if *number < 0.0 || number.is_nan() => NonNegative::Unknown,
                    Padding::Constant(_) | Padding::Reflect | Padding::Edge => NonNegative::IfAll(FIRST),
                },
                ..Row::movement(Movement::Padding, ChannelAxis::Kept(FIRST), Everything)
            },
            Op::Reshape { .. } => Row::movement(Movement::View, ChannelAxis::Moved, Everything),
            Op::Transpose { .. } => Row::movement(Movement::Permutation, ChannelAxis::Moved, Everything),
            Op::Expand { .. } => Row::movement(Movement::Broadcast, ChannelAxis::Unknown, Everything),
            Op::Gather { .. } => OpProperties {
                arity: Arity::exactly(2),
                ..Row::movement(Movement::Selection, ChannelAxis::Unknown, Everything)
            },
            Op::Resize { .. } => OpProperties {
                arity: Arity::exactly(1),
                role: Role::Resampling,
                linearity: Linearity::WeightedSum(FIRST),
                non_negative: NonNegative::Unknown,
                channels: ChannelAxis::Kept(FIRST),
                receptive_field: Everything,
                cost: Cost::Negligible,
            },
            Op::Identity | Op::Dropout { .. } => {
                Row::movement(Movement::Identity, ChannelAxis::Kept(FIRST), Pointwise)
            }
        }
    }

    /// The family of the op.
    pub fn role(&self) -> Role {
        self.properties().role
    }

    /// Whether the value depends linearly on some operand, all others held.
    pub fn is_linear(&self) -> bool {
        self.properties().linearity.is_linear()
    }

    /// Whether each element of the value is an element of an operand, its negative, or a constant.
    pub fn is_selection(&self) -> bool {
        matches!(self.properties().linearity, Linearity::Selection(_))
    }

    /// The window the op, or the op it is the transpose of, slides over the spatial axes.
    pub fn window(&self) -> Option<&Window> {
        match self.properties().receptive_field {
            ReceptiveField::Window(window) | ReceptiveField::TransposedWindow(window) => Some(window),
            ReceptiveField::Nothing | ReceptiveField::Pointwise | ReceptiveField::Everything => None,
        }
    }
}

//! The table of operators: one row for each [`Op`] that says what the op is. Passes, planners, engines and rule sets ask
//! it instead of listing ops themselves. The table has no default row, so a new op does not compile without one.

use std::ops::Range;

use super::properties::{
    AffineLayer, Arity, ChannelAxis, Cost, Linearity, Movement, NonNegative, OpProperties, ReceptiveField,
    Role,
};
use super::{Binary, Op, Padding, Reduction, Unary, Window};

/// What an elementwise op computes of its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementwiseOp {
    /// A function of one value.
    Unary(Unary),
    /// A function of two values.
    Binary(Binary),
    /// A choice between two values.
    Where,
    /// Another kind of number.
    Cast,
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

    /// The kind of affine layer that the op is; `None` if it is not one.
    pub fn affine_layer(&self) -> Option<AffineLayer> {
        match self.role() {
            Role::Convolution => Some(AffineLayer::Convolution),
            Role::MatrixProduct => Some(AffineLayer::Dense),
            // With computed statistics it is not linear.
            Role::Normalisation => self.is_linear().then_some(AffineLayer::Normalisation),
            Role::Source
            | Role::Elementwise
            | Role::Movement(_)
            | Role::Softmax
            | Role::Pooling
            | Role::Reduction
            | Role::Resampling => None,
        }
    }

    /// What an elementwise op computes; `None` for all others.
    pub fn elementwise(&self) -> Option<ElementwiseOp> {
        match self {
            Op::Unary(function) => Some(ElementwiseOp::Unary(*function)),
            Op::Binary(function) => Some(ElementwiseOp::Binary(*function)),
            Op::Where => Some(ElementwiseOp::Where),
            Op::Cast { .. } => Some(ElementwiseOp::Cast),
            Op::Input | Op::Constant(_) | Op::Identity | Op::Dropout { .. } => None,
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } => None,
            Op::BatchNorm { .. } | Op::LayerNorm { .. } | Op::GroupNorm { .. } => None,
            Op::LocalResponseNorm { .. } | Op::Softmax { .. } | Op::LogSoftmax { .. } => None,
            Op::MaxPool(_) | Op::AveragePool { .. } | Op::AveragePoolTranspose { .. } => None,
            Op::WinnerGather(_) | Op::WinnerScatter(_) => None,
            Op::Reduce { .. } | Op::ArgMax { .. } | Op::Resize { .. } => None,
            Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Reshape { .. } => None,
            Op::Transpose { .. } | Op::Expand { .. } | Op::Gather { .. } => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Kind;

    #[test]
    fn elementwise_ops_are_those_of_that_role() {
        let ops = [
            Op::Unary(Unary::Sin),
            Op::Binary(Binary::Max),
            Op::Where,
            Op::Cast { to: Kind::Int },
            Op::Identity,
            Op::Softmax { axis: 1 },
            Op::MatMul { trans_a: false, trans_b: false },
            Op::Transpose { axes: vec![1, 0] },
            Op::ArgMax { axis: 1, keep: false },
        ];
        for op in ops {
            assert_eq!(op.elementwise().is_some(), op.role() == Role::Elementwise, "{}", op.name());
        }
    }

    #[test]
    fn a_product_multiplies_its_first_two_operands_and_adds_the_third() {
        let multiplies = |op: Op, a, b| op.properties().linearity.multiplies(a, b);
        let product = || Op::MatMul { trans_a: false, trans_b: false };
        assert!(multiplies(product(), 0, 1) && multiplies(product(), 1, 0));
        assert!(!multiplies(product(), 0, 2) && !multiplies(product(), 0, 0));
        assert!(multiplies(Op::Binary(Binary::Mul), 1, 0));
        // A quotient is linear in its numerator alone, a sum multiplies nothing.
        assert!(!multiplies(Op::Binary(Binary::Div), 0, 1) && !multiplies(Op::Binary(Binary::Add), 0, 1));
    }
}

//! The columns of the table of operators: what [`Op::properties`](super::Op::properties) says of an op.

use std::ops::Range;

use super::Window;
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

impl std::fmt::Display for Arity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Arity { least, most } = self;
        match *most {
            usize::MAX => write!(f, "at least {least}"),
            _ if least == most => write!(f, "{least}"),
            _ => write!(f, "{least} to {most}"),
        }
    }
}

impl Arity {
    /// The number with its noun: `1 input`, `2 to 3 inputs`.
    pub(crate) fn of(self, noun: &str) -> String {
        let is_one = self.most == 1 || (self.least == 1 && self.most == usize::MAX);
        format!("{self} {noun}{}", if is_one { "" } else { "s" })
    }

    /// Whether an op may read so many.
    pub fn admits(self, count: usize) -> bool {
        (self.least..=self.most).contains(&count)
    }

    pub(super) const fn exactly(count: usize) -> Self {
        Arity { least: count, most: count }
    }

    /// `count` values and a bias that may be absent.
    pub(super) const fn with_bias(count: usize) -> Self {
        Arity { least: count, most: count + 1 }
    }

    pub(super) const ONE_OR_MORE: Arity = Arity { least: 1, most: usize::MAX };
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

/// The kinds of affine layers, `z = W·x + b` with weights as further operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffineLayer {
    /// A convolution or its transpose.
    Convolution,
    /// A matrix product.
    Dense,
    /// A normalisation by given statistics.
    Normalisation,
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

    /// Whether the operands `a` and `b` are multiplied with each other. A third operand of a product is a bias.
    pub fn multiplies(&self, a: usize, b: usize) -> bool {
        match self {
            Linearity::Product(operands) => {
                a != b && a.max(b) < 2 && operands.contains(&a) && operands.contains(&b)
            }
            Linearity::Nonlinear | Linearity::Selection(_) | Linearity::WeightedSum(_) => false,
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

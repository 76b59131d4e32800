//! What a node can do: a closed set of operations with their attributes resolved. Everything ONNX leaves to
//! run time or to convention (automatic padding, negative axes, `-1` in a shape) is decided on import.

// What an op is has no default: a new one does not compile before every column of the table says what it is.
#![deny(clippy::wildcard_enum_match_arm)]

mod along_axis;
mod elementwise;
mod integer_function;
mod key;
mod properties;
mod role;
mod window;

pub use crate::resampling::Taps;
use crate::shape::Shape;
use crate::tensor::{Kind, Tensor};
pub use along_axis::AlongAxis;
pub use elementwise::{Binary, Unary, wrap};
pub use integer_function::IntegerFunction;
pub use key::OpKey;
pub use properties::{
    AffineLayer, Arity, ChannelAxis, Cost, Linearity, Movement, MultiplyAdds, NonNegative, OpProperties,
    ReceptiveField, Role,
};
pub use role::ElementwiseOp;
pub use window::{Divisor, Window};

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Product,
}

/// What stands outside a padded value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding {
    /// This number.
    Constant(f64),
    /// The value mirrored at its edge, the edge itself not repeated.
    Reflect,
    /// The nearest element.
    Edge,
}

/// How a resized value is read between its elements.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Interpolation {
    Nearest(Rounding),
    Linear,
    /// Keys' cubic with the given coefficient; outside taps dropped and weights renormalised if asked.
    Cubic {
        coefficient: f64,
        exclude_outside: bool,
    },
}

/// Which neighbour is nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Rounding {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
}

/// Where an output element lies in input coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Coordinates {
    HalfPixel,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// One axis of a resize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizeAxis {
    /// Which axis.
    pub axis: usize,
    /// Its new length.
    pub length: usize,
    /// Output length over input length, as the coordinates use it (not always the exact quotient).
    pub scale: f64,
}

/// An operation. Inputs are listed in order; those in brackets may be absent.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A value given when the graph is run.
    Input,
    /// A value known now.
    Constant(Tensor),
    /// `x, w, [b]`: correlation of `x: [N, C, …]` with `w: [O, C/groups, …]`.
    Conv {
        /// Kernel, stride, dilation and padding.
        window: Window,
        /// Number of independent groups of channels.
        groups: usize,
    },
    /// `x, w, [b]`: the transpose of [`Op::Conv`] with the same `w: [C, O/groups, …]`, where `C` are the
    /// channels of `x`; the input gradient of a convolution is this op on the same weights.
    ConvTranspose {
        /// The window of the convolution this is the transpose of.
        window: Window,
        /// Number of independent groups of channels.
        groups: usize,
        /// Rows that the convolution's stride left unread at the end of each spatial axis.
        output_padding: Vec<usize>,
    },
    /// `a, b, [bias]`: batched matrix product over the last two axes, either side transposed first if asked;
    /// the bias is broadcast over the result. Operands have rank 2 or more.
    MatMul {
        /// Read `a` transposed.
        trans_a: bool,
        /// Read `b` transposed.
        trans_b: bool,
    },
    /// `x, scale, bias, mean, variance`: `(x − mean)/√(variance + ε)·scale + bias` per channel (axis 1).
    BatchNorm {
        /// ε
        epsilon: f64,
    },
    /// `x, scale, [bias]`: normalised over axis `axis` and all after it.
    LayerNorm {
        /// First normalised axis.
        axis: usize,
        /// ε
        epsilon: f64,
    },
    /// `x, scale, bias`: normalised over each group of channels and all spatial axes; scale and bias per channel.
    GroupNorm {
        /// Number of groups.
        groups: usize,
        /// ε
        epsilon: f64,
    },
    /// `x`: `x/(bias + alpha/size·Σ x²)^beta`, the sum over `size` neighbouring channels.
    LocalResponseNorm {
        /// Number of channels summed over.
        size: usize,
        /// Factor of the sum.
        alpha: f64,
        /// Exponent.
        beta: f64,
        /// Constant in the base.
        bias: f64,
    },
    /// `x`: an elementwise function.
    Unary(Unary),
    /// `a, b`: an elementwise function of two values.
    Binary(Binary),
    /// `condition, a, b`: `a` where the condition holds, else `b`; all broadcast.
    Where,
    /// `x`
    Softmax {
        /// The axis that sums to one.
        axis: usize,
    },
    /// `x`
    LogSoftmax {
        /// The axis whose exponentials sum to one.
        axis: usize,
    },
    /// `x: [N, C, …]`: the largest element under the window; padding never wins.
    MaxPool(Window),
    /// `x: [N, C, …]`: the mean (or sum) under the window.
    AveragePool {
        /// The window.
        window: Window,
        /// What the sum is divided by.
        divisor: Divisor,
    },
    /// `y`: the transpose of [`Op::AveragePool`], to an input of spatial size `spatial`.
    AveragePoolTranspose {
        /// The window of the pool this is the transpose of.
        window: Window,
        /// The divisor of the pool this is the transpose of.
        divisor: Divisor,
        /// Spatial size of the pool's input.
        spatial: Vec<usize>,
    },
    /// `a, s`: `s` at the position where `a` has its first largest element under the window.
    WinnerGather(Window),
    /// `a, y`: the transpose of [`Op::WinnerGather`] in `s`: each `y` is added where `a` won.
    WinnerScatter(Window),
    /// `x`
    Reduce {
        /// How elements are combined.
        reduction: Reduction,
        /// The axes reduced, ascending.
        axes: Vec<usize>,
        /// Whether reduced axes stay with length 1.
        keep: bool,
    },
    /// `x`: index of the first largest element along an axis.
    ArgMax {
        /// The axis.
        axis: usize,
        /// Whether it stays with length 1.
        keep: bool,
    },
    /// One or more values, joined along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// `x`: elements `start, start + step, …` along an axis.
    Slice {
        /// The axis.
        axis: usize,
        /// First element taken.
        start: usize,
        /// Distance to the next, negative to go backwards.
        step: isize,
        /// How many.
        length: usize,
    },
    /// `x`: elements added around it.
    Pad {
        /// What they are.
        padding: Padding,
        /// How many before and after each axis.
        pads: Vec<(usize, usize)>,
    },
    /// `x`: the same elements under another shape.
    Reshape {
        /// The new shape.
        shape: Shape,
    },
    /// `x`: axes reordered; axis `i` of the result is axis `axes[i]` of `x`.
    Transpose {
        /// The permutation.
        axes: Vec<usize>,
    },
    /// `x`: broadcast to a shape.
    Expand {
        /// The new shape.
        shape: Shape,
    },
    /// `x, indices`: slices of `x` along an axis, in the order of the integer indices (negative from the end).
    Gather {
        /// The axis.
        axis: usize,
    },
    /// `x`: another resolution.
    Resize {
        /// The resized axes.
        axes: Vec<ResizeAxis>,
        /// How values between elements are found.
        interpolation: Interpolation,
        /// Where output elements lie.
        coordinates: Coordinates,
    },
    /// `x`: another kind of number; real to integer truncates, anything to truth is `≠ 0`.
    Cast {
        /// The new kind.
        to: Kind,
    },
    /// `x`, under another name.
    Identity,
    /// `x`: nothing at evaluation.
    Dropout {
        /// The share of elements dropped in training.
        ratio: f64,
    },
}

impl Op {
    /// The op's name, ONNX's where ONNX has it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input => "Input",
            Op::Constant(_) => "Constant",
            Op::Conv { .. } => "Conv",
            Op::ConvTranspose { .. } => "ConvTranspose",
            Op::MatMul { .. } => "MatMul",
            Op::BatchNorm { .. } => "BatchNormalization",
            Op::LayerNorm { .. } => "LayerNormalization",
            Op::GroupNorm { .. } => "GroupNormalization",
            Op::LocalResponseNorm { .. } => "LRN",
            Op::Unary(unary) => unary.name(),
            Op::Binary(binary) => binary.name(),
            Op::Where => "Where",
            Op::Softmax { .. } => "Softmax",
            Op::LogSoftmax { .. } => "LogSoftmax",
            Op::MaxPool(_) => "MaxPool",
            Op::AveragePool { divisor: Divisor::One, .. } => "SumPool",
            Op::AveragePool { .. } => "AveragePool",
            Op::AveragePoolTranspose { .. } => "AveragePoolTranspose",
            Op::WinnerGather(_) => "WinnerGather",
            Op::WinnerScatter(_) => "WinnerScatter",
            Op::Reduce { reduction, .. } => reduction.name(),
            Op::ArgMax { .. } => "ArgMax",
            Op::Concat { .. } => "Concat",
            Op::Slice { .. } => "Slice",
            Op::Pad { .. } => "Pad",
            Op::Reshape { .. } => "Reshape",
            Op::Transpose { .. } => "Transpose",
            Op::Expand { .. } => "Expand",
            Op::Gather { .. } => "Gather",
            Op::Resize { .. } => "Resize",
            Op::Cast { .. } => "Cast",
            Op::Identity => "Identity",
            Op::Dropout { .. } => "Dropout",
        }
    }
}

impl Reduction {
    /// The reduction's name, ONNX's.
    pub fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "ReduceSum",
            Reduction::Mean => "ReduceMean",
            Reduction::Max => "ReduceMax",
            Reduction::Min => "ReduceMin",
            Reduction::Product => "ReduceProd",
        }
    }
}

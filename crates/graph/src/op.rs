//! What a node can do: a closed set of operations with their attributes resolved. Everything ONNX leaves to
//! run time or to convention (automatic padding, negative axes, `-1` in a shape) is decided on import.

pub use crate::resampling::Taps;
use crate::shape::Shape;
use crate::tensor::{Kind, Tensor};

/// A window sliding over the spatial axes (those after batch and channel).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Extent per spatial axis.
    pub kernel: Vec<usize>,
    /// Step per spatial axis.
    pub stride: Vec<usize>,
    /// Distance between neighbouring taps per spatial axis.
    pub dilation: Vec<usize>,
    /// Padding before and after each spatial axis.
    pub pad: Vec<(usize, usize)>,
    /// Whether a last, partly covered position counts (pooling only). What it covers past the padding is
    /// never part of a maximum, a sum or a divisor.
    pub ceil: bool,
}

impl Window {
    /// A window of extent `kernel`, stride 1, no dilation, no padding.
    pub fn new(kernel: impl Into<Vec<usize>>) -> Self {
        let kernel = kernel.into();
        let axes = kernel.len();
        Window {
            kernel,
            stride: vec![1; axes],
            dilation: vec![1; axes],
            pad: vec![(0, 0); axes],
            ceil: false,
        }
    }

    /// Number of spatial axes.
    pub fn axes(&self) -> usize {
        self.kernel.len()
    }

    /// Whether it reads exactly the element under it.
    pub fn is_pointwise(&self) -> bool {
        let ones = |v: &[usize]| v.iter().all(|&n| n == 1);
        ones(&self.kernel) && ones(&self.stride) && self.pad.iter().all(|&pad| pad == (0, 0))
    }

    /// Whether it is three by three elements, one or two apart along both axes.
    pub fn is_three_by_three(&self) -> bool {
        self.kernel == [3, 3] && self.dilation == [1, 1] && (self.stride == [1, 1] || self.stride == [2, 2])
    }

    /// What the dilated kernel spans along `axis`.
    pub fn span(&self, axis: usize) -> Option<usize> {
        self.kernel[axis].checked_sub(1)?.checked_mul(self.dilation[axis])?.checked_add(1)
    }

    /// Number of positions along `axis` over an input of length `length`; `None` if there is none.
    pub fn positions(&self, axis: usize, length: usize) -> Option<usize> {
        let (before, after) = self.pad[axis];
        let padded = length.checked_add(before)?.checked_add(after)?;
        let room = padded.checked_sub(self.span(axis)?)?;
        let stride = self.stride[axis];
        if stride == 0 {
            return None;
        }
        let positions = room / stride + 1;
        let partial = self.ceil && !room.is_multiple_of(stride) && positions * stride < length + before;
        Some(positions + usize::from(partial))
    }

    /// What a pool's sum over an input of size `spatial` is divided by at each position along each axis; the divisor is
    /// their product.
    pub(crate) fn divisors(&self, spatial: &[usize], divisor: Divisor) -> Vec<Vec<usize>> {
        let along = |axis: usize| {
            let (before, after) = self.pad[axis];
            let end = match divisor {
                Divisor::Covered => before + spatial[axis],
                _ => before + spatial[axis] + after,
            };
            let start = if divisor == Divisor::Covered { before } else { 0 };
            let positions = self.positions(axis, spatial[axis]).unwrap_or(0);
            let inside = |p: usize| {
                let taps = (0..self.kernel[axis]).map(|k| p * self.stride[axis] + k * self.dilation[axis]);
                taps.filter(|t| (start..end).contains(t)).count()
            };
            (0..positions).map(inside).collect()
        };
        (0..self.axes()).map(along).collect()
    }
}

/// What an average is divided by where the window hangs over the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Divisor {
    /// The number of input elements covered.
    Covered,
    /// The number of input and padding elements covered (`count_include_pad`).
    Padded,
    /// One: the pool is a sum.
    One,
}

/// An elementwise function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Unary {
    Relu,
    /// `x` for `x ≥ 0`, else `slope·x`.
    LeakyRelu {
        slope: f64,
    },
    /// `x` for `x ≥ 0`, else `alpha·(eˣ − 1)`.
    Elu {
        alpha: f64,
    },
    /// `gamma·x` for `x ≥ 0`, else `gamma·alpha·(eˣ − 1)`.
    Selu {
        alpha: f64,
        gamma: f64,
    },
    /// `x` for `x ≥ 0`, else `alpha·(e^(x/alpha) − 1)`.
    Celu {
        alpha: f64,
    },
    Sigmoid,
    Tanh,
    Softplus,
    /// `clamp(alpha·x + beta, 0, 1)`.
    HardSigmoid {
        alpha: f64,
        beta: f64,
    },
    /// `x·clamp(x/6 + ½, 0, 1)`.
    HardSwish,
    /// `x·sigmoid(x)`, also called Swish.
    Silu,
    /// `x·Φ(x)`.
    Gelu,
    /// The tanh approximation of [`Unary::Gelu`].
    GeluTanh,
    Erf,
    /// `x·tanh(softplus(x))`.
    Mish,
    Neg,
    Abs,
    Sqrt,
    Exp,
    Log,
    Reciprocal,
    Sign,
    Floor,
    Ceil,
    /// To the nearest integer, halves to even.
    Round,
    /// Limits to `[min, max]`; infinite where absent.
    Clip {
        min: f64,
        max: f64,
    },
    /// Logical negation.
    Not,
}

/// An elementwise function of two values, broadcast as NumPy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Max,
    Min,
    /// `x` for `x ≥ 0`, else `slope·x`, the slope being the second value.
    PRelu,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Xor,
}

impl Binary {
    /// Whether the result is a truth value.
    pub fn is_predicate(self) -> bool {
        use Binary::*;
        matches!(self, Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor)
    }
}

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

impl Unary {
    /// The function's name, ONNX's where ONNX has it.
    pub fn name(self) -> &'static str {
        match self {
            Unary::Relu => "Relu",
            Unary::LeakyRelu { .. } => "LeakyRelu",
            Unary::Elu { .. } => "Elu",
            Unary::Selu { .. } => "Selu",
            Unary::Celu { .. } => "Celu",
            Unary::Sigmoid => "Sigmoid",
            Unary::Tanh => "Tanh",
            Unary::Softplus => "Softplus",
            Unary::HardSigmoid { .. } => "HardSigmoid",
            Unary::HardSwish => "HardSwish",
            Unary::Silu => "Silu",
            Unary::Gelu | Unary::GeluTanh => "Gelu",
            Unary::Erf => "Erf",
            Unary::Mish => "Mish",
            Unary::Neg => "Neg",
            Unary::Abs => "Abs",
            Unary::Sqrt => "Sqrt",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Reciprocal => "Reciprocal",
            Unary::Sign => "Sign",
            Unary::Floor => "Floor",
            Unary::Ceil => "Ceil",
            Unary::Round => "Round",
            Unary::Clip { .. } => "Clip",
            Unary::Not => "Not",
        }
    }
}

impl Binary {
    /// The function's name, ONNX's.
    pub fn name(self) -> &'static str {
        match self {
            Binary::Add => "Add",
            Binary::Sub => "Sub",
            Binary::Mul => "Mul",
            Binary::Div => "Div",
            Binary::Pow => "Pow",
            Binary::Max => "Max",
            Binary::Min => "Min",
            Binary::PRelu => "PRelu",
            Binary::Equal => "Equal",
            Binary::Less => "Less",
            Binary::LessOrEqual => "LessOrEqual",
            Binary::Greater => "Greater",
            Binary::GreaterOrEqual => "GreaterOrEqual",
            Binary::And => "And",
            Binary::Or => "Or",
            Binary::Xor => "Xor",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_pytorchs_formula() {
        let mut window = Window::new([3]);
        window.stride = vec![2];
        assert_eq!(window.positions(0, 7), Some(3));
        assert_eq!(window.positions(0, 8), Some(3));
        assert_eq!(window.positions(0, 2), None);
        window.ceil = true;
        assert_eq!(window.positions(0, 8), Some(4));
        window.pad = vec![(1, 1)];
        window.kernel = vec![2];
        assert_eq!(window.positions(0, 3), Some(2), "a window may not start in the padding after the input");
    }
}

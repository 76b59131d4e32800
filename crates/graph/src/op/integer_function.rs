//! Functions of integers, which are few: the kernels of all engines agree with the definitions here exactly.

use super::elementwise::wrap;

/// A function of one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerFunction {
    /// `x`: what rounding leaves.
    Identity,
    /// `−x`, modulo 2⁶⁴.
    Neg,
    /// `|x|`, modulo 2⁶⁴.
    Abs,
    /// −1, 0 or 1.
    Sign,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, min), max)`.
    Clip {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// The integer between two that differs from `x` by a multiple of their number, as casts to fewer bits wrap.
    Wrap {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
}

impl IntegerFunction {
    /// The value at `x`.
    pub fn eval(self, x: i64) -> i64 {
        match self {
            IntegerFunction::Identity => x,
            IntegerFunction::Neg => x.wrapping_neg(),
            IntegerFunction::Abs => x.wrapping_abs(),
            IntegerFunction::Sign => x.signum(),
            IntegerFunction::Relu => x.max(0),
            IntegerFunction::Clip { min, max } => x.max(min).min(max),
            IntegerFunction::Wrap { min, max } => wrap(x, min, max),
        }
    }
}

//! Gates: values that weight others. The result of a saturating or normalising function is a gate where it is multiplied.

use monosplit_graph::Op;
use monosplit_graph::op::{Binary, Role, Unary};

/// Whether the result of an op is a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gating {
    /// The result of a normaliser is a gate.
    Normaliser,
    /// The result of a saturating function is a gate.
    Saturating,
    /// The result is a gate if the operand is one: it is only moved or scaled.
    Carried,
    /// The result is no gate.
    None,
}

impl Gating {
    pub(super) fn of(op: &Op) -> Self {
        match op {
            Op::Unary(function) => Self::of_function(*function),
            Op::Binary(function) => Self::of_pair(*function),
            op if op.is_selection() => Gating::Carried,
            op => match op.role() {
                Role::Softmax => Gating::Saturating,
                Role::Source
                | Role::Elementwise
                | Role::Movement(_)
                | Role::Convolution
                | Role::MatrixProduct
                | Role::Normalisation
                | Role::Pooling
                | Role::Reduction
                | Role::Resampling => Gating::None,
            },
        }
    }

    fn of_function(function: Unary) -> Self {
        use Unary::*;
        match function {
            Sqrt | Reciprocal => Gating::Normaliser,
            Sigmoid | HardSigmoid { .. } | Tanh | Erf | Exp => Gating::Saturating,
            Clip { min, max } if min.is_finite() && max.is_finite() => Gating::Saturating,
            Neg => Gating::Carried,
            Relu | LeakyRelu { .. } | Elu { .. } | Selu { .. } | Celu { .. } | Softplus => Gating::None,
            HardSwish | Silu | Gelu | GeluTanh | Mish | Clip { .. } => Gating::None,
            Quantise { .. } | Half | Bfloat16 | Wrap { .. } => Gating::Carried,
            Abs | Log | Sin | Cos | Sign | Floor | Ceil | Round | Not => Gating::None,
        }
    }

    fn of_pair(function: Binary) -> Self {
        use Binary::*;
        match function {
            Add | Sub | Mul | Div => Gating::Carried,
            Pow | Max | Min | PRelu => Gating::None,
            Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor => Gating::None,
        }
    }
}

//! The table of elementwise functions: for each function its ONNX name and attributes, the kinds of number it is
//! defined for and the sign of its result. Import, export, shape inference and the rule sets read it from here.

use super::role::{Linearity, NonNegative};
use crate::error::Result;
use crate::tensor::Kind;

/// Declares the functions of one value. A line reads `Variant { field: "attribute" = default } => onnx "Name"`. A
/// function marked `composed` has no ONNX operator of its own that is read attribute by attribute: import and export
/// treat it separately, and its name is only displayed.
macro_rules! unary_functions {
    ($($(#[$doc:meta])* $variant:ident $({ $($field:ident: $attribute:literal = $default:expr),+ })? => $origin:ident $name:literal,)+) => {
        /// An elementwise function of one value.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Unary {
            $($(#[$doc])* $variant $({ $($field: f64),+ })?,)+
        }

        impl Unary {
            /// The function's name, ONNX's where ONNX has it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Unary::$variant { .. } => $name,)+
                }
            }

            /// The function's ONNX attributes.
            pub(crate) fn attributes(self) -> Vec<(&'static str, f64)> {
                match self {
                    $(Unary::$variant $({ $($field),+ })? => vec![$($(($attribute, $field)),+)?],)+
                }
            }

            /// The function of the ONNX operator `name`. `attribute` is given the name and the default of an attribute
            /// and returns its value.
            pub(crate) fn from_onnx(
                name: &str,
                attribute: impl Fn(&str, f64) -> Result<f64>,
            ) -> Result<Option<Self>> {
                $(if Self::is_onnx(stringify!($origin)) && name == $name {
                    return Ok(Some(Unary::$variant $({ $($field: attribute($attribute, $default)?),+ })?));
                })+
                Ok(None)
            }

            /// The names of the ONNX operators that [`Unary::from_onnx`] knows.
            pub(crate) fn onnx_names() -> impl Iterator<Item = &'static str> {
                [$((stringify!($origin), $name)),+]
                    .into_iter()
                    .filter(|(origin, _)| Self::is_onnx(origin))
                    .map(|(_, name)| name)
            }
        }
    };
}

unary_functions! {
    Relu => onnx "Relu",
    /// `x` for `x ≥ 0`, else `slope·x`.
    LeakyRelu { slope: "alpha" = 0.01 } => onnx "LeakyRelu",
    /// `x` for `x ≥ 0`, else `alpha·(eˣ − 1)`.
    Elu { alpha: "alpha" = 1.0 } => onnx "Elu",
    /// `gamma·x` for `x ≥ 0`, else `gamma·alpha·(eˣ − 1)`.
    Selu { alpha: "alpha" = 1.673_263_2, gamma: "gamma" = 1.050_701 } => onnx "Selu",
    /// `x` for `x ≥ 0`, else `alpha·(e^(x/alpha) − 1)`.
    Celu { alpha: "alpha" = 1.0 } => onnx "Celu",
    Sigmoid => onnx "Sigmoid",
    Tanh => onnx "Tanh",
    Softplus => onnx "Softplus",
    /// `clamp(alpha·x + beta, 0, 1)`.
    HardSigmoid { alpha: "alpha" = 0.2, beta: "beta" = 0.5 } => onnx "HardSigmoid",
    /// `x·clamp(x/6 + ½, 0, 1)`.
    HardSwish => onnx "HardSwish",
    /// `x·sigmoid(x)`, also called Swish.
    Silu => composed "Silu",
    /// `x·Φ(x)`.
    Gelu => composed "Gelu",
    /// The tanh approximation of [`Unary::Gelu`].
    GeluTanh => composed "Gelu",
    Erf => onnx "Erf",
    /// `x·tanh(softplus(x))`.
    Mish => onnx "Mish",
    Neg => onnx "Neg",
    Abs => onnx "Abs",
    Sqrt => onnx "Sqrt",
    Exp => onnx "Exp",
    Log => onnx "Log",
    Reciprocal => onnx "Reciprocal",
    Sign => onnx "Sign",
    Floor => onnx "Floor",
    Ceil => onnx "Ceil",
    /// To the nearest integer, halves to even.
    Round => onnx "Round",
    /// Limits to `[min, max]`; infinite where absent.
    Clip { min: "min" = f64::NEG_INFINITY, max: "max" = f64::INFINITY } => composed "Clip",
    /// Logical negation.
    Not => onnx "Not",
}

impl Unary {
    fn is_onnx(origin: &str) -> bool {
        origin == "onnx"
    }

    /// Whether the function is defined for numbers of `kind`. The result has the same kind.
    pub fn accepts(self, kind: Kind) -> bool {
        use Unary::*;
        match self {
            Not => kind == Kind::Bool,
            Neg | Abs | Sign | Clip { .. } | Relu => kind != Kind::Bool,
            LeakyRelu { .. } | Elu { .. } | Selu { .. } | Celu { .. } => kind == Kind::Float,
            Sigmoid | Tanh | Softplus | HardSigmoid { .. } | HardSwish => kind == Kind::Float,
            Silu | Gelu | GeluTanh | Erf | Mish => kind == Kind::Float,
            Sqrt | Exp | Log | Reciprocal | Floor | Ceil | Round => kind == Kind::Float,
        }
    }

    /// How the result depends on the operand.
    pub(super) fn linearity(self) -> Linearity {
        use Unary::*;
        match self {
            Neg => Linearity::Selection(0..1),
            Relu | LeakyRelu { .. } | Elu { .. } | Selu { .. } | Celu { .. } => Linearity::Nonlinear,
            Sigmoid | Tanh | Softplus | HardSigmoid { .. } | HardSwish => Linearity::Nonlinear,
            Silu | Gelu | GeluTanh | Erf | Mish | Clip { .. } => Linearity::Nonlinear,
            Abs | Sqrt | Exp | Log | Reciprocal | Sign | Floor | Ceil | Round | Not => Linearity::Nonlinear,
        }
    }

    /// When the result is known to have no negative element.
    pub(super) fn non_negative(self) -> NonNegative {
        use Unary::*;
        match self {
            Relu | Sigmoid | HardSigmoid { .. } | Softplus | Exp | Sqrt | Abs => NonNegative::Always,
            Clip { min, .. } if min >= 0.0 => NonNegative::Always,
            Clip { .. } | LeakyRelu { .. } | Elu { .. } | Silu | Gelu => NonNegative::IfAll(0..1),
            Selu { .. } | Celu { .. } | Tanh | HardSwish | GeluTanh | Erf | Mish => NonNegative::Unknown,
            Neg | Log | Reciprocal | Sign | Floor | Ceil | Round | Not => NonNegative::Unknown,
        }
    }
}

/// Declares the functions of two values with their ONNX names.
macro_rules! binary_functions {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)+) => {
        /// An elementwise function of two values, broadcast as NumPy does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Binary {
            $($(#[$doc])* $variant,)+
        }

        impl Binary {
            /// All functions.
            pub const ALL: &'static [Binary] = &[$(Binary::$variant),+];

            /// The function's name, ONNX's.
            pub fn name(self) -> &'static str {
                match self {
                    $(Binary::$variant => $name,)+
                }
            }
        }
    };
}

binary_functions! {
    Add => "Add",
    Sub => "Sub",
    Mul => "Mul",
    Div => "Div",
    Pow => "Pow",
    Max => "Max",
    Min => "Min",
    /// `x` for `x ≥ 0`, else `slope·x`, the slope being the second value.
    PRelu => "PRelu",
    Equal => "Equal",
    Less => "Less",
    LessOrEqual => "LessOrEqual",
    Greater => "Greater",
    GreaterOrEqual => "GreaterOrEqual",
    And => "And",
    Or => "Or",
    Xor => "Xor",
}

impl Binary {
    /// The function of the ONNX operator `name`.
    pub(crate) fn from_onnx(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name() == name)
    }

    /// Whether the result is a truth value.
    pub fn is_predicate(self) -> bool {
        use Binary::*;
        match self {
            Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor => true,
            Add | Sub | Mul | Div | Pow | Max | Min | PRelu => false,
        }
    }

    /// Whether exchanging the operands changes no bit of the result. Maximum and minimum are not among these: of two
    /// zeros of different sign one operand is returned.
    pub fn is_commutative(self) -> bool {
        use Binary::*;
        match self {
            Add | Mul | Equal | And | Or | Xor => true,
            Sub | Div | Pow | Max | Min | PRelu | Less | LessOrEqual | Greater | GreaterOrEqual => false,
        }
    }

    /// When the result is known to have no negative element.
    pub(super) fn non_negative(self) -> NonNegative {
        use Binary::*;
        match self {
            Add | Mul | Min => NonNegative::IfAll(0..2),
            Max => NonNegative::IfAny(0..2),
            Sub | Div | Pow | PRelu => NonNegative::Unknown,
            Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor => NonNegative::Unknown,
        }
    }

    /// How the result depends on the operands.
    pub(super) fn linearity(self) -> Linearity {
        use Binary::*;
        match self {
            Add | Sub => Linearity::WeightedSum(0..2),
            Mul => Linearity::Product(0..2),
            Div => Linearity::Product(0..1),
            Pow | Max | Min | PRelu => Linearity::Nonlinear,
            Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor => Linearity::Nonlinear,
        }
    }
}

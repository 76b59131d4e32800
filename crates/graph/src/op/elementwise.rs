//! The table of elementwise functions: for each function its ONNX name and attributes, the kinds of number it is
//! defined for, its linearity, the sign of its result and its value on double-precision numbers. Import, export, shape
//! inference and the rule sets read it from here.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::integer_function::IntegerFunction;
use super::properties::{Linearity, NonNegative};
use crate::error::Result;
use crate::half::{round_to_bfloat16, round_to_half};
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
    Sin => onnx "Sin",
    Cos => onnx "Cos",
    Sign => onnx "Sign",
    Floor => onnx "Floor",
    Ceil => onnx "Ceil",
    /// To the nearest integer, halves to even.
    Round => onnx "Round",
    /// Limits to `[min, max]`; infinite where absent.
    Clip { min: "min" = f64::NEG_INFINITY, max: "max" = f64::INFINITY } => composed "Clip",
    /// To the nearest multiple of `step`, halves to the even one, within `[min, max]`: what quantising and dequantising
    /// does to a real number. Its slope is taken to be 1 everywhere (straight-through).
    Quantise { step: "step" = 1.0, min: "min" = f64::NEG_INFINITY, max: "max" = f64::INFINITY } => composed "Quantise",
    /// To the nearest half-precision number. Its slope is taken to be 1.
    Half => composed "Half",
    /// To the nearest bfloat16 number. Its slope is taken to be 1.
    Bfloat16 => composed "Bfloat16",
    /// Into `[min, max]` modulo `max − min + 1`: an integer as a type with fewer bits holds it.
    Wrap { min: "min" = 0.0, max: "max" = 255.0 } => composed "Wrap",
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
            Wrap { .. } => kind == Kind::Int,
            Quantise { .. } | Half | Bfloat16 => kind == Kind::Float,
            Neg | Abs | Sign | Clip { .. } | Relu => kind != Kind::Bool,
            LeakyRelu { .. } | Elu { .. } | Selu { .. } | Celu { .. } => kind == Kind::Float,
            Sigmoid | Tanh | Softplus | HardSigmoid { .. } | HardSwish => kind == Kind::Float,
            Silu | Gelu | GeluTanh | Erf | Mish => kind == Kind::Float,
            Sqrt | Exp | Log | Reciprocal | Sin | Cos | Floor | Ceil | Round => kind == Kind::Float,
        }
    }

    /// Whether the function only rounds real numbers, as quantisers and types of few digits do. Explanations take it for the
    /// identity.
    pub fn is_straight_through(self) -> bool {
        matches!(self, Unary::Quantise { .. } | Unary::Half | Unary::Bfloat16)
    }

    /// How the result depends on the operand.
    pub(super) fn linearity(self) -> Linearity {
        use Unary::*;
        match self {
            Neg => Linearity::Selection(0..1),
            Relu | LeakyRelu { .. } | Elu { .. } | Selu { .. } | Celu { .. } => Linearity::Nonlinear,
            Sigmoid | Tanh | Softplus | HardSigmoid { .. } | HardSwish => Linearity::Nonlinear,
            Silu | Gelu | GeluTanh | Erf | Mish | Clip { .. } => Linearity::Nonlinear,
            Quantise { .. } | Half | Bfloat16 | Wrap { .. } => Linearity::Nonlinear,
            Abs | Sqrt | Exp | Log | Reciprocal | Sin | Cos | Sign | Floor | Ceil | Round | Not => {
                Linearity::Nonlinear
            }
        }
    }

    /// The same function with the bounds of a clip in order. `min(max(x, min), max)` is `max` everywhere if `min` is larger, and a
    /// bound that is no number bounds nothing.
    pub(crate) fn with_ordered_bounds(self) -> Self {
        let Unary::Clip { min, max } = self else { return self };
        let max = if max.is_nan() { f64::INFINITY } else { max };
        let min = if min.is_nan() { f64::NEG_INFINITY } else { min.min(max) };
        Unary::Clip { min, max }
    }

    /// When the result is known to have no negative element.
    pub(super) fn non_negative(self) -> NonNegative {
        use Unary::*;
        match self {
            Relu | Sigmoid | HardSigmoid { .. } | Softplus | Exp | Sqrt | Abs => NonNegative::Always,
            Clip { min, .. } if min >= 0.0 => NonNegative::Always,
            Wrap { min, .. } | Quantise { min, .. } if min >= 0.0 => NonNegative::Always,
            Clip { .. } | LeakyRelu { .. } | Elu { .. } | Silu | Gelu => NonNegative::IfAll(0..1),
            Half | Bfloat16 => NonNegative::IfAll(0..1),
            Quantise { max, .. } if max >= 0.0 => NonNegative::IfAll(0..1),
            Quantise { .. } | Wrap { .. } => NonNegative::Unknown,
            Selu { .. } | Celu { .. } | Tanh | HardSwish | GeluTanh | Erf | Mish => NonNegative::Unknown,
            Neg | Log | Reciprocal | Sin | Cos | Sign | Floor | Ceil | Round | Not => NonNegative::Unknown,
        }
    }

    /// Whether the result never falls while the operand grows.
    pub fn never_decreases(self) -> bool {
        use Unary::*;
        match self {
            Relu | Sigmoid | Tanh | Softplus | Erf | Exp | Log | Sqrt => true,
            Sign | Floor | Ceil | Round | Clip { .. } | Quantise { .. } | Half | Bfloat16 => true,
            LeakyRelu { slope } => slope >= 0.0,
            Elu { alpha } | HardSigmoid { alpha, .. } => alpha >= 0.0,
            Celu { alpha } => alpha != 0.0,
            Selu { alpha, gamma } => alpha >= 0.0 && gamma >= 0.0,
            HardSwish | Silu | Gelu | GeluTanh | Mish => false,
            Neg | Abs | Reciprocal | Sin | Cos | Wrap { .. } | Not => false,
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

impl Unary {
    /// What the function is of integers; `None` if it is defined for real numbers or truth values only.
    pub fn of_integers(self) -> Option<IntegerFunction> {
        use Unary::*;
        match self {
            Floor | Ceil | Round => Some(IntegerFunction::Identity),
            Neg => Some(IntegerFunction::Neg),
            Abs => Some(IntegerFunction::Abs),
            Sign => Some(IntegerFunction::Sign),
            Relu => Some(IntegerFunction::Relu),
            Clip { min, max } => Some(IntegerFunction::Clip { min: min as i64, max: max as i64 }),
            Wrap { min, max } => Some(IntegerFunction::Wrap { min: min as i64, max: max as i64 }),
            LeakyRelu { .. } | Elu { .. } | Selu { .. } | Celu { .. } | Sigmoid | Tanh | Softplus => None,
            HardSigmoid { .. } | HardSwish | Silu | Gelu | GeluTanh | Erf | Mish => None,
            Sqrt | Exp | Log | Reciprocal | Sin | Cos | Not => None,
            Quantise { .. } | Half | Bfloat16 => None,
        }
    }

    /// The function of one double-precision number; `None` for logic. This is the definition that constants are computed
    /// with while a file is read and that approximations are measured against. Engines have kernels of their own, which
    /// agree with it up to rounding.
    pub fn eval(self, x: f64) -> Option<f64> {
        Some(match self {
            Unary::Relu => x.max(0.0),
            Unary::LeakyRelu { slope } => x.max(0.0) + slope * x.min(0.0),
            Unary::Elu { alpha } => x.max(0.0) + alpha * x.min(0.0).exp_m1(),
            Unary::Selu { alpha, gamma } => gamma * (x.max(0.0) + alpha * x.min(0.0).exp_m1()),
            Unary::Celu { alpha } => x.max(0.0) + alpha * (x / alpha).min(0.0).exp_m1(),
            Unary::Sigmoid => sigmoid(x),
            Unary::Tanh => x.tanh(),
            Unary::Softplus => softplus(x),
            Unary::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
            Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
            Unary::Silu => x * sigmoid(x),
            Unary::Gelu => 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2)),
            Unary::GeluTanh => {
                let inner = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
            Unary::Erf => erf(x),
            Unary::Mish => x * softplus(x).tanh(),
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Sqrt => x.sqrt(),
            Unary::Exp => x.exp(),
            Unary::Log => x.ln(),
            Unary::Reciprocal => x.recip(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Sign if x == 0.0 || x.is_nan() => x,
            Unary::Sign => x.signum(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Round => x.round_ties_even(),
            Unary::Clip { min, max } => x.max(min).min(max),
            Unary::Quantise { step, min, max } => ((x / step).round_ties_even() * step).max(min).min(max),
            Unary::Half => f64::from(round_to_half(x as f32)),
            Unary::Bfloat16 => f64::from(round_to_bfloat16(x as f32)),
            Unary::Wrap { min, max } => wrap(x as i64, min as i64, max as i64) as f64,
            Unary::Not => return None,
        })
    }
}

impl Binary {
    /// The function of two double-precision numbers; `None` for comparisons and logic.
    pub fn eval(self, a: f64, b: f64) -> Option<f64> {
        Some(match self {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Pow => a.powf(b),
            Binary::Max => {
                if a.is_nan() || a > b {
                    a
                } else {
                    b
                }
            }
            Binary::Min => {
                if a.is_nan() || a < b {
                    a
                } else {
                    b
                }
            }
            Binary::PRelu => a.max(0.0) + b * a.min(0.0),
            Binary::Equal | Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
                return None;
            }
            Binary::And | Binary::Or | Binary::Xor => return None,
        })
    }
}

/// The integer in `[min, max]` that differs from `x` by a multiple of `max − min + 1`.
pub fn wrap(x: i64, min: i64, max: i64) -> i64 {
    let (x, min, max) = (i128::from(x), i128::from(min), i128::from(max));
    (min + (x - min).rem_euclid((max - min + 1).max(1))) as i64
}

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `2/√π·e^(−x²)·Σ 2ⁿ x^(2n+1)/(2n+1)!!`: all terms have one sign, so nothing cancels.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() >= 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * 0.1 * sum.abs() {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_35_bounds_of_a_clip_are_put_in_order() {
        // ONNX Runtime's values for these bounds.
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (bounds, expected) in [
            ((2.0, -2.0), [-2.0, -2.0, -2.0]),
            ((nan, 1.0), [-5.0, 0.0, 1.0]),
            ((-1.0, nan), [-1.0, 0.0, 5.0]),
            ((nan, nan), [-5.0, 0.0, 5.0]),
            ((inf, 1.0), [1.0, 1.0, 1.0]),
            ((1.0, -inf), [-inf, -inf, -inf]),
            ((-1.0, 1.0), [-1.0, 0.0, 1.0]),
        ] {
            let clip = Unary::Clip { min: bounds.0, max: bounds.1 }.with_ordered_bounds();
            let Unary::Clip { min, max } = clip else { panic!("a clip stays a clip") };
            assert!(min <= max, "{bounds:?}");
            assert_eq!([-5.0, 0.0, 5.0].map(|x: f64| x.max(min).min(max)), expected, "{bounds:?}");
        }
    }

    #[test]
    fn erf_has_the_tabulated_values() {
        let table = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (5.9, 1.0),
        ];
        for (x, expected) in table {
            assert!((erf(x) - expected).abs() < 4e-16, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }

    #[test]
    fn activations_have_the_values_pytorch_gives() {
        let table = [
            (Unary::Silu, -1.5, -0.273_638_285_709_534_5),
            (Unary::Gelu, -1.5, -0.100_210_801_903_287_04),
            (Unary::GeluTanh, -1.5, -0.100_428_423_019_767_07),
            (Unary::Mish, -1.5, -0.298_099_742_166_806_74),
            (Unary::Softplus, -1.5, 0.201_413_277_982_752_4),
            (Unary::Celu { alpha: 2.0 }, -1.5, -1.055_266_894_517_970_6),
            (Unary::HardSwish, -1.5, -0.375),
        ];
        for (function, x, expected) in table {
            let found = function.eval(x).unwrap();
            assert!((found - expected).abs() < 1e-15, "{function:?}({x}) = {found}");
        }
    }

    /// All functions that files can name, with their default attributes, and those with a reader of their own.
    fn unary_functions() -> Vec<Unary> {
        let named = Unary::onnx_names().map(|name| Unary::from_onnx(name, |_, default| Ok(default)));
        let mut functions: Vec<Unary> = named.filter_map(|function| function.unwrap()).collect();
        functions.extend([Unary::Silu, Unary::Gelu, Unary::GeluTanh]);
        functions.extend([-1.0, 0.0].map(|min| Unary::Clip { min, max: 6.0 }));
        functions.extend([
            Unary::Quantise { step: 0.3, min: -1.5, max: 6.0 },
            Unary::Wrap { min: -2.0, max: 1.0 },
        ]);
        functions
    }

    const SAMPLES: [f64; 9] = [-7.5, -2.0, -1.0, -0.25, 0.0, 0.5, 1.0, 3.0, 8.25];

    #[test]
    fn the_signs_of_the_table_are_those_of_the_definitions() {
        let above = |value: Option<f64>| value.is_none_or(|value| value >= 0.0 || value.is_nan());
        for function in unary_functions() {
            let holds = |x: &f64| above(function.eval(*x));
            match function.non_negative() {
                NonNegative::Always => assert!(SAMPLES.iter().all(holds), "{function:?}"),
                NonNegative::IfAll(_) | NonNegative::IfAny(_) => {
                    assert!(SAMPLES.iter().filter(|&&x| x >= 0.0).all(holds), "{function:?}");
                }
                NonNegative::Unknown => {}
            }
        }
        let pairs = || SAMPLES.iter().flat_map(|&a| SAMPLES.map(|b| (a, b)));
        for &function in Binary::ALL {
            let promised = |(a, b): &(f64, f64)| match function.non_negative() {
                NonNegative::Always => true,
                NonNegative::IfAll(_) => *a >= 0.0 && *b >= 0.0,
                NonNegative::IfAny(_) => *a >= 0.0 || *b >= 0.0,
                NonNegative::Unknown => false,
            };
            assert!(pairs().filter(promised).all(|(a, b)| above(function.eval(a, b))), "{function:?}");
        }
    }

    /// `f(a + b) = f(a) + f(b)` in every operand that the table calls linear, and for no function of one value that it does
    /// not.
    #[test]
    fn the_linearity_of_the_table_is_that_of_the_definitions() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * (1.0 + a.abs());
        let pairs = || SAMPLES.iter().flat_map(|&a| SAMPLES.map(|b| (a, b)));
        for function in unary_functions().into_iter().filter(|function| function.eval(1.0).is_some()) {
            let f = |x: f64| function.eval(x).unwrap();
            let additive = pairs().all(|(a, b)| close(f(a + b), f(a) + f(b)));
            assert_eq!(additive, function.linearity().is_linear(), "{function:?}");
        }
        for &function in Binary::ALL.iter().filter(|function| function.eval(1.0, 1.0).is_some()) {
            let linearity = function.linearity();
            for operand in 0..2 {
                let f = |x: f64, held: f64| match operand {
                    0 => function.eval(x, held).unwrap(),
                    _ => function.eval(held, x).unwrap(),
                };
                // A sum is affine in each of its operands: what the other adds is taken off.
                let additive = pairs().all(|(a, b)| {
                    close(f(a + b, 2.0) - f(0.0, 2.0), f(a, 2.0) + f(b, 2.0) - 2.0 * f(0.0, 2.0))
                });
                assert!(additive || !linearity.is_linear_in(operand), "{function:?} in operand {operand}");
            }
        }
    }

    /// A function of integers has the values of the function of real numbers.
    #[test]
    fn functions_of_integers_are_those_of_real_numbers() {
        let defined: Vec<(Unary, IntegerFunction)> =
            unary_functions().into_iter().filter_map(|f| Some((f, f.of_integers()?))).collect();
        assert!(defined.len() >= 8);
        for (function, of_integers) in defined {
            for x in -9..9i64 {
                assert_eq!(function.eval(x as f64), Some(of_integers.eval(x) as f64), "{function:?}({x})");
            }
        }
        assert_eq!(IntegerFunction::Abs.eval(i64::MIN), i64::MIN);
    }

    #[test]
    fn commutative_functions_give_the_same_bits_in_both_orders() {
        let pairs = || SAMPLES.iter().chain(&[-0.0]).flat_map(|&a| SAMPLES.map(|b| (a, b)));
        for &function in Binary::ALL.iter().filter(|function| function.is_commutative()) {
            let bits = |a: f64, b: f64| function.eval(a, b).map(f64::to_bits);
            assert!(pairs().all(|(a, b)| bits(a, b) == bits(b, a)), "{function:?}");
        }
    }

    /// Along a grid, functions decrease, by more than rounding, where they are said to.
    #[test]
    fn functions_decrease_where_they_are_said_to() {
        let known = |name: &'static str| Unary::from_onnx(name, |_, default| Ok(default)).unwrap().unwrap();
        let composed = [
            Unary::Silu,
            Unary::Gelu,
            Unary::GeluTanh,
            Unary::Clip { min: -1.0, max: 2.0 },
            Unary::Quantise { step: 0.3, min: -1.0, max: 2.0 },
            Unary::Half,
            Unary::Bfloat16,
            Unary::LeakyRelu { slope: -0.1 },
            Unary::Elu { alpha: -1.0 },
            Unary::Celu { alpha: -1.0 },
            Unary::Selu { alpha: 1.0, gamma: -1.0 },
            Unary::HardSigmoid { alpha: -0.2, beta: 0.5 },
        ];
        for function in
            Unary::onnx_names().map(known).chain(composed).filter(|&function| function != Unary::Not)
        {
            let values: Vec<f64> = (-800..=800).filter_map(|i| function.eval(f64::from(i) / 100.0)).collect();
            let decreases = values.windows(2).any(|pair| pair[1] < pair[0] - 1e-12);
            assert_eq!(!decreases, function.never_decreases(), "{function:?}");
        }
    }
}

//! The definition of each elementwise function on double-precision numbers. Constants are computed with it while a file is
//! read, approximations are measured against it, and an activation that an exporter wrote as several nodes is recognised
//! by it. Engines have kernels of their own, which agree with it up to rounding.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::{Binary, Unary};

impl Unary {
    /// The function of one double-precision number; `None` for logic.
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
            Unary::Sign if x == 0.0 || x.is_nan() => x,
            Unary::Sign => x.signum(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Round => x.round_ties_even(),
            Unary::Clip { min, max } => x.max(min).min(max),
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
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
            Binary::PRelu => a.max(0.0) + b * a.min(0.0),
            Binary::Equal | Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
                return None;
            }
            Binary::And | Binary::Or | Binary::Xor => return None,
        })
    }
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
}

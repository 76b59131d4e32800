//! Elementwise functions of one value. NaN goes through every one of them.

use super::chunks::for_each_chunk;
use monosplit_graph::op::{Binary, Unary, wrap};
use monosplit_graph::{Error, Result, round_to_bfloat16, round_to_half};

use super::broadcast::GRAIN;
use super::elementary::{self, Elementary};
use super::erf::{erf, erfc};
use super::fused::ErfGate;
use super::fused_block::Block;
use super::{elementwise, row_loops};
use crate::cpu::real::{Element, Real};
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

/// Where a function reads: another value, or the one it writes.
trait ElementSource<T>: Sync {
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync);

    /// The same for a function of many numbers, which overwrites them.
    fn apply_to_blocks(&self, out: &mut [T], f: impl Fn(&mut [T]) + Sync);
}

/// Elements that are copied and overwritten while they are in the first cache.
const BLOCK: usize = 1024;

struct From<'a, T>(&'a [T]);
struct InPlace;
/// The same for a block, by the calling thread alone.
struct Local;
struct Whole<'a, T>(&'a [T]);

impl<T: Element> ElementSource<T> for From<'_, T> {
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync) {
        for_each_chunk(out, GRAIN, &|i, out| {
            for (o, &x) in out.iter_mut().zip(&self.0[i * GRAIN..]) {
                *o = f(x);
            }
        });
    }

    fn apply_to_blocks(&self, out: &mut [T], f: impl Fn(&mut [T]) + Sync) {
        for_each_chunk(out, GRAIN, &|i, out| {
            for (o, x) in out.chunks_mut(BLOCK).zip(self.0[i * GRAIN..].chunks(BLOCK)) {
                o.copy_from_slice(&x[..o.len()]);
                f(o);
            }
        });
    }
}

impl<T: Element> ElementSource<T> for InPlace {
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync) {
        for_each_chunk(out, GRAIN, &|_, out| {
            for o in out {
                *o = f(*o);
            }
        });
    }

    fn apply_to_blocks(&self, out: &mut [T], f: impl Fn(&mut [T]) + Sync) {
        for_each_chunk(out, GRAIN, &|_, out| f(out));
    }
}

impl<T: Element> ElementSource<T> for Local {
    #[inline]
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync) {
        out.iter_mut().for_each(|o| *o = f(*o));
    }

    fn apply_to_blocks(&self, out: &mut [T], f: impl Fn(&mut [T]) + Sync) {
        f(out);
    }
}

impl<T: Element> ElementSource<T> for Whole<'_, T> {
    #[inline]
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync) {
        for (o, &x) in out.iter_mut().zip(self.0) {
            *o = f(x);
        }
    }

    fn apply_to_blocks(&self, out: &mut [T], f: impl Fn(&mut [T]) + Sync) {
        out.copy_from_slice(&self.0[..out.len()]);
        f(out);
    }
}

/// `out ← f(x)` on a block.
pub(crate) fn real_block<R: Real>(unary: Unary, x: Block<'_, R>, out: &mut [R]) {
    match x {
        Block::Many(x) => real(unary, Whole(x), out),
        Block::One(x) => {
            let mut one = [R::ZERO];
            real(unary, Whole(&[x]), &mut one);
            out.fill(one[0]);
        }
    }
}

/// `block ← f(block)`
pub(crate) fn change_block<R: Real>(unary: Unary, block: &mut [R]) {
    match unary {
        Unary::Relu => row_loops::relu(block),
        Unary::Clip { min, max } => row_loops::clamp(block, R::from_f64(min), R::from_f64(max)),
        _ => real(unary, Local, block),
    }
}

/// Elements that a function is applied to before they are multiplied with it.
const GATED: usize = 256;

/// `block ← block·f(block)`, each rounded as one after the other.
pub(crate) fn gate_block<R: Real>(unary: Unary, block: &mut [R]) {
    if unary == Unary::Sigmoid && Elementary::SigmoidGate.applies::<R>() {
        return Elementary::SigmoidGate.apply(block);
    }
    let mut function = [R::ZERO; GATED];
    for block in block.chunks_mut(GATED) {
        let function = &mut function[..block.len()];
        function.copy_from_slice(block);
        change_block(unary, function);
        elementwise::change_block(Binary::Mul, block, Block::Many(function), false);
    }
}

/// `x ← x·(erf(x/a) + b)·c` for all elements of a block, each function rounded as one after the other.
pub(crate) fn erf_gate_block<R: Real>(gate: ErfGate, [a, b, c]: [R; 3], block: &mut [R]) {
    if Elementary::Erf.applies::<R>() {
        return elementary::erf_gate(gate, [a, b, c], block);
    }
    let erf = |x: R| R::from_f64(erf(x.to_f64()));
    for x in block {
        let sum = erf(if gate.divides { *x / a } else { *x * a }) + b;
        *x = if gate.number_first { *x * c * sum } else { *x * sum * c };
    }
}

/// `out ← f(x)`.
pub(crate) fn apply<R: Real>(unary: Unary, x: &View<'_, R>, out: &mut ViewMut<'_, R>) -> Result<()> {
    match (x.data, &mut out.data) {
        (Slice::Real(x), SliceMut::Real(out)) => real(unary, From(x), out),
        (Slice::Int(x), SliceMut::Int(out)) => int(unary, From(x), out)?,
        (Slice::Bool(x), SliceMut::Bool(out)) if unary == Unary::Not => From(x).apply(out, |x| !x),
        _ => return Err(undefined(unary)),
    }
    Ok(())
}

/// `out ← f(out)`.
pub(crate) fn apply_in_place<R: Real>(unary: Unary, out: &mut ViewMut<'_, R>) -> Result<()> {
    match &mut out.data {
        SliceMut::Real(out) => real(unary, InPlace, out),
        SliceMut::Int(out) => int(unary, InPlace, out)?,
        SliceMut::Bool(out) if unary == Unary::Not => InPlace.apply(out, |x| !x),
        SliceMut::Bool(_) => return Err(undefined(unary)),
    }
    Ok(())
}

fn undefined(unary: Unary) -> Error {
    Error::unsupported(format!("{} is not defined for this kind of number; cast it first", unary.name()))
}

fn int(unary: Unary, x: impl ElementSource<i64>, out: &mut [i64]) -> Result<()> {
    let function = unary.of_integers().ok_or_else(|| undefined(unary))?;
    x.apply(out, |x| function.eval(x));
    Ok(())
}

fn below_zero<R: Real>(x: R, otherwise: impl Fn(R) -> R) -> R {
    if x < R::ZERO { otherwise(x) } else { x }
}

fn limit<R: Real>(x: R, min: R, max: R) -> R {
    let raised = if x < min { min } else { x };
    if raised > max { max } else { raised }
}

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

fn softplus<R: Real>(x: R) -> R {
    let positive = if x < R::ZERO { R::ZERO } else { x };
    positive + (-x.abs()).exp().ln_1p()
}

fn sign<R: Real>(x: R) -> R {
    if x > R::ZERO {
        R::ONE
    } else if x < R::ZERO {
        -R::ONE
    } else {
        x
    }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn real<R: Real>(unary: Unary, x: impl ElementSource<R>, out: &mut [R]) {
    let c = R::from_f64;
    let (zero, one) = (R::ZERO, R::ONE);
    if let Some(function) = Elementary::of::<R>(unary) {
        return x.apply_to_blocks(out, |block| function.apply(block));
    }
    match unary {
        Unary::Relu => x.apply(out, |x| if x < zero { zero } else { x }),
        Unary::LeakyRelu { slope } => {
            let slope = c(slope);
            x.apply(out, |x| below_zero(x, |x| slope * x));
        }
        Unary::Elu { alpha } => x.apply(out, |x| below_zero(x, |x| c(alpha) * x.exp_m1())),
        Unary::Selu { alpha, gamma } => {
            x.apply(out, |x| c(gamma) * below_zero(x, |x| c(alpha) * x.exp_m1()));
        }
        Unary::Celu { alpha } => x.apply(out, |x| below_zero(x, |x| c(alpha) * (x / c(alpha)).exp_m1())),
        Unary::Sigmoid => x.apply(out, sigmoid),
        Unary::Tanh => x.apply(out, R::tanh),
        Unary::Softplus => x.apply(out, softplus),
        Unary::HardSigmoid { alpha, beta } => x.apply(out, |x| limit(c(alpha) * x + c(beta), zero, one)),
        Unary::HardSwish => x.apply(out, |x| x * limit(x * c(1.0 / 6.0) + c(0.5), zero, one)),
        Unary::Silu => x.apply(out, |x| x / (one + (-x).exp())),
        Unary::Gelu => x.apply(out, |x| {
            let x = x.to_f64();
            c(0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2))
        }),
        Unary::GeluTanh => x.apply(out, |x| c(gelu_tanh(x.to_f64()))),
        Unary::Erf => x.apply(out, |x| c(erf(x.to_f64()))),
        Unary::Mish => x.apply(out, |x| x * softplus(x).tanh()),
        Unary::Neg => x.apply(out, |x| -x),
        Unary::Abs => x.apply(out, R::abs),
        Unary::Sqrt => x.apply(out, R::sqrt),
        Unary::Exp => x.apply(out, R::exp),
        Unary::Log => x.apply(out, R::ln),
        Unary::Reciprocal => x.apply(out, |x| one / x),
        Unary::Sin => x.apply(out, |x| c(x.to_f64().sin())),
        Unary::Cos => x.apply(out, |x| c(x.to_f64().cos())),
        Unary::Sign => x.apply(out, sign),
        Unary::Floor => x.apply(out, R::floor),
        Unary::Ceil => x.apply(out, R::ceil),
        Unary::Round => x.apply(out, R::round_ties_even),
        Unary::Clip { min, max } => {
            let (min, max) = (c(min), c(max));
            x.apply(out, |x| limit(x, min, max));
        }
        Unary::Quantise { step, min, max } => {
            let (step, min, max) = (c(step), c(min), c(max));
            x.apply(out, |x| limit((x / step).round_ties_even() * step, min, max));
        }
        Unary::Half => x.apply(out, |x| c(round_to_half(x.to_f64() as f32).into())),
        Unary::Bfloat16 => x.apply(out, |x| c(round_to_bfloat16(x.to_f64() as f32).into())),
        // The graph admits this one for integers only.
        Unary::Wrap { min, max } => {
            x.apply(out, |x| c(wrap(x.to_f64() as i64, min as i64, max as i64) as f64))
        }
        // The graph admits this one for truth values only.
        Unary::Not => x.apply(out, |x| if x == zero { one } else { zero }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways<R: Real>(unary: Unary, x: &[R]) -> Vec<R> {
        let shape = [x.len()];
        let mut out = vec![R::ONE; x.len()];
        let view = View { shape: &shape, data: Slice::Real(x) };
        apply(unary, &view, &mut ViewMut { shape: &shape, data: SliceMut::Real(&mut out) }).unwrap();
        let mut same = x.to_vec();
        apply_in_place(unary, &mut ViewMut { shape: &shape, data: SliceMut::Real(&mut same) }).unwrap();
        assert!(out.iter().zip(&same).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));
        out
    }

    /// PyTorch's values in double precision at −3, −1, −0.25, 0, 0.5, 2 and 7 (Round and the like: NumPy's).
    #[test]
    fn values_are_pytorchs() {
        for (unary, expected) in GOLDEN {
            let found = both_ways(unary, &POINTS);
            let single = both_ways(unary, &POINTS.map(|x| x as f32));
            for ((&f, &s), e) in found.iter().zip(&single).zip(expected) {
                assert!((f - e).abs() <= 1e-15 * e.abs().max(1.0), "{unary:?}: {f} {e}");
                assert!((s as f64 - e).abs() <= 3e-7 * e.abs().max(1e-3), "{unary:?}: {s} {e}");
            }
        }
    }

    #[test]
    fn long_values_are_mapped_to_the_last_element() {
        let x: Vec<f32> = (0..100_003).map(|i| i as f32 - 50_000.0).collect();
        let expected: Vec<f32> = x.iter().map(|&v| if v > 0.0 { v } else { 0.0 }).collect();
        assert_eq!(both_ways(Unary::Relu, &x), expected);
    }

    #[test]
    fn nan_goes_through_and_extremes_stay_finite() {
        for (unary, _) in GOLDEN {
            assert!(both_ways(unary, &[f64::NAN])[0].is_nan(), "{unary:?}");
        }
        for unary in [Unary::Sigmoid, Unary::Softplus, Unary::Silu, Unary::Mish, Unary::Gelu] {
            let found = both_ways(unary, &[-1e4f32, -200.0, -100.0, 100.0, 1e4]);
            assert!(found.iter().all(|v| v.is_finite() && v.abs() <= 1e4), "{unary:?}: {found:?}");
            assert_eq!((found[0].abs() < 1e-30, found[3] >= 1.0), (true, true), "{unary:?}: {found:?}");
        }
    }

    #[test]
    fn integers_and_truth_values_have_their_own_functions() {
        let shape = [4];
        let int = |unary| {
            let mut out = [0; 4];
            let view = View::<f32> { shape: &shape, data: Slice::Int(&[-5, 0, 3, i64::MIN]) };
            let mut target = ViewMut { shape: &shape, data: SliceMut::Int(&mut out) };
            apply(unary, &view, &mut target).map(|()| out)
        };
        assert_eq!(int(Unary::Sign).unwrap(), [-1, 0, 1, -1]);
        assert_eq!(int(Unary::Relu).unwrap(), [0, 0, 3, 0]);
        assert_eq!(int(Unary::Neg).unwrap()[..3], [5, 0, -3]);
        let clip = Unary::Clip { min: -2.0, max: f64::INFINITY };
        assert_eq!(int(clip).unwrap(), [-2, 0, 3, -2]);
        assert!(int(Unary::Exp).is_err());
    }

    /// Printed by `scripts/make_engine_values.py`.
    const POINTS: [f64; 7] = [-3.0, -1.0, -0.25, 0.0, 0.5, 2.0, 7.0];
    const GOLDEN: [(Unary, [f64; 7]); 25] = [
        (Unary::Relu, [0.0, 0.0, 0.0, 0.0, 0.5, 2.0, 7.0]),
        (Unary::LeakyRelu { slope: 0.1 }, [-0.30000000000000004, -0.1, -0.025, 0.0, 0.5, 2.0, 7.0]),
        (
            Unary::Elu { alpha: 1.5 },
            [-1.4253193974482041, -0.9481808382428365, -0.3317988253928927, 0.0, 0.5, 2.0, 7.0],
        ),
        (
            Unary::Selu { alpha: 1.6732632423543772, gamma: 1.0507009873554805 },
            [
                -1.6705687287671118,
                -1.1113307378125625,
                -0.388890197478119,
                0.0,
                0.5253504936777402,
                2.101401974710961,
                7.354906911488364,
            ],
        ),
        (
            Unary::Celu { alpha: 0.7 },
            [-0.6903653492868647, -0.532244274490757, -0.21022922383740877, 0.0, 0.5, 2.0, 7.0],
        ),
        (
            Unary::Sigmoid,
            [
                0.04742587317756678,
                0.2689414213699951,
                0.43782349911420193,
                0.5,
                0.6224593312018546,
                0.8807970779778823,
                0.9990889488055994,
            ],
        ),
        (
            Unary::Tanh,
            [
                -0.9950547536867305,
                -0.7615941559557649,
                -0.24491866240370913,
                0.0,
                0.46211715726000974,
                0.9640275800758169,
                0.9999983369439447,
            ],
        ),
        (
            Unary::Softplus,
            [
                0.04858735157374206,
                0.31326168751822286,
                0.5759394198788436,
                std::f64::consts::LN_2,
                0.9740769841801067,
                2.1269280110429727,
                7.000911466453774,
            ],
        ),
        (
            Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 },
            [0.0, 0.3333333333333333, 0.4583333333333333, 0.5, 0.5833333333333334, 0.8333333333333334, 1.0],
        ),
        (
            Unary::HardSwish,
            [
                0.0,
                -0.3333333333333333,
                -0.11458333333333333,
                0.0,
                0.2916666666666667,
                1.6666666666666667,
                7.0,
            ],
        ),
        (
            Unary::Silu,
            [
                -0.14227761953270035,
                -0.2689414213699951,
                -0.10945587477855048,
                0.0,
                0.3112296656009273,
                1.7615941559557646,
                6.993622641639196,
            ],
        ),
        (
            Unary::Gelu,
            [
                -0.00404969409489031,
                -0.15865525393145702,
                -0.10032341857926907,
                0.0,
                0.34573123063700656,
                1.9544997361036416,
                6.999999999991041,
            ],
        ),
        (
            Unary::GeluTanh,
            [
                -0.0036373920817729943,
                -0.15880800939172324,
                -0.100324649298315,
                0.0,
                0.34571400982514394,
                1.954597694087775,
                6.999999999999997,
            ],
        ),
        (
            Unary::Erf,
            [
                -0.9999779095030014,
                -0.8427007929497149,
                -0.27632639016823696,
                0.0,
                0.5204998778130465,
                0.9953222650189527,
                1.0,
            ],
        ),
        (
            Unary::Mish,
            [
                -0.1456474612756246,
                -0.30340146137410895,
                -0.129926963679141,
                0.0,
                0.3752452113048951,
                1.9439589595339946,
                6.999988379809741,
            ],
        ),
        (Unary::Neg, [3.0, 1.0, 0.25, 0.0, -0.5, -2.0, -7.0]),
        (Unary::Abs, [3.0, 1.0, 0.25, 0.0, 0.5, 2.0, 7.0]),
        (
            Unary::Exp,
            [
                0.049787068367863944,
                0.36787944117144233,
                0.7788007830714049,
                1.0,
                1.6487212707001282,
                7.38905609893065,
                1096.6331584284585,
            ],
        ),
        (
            Unary::Sin,
            [
                -0.1411200080598672,
                -0.8414709848078965,
                -0.24740395925452294,
                0.0,
                0.479425538604203,
                0.9092974268256817,
                0.6569865987187891,
            ],
        ),
        (
            Unary::Cos,
            [
                -0.9899924966004454,
                0.5403023058681398,
                0.9689124217106447,
                1.0,
                0.8775825618903728,
                -0.4161468365471424,
                0.7539022543433046,
            ],
        ),
        (Unary::Sign, [-1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 1.0]),
        (Unary::Floor, [-3.0, -1.0, -1.0, 0.0, 0.0, 2.0, 7.0]),
        (Unary::Ceil, [-3.0, -1.0, 0.0, 0.0, 1.0, 2.0, 7.0]),
        (Unary::Round, [-3.0, -1.0, 0.0, 0.0, 0.0, 2.0, 7.0]),
        (Unary::Clip { min: -0.5, max: 6.0 }, [-0.5, -0.5, -0.25, 0.0, 0.5, 2.0, 6.0]),
    ];
}

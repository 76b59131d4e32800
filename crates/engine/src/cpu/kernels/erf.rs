//! The error function to double precision, after W. J. Cody, "Rational Chebyshev Approximations for the
//! Error Function", Mathematics of Computation 23 (1969).

const A: [f64; 5] = [
    3.161_123_743_870_565_6e0,
    1.138_641_541_510_501_6e2,
    3.774_852_376_853_020_2e2,
    3.209_377_589_138_469_5e3,
    1.857_777_061_846_031_5e-1,
];
const B: [f64; 4] = [
    2.360_129_095_234_412_1e1,
    2.440_246_379_344_441_7e2,
    1.282_616_526_077_372_3e3,
    2.844_236_833_439_171e3,
];
const C: [f64; 9] = [
    5.641_884_969_886_700_9e-1,
    8.883_149_794_388_376,
    6.611_919_063_714_163e1,
    2.986_351_381_974_001_3e2,
    8.819_522_212_417_691e2,
    1.712_047_612_634_070_6e3,
    2.051_078_377_826_071_5e3,
    1.230_339_354_797_997_2e3,
    2.153_115_354_744_038_5e-8,
];
const D: [f64; 8] = [
    1.574_492_611_070_983_5e1,
    1.176_939_508_913_125e2,
    5.371_811_018_620_099e2,
    1.621_389_574_566_690_2e3,
    3.290_799_235_733_459_6e3,
    4.362_619_090_143_247e3,
    3.439_367_674_143_721_6e3,
    1.230_339_354_803_749_4e3,
];
const P: [f64; 6] = [
    3.053_266_349_612_323_4e-1,
    3.603_448_999_498_044_4e-1,
    1.257_817_261_112_292_5e-1,
    1.608_378_514_874_228e-2,
    6.587_491_615_298_378e-4,
    1.631_538_713_730_21e-2,
];
const Q: [f64; 5] = [
    2.568_520_192_289_822,
    1.872_952_849_923_460_5,
    5.279_051_029_514_284e-1,
    6.051_834_131_244_132e-2,
    2.335_204_976_268_691_8e-3,
];

/// Below this the error function itself is approximated, above it its complement.
const SMALL: f64 = 0.46875;
const ONE_OVER_SQRT_PI: f64 = 0.564_189_583_547_756_3;

fn small(x: f64) -> f64 {
    let z = x * x;
    let (mut numerator, mut denominator) = (A[4] * z, z);
    for i in 0..3 {
        numerator = (numerator + A[i]) * z;
        denominator = (denominator + B[i]) * z;
    }
    x * (numerator + A[3]) / (denominator + B[3])
}

/// `1 − erf(y)` for `y` above [`SMALL`].
fn complement(y: f64) -> f64 {
    let ratio = if y <= 4.0 {
        let (mut numerator, mut denominator) = (C[8] * y, y);
        for i in 0..7 {
            numerator = (numerator + C[i]) * y;
            denominator = (denominator + D[i]) * y;
        }
        (numerator + C[7]) / (denominator + D[7])
    } else {
        let z = 1.0 / (y * y);
        let (mut numerator, mut denominator) = (P[5] * z, z);
        for i in 0..4 {
            numerator = (numerator + P[i]) * z;
            denominator = (denominator + Q[i]) * z;
        }
        let tail = z * (numerator + P[4]) / (denominator + Q[4]);
        (ONE_OVER_SQRT_PI - tail) / y
    };
    // e^(−y²) with y² split, because rounding y² alone would cost its magnitude in relative error.
    let head = (y * 16.0).trunc() / 16.0;
    let rest = (y - head) * (y + head);
    (-head * head).exp() * (-rest).exp() * ratio
}

/// The error function.
pub(crate) fn erf(x: f64) -> f64 {
    match x.abs() {
        y if y <= SMALL => small(x),
        y if y < 6.0 => (1.0 - complement(y)).copysign(x),
        y if y.is_nan() => x,
        _ => 1f64.copysign(x),
    }
}

/// `1 − erf(x)`, to full relative precision where it is tiny.
pub(crate) fn erfc(x: f64) -> f64 {
    match x.abs() {
        y if y <= SMALL => 1.0 - small(x),
        y if y.is_nan() => x,
        y if y > 27.5 => {
            if x > 0.0 {
                0.0
            } else {
                2.0
            }
        }
        y if x > 0.0 => complement(y),
        y => 2.0 - complement(y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `erf` by its Taylor series in exact-enough arithmetic: terms are summed from the smallest.
    fn series(x: f64) -> f64 {
        let mut terms = Vec::new();
        let (mut power, mut n) = (x, 0);
        while power.abs() > 1e-40 && n < 400 {
            terms.push(power / (2 * n + 1) as f64);
            n += 1;
            power *= -x * x / n as f64;
        }
        2.0 / std::f64::consts::PI.sqrt() * terms.iter().rev().sum::<f64>()
    }

    /// `erfc` by its continued fraction (Lentz run backwards), for large arguments.
    fn fraction(x: f64) -> f64 {
        let mut tail = 0.0;
        for k in (1..400).rev() {
            tail = k as f64 / 2.0 / (x + tail);
        }
        (-x * x).exp() / std::f64::consts::PI.sqrt() / (x + tail)
    }

    #[test]
    fn it_agrees_with_the_series_and_the_continued_fraction() {
        for i in -200..=200 {
            let x = i as f64 / 100.0;
            assert!((erf(x) - series(x)).abs() <= 4e-15, "{x}: {} {}", erf(x), series(x));
        }
        for i in 200..2600 {
            let x = i as f64 / 100.0;
            let expected = fraction(x);
            assert!((erfc(x) / expected - 1.0).abs() < 1e-12 * (1.0 + x * x / 10.0), "{x}");
        }
    }

    /// Values of Python's `math.erf` and `math.erfc`.
    #[test]
    fn it_agrees_with_the_c_library() {
        let values = [
            (0.1, 0.1124629160182849, 0.8875370839817152),
            (0.46875, 0.49261347321793797, 0.507386526782062),
            (0.5, 0.5204998778130465, 0.4795001221869535),
            (1.0, 0.8427007929497149, 0.15729920705028513),
            (2.5, 0.999593047982555, 0.0004069520174449589),
            (4.0, 0.9999999845827421, 1.541725790028002e-08),
            (5.5, 0.9999999999999927, 7.357847917974398e-15),
            (10.0, 1.0, 2.088487583762545e-45),
        ];
        for (x, e, c) in values {
            assert!((erf(x) - e).abs() <= 3e-16, "{x}");
            assert!((erfc(x) / c - 1.0).abs() <= 2e-15, "{x}: {} {c}", erfc(x));
            assert_eq!(erf(-x), -erf(x));
            assert!((erfc(-x) - (2.0 - c)).abs() <= 5e-16);
        }
        assert!(erf(f64::NAN).is_nan() && erfc(f64::NAN).is_nan());
        assert_eq!((erf(f64::INFINITY), erfc(f64::INFINITY), erfc(f64::NEG_INFINITY)), (1.0, 0.0, 2.0));
    }
}

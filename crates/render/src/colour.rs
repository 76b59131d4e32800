//! Colours for values: a diverging and a sequential map, perceptually even and safe for colour-blind eyes.
//!
//! Each arm is a smooth curve through a few control points in OKLab (Ottosson 2020), walked at constant
//! speed there. Zero is the same light neutral in both maps and more is always darker, so that two pictures
//! side by side can be compared whatever the signs of their values. The two arms of the diverging map share
//! one course of lightness and chroma and differ in hue only: ±v differ in colour but never in weight.

use std::sync::OnceLock;

/// Red, green and blue, gamma-encoded as in sRGB.
pub type Rgb = [u8; 3];

/// Colour of values that are NaN or infinite: black, which no map comes near for any kind of eye.
pub const NOT_FINITE: Rgb = [0, 0, 0];

/// Number of colours of one arm, zero and the end included.
const SHADES: usize = 256;

/// A way of turning numbers into colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColourMap {
    /// From blue (-1) over light neutral (0) to orange-red (1), for values with a sign.
    Diverging,
    /// From light neutral (0) over yellow, orange and red to dark purple (1), for amounts.
    Sequential,
}

impl ColourMap {
    /// The colour of `position`, which is held within [-1, 1] for the diverging map and [0, 1] for the
    /// sequential one; NaN has the colour [`NOT_FINITE`].
    pub fn at(self, position: f64) -> Rgb {
        if position.is_nan() {
            return NOT_FINITE;
        }
        let arms = arms();
        let (arm, distance) = match self {
            ColourMap::Diverging if position < 0.0 => (&arms.negative, -position),
            ColourMap::Diverging => (&arms.positive, position),
            ColourMap::Sequential => (&arms.sequential, position),
        };
        let shade = (distance.clamp(0.0, 1.0) * (SHADES - 1) as f64).round() as usize;
        arm[shade.min(SHADES - 1)]
    }
}

struct Arms {
    negative: [Rgb; SHADES],
    positive: [Rgb; SHADES],
    sequential: [Rgb; SHADES],
}

fn arms() -> &'static Arms {
    static ARMS: OnceLock<Arms> = OnceLock::new();
    ARMS.get_or_init(|| Arms {
        negative: shades(&NEGATIVE),
        positive: shades(&POSITIVE),
        sequential: shades(&SEQUENTIAL),
    })
}

/// Lightness, chroma and hue in degrees: the polar form of OKLab.
type Lch = (f64, f64, f64);
type Lab = [f64; 3];

const NEGATIVE: [Lch; 5] = diverging_arm(260.0);
const POSITIVE: [Lch; 5] = diverging_arm(35.0);
const SEQUENTIAL: [Lch; 7] = [
    (0.965, 0.0, 90.0),
    (0.89, 0.10, 94.0),
    (0.78, 0.15, 74.0),
    (0.66, 0.175, 48.0),
    (0.53, 0.185, 22.0),
    (0.40, 0.15, 2.0),
    (0.28, 0.11, 335.0),
];

const fn diverging_arm(hue: f64) -> [Lch; 5] {
    [(0.965, 0.0, hue), (0.85, 0.065, hue), (0.72, 0.13, hue), (0.58, 0.178, hue), (0.44, 0.15, hue)]
}

/// The curve through `points` at [`SHADES`] places that are equally far apart along it.
fn shades(points: &[Lch]) -> [Rgb; SHADES] {
    let curve = curve(points);
    let mut reached = Vec::with_capacity(curve.len());
    let mut length = 0.0;
    for (i, place) in curve.iter().enumerate() {
        length += if i == 0 { 0.0 } else { distance(*place, curve[i - 1]) };
        reached.push(length);
    }
    std::array::from_fn(|shade| {
        let wanted = length * shade as f64 / (SHADES - 1) as f64;
        let after = reached.partition_point(|&l| l < wanted).clamp(1, curve.len() - 1);
        let step = (wanted - reached[after - 1]) / (reached[after] - reached[after - 1]);
        let lab =
            std::array::from_fn(|i| curve[after - 1][i] + step * (curve[after][i] - curve[after - 1][i]));
        encode(linear_rgb(lab))
    })
}

/// A Catmull–Rom curve through `points`, finely sampled.
fn curve(points: &[Lch]) -> Vec<Lab> {
    const SAMPLES: usize = 64;
    let labs: Vec<Lab> = points
        .iter()
        .map(|&(lightness, chroma, hue)| {
            let (sine, cosine) = hue.to_radians().sin_cos();
            [lightness, chroma * cosine, chroma * sine]
        })
        .collect();
    let last = labs.len() - 1;
    // Beyond either end the curve is continued straight.
    let beyond = |end: Lab, before: Lab| -> Lab { std::array::from_fn(|i| 2.0 * end[i] - before[i]) };
    let mut curve = vec![labs[0]];
    for k in 0..last {
        let (b, c) = (labs[k], labs[k + 1]);
        let a = if k == 0 { beyond(b, c) } else { labs[k - 1] };
        let d = if k + 1 == last { beyond(c, b) } else { labs[k + 2] };
        curve.extend((1..=SAMPLES).map(|sample| {
            let t = sample as f64 / SAMPLES as f64;
            std::array::from_fn(|i| {
                let bend = 2.0 * a[i] - 5.0 * b[i] + 4.0 * c[i] - d[i];
                let twist = 3.0 * b[i] - a[i] - 3.0 * c[i] + d[i];
                0.5 * (2.0 * b[i] + t * (c[i] - a[i] + t * (bend + t * twist)))
            })
        }));
    }
    curve
}

fn distance(a: Lab, b: Lab) -> f64 {
    (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
}

/// Linear-light sRGB of an OKLab colour, with the matrices of its definition.
fn linear_rgb([lightness, a, b]: Lab) -> [f64; 3] {
    let l = (lightness + 0.3963377774 * a + 0.2158037573 * b).powi(3);
    let m = (lightness - 0.1055613458 * a - 0.0638541728 * b).powi(3);
    let s = (lightness - 0.0894841775 * a - 1.2914855480 * b).powi(3);
    [
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    ]
}

fn encode(linear: [f64; 3]) -> Rgb {
    linear.map(|light| {
        let light = light.clamp(0.0, 1.0);
        let encoded = if light <= 0.0031308 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
        (encoded * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour_vision::{EYES, Eye, FULL_SIGHT, cielab, seen};

    fn arm(map: ColourMap, sign: f64, steps: usize, eye: &Eye) -> Vec<Lab> {
        (0..=steps).map(|i| seen(map.at(sign * i as f64 / steps as f64), eye)).collect()
    }

    const ARMS: [(ColourMap, f64); 3] =
        [(ColourMap::Diverging, -1.0), (ColourMap::Diverging, 1.0), (ColourMap::Sequential, 1.0)];

    #[test]
    fn every_arm_starts_at_the_same_neutral_and_darkens_steadily_for_every_eye() {
        for (map, sign) in ARMS {
            assert_eq!(map.at(0.0), ColourMap::Diverging.at(-0.0));
            for eye in &EYES {
                let colours = arm(map, sign, 64, eye);
                assert!(colours.windows(2).all(|pair| pair[1][0] < pair[0][0]), "{map:?} {sign}");
            }
        }
        let [r, g, b] = ColourMap::Sequential.at(0.0);
        assert!(r == g && g == b && r > 235);
    }

    #[test]
    fn equal_magnitudes_of_either_sign_are_equally_light_and_equally_vivid() {
        let (negative, positive) = (
            arm(ColourMap::Diverging, -1.0, 255, &FULL_SIGHT),
            arm(ColourMap::Diverging, 1.0, 255, &FULL_SIGHT),
        );
        for (n, p) in negative.iter().zip(&positive) {
            assert!((n[0] - p[0]).abs() < 0.004, "{n:?} {p:?}");
            assert!((n[1].hypot(n[2]) - p[1].hypot(p[2])).abs() < 0.006, "{n:?} {p:?}");
        }
    }

    #[test]
    fn equal_steps_of_the_value_are_equal_steps_for_the_eye() {
        for (map, sign) in ARMS {
            let colours = arm(map, sign, 15, &FULL_SIGHT);
            let steps: Vec<f64> = colours.windows(2).map(|pair| distance(pair[0], pair[1])).collect();
            let (least, most) = steps.iter().fold((f64::MAX, 0f64), |(l, m), &s| (l.min(s), m.max(s)));
            assert!(most / least < 1.15, "{map:?} {sign}: {steps:?}");
        }
    }

    #[test]
    fn cielab_too_sees_every_arm_darken_in_even_steps() {
        for (map, sign) in ARMS {
            let lightness: Vec<f64> =
                (0..=15).map(|i| cielab(map.at(sign * f64::from(i) / 15.0))[0]).collect();
            let steps: Vec<f64> = lightness.windows(2).map(|pair| pair[0] - pair[1]).collect();
            let (least, most) = steps.iter().fold((f64::MAX, 0f64), |(l, m), &s| (l.min(s), m.max(s)));
            // The sequential map spends some of its first steps on turning from grey to yellow.
            let bound = if map == ColourMap::Diverging { 1.25 } else { 1.9 };
            assert!(least > 3.0 && most / least < bound, "{map:?} {sign}: {steps:?}");
        }
    }

    #[test]
    fn zero_is_neutral_and_both_signs_are_equally_dark_to_cielab() {
        let [_, a, b] = cielab(ColourMap::Diverging.at(0.0));
        assert!(a.abs() < 0.1 && b.abs() < 0.1);
        for i in 0..=64 {
            let [n, p] =
                [-1.0, 1.0].map(|sign| cielab(ColourMap::Diverging.at(sign * f64::from(i) / 64.0))[0]);
            assert!((n - p).abs() < 4.0, "{i}: {n} {p}");
        }
    }

    #[test]
    fn an_eighth_of_a_scale_is_a_difference_that_every_eye_sees() {
        for eye in &EYES {
            for (map, sign) in ARMS {
                for pair in arm(map, sign, 8, eye).windows(2) {
                    assert!(distance(pair[0], pair[1]) > 0.04, "{map:?} {sign} {pair:?}");
                }
            }
        }
    }

    #[test]
    fn the_two_signs_stay_apart_for_colour_blind_eyes() {
        for eye in &EYES {
            let negative = arm(ColourMap::Diverging, -1.0, 64, eye);
            let positive = arm(ColourMap::Diverging, 1.0, 64, eye);
            // A just noticeable difference is about 0.02.
            for (n, p) in negative.iter().zip(&positive).skip(16) {
                assert!(positive.iter().all(|p| distance(*n, *p) > 0.04), "{n:?}");
                assert!(distance(*n, *p) > 0.1, "{n:?} {p:?}");
            }
        }
    }

    #[test]
    fn the_colour_of_what_is_not_finite_is_far_from_every_other_for_every_eye() {
        for eye in &EYES {
            for (map, sign) in ARMS {
                for colour in arm(map, sign, 255, eye) {
                    assert!(distance(colour, seen(NOT_FINITE, eye)) > 0.22);
                }
            }
        }
        assert_eq!(ColourMap::Diverging.at(f64::NAN), NOT_FINITE);
    }

    #[test]
    fn the_curves_stay_within_what_a_screen_can_show() {
        for points in [&NEGATIVE[..], &POSITIVE[..], &SEQUENTIAL[..]] {
            for place in curve(points) {
                assert!(linear_rgb(place).iter().all(|v| (-1e-4..=1.0).contains(v)), "{place:?}");
            }
        }
    }
}

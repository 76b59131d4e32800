//! Changing the resolution, one axis at a time: every interpolation here is separable.

use monosplit_graph::op::{Coordinates, Interpolation, ResizeAxis, Taps};

use super::chunks::for_each_chunk;
use crate::cpu::real::Real;
use crate::cpu::unwinding::filled;

/// Resizes `x` along every axis listed.
pub(crate) fn resize<R: Real>(
    axes: &[ResizeAxis],
    interpolation: Interpolation,
    coordinates: Coordinates,
    (x, shape): (&[R], &[usize]),
    out: &mut [R],
) {
    let axes = ResizeAxis::shrinking_first(axes, shape);
    let Some((last, rest)) = axes.split_last() else { return out.copy_from_slice(x) };
    let mut shape = shape.to_vec();
    let mut current: Option<Vec<R>> = None;
    for axis in rest {
        let mut resized_shape = shape.clone();
        resized_shape[axis.axis] = axis.length;
        let mut resized = filled(R::ZERO, resized_shape.iter().product());
        along(axis, interpolation, coordinates, (current.as_deref().unwrap_or(x), &shape), &mut resized);
        (shape, current) = (resized_shape, Some(resized));
    }
    along(last, interpolation, coordinates, (current.as_deref().unwrap_or(x), &shape), out);
}

fn along<R: Real>(
    axis: &ResizeAxis,
    interpolation: Interpolation,
    coordinates: Coordinates,
    (x, shape): (&[R], &[usize]),
    out: &mut [R],
) {
    let length = shape[axis.axis];
    let inner: usize = shape[axis.axis + 1..].iter().product();
    let table = axis.taps(interpolation, coordinates, length);
    let in_precision = |taps: Taps| taps.into_iter().map(|(at, w)| (at, R::from_f64(w))).collect();
    let table: Vec<Vec<(usize, R)>> = table.into_iter().map(in_precision).collect();
    for_each_chunk(out, axis.length * inner, &|index, out| {
        let x = &x[index * length * inner..][..length * inner];
        for (out, taps) in out.chunks_mut(inner).zip(&table) {
            if let [(at, weight)] = taps[..]
                && weight == R::ONE
            {
                out.copy_from_slice(&x[at * inner..(at + 1) * inner]);
                continue;
            }
            out.fill(R::ZERO);
            for &(at, weight) in taps {
                for (o, &x) in out.iter_mut().zip(&x[at * inner..]) {
                    *o += x * weight;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Rounding;

    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close};

    const ROW: [f64; 5] = [0.3, -1.2, 2.5, 0.7, 4.0];

    fn resized(length: usize, interpolation: Interpolation, coordinates: Coordinates) -> Vec<f64> {
        let axis = ResizeAxis { axis: 1, length, scale: length as f64 / 5.0 };
        let mut out = vec![0.0; length];
        resize(&[axis], interpolation, coordinates, (&ROW, &[1, 5]), &mut out);
        out
    }

    /// Printed by `scripts/make_engine_values.py`.
    #[test]
    fn values_are_pytorchs() {
        use Coordinates::{AlignCorners, Asymmetric, HalfPixel};
        let cubic = Interpolation::Cubic { coefficient: -0.75, exclude_outside: false };
        let floor = Interpolation::Nearest(Rounding::Floor);
        let exact = Interpolation::Nearest(Rounding::PreferCeil);
        let cases: [(Interpolation, Coordinates, &[f64]); 12] = [
            (
                Interpolation::Linear,
                HalfPixel,
                &[0.3, -0.35625, -0.96875, 1.34375, 1.9375, 0.8125, 2.55625, 4.0],
            ),
            (
                Interpolation::Linear,
                AlignCorners,
                &[
                    0.3,
                    -0.557142857142857,
                    -0.6714285714285716,
                    1.4428571428571426,
                    1.985714285714286,
                    0.9571428571428577,
                    2.1142857142857134,
                    4.0,
                ],
            ),
            (
                cubic,
                HalfPixel,
                &[
                    0.439251708984375,
                    -0.643487548828125,
                    -1.073028564453125,
                    1.542144775390625,
                    2.21746826171875,
                    0.66363525390625,
                    2.436279296875,
                    4.306353759765625,
                ],
            ),
            (
                cubic,
                AlignCorners,
                &[
                    0.3,
                    -0.9586005830903789,
                    -0.8467930029154515,
                    1.654956268221574,
                    2.285276967930032,
                    0.7065597667638464,
                    1.8965014577259458,
                    4.0,
                ],
            ),
            (floor, Asymmetric, &[0.3, 0.3, -1.2, -1.2, 2.5, 0.7, 0.7, 4.0]),
            (exact, HalfPixel, &[0.3, 0.3, -1.2, 2.5, 2.5, 0.7, 4.0, 4.0]),
            (Interpolation::Linear, HalfPixel, &[-0.2, 2.5, 2.9]),
            (Interpolation::Linear, AlignCorners, &[0.3, 2.5, 4.0]),
            (cubic, HalfPixel, &[-0.37777777777777855, 2.5, 2.8611111111111134]),
            (cubic, AlignCorners, &[0.3, 2.5, 4.0]),
            (floor, Asymmetric, &[0.3, -1.2, 0.7]),
            (exact, HalfPixel, &[0.3, 2.5, 4.0]),
        ];
        for (interpolation, coordinates, expected) in cases {
            assert_close(&resized(expected.len(), interpolation, coordinates), expected, 1e-14);
        }
    }

    #[test]
    fn axes_are_resized_one_after_the_other_and_keep_planes_apart() {
        let x = Random::new(17).reals::<f64>(2 * 3 * 4);
        let axis =
            |axis, length, from: usize| ResizeAxis { axis, length, scale: length as f64 / from as f64 };
        let (rows, columns) = (axis(1, 5, 3), axis(2, 7, 4));
        let (linear, half) = (Interpolation::Linear, Coordinates::HalfPixel);
        let mut both = vec![0.0; 2 * 5 * 7];
        resize(&[rows, columns], linear, half, (&x, &[2, 3, 4]), &mut both);
        let mut swapped = vec![0.0; both.len()];
        resize(&[columns, rows], linear, half, (&x, &[2, 3, 4]), &mut swapped);
        assert_close(&both, &swapped, 1e-14);
        let mut second = vec![0.0; 5 * 7];
        resize(&[rows, columns], linear, half, (&x[12..], &[1, 3, 4]), &mut second);
        assert_eq!(second, both[35..]);
    }

    #[test]
    fn excluded_taps_leave_weights_that_sum_to_one() {
        let cubic = Interpolation::Cubic { coefficient: -0.5, exclude_outside: true };
        let axis = ResizeAxis { axis: 0, length: 9, scale: 3.0 };
        let mut out = vec![0.0; 9];
        resize(&[axis], cubic, Coordinates::HalfPixel, (&[2.5; 3], &[3]), &mut out);
        assert_close(&out, &[2.5; 9], 1e-14);
    }
}

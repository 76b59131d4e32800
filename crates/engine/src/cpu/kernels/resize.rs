//! Changing the resolution, one axis at a time: every interpolation here is separable.

use monosplit_graph::op::{Coordinates, Interpolation, ResizeAxis, Rounding};
use rayon::prelude::*;

use crate::cpu::real::Real;

/// The input elements an output element is made of, and their weights.
type Taps = Vec<(usize, f64)>;

/// Where output element `place` lies in input coordinates.
fn coordinate(coordinates: Coordinates, axis: &ResizeAxis, length: usize, place: usize) -> f64 {
    let x = place as f64;
    match coordinates {
        Coordinates::PytorchHalfPixel if axis.length == 1 => 0.0,
        Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => (x + 0.5) / axis.scale - 0.5,
        Coordinates::AlignCorners if axis.length == 1 => 0.0,
        Coordinates::AlignCorners => x * (length - 1) as f64 / (axis.length - 1) as f64,
        Coordinates::Asymmetric => x / axis.scale,
    }
}

fn nearest(rounding: Rounding, x: f64, length: usize) -> usize {
    // Peers compute this in single precision; in double, a coordinate such as 3/0.6 would fall just short of
    // the integer it stands for.
    let x = x as f32;
    let rounded = match rounding {
        Rounding::PreferFloor => (x - 0.5).ceil(),
        Rounding::PreferCeil => (x + 0.5).floor(),
        Rounding::Floor => x.floor(),
        Rounding::Ceil => x.ceil(),
    };
    (rounded.max(0.0) as usize).min(length - 1)
}

fn cubic(coefficient: f64, exclude_outside: bool, x: f64, length: usize) -> Taps {
    let a = coefficient;
    let weight = |distance: f64| match distance.abs() {
        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((d - 5.0) * d + 8.0) * d * a - 4.0 * a,
        _ => 0.0,
    };
    let floor = x.floor();
    let mut taps: Taps = Vec::with_capacity(4);
    for offset in -1..=2 {
        let at = floor + offset as f64;
        let inside = at >= 0.0 && at < length as f64;
        if inside || !exclude_outside {
            taps.push((at.clamp(0.0, (length - 1) as f64) as usize, weight(x - at)));
        }
    }
    if exclude_outside {
        let total: f64 = taps.iter().map(|tap| tap.1).sum();
        taps.iter_mut().for_each(|tap| tap.1 /= total);
    }
    taps
}

fn taps(interpolation: Interpolation, x: f64, length: usize) -> Taps {
    match interpolation {
        Interpolation::Nearest(rounding) => vec![(nearest(rounding, x, length), 1.0)],
        Interpolation::Linear => {
            let x = x.clamp(0.0, (length - 1) as f64);
            let low = x as usize;
            let share = x - low as f64;
            match share {
                0.0 => vec![(low, 1.0)],
                _ => vec![(low, 1.0 - share), ((low + 1).min(length - 1), share)],
            }
        }
        Interpolation::Cubic { coefficient, exclude_outside } => {
            cubic(coefficient, exclude_outside, x, length)
        }
    }
}

/// Resizes `x` along every axis listed.
pub(crate) fn resize<R: Real>(
    axes: &[ResizeAxis],
    interpolation: Interpolation,
    coordinates: Coordinates,
    (x, shape): (&[R], &[usize]),
    out: &mut [R],
) {
    let Some((last, rest)) = axes.split_last() else { return out.copy_from_slice(x) };
    let mut shape = shape.to_vec();
    let mut current: Option<Vec<R>> = None;
    for axis in rest {
        let mut resized_shape = shape.clone();
        resized_shape[axis.axis] = axis.length;
        let mut resized = vec![R::ZERO; resized_shape.iter().product()];
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
    let table: Vec<Vec<(usize, R)>> = (0..axis.length)
        .map(|place| {
            let x = coordinate(coordinates, axis, length, place);
            taps(interpolation, x, length).into_iter().map(|(at, w)| (at, R::from_f64(w))).collect()
        })
        .collect();
    out.par_chunks_mut(axis.length * inner).zip(x.par_chunks(length * inner)).for_each(|(out, x)| {
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

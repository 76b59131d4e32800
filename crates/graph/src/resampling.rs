//! Interpolation weights of a resize. Every interpolation here is separable, so one axis is resized at a time. Passes,
//! derivatives and engines all take the weights from here.

use crate::op::{Coordinates, Interpolation, ResizeAxis, Rounding};

/// The input elements an output element is made of, and their weights.
pub type Taps = Vec<(usize, f64)>;

impl ResizeAxis {
    /// The taps of every output element of the axis, which was `length` elements long.
    pub fn taps(&self, interpolation: Interpolation, coordinates: Coordinates, length: usize) -> Vec<Taps> {
        let at = |position| taps(interpolation, coordinate(coordinates, self, length, position), length);
        (0..self.length).map(at).collect()
    }

    /// The taps of an antialiased resize: where it shrinks, the kernel is as much wider as the axis is shorter. Elements outside
    /// are the nearest inside, or left out. None for nearest neighbours, which have no kernel.
    pub fn antialiased_taps(
        &self,
        interpolation: Interpolation,
        coordinates: Coordinates,
        length: usize,
        exclude_outside: bool,
    ) -> Option<Vec<Taps>> {
        let (reach, kernel): (f64, Box<dyn Fn(f64) -> f64>) = match interpolation {
            Interpolation::Nearest(_) => return None,
            Interpolation::Linear => (1.0, Box::new(|x: f64| (1.0 - x.abs()).max(0.0))),
            Interpolation::Cubic { coefficient, .. } => (2.0, Box::new(move |x| keys(x, coefficient))),
        };
        let wide = (1.0 / self.scale).max(1.0);
        let taps = (0..self.length).map(|position| {
            let centre = coordinate(coordinates, self, length, position);
            let (low, high) = (centre - reach * wide, centre + reach * wide);
            let ends = (low.ceil() as i64, high.floor() as i64);
            let inside = (0, length as i64 - 1);
            let shown = if exclude_outside { (ends.0.max(inside.0), ends.1.min(inside.1)) } else { ends };
            let mut weighed: Taps = Vec::new();
            for at in shown.0..=shown.1 {
                let weight = kernel((at as f64 - centre) / wide);
                let from = at.clamp(inside.0, inside.1) as usize;
                match weighed.last_mut().filter(|(last, _)| *last == from) {
                    Some((_, sum)) => *sum += weight,
                    None => weighed.push((from, weight)),
                }
            }
            let total: f64 = weighed.iter().map(|tap| tap.1).sum();
            weighed.into_iter().map(|(from, weight)| (from, weight / total)).collect()
        });
        Some(taps.collect())
    }

    /// The order in which the axes of a value of this shape are resized. Shrinking first keeps every intermediate value no
    /// larger than the larger of input and output.
    pub fn shrinking_first(axes: &[ResizeAxis], shape: &[usize]) -> Vec<ResizeAxis> {
        let mut axes = axes.to_vec();
        let growth = |axis: &ResizeAxis| axis.length as f64 / shape[axis.axis] as f64;
        axes.sort_by(|a, b| growth(a).total_cmp(&growth(b)));
        axes
    }
}

/// The input coordinate of output element `position`.
fn coordinate(coordinates: Coordinates, axis: &ResizeAxis, length: usize, position: usize) -> f64 {
    let x = position as f64;
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

/// Keys' cubic kernel.
fn keys(distance: f64, a: f64) -> f64 {
    match distance.abs() {
        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((d - 5.0) * d + 8.0) * d * a - 4.0 * a,
        _ => 0.0,
    }
}

fn cubic(coefficient: f64, exclude_outside: bool, x: f64, length: usize) -> Taps {
    let weight = |distance: f64| keys(distance, coefficient);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn antialiased_weights_sum_to_one_and_reach_as_far_as_the_axis_shrinks() {
        for (length, to) in [(12, 4), (7, 5), (5, 1), (9, 2), (4, 8)] {
            let axis = ResizeAxis { axis: 0, length: to, scale: to as f64 / length as f64 };
            let cubic = Interpolation::Cubic { coefficient: -0.75, exclude_outside: false };
            for (interpolation, exclude) in
                [(Interpolation::Linear, true), (Interpolation::Linear, false), (cubic, false)]
            {
                let all =
                    axis.antialiased_taps(interpolation, Coordinates::HalfPixel, length, exclude).unwrap();
                assert_eq!(all.len(), to);
                for taps in all {
                    let total: f64 = taps.iter().map(|tap| tap.1).sum();
                    assert!((total - 1.0).abs() < 1e-12 && taps.iter().all(|tap| tap.0 < length));
                    assert!(to > length || taps.len() >= length / to, "{taps:?}");
                }
            }
        }
    }

    #[test]
    fn weights_sum_to_one() {
        let kinds = [
            Interpolation::Nearest(Rounding::PreferFloor),
            Interpolation::Linear,
            Interpolation::Cubic { coefficient: -0.75, exclude_outside: false },
            Interpolation::Cubic { coefficient: -0.5, exclude_outside: true },
        ];
        for kind in kinds {
            for (from, to) in [(5, 9), (9, 4), (1, 3)] {
                let axis = ResizeAxis { axis: 0, length: to, scale: to as f64 / from as f64 };
                for taps in axis.taps(kind, Coordinates::HalfPixel, from) {
                    assert!(taps.iter().all(|&(at, _)| at < from));
                    let sum: f64 = taps.iter().map(|tap| tap.1).sum();
                    assert!((sum - 1.0).abs() < 1e-12, "{kind:?} {from}→{to}");
                }
            }
        }
    }
}

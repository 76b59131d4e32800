//! Linear maps along one axis, as matrices: what slicing, padding, gathering and resizing do to the elements
//! of that axis. Their transposes need no kernels of their own.

use monosplit_graph::op::{Coordinates, Interpolation, Padding, Rounding};
use monosplit_graph::{Dim, Error, Graph, NodeId, Op, Result, Shape, Tensor};

/// A matrix with one row per output element and one column per input element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AxisMap {
    rows: usize,
    columns: usize,
    weights: Vec<f64>,
}

impl AxisMap {
    fn zero(rows: usize, columns: usize) -> Self {
        AxisMap { rows, columns, weights: vec![0.0; rows * columns] }
    }

    fn selecting(columns: usize, picks: impl ExactSizeIterator<Item = usize>) -> Self {
        let mut map = AxisMap::zero(picks.len(), columns);
        for (row, column) in picks.enumerate() {
            map.add(row, column, 1.0);
        }
        map
    }

    fn add(&mut self, row: usize, column: usize, weight: f64) {
        self.weights[row * self.columns + column] += weight;
    }

    /// Elements `start, start + step, …`.
    pub(crate) fn slice(columns: usize, start: usize, step: isize, length: usize) -> Self {
        AxisMap::selecting(columns, (0..length).map(|i| start.wrapping_add_signed(i as isize * step)))
    }

    /// Elements added by reflection or repetition of the edge.
    pub(crate) fn pad(columns: usize, before: usize, after: usize, padding: Padding) -> Self {
        let last = columns as isize - 1;
        let source = |position: usize| {
            let i = position as isize - before as isize;
            let i = match padding {
                Padding::Reflect if i < 0 => -i,
                Padding::Reflect if i > last => 2 * last - i,
                _ => i.clamp(0, last),
            };
            i as usize
        };
        AxisMap::selecting(columns, (0..columns + before + after).map(source))
    }

    /// The elements at `indices`, negative ones counted from the end.
    pub(crate) fn gather(columns: usize, indices: &[i64]) -> Result<Self> {
        let picks: Option<Vec<usize>> = indices
            .iter()
            .map(|&i| {
                usize::try_from(if i < 0 { i + columns as i64 } else { i }).ok().filter(|&i| i < columns)
            })
            .collect();
        let picks = picks.ok_or_else(|| Error::shape(format!("an index lies outside 0..{columns}")))?;
        Ok(AxisMap::selecting(columns, picks.into_iter()))
    }

    /// Interpolation at another resolution.
    pub(crate) fn resize(
        columns: usize,
        rows: usize,
        scale: f64,
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Self {
        let mut map = AxisMap::zero(rows, columns);
        for row in 0..rows {
            let x = source_coordinate(row, columns, rows, scale, coordinates);
            map.interpolate(row, x, interpolation);
        }
        map
    }

    fn interpolate(&mut self, row: usize, x: f64, interpolation: Interpolation) {
        let last = self.columns as i64 - 1;
        let clamped = |i: i64| i.clamp(0, last) as usize;
        match interpolation {
            Interpolation::Nearest(rounding) => self.add(row, clamped(nearest(x, rounding)), 1.0),
            Interpolation::Linear => {
                let x = x.clamp(0.0, last as f64);
                let left = x.floor();
                self.add(row, clamped(left as i64), 1.0 - (x - left));
                self.add(row, clamped(left as i64 + 1), x - left);
            }
            Interpolation::Cubic { coefficient, exclude_outside } => {
                let left = x.floor() as i64;
                let taps: Vec<(i64, f64)> =
                    (left - 1..=left + 2).map(|i| (i, keys_cubic(x - i as f64, coefficient))).collect();
                let inside = |i: i64| !exclude_outside || (0..=last).contains(&i);
                let total: f64 = taps.iter().filter(|t| inside(t.0)).map(|t| t.1).sum();
                for (i, weight) in taps.into_iter().filter(|t| inside(t.0)) {
                    self.add(row, clamped(i), if exclude_outside { weight / total } else { weight });
                }
            }
        }
    }

    /// The transposed matrix.
    pub(crate) fn transposed(&self) -> Self {
        let mut map = AxisMap::zero(self.columns, self.rows);
        for (i, &weight) in self.weights.iter().enumerate() {
            map.add(i % self.columns, i / self.columns, weight);
        }
        map
    }

    /// The positive and the negative part: non-negative matrices whose difference this is.
    pub(crate) fn parts(&self) -> (Self, Self) {
        let part = |sign: f64| {
            let weights = self.weights.iter().map(|w| (sign * w).max(0.0)).collect();
            AxisMap { weights, ..*self }
        };
        (part(1.0), part(-1.0))
    }

    /// Replaces every weight by its magnitude.
    pub(crate) fn make_absolute(&mut self) {
        self.weights.iter_mut().for_each(|w| *w = w.abs());
    }
}

fn source_coordinate(row: usize, columns: usize, rows: usize, scale: f64, coordinates: Coordinates) -> f64 {
    let row = row as f64;
    match coordinates {
        Coordinates::HalfPixel => (row + 0.5) / scale - 0.5,
        Coordinates::PytorchHalfPixel if rows == 1 => 0.0,
        Coordinates::PytorchHalfPixel => (row + 0.5) / scale - 0.5,
        Coordinates::AlignCorners if rows == 1 => 0.0,
        Coordinates::AlignCorners => row * (columns - 1) as f64 / (rows - 1) as f64,
        Coordinates::Asymmetric => row / scale,
    }
}

/// In single precision, as peers and our engine have it: a double can fall just short of the integer it stands for.
fn nearest(x: f64, rounding: Rounding) -> i64 {
    let x = x as f32;
    let value = match rounding {
        Rounding::PreferFloor => (x - 0.5).ceil(),
        Rounding::PreferCeil => (x + 0.5).floor(),
        Rounding::Floor => x.floor(),
        Rounding::Ceil => x.ceil(),
    };
    value as i64
}

fn keys_cubic(distance: f64, a: f64) -> f64 {
    let t = distance.abs();
    if t <= 1.0 {
        ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    } else if t < 2.0 {
        ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
    } else {
        0.0
    }
}

/// The transpose of `map` applied along `axis` of `y`.
pub(crate) fn apply_transposed(g: &mut Graph, y: NodeId, axis: usize, map: AxisMap) -> Result<NodeId> {
    let rank = g.node(y).shape.rank();
    let mut axes: Vec<usize> = (0..rank).filter(|&i| i != axis).collect();
    axes.push(axis);
    let matrix = g.constant(Tensor::new([map.rows, map.columns], map.weights)?);
    let last = if axis + 1 == rank { y } else { g.add(Op::Transpose { axes: axes.clone() }, &[y])? };
    let matrix_shaped = rank >= 2;
    let last = if matrix_shaped {
        last
    } else {
        let row = [&[Dim::Fixed(1)], g.node(last).shape.dims()].concat();
        g.reshaped(last, Shape::new(row))?
    };
    let product = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[last, matrix])?;
    if !matrix_shaped {
        let flat = Shape::new(&g.node(product).shape.dims()[1..]);
        return g.reshaped(product, flat);
    }
    if axis + 1 == rank {
        return Ok(product);
    }
    let mut inverse = vec![0; rank];
    axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    g.add(Op::Transpose { axes: inverse }, &[product])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolation_weights_sum_to_one() {
        let kinds = [
            Interpolation::Nearest(Rounding::PreferFloor),
            Interpolation::Linear,
            Interpolation::Cubic { coefficient: -0.75, exclude_outside: false },
            Interpolation::Cubic { coefficient: -0.5, exclude_outside: true },
        ];
        for kind in kinds {
            for (from, to) in [(5, 9), (9, 4), (1, 3)] {
                let map = AxisMap::resize(from, to, to as f64 / from as f64, kind, Coordinates::HalfPixel);
                for row in map.weights.chunks(from) {
                    assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{kind:?} {from}→{to}");
                }
            }
        }
    }

    #[test]
    fn reflection_mirrors_without_repeating_the_edge() {
        let map = AxisMap::pad(3, 2, 1, Padding::Reflect);
        let source: Vec<usize> =
            map.weights.chunks(3).map(|row| row.iter().position(|&w| w == 1.0).unwrap()).collect();
        assert_eq!(source, [2, 1, 0, 1, 2, 1]);
    }
}

//! Linear maps along one axis, as matrices. Strided slices, reflecting pads, gathers and resizes are such maps, and their
//! transposes are matrix products.

use monosplit_graph::op::{Coordinates, Interpolation, Padding, ResizeAxis};
use monosplit_graph::{Dim, Error, Graph, NodeId, Op, Result, Shape, Tensor};

/// A matrix with one row for each output element and one column for each input element along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisMap {
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
        axis: &ResizeAxis,
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Self {
        let mut map = AxisMap::zero(axis.length, columns);
        for (row, taps) in axis.taps(interpolation, coordinates, columns).into_iter().enumerate() {
            taps.into_iter().for_each(|(column, weight)| map.add(row, column, weight));
        }
        map
    }

    /// The transposed matrix.
    pub fn transposed(&self) -> Self {
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
    fn reflection_mirrors_without_repeating_the_edge() {
        let map = AxisMap::pad(3, 2, 1, Padding::Reflect);
        let source: Vec<usize> =
            map.weights.chunks(3).map(|row| row.iter().position(|&w| w == 1.0).unwrap()).collect();
        assert_eq!(source, [2, 1, 0, 1, 2, 1]);
    }
}

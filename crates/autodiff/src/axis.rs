//! Linear maps along one axis and their transposes. Strided slices and pads are moved and added where they lie; gathers and
//! resizes are taps, a few for each element. Nothing takes more memory than a multiple of the axis.

use monosplit_graph::op::{Coordinates, Interpolation, Padding, Reduction, ResizeAxis, Taps};
use monosplit_graph::{Dim, Error, Graph, NodeId, Op, Result, Shape, Tensor};

/// Maps of at most so many coefficients, zeros included, are products with a matrix, which is faster.
const MATRIX: usize = 1 << 16;

/// A linear map that makes every output element of a few input elements along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisMap {
    /// The length of the input.
    columns: usize,
    /// For every output element, its input elements and their weights.
    rows: Vec<Taps>,
}

impl AxisMap {
    /// The elements at `indices`, negative ones counted from the end.
    pub(crate) fn gather(columns: usize, indices: &[i64]) -> Result<Self> {
        let pick = |&i: &i64| {
            let i = usize::try_from(if i < 0 { i + columns as i64 } else { i }).ok();
            i.filter(|&i| i < columns).map(|i| vec![(i, 1.0)])
        };
        let rows: Option<Vec<Taps>> = indices.iter().map(pick).collect();
        let rows = rows.ok_or_else(|| Error::shape(format!("an index lies outside 0..{columns}")))?;
        Ok(AxisMap { columns, rows })
    }

    /// Interpolation at another resolution.
    pub(crate) fn resize(
        columns: usize,
        axis: &ResizeAxis,
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Self {
        AxisMap { columns, rows: axis.taps(interpolation, coordinates, columns) }
    }

    /// The transposed map.
    pub fn transposed(&self) -> Self {
        let mut rows = vec![Taps::new(); self.columns];
        for (row, taps) in self.rows.iter().enumerate() {
            taps.iter().for_each(|&(column, weight)| rows[column].push((row, weight)));
        }
        AxisMap { columns: self.rows.len(), rows }
    }

    fn with_weights(&self, weight: impl Fn(f64) -> f64) -> Self {
        let changed = |taps: &Taps| {
            // Taps at one element count together.
            let mut sorted = taps.clone();
            sorted.sort_by_key(|&(column, _)| column);
            let mut together = Taps::with_capacity(sorted.len());
            for (column, w) in sorted {
                match together.last_mut() {
                    Some((last, sum)) if *last == column => *sum += w,
                    _ => together.push((column, w)),
                }
            }
            together.into_iter().map(|(column, w)| (column, weight(w))).filter(|&(_, w)| w != 0.0).collect()
        };
        AxisMap { columns: self.columns, rows: self.rows.iter().map(changed).collect() }
    }

    /// The positive and the negative part: maps without negative weights whose difference this is.
    pub(crate) fn parts(&self) -> (Self, Self) {
        (self.with_weights(|w| w.max(0.0)), self.with_weights(|w| (-w).max(0.0)))
    }

    /// The map with every weight replaced by its magnitude.
    pub(crate) fn absolute(&self) -> Self {
        self.with_weights(f64::abs)
    }

    /// The map as a matrix with one row for each output element, if that is small.
    fn matrix(&self) -> Option<Result<Tensor>> {
        let count = self.rows.len().checked_mul(self.columns).filter(|&count| count <= MATRIX)?;
        let mut weights = vec![0.0; count];
        for (row, taps) in self.rows.iter().enumerate() {
            taps.iter().for_each(|&(column, weight)| weights[row * self.columns + column] += weight);
        }
        Some(Tensor::new([self.rows.len(), self.columns], weights))
    }
}

/// The transpose of `map` applied along `axis` of `y`.
pub(crate) fn apply_transposed(g: &mut Graph, y: NodeId, axis: usize, map: &AxisMap) -> Result<NodeId> {
    match map.matrix() {
        Some(matrix) => times_matrix(g, y, axis, matrix?),
        None => g.tap_sums(y, axis, &map.transposed().rows),
    }
}

/// The product of every line of `y` along `axis`, as a row, with a matrix.
fn times_matrix(g: &mut Graph, y: NodeId, axis: usize, matrix: Tensor) -> Result<NodeId> {
    let rank = g.node(y).shape.rank();
    let mut axes: Vec<usize> = (0..rank).filter(|&i| i != axis).collect();
    axes.push(axis);
    let matrix = g.constant(matrix);
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

/// Elements `start, start + step, …` of `y` along `axis`.
fn slice(
    g: &mut Graph,
    y: NodeId,
    axis: usize,
    (start, step, length): (usize, isize, usize),
) -> Result<NodeId> {
    g.add(Op::Slice { axis, start, step, length }, &[y])
}

/// `y` with zeros before it and after it along `axis`.
fn among_zeros(g: &mut Graph, y: NodeId, axis: usize, (before, after): (usize, usize)) -> Result<NodeId> {
    if (before, after) == (0, 0) {
        return Ok(y);
    }
    let mut pads = vec![(0, 0); g.node(y).shape.rank()];
    pads[axis] = (before, after);
    g.add(Op::Pad { padding: Padding::Constant(0.0), pads }, &[y])
}

/// The transpose of a slice `start, start + step, …` of an axis of `available` elements: `y` at its places, zeros elsewhere.
pub(crate) fn transpose_slice(
    g: &mut Graph,
    y: NodeId,
    axis: usize,
    (start, step): (usize, isize),
    available: usize,
) -> Result<NodeId> {
    let dims = g.node(y).shape.dims().to_vec();
    let length = dims[axis].fixed().unwrap_or(0);
    if length == 0 {
        let zeros = [&dims[..axis], &[Dim::Fixed(available)], &dims[axis + 1..]].concat();
        let zero = g.number(0.0);
        return g.add(Op::Expand { shape: Shape::new(zeros) }, &[zero]);
    }
    let (ascending, start) = match step < 0 {
        true => (
            slice(g, y, axis, (length - 1, -1, length))?,
            start.wrapping_add_signed((length as isize - 1) * step),
        ),
        false => (y, start),
    };
    let apart = step.unsigned_abs();
    let spread = match apart {
        1 => ascending,
        _ => {
            let single = [&dims[..=axis], &[Dim::Fixed(1)], &dims[axis + 1..]].concat();
            let single = g.reshaped(ascending, Shape::new(single))?;
            let spaced = among_zeros(g, single, axis + 1, (0, apart - 1))?;
            let flat = [&dims[..axis], &[Dim::Fixed(length * apart)], &dims[axis + 1..]].concat();
            let flat = g.reshaped(spaced, Shape::new(flat))?;
            // Nothing but zeros follows the last element.
            slice(g, flat, axis, (0, 1, (length - 1) * apart + 1))?
        }
    };
    let read = (length - 1) * apart + 1;
    among_zeros(g, spread, axis, (start, available - start - read))
}

/// The transpose of padding an axis of `available` elements by reflection or by repeating its ends: what was added is added back
/// to what it was copied from.
pub(crate) fn transpose_pad(
    g: &mut Graph,
    y: NodeId,
    axis: usize,
    ((before, after), padding): ((usize, usize), Padding),
    available: usize,
) -> Result<NodeId> {
    let mut sum = slice(g, y, axis, (before, 1, available))?;
    for (first, length, at_start) in [(0, before, true), (before + available, after, false)] {
        if length == 0 {
            continue;
        }
        let copies = match padding {
            Padding::Reflect => slice(g, y, axis, (first + length - 1, -1, length))?,
            _ => {
                let copies = slice(g, y, axis, (first, 1, length))?;
                g.reduced(Reduction::Sum, copies, &[axis], true)?
            }
        };
        // Reflection leaves out the end itself.
        let (length, end) = match padding {
            Padding::Reflect => (length, 1),
            _ => (1, 0),
        };
        let rest = available - length - end;
        let zeros = if at_start { (end, rest) } else { (rest, end) };
        let copies = among_zeros(g, copies, axis, zeros)?;
        sum = g.plus(sum, copies)?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Engine, Precision};
    use monosplit_graph::{Kind, Noise};

    use super::*;
    use crate::linear::{Coefficients, transpose};

    fn noise(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let count: usize = shape.iter().product();
        Tensor::new(shape, (0..count as u64).map(|i| noise.gaussian(i)).collect::<Vec<f64>>()).unwrap()
    }

    fn dot(a: &Tensor, b: &Tensor) -> f64 {
        a.to_f64().iter().zip(&*b.to_f64()).map(|(a, b)| a * b).sum()
    }

    /// `⟨W x, y⟩ = ⟨x, Wᵀ y⟩` for the op along axis 1 of a value `[2, length, 3]`, within so many bytes.
    fn is_adjoint(op: &Op, length: usize, indices: Option<Vec<i64>>, limit: usize) {
        let mut g = Graph::new();
        let shape = [2, length, 3];
        let x = g.input("x", Shape::fixed(&shape), Kind::Float);
        let mut operands = vec![x];
        operands.extend(indices.map(|indices| g.constant(Tensor::vector(indices))));
        let mapped = g.add(op.clone(), &operands).unwrap();
        let made: Vec<usize> = g.node(mapped).shape.at(1).unwrap();
        let y = g.input("y", Shape::fixed(&made), Kind::Float);
        let coefficients = Coefficients { operands: &operands, magnitude: false };
        let back = transpose(&mut g, mapped, 0, y, coefficients).unwrap();
        assert_eq!(g.node(back).shape, Shape::fixed(&shape), "{op:?}");
        // What a compiled file would hold.
        let held = g.nodes().map(|(_, node)| match &node.op {
            Op::Constant(tensor) => tensor.len(),
            _ => 0,
        });
        assert!(held.sum::<usize>() <= MATRIX + 32 * (length + made[1]), "{op:?}");
        g.output("Wx", mapped);
        g.output("Wᵀy", back);
        let engine = Cpu::default().precision(Precision::F64).memory_limit(limit);
        let inputs = [noise(&shape, 1), noise(&made, 2)];
        let found = engine.compile(&g).unwrap().run(&inputs).unwrap();
        let (one, other) = (dot(&found[0], &inputs[1]), dot(&inputs[0], &found[1]));
        let size = (dot(&inputs[0], &inputs[0]) * dot(&inputs[1], &inputs[1])).sqrt();
        assert!((one - other).abs() <= 1e-12 * size, "{one} against {other} for {op:?} of {length}");
    }

    fn resize(length: usize, onto: usize, interpolation: Interpolation) -> Op {
        let axis = ResizeAxis { axis: 1, length: onto, scale: onto as f64 / length as f64 };
        Op::Resize { axes: vec![axis], interpolation, coordinates: Coordinates::HalfPixel }
    }

    fn check(length: usize, limit: usize) {
        let (most, third) = (length - 1, length / 3);
        for (start, step, count) in
            [(1, 2, third), (most, -3, third), (most, -1, length), (0, 7, 1), (2, 3, third - 1)]
        {
            is_adjoint(&Op::Slice { axis: 1, start, step, length: count }, length, None, limit);
        }
        for pad in [(0, 2), (3, 0), (2, 5), (most, most)] {
            for padding in [Padding::Reflect, Padding::Edge] {
                let pads = vec![(0, 0), pad, (0, 0)];
                is_adjoint(&Op::Pad { padding, pads }, length, None, limit);
            }
        }
        let often: Vec<i64> =
            (0..2 * length as i64).map(|i| if i % 2 == 0 { 1 } else { i % length as i64 }).collect();
        for indices in [often, vec![-1, 2, 2, 0]] {
            is_adjoint(&Op::Gather { axis: 1 }, length, Some(indices), limit);
        }
        let cubic = Interpolation::Cubic { coefficient: -0.75, exclude_outside: false };
        for interpolation in [Interpolation::Linear, cubic] {
            for onto in [2 * length + 1, length.div_ceil(2), 1] {
                is_adjoint(&resize(length, onto, interpolation), length, None, limit);
            }
        }
    }

    #[test]
    fn maps_along_an_axis_have_adjoint_transposes() {
        check(12, 1 << 20);
        check(300, 8 << 20);
    }

    /// A matrix of this axis would take 34 GB.
    #[test]
    fn transposes_of_long_axes_take_memory_linear_in_the_axis() {
        check(65_536, 256 << 20);
        is_adjoint(&resize(1, 65_536, Interpolation::Linear), 1, None, 256 << 20);
    }
}

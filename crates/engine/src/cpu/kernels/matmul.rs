//! Batched matrix products. The longer side of the result is cut into blocks of fixed size, which share the other operand
//! packed once; one row or one column at a time is a matter of dot products, bound by reading the other matrix once.

use monosplit_graph::Result;

use super::broadcast::{Broadcast, expand};
use super::chunks::for_each_chunk;
use super::gemm::{Matrix, Region, dot, multiply};
use super::gemm_rhs::PackedRhs;
use super::scratch::Scratch;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::parallel_for_chunks;

/// Rows (or columns) of the result one task computes.
pub(crate) const BLOCK: usize = 64;
/// Elements of the result one task computes when it is a vector.
pub(crate) const VECTOR_BLOCK: usize = 128;
/// Columns summed before the sum is rounded into the result.
pub(crate) const SPAN: usize = 256;
/// Products below this many multiplications are not distributed.
pub(crate) const SMALL: usize = 1 << 15;

/// A batched product of known sizes.
pub(crate) struct Product {
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
}

impl Product {
    /// `c ← a·b + bias`, operands and bias given with their shapes.
    pub(crate) fn run<R: Real>(
        &self,
        (a, sa): (&[R], &[usize]),
        (b, sb): (&[R], &[usize]),
        bias: Option<(&[R], &[usize])>,
        (c, sc): (&mut [R], &[usize]),
    ) -> Result<()> {
        if let Some(bias) = bias {
            expand(bias, (c, sc))?;
        }
        let split = |shape: &'_ [usize]| shape.len() - 2;
        let (rows, columns) = (sc[split(sc)], sc[split(sc) + 1]);
        let inner = if self.trans_a { sa[split(sa)] } else { sa[split(sa) + 1] };
        if inner == 0 {
            if bias.is_none() {
                c.fill(R::ZERO);
            }
            return Ok(());
        }
        let count = |shape: &[usize]| shape[..split(shape)].iter().product::<usize>();
        if !self.trans_a && count(sb) == 1 && count(sa) == count(sc) && count(sc) > 1 {
            // All leading axes are rows of one product.
            let a = Matrix::dense(a, count(sa) * rows, inner);
            one(a, dense(b, self.trans_b, inner, columns), c, bias.is_some());
            return Ok(());
        }
        let operands = Broadcast::new(&sc[..split(sc)], [&sa[..split(sa)], &sb[..split(sb)]])?;
        for_each_chunk(c, rows * columns, &|index, c| {
            let [at_a, at_b] = operands.offsets_of(index);
            let a = dense(&a[at_a * rows * inner..], self.trans_a, rows, inner);
            let b = dense(&b[at_b * inner * columns..], self.trans_b, inner, columns);
            one(a, b, c, bias.is_some());
        });
        Ok(())
    }
}

/// A matrix of `rows × columns`, stored as its transpose if `transposed`.
fn dense<R>(data: &[R], transposed: bool, rows: usize, columns: usize) -> Matrix<'_, R> {
    match transposed {
        true => Matrix::dense(data, columns, rows).transposed(),
        false => Matrix::dense(data, rows, columns),
    }
}

/// `c ← a·b` for one matrix, or `c ← c + a·b` if `held`.
fn one<R: Real>(a: Matrix<'_, R>, b: Matrix<'_, R>, c: &mut [R], held: bool) {
    let (rows, columns) = (a.rows, b.columns);
    if rows * columns * a.columns <= SMALL {
        multiply(a, b, &mut Region::new(c, rows, columns, columns), held);
    } else if rows == 1 || columns == 1 {
        if !held {
            c.fill(R::ZERO);
        }
        match rows {
            1 => vector_product(b.transposed(), a.transposed(), c),
            _ => vector_product(a, b, c),
        }
    } else if rows >= columns {
        let right = PackedRhs::pack(b);
        for_each_chunk(c, BLOCK * columns, &|block, c| {
            let rows = c.len() / columns;
            let mut result = Region::new(c, rows, columns, columns);
            right.multiply(a.rows(block * BLOCK, rows), &mut result, held);
        });
    } else {
        let right = PackedRhs::pack(a.transposed());
        let mut flipped = Scratch::new(c.len());
        for_each_chunk(&mut flipped, BLOCK * rows, &|block, part| {
            let width = part.len() / rows;
            let mut result = Region::new(part, width, rows, rows);
            right.multiply(b.columns(block * BLOCK, width).transposed(), &mut result, false);
        });
        flip(&flipped, c, rows, held);
    }
}

/// Rows written at a time when a result is turned over, so that lines of the cache are read whole.
const FLIPPED: usize = 16;

/// `c ← flippedᵀ`, or `c ← c + flippedᵀ` if `held`; `c` has `rows` rows.
pub(crate) fn flip<R: Real>(flipped: &[R], c: &mut [R], rows: usize, held: bool) {
    let columns = c.len() / rows;
    for_each_chunk(c, FLIPPED * columns, &|block, c| {
        for (column, line) in flipped.chunks_exact(rows).enumerate() {
            let pairs = c[column..].iter_mut().step_by(columns).zip(&line[block * FLIPPED..]);
            match held {
                true => pairs.for_each(|(c, &v)| *c += v),
                false => pairs.for_each(|(c, &v)| *c = v),
            }
        }
    });
}

/// `y ← y + m·x` for a vector `x` (one column).
fn vector_product<R: Real>(m: Matrix<'_, R>, x: Matrix<'_, R>, y: &mut [R]) {
    let gathered: Vec<R> = x.data.iter().step_by(x.row_stride.max(1)).take(x.rows).copied().collect();
    parallel_for_chunks(y, VECTOR_BLOCK, |block, y| {
        let m = m.rows(block * VECTOR_BLOCK, y.len());
        if m.column_stride == 1 {
            for (row, y) in y.iter_mut().enumerate() {
                *y += dot(&m.data[row * m.row_stride..][..m.columns], &gathered);
            }
        } else {
            add_columns(m, &gathered, y);
        }
    });
}

/// `y ← y + m·x` column by column, in spans whose sums are rounded apart to keep the error small.
fn add_columns<R: Real>(m: Matrix<'_, R>, x: &[R], y: &mut [R]) {
    let mut sums = [R::ZERO; VECTOR_BLOCK];
    let sums = &mut sums[..y.len()];
    for (span, x) in x.chunks(SPAN).enumerate() {
        sums.fill(R::ZERO);
        for (column, &x) in x.iter().enumerate() {
            let column = &m.data[(span * SPAN + column) * m.column_stride..];
            if m.row_stride == 1 {
                for (sum, &m) in sums.iter_mut().zip(column) {
                    *sum += m * x;
                }
            } else {
                for (sum, &m) in sums.iter_mut().zip(column.iter().step_by(m.row_stride)) {
                    *sum += m * x;
                }
            }
        }
        for (y, &sum) in y.iter_mut().zip(sums.iter()) {
            *y += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close};

    #[test]
    fn products_of_every_shape_equal_direct_sums() {
        let mut random = Random::new(11);
        let sizes = [(1, 300, 400), (400, 300, 1), (5, 70, 200), (200, 70, 5), (3, 4, 5), (1, 0, 2)];
        for (rows, inner, columns) in sizes {
            for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let sa = if trans_a { [2, 1, inner, rows] } else { [2, 1, rows, inner] };
                let sb = if trans_b { [3, columns, inner] } else { [3, inner, columns] };
                let sc = [2, 3, rows, columns];
                let a = random.reals::<f64>(sa.iter().product());
                let b = random.reals::<f64>(sb.iter().product());
                let bias = random.reals::<f64>(columns);
                let mut expected = Vec::new();
                for batch in 0..6 {
                    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                        let at = |l: usize| {
                            let p =
                                batch / 3 * rows * inner + if trans_a { l * rows + i } else { i * inner + l };
                            let q = batch % 3 * inner * columns;
                            (p, q + if trans_b { j * inner + l } else { l * columns + j })
                        };
                        let sum: f64 = (0..inner).map(at).map(|(p, q)| a[p] * b[q]).sum();
                        expected.push(sum + bias[j]);
                    }
                }
                let product = Product { trans_a, trans_b };
                let mut c = vec![f64::NAN; expected.len()];
                product.run((&a, &sa), (&b, &sb), Some((&bias, &[columns])), (&mut c, &sc)).unwrap();
                assert_close(&c, &expected, 1e-13);
                let narrow = |v: &[f64]| v.iter().map(|&v| v as f32).collect::<Vec<_>>();
                let (a, b, bias) = (narrow(&a), narrow(&b), narrow(&bias));
                let mut c = vec![f32::NAN; expected.len()];
                product.run((&a, &sa), (&b, &sb), Some((&bias, &[columns])), (&mut c, &sc)).unwrap();
                assert_close(&c, &expected, 1e-6);
            }
        }
    }
}

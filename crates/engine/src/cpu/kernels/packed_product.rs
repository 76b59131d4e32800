//! Products with a matrix of known weights, which is packed when the graph is compiled. All leading axes of the left operand are
//! rows of one product.
#![allow(unsafe_code)]

use monosplit_graph::Result;

use super::broadcast::expand;
use super::epilogue::Epilogue;
use super::gemm::{LhsPanels, Matrix, Region};
use super::gemm_rhs::PackedRhs;
use super::simd_level::SimdLevel;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::parallel_for;

/// The fewest rows of one sample for which the weights are packed. Products with fewer are bound by reading the weights once.
pub(crate) const MIN_ROWS: usize = 4;
/// The most rows of the result one task computes, so that they stay in the second cache with the weights they are multiplied with.
const MAX_ROWS: usize = 512;
/// The least number of tasks for every thread, if the result has rows enough.
const PIECES: usize = 4;
/// Rows of the result one task computes, at the least.
const ROWS: usize = 32;

/// A matrix of weights, packed as the right operand of products.
#[derive(Debug)]
pub(crate) struct PackedProduct<R> {
    weights: PackedRhs<R>,
}

impl<R: Real> PackedProduct<R> {
    /// Packs a matrix `[inner, columns]`, or `[columns, inner]` if `transposed`.
    pub(crate) fn pack(weights: &[R], shape: [usize; 2], transposed: bool) -> Self {
        let matrix = Matrix::dense(weights, shape[0], shape[1]);
        PackedProduct { weights: PackedRhs::pack(if transposed { matrix.transposed() } else { matrix }) }
    }

    /// `c ← a·weights + bias`, with an epilogue. The bias is given with its shape, as is the result.
    pub(crate) fn run(
        &self,
        a: &[R],
        bias: Option<(&[R], &[usize])>,
        epilogue: Option<&Epilogue<'_, R>>,
        (c, shape): (&mut [R], &[usize]),
    ) -> Result<()> {
        let (inner, columns) = (self.weights.depth(), self.weights.columns());
        let rows = c.len() / columns;
        // A bias of one row is added to every row where the row is computed, any other one beforehand.
        let row_bias = bias.filter(|(values, _)| values.len() == columns);
        if let (Some(bias), None) = (bias, row_bias) {
            expand(bias, (&mut *c, shape))?;
        }
        let level = SimdLevel::current();
        let a = LhsPanels::pack_parallel(level, Matrix::dense(a, rows, inner));
        let across = self.weights.column_blocks();
        let wanted = (PIECES * rayon::current_num_threads()).div_ceil(across);
        let along = rows.div_ceil(MAX_ROWS).max(wanted.min(rows.div_ceil(ROWS)));
        let result = Region::new(c, rows, columns, columns);
        parallel_for(across * along, |task| {
            // Tasks one after the other read the same weights, which are then in cache.
            let (block, part) = (task / along, task % along);
            let panels = part * a.panels() / along..(part + 1) * a.panels() / along;
            let (rows, columns_of) = (a.rows_of(&panels), self.weights.columns_of(block));
            // SAFETY: tasks have disjoint rectangles.
            let mut result = unsafe { result.part(rows.clone(), columns_of.clone()) };
            if let Some((bias, _)) = row_bias {
                (0..rows.len()).for_each(|row| result.row(row).copy_from_slice(&bias[columns_of.clone()]));
            }
            let last = part + 1 == along;
            self.weights.multiply_block(block, (&a, panels), &mut result, bias.is_some(), last);
            if let Some(epilogue) = epilogue {
                for row in 0..rows.len() {
                    epilogue.apply((rows.start + row) * columns + columns_of.start, result.row(row));
                }
            }
        });
        a.give_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::matmul::Product;
    use crate::cpu::kernels::testing::{Random, assert_close};

    #[test]
    fn packed_products_equal_plain_ones() {
        let mut random = Random::new(23);
        let largest = if cfg!(miri) { 20 } else { 700 };
        let sizes = [(4, 5, 3), (49, largest, 70), (200, 33, largest), (14, 257, 256), (7, 1, 1)];
        for (rows, inner, columns) in sizes {
            for transposed in [false, true] {
                let (a, w) = (random.reals::<f64>(rows * inner), random.reals::<f64>(inner * columns));
                let bias = random.reals::<f64>(columns);
                let shape = if transposed { [columns, inner] } else { [inner, columns] };
                let packed = PackedProduct::pack(&w, shape, transposed);
                for (bias, bias_shape) in [(&bias[..], vec![columns]), (&bias[..1], vec![1])] {
                    let mut expected = vec![f64::NAN; rows * columns];
                    let product = Product { trans_a: false, trans_b: transposed };
                    let (sa, sc, bias) = ([rows, inner], [rows, columns], Some((bias, &bias_shape[..])));
                    product.run((&a, &sa), (&w, &shape), bias, (&mut expected, &sc)).unwrap();
                    expected.iter_mut().for_each(|v| *v = v.max(0.25));
                    let mut found = vec![f64::NAN; rows * columns];
                    let limits = Epilogue::Clamp([0.25, f64::INFINITY]);
                    packed.run(&a, bias, Some(&limits), (&mut found, &sc)).unwrap();
                    assert_close(&found, &expected, 1e-13);
                }
            }
        }
    }
}

//! Splits a batched matrix product with broadcasting into strided batches, which is what cuBLASLt computes.

use monosplit_graph::{Error, Result};

use super::Math;
use super::kernel_parameters::{CoalescedAxes, broadcast_strides, strides_of};

/// The maximal number of matrices in a batch. The library documents no limit above 16 bits.
const MAX_BATCH: usize = 1 << 15;

/// A matrix, or a strided batch of matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMatrix {
    pub(super) at: u64,
    pub(super) transposed: bool,
    /// Rows and columns as they are stored, row-major.
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Elements from one matrix of the batch to the next.
    pub(super) stride: i64,
}

/// `y ← a·b`, for a batch of matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceProduct {
    pub(super) a: DeviceMatrix,
    pub(super) b: DeviceMatrix,
    pub(super) y: DeviceMatrix,
    pub(super) batch: i32,
    pub(super) math: Math,
}

/// An operand: its address, its shape, and whether it is read transposed.
pub(super) struct MatrixOperand<'a> {
    pub(super) at: u64,
    pub(super) shape: &'a [usize],
    pub(super) transposed: bool,
}

impl MatrixOperand<'_> {
    /// Rows and columns as they are read.
    fn size(&self) -> (usize, usize) {
        let [rows, columns] = [self.shape[self.shape.len() - 2], self.shape[self.shape.len() - 1]];
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }

    /// Its first matrix, with `stride` elements to the next.
    fn matrix(&self, stride: i64) -> DeviceMatrix {
        let [rows, columns] = [self.shape[self.shape.len() - 2], self.shape[self.shape.len() - 1]];
        DeviceMatrix { at: self.at, transposed: self.transposed, rows, columns, stride }
    }
}

impl DeviceMatrix {
    /// The same matrix, `elements` elements further on.
    fn moved(self, elements: i64, math: Math) -> Self {
        DeviceMatrix { at: self.at.wrapping_add_signed(elements * math.bytes() as i64), ..self }
    }
}

impl DeviceProduct {
    /// The strided batches that make up a batched product into `y` of shape `to`: several if one stride does not lead from
    /// each matrix to the next, or if there are too many matrices. None of the matrices is empty.
    pub(super) fn all(
        a: &MatrixOperand<'_>,
        b: &MatrixOperand<'_>,
        (y, to): (u64, &[usize]),
        math: Math,
    ) -> Result<Vec<DeviceProduct>> {
        let outer = &to[..to.len() - 2];
        let matrix_elements = |operand: &MatrixOperand<'_>| {
            operand.shape[operand.shape.len() - 2..].iter().product::<usize>() as i64
        };
        let batch_strides = |operand: &MatrixOperand<'_>| -> Vec<i64> {
            let own = broadcast_strides(&operand.shape[..operand.shape.len() - 2], outer);
            own.iter().map(|stride| stride * matrix_elements(operand)).collect()
        };
        let ((rows, inner), (_, columns)) = (a.size(), b.size());
        let whole = (rows * columns) as i64;
        let along_y: Vec<i64> = strides_of(outer).iter().map(|stride| stride * whole).collect();
        let coalesced = CoalescedAxes::new(outer, &[batch_strides(a), batch_strides(b), along_y]);
        let (mut rows, mut last) = (rows, coalesced.shape.last().copied().unwrap_or(1));
        let stride = |value: usize| coalesced.strides[value].last().copied().unwrap_or(0);
        let mut strides = [stride(0), stride(1), stride(2)];
        // Samples that share the second matrix are rows of one product.
        if strides[1] == 0 && !a.transposed && strides[0] == (rows * inner) as i64 {
            (rows, last, strides) = (rows * last, 1, [0; 3]);
        }
        if [rows, inner, columns].iter().any(|&n| i32::try_from(n).is_err()) {
            return Err(Error::memory("a matrix is too large for cuBLASLt; use a smaller batch"));
        }
        let y = DeviceMatrix { at: y, transposed: false, rows, columns, stride: strides[2] };
        let a = DeviceMatrix { rows: if a.transposed { inner } else { rows }, ..a.matrix(strides[0]) };
        let b = b.matrix(strides[1]);
        let product = |step: usize, first: usize| {
            let mut offsets = strides.map(|stride| first as i64 * stride);
            let mut rest = step;
            for axis in (0..coalesced.shape.len().saturating_sub(1)).rev() {
                let index = (rest % coalesced.shape[axis]) as i64;
                rest /= coalesced.shape[axis];
                for (offset, strides) in offsets.iter_mut().zip(&coalesced.strides) {
                    *offset += index * strides[axis];
                }
            }
            DeviceProduct {
                a: a.moved(offsets[0], math),
                b: b.moved(offsets[1], math),
                y: y.moved(offsets[2], math),
                batch: MAX_BATCH.min(last - first) as i32,
                math,
            }
        };
        let steps: usize = coalesced.shape[..coalesced.shape.len().saturating_sub(1)].iter().product();
        let firsts = |step| (0..last).step_by(MAX_BATCH).map(move |first| (step, first));
        Ok((0..steps).flat_map(firsts).map(|(step, first)| product(step, first)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes these products as the library does, from values that begin at address 0.
    fn computed(products: &[DeviceProduct], a: &[f64], b: &[f64], y: &mut [f64]) {
        let element = |matrix: &DeviceMatrix, sample: i32, row: usize, column: usize| {
            let start = (matrix.at / 8) as i64 + i64::from(sample) * matrix.stride;
            let place =
                if matrix.transposed { column * matrix.columns + row } else { row * matrix.columns + column };
            start as usize + place
        };
        for product in products {
            let inner = if product.b.transposed { product.b.columns } else { product.b.rows };
            for sample in 0..product.batch {
                for (row, column) in
                    (0..product.y.rows).flat_map(|r| (0..product.y.columns).map(move |c| (r, c)))
                {
                    let left = |k| a[element(&product.a, sample, row, k)];
                    let right = |k| b[element(&product.b, sample, k, column)];
                    y[element(&product.y, sample, row, column)] +=
                        (0..inner).map(|k| left(k) * right(k)).sum::<f64>();
                }
            }
        }
    }

    #[test]
    fn every_element_is_computed_once_however_matrices_are_shared() {
        let (rows, inner, columns) = (2, 3, 4);
        let numbers = |count: usize| (0..count).map(|i| (i % 11) as f64 - 5.0).collect::<Vec<f64>>();
        // How often the axes of a batch are repeated in each factor, and how many products there are.
        let cases = [
            ([5, 6], [5, 6], 1),
            ([1, 6], [5, 6], 5),
            ([5, 1], [1, 6], 5),
            ([1, 1], [5, 6], 1),
            ([200, 300], [200, 300], 2),
        ];
        for (outer_a, outer_b, count) in cases {
            for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                let shape = |outer: [usize; 2], [r, c]: [usize; 2], turned| match turned {
                    true => [outer[0], outer[1], c, r],
                    false => [outer[0], outer[1], r, c],
                };
                let (of_a, of_b) = (
                    shape(outer_a, [rows, inner], transposed[0]),
                    shape(outer_b, [inner, columns], transposed[1]),
                );
                let outer = [outer_a[0].max(outer_b[0]), outer_a[1].max(outer_b[1])];
                let to = [outer[0], outer[1], rows, columns];
                let a = MatrixOperand { at: 0, shape: &of_a, transposed: transposed[0] };
                let b = MatrixOperand { at: 0, shape: &of_b, transposed: transposed[1] };
                let products = DeviceProduct::all(&a, &b, (0, &to), Math::F64).unwrap();
                assert_eq!(products.len(), count, "{outer_a:?} {outer_b:?}");
                let (x, w) = (numbers(of_a.iter().product()), numbers(of_b.iter().product()));
                let mut y = vec![0.0; to.iter().product()];
                computed(&products, &x, &w, &mut y);
                for (place, found) in y.iter().enumerate() {
                    let (column, row) = (place % columns, place / columns % rows);
                    let sample = place / columns / rows;
                    let (i, j) = (sample / outer[1], sample % outer[1]);
                    let start = |own: [usize; 2]| (i % own[0]) * own[1] + j % own[1];
                    let left = |k: usize| if transposed[0] { k * rows + row } else { row * inner + k };
                    let right =
                        |k: usize| if transposed[1] { column * inner + k } else { k * columns + column };
                    let (p, q) = (start(outer_a) * rows * inner, start(outer_b) * inner * columns);
                    let expected: f64 = (0..inner).map(|k| x[p + left(k)] * w[q + right(k)]).sum();
                    assert_eq!(*found, expected, "{outer_a:?} {outer_b:?} {transposed:?} at {place}");
                }
            }
        }
    }
}

//! The one place that multiplies dense matrices: strided views over slices, checked here, handed to the
//! `matrixmultiply` micro-kernels. Single-threaded on purpose: who calls it decides what runs in parallel.
#![allow(unsafe_code)]

use crate::cpu::real::Real;

/// A matrix read through strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

impl<'a, R> Matrix<'a, R> {
    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a [R], rows: usize, columns: usize) -> Self {
        Matrix { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    pub(crate) fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Rows `first .. first + count`.
    pub(crate) fn rows(self, first: usize, count: usize) -> Self {
        let start = (first * self.row_stride).min(self.data.len());
        Matrix { data: &self.data[start..], rows: count, ..self }
    }

    /// Columns `first .. first + count`.
    pub(crate) fn columns(self, first: usize, count: usize) -> Self {
        self.transposed().rows(first, count).transposed()
    }
}

/// A matrix with dense rows, written in place.
#[derive(Debug)]
pub(crate) struct MatrixMut<'a, R> {
    pub(crate) data: &'a mut [R],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
}

/// The micro-kernels of one precision.
pub(crate) trait Gemm: Sized {
    /// `c ← a·b + beta·c` over raw strided memory.
    ///
    /// # Safety
    /// Every element `i·rs + j·cs` of each matrix lies in its allocation, and those of `c` are distinct.
    #[allow(clippy::too_many_arguments)]
    unsafe fn gemm(
        size: (usize, usize, usize),
        a: (*const Self, isize, isize),
        b: (*const Self, isize, isize),
        beta: Self,
        c: (*mut Self, isize, isize),
    );
}

macro_rules! gemm {
    ($real:ty, $kernel:ident) => {
        impl Gemm for $real {
            unsafe fn gemm(
                (m, k, n): (usize, usize, usize),
                a: (*const Self, isize, isize),
                b: (*const Self, isize, isize),
                beta: Self,
                c: (*mut Self, isize, isize),
            ) {
                // SAFETY: the caller vouches for the extents, the kernel touches nothing else.
                unsafe {
                    matrixmultiply::$kernel(m, k, n, 1.0, a.0, a.1, a.2, b.0, b.1, b.2, beta, c.0, c.1, c.2)
                }
            }
        }
    };
}

gemm!(f32, sgemm);
gemm!(f64, dgemm);

/// `c ← a·b`, or `c ← c + a·b` if asked to accumulate.
///
/// Each element's sum runs over `k` in an order that depends on the sizes alone.
pub(crate) fn multiply<R: Real>(a: Matrix<'_, R>, b: Matrix<'_, R>, c: MatrixMut<'_, R>, accumulate: bool) {
    assert_eq!((a.rows, a.columns, b.columns), (c.rows, b.rows, c.columns), "matrix sizes");
    if c.rows == 0 || c.columns == 0 {
        return;
    }
    let fits = |length: usize, rows: usize, columns: usize, row_stride: usize, column_stride: usize| {
        rows == 0 || columns == 0 || (rows - 1) * row_stride + (columns - 1) * column_stride < length
    };
    assert!(fits(a.data.len(), a.rows, a.columns, a.row_stride, a.column_stride), "left matrix");
    assert!(fits(b.data.len(), b.rows, b.columns, b.row_stride, b.column_stride), "right matrix");
    assert!(fits(c.data.len(), c.rows, c.columns, c.row_stride, 1), "result matrix");
    assert!(c.rows == 1 || c.row_stride >= c.columns, "rows of the result overlap");
    let beta = if accumulate { R::ONE } else { R::ZERO };
    // SAFETY: the asserts above bound every element of the three matrices by its slice, and the rows of `c`
    // do not overlap.
    unsafe {
        R::gemm(
            (a.rows, a.columns, b.columns),
            (a.data.as_ptr(), a.row_stride as isize, a.column_stride as isize),
            (b.data.as_ptr(), b.row_stride as isize, b.column_stride as isize),
            beta,
            (c.data.as_mut_ptr(), c.row_stride as isize, 1),
        );
    }
}

/// Sum of products of two slices of equal length, in a fixed order.
pub(crate) fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    const LANES: usize = 32;
    let mut sums = [R::ZERO; LANES];
    let (blocks_a, blocks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut tail = R::ZERO;
    for (&x, &y) in blocks_a.remainder().iter().zip(blocks_b.remainder()) {
        tail += x * y;
    }
    for (x, y) in blocks_a.zip(blocks_b) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] = sums[lane] + sums[lane + width];
        }
        width /= 2;
    }
    sums[0] + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn products_equal_direct_sums_for_every_layout() {
        let mut random = Random::new(1);
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (17, 300, 9), (8, 1, 33), (2, 0, 3)] {
            let (a, b) = (random.reals::<f64>(m * k), random.reals::<f64>(k * n));
            for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let left =
                    if trans_a { Matrix::dense(&a, k, m).transposed() } else { Matrix::dense(&a, m, k) };
                let right =
                    if trans_b { Matrix::dense(&b, n, k).transposed() } else { Matrix::dense(&b, k, n) };
                let mut c = vec![1.0; m * n];
                let result = MatrixMut { data: &mut c, rows: m, columns: n, row_stride: n };
                multiply(left, right, result, true);
                for i in 0..m {
                    for j in 0..n {
                        let direct: f64 = (0..k)
                            .map(|l| {
                                let x = if trans_a { a[l * m + i] } else { a[i * k + l] };
                                x * if trans_b { b[j * k + l] } else { b[l * n + j] }
                            })
                            .sum();
                        assert!((c[i * n + j] - 1.0 - direct).abs() < 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn a_dot_product_is_the_sum_of_products() {
        let mut random = Random::new(2);
        for length in [0, 1, 31, 32, 33, 1000] {
            let (a, b) = (random.reals::<f64>(length), random.reals::<f64>(length));
            let direct: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((dot(&a, &b) - direct).abs() < 1e-12);
        }
    }
}

//! Matrix products through cuBLAS.

use std::ffi::c_void;

use cudarc::cublas::sys as blas;
use monosplit_graph::{Error, Result};

use super::Math;
use super::device::Checked;
use super::layout::{Walk, broadcast_strides, strides_of};

/// One matrix, or one out of each of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub(super) at: u64,
    transposed: bool,
    /// Length of a row as it is stored.
    row: i64,
    /// Elements to the same matrix of the next sample.
    stride: i64,
}

/// `y ← a·b`, for a batch of matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    a: Matrix,
    b: Matrix,
    y: u64,
    rows: i64,
    inner: i64,
    columns: i64,
    batch: i64,
    math: Math,
}

/// An operand: where it lies, its shape, and whether it is read transposed.
pub(super) struct Operand<'a> {
    pub(super) at: u64,
    pub(super) shape: &'a [usize],
    pub(super) transposed: bool,
}

impl Operand<'_> {
    /// Rows and columns as they are read.
    fn size(&self) -> (usize, usize) {
        let [rows, columns] = [self.shape[self.shape.len() - 2], self.shape[self.shape.len() - 1]];
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }

    fn matrix(&self, offset: i64, stride: i64, bytes: usize) -> Matrix {
        let row = self.shape[self.shape.len() - 1] as i64;
        let at = self.at.wrapping_add_signed(offset * bytes as i64);
        Matrix { at, transposed: self.transposed, row, stride }
    }
}

impl Product {
    /// The products that make up a batched product into `y` of shape `to`: several where one stride cannot lead from
    /// each to the next.
    pub(super) fn all(
        a: &Operand<'_>,
        b: &Operand<'_>,
        (y, to): (u64, &[usize]),
        math: Math,
    ) -> Result<Vec<Product>> {
        let outer = &to[..to.len() - 2];
        let matrix_elements =
            |operand: &Operand<'_>| operand.shape[operand.shape.len() - 2..].iter().product::<usize>() as i64;
        let batch_strides = |operand: &Operand<'_>| -> Vec<i64> {
            let own = broadcast_strides(&operand.shape[..operand.shape.len() - 2], outer);
            own.iter().map(|stride| stride * matrix_elements(operand)).collect()
        };
        let ((rows, inner), (_, columns)) = (a.size(), b.size());
        let whole = (rows * columns) as i64;
        let along_y: Vec<i64> = strides_of(outer).iter().map(|stride| stride * whole).collect();
        let walk = Walk::new(outer, &[batch_strides(a), batch_strides(b), along_y]);
        let (mut rows, mut last) = (rows, walk.shape.last().copied().unwrap_or(1));
        let stride = |value: usize| walk.strides[value].last().copied().unwrap_or(0);
        let mut strides = [stride(0), stride(1), stride(2)];
        // Samples that share the second matrix are rows of one product.
        if strides[1] == 0 && !a.transposed && strides[0] == (rows * inner) as i64 {
            (rows, last, strides) = (rows * last, 1, [0; 3]);
        }
        let bytes = math.bytes();
        let steps: usize = walk.shape[..walk.shape.len().saturating_sub(1)].iter().product();
        let product = |step: usize| {
            let mut offsets = [0i64; 3];
            let mut rest = step;
            for axis in (0..walk.shape.len().saturating_sub(1)).rev() {
                let index = (rest % walk.shape[axis]) as i64;
                rest /= walk.shape[axis];
                for (offset, strides) in offsets.iter_mut().zip(&walk.strides) {
                    *offset += index * strides[axis];
                }
            }
            Product {
                a: a.matrix(offsets[0], strides[0], bytes),
                b: b.matrix(offsets[1], strides[1], bytes),
                y: y.wrapping_add_signed(offsets[2] * bytes as i64),
                rows: rows as i64,
                inner: inner as i64,
                columns: columns as i64,
                batch: last as i64,
                math,
            }
        };
        if [rows, inner, columns, last].iter().any(|&n| i32::try_from(n).is_err()) {
            return Err(Error::memory("a matrix is too large for the card's library; use a smaller batch"));
        }
        Ok((0..steps).map(product).collect())
    }

    pub(super) fn enqueue(&self, library: blas::cublasHandle_t) -> Result<()> {
        use blas::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
        let operation = |matrix: &Matrix| if matrix.transposed { CUBLAS_OP_T } else { CUBLAS_OP_N };
        let (single, double) = ([1f32, 0.0], [1f64, 0.0]);
        let (one, zero, kind, compute) = match self.math {
            Math::F64 => (
                (&raw const double[0]).cast::<c_void>(),
                (&raw const double[1]).cast::<c_void>(),
                blas::cudaDataType_t::CUDA_R_64F,
                blas::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            ),
            single_kind => (
                (&raw const single[0]).cast::<c_void>(),
                (&raw const single[1]).cast::<c_void>(),
                blas::cudaDataType_t::CUDA_R_32F,
                match single_kind {
                    Math::Tf32 => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
                    Math::Bf16 => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_16BF,
                    _ => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                },
            ),
        };
        // The library counts by columns: what is stored by rows is its transpose there, and so is the product.
        // SAFETY: the operands are memory of the program this product belongs to, as large as the shapes say.
        unsafe {
            blas::cublasGemmStridedBatchedEx(
                library,
                operation(&self.b),
                operation(&self.a),
                self.columns as i32,
                self.rows as i32,
                self.inner as i32,
                one,
                self.b.at as *const c_void,
                kind,
                self.b.row.max(1) as i32,
                self.b.stride,
                self.a.at as *const c_void,
                kind,
                self.a.row.max(1) as i32,
                self.a.stride,
                zero,
                self.y as *mut c_void,
                kind,
                self.columns.max(1) as i32,
                self.rows * self.columns,
                self.batch as i32,
                compute,
                blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
        .or_say("multiply matrices")
    }
}

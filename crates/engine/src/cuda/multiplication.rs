//! Matrix products through cuBLASLt. Descriptors and algorithm are fixed when a product is created, before it is enqueued.

use std::ffi::c_void;

use cudarc::cublaslt::{result as library, sys as lt};
use monosplit_graph::Result;

use super::Math;
use super::device::{Device, DriverResult, GEMM_WORKSPACE};
use super::product::{DeviceMatrix, DeviceProduct};

/// The largest alignment in bytes that is distinguished: that of the widest load. The choice of an algorithm does not depend
/// on larger alignments, so that it does not depend on where a value was allocated.
const MAX_ALIGNMENT: u32 = 16;

/// The data type and the compute type of a product.
fn kinds(math: Math) -> (lt::cudaDataType, lt::cublasComputeType_t) {
    use lt::cublasComputeType_t as Compute;
    use lt::cudaDataType_t::{CUDA_R_32F, CUDA_R_64F};
    match math {
        Math::F32 => (CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
        Math::Tf32 => (CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
        Math::Bf16 => (CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_16BF),
        Math::F64 => (CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
    }
}

/// The address and the size of an attribute.
fn attribute<T>(value: &T) -> (*const c_void, usize) {
    (std::ptr::from_ref(value).cast(), size_of::<T>())
}

/// cuBLASLt's descriptor of a batch of matrices.
struct MatrixLayout(lt::cublasLtMatrixLayout_t);

impl MatrixLayout {
    /// cuBLASLt is column-major: to it, a row-major matrix is the transposed one.
    fn new(kind: lt::cudaDataType, matrix: &DeviceMatrix, batch: i32) -> Result<Self> {
        use lt::cublasLtMatrixLayoutAttribute_t::{
            CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as COUNT,
            CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as STRIDE,
        };
        let (rows, columns) = (matrix.columns as u64, matrix.rows as u64);
        let layout = library::create_matrix_layout(kind, rows, columns, matrix.columns as i64);
        let layout = MatrixLayout(layout.or_failed_to("describe a matrix")?);
        for (name, (value, bytes)) in [(COUNT, attribute(&batch)), (STRIDE, attribute(&matrix.stride))] {
            // SAFETY: the layout was created above. The library expects 32 bits for the count and 64 for the stride.
            unsafe { library::set_matrix_layout_attribute(layout.0, name, value, bytes) }
                .or_failed_to("describe a matrix")?;
        }
        Ok(layout)
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = library::destroy_matrix_layout(self.0);
        }
    }
}

/// cuBLASLt's descriptor of a product.
struct Operation(lt::cublasLtMatmulDesc_t);

impl Operation {
    fn new(math: Math, transposed: [bool; 2]) -> Result<Self> {
        use lt::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_TRANSA as FIRST, CUBLASLT_MATMUL_DESC_TRANSB as SECOND,
        };
        let (kind, compute) = kinds(math);
        let made = library::create_matmul_desc(compute, kind).or_failed_to("describe a product")?;
        let operation = Operation(made);
        for (name, transposed) in [FIRST, SECOND].into_iter().zip(transposed) {
            // 0 and 1 are CUBLAS_OP_N and CUBLAS_OP_T.
            let how = i32::from(transposed);
            let (value, bytes) = attribute(&how);
            // SAFETY: the operation was created above. The library expects 32 bits for both attributes.
            unsafe { library::set_matmul_desc_attribute(operation.0, name, value, bytes) }
                .or_failed_to("describe a product")?;
        }
        Ok(operation)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = library::destroy_matmul_desc(self.0);
        }
    }
}

/// The limits within which cuBLASLt chooses an algorithm.
struct Preference(lt::cublasLtMatmulPreference_t);

impl Preference {
    /// For matrices with these alignments in bytes: two factors and their product.
    fn new(alignments: [u32; 3]) -> Result<Self> {
        use lt::cublasLtMatmulPreferenceAttributes_t::{
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as WORKSPACE,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES as FIRST,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES as SECOND,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES as BEFORE,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES as AFTER,
            CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK as SCHEMES,
        };
        use lt::cublasLtReductionScheme_t::{
            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as IN_WORKSPACE,
            CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as IN_WORKSPACE_ROUNDED,
        };
        let preference = Preference(library::create_matmul_pref().or_failed_to("choose an algorithm")?);
        // Split sums may be reduced in a separate step, in a fixed order. Adding to the result in any order is not allowed,
        // because it is not deterministic.
        let schemes = IN_WORKSPACE as u32 | IN_WORKSPACE_ROUNDED as u32;
        let workspace = GEMM_WORKSPACE as u64;
        for (name, (value, bytes)) in [
            (WORKSPACE, attribute(&workspace)),
            (SCHEMES, attribute(&schemes)),
            (FIRST, attribute(&alignments[0])),
            (SECOND, attribute(&alignments[1])),
            (BEFORE, attribute(&alignments[2])),
            (AFTER, attribute(&alignments[2])),
        ] {
            // SAFETY: the preference was created above. The library expects 64 bits for the workspace and 32 for all else.
            unsafe { library::set_matmul_pref_attribute(preference.0, name, value, bytes) }
                .or_failed_to("choose an algorithm")?;
        }
        Ok(preference)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = library::destroy_matmul_pref(self.0);
        }
    }
}

/// The alignment in bytes of all matrices of a batch.
fn alignment(matrix: &DeviceMatrix, math: Math) -> u32 {
    let addresses = matrix.at | (matrix.stride.unsigned_abs() * math.bytes() as u64);
    1 << addresses.trailing_zeros().min(MAX_ALIGNMENT.ilog2())
}

/// A product ready to be enqueued.
pub(super) struct Multiplication {
    operation: Operation,
    /// Two factors and their product.
    layouts: [MatrixLayout; 3],
    addresses: [u64; 3],
    algorithm: lt::cublasLtMatmulAlgo_t,
    double: bool,
}

impl Multiplication {
    /// Chooses an algorithm for `product`. The caller has locked the device.
    pub(super) fn new(device: &Device, product: &DeviceProduct) -> Result<Self> {
        let DeviceProduct { a, b, y, batch, math } = product;
        // (AB)ᵀ = BᵀAᵀ: column-major, the second factor comes first.
        let (matrices, (kind, _)) = ([b, a, y], kinds(*math));
        let operation = Operation::new(*math, [b.transposed, a.transposed])?;
        let [first, second, result] = matrices.map(|matrix| MatrixLayout::new(kind, matrix, *batch));
        let layouts = [first?, second?, result?];
        let preference = Preference::new(matrices.map(|matrix| alignment(matrix, *math)))?;
        let [first, second, result] = [layouts[0].0, layouts[1].0, layouts[2].0];
        // SAFETY: all descriptors live until the end of this function.
        let chosen = unsafe {
            library::get_matmul_algo_heuristic(
                device.cublas_lt(),
                operation.0,
                first,
                second,
                result,
                result,
                preference.0,
            )
        };
        Ok(Multiplication {
            operation,
            layouts,
            addresses: matrices.map(|matrix| matrix.at),
            algorithm: chosen.or_failed_to("choose an algorithm for a matrix product")?.algo,
            double: *math == Math::F64,
        })
    }

    /// Enqueues the product on a stream, with that stream's workspace. The caller has locked the device.
    pub(super) fn enqueue(&self, device: &Device, stream: usize) -> Result<()> {
        let (single, double) = ([1f32, 0.0], [1f64, 0.0]);
        let scalar = |index: usize| match self.double {
            true => (&raw const double[index]).cast::<c_void>(),
            false => (&raw const single[index]).cast::<c_void>(),
        };
        let [first, second, result] = &self.layouts;
        // SAFETY: the operands are memory of the program that owns this product, as large as the layouts say. The workspace has
        // the size that the preference named.
        unsafe {
            library::matmul(
                device.cublas_lt(),
                self.operation.0,
                scalar(0),
                scalar(1),
                self.addresses[0] as *const c_void,
                first.0,
                self.addresses[1] as *const c_void,
                second.0,
                self.addresses[2] as *const c_void,
                result.0,
                self.addresses[2] as *mut c_void,
                result.0,
                &self.algorithm,
                device.gemm_workspace(stream) as *mut c_void,
                GEMM_WORKSPACE,
                device.stream(stream).cast(),
            )
        }
        .or_failed_to("multiply matrices")
    }
}

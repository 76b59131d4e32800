//! Matrix products through cuBLASLt: described, and their algorithm chosen, when they are written down, so that nothing is
//! left to decide when the card is told.

use std::ffi::c_void;

use cudarc::cublaslt::{result as library, sys as lt};
use monosplit_graph::Result;

use super::Math;
use super::device::{Checked, Device, PRODUCT_WORKSPACE};
use super::product::{Matrix, Product};

/// The most bytes that are read at once. What begins at multiples of more is not told apart, so that algorithms do not depend
/// on where in memory a value was put.
const READ_AT_ONCE: u32 = 16;

/// How a product's numbers are stored, and how they are computed.
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

/// The bytes of an attribute.
fn attribute<T>(value: &T) -> (*const c_void, usize) {
    (std::ptr::from_ref(value).cast(), size_of::<T>())
}

/// How the matrices of a batch lie in memory.
struct Layout(lt::cublasLtMatrixLayout_t);

impl Layout {
    /// The library counts by columns: what is stored by rows is its transpose there.
    fn new(kind: lt::cudaDataType, matrix: &Matrix, batch: i32) -> Result<Self> {
        use lt::cublasLtMatrixLayoutAttribute_t::{
            CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as COUNT,
            CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as STRIDE,
        };
        let (rows, columns) = (matrix.columns as u64, matrix.rows as u64);
        let layout = library::create_matrix_layout(kind, rows, columns, matrix.columns as i64);
        let layout = Layout(layout.or_say("describe a matrix")?);
        for (name, (value, bytes)) in [(COUNT, attribute(&batch)), (STRIDE, attribute(&matrix.stride))] {
            // SAFETY: the layout was just made; a count has 32 bits in it and a stride 64.
            unsafe { library::set_matrix_layout_attribute(layout.0, name, value, bytes) }
                .or_say("describe a matrix")?;
        }
        Ok(layout)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = library::destroy_matrix_layout(self.0);
        }
    }
}

/// What is done with two matrices.
struct Operation(lt::cublasLtMatmulDesc_t);

impl Operation {
    fn new(math: Math, transposed: [bool; 2]) -> Result<Self> {
        use lt::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_TRANSA as FIRST, CUBLASLT_MATMUL_DESC_TRANSB as SECOND,
        };
        let (kind, compute) = kinds(math);
        let made = library::create_matmul_desc(compute, kind).or_say("describe a product")?;
        let operation = Operation(made);
        for (name, transposed) in [FIRST, SECOND].into_iter().zip(transposed) {
            // 0 and 1 are CUBLAS_OP_N and CUBLAS_OP_T.
            let how = i32::from(transposed);
            let (value, bytes) = attribute(&how);
            // SAFETY: the operation was just made, and both have 32 bits in it.
            unsafe { library::set_matmul_desc_attribute(operation.0, name, value, bytes) }
                .or_say("describe a product")?;
        }
        Ok(operation)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = library::destroy_matmul_desc(self.0);
        }
    }
}

/// What an algorithm must do without.
struct Preference(lt::cublasLtMatmulPreference_t);

impl Preference {
    /// For matrices whose beginnings are multiples of so many bytes: two factors and their product.
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
        let preference = Preference(library::create_matmul_pref().or_say("choose an algorithm")?);
        // Parts of a sum may be added up in a step of its own, in one order; not in the result, one as soon as it is there.
        let schemes = IN_WORKSPACE as u32 | IN_WORKSPACE_ROUNDED as u32;
        let workspace = PRODUCT_WORKSPACE as u64;
        for (name, (value, bytes)) in [
            (WORKSPACE, attribute(&workspace)),
            (SCHEMES, attribute(&schemes)),
            (FIRST, attribute(&alignments[0])),
            (SECOND, attribute(&alignments[1])),
            (BEFORE, attribute(&alignments[2])),
            (AFTER, attribute(&alignments[2])),
        ] {
            // SAFETY: the preference was just made; a size of memory has 64 bits in it, all else 32.
            unsafe { library::set_matmul_pref_attribute(preference.0, name, value, bytes) }
                .or_say("choose an algorithm")?;
        }
        Ok(preference)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = library::destroy_matmul_pref(self.0);
        }
    }
}

/// Of how many bytes the places are multiples at which the matrices of a batch begin.
fn alignment(matrix: &Matrix, math: Math) -> u32 {
    let places = matrix.at | (matrix.stride.unsigned_abs() * math.bytes() as u64);
    1 << places.trailing_zeros().min(READ_AT_ONCE.ilog2())
}

/// A product ready to be computed.
pub(super) struct Multiplication {
    operation: Operation,
    /// Two factors and their product.
    layouts: [Layout; 3],
    places: [u64; 3],
    algorithm: lt::cublasLtMatmulAlgo_t,
    double: bool,
}

impl Multiplication {
    /// Chooses how to compute `product`. The caller has the card's turn.
    pub(super) fn new(device: &Device, product: &Product) -> Result<Self> {
        let Product { a, b, y, batch, math } = product;
        // Of transposes, the second factor is the first.
        let (matrices, (kind, _)) = ([b, a, y], kinds(*math));
        let operation = Operation::new(*math, [b.transposed, a.transposed])?;
        let [first, second, result] = matrices.map(|matrix| Layout::new(kind, matrix, *batch));
        let layouts = [first?, second?, result?];
        let preference = Preference::new(matrices.map(|matrix| alignment(matrix, *math)))?;
        let [first, second, result] = [layouts[0].0, layouts[1].0, layouts[2].0];
        // SAFETY: all of them live until the end of this function.
        let chosen = unsafe {
            library::get_matmul_algo_heuristic(
                device.products(),
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
            places: matrices.map(|matrix| matrix.at),
            algorithm: chosen.or_say("choose how to multiply matrices")?.algo,
            double: *math == Math::F64,
        })
    }

    /// Tells the card, on a lane and in that lane's memory. The caller has the card's turn.
    pub(super) fn enqueue(&self, device: &Device, lane: usize) -> Result<()> {
        let (single, double) = ([1f32, 0.0], [1f64, 0.0]);
        let scalar = |index: usize| match self.double {
            true => (&raw const double[index]).cast::<c_void>(),
            false => (&raw const single[index]).cast::<c_void>(),
        };
        let [first, second, result] = &self.layouts;
        // SAFETY: the operands are memory of the program this product belongs to, as large as the layouts say, and the
        // workspace is as large as the algorithm was told.
        unsafe {
            library::matmul(
                device.products(),
                self.operation.0,
                scalar(0),
                scalar(1),
                self.places[0] as *const c_void,
                first.0,
                self.places[1] as *const c_void,
                second.0,
                self.places[2] as *const c_void,
                result.0,
                self.places[2] as *mut c_void,
                result.0,
                &self.algorithm,
                device.product_workspace(lane) as *mut c_void,
                PRODUCT_WORKSPACE,
                device.lane(lane).cast(),
            )
        }
        .or_say("multiply matrices")
    }
}

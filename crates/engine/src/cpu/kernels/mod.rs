//! The inner loops. `policy` chooses which of them runs a node, `conv_plan` by which algorithm a convolution is computed; the rest are
//! functions over slices that know nothing of graphs. No sum is split between threads, so that results do not depend on how many
//! there are.

mod activation;
mod broadcast;
mod chunks;
pub(crate) mod conv_plan;
pub(crate) mod convolution;
pub(crate) mod denormal;
mod depthwise;
mod depthwise_3x3;
mod depthwise_rows;
mod elementary;
mod elementwise;
pub(crate) mod epilogue;
mod erf;
pub(crate) mod fused;
mod fused_block;
mod gemm;
pub(crate) mod gemm_convolution;
mod gemm_rhs;
mod im2col;
mod implicit_gemm;
mod in_place;
mod matmul;
mod microkernel;
mod movement;
mod narrow_tile;
mod norm;
pub(crate) mod packed_convolution;
mod packed_product;
mod padded_planes;
pub(crate) mod peak;
pub(crate) mod pointwise_depthwise;
pub(crate) mod policy;
mod pool;
mod reduce;
pub(crate) mod resize;
mod row_loops;
pub(crate) mod scratch;
mod simd_lanes;
pub(crate) mod simd_level;
mod sliding_window;
mod softmax;
pub(crate) mod streams;
#[cfg(test)]
pub(crate) mod testing;
mod transpose;
mod transposed_convolution;
mod weight_gradient;
mod winograd;
mod winograd_tiles;
mod winograd_transform;
mod winograd_weight_gradient;

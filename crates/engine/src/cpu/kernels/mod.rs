//! The inner loops. `policy` chooses which of them runs a node; the rest are plain functions over slices
//! that know nothing of graphs. Everything here cuts work by sizes alone and never splits a sum between
//! threads, which is why results do not depend on how many there are.

mod activation;
mod broadcast;
pub(crate) mod chain;
mod columns;
pub(crate) mod conv;
pub(crate) mod conv_plan;
mod conv_transpose;
pub(crate) mod convolution;
mod correlation;
pub(crate) mod denormal;
mod depthwise;
mod elementwise;
mod erf;
mod framed;
mod frames;
pub(crate) mod fused;
mod gemm;
mod lanes;
pub(crate) mod level;
mod matmul;
mod movement;
mod norm;
pub(crate) mod packed_convolution;
pub(crate) mod peak;
pub(crate) mod policy;
mod pool;
mod reduce;
pub(crate) mod resize;
mod right;
mod rows;
pub(crate) mod scratch;
mod softmax;
pub(crate) mod streams;
#[cfg(test)]
pub(crate) mod testing;
mod threes;
mod tile;
mod window;
mod winograd;
mod winograd_gradient;
mod winograd_tiles;
mod winograd_transform;

//! What a network is: a typed graph of operations, read from and written to ONNX.
//!
//! This crate knows tensors, shapes, ONNX and network architectures. It does not know how anything is
//! run or explained.

mod error;
mod half;
pub mod npy;
mod tensor;
pub mod weights;

pub use error::{Error, ErrorKind, Result};
pub use tensor::{Buffer, Data, Kind, Scalar, Tensor, element_count};

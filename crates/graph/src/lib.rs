//! What a network is: a typed graph of operations, read from and written to ONNX.
//!
//! This crate knows tensors, shapes, ONNX and network architectures. It does not know how anything is
//! run or explained.

pub mod arch;
mod error;
mod graph;
mod infer;
pub mod op;
mod shape;
mod tensor;

pub use error::{Error, ErrorKind, Result};
pub use graph::{Graph, Label, Node, NodeId, Output};
pub use op::Op;
pub use shape::{Dim, Shape};
pub use tensor::{Buffer, Data, Kind, Scalar, Tensor, element_count};

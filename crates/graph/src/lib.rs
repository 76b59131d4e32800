//! What a network is: a typed graph of operations, read from and written to ONNX.
//!
//! This crate knows tensors, shapes, ONNX and network architectures. It does not know how anything is
//! run or explained.

pub mod address;
pub mod arch;
mod archive;
mod arithmetic;
pub mod array_file;
mod atomic_file;
mod axis_indices;
pub mod batch;
mod calls;
mod csv_file;
mod cut;
mod element;
mod error;
mod file;
mod fingerprint;
mod graph;
mod half;
mod infer;
mod legible;
mod log_timer;
pub mod metadata;
mod noise;
pub mod npy;
pub mod npz;
pub mod onnx;
pub mod op;
pub mod options;
pub mod passes;
mod resampling;
mod shape;
mod tap_sums;
mod tensor;
pub mod weights;

pub use address::{End, Layer, LayerName, LayerSummary};
pub use atomic_file::{abandon_unfinished_files, check_replaceable, keep, protect_inputs, write_atomically};
pub use axis_indices::axis_indices;
pub use csv_file::{CsvCell, CsvRecord, open_csv, read_csv, write_csv};
pub use cut::Cut;
pub use error::{Error, ErrorKind, Hint, Result};
pub use file::{FileBytes, open_regular};
pub use fingerprint::Fingerprint;
pub use graph::{Graph, Label, Node, NodeId, Output};
pub use half::{round_to_bfloat16, round_to_half};
pub use legible::{escaped, is_disturbing, shortened, shown};
pub use log_timer::LogTimer;
pub use noise::Noise;
pub use op::Op;
pub use options::Options;
pub use shape::{Dim, Shape};
pub use tensor::{Buffer, Data, Kind, Scalar, Tensor, element_count};

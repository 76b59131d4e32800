//! Networks as ONNX files. Reading accepts operator sets 7 to the newest and files of every exporter in use,
//! and leaves a graph in which everything ONNX decides at run time is decided; writing turns any graph into a
//! file other tools run.

mod batch_positions;
mod call;
mod compaction;
mod declared_value;
mod element_types;
mod elements;
mod evaluate;
mod evaluate_arithmetic;
mod export;
mod export_constant;
mod export_layout;
mod export_op;
mod export_options;
mod export_precision;
mod export_slice;
#[cfg(test)]
mod export_tests;
mod export_window;
mod files;
mod import;
mod import_activation;
mod import_arithmetic;
mod import_attention;
mod import_conv;
mod import_gather;
mod import_layout;
mod import_matrix;
mod import_normalisation;
mod import_pool;
mod import_quantised;
mod import_recurrent;
mod import_reduce;
mod import_resize;
mod import_select;
mod import_shape;
#[cfg(test)]
mod import_tests;
mod input_shape;
mod integer_input;
mod label;
mod limits;
mod model;
mod module_path;
mod names;
mod operators;
mod order;
mod quantiser;
mod remark;
mod schema;
mod static_array;
mod subgraph;
mod symbolic_int;
mod tensor_proto;
mod value;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub use self::export::{save, write};
pub use self::export_options::ExportOptions;
pub use self::import::{ImportReport, Problem};
pub use self::input_shape::ImportOptions;
pub use self::integer_input::IntegerInput;
pub use self::operators::supported_ops;
pub use self::remark::Remark;
pub use declared_value::{DeclaredLength, DeclaredValue};

use self::files::Files;
use self::import::Importer;
use self::model::{ModelProperties, ModelProto};
use crate::error::Result;
use crate::file::FileBytes;
use crate::graph::Graph;

/// Reads the network in an ONNX file and the files of external data beside it. The files are mapped, and must
/// [not change](FileBytes#the-file-must-not-change) as long as the graph lives; [`read`] copies.
pub fn open(path: &Path, options: &ImportOptions) -> Result<Graph> {
    let file = FileBytes::open(path)?;
    let model = ModelProto::read(file.bytes())?;
    Importer::new(&model, Files::new(Some(&file), path.parent()), options)?.graph()
}

/// Reads a network from the bytes of an ONNX file. `folder` is that of its external data, if it has any; those files are
/// mapped.
pub fn read(bytes: &[u8], folder: Option<&Path>, options: &ImportOptions) -> Result<Graph> {
    let model = ModelProto::read(Bytes::copy_from_slice(bytes))?;
    Importer::new(&model, Files::new(None, folder), options)?.graph()
}

/// The metadata properties of an ONNX file, read without its network.
pub fn metadata(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let properties = ModelProperties::read(bytes)?.metadata;
    Ok(properties.into_iter().map(|property| (property.key, property.value)).collect())
}

/// Everything in an ONNX file that cannot be read, all at once; and the network, if there is nothing such.
pub fn import_report(bytes: &[u8], folder: Option<&Path>, options: &ImportOptions) -> Result<ImportReport> {
    let model = ModelProto::read(Bytes::copy_from_slice(bytes))?;
    Importer::new(&model, Files::new(None, folder), options)?.import_report()
}

/// The same of an open file, whose aligned weights are used without a copy.
pub fn import_report_of_file(
    file: &Arc<FileBytes>,
    folder: Option<&Path>,
    options: &ImportOptions,
) -> Result<ImportReport> {
    let model = ModelProto::read(file.bytes())?;
    Importer::new(&model, Files::new(Some(file), folder), options)?.import_report()
}

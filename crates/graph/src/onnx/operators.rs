//! The operators that can be read: one table, which is also what `monosplit ops` prints.

use super::call::Call;
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};

use super::import_activation as activation;
use super::import_arithmetic as arithmetic;
use super::import_conv as conv;
use super::import_layout as layout;
use super::import_matrix as matrix;
use super::import_normalisation as normalisation;
use super::import_pool as pool;
use super::import_reduce as reduce;
use super::import_resize as resize;
use super::import_select as select;
use super::import_shape as shape;

type Import = for<'m, 'c> fn(&mut Importer<'m>, &Call<'c>) -> Result<Vec<Value>>;

/// An operator and how it is read.
pub(crate) struct Operator {
    name: &'static str,
    note: &'static str,
    pub(crate) import: Import,
}

const fn op(name: &'static str, import: Import, note: &'static str) -> Operator {
    Operator { name, note, import }
}

const KNOWN_ONLY: &str = "on shapes and constants";

/// In alphabetical order.
static OPERATORS: &[Operator] = &[
    op("Abs", activation::unary, ""),
    op("Add", arithmetic::binary, ""),
    op("And", arithmetic::binary, ""),
    op("ArgMax", reduce::arg_max, "the first of equals"),
    op("ArgMin", reduce::arg_max, "the first of equals"),
    op("AveragePool", pool::average_pool, ""),
    op("BatchNormalization", normalisation::batch_norm, "evaluation mode"),
    op("Cast", layout::cast, "between real, integer and truth values"),
    op("CastLike", layout::cast_like, "between real, integer and truth values"),
    op("Ceil", activation::unary, ""),
    op("Celu", activation::unary, ""),
    op("Clip", activation::clip, ""),
    op("Concat", layout::concat, ""),
    op("Constant", known_only, ""),
    op("ConstantOfShape", shape::constant_of_shape, ""),
    op("Conv", conv::conv, ""),
    op("ConvTranspose", conv::conv_transpose, ""),
    op("DepthToSpace", layout::depth_to_space, ""),
    op("Div", arithmetic::binary, ""),
    op("Dropout", layout::dropout, "evaluation mode"),
    op("Einsum", matrix::einsum, "one or two values, no repeated or elided axes"),
    op("Elu", activation::unary, ""),
    op("Equal", arithmetic::binary, ""),
    op("Erf", activation::unary, ""),
    op("Exp", activation::unary, ""),
    op("Expand", shape::expand, ""),
    op("Flatten", shape::flatten, ""),
    op("Floor", activation::unary, ""),
    op("Gather", select::gather, ""),
    op("GatherND", select::gather_nd, "constant indices"),
    op("Gelu", activation::gelu, ""),
    op("Gemm", matrix::gemm, ""),
    op("GlobalAveragePool", pool::global_pool, ""),
    op("GlobalMaxPool", pool::global_pool, ""),
    op("Greater", arithmetic::binary, ""),
    op("GreaterOrEqual", arithmetic::binary, ""),
    op("GroupNormalization", normalisation::group_norm, ""),
    op("HardSigmoid", activation::unary, ""),
    op("HardSwish", activation::unary, ""),
    op("Identity", layout::identity, ""),
    op("If", branch, "constant condition"),
    op("InstanceNormalization", normalisation::instance_norm, ""),
    op("LRN", normalisation::local_response_norm, ""),
    op("LayerNormalization", normalisation::layer_norm, ""),
    op("LeakyRelu", activation::unary, ""),
    op("Less", arithmetic::binary, ""),
    op("LessOrEqual", arithmetic::binary, ""),
    op("Log", activation::unary, ""),
    op("LogSoftmax", activation::softmax, ""),
    op("LpNormalization", normalisation::lp_norm, ""),
    op("MatMul", matrix::matmul, ""),
    op("Max", arithmetic::variadic, ""),
    op("MaxPool", pool::max_pool, "without indices"),
    op("Mean", arithmetic::variadic, ""),
    op("Min", arithmetic::variadic, ""),
    op("Mish", activation::unary, ""),
    op("Mod", known_only, KNOWN_ONLY),
    op("Mul", arithmetic::binary, ""),
    op("Neg", activation::unary, ""),
    op("NonZero", known_only, KNOWN_ONLY),
    op("Not", activation::unary, ""),
    op("Or", arithmetic::binary, ""),
    op("PRelu", arithmetic::prelu, ""),
    op("Pad", layout::pad, "constant, reflect and edge"),
    op("Pow", arithmetic::binary, ""),
    op("Range", known_only, KNOWN_ONLY),
    op("Reciprocal", activation::unary, ""),
    op("ReduceL1", reduce::reduce, ""),
    op("ReduceL2", reduce::reduce, ""),
    op("ReduceLogSum", reduce::reduce, ""),
    op("ReduceLogSumExp", reduce::reduce, ""),
    op("ReduceMax", reduce::reduce, ""),
    op("ReduceMean", reduce::reduce, ""),
    op("ReduceMin", reduce::reduce, ""),
    op("ReduceProd", reduce::reduce, ""),
    op("ReduceSum", reduce::reduce, ""),
    op("ReduceSumSquare", reduce::reduce, ""),
    op("Relu", activation::unary, ""),
    op("Reshape", shape::reshape, ""),
    op("Resize", resize::resize, "nearest, linear and cubic, without antialiasing"),
    op("Round", activation::unary, ""),
    op("ScatterND", known_only, KNOWN_ONLY),
    op("Selu", activation::unary, ""),
    op("SequenceAt", select::sequence_at, "constant position"),
    op("Shape", known_only, ""),
    op("Sigmoid", activation::unary, ""),
    op("Sign", activation::unary, ""),
    op("Size", known_only, ""),
    op("Slice", select::slice, ""),
    op("Softmax", activation::softmax, ""),
    op("Softplus", activation::unary, ""),
    op("Softsign", activation::softsign, ""),
    op("SpaceToDepth", layout::space_to_depth, ""),
    op("Split", select::split, ""),
    op("SplitToSequence", select::split_to_sequence, ""),
    op("Sqrt", activation::unary, ""),
    op("Squeeze", shape::squeeze, ""),
    op("Sub", arithmetic::binary, ""),
    op("Sum", arithmetic::variadic, ""),
    op("Swish", activation::swish, ""),
    op("Tanh", activation::unary, ""),
    op("ThresholdedRelu", activation::thresholded_relu, ""),
    op("Tile", shape::tile, ""),
    op("Transpose", layout::transpose, ""),
    op("Trilu", select::trilu, ""),
    op("Unsqueeze", shape::unsqueeze, ""),
    op("Upsample", resize::upsample, ""),
    op("Where", arithmetic::select, ""),
    op("Xor", arithmetic::binary, ""),
];

/// The ONNX operators that can be read, with the restrictions of each (empty if there are none).
pub fn supported_ops() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPERATORS.iter().map(|o| (o.name, o.note))
}

/// How an operator is read.
pub(crate) fn operator(domain: &str, name: &str) -> Result<&'static Operator> {
    let own = matches!(domain, "" | "ai.onnx");
    match OPERATORS.binary_search_by(|o| o.name.cmp(name)) {
        Ok(index) if own => Ok(&OPERATORS[index]),
        _ => {
            let full = if own { name.to_owned() } else { format!("{domain}.{name}") };
            Err(Error::unsupported(format!("the op {full} is not supported; `monosplit ops` lists what is")))
        }
    }
}

fn known_only(_: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    Err(Error::unsupported(format!(
        "{} is supported on shapes and constants only; `monosplit ops` lists what is supported",
        call.op()
    )))
}

fn branch(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    importer.import_if(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_as_the_search_needs_it() {
        assert!(OPERATORS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = operator("com.microsoft", "FusedConv").err().map(|e| e.to_string());
        assert!(
            message.is_some_and(|m| m.contains("com.microsoft.FusedConv") && m.contains("monosplit ops"))
        );
    }
}

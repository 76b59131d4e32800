//! The operators that can be read: one table, which is also what `monosplit ops` prints.

use super::call::Call;
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Hint, Result};
use crate::op::{Binary, Unary};

use super::import_activation as activation;
use super::import_arithmetic as arithmetic;
use super::import_attention as attention;
use super::import_conv as conv;
use super::import_gather as gather;
use super::import_layout as layout;
use super::import_matrix as matrix;
use super::import_normalisation as normalisation;
use super::import_pool as pool;
use super::import_quantised as quantised;
use super::import_recurrent as recurrent;
use super::import_reduce as reduce;
use super::import_resize as resize;
use super::import_select as select;
use super::import_shape as shape;

pub(crate) type Import = for<'m, 'c> fn(&mut Importer<'m>, &Call<'c>) -> Result<Vec<Value>>;

/// An operator and how it is read.
struct Operator {
    name: &'static str,
    note: &'static str,
    import: Import,
}

const fn op(name: &'static str, import: Import, note: &'static str) -> Operator {
    Operator { name, note, import }
}

const DEQUANTISED: &str = "computed on the real numbers that the integers stand for";
const RECURRENT: &str = "fixed number of steps, the same for all samples";
const KNOWN_ONLY: &str = "on shapes and constants";

/// The operators that are not elementwise functions of one or two values, or are read differently, in alphabetical order.
static OPERATORS: &[Operator] = &[
    op("ArgMax", reduce::arg_max, "the first of equals"),
    op("ArgMin", reduce::arg_max, "the first of equals"),
    op("Attention", attention::attention, "without windows and lengths of each sample"),
    op("AveragePool", pool::average_pool, ""),
    op("BatchNormalization", normalisation::batch_norm, "evaluation mode"),
    op("Cast", layout::cast, "between real, integer and truth values"),
    op("CastLike", layout::cast_like, "between real, integer and truth values"),
    op("Clip", activation::clip, ""),
    op("Concat", layout::concat, ""),
    op("Constant", known_only, ""),
    op("ConstantOfShape", shape::constant_of_shape, ""),
    op("Conv", conv::conv, ""),
    op("ConvInteger", quantised::integer_product, DEQUANTISED),
    op("ConvTranspose", conv::conv_transpose, ""),
    op("CumSum", reduce::cum_sum, "up to 4096 elements; integers as real numbers"),
    op("DepthToSpace", layout::depth_to_space, ""),
    op("DequantizeLinear", quantised::dequantize_linear, "fixed scale, not in blocks"),
    op("Dropout", layout::dropout, "evaluation mode"),
    op(
        "DynamicQuantizeLinear",
        quantised::dynamic_quantize_linear,
        "left out: real numbers stay as they are",
    ),
    op("Einsum", matrix::einsum, "one or two values, no repeated or elided axes"),
    op("Expand", shape::expand, ""),
    op("Flatten", shape::flatten, ""),
    op("GRU", recurrent::recurrent, RECURRENT),
    op("Gather", gather::gather, ""),
    op("GatherElements", gather::gather_elements, "not across the batch"),
    op("GatherND", gather::gather_nd, "not across the batch"),
    op("Gelu", activation::gelu, ""),
    op("Gemm", matrix::gemm, ""),
    op("GlobalAveragePool", pool::global_pool, ""),
    op("GlobalMaxPool", pool::global_pool, ""),
    op("GroupNormalization", normalisation::group_norm, ""),
    op("Identity", layout::identity, ""),
    op("If", branch, "constant condition"),
    op("InstanceNormalization", normalisation::instance_norm, ""),
    op("IsInf", activation::is_infinite, ""),
    op("IsNaN", activation::is_undefined, ""),
    op("LRN", normalisation::local_response_norm, ""),
    op("LSTM", recurrent::recurrent, RECURRENT),
    op("LayerNormalization", normalisation::layer_norm, ""),
    op("LogSoftmax", activation::softmax, ""),
    op("Loop", repeat, "constant number of rounds"),
    op("LpNormalization", normalisation::lp_norm, ""),
    op("MatMul", matrix::matmul, ""),
    op("MatMulInteger", quantised::integer_product, DEQUANTISED),
    op("Max", arithmetic::variadic, ""),
    op("MaxPool", pool::max_pool, "without indices"),
    op("Mean", arithmetic::variadic, ""),
    op("Min", arithmetic::variadic, ""),
    op("Mod", arithmetic::modulo, "of integers, by a constant"),
    op("NonZero", known_only, KNOWN_ONLY),
    op("PRelu", arithmetic::prelu, ""),
    op("Pad", layout::pad, ""),
    op("QLinearConv", quantised::qlinear_conv, DEQUANTISED),
    op("QLinearMatMul", quantised::qlinear_matmul, DEQUANTISED),
    op("QuantizeLinear", quantised::quantize_linear, "kept as rounding; fixed scale, not in blocks"),
    op("RMSNormalization", normalisation::rms_norm, ""),
    op("RNN", recurrent::recurrent, RECURRENT),
    op("Range", known_only, KNOWN_ONLY),
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
    op("Reshape", shape::reshape, ""),
    op("Resize", resize::resize, "nearest, linear and cubic"),
    op("RotaryEmbedding", attention::rotary_embedding, ""),
    op("Scan", scan, "fixed number of steps"),
    op("ScatterND", known_only, KNOWN_ONLY),
    op("SequenceAt", select::sequence_at, "constant position"),
    op("Shape", known_only, ""),
    op("Size", known_only, ""),
    op("Slice", select::slice, ""),
    op("Softmax", activation::softmax, ""),
    op("Softsign", activation::softsign, ""),
    op("SpaceToDepth", layout::space_to_depth, ""),
    op("Split", select::split, ""),
    op("SplitToSequence", select::split_to_sequence, ""),
    op("Squeeze", shape::squeeze, ""),
    op("Sum", arithmetic::variadic, ""),
    op("Swish", activation::swish, ""),
    op("ThresholdedRelu", activation::thresholded_relu, ""),
    op("Tile", shape::tile, ""),
    op("Transpose", layout::transpose, ""),
    op("Trilu", select::trilu, ""),
    op("Unsqueeze", shape::unsqueeze, ""),
    op("Upsample", resize::upsample, ""),
    op("Where", arithmetic::select, ""),
];

/// The ONNX operators that can be read, with the restrictions of each (empty if there are none), in alphabetical order.
pub fn supported_ops() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut all: Vec<_> = OPERATORS.iter().map(|o| (o.name, o.note)).collect();
    all.extend(elementwise().map(|(name, _)| (name, "")));
    let own = |o: &&Operator| search(o.name).is_err();
    all.extend(MICROSOFT.iter().filter(own).map(|o| (o.name, "ONNX Runtime's (com.microsoft); dequantised")));
    all.sort_unstable();
    all.into_iter()
}

/// The elementwise functions of one and two values, as the table of functions has them.
fn elementwise() -> impl Iterator<Item = (&'static str, Import)> {
    let unary = Unary::onnx_names().map(|name| (name, activation::unary as Import));
    let binary = Binary::ALL.iter().map(|function| (function.name(), arithmetic::binary as Import));
    unary.chain(binary.filter(|(name, _)| search(name).is_err()))
}

fn search(name: &str) -> std::result::Result<usize, usize> {
    OPERATORS.binary_search_by(|o| o.name.cmp(name))
}

/// The operators of ONNX Runtime that its quantiser writes, in the order of their names.
const MICROSOFT: &[Operator] = &[
    op("DequantizeLinear", quantised::dequantize_linear, ""),
    op("DynamicQuantizeMatMul", quantised::matmul_to_float, ""),
    op("MatMulIntegerToFloat", quantised::matmul_to_float, ""),
    op("QGemm", quantised::qgemm, ""),
    op("QLinearAdd", quantised::qlinear_binary, ""),
    op("QLinearAveragePool", quantised::qlinear_pool, ""),
    op("QLinearConcat", quantised::qlinear_concat, ""),
    op("QLinearGlobalAveragePool", quantised::qlinear_pool, ""),
    op("QLinearLeakyRelu", quantised::qlinear_activation, ""),
    op("QLinearMul", quantised::qlinear_binary, ""),
    op("QLinearSigmoid", quantised::qlinear_activation, ""),
    op("QLinearSoftmax", quantised::qlinear_activation, ""),
    op("QuantizeLinear", quantised::quantize_linear, ""),
];

/// How an operator is read.
pub(crate) fn operator(domain: &str, name: &str) -> Result<Import> {
    let own = matches!(domain, "" | "ai.onnx");
    if domain == "com.microsoft"
        && let Some(operator) = MICROSOFT.iter().find(|operator| operator.name == name)
    {
        return Ok(operator.import);
    }
    let found = match search(name) {
        Ok(index) => Some(OPERATORS[index].import),
        Err(_) => elementwise().find(|(own, _)| *own == name).map(|(_, import)| import),
    };
    found.filter(|_| own).ok_or_else(|| {
        let full = if own { name.to_owned() } else { format!("{domain}.{name}") };
        Error::unsupported(format!("the op {full} is not supported")).hint(Hint::OPERATORS)
    })
}

fn known_only(_: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    Err(Error::unsupported(format!("{} is supported on shapes and constants only", call.op()))
        .hint(Hint::OPERATORS))
}

fn repeat(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    importer.import_loop(call)
}

fn scan(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    importer.import_scan(call)
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
    fn an_operator_is_read_in_one_way() {
        assert!(elementwise().all(|(name, _)| search(name).is_err()));
        assert!(supported_ops().is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = operator("com.microsoft", "FusedConv").err().map(|e| e.to_string());
        assert!(
            message
                .is_some_and(|m| m.contains("com.microsoft.FusedConv") && m.contains("table of operators"))
        );
    }
}

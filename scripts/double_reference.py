"""What an ONNX file computes in float64: every float32 tensor and cast of it becomes float64, nothing else changes.

The graph is walked by the ONNX reference evaluator. The operators below stand in for its own where those are wrong in
double precision (they round to float32, or ignore an attribute) or take minutes on a real network; they are PyTorch's.
Attributes are read as they were written, `1e-05` and not the float32 next to it (see `make_file_references.py`).

    python scripts/double_reference.py MODEL.onnx x.npy --out y64.npy
"""

import argparse
import pathlib

import numpy as np
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch.nn import functional

from make_file_references import ConvTranspose, Erf, Gelu, widened


def tensors(*arrays):
    return [None if a is None else torch.from_numpy(np.array(a, order="C")) for a in arrays]


def padding(x, kernel, strides, dilations, pads, auto_pad):
    """Padding before and after each axis, with `auto_pad` worked out as the standard has it."""
    axes = len(kernel)
    if auto_pad in (None, "", "NOTSET"):
        pads = pads or [0] * 2 * axes
        return list(pads[:axes]), list(pads[axes:])
    if auto_pad == "VALID":
        return [0] * axes, [0] * axes
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    wanted = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(x.shape[2:], strides, reach)]
    less, more = [w // 2 for w in wanted], [w - w // 2 for w in wanted]
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def padded(x, begin, end, value):
    """Explicit padding, last axis first as PyTorch wants it."""
    amounts = [n for pair in reversed(list(zip(begin, end))) for n in pair]
    return functional.pad(x, amounts, value=value) if any(amounts) else x


class Conv(OpRun):
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None):
        axes = x.ndim - 2
        strides, dilations = strides or [1] * axes, dilations or [1] * axes
        begin, end = padding(x, w.shape[2:], strides, dilations, pads, auto_pad)
        function = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[axes]
        x, w, b = tensors(x, w, b)
        options = {"stride": tuple(strides), "dilation": tuple(dilations), "groups": group or 1}
        return (function(padded(x, begin, end, 0.0), w, b, **options).numpy(),)


def windows(x, kernel, strides, dilations, begin, end, ceil_mode, fill):
    """All windows of an [N, C, H, W] tensor, [N·C, window, positions], and the lengths of the output.

    With ceil mode, a last window that starts in the padding is dropped."""
    lengths, extra = [], []
    for n, k, s, d, b, e in zip(x.shape[2:], kernel, strides, dilations, begin, end):
        reach, span = (k - 1) * d + 1, n + b + e
        count = (-(-(span - reach) // s) if ceil_mode else (span - reach) // s) + 1
        if ceil_mode and (count - 1) * s >= n + b:
            count -= 1
        lengths.append(count)
        extra.append(max((count - 1) * s + reach - span, 0))
    x = padded(x, begin, [e + more for e, more in zip(end, extra)], fill)
    x = x.reshape(-1, 1, *x.shape[2:])
    unfolded = functional.unfold(x, tuple(kernel), dilation=tuple(dilations), stride=tuple(strides))
    at = np.arange(unfolded.shape[-1]).reshape([(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], kernel, dilations, strides)])
    return unfolded[..., at[: lengths[0], : lengths[1]].ravel()], lengths


class MaxPool(OpRun):
    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None, storage_order=None, strides=None):
        strides, dilations = strides or [1, 1], dilations or [1, 1]
        begin, end = padding(x, kernel_shape, strides, dilations, pads, auto_pad)
        values, lengths = windows(*tensors(x), kernel_shape, strides, dilations, begin, end, ceil_mode, -torch.inf)
        return (values.amax(1).reshape(*x.shape[:2], *lengths).numpy(),)


class AveragePool(OpRun):
    def _run(self, x, auto_pad=None, ceil_mode=None, count_include_pad=None, dilations=None, kernel_shape=None, pads=None, strides=None):
        strides, dilations = strides or [1, 1], dilations or [1, 1]
        begin, end = padding(x, kernel_shape, strides, dilations, pads, auto_pad)
        ones = torch.ones(1, 1, *x.shape[2:], dtype=torch.float64)
        (x,) = tensors(x)
        if count_include_pad:
            x, ones = padded(x, begin, end, 0.0), padded(ones, begin, end, 1.0)
            begin, end = [0, 0], [0, 0]
        values, lengths = windows(x, kernel_shape, strides, dilations, begin, end, ceil_mode, 0.0)
        counts, _ = windows(ones, kernel_shape, strides, dilations, begin, end, ceil_mode, 0.0)
        return ((values.sum(1) / counts.sum(1)).reshape(*x.shape[:2], *lengths).numpy(),)


class BatchNormalization(OpRun):
    def _run(self, x, scale, bias, mean, variance, epsilon=None, momentum=None, training_mode=None, spatial=None):
        columns = (1, -1) + (1,) * (x.ndim - 2)
        factor = scale / np.sqrt(variance + epsilon)
        return ((x - mean.reshape(columns)) * factor.reshape(columns) + bias.reshape(columns),)


class HardSigmoid(OpRun):
    def _run(self, x, alpha=None, beta=None):
        # A sixth is not a decimal: the exporters write the float32 next to it and mean the fraction.
        alpha = 1 / 6 if np.float32(alpha) == np.float32(1 / 6) else alpha
        return (np.clip(x * alpha + beta, 0.0, 1.0),)


class HardSwish(OpRun):
    def _run(self, x):
        return (x * np.clip(x / 6 + 0.5, 0.0, 1.0),)


class ConstantOfShape(OpRun):
    def _run(self, shape, value=None):
        # Without a value the standard fills with float32 zeros, which no tensor of the file shows.
        return (np.full(tuple(shape), np.float64(0) if value is None else value.flat[0]),)


class Einsum(OpRun):
    def _run(self, *operands, equation=None):
        return (torch.einsum(equation, *tensors(*operands)).numpy(),)


class Sigmoid(OpRun):
    def _run(self, x):
        return (torch.sigmoid(*tensors(x)).numpy(),)


OPERATORS = [
    AveragePool, BatchNormalization, ConstantOfShape, Conv, ConvTranspose, Einsum, Erf, Gelu, HardSigmoid, HardSwish, MaxPool, Sigmoid,
]


def evaluate(path, x):
    """The first output of the file for `x`, in float64 throughout."""
    model = widened(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    name = next(value.name for value in model.graph.input if value.name not in weights)
    output = model.graph.output[0].name
    result = ReferenceEvaluator(model, new_ops=OPERATORS).run([output], {name: x.astype(np.float64)})[0]
    if result.dtype != np.float64:
        raise TypeError(f"the evaluator gave {result.dtype}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("x", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    np.save(arguments.out, evaluate(arguments.model, np.load(arguments.x)))


if __name__ == "__main__":
    main()

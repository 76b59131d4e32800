#!/usr/bin/env python3
"""Compares random operator graphs with ONNX Runtime: which of them are accepted, and what they compute.

    cargo build --example run_networks -p monosplit
    python scripts/compare_operators.py [--seed 0] [--count 3000] [--only Attention Loop …] [--keep FOLDER]

Each graph has one operator of the default domain with random attributes, shapes and operands (odd numbers among them), written
for a random operator set, or a chain of two or three. They go through the example `run_networks` in batches, so that one process
runs thousands. Said of each: the same values (NaN equals NaN; 1e-4 of the largest apart, more where numbers are odd), the same
refusal, accepted by one alone, or other values. Graphs that both accept with other values, and those that kill the process, are
kept; the script ends with 1 if there are any.
"""

import argparse
import collections
import multiprocessing
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

REPOSITORY = Path(__file__).resolve().parent.parent
ODD = [0.0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-40, 3.4e38]
OPERATOR_SETS = [9, 11, 13, 14, 15, 17, 18, 20, 21, 22, 23, 23, 24, 24]
# The operator set that brought an operator, where not all have it.
SINCE = {"Attention": 23, "RotaryEmbedding": 23, "RMSNormalization": 23, "Gelu": 20, "GroupNormalization": 21, "Swish": 24}


class Maker:
    """One random operator after another."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.initializers = []
        self.opset = int(self.random.choice(OPERATOR_SETS))
        self.tame = self.random.random() < 0.85
        self.outputs = None

    def below(self, count):
        return int(self.random.integers(count))

    def pick(self, *items):
        return items[self.below(len(items))]

    def flag(self, share=0.5):
        return self.random.random() < share

    def array(self, shape, scale=1.0):
        values = (self.random.normal(size=shape) * scale).astype(np.float32)
        if not self.tame and values.size and self.flag(0.3):
            values.reshape(-1)[self.below(values.size)] = self.pick(*ODD)
        return values

    def constant(self, array):
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def integers(self, values):
        return self.constant(np.array(values, np.int64))

    def shape(self, rank=None):
        rank = self.pick(1, 2, 3, 4, 4, 4) if rank is None else rank
        return [self.pick(1, 1, 2, 3, 4, 5, 7) for _ in range(rank)]

    def window(self, axes):
        attributes = {"kernel_shape": [1 + self.below(3) for _ in range(axes)]}
        if self.flag():
            attributes["strides"] = [1 + self.below(3) for _ in range(axes)]
        if self.flag(0.3):
            attributes["dilations"] = [1 + self.below(2) for _ in range(axes)]
        style = self.below(5)
        if style == 0:
            attributes["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
        elif style < 3:
            attributes["pads"] = [self.below(2) for _ in range(2 * axes)]
        return attributes

    def number(self):
        return float(self.pick(*ODD)) if not self.tame and self.flag(0.3) else float(self.random.normal())

    def operator(self, x, shape):
        """A node that reads `x`: its name, operands, attributes."""
        rank = len(shape)
        axis = self.below(rank) - (rank if self.flag(0.3) else 0) if rank else 0
        self.outputs = None
        name = self.pick(*([name for name in OPERATORS if SINCE.get(name, 0) <= self.opset] or ["Relu"]))
        if name in UNARY:
            attributes = {key: self.number() for key in UNARY[name] if self.flag()}
            return name, [x], attributes
        if name in BINARY:
            other = [n if self.flag(0.6) else 1 for n in shape]
            other = other[self.below(rank + 1) :] if self.flag(0.3) else other
            operands = [x, self.constant(self.array(other))]
            return name, operands if self.flag() else operands[::-1], {}
        return getattr(self, name)(x, shape, rank, axis)

    def Conv(self, x, shape, rank, axis):
        channels = shape[1] if rank > 1 else 1
        groups = self.pick(1, 1, channels)
        attributes = self.window(max(rank - 2, 0)) | {"group": groups}
        kernel = attributes["kernel_shape"]
        outputs = groups * (1 + self.below(3))
        operands = [x, self.constant(self.array([outputs, channels // groups, *kernel]))]
        if self.flag():
            operands.append(self.constant(self.array([outputs])))
        if self.flag(0.3):
            del attributes["kernel_shape"]
        return "Conv", operands, attributes

    def ConvTranspose(self, x, shape, rank, axis):
        channels = shape[1] if rank > 1 else 1
        groups = self.pick(1, 1, channels)
        attributes = self.window(max(rank - 2, 0)) | {"group": groups}
        kernel = attributes["kernel_shape"]
        per_group = 1 + self.below(3)
        if self.flag(0.3):
            attributes["output_padding"] = [self.below(2) for _ in kernel]
        operands = [x, self.constant(self.array([channels, per_group, *kernel]))]
        if self.flag():
            operands.append(self.constant(self.array([per_group * groups])))
        return "ConvTranspose", operands, attributes

    def MaxPool(self, x, shape, rank, axis):
        attributes = self.window(max(rank - 2, 0))
        if self.opset < 10:
            attributes.pop("dilations", None)
        elif self.flag(0.3):
            attributes["ceil_mode"] = 1
        return "MaxPool", [x], attributes

    def AveragePool(self, x, shape, rank, axis):
        attributes = self.window(max(rank - 2, 0))
        if self.opset < 19:
            attributes.pop("dilations", None)
        if self.opset >= 10 and self.flag(0.3):
            attributes["ceil_mode"] = 1
        if self.flag(0.3):
            attributes["count_include_pad"] = 1
        return "AveragePool", [x], attributes

    def GlobalAveragePool(self, x, shape, rank, axis):
        return self.pick("GlobalAveragePool", "GlobalMaxPool"), [x], {}

    def BatchNormalization(self, x, shape, rank, axis):
        channels = shape[1] if rank > 1 else 1
        vectors = [self.array([channels]) for _ in range(3)] + [np.abs(self.array([channels]))]
        attributes = {"epsilon": abs(self.number())} if self.flag() else {}
        return "BatchNormalization", [x, *map(self.constant, vectors)], attributes

    def InstanceNormalization(self, x, shape, rank, axis):
        channels = shape[1] if rank > 1 else 1
        return "InstanceNormalization", [x, *(self.constant(self.array([channels])) for _ in range(2))], {}

    def LayerNormalization(self, x, shape, rank, axis):
        normal = shape[axis:] if axis < 0 else shape[axis:]
        operands = [x, self.constant(self.array(normal))]
        if self.flag():
            operands.append(self.constant(self.array(normal)))
        return "LayerNormalization", operands, {"axis": axis}

    def LRN(self, x, shape, rank, axis):
        return "LRN", [x], {"size": 1 + 2 * self.below(3), "alpha": abs(self.number()), "beta": 0.75, "bias": 1.0}

    def Softmax(self, x, shape, rank, axis):
        return self.pick("Softmax", "LogSoftmax"), [x], {"axis": axis} if self.flag(0.8) else {}

    def Gemm(self, x, shape, rank, axis):
        transposed = self.below(2)
        inner = shape[-1] if rank else 1
        outer = 1 + self.below(4)
        operands = [x, self.constant(self.array([outer, inner] if transposed else [inner, outer]))]
        if self.flag():
            operands.append(self.constant(self.array(self.pick([outer], [1], [1, outer], []))))
        attributes = {"transB": transposed}
        if self.flag(0.3):
            attributes |= {"alpha": self.number(), "beta": self.number()}
        return "Gemm", operands, attributes

    def MatMul(self, x, shape, rank, axis):
        inner = shape[-1] if rank else 1
        return "MatMul", [x, self.constant(self.array([inner, 1 + self.below(4)]))], {}

    def Concat(self, x, shape, rank, axis):
        other = list(shape)
        if rank:
            other[axis] = 1 + self.below(3)
        operands = [x, self.constant(self.array(other)), x][: 1 + self.below(3)]
        return "Concat", operands, {"axis": axis}

    def Reshape(self, x, shape, rank, axis):
        target = [0 if self.flag(0.2) else n for n in shape]
        if target and self.flag(0.6):
            target = target[:-2] + [-1] if self.flag() else target[:-1] + [-1]
        return "Reshape", [x, self.integers(target)], {}

    def Flatten(self, x, shape, rank, axis):
        return "Flatten", [x], {"axis": axis} if self.flag() else {}

    def Transpose(self, x, shape, rank, axis):
        return "Transpose", [x], {"perm": self.random.permutation(rank).tolist()} if self.flag(0.8) else {}

    def Squeeze(self, x, shape, rank, axis):
        axes = [i for i, n in enumerate(shape) if n == 1 and self.flag()]
        if self.opset < 13:
            return "Squeeze", [x], {"axes": axes} if axes else {}
        return "Squeeze", [x, self.integers(axes)] if axes else [x], {}

    def Unsqueeze(self, x, shape, rank, axis):
        axes = sorted({self.below(rank + 1) for _ in range(1 + self.below(2))})
        if self.opset < 13:
            return "Unsqueeze", [x], {"axes": axes}
        return "Unsqueeze", [x, self.integers(axes)], {}

    def Slice(self, x, shape, rank, axis):
        axes = sorted({self.below(rank) for _ in range(1 + self.below(2))}) if rank else []
        ends = [0, 1, 2, -1, 5, -3, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1]
        starts, stops = ([self.pick(*ends) for _ in axes] for _ in range(2))
        if self.opset < 10:
            return "Slice", [x], {"starts": starts, "ends": stops, "axes": axes}
        steps = [self.pick(1, 1, 2, -1, -2, 3) for _ in axes]
        # Backwards to the largest number: ONNX Runtime takes it for the beginning, ONNX itself and NumPy do not.
        stops = [-stop if step < 0 and stop >= 2**31 - 1 else stop for stop, step in zip(stops, steps)]
        return "Slice", [x, *map(self.integers, (starts, stops, axes, steps))], {}

    def Split(self, x, shape, rank, axis):
        length = shape[axis] if rank else 1
        first = 1 + self.below(max(length - 1, 1))
        if self.opset < 13:
            return "Split", [x], {"axis": axis, "split": [first, length - first]}
        return "Split", [x, self.integers([first, length - first])], {"axis": axis}

    def Pad(self, x, shape, rank, axis):
        pads = [self.pick(0, 0, 1, 2, -1) for _ in range(2 * rank)]
        mode = self.pick("constant", "reflect", "edge", "wrap")
        if self.opset < 11:
            return "Pad", [x], {"pads": pads, "mode": mode, "value": self.number()}
        operands = [x, self.integers(pads)]
        if mode == "constant" and self.flag():
            operands.append(self.constant(np.float32(self.number())))
        return "Pad", operands, {"mode": mode}

    def Gather(self, x, shape, rank, axis):
        length = shape[axis] if rank else 1
        indices = self.random.integers(-length, length, size=self.pick([], [2], [2, 2]))
        return "Gather", [x, self.constant(np.asarray(indices, np.int64))], {"axis": axis}

    def Expand(self, x, shape, rank, axis):
        target = [self.pick(1, n, 2 if n == 1 else n) for n in shape]
        return "Expand", [x, self.integers([2] * self.below(2) + target)], {}

    def Tile(self, x, shape, rank, axis):
        return "Tile", [x, self.integers([self.below(4) for _ in shape])], {}

    def Reduce(self, x, shape, rank, axis):
        name = self.pick("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
        axes = sorted({self.below(rank) for _ in range(1 + self.below(3))}) if rank else []
        attributes = {"keepdims": self.below(2)}
        since = 13 if name == "Sum" else 18
        if not axes or self.flag(0.2):
            return f"Reduce{name}", [x], attributes
        if self.opset < since:
            return f"Reduce{name}", [x], attributes | {"axes": axes}
        return f"Reduce{name}", [x, self.integers(axes)], attributes

    def ArgMax(self, x, shape, rank, axis):
        return self.pick("ArgMax", "ArgMin"), [x], {"axis": axis, "keepdims": self.below(2)}

    def Resize(self, x, shape, rank, axis):
        mode = self.pick("nearest", "linear", "cubic")
        attributes = {"mode": mode}
        if self.opset >= 11:
            attributes["coordinate_transformation_mode"] = self.pick(
                "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"
            )
            if mode == "nearest":
                attributes["nearest_mode"] = self.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        if mode == "cubic" and self.flag(0.3):
            attributes |= {"cubic_coeff_a": -0.5, "exclude_outside": self.below(2)}
        if self.opset >= 18 and mode != "nearest" and self.flag():
            attributes["antialias"] = 1
        scales = np.ones(rank, np.float32)
        changed = list(range(max(2, rank - 2), rank))
        for i in changed:
            scales[i] = self.pick(0.5, 2.0, 1.5, 3.0)
        if self.opset < 10:
            return "Upsample", [x, self.constant(scales)], {"mode": self.pick("nearest", "linear")}
        if self.opset < 11:
            return "Resize", [x, self.constant(scales)], {"mode": self.pick("nearest", "linear")}
        by_sizes = self.flag(0.4) and changed
        sizes = [self.pick(1, 2, 3, 5, 8) if i in changed else n for i, n in enumerate(shape)]
        if self.opset >= 18 and changed and self.flag(0.3):
            attributes["axes"] = changed
            scales, sizes = scales[changed], [sizes[i] for i in changed]
            if by_sizes and self.flag(0.4):
                attributes["keep_aspect_ratio_policy"] = self.pick("stretch", "not_larger", "not_smaller")
        if by_sizes:
            return "Resize", [x, "", "", self.integers(sizes)], attributes
        return "Resize", [x, "", self.constant(scales)], attributes

    def Attention(self, x, shape, rank, axis):
        attributes = {}
        if rank == 3:
            heads = self.pick(*[n for n in range(1, shape[2] + 1) if shape[2] % n == 0])
            samples, rows, size = shape[0], shape[1], shape[2] // heads
        elif rank == 4:
            samples, heads, rows, size = shape
        else:
            samples, heads, rows, size = 1, 1, 1, 1
        groups = self.pick(*[n for n in range(1, heads + 1) if heads % n == 0])
        keys, width = self.pick(rows, 1, 2, 4), self.pick(size, 1, 3)
        if rank == 3:
            attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
        operand = lambda rows, size: self.constant(
            self.array([samples, rows, groups * size] if rank == 3 else [samples, groups, rows, size])
        )
        same = groups == heads and keys == rows
        key = x if same and self.flag(0.3) else operand(keys, size)
        value = x if same and width == size and self.flag(0.3) else operand(keys, width)
        operands, past = [x, key, value], 0
        if self.flag(0.3):
            attributes["scale"] = abs(self.number())
        if self.flag(0.3):
            attributes["softcap"] = abs(self.number())
        if self.flag(0.3):
            attributes["is_causal"] = 1
        style = self.below(4)
        past = 2 if self.flag(0.2) else 0
        mask = self.pick([rows, keys + past], [samples, 1, rows, keys + past], [samples, heads, rows, keys + past], [1, 1, rows, keys + past])
        if style == 1:
            operands.append(self.constant(self.array(mask)))
        elif style == 2:
            operands.append(self.constant(self.random.random(mask) < 0.7))
        if past:
            operands += [""] * (4 - len(operands))
            operands += [self.constant(self.array([samples, groups, past, n])) for n in (size, width)]
            self.outputs = ["", "present_key", "present_value"]
        return "Attention", operands, attributes

    def RotaryEmbedding(self, x, shape, rank, axis):
        if rank > 2 and shape[-1] % 2 and self.flag(0.9):
            return self.Pad(x, shape, rank, axis)
        attributes = {"interleaved": self.below(2)} if self.flag() else {}
        if rank == 3:
            heads = self.pick(*[n for n in range(1, shape[2] + 1) if shape[2] % n == 0])
            attributes["num_heads"] = heads
            samples, rows, size = shape[0], shape[1], shape[2] // heads
        else:
            samples, _, rows, size = shape if rank == 4 else [1] * 4
        turned = size
        if self.flag(0.3):
            turned = 2 * (1 + self.below(max(size // 2, 1)))
            attributes["rotary_embedding_dim"] = turned
        if self.flag():
            caches = [self.constant(self.array([samples, rows, turned // 2])) for _ in range(2)]
            return "RotaryEmbedding", [x, *caches], attributes
        caches = [self.constant(self.array([6, turned // 2])) for _ in range(2)]
        places = self.constant(self.random.integers(0, 6, (samples, rows)))
        return "RotaryEmbedding", [x, *caches, places], attributes

    def RMSNormalization(self, x, shape, rank, axis):
        attributes = {"axis": axis} | ({"epsilon": abs(self.number())} if self.flag(0.3) else {})
        return "RMSNormalization", [x, self.constant(self.array(shape[axis:]))], attributes

    def GroupNormalization(self, x, shape, rank, axis):
        channels = shape[1] if rank > 1 else 1
        groups = self.pick(*[n for n in range(1, channels + 1) if channels % n == 0])
        return "GroupNormalization", [x, *(self.constant(self.array([channels])) for _ in range(2))], {"num_groups": groups}

    def Recurrent(self, x, shape, rank, axis):
        name, gates, states = self.pick(("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2))
        width, samples = (shape[2], shape[1]) if rank == 3 else (1, 1)
        hidden, direction = 1 + self.below(3), self.pick("forward", "reverse", "bidirectional")
        directions = 2 if direction == "bidirectional" else 1
        held = lambda *dims: self.constant(self.array([directions, *dims]))
        operands = [x, held(gates * hidden, width), held(gates * hidden, hidden)]
        operands.append(held(2 * gates * hidden) if self.flag() else "")
        if self.flag(0.4):
            operands += [""] + [held(samples, hidden) for _ in range(states)]
            if name == "LSTM" and self.flag():
                operands.append(held(3 * hidden))
        attributes = {"hidden_size": hidden, "direction": direction}
        if name == "GRU" and self.flag():
            attributes["linear_before_reset"] = 1
        if self.flag(0.3):
            attributes["activations"] = directions * [self.pick("Sigmoid", "Tanh", "Relu") for _ in range({"RNN": 1, "GRU": 2, "LSTM": 3}[name])]
        while operands[-1] == "":
            operands.pop()
        self.outputs = self.pick([], [""], ["", ""] if name == "LSTM" else [""])
        return name, operands, attributes

    def Loop(self, x, shape, rank, axis):
        """A state that is turned into another so many times, and what it was on the way."""
        real = lambda name, dims=shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        weights = numpy_helper.from_array(self.array([1] * rank), "body.w")
        function = self.pick("Tanh", "Relu", "Sin", "Identity")
        nodes = [
            helper.make_node(self.pick("Mul", "Add", "Sub", "Max"), ["state", "body.w"], ["moved"]),
            helper.make_node(function, ["moved"], ["next"]),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ]
        truth = lambda name: helper.make_tensor_value_info(name, TensorProto.BOOL, [])
        count = helper.make_tensor_value_info("round", TensorProto.INT64, [])
        body = helper.make_graph(nodes, "body", [count, truth("going"), real("state")], [truth("goes_on"), real("next"), real("moved")], [weights])
        self.outputs = ["", "on_the_way"]
        going = self.constant(np.bool_(True)) if self.flag(0.7) else ""
        return "Loop", [self.constant(np.int64(self.below(4))), going, x], {"body": body}

    def Scan(self, x, shape, rank, axis):
        """Running sums along an axis, in either direction."""
        axis %= max(rank, 1)
        rest = shape[:axis] + shape[axis + 1 :]
        real = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, rest)
        function = self.pick("Add", "Max", "Mul")
        nodes = [helper.make_node(function, ["state", "element"], ["next"]), helper.make_node("Identity", ["next"], ["seen"])]
        body = helper.make_graph(nodes, "body", [real("state"), real("element")], [real("next"), real("seen")])
        attributes = {"body": body, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [self.below(2)]}
        if self.flag():
            attributes |= {"scan_output_axes": [self.below(len(rest) + 1)], "scan_output_directions": [self.below(2)]}
        self.outputs = ["", "seen"]
        return "Scan", [self.constant(self.array(rest)), x], attributes

    def Quantised(self, x, shape, rank, axis):
        scale, zero = self.constant(np.float32(self.pick(0.01, 0.1, 0.5))), self.constant(self.pick(np.uint8(7), np.int8(-3), np.uint8(0)))
        self.outputs = ["quantised"]
        return "QuantizeLinear", [x, scale, zero], {}

    def Clip(self, x, shape, rank, axis):
        low, high = self.number(), self.number()
        if self.opset < 11:
            return "Clip", [x], {"min": low, "max": high}
        bounds = [self.constant(np.float32(low)), self.constant(np.float32(high))]
        return "Clip", [x, *bounds[: self.below(3)]], {}

    def Cast(self, x, shape, rank, axis):
        kinds = ["FLOAT", "FLOAT16", "DOUBLE", "INT32", "INT64", "UINT8", "INT8", "BOOL", "UINT32"]
        return "Cast", [x], {"to": getattr(TensorProto, self.pick(*kinds))}

    def Where(self, x, shape, rank, axis):
        condition = self.constant(self.random.random(shape) < 0.5)
        return "Where", [condition, x, self.constant(self.array([1] * rank))], {}

    def DepthToSpace(self, x, shape, rank, axis):
        name = self.pick("DepthToSpace", "SpaceToDepth")
        return name, [x], {"blocksize": 1 + self.below(2)}

    def CumSum(self, x, shape, rank, axis):
        return "CumSum", [x, self.constant(np.int64(axis))], {"exclusive": self.below(2), "reverse": self.below(2)}

    def Trilu(self, x, shape, rank, axis):
        return "Trilu", [x, self.constant(np.int64(self.below(5) - 2))], {"upper": self.below(2)}

    def Einsum(self, x, shape, rank, axis):
        letters = "abcd"[:rank]
        kept = "".join(letter for letter in letters if self.flag())
        return "Einsum", [x], {"equation": f"{letters}->{kept}"}


UNARY = {name: [] for name in """Relu Sigmoid Tanh Softplus Softsign Abs Neg Sqrt Exp Log Reciprocal Erf Floor Ceil Round Sign
    Sin Cos Identity HardSwish Mish Not""".split()}
UNARY |= {
    "LeakyRelu": ["alpha"],
    "Elu": ["alpha"],
    "Selu": ["alpha", "gamma"],
    "Celu": ["alpha"],
    "HardSigmoid": ["alpha", "beta"],
    "ThresholdedRelu": ["alpha"],
    "Shrink": ["bias", "lambd"],
    "Gelu": [],
    "Swish": ["alpha"],
}
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Greater", "Less", "Equal", "Mod", "Mean", "Sum"]
MADE = [name for name in vars(Maker) if name[0].isupper()]
OPERATORS = [*MADE, *MADE, *MADE, *UNARY, *BINARY]


def network(seed):
    """A model and its input, or none where `onnx` cannot put it together."""
    maker = Maker(seed)
    shape = maker.shape()
    x = maker.array(shape)
    nodes, value, known = [], "x", list(shape)
    for number in range(maker.pick(1, 1, 2, 3)):
        name, operands, attributes = maker.operator(value, known)
        output = [f"v{number}"] + ([f"w{number}"] if name == "Split" else [])
        if name == "QuantizeLinear":
            nodes.append(helper.make_node(name, operands, [f"q{number}"], name=f"q{number}"))
            name, operands = "DequantizeLinear", [f"q{number}", *operands[1:]]
        elif maker.outputs is not None:
            # One of the outputs is the value: those before it are left out, nothing reads those after it.
            output = output if "" not in maker.outputs else output + [f"{key}{number}" for key in maker.outputs[1:] if key]
            if name in ("RNN", "GRU", "LSTM"):
                output = maker.outputs + output
        attributes = {key: value for key, value in attributes.items() if value != []}
        nodes.append(helper.make_node(name, operands, output, name=f"n{number}", **attributes))
        value = output[0]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        graph = helper.make_graph(nodes, "random", [given], [onnx.ValueInfoProto(name=value)], maker.initializers)
        opset = [helper.make_opsetid("", maker.opset)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        try:
            output = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0]
            inferred = output.type.tensor_type
            known = [dim.dim_value for dim in inferred.shape.dim]
            if inferred.elem_type:
                model.graph.output[0].type.CopyFrom(output.type)
        except Exception:  # noqa: BLE001 — what inference cannot read is for both to refuse.
            break
        if inferred.elem_type != TensorProto.FLOAT or 0 in known:
            break
    if not model.graph.output[0].type.tensor_type.elem_type:
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return model, x


def runtime(model, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        if model.graph.output[0].type.tensor_type.HasField("shape"):
            onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, {"x": x})[0], None
    except Exception as error:  # noqa: BLE001
        return None, str(error).splitlines()[0]


def made_and_run(seeds):
    """Networks, inputs, and what ONNX Runtime says of them, made in a process of its own: some graphs end it, within ONNX Runtime
    or within the shape inference of `onnx`."""
    found = {}
    while len(found) < len(seeds):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.Process(target=make_and_run, args=(seeds[len(found) :], sender))
        child.start()
        sender.close()
        try:
            while len(found) < len(seeds):
                found[seeds[len(found)]] = receiver.recv()
        except EOFError:
            found[seeds[len(found)]] = "the process ended"
        child.join()
    return found


def make_and_run(seeds, sender):
    for seed in seeds:
        try:
            model, x = network(seed)
            sender.send((model.SerializeToString(), x, *runtime(model, x)))
        except Exception as error:  # noqa: BLE001
            sender.send(str(error))


def agree(a, b):
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    largest = np.abs(b[finite]).max(initial=1e-6)
    near = np.abs(a - b) <= 1e-4 * largest
    with np.errstate(invalid="ignore"):
        near |= np.abs(a - b) <= 1e-3 * np.abs(b)
    return bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))


def decided(model, x, ours, expected):
    """Why other values are none of our business; none if they are."""
    constants = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    if ours.shape != expected.shape:
        for node in model.graph.node:
            padding = {attribute.name: attribute.s for attribute in node.attribute}.get("auto_pad", b"")
            if node.op_type == "ConvTranspose" and padding.startswith(b"SAME"):
                return "ConvTranspose padded to the same size: length times stride, as ONNX has it"
            dilated = any(attribute.name == "dilations" for attribute in node.attribute)
            if padding.startswith(b"SAME") and dilated:
                return "dilated windows padded to the same size: length over stride, as ONNX has it"
        return None
    if any(node.op_type == "Attention" for node in model.graph.node) and agree(ours, ReferenceEvaluator(model).run(None, {"x": x})[0]):
        return "Attention with a mask, a past and a causal order, as ONNX has it"
    if any(node.op_type in UNSTABLE for node in list(model.graph.node)[1:]):
        return "a function that jumps or turns fast, of values that differ by rounding"
    large = any(array.size and np.abs(array.astype(np.float64)).max() > 1e15 for array in [x, *constants] if array.dtype != bool)
    attributes = [attribute.f for node in model.graph.node for attribute in node.attribute if attribute.type == 1]
    if large or not all(np.isfinite(array).all() for array in [x, *constants, expected, np.array(attributes)]):
        return "numbers that are not finite, or soon are not"
    # Between two nodes of a chain: a single node that makes them of numbers that are finite is not excused.
    if len(model.graph.node) > 1 and not np.isfinite(ours).all():
        return "numbers that are not finite, or soon are not"
    if max(map(abs, attributes), default=0) > 1e15:
        return "numbers that are not finite, or soon are not"
    return None


UNSTABLE = {"ThresholdedRelu", "QuantizeLinear", "Floor", "Ceil", "Round", "Sign", "Mod", "Greater", "Less", "Equal", "ArgMax", "ArgMin", "Cast", "Sin", "Cos"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--only", nargs="+", choices=sorted(set(OPERATORS)), help="draw these operators alone")
    parser.add_argument("--example", type=Path, default=REPOSITORY / "target/debug/examples/run_networks")
    parser.add_argument("--keep", type=Path, default=Path("operators-that-differ"))
    options = parser.parse_args()
    OPERATORS[:] = options.only or OPERATORS
    found, refusals = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for first in range(options.seed, options.seed + options.count, 250):
            seeds = range(first, min(first + 250, options.seed + options.count))
            made = {}
            for seed, answer in made_and_run(seeds).items():
                if isinstance(answer, str):
                    found["not made"] += 1
                    print(f"{seed}: not made: {answer}", file=sys.stderr)
                else:
                    made[seed] = (onnx.load_from_string(answer[0]), *answer[1:])
            compare(made, folder, options, found, refusals)
            print(f"{seeds[-1] + 1 - options.seed}: {dict(found)}", flush=True)
    for (name, text), count in refusals.most_common(40):
        print(f"{count:5} {name}: {text}")
    sys.exit(1 if found["other values"] or found["killed"] else 0)


def compare(made, folder, options, found, refusals):
    lines = []
    for seed, (model, x, *_) in made.items():
        onnx.save(model, folder / f"{seed}.onnx")
        np.save(folder / f"{seed}.npy", x)
        (folder / f"{seed}.out.npy").unlink(missing_ok=True)
        lines.append(f"{folder}/{seed}.onnx\t{folder}/{seed}.npy\t{folder}/{seed}.out.npy\n")
    answers = {}
    while len(answers) < len(lines):
        process = subprocess.run(
            [options.example], input="".join(lines[len(answers) :]), capture_output=True, text=True, check=False
        )
        for line in process.stdout.splitlines():
            answers[list(made)[len(answers)]] = line
        if process.returncode != 0 or len(answers) < len(lines):
            if len(answers) < len(lines):
                seed = list(made)[len(answers)]
                answers[seed] = "killed " + process.stderr.strip()[-300:]
    for seed, answer in answers.items():
        model, x, expected, refusal = made[seed]
        name = "+".join(node.op_type for node in model.graph.node)
        if answer.startswith(("killed", "panic")):
            verdict = "killed"
        elif answer != "ok":
            verdict = "both refuse" if expected is None else "we alone refuse"
            if expected is not None:
                refusals[name, "we: " + re.sub(r"^.*\.onnx: (in node '\w+': )?", "", answer)[:150]] += 1
        elif expected is None:
            verdict = "we alone accept"
            refusals[name, "ONNX Runtime: " + re.sub(r"^.*(Status Message|Exception during initialization): ", "", refusal)[:150]] += 1
        else:
            ours = np.load(folder / f"{seed}.out.npy")
            verdict = "same values" if agree(ours, expected) else "other values"
            if verdict == "other values":
                reason = decided(model, x, ours, expected)
                verdict = f"decided: {reason}" if reason else verdict
        found[verdict] += 1
        if verdict in ("other values", "killed"):
            options.keep.mkdir(exist_ok=True)
            onnx.save(model, options.keep / f"{seed}.onnx")
            np.save(options.keep / f"{seed}.npy", x)
            attributes = [helper.printable_node(node) for node in model.graph.node]
            print(f"{seed}: {verdict}: {answer[:200]} {attributes}", flush=True)


if __name__ == "__main__":
    main()

"""A network as PyTorch modules, one for each node of an ONNX file, so that all competitors run the same weights.

Every activation is a module of its own, as Captum and Zennit want it, and only the input asks for a gradient.
"""

from dataclasses import dataclass

import torch
from torch import nn


class UnevenlyPadded(nn.Conv2d):
    """A convolution whose padding differs from side to side, as one module that rules for convolutions apply to."""

    def __init__(self, sides, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sides = sides

    def forward(self, x):
        return super().forward(nn.functional.pad(x, self.sides))


class Add(nn.Module):
    def forward(self, a, b):
        return a + b


class Concat(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.axis = axis

    def forward(self, *parts):
        return torch.cat(parts, self.axis)


@dataclass
class Node:
    name: str
    op: str
    inputs: list
    output: str


class Network(nn.Module):
    """Runs the nodes in the order of the file."""

    def __init__(self, nodes, functions, source):
        super().__init__()
        self.nodes, self.source = nodes, source
        self.functions = nn.ModuleList(functions)
        self.requires_grad_(False)
        self.eval()

    def values(self, x):
        """Every tensor by its name; the last one is the class scores."""
        values = {self.source: x}
        for node, function in zip(self.nodes, self.functions):
            values[node.output] = self.applied(function, [values[name] for name in node.inputs])
        return values

    def applied(self, function, operands):
        """What a node makes of its operands."""
        return function(*operands) if function else operands[0].flatten(1)

    def forward(self, x):
        return self.values(x)[self.nodes[-1].output]

    def layer(self, name):
        return next(f for node, f in zip(self.nodes, self.functions) if node.name == name)


def read(path):
    """The network in an ONNX file."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    constants = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in model.graph.initializer}
    (source,) = (i.name for i in model.graph.input if i.name not in constants)
    nodes, functions, same = [], [], {}
    for n in model.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}
        if n.op_type == "Constant":
            constants[n.output[0]] = torch.tensor(numpy_helper.to_array(attributes["value"]))
            continue
        if n.op_type == "Identity" and n.input[0] in constants:
            constants[n.output[0]] = constants[n.input[0]]
            continue
        if n.op_type in ("Identity", "Dropout"):
            same[n.output[0]] = same.get(n.input[0], n.input[0])
            continue
        weights = [constants[i] for i in n.input if i in constants]
        inputs = [same.get(i, i) for i in n.input if i and i not in constants]
        nodes.append(Node(n.name or n.output[0], n.op_type, inputs, n.output[0]))
        functions.append(module(n.op_type, attributes, weights))
    return Network(nodes, functions, source)


def module(op, attributes, weights):
    if op == "Conv":
        return convolution(attributes, *weights)
    if op == "Gemm":
        assert attributes.get("transB") == 1 and not attributes.get("transA")
        layer = nn.Linear(weights[0].shape[1], weights[0].shape[0], device="meta")
        layer.weight, layer.bias = nn.Parameter(weights[0]), nn.Parameter(weights[1])
        return layer
    if op == "BatchNormalization":
        return batch_norm(attributes, *weights)
    if op in ("MaxPool", "AveragePool"):
        return pooling(op, attributes)
    if op == "Clip":
        low, high = (float(w) for w in weights)
        return nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high)
    simple = {
        "Relu": nn.ReLU,
        "GlobalAveragePool": lambda: nn.AdaptiveAvgPool2d(1),
        "Add": Add,
        "Concat": lambda: Concat(attributes["axis"]),
        # Captum's LRP has no rule for it.
        "Flatten": lambda: None,
    }
    if op not in simple:
        raise NotImplementedError(f"the bench does not read {op}")
    return simple[op]()


def convolution(attributes, weight, bias=None):
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    even = (top, left) == (bottom, right)
    groups = attributes.get("group", 1)
    shape = (weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]))
    options = {
        "stride": tuple(attributes.get("strides", [1, 1])),
        "padding": (top, left) if even else 0,
        "dilation": tuple(attributes.get("dilations", [1, 1])),
        "groups": groups,
        "bias": bias is not None,
        "device": "meta",
    }
    sides = (left, right, top, bottom)
    layer = nn.Conv2d(*shape, **options) if even else UnevenlyPadded(sides, *shape, **options)
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias)
    return layer


def batch_norm(attributes, scale, shift, mean, variance):
    layer = nn.BatchNorm2d(len(scale), attributes.get("epsilon", 1e-5), device="meta")
    layer.weight, layer.bias = nn.Parameter(scale), nn.Parameter(shift)
    layer.running_mean, layer.running_var = mean, variance
    layer.num_batches_tracked = None
    return layer


def pooling(op, attributes):
    kernel, stride = tuple(attributes["kernel_shape"]), tuple(attributes.get("strides", [1, 1]))
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    assert (top, left) == (bottom, right), "pooling is padded evenly"
    ceil = bool(attributes.get("ceil_mode", 0))
    if op == "MaxPool":
        return nn.MaxPool2d(kernel, stride, (top, left), ceil_mode=ceil)
    return nn.AvgPool2d(kernel, stride, (top, left), ceil, bool(attributes.get("count_include_pad", 0)))

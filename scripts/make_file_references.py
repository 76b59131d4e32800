"""Writes what each small golden model computes in float64, where that is not what its network computes.

Exporters round on the way to a file: they fold batch normalisation into float32 weights, and keep
constants in float32. `NETWORK/y64.npy` is the network's output before that; a float64 run of the file cannot come
closer to it than the rounding. This script turns every float32 tensor and cast of a file into float64, runs it with the
ONNX reference evaluator and stores `NETWORK/EXPORTER-OPSET.y64.npy` where the two differ by more than 1e-10 of the
largest value. A difference beyond 1e-6 would be a mistake, and is one.
"""

import argparse
import pathlib

import numpy as np
import onnx
import torch
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator, op_run
from onnx.reference.op_run import OpRun

SAME = 1e-10
ROUNDING = 1e-6
# What the evaluator computes in float32 whatever it is given.
ALWAYS_NARROW = {"Celu", "Selu", "HardSwish", "HardSigmoid", "GroupNormalization"}
NARROW = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}


class ConvTranspose(OpRun):
    """In place of the evaluator's own, which does not know groups."""

    def _run(self, x, w, b=None, dilations=None, group=1, pads=None, strides=None, output_padding=None, **_):
        axes = x.ndim - 2
        begin = (pads or [0] * 2 * axes)[:axes]
        if pads and list(begin) != list(pads[axes:]):
            raise NotImplementedError("unlike pads")
        function = {1: torch.nn.functional.conv_transpose1d, 2: torch.nn.functional.conv_transpose2d}[axes]
        x, w, b = (None if a is None else torch.from_numpy(np.ascontiguousarray(a)) for a in (x, w, b))
        options = {"stride": strides or 1, "padding": tuple(begin), "output_padding": output_padding or 0}
        return (function(x, w, b, groups=group, dilation=dilations or 1, **options).numpy(),)


class Erf(OpRun):
    """In place of the evaluator's own, which is in float32."""

    def _run(self, x):
        return (torch.erf(torch.from_numpy(x)).numpy(),)


class Gelu(OpRun):
    """In place of the standard's definition, whose constants are in float32."""

    def _run(self, x, approximate=None):
        return (torch.nn.functional.gelu(torch.from_numpy(x), approximate=approximate or "none").numpy(),)


def convert_attribute(kind, original=op_run._attribute_conversion_function):
    """Attributes as they were written: the shortest decimal that float32 rounds to each."""
    return (lambda attribute: float(str(np.float32(attribute.f)))) if kind == AttributeProto.FLOAT else original(kind)


op_run._attribute_conversion_function = convert_attribute


def widen_tensor(tensor):
    if tensor.data_type in NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def widen_node(node):
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i in NARROW:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(np.array(value, dtype=np.float64))))
        elif attribute.type == AttributeProto.TENSOR:
            widen_tensor(attribute.t)
        elif attribute.type == AttributeProto.GRAPH:
            widen_graph(attribute.g)


def widen_graph(graph):
    for tensor in graph.initializer:
        widen_tensor(tensor)
    for node in graph.node:
        widen_node(node)
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]


def widened(path):
    model = onnx.load(str(path))
    widen_graph(model.graph)
    for function in model.functions:
        for node in function.node:
            widen_node(node)
    return model


def distance(found, expected):
    if found.shape != expected.shape:
        raise ValueError(f"shape {found.shape}, expected {expected.shape}")
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, help="the folder of the small golden models")
    folder = parser.parse_args().models
    for path in sorted(folder.glob("*/*.onnx")):
        name = path.relative_to(folder).with_suffix("")
        x = np.load(path.parent / "x.npy").astype(np.float64)
        source = onnx.load(str(path))
        if any(node.op_type in ALWAYS_NARROW for node in source.graph.node):
            continue
        try:
            model = widened(path)
            found = ReferenceEvaluator(model, new_ops=[ConvTranspose, Erf, Gelu]).run(None, {model.graph.input[0].name: x})[0]
            away = distance(found, np.load(path.parent / "y64.npy"))
        except Exception as error:
            print(f"{name}: not evaluated: {type(error).__name__} {str(error)[:120]}")
            continue
        if found.dtype != np.float64 or away > ROUNDING:
            print(f"{name}: {found.dtype}, {away:.1e} away")
        elif away > SAME:
            np.save(path.with_suffix(".y64.npy"), found)
            print(f"{name}: {away:.1e} away, stored")


if __name__ == "__main__":
    main()

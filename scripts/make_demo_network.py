"""Stores a network compactly: float32 weights become float16, cast back to float32 when the network is opened.

    python scripts/make_demo_network.py pets-small.onnx crates/monosplit/assets/pets-small.onnx pets-classes.txt

A third file, of class names, one a line, is written into the network, where `monosplit` finds them.
"""

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper


def main(source: str, target: str, classes: str | None = None) -> None:
    model = onnx.load(source)
    graph = model.graph
    casts = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < 256:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), name + ".half"))
        casts.append(helper.make_node("Cast", [name + ".half"], [name], name=name + ".cast", to=onnx.TensorProto.FLOAT))
    nodes = casts + list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    if classes:
        with open(classes, encoding="utf-8") as names:
            model.metadata_props.add(key="monosplit.classes", value=names.read().strip())
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, target)


if __name__ == "__main__":
    main(*sys.argv[1:])

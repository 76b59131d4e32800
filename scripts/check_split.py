"""Runs what `monosplit split` wrote in ONNX Runtime, on random inputs and on inputs that were not split in halves.

Checks that both networks read `x_plus` and `x_minus`, that no initializer is negative, that `g - h` is what the
network itself returns for `x_plus - x_minus`, and that neither output falls when an input grows.
Where the streams grow past what float32 can subtract, the error is shown and compared with what float32 loses of
numbers of that size.
"""

import argparse
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def least_number(path):
    """The smallest number in the file that is computed with: floating point initializers and constants."""
    model = onnx.load(path)
    tensors = list(model.graph.initializer)
    tensors += [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    arrays = [numpy_helper.to_array(t) for t in tensors]
    return min((float(a.min()) for a in arrays if a.size and a.dtype.kind == "f"), default=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("g")
    parser.add_argument("h")
    parser.add_argument("--samples", type=int, default=4)
    arguments = parser.parse_args()

    network, g, h = session(arguments.network), session(arguments.g), session(arguments.h)
    failures = []
    for name, stream in (("g", g), ("h", h)):
        inputs = [i.name for i in stream.get_inputs()]
        if inputs != ["x_plus", "x_minus"]:
            failures.append(f"{name} reads {inputs}")
    for name, path in (("g", arguments.g), ("h", arguments.h)):
        least = least_number(path)
        print(f"{name}: smallest number {least:g}")
        if least < 0:
            failures.append(f"{name} holds {least:g}")

    source = network.get_inputs()[0]
    shape = [d if isinstance(d, int) else 2 for d in source.shape]
    random = np.random.default_rng(0)
    worst, reach, allowance, fall = 0.0, 0.0, 0.0, 0.0
    for _ in range(arguments.samples):
        plus, minus = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
        f = network.run(None, {source.name: plus - minus})[0].reshape(shape[0], -1)
        streams = [s.run(None, {"x_plus": plus, "x_minus": minus})[0].astype(np.float64) for s in (g, h)]
        worst = max(worst, float(np.abs(streams[0] - streams[1] - f).max()))
        reach = max(reach, *(float(np.abs(s).max()) for s in streams))
        grown = {"x_plus": plus + np.float32(0.1), "x_minus": minus + np.float32(0.1)}
        larger = [s.run(None, grown)[0].astype(np.float64) for s in (g, h)]
        fall = max(fall, *(float((a - b).max() / np.abs(b).max()) for a, b in zip(streams, larger)))
        allowance = max(allowance, 64 * np.finfo(np.float32).eps * reach)
    print(f"largest |f - (g - h)| {worst:.3g}; g and h reach {reach:.3g}, of which float32 keeps {allowance:.3g}")
    print(f"largest fall when both inputs grow {max(fall, 0.0):.3g} of their size")
    if worst > allowance:
        failures.append(f"g - h is {worst:.3g} off")
    if fall > 1e-5:
        failures.append(f"an output falls by {fall:.3g}")
    for failure in failures:
        print("FAILS:", failure)
    sys.exit(bool(failures))


main()

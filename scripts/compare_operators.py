#!/usr/bin/env python3
"""Compares random operator graphs with ONNX Runtime: which of them are accepted, and what they compute.

    python scripts/compare_operators.py [--seed 0] [--count 3000] [--program target/release/monosplit] [--keep FOLDER]

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

REPOSITORY = Path(__file__).resolve().parent.parent
ODD = [0.0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-40, 3.4e38]
OPERATOR_SETS = [9, 11, 13, 14, 15, 17, 18, 20, 21]


class Maker:
    """One random operator after another."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.initializers = []
        self.opset = int(self.random.choice(OPERATOR_SETS))
        self.tame = self.random.random() < 0.85

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
        name = self.pick(*OPERATORS)
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
        scales = np.ones(rank, np.float32)
        for i in range(min(2, rank - 2) if rank > 2 else 0):
            scales[rank - 1 - i] = self.pick(0.5, 2.0, 1.5, 3.0)
        if self.opset < 10:
            return "Upsample", [x, self.constant(scales)], {"mode": self.pick("nearest", "linear")}
        if self.opset < 11:
            return "Resize", [x, self.constant(scales)], {"mode": self.pick("nearest", "linear")}
        return "Resize", [x, "", self.constant(scales)], attributes

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


UNSTABLE = {"Floor", "Ceil", "Round", "Sign", "Mod", "Greater", "Less", "Equal", "ArgMax", "ArgMin", "Cast", "Sin", "Cos"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--example", type=Path, default=REPOSITORY / "target/debug/examples/run_networks")
    parser.add_argument("--keep", type=Path, default=Path("operators-that-differ"))
    options = parser.parse_args()
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

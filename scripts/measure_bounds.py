"""Certified bounds beside auto_LiRPA's: `monosplit bounds` against IBP, CROWN-IBP and CROWN on the same pictures and boxes.

    python scripts/measure_bounds.py MONOSPLIT NETWORK.onnx PICTURES --epsilon 1/255 2/255 4/255 [--samples 10000]

PICTURES is a folder of pictures, or of MNIST's test files, whose first pictures are taken. For every size of the box the table has the
share of pictures whose class each method certifies, and the mean lower bound of the least margin. auto_LiRPA runs in double precision
over a network of PyTorch that is read from the file here. Nothing is shared but the file and the inputs, which are written as arrays.
`--methods` without a name measures `monosplit bounds` alone, without auto_LiRPA.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import tempfile
from fractions import Fraction

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper


class Network(torch.nn.Module):
    """The few operators of the networks measured here, with maxima of two written as `b + relu(a − b)`."""

    def __init__(self, path):
        super().__init__()
        model = onnx.load(path)
        self.values = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in model.graph.initializer}
        self.values = {n: v.double() if v.is_floating_point() else v for n, v in self.values.items()}
        self.nodes, self.input = list(model.graph.node), model.graph.input[0].name
        self.output = model.graph.output[0].name
        for node in self.nodes:
            if node.op_type == "Cast":
                self.values[node.output[0]] = self.values[node.input[0]].double()
        self.nodes = [node for node in self.nodes if node.op_type != "Cast"]
        self.halves = {}

    def forward(self, x):
        values = dict(self.values)
        values[self.input] = x
        for node in self.nodes:
            a = {i.name: helper.get_attribute_value(i) for i in node.attribute}
            values[node.output[0]] = self.run(node.op_type, [values[i] for i in node.input], a)
        return values[self.output]

    def run(self, op, v, a):
        f = torch.nn.functional
        if op == "Reshape":
            # Maxima of pairs are taken of rows here.
            return v[0].flatten(1)
        if op == "Flatten":
            return v[0].flatten(1)
        if op == "Gemm":
            w = v[1] if a.get("transB") else v[1].T
            return f.linear(v[0], w, v[2] if len(v) > 2 else None)
        if op == "BatchNormalization":
            scale = v[1] / torch.sqrt(v[4] + a["epsilon"])
            assert v[0].dim() == 2
            return f.linear(v[0], torch.diag(scale), v[2] - v[3] * scale)
        if op == "MaxPool" and a["kernel_shape"] == [2]:
            # Every other element, chosen by a matrix: auto_LiRPA has no bounds for steps of a slice.
            flat = v[0].flatten(1)
            width = int(flat.shape[1])
            if width not in self.halves:
                chosen = torch.eye(width, dtype=torch.float64)
                self.halves[width] = chosen[0::2].clone(), chosen[1::2].clone()
            first, second = (f.linear(flat, half) for half in self.halves[width])
            return second + torch.relu(first - second)
        if op == "Sub" and v[0].dim() == 0:
            # Nor has it any for a number that is broadcast.
            if "one" not in self.halves:
                self.halves["one"] = v[0].expand(v[1].shape[1:]).clone()
            return -v[1] + self.halves["one"]
        pads = a.get("pads", [0, 0, 0, 0])
        if op == "Conv":
            assert pads[:2] == pads[2:]
            return f.conv2d(v[0], v[1], v[2] if len(v) > 2 else None, a["strides"], pads[:2], a.get("dilations", [1, 1]), a.get("group", 1))
        if op == "MaxPool":
            return f.max_pool2d(v[0], a["kernel_shape"], a["strides"], pads[:2])
        if op == "GlobalAveragePool":
            return v[0].mean((2, 3), keepdim=True)
        if op == "AveragePool":
            return f.avg_pool2d(v[0], a["kernel_shape"], a["strides"])
        return {"Relu": lambda: torch.relu(v[0]), "Add": lambda: v[0] + v[1], "Sub": lambda: v[0] - v[1]}[op]()


def ours(program, network, array, epsilon, samples):
    line = [program, "-q", "bounds", network, array, "--epsilon", str(epsilon), "--json", "--samples", str(samples)]
    found = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    none = float("-inf")
    margins = found["margins"]
    linear = [m["linear"] if m["linear"] is not None else none for m in margins]
    best = [max(bound, m["intervals"]) for bound, m in zip(linear, margins)]
    streams = [m["streams"] if m["streams"] is not None else none for m in margins]
    return {
        "intervals": min(m["intervals"] for m in margins),
        "streams": min(streams),
        "linear": min(best),
        "found": found["found"],
    }, found["violations"], found["class"]


def theirs(network, image, epsilon, label, methods):
    if not methods:
        return {}
    from auto_LiRPA import BoundedModule, BoundedTensor
    from auto_LiRPA.perturbations import PerturbationLpNorm

    classes = network(image).shape[1]
    model = BoundedModule(network, torch.zeros_like(image), device="cpu")
    # The type of numbers is read off the first parameter, of which this network has none.
    model.parameters = lambda recurse=True: iter([image])
    rivals = [c for c in range(classes) if c != label]
    weights = torch.zeros(1, classes - 1, classes, dtype=torch.float64)
    weights[0, :, label] = 1
    weights[0, range(classes - 1), rivals] = -1
    found = {}
    for method in methods:
        box = BoundedTensor(image, PerturbationLpNorm(norm=np.inf, x_L=image - epsilon, x_U=image + epsilon))
        try:
            lower, _ = model.compute_bounds(x=(box,), C=weights, method=method, bound_upper=False)
            found[f"auto_LiRPA {method}"] = float(lower.min())
        except Exception as error:  # what it cannot do is part of the result
            found[f"auto_LiRPA {method}"] = float("nan")
            print(f"{method}: {type(error).__name__}: {str(error)[:100]}")
    return found


def images(path, count, shape):
    mnist = path / "t10k-images-idx3-ubyte.gz"
    if mnist.exists():
        pixels = np.frombuffer(gzip.open(mnist).read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
        return pixels[:count] / 255.0
    from PIL import Image

    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    files = sorted(path.glob("*.jpg"))[:count]
    opened = [Image.open(f).convert("RGB").resize(shape[::-1], Image.BICUBIC) for f in files]
    return np.stack([((np.asarray(p) / 255.0 - mean) / std).transpose(2, 0, 1) for p in opened])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("network")
    parser.add_argument("pictures", type=pathlib.Path)
    parser.add_argument("--epsilon", nargs="+", default=["1/255", "2/255", "4/255"])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--methods", nargs="*", default=["IBP", "CROWN-IBP", "CROWN"])
    args = parser.parse_args()
    network = Network(args.network)
    first = onnx.load(args.network).graph.input[0].type.tensor_type.shape.dim
    pictures = images(args.pictures, args.count, [d.dim_value for d in first][2:])
    torch.set_num_threads(2)
    for size in args.epsilon:
        epsilon, rows, violations = float(Fraction(size)), [], 0
        for picture in pictures:
            with tempfile.TemporaryDirectory() as folder:
                array = pathlib.Path(folder) / "x.npy"
                # Single precision, as the program reads arrays.
                np.save(array, picture[None].astype(np.float32))
                row, violated, label = ours(args.program, args.network, str(array), epsilon, args.samples)
            violations += violated
            image = torch.tensor(picture[None].astype(np.float32)).double()
            with torch.no_grad():
                row |= theirs(network, image, epsilon, label, args.methods)
            rows.append(row)
        print(f"ε = {size}, {len(rows)} pictures, {violations} of {args.samples} samples each outside")
        for name in rows[0]:
            bounds = np.array([row[name] for row in rows])
            print(f"| {name} | {100 * np.mean(bounds > 0):.0f} % | {np.mean(bounds):.3g} |")


main()

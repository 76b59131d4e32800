"""Where sensitivities are shifted, and what is left of the ordinary gradient: readings of the paper on a ResNet18 in ONNX.

    python scripts/measure_shift_readings.py resnet18.onnx pets/test/images/*.jpg --images 4 --layer layer1.0.conv2

Nothing of monosplit is used: the network is interpreted with PyTorch in double precision, and the gradient d, the hidden gradient E and the
mass of the split are carried back by hand. For each reading and α it prints the hidden gradient's share of SplitCAM's map (the sum of
|E·a| over that of |d·a| and |E·a|, both added up over channels first), and Spearman's correlation of the map with that of the network whose
last three layers are noise of their own standard deviation: 1 means that the map does not notice.
"""

import argparse

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from PIL import Image

MEAN, STD = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
ALPHAS = [0.45, 0.4, 0.35, 0.3]
# How often a node of a kind shifts; "scores" is the beginning.
READINGS = {
    "every node": {"Conv": 1, "Gemm": 1, "Relu": 1, "Add": 1, "MaxPool": 1, "Pool": 1, "scores": 1},
    "every node, batch norms too": {"Conv": 2, "Gemm": 1, "Relu": 1, "Add": 1, "MaxPool": 1, "Pool": 1, "scores": 1},
    "affine nodes": {"Conv": 1, "Gemm": 1, "scores": 1},
    "affine nodes, batch norms too": {"Conv": 2, "Gemm": 1, "scores": 1},
}


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


class Network:
    def __init__(self, path):
        self.graph = onnx.load(path).graph
        self.weights = {t.name: torch.tensor(numpy_helper.to_array(t)).double() for t in self.graph.initializer}

    def randomised(self, layers, seed):
        """The weights with those of the last layers drawn anew at their own standard deviation, biases zero."""
        kept, random = self.weights, torch.Generator().manual_seed(seed)
        fresh = dict(kept)
        trained = [node for node in self.graph.node if node.op_type in ("Conv", "Gemm")]
        for node in trained[-layers:]:
            w = kept[node.input[1]]
            fresh[node.input[1]] = torch.randn(w.shape, generator=random, dtype=torch.float64) * w.std()
            if len(node.input) > 2:
                fresh[node.input[2]] = torch.zeros_like(kept[node.input[2]])
        return fresh

    def forward(self, x, weights):
        values = {self.graph.input[0].name: x} | weights
        for node in self.graph.node:
            given, of = [values[name] for name in node.input], attributes(node)
            pads = of.get("pads", [0, 0, 0, 0])[:2]
            if node.op_type == "Conv":
                out = F.conv2d(*given, stride=of.get("strides", 1), padding=tuple(pads))
            elif node.op_type == "Gemm":
                out = F.linear(given[0], given[1] if of.get("transB") else given[1].T, given[2])
            elif node.op_type == "Relu":
                out = given[0].relu()
            elif node.op_type == "MaxPool":
                out = F.max_pool2d(given[0], of["kernel_shape"], of["strides"], pads)
            elif node.op_type in ("GlobalAveragePool", "AveragePool", "ReduceMean"):
                out = given[0].mean((2, 3), keepdim=True)
            elif node.op_type == "Add":
                out = given[0] + given[1]
            elif node.op_type in ("Flatten", "Reshape"):
                out = given[0].flatten(1)
            else:
                raise SystemExit(f"{node.op_type} is not interpreted here")
            values[node.output[0]] = out
        return values

    def backward(self, values, weights, classes, at, alpha, shifts):
        """d, E and the mass of the value `at`; max pooling follows the winner, which matters below `at` alone."""
        factor = lambda kind: (1 - 2 * alpha) ** shifts.get(kind, 0)
        seed = F.one_hot(classes, values[self.graph.output[0].name].shape[1]).double()
        messages = {self.graph.output[0].name: (seed, torch.zeros_like(seed), factor("scores") * seed)}
        for node in reversed(self.graph.node):
            if node.output[0] == at:
                break
            d, e, mass = messages.pop(node.output[0], (None, None, None))
            if d is None:
                continue
            z, of = values[node.input[0]], attributes(node)
            pads = of.get("pads", [0, 0, 0, 0])[:2]
            if node.op_type == "Conv":
                w = weights[node.input[1]]
                back = lambda w, v: torch.nn.grad.conv2d_input(z.shape, w, v, of.get("strides", 1), tuple(pads))
                passed = [(back(w, d), back(w, e), factor("Conv") * back(w.abs(), mass))]
            elif node.op_type == "Gemm":
                w = weights[node.input[1]] if of.get("transB") else weights[node.input[1]].T
                passed = [(d @ w, e @ w, factor("Gemm") * (mass @ w.abs()))]
            elif node.op_type == "Relu":
                on = z >= 0
                passed = [(d * on, torch.where(on, e, mass), factor("Relu") * mass)]
            elif node.op_type in ("GlobalAveragePool", "AveragePool", "ReduceMean"):
                spread = lambda v: v.expand(z.shape) / (z.shape[2] * z.shape[3])
                passed = [(spread(d), spread(e), factor("Pool") * spread(mass))]
            elif node.op_type == "Add":
                passed = [(d, e, factor("Add") * mass)] * 2
            elif node.op_type in ("Flatten", "Reshape"):
                passed = [tuple(v.reshape(z.shape) for v in (d, e, mass))]
            else:
                raise SystemExit(f"{node.op_type} lies above the layer and is not carried back here")
            for name, message in zip(node.input, passed):
                before = messages.get(name)
                messages[name] = message if before is None else tuple(a + b for a, b in zip(before, message))
        return messages[at]


def spearman(a, b):
    rank = lambda v: v.flatten(1).argsort(1).argsort(1).double()
    a, b = (rank(v) - rank(v).mean(1, keepdim=True) for v in (a, b))
    return ((a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("pictures", nargs="+")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--layer", default="layer1.0.conv2")
    arguments = parser.parse_args()
    network = Network(arguments.network)
    chosen = arguments.pictures[:: max(1, len(arguments.pictures) // arguments.images)][: arguments.images]
    pictures = [np.asarray(Image.open(path).convert("RGB").resize((224, 224)), dtype=np.float64) for path in chosen]
    x = (torch.tensor(np.stack(pictures)).permute(0, 3, 1, 2) / 255 - MEAN) / STD
    at = next(node.input[0] for node in network.graph.node if node.name.rstrip("/Conv").endswith(arguments.layer))
    fresh = network.randomised(3, 0)
    runs = [(weights, network.forward(x, weights)) for weights in (network.weights, fresh)]
    classes = runs[0][1][network.graph.output[0].name].argmax(1)
    print(f"{len(chosen)} pictures, what enters {arguments.layer}")
    print(f"{'reading':34}{'α':>6}{'hidden share':>14}{'spearman':>10}{'the same, invariant whole':>28}")
    for name, shifts in READINGS.items():
        for alpha in ALPHAS:
            maps = {"halved": [], "whole": []}
            shares = {}
            for position, (weights, values) in enumerate(runs):
                d, e, _ = network.backward(values, weights, classes, at, alpha, shifts)
                ordinary, hidden = ((v * values[at]).sum(1) for v in (d, e))
                for invariant, weight in (("halved", 1.0), ("whole", 0.5)):
                    maps[invariant].append(weight * ordinary - hidden)
                    if position == 0:
                        size = hidden.abs().sum((1, 2))
                        shares[invariant] = (size / (size + weight * ordinary.abs().sum((1, 2)))).mean().item()
            row = "".join(f"{shares[i]:14.3f}{spearman(*maps[i]):10.3f}" for i in maps)
            print(f"{name:34}{alpha:6.2f}{row}", flush=True)


if __name__ == "__main__":
    main()

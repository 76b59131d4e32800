"""Milliseconds of a training step in PyTorch, least of several, for the networks of `monosplit train`.

    python scripts/bench_training.py mlp_maxout cnn_maxout None DICIN [--threads 2]

The same layers, batch, loss and optimiser as `cargo bench -p monosplit-train --bench steps`.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional

BATCH = 100
REPEATS = 10
RESTRICTIONS = ["None", "IC", "Mon", "Diff_None", "DIC", "DM", "DICIN", "DMIN"]


class Positive(nn.Module):
    """An affine map or norm computed with ReLU of its parameters."""

    def __init__(self, layer, weight):
        super().__init__()
        self.layer, self.positive_weight = layer, weight

    def forward(self, x):
        p = functional.relu
        layer = self.layer
        weight = p(layer.weight) if self.positive_weight else layer.weight
        bias = None if layer.bias is None else p(layer.bias)
        if isinstance(layer, nn.Linear):
            return functional.linear(x, weight, bias)
        if isinstance(layer, nn.Conv2d):
            return functional.conv2d(x, weight, bias, padding=layer.padding)
        return functional.batch_norm(x, layer.running_mean, layer.running_var, weight, bias, True)


class Maxout(nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1, 2, *x.shape[2:]).max(2)[0]


def layers(name):
    if name == "mlp_maxout":
        stack = [nn.Flatten()]
        for width in (784, 800, 800):
            stack += [nn.Linear(width, 1600, bias=False), nn.BatchNorm1d(1600), Maxout()]
        return stack + [nn.Linear(800, 10)]
    stack = []
    for inputs, outputs, pool in ((1, 64, False), (32, 128, True), (64, 256, False), (128, 256, True)):
        stack += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), Maxout()]
        stack += [nn.MaxPool2d(2)] if pool else []
    return stack + [nn.Flatten(), nn.Linear(6272, 2048), Maxout(), nn.Linear(1024, 512), Maxout(), nn.Linear(256, 10)]


def stream(name, restriction):
    if restriction in ("None", "Diff_None"):
        return nn.Sequential(*layers(name))
    stack, affine = [], 0
    for layer in layers(name):
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            layer.weight.data.abs_()
            layer = Positive(layer, affine > 0 or "M" in restriction)
            affine += 1
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer = Positive(layer, True)
        stack.append(layer)
    return nn.Sequential(*stack)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    images, labels = torch.rand(BATCH, 1, 28, 28), torch.arange(BATCH) % 10
    for name in (n for n in arguments.names if n.endswith("_maxout")):
        for restriction in (r for r in arguments.names if r in RESTRICTIONS):
            streams = nn.ModuleList(stream(name, restriction) for _ in range(2 if restriction.startswith("D") else 1))
            optimiser = torch.optim.Adam(streams.parameters(), lr=3e-3, weight_decay=1e-3)
            least = float("inf")
            for _ in range(REPEATS):
                began = time.perf_counter()
                logits = streams[0](images)
                if len(streams) == 2:
                    logits = logits - streams[1](1 - images if restriction.endswith("IN") else images)
                loss = functional.cross_entropy(logits, labels)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                loss.item()
                least = min(least, time.perf_counter() - began)
            print(f"{name} {restriction}: {1e3 * least:.1f} ms a step of {BATCH}", flush=True)


if __name__ == "__main__":
    main()

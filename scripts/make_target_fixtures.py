"""Makes crates/monosplit/tests/fixtures/targets: a small network of three outputs, and PyTorch's gradients of targets.

    python scripts/make_target_fixtures.py

`network.onnx` reads `x` [N, 2, 6, 6] and returns `maps` [N, 3, 6, 6], `cells` [N, 5, 4] and `scores` [N, 4]. `head.onnx` reads
`cells` and `scores`. `x.npy` holds two samples, `mask.npy` and `reference.npy` what two targets read. For each target,
`NUMBER.score.npy` holds its scores and `NUMBER.gradient.npy` the gradients with respect to `x`, in double precision;
`targets.txt` lists the targets in that order. Choices (the best cell, the predicted region) are made for each sample.
"""

import pathlib
import warnings

import numpy as np
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent.parent / "crates/monosplit/tests/fixtures/targets"


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU())
        self.maps, self.cells, self.scores = nn.Conv2d(6, 3, 1), nn.Linear(6, 20), nn.Linear(6, 4)

    def forward(self, x):
        features = self.trunk(x)
        pooled = features.mean((2, 3))
        return self.maps(features), self.cells(pooled).unflatten(1, (5, 4)), self.scores(pooled)


class Head(nn.Module):
    def forward(self, cells, scores):
        return (torch.sigmoid(scores[:, :1]) * cells[:, 2]).sum(1)


def one(values, index):
    return values.gather(1, index[:, None])[:, 0]


def targets(mask, reference):
    def contrast(maps, cells, scores):
        top = scores.detach().topk(2, 1).indices
        return one(scores, top[:, 0]) - one(scores, top[:, 1])

    def predicted(maps, cells, scores):
        inside = nn.functional.one_hot(maps.detach().argmax(1), 3).movedim(-1, 1)
        sums = (maps * inside).sum((2, 3))
        return one(sums, sums.detach().argmax(1))

    def best(maps, cells, scores):
        values = cells[:, :, 3]
        return one(values, values.detach().argmax(1))

    def similarity(maps, cells, scores):
        return torch.cosine_similarity(cells.flatten(1), reference.flatten()[None])

    return {
        "contrast:top,top2": contrast,
        "region:mask.npy,class=2,output=maps": lambda m, c, s: (m[:, 2] * mask).sum((1, 2)),
        "region:auto,output=maps": predicted,
        "cell:cells[-1,1:3]": lambda m, c, s: c[:, -1, 1:3].sum(1),
        "cell:cells[best=3]": best,
        "mean:maps": lambda m, c, s: m.mean((1, 2, 3)),
        "norm:cells": lambda m, c, s: c.flatten(1).norm(dim=1),
        "similarity:reference.npy,output=cells": similarity,
        "head:head.onnx": lambda m, c, s: Head()(c, s),
    }


def export(net, inputs, name, reads, returns):
    axes = {one: {0: "N"} for one in [*reads, *returns]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(), inputs, str(FOLDER / name), dynamo=False, opset_version=17, input_names=reads, output_names=returns,
            dynamic_axes=axes,
        )


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(29)
    net, x = Network(), torch.randn(2, 2, 6, 6)
    mask, reference = (torch.rand(6, 6) > 0.6).float(), torch.randn(5, 4)
    export(net, (x,), "network.onnx", ["x"], ["maps", "cells", "scores"])
    export(Head(), (torch.zeros(2, 5, 4), torch.zeros(2, 4)), "head.onnx", ["cells", "scores"], ["score"])
    for name, value in [("x", x), ("mask", mask), ("reference", reference)]:
        np.save(FOLDER / f"{name}.npy", value.numpy())
    net, x = net.double(), x.double().requires_grad_()
    texts = targets(mask.double(), reference.double())
    for number, score in enumerate(texts.values()):
        value = score(*net(x))
        (gradient,) = torch.autograd.grad(value.sum(), x)
        np.save(FOLDER / f"{number}.score.npy", value.detach().numpy())
        np.save(FOLDER / f"{number}.gradient.npy", gradient.numpy())
    (FOLDER / "targets.txt").write_text("\n".join(texts) + "\n")


if __name__ == "__main__":
    main()

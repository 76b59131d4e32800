#!/usr/bin/env python3
"""Checks that a module with more than 2 GiB of weights is exported through a folder, explained, and cleaned up.

    python3 scripts/check_large_module.py

Needs the Python package, PyTorch, onnx and onnxscript, about 6 GB of memory and 3 GB in the folder of temporary files. Prints
each step with the peak of the memory; the exit status is 1 if one fails.
"""

import gc
import os
import resource
import time

import torch
from torch import nn

import monosplit as ms
from monosplit import torch_export

WIDTH = 16_896
"""Two layers of so many units by so many are 2.13 GiB."""


def said(begun, what):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{time.perf_counter() - begun:6.1f} s, peak {peak:5.1f} GB: {what}", flush=True)


def main():
    begun = time.perf_counter()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))
    network.eval().requires_grad_(False)
    size = sum(value.numel() * value.element_size() for value in network.parameters())
    assert size > 2**31 and size > torch_export.LARGEST_IN_MEMORY
    said(begun, f"a module of {size / 2**30:.2f} GiB")
    x = torch.randn(2, 8)
    leaf = x.clone().requires_grad_()
    network(leaf)[:, 1].sum().backward()
    model = ms.from_torch(network, x)
    folder = model._folder.name
    files = {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}
    said(begun, f"exported as {', '.join(f'{name} of {bytes / 2**30:.2f} GiB' for name, bytes in files.items())}")
    assert sum(files.values()) > 2**31
    e = model.explain(x, "gradient", target=1, layer="")
    worst = float((e.attributions - leaf.grad).abs().max() / leaf.grad.abs().max())
    said(begun, f"explained; the gradient differs from PyTorch's by {worst:.1e} of its largest value")
    assert worst < 1e-4
    assert ms.from_torch(network, x) is model
    said(begun, "found again by its weights")
    del model, e
    torch_export._models.clear()
    gc.collect()
    assert not os.path.exists(folder)
    said(begun, "the folder is gone with the model")


if __name__ == "__main__":
    main()

"""Writes what PyTorch finds in one training step, in double precision, to crates/train/tests/fixtures/step.safetensors.

    python scripts/make_training_values.py

A difference of two small networks (convolution, batch norm with batch statistics, rank-2 and rank-3 maxout, pooling,
dense layers), the second of which sees 1 - x: images, targets, parameters, loss, scores, gradients, the statistics of
the batch, the running statistics after two batches. And three steps of Adam, AdamW and SGD with weight decay in single
precision.
"""

import pathlib

import safetensors.torch
import torch
from torch.nn import functional

OUT = pathlib.Path(__file__).parent.parent / "crates/train/tests/fixtures/step.safetensors"


def maxout(x, rank):
    return x.view(x.shape[0], -1, rank, *x.shape[2:]).max(2)[0]


def stream(x, p, prefix, statistics, running):
    def norm(x, name):
        axes = [axis for axis in range(x.dim()) if axis != 1]
        statistics[f"statistic/{prefix}{name}.mean"] = x.mean(axes)
        statistics[f"statistic/{prefix}{name}.variance"] = x.var(axes, unbiased=False)
        mean = running.setdefault(f"running/{prefix}{name}.mean", torch.zeros(x.shape[1], dtype=x.dtype))
        variance = running.setdefault(f"running/{prefix}{name}.variance", torch.ones(x.shape[1], dtype=x.dtype))
        scale, shift = p[f"{prefix}{name}.scale"], p[f"{prefix}{name}.shift"]
        return functional.batch_norm(x, mean, variance, scale, shift, training=True, momentum=0.1, eps=1e-5)

    x = functional.conv2d(x, p[f"{prefix}conv1.weight"], padding=1)
    x = functional.max_pool2d(maxout(norm(x, "norm1"), 2), 2)
    x = functional.conv2d(x, p[f"{prefix}conv2.weight"], p[f"{prefix}conv2.bias"], stride=2, padding=1)
    x = functional.linear(functional.relu(x).flatten(1), p[f"{prefix}dense1.weight"])
    x = maxout(norm(x, "norm2"), 3)
    return functional.linear(x, p[f"{prefix}scores.weight"], p[f"{prefix}scores.bias"])


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    shapes = {"conv1.weight": (4, 2, 3, 3), "norm1.scale": (4,), "norm1.shift": (4,), "conv2.weight": (4, 2, 3, 3),
              "conv2.bias": (4,), "dense1.weight": (6, 16), "norm2.scale": (6,), "norm2.shift": (6,),
              "scores.weight": (3, 2), "scores.bias": (3,)}
    p = {s + name: torch.randn(shape, requires_grad=True) for s in ("g.", "h.") for name, shape in shapes.items()}
    running = {}
    for batch in range(2):
        images, labels = torch.rand(5, 2, 8, 8), torch.randint(3, (5,))
        statistics = {}
        logits = stream(images, p, "g.", statistics, running) - stream(1 - images, p, "h.", statistics, running)
        if batch == 0:
            kept = dict(statistics)
            first = {"images": images, "targets": functional.one_hot(labels, 3).double(), "logits": logits}
            loss = functional.cross_entropy(logits, labels)
            loss.backward()
            first["loss"] = loss.reshape(1)
        else:
            first.update({f"second {name}": value for name, value in statistics.items()})
    tensors = {**first, **kept, **running}
    for name, value in p.items():
        tensors[f"parameter/{name}"] = value
        tensors[f"gradient/{name}"] = value.grad
    rules = {"adam": lambda w: torch.optim.Adam(w, lr=0.01, weight_decay=0.1),
             "adamw": lambda w: torch.optim.AdamW(w, lr=0.01, weight_decay=0.1),
             "sgd": lambda w: torch.optim.SGD(w, lr=0.01, momentum=0.9, weight_decay=0.1)}
    start, slopes = torch.randn(7, dtype=torch.float32), torch.randn(3, 7, dtype=torch.float32)
    tensors |= {"optimiser/start": start, "optimiser/gradients": slopes}
    for name, rule in rules.items():
        w = start.clone().requires_grad_()
        optimiser = rule([w])
        for slope in slopes:
            w.grad = slope.clone()
            optimiser.step()
        tensors[f"optimiser/{name}"] = w
    safetensors.torch.save_file({name: t.detach().contiguous() for name, t in tensors.items()}, OUT)


if __name__ == "__main__":
    main()

"""Metrics against Quantus driving PyTorch, one entry each: what our catalogue is asked for, and what Quantus is.

Both measure the gradient of the class score, summed over channels, or SplitGrad at the image, which the paper's literal
algorithm computes for Quantus. Images are the same; Quantus gets them in one batch, as it requires. What is drawn at random
differs, so the values of Max Sensitivity do a little. Quantus has no way to end a curve early: of a shorter one it computes
all and reads the beginning.
"""

import copy
import functools
from dataclasses import dataclass
from typing import Callable

import numpy as np

IMAGES = 2
# Quantus wants a divisor of the number of pixels.
STEP = 448


@dataclass
class Metric:
    title: str
    ours: str
    peer: Callable
    network: str
    # How far values may differ, relative to the largest.
    tolerance: float = 1e-3
    target: float = 0.2
    method: str = "gradient"


def quiet(name, **options):
    import quantus

    return getattr(quantus, name)(disable_warnings=True, display_progressbar=False, return_aggregate=False, **options)


def area(curves, steps=None):
    return np.trapezoid(np.asarray(curves, float)[:, :steps], axis=1)


def flipping(percent):
    """Values of one channel, as many a step as Quantus allows; the mean of the image as it stands; the class score."""
    steps = int(np.ceil(3 * 224 * 224 * percent / 100 / STEP))
    return lambda call: area(call(quiet("PixelFlipping", features_in_step=STEP, perturb_baseline="mean"), softmax=False), steps)


def selectivity(patch):
    return lambda call: area(call(quiet("Selectivity", patch_size=patch), softmax=True))


def max_sensitivity(samples):
    return lambda call: np.asarray(call(quiet("MaxSensitivity", nr_samples=samples), explained=True), float)


FLIPPING = "pixel-flipping:auc={},baseline=running-mean,curve=score,output=logit,step=448,unit=value"
SENSITIVITY_OF_4 = "max-sensitivity:preset=quantus-0.6,samples=4"
METRICS = [
    Metric("Pixel Flipping, AUC@5", FLIPPING.format(5), flipping(5), "resnet18"),
    Metric("Pixel Flipping, AUC@20", FLIPPING.format(20), flipping(20), "resnet18"),
    Metric("Pixel Flipping, whole curve", FLIPPING.format(100), flipping(100), "resnet18"),
    Metric("Selectivity, 8×8 patches", "selectivity:patch=8,preset=quantus-0.6", selectivity(8), "resnet18"),
    Metric("Selectivity, 32×32 patches", "selectivity:patch=32,preset=quantus-0.6", selectivity(32), "resnet18"),
    Metric("Selectivity, 32×32 patches", "selectivity:patch=32,preset=quantus-0.6", selectivity(32), "vgg16"),
    Metric("Max Sensitivity, 25 samples", "max-sensitivity:preset=quantus-0.6,samples=25", max_sensitivity(25), "resnet18", 0.2),
    Metric("Max Sensitivity, 25 samples", "max-sensitivity:preset=quantus-0.6,samples=25", max_sensitivity(25), "vgg16", 0.2),
    Metric("Max Sensitivity of SplitGrad, 4 samples", SENSITIVITY_OF_4, max_sensitivity(4), "resnet18", 0.3, method="splitgrad"),
    Metric("Max Sensitivity of SplitGrad, 4 samples", SENSITIVITY_OF_4, max_sensitivity(4), "vgg16", 0.3, method="splitgrad"),
]


def gradient(model, inputs, targets, **_):
    """The gradient, as a function Quantus calls."""
    import torch

    x, classes = on_device(model, inputs, targets)
    x = x.float().requires_grad_(True)
    score = model(x).gather(1, classes[:, None]).sum()
    return torch.autograd.grad(score, x)[0].sum(1, keepdim=True).cpu().numpy()


def on_device(model, inputs, targets):
    """Images and classes as tensors, where the network is."""
    import torch

    device = next(model.parameters()).device
    return torch.as_tensor(np.asarray(inputs)).to(device), torch.as_tensor(np.asarray(targets)).long().to(device)


def split_gradient(network):
    """The paper's algorithm to the letter, as a function Quantus calls."""
    from .four_streams import FourStreams

    streams = FourStreams(copy.deepcopy(network))
    first = network.nodes[0].name

    def explain(model, inputs, targets, **_):
        x, classes = on_device(network, inputs, targets)
        return streams.explain(x, classes, {first})[f"splitgrad-g@{first}"][:, None].cpu().numpy()

    return explain


def job(job, number):
    """What is timed of an entry: Quantus on all images at once."""
    # The channels of a pixel have the same value in the map; the order of equal values depends on the machine otherwise.
    np.argsort = functools.partial(np.argsort, kind="stable")
    x, y = job.x.numpy(), job.classes.numpy()
    device = str(next(job.network.parameters()).device)
    explain = split_gradient(job.network) if METRICS[number].method == "splitgrad" else gradient
    maps = explain(job.network, x, y)

    def call(metric, softmax=False, explained=False):
        more = {"explain_func": explain} if explained else {}
        options = {"softmax": softmax, "channel_first": True, "device": device, "batch_size": len(x)} | more
        return metric(model=job.network, x_batch=x, y_batch=y, a_batch=maps.copy(), **options)

    return lambda: {"values": METRICS[number].peer(call)}

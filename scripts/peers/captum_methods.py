"""Captum's methods on a network whose nodes each read a copy of their operands.

Captum hangs its rules on tensors: where two modules read the same tensor, or a max pool reads what a ReLU wrote, one rule
overwrites the other. Copies keep them apart. What its rules for max pooling get wrong (`captum.attr._core.deep_lift`) is
put right by `repaired`, so that both can be compared: Captum as released, and what it means to compute.
"""

import contextlib
import copy

import numpy as np
import torch
from captum import attr
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr._core import deep_lift, lrp
from captum.attr._utils.custom_modules import Addition_Module
from comparison import network
from torch import nn


class Apart(network.Network):
    """Runs every node on copies, concatenations as plain functions, which have no rule."""

    def applied(self, function, operands):
        operands = [operand.clone() for operand in operands]
        if isinstance(function, Joined):
            return torch.cat(operands, function.axis)
        return super().applied(function, operands)


class Joined:
    """Where operands are joined; no module, so that nobody looks for its rule."""

    def __init__(self, axis):
        self.axis = axis


def apart(net):
    """The network as `Apart`, with Captum's sums."""
    made = copy.copy(net)
    made.__class__ = Apart
    functions = []
    for function in net.functions:
        if isinstance(function, network.Add):
            function = Addition_Module()
        elif isinstance(function, network.Concat):
            function = Joined(function.axis)
        functions.append(function)
    made._modules = {str(i): f for i, f in enumerate(functions) if isinstance(f, nn.Module)}
    made.functions = functions
    return made


def max_pool(module, inputs, outputs, grad_input, grad_output, eps=1e-10):
    """The Rescale rule of a max pool: overlapping windows add up, and every sample has a gradient of its own."""
    (x, reference), (y, y_reference) = inputs.chunk(2), outputs.chunk(2)
    most = torch.max(y, y_reference)
    shares = grad_output * torch.cat([most - y_reference, y - most])
    options = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
    _, winners = nn.functional.max_pool2d(inputs, *options, return_indices=True)
    handed = torch.zeros_like(inputs).flatten(2).scatter_add(2, winners.flatten(2), shares.flatten(2)).view_as(inputs)
    handed, change = sum(handed.chunk(2)), x - reference
    found = torch.where(change.abs() < eps, grad_input.chunk(2)[0], handed / change)
    return torch.cat([found, found])


@contextlib.contextmanager
def repaired():
    """Captum with its max pool put right, and ReLU6 among the activations that it knows."""
    rules = dict(deep_lift.SUPPORTED_NON_LINEAR)
    known = list(lrp.SUPPORTED_NON_LINEAR_LAYERS)
    deep_lift.SUPPORTED_NON_LINEAR.update({nn.MaxPool2d: max_pool, nn.ReLU6: deep_lift.nonlinear})
    lrp.SUPPORTED_NON_LINEAR_LAYERS.append(nn.ReLU6)
    try:
        yield
    finally:
        deep_lift.SUPPORTED_NON_LINEAR.clear()
        deep_lift.SUPPORTED_NON_LINEAR.update(rules)
        lrp.SUPPORTED_NON_LINEAR_LAYERS[:] = known


def one_by_one(attribute, job):
    """Asks about each picture by itself."""
    return torch.cat([attribute(job.x[i : i + 1], c).detach() for i, c in enumerate(job.target())])


def released_deep_lift(job):
    """As released; one picture at a time, because all in a batch are given the first one's gradient."""
    return one_by_one(lambda x, c: attr.DeepLift(job.network).attribute(x, target=c), job)


def released_misses(job):
    """How far the released DeepLIFT is from adding up to the change of the score, relative to that change."""
    found = released_deep_lift(job)
    with torch.no_grad():
        scores = [job.network(x)[torch.arange(len(x)), job.classes] for x in (job.x, torch.zeros_like(job.x))]
    change = scores[0] - scores[1]
    return ((found.flatten(1).sum(1) - change) / change).abs().max().item()


def repaired_deep_lift(job):
    net = apart(job.network)
    with repaired():
        return one_by_one(lambda x, c: attr.DeepLift(net).attribute(x, target=c), job)


def repaired_deep_shap(job):
    net = apart(job.network)
    baselines = job.options["baselines"]
    with repaired():
        return one_by_one(lambda x, c: attr.DeepLiftShap(net).attribute(x, baselines, target=c), job)


def layer_wise_relevance(rule):
    """Captum's LRP with one rule for all weights; batch norms keep the rule Captum gives them, epsilon."""

    def run(job):
        net = apart(job.network)

        def attribute(x, c):
            # Captum takes rules off the modules after every question.
            for module in net.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    module.rule = rule()
            return attr.LRP(net).attribute(x, target=c)

        with repaired():
            return one_by_one(attribute, job)

    return run


def layer_grad_cam(rectified):
    def run(job):
        method = attr.LayerGradCam(job.network, job.last())
        return method.attribute(job.x, target=job.target(), relu_attributions=rectified)[:, 0]

    return run


def guided_grad_cam(job):
    return attr.GuidedGradCam(job.network, job.last()).attribute(job.x, target=job.target())


def shapley_values(job):
    """All orders of the four quarters of the picture."""
    side = torch.arange(job.x.shape[-1]) * 2 // job.x.shape[-1]
    quarters = (side[:, None] * 2 + side)[None, None]
    method = attr.ShapleyValues(job.network)
    return method.attribute(job.x, target=job.target(), feature_mask=quarters, perturbations_per_eval=4)


def noisy_gradients(count):
    """Gradients of noisy copies, one by one."""

    def run(job):
        torch.manual_seed(count)
        method, options = attr.NoiseTunnel(attr.Saliency(job.network)), {"nt_samples": 1, "abs": False}
        draws = [method.attribute(job.x, stdevs=job.options["stdev"], target=job.target(), **options) for _ in range(count)]
        return torch.stack(draws)

    return run


def gradient_shap(count):
    """Single points, each with a baseline of its own."""

    def run(job):
        torch.manual_seed(count)
        np.random.seed(count)
        method = attr.GradientShap(job.network)
        draws = [method.attribute(job.x, job.options["baselines"], 1, target=job.target()) for _ in range(count)]
        return torch.stack(draws)

    return run


def lime(count, samples):
    """Captum's LIME as we define ours: ridge regression of the probability, copies counted by how many parts they have."""

    def nearness(picture, copy, present, **_):
        distance = 1 - present.float().mean().sqrt()
        return torch.exp(-(distance**2) / (2 * 0.25**2))

    def run(job):
        torch.manual_seed(count)
        side = torch.arange(job.x.shape[-1]) // 75
        parts = (side[:, None] * 3 + side)[None, None]
        method = attr.Lime(lambda x: job.network(x).softmax(1), SkLearnRidge(alpha=1.0), nearness)
        options = {"feature_mask": parts, "n_samples": samples, "perturbations_per_eval": 10}
        draw = lambda: one_by_one(lambda x, c: method.attribute(x, target=c, **options), job)[:, 0]
        return torch.stack([draw() for _ in range(count)])

    return run

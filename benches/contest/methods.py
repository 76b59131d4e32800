"""Explanation methods against their peers, one entry each: what our program is asked for, and what the peer does.

A peer is a function of a `Job`; it sets up and returns what is timed. Map and peer are compared before timing, after
adding up the peer's channels, so `size=input` stands where the peer scales its map up. Of ours, `{first}` is the first
layer, whose input is the image, and `{last}` the last one with a map.
"""

from dataclasses import dataclass, field
from typing import Callable

import torch


@dataclass
class Job:
    """What a peer works on."""

    network: torch.nn.Module
    x: torch.Tensor
    classes: torch.Tensor
    options: dict

    def last(self):
        return self.network.layer(self.options["last"])

    def target(self):
        return self.classes.tolist()


@dataclass
class Method:
    title: str
    peer_name: str
    ours: dict
    peer: Callable
    network: str = "resnet18"
    target: float = 1.0
    options: dict = field(default_factory=dict)


def captum(name, **arguments):
    """A method of Captum on the whole network."""

    def setup(job):
        import captum.attr

        method = getattr(captum.attr, name)(job.network)
        return lambda: method.attribute(job.x, target=job.target(), **arguments)

    return setup


def captum_grad_cam(job):
    from captum.attr import LayerGradCam

    method = LayerGradCam(job.network, job.last())
    return lambda: method.attribute(job.x, target=job.target())


def feature_ablation(cell, batch):
    """Squares of a grid, one at a time."""

    def setup(job):
        from captum.attr import FeatureAblation

        side = torch.arange(job.x.shape[-1]) // cell
        mask = (side[:, None] * (side.max() + 1) + side)[None, None]
        method = FeatureAblation(job.network)
        arguments = {"feature_mask": mask, "perturbations_per_eval": batch}
        return lambda: method.attribute(job.x, target=job.target(), **arguments)

    return setup


def grad_cam(name):
    """A method of the grad-cam package. Only the image asks for a gradient, which is less than it computes by itself."""

    def setup(job):
        import pytorch_grad_cam
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

        method = getattr(pytorch_grad_cam, name)(job.network, [job.last()])
        targets = [ClassifierOutputTarget(c) for c in job.target()]
        x = job.x.clone().requires_grad_(True)
        return lambda: torch.from_numpy(method(x, targets))

    return setup


def zennit_epsilon_gamma_box(job):
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonGammaBox

    composite = EpsilonGammaBox(low=job.x.min().item(), high=job.x.max().item())
    seed = torch.nn.functional.one_hot(job.classes, job.network(job.x).shape[1]).float()

    def run():
        with Gradient(job.network, composite) as attributor:
            return attributor(job.x, seed)[1]

    return run


IMAGE = {}
LAST = {"layers": "{last}:out"}
SCALED = {"layers": "{last}:out", "size": "input"}

METHODS = [
    Method("Saliency", "Captum", {"name": "saliency", **IMAGE}, captum("Saliency")),
    Method("Input × Gradient", "Captum", {"name": "input-x-gradient", **IMAGE}, captum("InputXGradient")),
    Method("Integrated Gradients, 50 steps", "Captum", {"name": "integrated-gradients", "steps": "50", **IMAGE}, captum("IntegratedGradients", n_steps=50)),
    Method("Guided Backprop", "Captum", {"name": "guided-backprop", **IMAGE}, captum("GuidedBackprop")),
    Method("Deconvolution", "Captum", {"name": "deconvolution", **IMAGE}, captum("Deconvolution")),
    Method("DeepLIFT", "Captum", {"name": "deeplift", **IMAGE}, captum("DeepLift")),
    Method("GradCAM", "Captum", {"name": "gradcam", **LAST}, captum_grad_cam),
    Method("GradCAM", "grad-cam", {"name": "gradcam", **SCALED}, grad_cam("GradCAM")),
    Method("GradCAM++", "grad-cam", {"name": "gradcam++", **SCALED}, grad_cam("GradCAMPlusPlus")),
    Method("LayerCAM", "grad-cam", {"name": "layercam", **SCALED}, grad_cam("LayerCAM")),
    Method("LRP ε", "Captum", {"name": "lrp", "composite": "epsilon", "epsilon": "1e-9", **IMAGE}, captum("LRP"), "vgg16"),
    Method("LRP ε-γ-box", "Zennit", {"name": "lrp", "composite": "epsilon-gamma-box", **IMAGE}, zennit_epsilon_gamma_box, "vgg16"),
    Method("Occlusion, 32×32 by 16", "Captum", {"name": "occlusion", "window": "32", "stride": "16"}, captum("Occlusion", sliding_window_shapes=(3, 32, 32), strides=(3, 16, 16), perturbations_per_eval=8), target=1 / 3),
    Method("Feature Ablation, 16×16 squares", "Captum", {"name": "feature-ablation", "parts": "grid", "cell": "16"}, feature_ablation(16, 8), target=1 / 3),
]

"""Explanation methods against their peers, one entry each: what our program is asked for, and what the peer does.

A peer is a function of a `Job`; it sets up and returns what is timed. Map and peer are compared before timing, after
adding up the peer's channels, so `size=input` stands where the peer scales its map up. Of ours, `{first}` is the first
layer, whose input is the image, and `{last}` the last one with a map.
"""

from dataclasses import dataclass
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
    # Whether both draw numbers of their own, so that their maps cannot be compared one to one.
    sampled: bool = False


def captum(name, **arguments):
    """A method of Captum on the whole network."""

    def setup(job):
        import captum.attr

        method = getattr(captum.attr, name)(job.network)
        return lambda: method.attribute(job.x, target=job.target(), **arguments)

    return setup


def captum_saliency(job):
    """The largest over channels, as ours."""
    from captum.attr import Saliency

    method = Saliency(job.network)
    return lambda: method.attribute(job.x, target=job.target()).amax(1, keepdim=True)


def captum_noise(kind, samples):
    """Gradients of noisy copies of the image."""

    def setup(job):
        from captum.attr import NoiseTunnel, Saliency

        method = NoiseTunnel(Saliency(job.network))
        arguments = {"nt_type": kind, "nt_samples": samples, "nt_samples_batch_size": 8, "stdevs": 0.15, "abs": False}
        return lambda: method.attribute(job.x, target=job.target(), **arguments)

    return setup


def captum_gradient_shap(samples):
    def setup(job):
        from captum.attr import GradientShap

        method = GradientShap(job.network)
        baseline = torch.zeros_like(job.x)
        return lambda: method.attribute(job.x, baseline, n_samples=samples, target=job.target())

    return setup


def captum_surrogate(name, cell, samples):
    """A linear model fitted to how the score changes as squares of a grid are left out."""

    def setup(job):
        import captum.attr

        method = getattr(captum.attr, name)(job.network)
        arguments = {"feature_mask": squares(job, cell), "n_samples": samples, "perturbations_per_eval": 8}
        return lambda: method.attribute(job.x, target=job.target(), **arguments)

    return setup


def captum_guided_grad_cam(job):
    from captum.attr import GuidedGradCam

    method = GuidedGradCam(job.network, job.last())
    return lambda: method.attribute(job.x, target=job.target())


def squares(job, cell):
    """A number for every square of a grid."""
    side = torch.arange(job.x.shape[-1]) // cell
    return (side[:, None] * (side.max() + 1) + side)[None, None]


def captum_grad_cam(job):
    from captum.attr import LayerGradCam

    method = LayerGradCam(job.network, job.last())
    return lambda: method.attribute(job.x, target=job.target())


def feature_ablation(cell, batch):
    """Squares of a grid, one at a time."""

    def setup(job):
        from captum.attr import FeatureAblation

        method = FeatureAblation(job.network)
        arguments = {"feature_mask": squares(job, cell), "perturbations_per_eval": batch}
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


def zennit(name):
    """A composite of Zennit. The bounds of a box are those of the image."""

    def setup(job):
        from zennit import composites
        from zennit.attribution import Gradient

        box = {"low": job.x.min().item(), "high": job.x.max().item()} if name.endswith("Box") else {}
        composite = getattr(composites, name)(**box)
        seed = torch.nn.functional.one_hot(job.classes, job.network(job.x).shape[1]).float()

        def run():
            with Gradient(job.network, composite) as attributor:
                return attributor(job.x, seed)[1]

        return run

    return setup


LAST = {"layers": "{last}:out"}
SCALED = {"layers": "{last}:out", "size": "input"}

BOX = {"low": "{low}", "high": "{high}"}


def lrp(composite, **more):
    return {"name": "lrp", "composite": composite, **more}


METHODS = [
    Method("Saliency", "Captum", {"name": "saliency"}, captum_saliency),
    Method("Input × Gradient", "Captum", {"name": "input-x-gradient"}, captum("InputXGradient")),
    Method("Integrated Gradients, 50 steps", "Captum", {"name": "integrated-gradients", "steps": "50"}, captum("IntegratedGradients", n_steps=50)),
    Method("SmoothGrad, 24 samples", "Captum", {"name": "smoothgrad", "samples": "24"}, captum_noise("smoothgrad", 24), sampled=True),
    Method("VarGrad, 24 samples", "Captum", {"name": "vargrad", "samples": "24"}, captum_noise("vargrad", 24), sampled=True),
    Method("GradientSHAP, 24 samples", "Captum", {"name": "gradient-shap", "samples": "24"}, captum_gradient_shap(24), sampled=True),
    Method("Guided Backprop", "Captum", {"name": "guided-backprop"}, captum("GuidedBackprop")),
    Method("Deconvolution", "Captum", {"name": "deconvolution"}, captum("Deconvolution")),
    Method("Guided GradCAM", "Captum", {"name": "guided-gradcam", **LAST}, captum_guided_grad_cam),
    Method("DeepLIFT, pools to the winner", "Captum", {"name": "deeplift", "pool": "winner"}, captum("DeepLift")),
    Method("GradCAM", "Captum", {"name": "gradcam", **LAST}, captum_grad_cam),
    Method("GradCAM", "grad-cam", {"name": "gradcam", **SCALED}, grad_cam("GradCAM")),
    Method("GradCAM++", "grad-cam", {"name": "gradcam++", **SCALED}, grad_cam("GradCAMPlusPlus")),
    Method("LayerCAM", "grad-cam", {"name": "layercam", **SCALED}, grad_cam("LayerCAM")),
    Method("HiResCAM", "grad-cam", {"name": "hirescam", "relu": "yes", **SCALED}, grad_cam("HiResCAM")),
    Method("XGradCAM", "grad-cam", {"name": "xgradcam", **SCALED}, grad_cam("XGradCAM")),
    Method("ScoreCAM", "grad-cam", {"name": "scorecam", **SCALED}, grad_cam("ScoreCAM"), "squeezenet1_1"),
    Method("AblationCAM", "grad-cam", {"name": "ablationcam", **SCALED}, grad_cam("AblationCAM"), "squeezenet1_1"),
    Method("LRP ε", "Captum", lrp("epsilon", epsilon="1e-9"), captum("LRP"), "vgg16"),
    Method("LRP ε-γ-box", "Zennit", lrp("epsilon-gamma-box", **BOX), zennit("EpsilonGammaBox"), "vgg16"),
    Method("LRP ε-plus", "Zennit", lrp("epsilon-plus"), zennit("EpsilonPlus"), "vgg16"),
    Method("LRP ε-α2β1", "Zennit", lrp("epsilon-alpha2-beta1"), zennit("EpsilonAlpha2Beta1"), "vgg16"),
    Method("Occlusion, 32×32 by 16", "Captum", {"name": "occlusion", "window": "32", "stride": "16"}, captum("Occlusion", sliding_window_shapes=(3, 32, 32), strides=(3, 16, 16), perturbations_per_eval=8), target=1 / 3),
    Method("Feature Ablation, 16×16 squares", "Captum", {"name": "feature-ablation", "parts": "grid", "cell": "16"}, feature_ablation(16, 8), target=1 / 3),
    Method("KernelSHAP, 49 squares, 200 samples", "Captum", {"name": "kernel-shap", "parts": "grid", "cell": "32", "samples": "200"}, captum_surrogate("KernelShap", 32, 200), "squeezenet1_1", sampled=True),
    Method("LIME, 49 squares, 200 samples", "Captum", {"name": "lime", "parts": "grid", "cell": "32", "samples": "200"}, captum_surrogate("Lime", 32, 200), "squeezenet1_1", sampled=True),
]

"""The questions: what our program is asked, and which peer answers the same."""

from dataclasses import dataclass
from typing import Callable

import torch
from captum.attr._utils.lrp_rules import EpsilonRule, GammaRule
from comparison.methods import captum, feature_ablation
from zennit import rules

from . import captum_methods, grad_cam_methods, zennit_methods

CAPTUM, ZENNIT, GRAD_CAM = "Captum", "Zennit", "grad-cam"


@dataclass
class Row:
    """`place` names the layer; `peer` is a function of a `comparison.methods.Job` that returns the map."""

    title: str
    peer_name: str
    method: str
    peer: Callable
    place: str = "image"
    finish: tuple = ()
    signs: bool = False
    note: Callable = lambda job: ""
    precisions: tuple = ("f64", "f32")
    draws: str = ""
    averaged: int = 1
    networks: tuple = ()


def called(setup):
    """A peer of the comparison, which sets up first and is timed afterwards."""
    return lambda job: setup(job)()


def image(title, method, name, **arguments):
    return Row(title, CAPTUM, method, called(captum(name, **arguments)))


DRAWS = 24
SCALED = ("--normalise", "minmax", "--size", "input")


def cams():
    yield Row("Grad-CAM, last map", CAPTUM, "gradcam:relu=no", captum_methods.layer_grad_cam(False), "last")
    yield Row("Grad-CAM, last map, rectified", CAPTUM, "gradcam", captum_methods.layer_grad_cam(True), "last")
    for title, name, kind in [
        ("Grad-CAM", "gradcam", "GradCAM"),
        ("Grad-CAM++", "gradcam++", "GradCAMPlusPlus"),
        ("LayerCAM", "layercam", "LayerCAM"),
        ("HiResCAM", "hirescam:relu=yes", "HiResCAM"),
        ("XGrad-CAM", "xgradcam", "XGradCAM"),
    ]:
        yield Row(f"{title}, last map", GRAD_CAM, name, grad_cam_methods.unscaled(kind), "last")
        yield Row(f"{title}, middle map", GRAD_CAM, name, grad_cam_methods.unscaled(kind), "middle")
    scaled = grad_cam_methods.scaled("GradCAM")
    yield Row("Grad-CAM, last map, scaled", GRAD_CAM, "gradcam", scaled, "last", SCALED)
    eigen = grad_cam_methods.unscaled("EigenCAM", rectified=False)
    yield Row("Eigen-CAM, last map", GRAD_CAM, "eigencam", eigen, "last", signs=True, note=sign)
    yield Row("Guided Grad-CAM, last map", CAPTUM, "guided-gradcam", captum_methods.guided_grad_cam, "last")
    both, guided = f"{CAPTUM} × {GRAD_CAM}", grad_cam_methods.guided_layer_cam
    yield Row("Guided LayerCAM, last map", both, "guided-layercam", guided, "last")


def sign(job):
    return "up to its sign, which nothing defines"


def activation(job):
    six = any(isinstance(module, torch.nn.ReLU6) for module in job.network.modules())
    return "ReLU6 has the ordinary gradient in both" if six else ""


def batch_norms(job):
    norms = any(isinstance(module, torch.nn.BatchNorm2d) for module in job.network.modules())
    return "batch norms before a ReLU pass relevance on" if norms else ""


def propagation():
    for name, make in zennit_methods.COMPOSITES.items():
        method = f"lrp:composite={name},seed=one"
        method += ",low={low},high={high}" if "box" in name else ""
        yield Row(f"LRP {name}", ZENNIT, method, zennit_methods.composite(make), note=batch_norms)
    for name, rule in [("generalised-gamma", rules.Gamma(0.25)), ("z-plus", rules.ZPlus()), ("w-square", rules.WSquare())]:
        peer = zennit_methods.composite(lambda job, rule=rule: zennit_methods.everywhere(rule))
        yield Row(f"LRP {name} everywhere", ZENNIT, f"lrp:composite={name},seed=one{{norms_pass}}", peer, note=batch_norms)
    for name, rule in [("epsilon", EpsilonRule), ("gamma", GammaRule)]:
        peer = captum_methods.layer_wise_relevance(rule)
        yield Row(f"LRP {name} everywhere", CAPTUM, f"lrp:composite={name}{{norms_epsilon}}", peer)
    released = captum_methods.released_deep_lift
    yield Row("DeepLIFT, pools to the winner", f"{CAPTUM}, as released", "deeplift:pool=winner", released, note=misses)
    yield Row("DeepLIFT", f"{CAPTUM}, repaired", "deeplift", captum_methods.repaired_deep_lift)
    shap = captum_methods.repaired_deep_shap
    yield Row("DeepSHAP", f"{CAPTUM}, repaired", "deepshap:baselines={folder}/baselines.npy", shap)


def misses(job):
    return f"Captum's is {captum_methods.released_misses(job):.0e} of the change of the score from adding up".replace("e-0", "e-")


def perturbation():
    window = {"sliding_window_shapes": (3, 56, 56), "strides": (3, 28, 28), "perturbations_per_eval": 7}
    yield image("Integrated Gradients, 20 steps", "integrated-gradients:steps=20", "IntegratedGradients", n_steps=20)
    yield image("Occlusion, 56×56 by 28", "occlusion:window=56,stride=28", "Occlusion", **window)
    ablation = called(feature_ablation(32, 7))
    yield Row("Feature Ablation, 32×32 squares", CAPTUM, "feature-ablation:parts=grid,cell=32", ablation)
    shapley = captum_methods.shapley_values
    yield Row("KernelSHAP, all sets of 4 parts", CAPTUM, "kernel-shap:parts=grid,cell=112", shapley)
    score, ablated = (grad_cam_methods.unscaled(name) for name in ("ScoreCAM", "AblationCAM"))
    yield Row("Score-CAM, narrow map", GRAD_CAM, "scorecam", score, "narrow", precisions=("f32",))
    yield Row("Ablation-CAM, narrow map", GRAD_CAM, "ablationcam", ablated, "narrow", precisions=("f32",))


def sampled():
    """The peer returns single draws, as many as we average."""
    noisy, points = captum_methods.noisy_gradients(DRAWS), captum_methods.gradient_shap(DRAWS)
    options = f"samples={DRAWS},stdev={{stdev}}"
    yield Row("SmoothGrad", CAPTUM, f"smoothgrad:{options}", noisy, draws="mean", averaged=DRAWS, precisions=("f32",))
    yield Row("VarGrad", CAPTUM, f"vargrad:{options}", noisy, draws="variance", precisions=("f32",))
    method = f"gradient-shap:samples={DRAWS},baseline={{folder}}/baselines.npy"
    yield Row("GradientSHAP", CAPTUM, method, points, draws="mean", averaged=DRAWS, precisions=("f32",))
    # Hundreds of runs of the network for every draw are for a small one.
    lime, small = captum_methods.lime(8, 100), ("squeezenet1_1",)
    method = "lime:parts=grid,cell=75,samples=100"
    yield Row("LIME, 9 parts", CAPTUM, method, lime, draws="mean", precisions=("f32",), networks=small)


def rows():
    yield image("Gradient", "gradient", "Saliency", abs=False)
    yield image("Saliency", "saliency", "Saliency")
    yield image("Input × Gradient", "input-x-gradient", "InputXGradient")
    for title, method, name in [
        ("Guided Backprop", "guided-backprop", "GuidedBackprop"),
        ("Deconvolution", "deconvolution", "Deconvolution"),
    ]:
        yield Row(title, CAPTUM, method, called(captum(name)), note=activation)
    yield from cams()
    yield from propagation()
    yield from perturbation()
    yield from sampled()

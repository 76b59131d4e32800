"""monosplit explains what a trained neural network saw.

>>> import monosplit as ms
>>> model = ms.load(ms.assets.network())
>>> e = model.explain(ms.assets.photograph(), "splitcam")
>>> e.class_names[0]
'Bengal'
>>> e.maps.shape
(1, 128, 128)
"""

from . import assets, captum, gradcam, ray, target
from ._monosplit import UnsupportedOperator, __version__
from .explanation import Explanation
from .evaluation import Evaluation, MetricInfo, metrics
from .explainer import Explainer
from .listing import MethodInfo, methods
from .model import CompiledNetwork, Finding, Layer, Model, load
from .page import ServedPage
from .quantus import quantus
from .torch_export import ExportWarning, from_torch

__all__ = [
    "CompiledNetwork",
    "Evaluation",
    "Explainer",
    "Explanation",
    "ExportWarning",
    "Finding",
    "Layer",
    "MethodInfo",
    "MetricInfo",
    "Model",
    "ServedPage",
    "UnsupportedOperator",
    "__version__",
    "assets",
    "captum",
    "from_torch",
    "gradcam",
    "load",
    "methods",
    "metrics",
    "quantus",
    "ray",
    "target",
]

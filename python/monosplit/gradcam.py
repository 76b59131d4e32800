"""Drop-in classes with the names and arguments of pytorch-grad-cam's.

``targets`` is a list with one target for each sample, none for the class with the highest score; a target is a class number
or anything with the attribute ``category``, such as grad-cam's ``ClassifierOutputTarget``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .torch_export import from_torch

if TYPE_CHECKING:
    import torch


class BaseCAM:
    """A class activation map at one or several layers, whose maps are averaged."""

    method = ""

    def __init__(
        self, model: torch.nn.Module, target_layers: Sequence[torch.nn.Module], reshape_transform: Any = None
    ) -> None:
        # Tokens become a grid by themselves here: how is read off the network.
        self.model = model
        self.target_layers = list(target_layers)

    def __call__(
        self, input_tensor: torch.Tensor, targets: Sequence[Any] | None = None, aug_smooth: bool = False,
        eigen_smooth: bool = False,
    ) -> NDArray[np.float32]:
        """The maps ``[N, H, W]`` at the size of the input, each scaled to 0 … 1."""
        if aug_smooth or eigen_smooth:
            raise NotImplementedError("monosplit has neither aug_smooth nor eigen_smooth")
        model = from_torch(self.model, input_tensor, output="probability")
        target = None if targets is None else [_category(each) for each in targets]
        maps: list[NDArray[np.float32]] = []
        for layer in self.target_layers:
            explainer = model.explainer(self.method, layer=f"{model._layer_name(layer)}:out")
            found = explainer.explain(input_tensor, target).maps
            maps.append(_scaled(np.maximum(found, 0)))
        return _scaled(np.mean(maps, axis=0))

    def __enter__(self) -> BaseCAM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _category(target: Any) -> int:
    category = getattr(target, "category", target)
    if not hasattr(category, "__index__"):
        raise NotImplementedError(f"monosplit explains classes, found the target {target!r}")
    return int(category.__index__())


def _scaled(maps: NDArray[Any]) -> NDArray[np.float32]:
    """Each map from 0 to 1, as grad-cam scales them."""
    axes = tuple(range(1, maps.ndim))
    low = maps.min(axis=axes, keepdims=True)
    high = (maps - low).max(axis=axes, keepdims=True)
    scaled: NDArray[np.float32] = ((maps - low) / (1e-7 + high)).astype(np.float32)
    return scaled


class GradCAM(BaseCAM):
    """Grad-CAM."""

    method = "gradcam"


class GradCAMPlusPlus(BaseCAM):
    """Grad-CAM++."""

    method = "gradcam++"


class LayerCAM(BaseCAM):
    """LayerCAM."""

    method = "layercam"


class HiResCAM(BaseCAM):
    """HiResCAM."""

    method = "hirescam"


class XGradCAM(BaseCAM):
    """XGrad-CAM."""

    method = "xgradcam"


class EigenCAM(BaseCAM):
    """Eigen-CAM."""

    method = "eigencam"


class ScoreCAM(BaseCAM):
    """Score-CAM."""

    method = "scorecam"


class AblationCAM(BaseCAM):
    """Ablation-CAM."""

    method = "ablationcam"

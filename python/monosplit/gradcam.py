"""Drop-in classes with the names and arguments of pytorch-grad-cam's.

``targets`` is a list with one target for each sample, none for the class with the highest score; a target is a class number
or anything with the attribute ``category``, such as grad-cam's ``ClassifierOutputTarget``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .samples import numpy_of
from .torch_export import from_torch

if TYPE_CHECKING:
    import torch


class BaseCAM:
    """A class activation map at one or several layers, whose maps are averaged."""

    method = ""

    def __init__(
        self, model: torch.nn.Module, target_layers: Sequence[torch.nn.Module], reshape_transform: Any = None
    ) -> None:
        if reshape_transform is not None:
            warnings.warn("reshape_transform is not called: how tokens lie on a grid is read off the network", stacklevel=2)
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
        dtype = "float64" if input_tensor.dtype.itemsize == 8 else "float32"
        maps: list[NDArray[np.float32]] = []
        for layer in self.target_layers:
            explainer = model.explainer(self.method, layer=f"{model._layer_name(layer)}:out", dtype=dtype)
            found = numpy_of(explainer(input_tensor, target))
            if found.ndim == 4:
                found = found[:, 0]
            maps.append(_resized(_scaled(np.maximum(found, 0)), input_tensor.shape[2:]))
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


def _resized(maps: NDArray[Any], size: Sequence[int]) -> NDArray[Any]:
    """Maps brought to a size by bilinear interpolation with half-pixel centres, as OpenCV does it."""
    for axis, length in ((1, size[0]), (2, size[1])):
        known = maps.shape[axis]
        at = np.clip((np.arange(length) + 0.5) * known / length - 0.5, 0, known - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, known - 1)
        share = (at - low).reshape([-1 if i == axis else 1 for i in range(3)])
        maps = maps.take(low, axis) * (1 - share) + maps.take(high, axis) * share
    return maps


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


class ScoreCAM(BaseCAM):
    """Score-CAM."""

    method = "scorecam"


class AblationCAM(BaseCAM):
    """Ablation-CAM."""

    method = "ablationcam"

"""The result of an explanation."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _monosplit
from .files import write_whole
from .samples import Samples, numpy_of, is_torch

if TYPE_CHECKING:
    import matplotlib.figure


@dataclass(repr=False)
class Explanation:
    """What a network said about samples, and why. In a notebook it shows itself as a picture."""

    attributions: Any
    """One number for each element of what is explained: of the input, or of the layer. Methods that do not tell channels
    apart have one channel. An array, or a torch tensor on the device of the input."""
    maps: NDArray[Any]
    """``[N, H, W]`` at the size of the input."""
    scores: NDArray[Any]
    """The scores ``[N, classes]``, bit for bit those of the network alone."""
    classes: list[int]
    """The explained class of each sample."""
    class_names: list[str]
    """Its name, or its number where it has none."""
    probabilities: list[float | None]
    """Its probability, where the scores say something about it."""
    method: str
    """The method, with the options that differ from their defaults."""
    title: str
    """The method's name as it stands in captions."""
    layer: str | None
    """The layer that is attributed to; none is the input."""
    alpha: float | None
    """The shift α, where the method has one."""
    target: str | None
    """What is explained where it is no class; ``classes`` and ``scores`` are then of the scores that it has."""
    exponents: list[int]
    """For each sample the power of two that its attributions are to be multiplied by: 0 unless they would overflow."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Everything else: all options, what the method measured about itself."""
    samples: Samples | None = None
    """What was explained."""

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        where = f" at {self.layer}" if self.layer else ""
        names = ", ".join(self.class_names[:3]) + (", …" if len(self) > 3 else "")
        shape = tuple(self.attributions.shape)
        return f"<Explanation by {self.title}{where}: {names}; attributions {shape}>"

    def overlay(self, index: int = 0, *, opacity: float = 0.5, single: bool = False) -> NDArray[np.uint8]:
        """A map drawn over its picture with a caption, as pixels ``[height, width, 3]``; without a picture the map alone."""
        map = np.asarray(self.maps[index])
        if map.ndim != 2:
            map = _as_plane(map)
        picture = self.samples.pictures[index] if self.samples is not None else None
        if picture is None and self.samples is not None:
            picture = _as_picture(self.samples.array[index])
        return _monosplit.overlay(
            np.ascontiguousarray(map),
            picture,
            method=self.title,
            layer=self.layer or "the input",
            class_name="" if self.target else self.class_names[index],
            target=self.class_names[index] if self.target else "",
            confidence=self.probabilities[index],
            alpha=self.alpha,
            opacity=opacity,
            single=single,
        )

    def save(self, path: str | os.PathLike[str], index: int = 0, *, opacity: float = 0.5, single: bool = False) -> None:
        """Writes the overlay of a sample as a PNG file, or the attributions as a ``.npy`` file."""
        path = os.fspath(path)
        if path.endswith(".npy"):
            values = self.attributions
            np.save(path, numpy_of(values) if is_torch(values) else values)
            return
        if not path.endswith(".png"):
            raise ValueError(f"{path}: a picture is written as .png, attributions as .npy")
        write_whole(path, _monosplit.encode_png(self.overlay(index, opacity=opacity, single=single)))

    def plot(self, index: int = 0, *, opacity: float = 0.5) -> matplotlib.figure.Figure:
        """The overlay as a figure of matplotlib."""
        import matplotlib.pyplot as plt

        drawn = self.overlay(index, opacity=opacity)
        figure, axes = plt.subplots(figsize=(drawn.shape[1] / 100, drawn.shape[0] / 100))
        axes.imshow(drawn)
        axes.set_axis_off()
        figure.tight_layout(pad=0)
        return figure

    def _repr_png_(self) -> bytes:
        return _monosplit.encode_png(self.overlay())


def _as_plane(map: NDArray[Any]) -> NDArray[Any]:
    """A map of another number of axes, so that it can be drawn."""
    if map.ndim < 2:
        return np.atleast_2d(map)
    return map.reshape(-1, map.shape[-1])


def _as_picture(sample: NDArray[Any]) -> NDArray[np.uint8] | None:
    """A picture of what the network was given, with its values stretched to those of pixels; none if it is no picture."""
    if sample.ndim != 3:
        return None
    if sample.shape[0] in (1, 3):
        sample = np.moveaxis(sample, 0, 2)
    elif sample.shape[2] not in (1, 3):
        return None
    low, high = float(np.min(sample)), float(np.max(sample))
    if not np.isfinite(high - low):
        return None
    stretched = (sample - low) / (high - low or 1.0) * 255
    return np.ascontiguousarray(np.broadcast_to(np.round(stretched), (*sample.shape[:2], 3)).astype(np.uint8))

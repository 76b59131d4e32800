"""The result of an explanation."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _monosplit
from .files import write_whole
from .samples import Samples, numpy_of, is_torch

if TYPE_CHECKING:
    import matplotlib.figure

    from .model import Model
    from .page import ServedPage


@dataclass(repr=False)
class Explanation:
    """What a network said about samples, and why. In a notebook it shows itself as a picture."""

    attributions: Any
    """One number for each element of what is explained: of the input, or of the layer. Methods that do not tell channels
    apart have one channel. An array, or a torch tensor on the device of the input; of several inputs a dictionary by their
    names."""
    maps: Any
    """``[N, H, W]`` at the size of the input, ``[N, tokens]`` of token ids; of several inputs a dictionary."""
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
    samples: Any = None
    """What was explained; of several inputs a dictionary."""
    _model: Model | None = field(default=None, compare=False)
    """The network, for the explorer. Copies in other processes go without it."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        where = f" at {self.layer}" if self.layer else ""
        names = ", ".join(self.class_names[:3]) + (", …" if len(self) > 3 else "")
        if isinstance(self.attributions, dict):
            shape = ", ".join(f"{name} {tuple(values.shape)}" for name, values in self.attributions.items())
        else:
            shape = str(tuple(self.attributions.shape))
        return f"<Explanation by {self.title}{where}: {names}; attributions {shape}>"

    def of(self, name: str) -> Explanation:
        """The part of an explanation of several inputs that is of one of them: to be drawn and saved by itself."""
        if not isinstance(self.attributions, dict):
            raise ValueError("one input was explained by itself; leave out of()")
        if name not in self.attributions:
            raise ValueError(f"'{name}' was not explained; these were: {', '.join(self.attributions)}")
        own = dict(attributions=self.attributions[name], maps=self.maps[name], samples=self.samples[name])
        return replace(self, **own)

    def _one(self) -> Explanation:
        """The explanation of one input; of several an error."""
        if isinstance(self.attributions, dict):
            if len(self.attributions) > 1:
                raise ValueError(f"several inputs were explained: say of({next(iter(self.attributions))!r}) first")
            return self.of(next(iter(self.attributions)))
        return self

    def overlay(self, index: int = 0, *, opacity: float = 0.5, single: bool = False) -> NDArray[np.uint8]:
        """A map drawn over its picture with a caption, as pixels ``[height, width, 3]``; without a picture the map alone."""
        if isinstance(self.attributions, dict):
            return self._one().overlay(index, opacity=opacity, single=single)
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
            values = self._one().attributions
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

    def explore(self, index: int = 0, *, port: int = 0, height: int = 900) -> ServedPage:
        """Serves the explorer with this explanation open: the method at its layer, α on the slider, the class, the pictures.

        What it returns is that of :meth:`Model.serve`: a frame in a notebook, an ``address`` elsewhere. It needs pictures,
        of which the one at ``index`` is shown first, and a class or a contrast of two.

        >>> import monosplit as ms
        >>> e = ms.load(ms.assets.network()).explain(ms.assets.photograph(), alpha=0.3)
        >>> with e.explore() as page:
        ...     "#method=splitcam&class=" in page.address and "&alpha=0.3" in page.address
        True
        """
        if self._model is None or self.samples is None:
            raise ValueError("this explanation came without its network; show the network with model.serve(pictures)")
        if isinstance(self.attributions, dict):
            return self._one().explore(index, port=port, height=height)
        pictures = self.samples.pictures
        number = range(len(pictures))[index]
        if pictures[number] is None:
            raise ValueError("the explorer shows pictures: explain the path of one, its bytes or a PIL image instead of an array")
        shown = [picture for picture in pictures if picture is not None]
        chosen = {"method": _without_shift(self.method), **_asked(self, number), "layer": self.layer or ""}
        if self.alpha is not None:
            chosen["alpha"] = repr(float(self.alpha))
        chosen["picture"] = f"gallery:{sum(picture is not None for picture in pictures[:number])}"
        return self._model._served([_monosplit.encode_png(picture) for picture in shown], port, height, chosen)

    def _repr_png_(self) -> bytes:
        if isinstance(self.attributions, dict):
            # Of several inputs the picture, if there is one.
            first = next((name for name, given in self.samples.items() if given.has_pictures), next(iter(self.attributions)))
            return self.of(first)._repr_png_()
        return _monosplit.encode_png(self.overlay())


def _without_shift(method: str) -> str:
    """A method as it is written, without the shift α, which the page keeps apart."""
    name, _, options = method.partition(":")
    kept = [option for option in options.split(",") if option and not option.startswith("alpha=")]
    return f"{name}:{','.join(kept)}" if kept else name


def _asked(explanation: Explanation, index: int) -> dict[str, str]:
    """The class that the page is asked about, and the one it is explained against."""
    if explanation.target is None:
        return {"class": str(explanation.classes[index])}
    kind, _, words = explanation.target.partition(":")
    assert explanation._model is not None
    names = {name.lower(): number for number, name in enumerate(explanation._model.class_names)}
    numbers = [word if word.isdigit() else str(names.get(word.strip('"').lower(), "")) for word in words.split(",")]
    if kind != "contrast" or len(numbers) != 2 or not all(numbers):
        raise ValueError(f"the explorer shows classes and contrasts of two; {explanation.target} is neither")
    return {"class": numbers[0], "against": numbers[1]}


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

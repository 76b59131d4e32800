"""Batches in, batches out: what is given to ``map_batches`` and its relatives. Nothing here imports Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _monosplit
from ..model import load
from ..target import Target, is_head

if TYPE_CHECKING:
    from ..model import MethodSpec

IMAGE_COLUMNS = ("image", "bytes", "path")
"""Columns that pictures are looked for in, in this order."""


class Explain:
    """Explains batches of pictures: a dictionary of columns in, a dictionary of columns out.

    ``model`` is what :func:`monosplit.load` takes: the bytes of an ONNX file, or a path that every machine has. ``methods``
    are names, or a dictionary from the names of columns to methods. ``image`` is the column of the pictures (by default the
    first of ``image``, ``bytes``, ``path`` that there is): arrays ``[H, W, 3]`` of bytes (or grey, or with transparency, which is dropped), files as bytes, or paths.

    The result has the other columns of the batch, ``class``, ``class_name``, ``probability`` and ``reason``, and for each
    method a column of maps ``[H, W]`` in ``maps``, a type of numpy; ``maps=None`` leaves them out. A picture that cannot be
    read has a ``reason``, class -1 and a map of NaN, and the others of its batch are explained all the same. Columns of texts
    are empty where there is nothing to say, so that all batches have the same types.

    ``device`` is as for :func:`monosplit.load`; none is the GPU that Ray gave the process (``num_gpus=1``), where the package
    was built for GPUs, and otherwise the processor.

    >>> import monosplit as ms
    >>> explain = ms.ray.Explain(ms.assets.network(), ["splitcam"])
    >>> rows = explain({"bytes": [ms.assets.photograph(), b"no picture"], "name": ["cat", "broken"]})
    >>> rows["class_name"].tolist(), rows["splitcam"].shape
    (['Bengal', ''], (2, 128, 128))
    """

    def __init__(
        self,
        model: Any,
        methods: Sequence[MethodSpec] | Mapping[str, MethodSpec],
        *,
        target: Target = None,
        image: str | None = None,
        maps: str | None = "float32",
        threads: int = 0,
        device: str | None = None,
        batch: int = 16,
    ) -> None:
        named = dict(methods) if isinstance(methods, Mapping) else {_name(method): method for method in methods}
        if not named:
            raise ValueError("name at least one method")
        if maps is not None and np.dtype(maps).kind != "f":
            raise ValueError(f"maps must be a floating-point type or None, found {maps!r}")
        self._model = load(model, threads=threads, device=_device() if device is None else device)
        self._explainers = {
            name: self._model.explainer(method, target=target, pictures=True, batch=batch)
            for name, method in named.items()
        }
        self._image = image
        self._maps = maps
        # Other targets are part of the explainers.
        self._class = None if is_head(target) else target

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Explains one batch."""
        column = self._column(batch)
        pictures = list(batch[column])
        samples, good, reasons = self._samples(pictures)
        count = len(pictures)
        found: dict[str, Any] = {name: values for name, values in batch.items() if name != column or column == "path"}
        classes = np.full(count, -1, dtype=np.int64)
        names = np.full(count, "", dtype=object)
        probabilities = np.full(count, np.nan)
        for name, explainer in self._explainers.items():
            size = self._model.input_shape[-2:]
            maps = None if self._maps is None else np.full((count, *size), np.nan, dtype=self._maps)
            if good:
                e = explainer.explain(samples, target=self._class)
                classes[good] = e.classes
                names[good] = [name or "" for name in e.class_names]
                probabilities[good] = [np.nan if value is None else value for value in e.probabilities]
                if maps is not None:
                    maps[good] = e.maps
            if maps is not None:
                found[name] = maps
        columns = {"class": classes, "class_name": names, "probability": probabilities, "reason": reasons}
        taken = [name for name in columns if name in batch]
        if taken:
            raise ValueError(f"the batch has a column {taken[0]!r} already, which the result has too; rename it")
        return {**found, **columns}

    def _column(self, batch: Mapping[str, Any]) -> str:
        wanted = IMAGE_COLUMNS if self._image is None else (self._image,)
        for name in wanted:
            if name in batch:
                return name
        raise ValueError(f"the batch has no column {' or '.join(wanted)}: it has {', '.join(batch)}; give image=COLUMN")

    def _samples(self, pictures: Sequence[Any]) -> tuple[NDArray[Any], list[int], NDArray[Any]]:
        """The samples of the pictures that can be read, which those are, and why the others are not."""
        reasons = np.full(len(pictures), "", dtype=object)
        arrays, good = [], []
        reader = next(iter(self._explainers.values()))
        for index, picture in enumerate(pictures):
            try:
                if picture is None:
                    raise ValueError("there is no picture")
                given = reader._samples(_coloured(picture)).array
                if len(given) != 1:
                    raise ValueError(f"expected one picture, found {len(given)}")
            except (ValueError, TypeError, OSError, MemoryError) as error:
                reasons[index] = " ".join(str(error).split()) or type(error).__name__
            else:
                arrays.append(given)
                good.append(index)
        return (np.concatenate(arrays) if arrays else np.empty(0)), good, reasons


def _coloured(picture: Any) -> Any:
    """Pixels in the three colours, where they are grey or have transparency, which is dropped as it is of files."""
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8:
        return picture
    if picture.ndim == 2:
        picture = picture[..., np.newaxis]
    if picture.ndim != 3 or picture.shape[2] not in (1, 2, 4):
        return picture
    return picture[..., :3] if picture.shape[2] == 4 else np.repeat(picture[..., :1], 3, axis=2)


def _device() -> str:
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return "cuda" if _monosplit.has_cuda and given not in ("", "-1", "NoDevFiles") else "cpu"


def _name(method: MethodSpec) -> str:
    return method if isinstance(method, str) else method[0]

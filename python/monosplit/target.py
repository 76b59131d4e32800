"""What is explained: a class, or a number that the network says about its input.

>>> import monosplit as ms
>>> model = ms.load(ms.assets.network())
>>> e = model.explain(ms.assets.photograph(), target=ms.target.Contrast("bengal", "abyssinian"))
>>> e.maps.shape
(1, 128, 128)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from .samples import is_torch, numpy_of

if TYPE_CHECKING:
    from . import _monosplit

KINDS = ("class", "contrast", "region", "cell", "sum", "mean", "norm", "similarity", "head")
"""The words that targets begin with when they are written down, as on the command line: ``"contrast:0,1"``."""


class TargetSpec:
    """A number that is explained. The command line writes it as :meth:`text` does."""

    def text(self, files: list[str]) -> str:
        """The target as the command line writes it. Arrays are written to files, whose paths are added to ``files``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Contrast(TargetSpec):
    """The score of a class less that of another: why this and not that. Numbers, names, ``"top"`` or ``"top2"``."""

    class_: int | str
    against: int | str

    def text(self, files: list[str]) -> str:
        return f"contrast:{_word(self.class_)},{_word(self.against)}"


@dataclass(frozen=True)
class Region(TargetSpec):
    """The map of a class summed over a mask: an array, the path of one or of a picture, or ``"auto"`` for where the network
    itself finds the class."""

    mask: Any = "auto"
    class_: int | str | None = None
    output: str | None = None

    def text(self, files: list[str]) -> str:
        return f"region:{_file(self.mask, files)}{_given(self.class_, 'class')}{_given(self.output, 'output')}"


@dataclass(frozen=True)
class Cell(TargetSpec):
    """One number of an output, or several added up, by their indices: numbers, slices, or ``best`` for the best cell of a
    class."""

    output: str
    index: Any = None
    best: int | str | None = None

    def text(self, files: list[str]) -> str:
        if self.best is not None:
            return f"cell:{self.output}[best={self.best}]"
        index = self.index if isinstance(self.index, tuple) else (self.index,)
        return f"cell:{self.output}[{','.join(_index(each) for each in index)}]"


@dataclass(frozen=True)
class Sum(TargetSpec):
    """The sum of all numbers of an output."""

    output: str

    def text(self, files: list[str]) -> str:
        return f"sum:{self.output}"


@dataclass(frozen=True)
class Mean(TargetSpec):
    """The mean of all numbers of an output."""

    output: str

    def text(self, files: list[str]) -> str:
        return f"mean:{self.output}"


@dataclass(frozen=True)
class Norm(TargetSpec):
    """The root of the sum of squares of an output."""

    output: str

    def text(self, files: list[str]) -> str:
        return f"norm:{self.output}"


@dataclass(frozen=True)
class Similarity(TargetSpec):
    """The cosine between an output and a reference: an array, or the path of one or of a picture."""

    reference: Any
    output: str | None = None

    def text(self, files: list[str]) -> str:
        return f"similarity:{_file(self.reference, files)}{_given(self.output, 'output')}"


@dataclass(frozen=True)
class Head(TargetSpec):
    """What a graph of your own makes of the outputs: the path of an ONNX file."""

    path: str | os.PathLike[str]

    def text(self, files: list[str]) -> str:
        return f"head:{os.fspath(self.path)}"


Target = Union[int, str, None, TargetSpec, Sequence[Union[int, str, None]], Any]
"""A class number or name for all samples, a list with one for each, none for the class with the highest score, one of the
targets of this module, or a target as the command line writes it."""


def is_head(target: Target) -> bool:
    """Whether a target is a head behind the network, and no class."""
    if isinstance(target, str):
        kind, colon, _ = target.partition(":")
        return bool(colon) and kind in KINDS
    return isinstance(target, TargetSpec)


def written(target: Target, files: list[str]) -> str:
    """A head as the command line writes it. Arrays are written to files, whose paths are added to ``files``."""
    return target.text(files) if isinstance(target, TargetSpec) else str(target)


def classes(target: Target, network: _monosplit.Network, count: int) -> list[int | None] | None:
    """The class number of each sample; none is the highest score."""
    if target is None:
        return None
    if is_head(target):
        raise ValueError("a target that is no class belongs to the explainer: model.explainer(method, target=…)")
    if hasattr(target, "tolist"):
        target = target.tolist()
    if isinstance(target, (list, tuple)):
        return [_class(each, network) for each in target]
    return [_class(target, network)] * count


def _class(target: object, network: _monosplit.Network) -> int | None:
    if target is None:
        return None
    if isinstance(target, str):
        return network.find_class(target)
    if isinstance(target, bool) or not hasattr(target, "__index__"):
        raise TypeError(
            f"a target is a class number, a class name, None or one of monosplit.target, found {target!r}"
        )
    number = int(target.__index__())
    known = network.classes
    if known is not None and -known <= number < 0:
        number += known
    if number < 0:
        raise ValueError(f"there is no class {number}: the network has {known} classes")
    return number


def _word(name: int | str) -> str:
    """A class in a list: a name with a comma stands in quotes."""
    return f'"{name}"' if isinstance(name, str) and "," in name else str(name)


def _given(value: object, key: str) -> str:
    return "" if value is None else f",{key}={value}"


def _index(index: Any) -> str:
    if not isinstance(index, slice):
        return str(index)
    if index.step not in (None, 1):
        raise ValueError("ranges of a target have no steps")
    return f"{'' if index.start is None else index.start}:{'' if index.stop is None else index.stop}"


def _file(value: Any, files: list[str]) -> str:
    """The path of a file that holds an array."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    array = numpy_of(value) if is_torch(value) else np.asarray(value)
    with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
        np.save(file, np.ascontiguousarray(array, dtype=np.float32))
    files.append(file.name)
    return file.name

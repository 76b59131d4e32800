"""What is explained: a class, or a number that the network says about its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from . import _monosplit

Target = Union[int, str, None, Sequence[Union[int, str, None]], Any]
"""A class number or name for all samples, a list with one for each, or none for the class with the highest score."""


def classes(target: Target, network: _monosplit.Network, count: int) -> list[int | None] | None:
    """The class number of each sample; none is the highest score."""
    if target is None:
        return None
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
        raise TypeError(f"a target is a class number, a class name or None, found {target!r}")
    number = int(target.__index__())
    known = network.classes
    if known is not None and -known <= number < 0:
        number += known
    if number < 0:
        raise ValueError(f"there is no class {number}: the network has {known} classes")
    return number

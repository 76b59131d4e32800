"""What there is to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from . import _monosplit


@dataclass(frozen=True)
class MethodInfo:
    """A method by which networks are explained."""

    name: str
    family: str
    summary: str
    citation: str
    options: dict[str, tuple[str, str]]
    """For each option its default and what it does."""


def methods() -> list[MethodInfo]:
    """All methods, family by family.

    >>> [m.name for m in methods()][:3]
    ['splitcam', 'splitcam-fused', 'splitgrad']
    """
    return [MethodInfo(**found) for found in _monosplit.methods()]

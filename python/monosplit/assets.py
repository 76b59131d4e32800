"""A small network and a photograph to try things with."""

from __future__ import annotations

from . import _monosplit


def network() -> bytes:
    """A classifier of 37 breeds of cats and dogs that reads pictures of 128×128 pixels, the bytes of an ONNX file."""
    return _monosplit.built_in_network()


def photograph() -> bytes:
    """A photograph of a cat, the bytes of a PNG file."""
    return _monosplit.built_in_photograph()

"""What a golden case is: one operator, its attributes and how each of its inputs is made."""

import zlib
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Input:
    """A tensor made from the case's own random stream, or one given by value."""

    shape: tuple = ()
    low: float = -2.0
    high: float = 2.0
    values: object = None
    dtype: object = np.float32
    initializer: bool = False

    def array(self, generator):
        if self.values is not None:
            return np.array(self.values, dtype=self.dtype)
        return generator.uniform(self.low, self.high, self.shape).astype(self.dtype)


@dataclass(frozen=True)
class Case:
    """One node. `inputs` holds `Input`s, or None where an optional input is left out."""

    op: str
    name: str
    opset: int
    inputs: list
    attributes: dict = field(default_factory=dict)
    outputs: int = 1

    @property
    def stem(self):
        return f"{self.op}-{self.name}-{self.opset}"

    def arrays(self):
        """Seeded by the case's own name, so that adding a case leaves the other files as they are."""
        generator = np.random.default_rng(zlib.crc32(self.stem.encode()))
        return [None if entry is None else entry.array(generator) for entry in self.inputs]


def x(*shape, low=-2.0, high=2.0):
    """A random float32 graph input."""
    return Input(shape, low, high)


def w(*shape, low=-1.0, high=1.0):
    """A random float32 initializer."""
    return Input(shape, low, high, initializer=True)


def given(values, dtype=np.float32):
    """A graph input with the given values."""
    return Input(values=values, dtype=dtype)


def constant(values, dtype=np.int64):
    """An initializer with the given values."""
    return Input(values=values, dtype=dtype, initializer=True)


def scalar(value):
    """A float32 initializer of rank 0."""
    return constant(value, np.float32)

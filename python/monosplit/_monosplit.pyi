"""The compiled part of the package."""

import os
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "__version__",
    "UnsupportedOperator",
    "Network",
    "CompiledExplainer",
    "Result",
    "methods",
    "metric_catalogue",
    "measure",
    "overlay",
    "encode_png",
    "decode_picture",
    "built_in_network",
    "built_in_photograph",
    "run_command",
]

__version__: str

class UnsupportedOperator(ValueError): ...

@final
class Network:
    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        input_shape: Sequence[int] | None = None,
        output: str | None = None,
        precision: str = "float32",
        threads: int = 0,
        device: str = "cpu",
        arch: str | None = None,
    ) -> Network: ...
    @staticmethod
    def read(
        data: bytes,
        *,
        name: str = "the network",
        input_shape: Sequence[int] | None = None,
        output: str | None = None,
        precision: str = "float32",
        threads: int = 0,
        device: str = "cpu",
    ) -> Network: ...
    def with_target(self, target: str) -> Network: ...
    def with_inputs(self, given: Sequence[tuple[str, NDArray[Any]]]) -> Network: ...
    def inputs(self) -> list[tuple[str, str]]: ...
    @property
    def target(self) -> str | None: ...
    def suggested_targets(self) -> dict[str, list[str]]: ...
    @property
    def sample_shape(self) -> list[int]: ...
    @property
    def input_name(self) -> str: ...
    @property
    def input_kind(self) -> str: ...
    @property
    def classes(self) -> int | None: ...
    def class_name(self, class_: int) -> str | None: ...
    def find_class(self, name: str) -> int: ...
    def layers(self) -> list[tuple[str, str, list[int | None], int]]: ...
    def ends(self) -> tuple[list[str], list[str]]: ...
    def default_layer(self, method: str) -> str | None: ...
    def prepare(self, rgb: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[np.uint8] | None]: ...
    def run(self, samples: NDArray[Any], batch: int = 16) -> NDArray[Any]: ...
    def explainer(
        self,
        method: str,
        options: Sequence[tuple[str, str]],
        *,
        layer: str | None = None,
        absolute: bool = False,
        pictures: bool = False,
        batch: int = 16,
    ) -> CompiledExplainer: ...
    def verify(
        self,
        sample: NDArray[Any] | None = None,
        pairs: int = 10,
        report: Callable[[float], object] | None = None,
    ) -> list[dict[str, str]]: ...
    def compile(
        self,
        methods: Sequence[tuple[str, Sequence[tuple[str, str]], str | None]],
        *,
        class_: int | None = None,
        top: bool = False,
        double: bool | None = None,
        half: bool = False,
    ) -> bytes: ...
    def facts(self) -> dict[str, Any]: ...

@final
class CompiledExplainer:
    @property
    def method(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def layer(self) -> str | None: ...
    @property
    def alpha(self) -> float | None: ...
    @property
    def options(self) -> dict[str, str]: ...
    def explain(
        self,
        samples: NDArray[Any],
        classes: Sequence[int | None] | None = None,
        report: Callable[[float], object] | None = None,
    ) -> Result: ...

@final
class Result:
    def scores(self) -> NDArray[Any]: ...
    def classes(self) -> list[int]: ...
    def class_names(self) -> list[str]: ...
    def probabilities(self) -> list[float | None]: ...
    def take_attributions(self) -> NDArray[Any]: ...
    def take_maps(self) -> NDArray[Any]: ...
    def exponents(self) -> list[int]: ...
    def diagnostics(self) -> dict[str, list[float]]: ...

def methods() -> list[dict[str, Any]]: ...
def metric_catalogue() -> list[dict[str, Any]]: ...
def measure(
    network: Network,
    metrics: Sequence[str],
    samples: NDArray[Any],
    classes: Sequence[int],
    maps: NDArray[Any],
    *,
    method: CompiledExplainer | None = None,
    function: Callable[[NDArray[Any], int], NDArray[Any]] | None = None,
    masks: NDArray[np.bool_] | None = None,
    seed: int = 0,
    report: Callable[[float], object] | None = None,
) -> list[list[tuple[float | None, str | None]]]: ...
def overlay(
    map: NDArray[Any],
    picture: NDArray[np.uint8] | None = None,
    *,
    method: str = "",
    layer: str = "",
    class_name: str = "",
    target: str = "",
    confidence: float | None = None,
    alpha: float | None = None,
    opacity: float = 0.5,
    single: bool = False,
) -> NDArray[np.uint8]: ...
def encode_png(rgb: NDArray[np.uint8]) -> bytes: ...
def decode_picture(bytes: bytes) -> NDArray[np.uint8]: ...
def run_command(arguments: Sequence[str]) -> int: ...
def built_in_network() -> bytes: ...
def built_in_photograph() -> bytes: ...

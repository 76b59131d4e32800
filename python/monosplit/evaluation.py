"""Metrics: how good maps are, of our methods and of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from . import _monosplit
from .progress import Progress, reporting
from .samples import Samples, is_torch, numpy_of, samples
from .target import Target, classes, is_head

if TYPE_CHECKING:
    import pandas

    from .model import MethodSpec, Model

Method = Union["MethodSpec", Callable[[NDArray[Any], int], Any]]
"""A method by name, or a function of images ``[N, C, H, W]`` and a class that returns maps ``[N, H, W]``."""


@dataclass(frozen=True)
class MetricInfo:
    """A metric by which maps are measured."""

    name: str
    family: str
    summary: str
    citation: str
    options: list[str]


def metrics() -> list[MetricInfo]:
    """All metrics.

    >>> "pixel-flipping" in [m.name for m in metrics()]
    True
    """
    return [MetricInfo(**found) for found in _monosplit.metric_catalogue()]


@dataclass(frozen=True)
class Row:
    """A value of a metric for the map of one sample."""

    method: str
    metric: str
    sample: int
    target: int | str
    """The class, or the target as it is written down where it is no class."""
    value: float | None
    reason: str | None
    """Why there is no value."""


@dataclass(frozen=True)
class Evaluation:
    """Values of metrics for all methods and samples."""

    rows: list[Row]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def means(self) -> dict[str, dict[str, float]]:
        """For each method the mean of each metric over the samples that have a value."""
        found: dict[str, dict[str, list[float]]] = {}
        for row in self.rows:
            values = found.setdefault(row.method, {}).setdefault(row.metric, [])
            if row.value is not None:
                values.append(row.value)
        return {
            method: {metric: float(np.mean(values)) if values else float("nan") for metric, values in of.items()}
            for method, of in found.items()
        }

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table of pandas."""
        import pandas

        return pandas.DataFrame([vars(row) for row in self.rows])

    def __repr__(self) -> str:
        means = self.means()
        names = list(dict.fromkeys(row.metric for row in self.rows))
        head = ["method", *names]
        body = [[method, *(f"{of.get(name, float('nan')):.4g}" for name in names)] for method, of in means.items()]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)) for line in [head, *body])


def evaluate(
    model: Model,
    methods: Mapping[str, Method] | Sequence[MethodSpec],
    data: Any,
    metrics: Sequence[str],
    *,
    target: Target = None,
    masks: Any = None,
    seed: int = 0,
    progress: Progress = False,
) -> Evaluation:
    """Measures methods on samples: :meth:`Model.evaluate`."""
    head = target if is_head(target) else None
    network = model._targeted("float32", head)
    given = samples(data, network, "float32")
    named = methods if isinstance(methods, Mapping) else {str(method): method for method in methods}
    if not named:
        raise ValueError("name at least one method")
    explained = _explained(network, given, target)
    planes = None if masks is None else _masks(masks)
    rows: list[Row] = []
    with reporting(progress, "evaluate") as report:
        for position, (title, method) in enumerate(named.items()):
            share = _part(report, position, len(named))
            measured = _measured(model, network, head, method, given, explained, list(metrics), planes, seed, share)
            for metric, values in zip(metrics, measured):
                for index, (value, reason) in enumerate(values):
                    rows.append(Row(title, metric, index, network.target or explained[index], value, reason))
    return Evaluation(rows)


def _explained(network: _monosplit.Network, given: Samples, target: Target) -> list[int]:
    """The score of each sample that is explained: that of its class, or the one that a head says."""
    if is_head(target):
        return network.explainer("gradient", []).explain(given.array).classes()
    scores = network.run(given.array)
    numbers = classes(target, network, len(given.array)) or [None] * len(given.array)
    if len(numbers) != len(given.array):
        raise ValueError(f"{len(numbers)} targets were given for {len(given.array)} samples")
    return [int(np.argmax(row)) if number is None else number for row, number in zip(scores, numbers)]


def _measured(
    model: Model,
    network: _monosplit.Network,
    head: Target,
    method: Method,
    given: Samples,
    explained: list[int],
    metrics: list[str],
    masks: NDArray[np.bool_] | None,
    seed: int,
    report: Callable[[float], object] | None,
) -> list[list[tuple[float | None, str | None]]]:
    common: dict[str, Any] = {"masks": masks, "seed": seed, "report": report}
    if callable(method):
        function = _function(method, given.array.shape[-2:])
        maps = np.concatenate([function(given.array[i : i + 1], number) for i, number in enumerate(explained)])
        return _monosplit.measure(network, metrics, given.array, explained, maps, function=function, **common)
    explainer = model.explainer(method, target=head, pictures=given.has_pictures)
    maps = explainer._compiled.explain(given.array, explained).take_maps()
    return _monosplit.measure(
        network, metrics, given.array, explained, maps, method=explainer._compiled, **common
    )


def _function(
    method: Callable[[NDArray[Any], int], Any], size: tuple[int, ...]
) -> Callable[[NDArray[Any], int], NDArray[Any]]:
    """A function that explains, with its result checked and made readable."""

    def explain(images: NDArray[Any], number: int) -> NDArray[Any]:
        found = method(images, number)
        array = numpy_of(found) if is_torch(found) else np.asarray(found)
        if array.ndim == 4 and array.shape[1] == 1:
            array = array[:, 0]
        if array.shape != (len(images), *size):
            raise ValueError(
                f"a method returns one map {size} for each image, found {array.shape} for {len(images)} images"
            )
        return np.ascontiguousarray(array, dtype=np.float32)

    return explain


def _masks(masks: Any) -> NDArray[np.bool_]:
    array = numpy_of(masks) if is_torch(masks) else np.asarray(masks)
    if array.ndim == 4 and array.shape[1] == 1:
        array = array[:, 0]
    return np.ascontiguousarray(array != 0)


def _part(
    report: Callable[[float], object] | None, position: int, count: int
) -> Callable[[float], object] | None:
    if report is None:
        return None
    return lambda share: report((position + share) / count)

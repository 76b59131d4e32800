"""What runs in the processes of an evaluation. Nothing here imports Ray: an actor is one of these classes."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import _monosplit

Config = dict[str, Any]
"""An experiment with all that says what it is run with; every process of a run gets the same."""

Rows = tuple[Any, ...]
"""Measured rows as columns, as the compiled part makes and takes them."""


def configured(
    experiment: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None,
    target: str | None,
    data: str | os.PathLike[str] | None,
    threads: int,
    dtype: str,
    device: str,
    simd: str | None,
) -> tuple[Config, Config]:
    """What the writer and the workers get. Workers need not have the experiment file: they get its text."""
    path = os.path.abspath(os.fspath(experiment))
    text = _monosplit.experiment_text(path, target)
    config = {
        "path": path,
        "text": None,
        "model": None if model is None else os.path.abspath(os.fspath(model)),
        "target": target,
        "data": None if data is None else os.path.abspath(os.fspath(data)),
        "threads": threads,
        "precision": dtype,
        "device": device,
        "simd": simd,
    }
    return {**config, "threads": 1, "device": "cpu", "simd": None}, {**config, "text": text, "target": None}


class Worker:
    """Measures. It has no store."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._prepared: int | None = None

    def open(self) -> tuple[str, str, str, str, tuple[int, int]]:
        """Opens the experiment: the version, the engine, its instructions, the hash of the network, the numbers of images."""
        self._sweep = _monosplit.SweepWorker(self._config)
        return self._sweep.facts()

    def inspect(self, on_validation: bool, start: int, stop: int) -> list[tuple[Any, ...]]:
        """Reads some images."""
        return self._sweep.inspect(on_validation, start, stop)

    def measure(self, stage: dict[str, Any], unit: tuple[Any, ...]) -> Rows:
        """The rows of a unit of a stage."""
        if self._prepared != stage["number"]:
            self._prepared = None
            self._sweep.prepare(stage["number"], stage["compared"], stage["ids"], stage["names"])
            self._prepared = stage["number"]
        return self._sweep.measure(unit)


class Writer:
    """Owns the store: the one process of a run that writes."""

    def __init__(self, config: Config, store: str) -> None:
        self._config, self._store = config, store
        self._busy = 0.0

    def open(self) -> tuple[str, tuple[int, int]]:
        """Opens the experiment and its store: the hash of the network, and the numbers of validation and test images."""
        self._sweep = _monosplit.SweepStore(self._config, self._store)
        return self._sweep.facts()

    def enter(self, validation: list[tuple[Any, ...]], test: list[tuple[Any, ...]]) -> None:
        """Enters the images that workers have read."""
        self._sweep.enter(validation, test)

    def remarks(self) -> list[str]:
        """What is to be said to people since this was last asked."""
        return self._sweep.remarks()

    def next_stage(self) -> dict[str, Any] | None:
        """Goes on to the next stage, with the number of its rows that are missing."""
        stage = self._sweep.next_stage()
        if stage is not None:
            stage["missing"] = self._sweep.missing()
        return stage

    def gaps(self, start: int, stop: int) -> list[tuple[Any, ...]]:
        """What is missing of some units of the stage."""
        begun = time.perf_counter()
        found = self._sweep.gaps(start, stop)
        self._busy += time.perf_counter() - begun
        return found

    def put(self, blocks: list[Rows]) -> int:
        """Stores blocks of rows; returns how many rows were new."""
        begun = time.perf_counter()
        new = sum(self._sweep.put(block) for block in blocks)
        self._busy += time.perf_counter() - begun
        return new

    def finish(self) -> tuple[str | None, float]:
        """A remark on engines that differ, and the seconds that went into finding gaps and storing rows."""
        return self._sweep.identity_remark(), self._busy


def unit_rows(unit: tuple[Any, ...]) -> int:
    """The number of missing rows of a unit."""
    return sum(len(metrics) for _, _, metrics in unit[2])

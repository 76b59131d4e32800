"""An experiment on a Ray cluster: workers measure, one writer stores, and this process hands out the work."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._monosplit import __version__
from .actors import Config, Rows, Writer, configured, unit_rows
from .meter import Meter
from .workers import Task, Workers, cause_of, lacking, reason

INSPECTED = 64
"""Images that a worker reads at a time before a run."""

UNITS = 64
"""Units of work that are asked for at a time."""

BLOCK_ROWS = 2_000
"""Rows are sent to the writer when there are this many, or when they are as old as :data:`BLOCK_SECONDS`."""

BLOCK_SECONDS = 1.0

WRITER_RESTARTS = 20
"""How often a writer that died is replaced."""


class EvaluationFailed(RuntimeError):
    """Rows could not be measured. What is finished is in the store; the message counts the others by reason."""


@dataclass
class EvaluationReport:
    """What a run has done."""

    store: str
    rows: int = 0
    """Rows that were measured."""
    new: int = 0
    """Rows that were not in the store before they were put there."""
    seconds: float = 0.0
    measuring: float = 0.0
    """Seconds in which rows were measured: those of starting and of reading images are not among them."""
    writing: float = 0.0
    """Seconds in which the writer looked for missing rows and stored measured ones."""
    worker_deaths: int = 0
    writer_deaths: int = 0
    instructions: Counter[str] = field(default_factory=Counter)
    """Engine and instructions of the workers."""

    @property
    def rate(self) -> float:
        """Rows per second while rows were measured."""
        return self.rows / self.measuring if self.measuring else 0.0


def evaluate(
    experiment: str | os.PathLike[str],
    *,
    store: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    target: str | None = None,
    data: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    address: str | None = None,
    threads: int | None = None,
    dtype: str = "float32",
    simd: str | None = None,
    progress: bool = True,
) -> EvaluationReport:
    """Runs an experiment file on a Ray cluster, as ``monosplit evaluate`` does on one machine, or goes on with it.

    ``store``, ``model``, ``target`` and ``data`` are those of the command line. Every machine has the network and the data
    set at the same paths; the store is on this machine. ``workers`` processes measure, by default one for each processor of
    the cluster but one, which is left for reading and writing. Each takes ``num_cpus`` processors and computes with
    ``threads`` threads (by default as many), or on a GPU with ``num_gpus``. ``address`` is that of the cluster
    (``"auto"`` for the one this machine belongs to); without it one is started here. ``simd`` makes all machines compute with
    the same vector instructions (``"avx2"``), so that values have the bits of one machine.

    A worker that dies is replaced; whatever else dies, the same call goes on where the run was.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("evaluations on a cluster need Ray: pip install monosplit[ray]") from None
    begun = time.monotonic()
    path = os.path.abspath(os.fspath(store) if store is not None else Path(experiment).with_suffix(".sqlite").name)
    configs = configured(
        experiment,
        model=model,
        target=target,
        data=data,
        threads=threads if threads is not None else max(1, int(num_cpus)),
        dtype=dtype,
        device="cuda" if num_gpus else "cpu",
        simd=simd,
    )
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    if not ray.is_initialized():
        # Without an address a cluster of its own, unless the environment names one: not whichever this machine may run.
        given = address if address is not None or "RAY_ADDRESS" in os.environ else "local"
        try:
            ray.init(address=given, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            # Ray raises whatever it likes, a bare exception where this machine is too busy for it.
            raise RuntimeError(f"Ray could not be started or reached: {reason(error)}") from error
        lack = lacking(options, ray.cluster_resources())
        if given == "local" and lack:
            # Another cluster may get more machines; this one will not.
            ray.shutdown()
            raise ValueError(f"no worker can start: {lack}")
    count = workers if workers is not None else max(1, int((ray.cluster_resources().get("CPU", 1) - 1) / max(num_cpus, 1e-9)))
    if count < 1:
        raise ValueError(f"workers must be at least 1, found {count}")
    report = EvaluationReport(path)
    run = _Run(configs, path, report, count, options, progress)
    try:
        while not run.attempt():
            report.writer_deaths += 1
            if report.writer_deaths > WRITER_RESTARTS:
                raise EvaluationFailed(f"{path}: the writer died {report.writer_deaths} times; run again to go on")
            run.say("the writer died; another takes its place")
    finally:
        run.stop()
        report.seconds = time.monotonic() - begun
    return report


class _Run:
    """A run: it is attempted again where the writer died, and goes on with what is stored."""

    def __init__(
        self, configs: tuple[Config, Config], store: str, report: EvaluationReport, count: int, options: dict[str, Any], progress: bool
    ) -> None:
        import ray

        self._ray = ray
        self._configs, self._store, self._report, self._progress = configs, store, report, progress
        self._count, self._options = count, options
        self._workers: Workers | None = None
        self._writer: Any = None
        self._facts: Any = None
        self._found: dict[tuple[bool, int], list[Any]] = {}
        """What workers found of images, by part and first index."""

    def say(self, line: str) -> None:
        """Tells people something."""
        if self._progress:
            print(line, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Ends all processes of the run."""
        if self._workers is not None:
            self._report.worker_deaths = self._workers.deaths
            self._workers.stop()
        if self._writer is not None:
            self._ray.kill(self._writer)

    def attempt(self) -> bool:
        """Runs all stages; whether the writer lived to the end."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # The store is a file of this machine, and so is the process that writes it.
        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": here}
        self._writer = self._ray.remote(Writer).options(**options).remote(self._configs[0], self._store)
        try:
            self._facts = self._ask(self._writer.open.remote())
            if self._workers is None:
                self._workers = Workers(self._configs[1], self._count, self._options, self._check, self.say)
            parts = [self._inspected(self._workers, on_validation) for on_validation in (True, False)]
            self._ask(self._writer.enter.remote(*parts))
            self._remarks()
            while (stage := self._ask(self._writer.next_stage.remote())) is not None:
                self._remarks()
                self._run_stage(self._workers, stage)
            self._remarks()
            remark, busy = self._ask(self._writer.finish.remote())
        except self._ray.exceptions.RayActorError as error:
            if getattr(error, "actor_init_failed", False):
                raise RuntimeError(f"the writer could not start: {reason(error)}") from None
            return False
        self._report.writing += busy
        if remark:
            self.say(remark)
        return True

    def _ask(self, ref: Any) -> Any:
        """An answer of the writer; its own errors in their own words."""
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None

    def _remarks(self) -> None:
        for remark in self._ask(self._writer.remarks.remote()):
            self.say(remark)

    def _check(self, facts: Any) -> None:
        """An error if a worker would measure something else than the others; a remark if its last digits may differ."""
        version, engine, instructions, network, images = facts
        if version != __version__:
            raise EvaluationFailed(f"a worker has version {version} of monosplit, this process has {__version__}; install one")
        if (network, tuple(images)) != (self._facts[0], tuple(self._facts[1])):
            raise EvaluationFailed(
                "a worker has another network or another data set at the paths of this machine; give all machines the same"
            )
        identity = f"{engine} {instructions}".strip()
        seen = self._report.instructions
        if seen and identity not in seen:
            self.say(
                f"workers compute with {identity} and with {', '.join(seen)}: last digits of their values may differ; "
                'simd="avx2" for example makes them equal'
            )
        seen[identity] += 1

    def _inspected(self, workers: Workers, on_validation: bool) -> list[Any]:
        """What workers found of all images of a part, in order."""
        total = self._facts[1][0 if on_validation else 1]
        starts = range(0, total, INSPECTED)
        failures: list[str] = []

        def task(start: int) -> Task:
            stop = min(start + INSPECTED, total)
            return Task(
                lambda actor: actor.inspect.remote(on_validation, start, stop),
                lambda found: self._found.__setitem__((on_validation, start), found),
                failures.append,
            )

        workers.run(task(start) for start in starts if (on_validation, start) not in self._found)
        if failures:
            raise EvaluationFailed(failures[0])
        return [one for start in starts for one in self._found[on_validation, start]]

    def _run_stage(self, workers: Workers, stage: dict[str, Any]) -> None:
        """Measures what is missing of a stage. Returns when all of it is stored."""
        begun = time.monotonic()
        meter = Meter(stage["name"], stage["rows"], stage["rows"] - stage["missing"], shown=self._progress)
        sink = _Sink(self._ray, self._writer)
        given = self._ray.put({key: stage[key] for key in ("number", "compared", "ids", "names")})

        def task(unit: tuple[Any, ...]) -> Task:
            rows = unit_rows(unit)

            def done(found: Rows) -> None:
                sink.add(found, rows)
                meter.advance(rows)

            return Task(lambda actor: actor.measure.remote(given, unit), done, lambda why: meter.fail(why, rows))

        units = self._units(stage["units"]) if stage["missing"] else iter(())
        # Times are measured by one worker while nobody else computes.
        workers.run((task(unit) for unit in units), alone=stage["kind"] == "timing", idle=sink.flush_old)
        self._report.new += sink.end()
        self._report.rows += meter.measured
        self._report.measuring += time.monotonic() - begun
        meter.end()
        if meter.failures:
            reasons = "; ".join(f"{rows} rows: {why}" for why, rows in meter.failures.most_common(5))
            raise EvaluationFailed(f"{stage['name']}: {reasons}. What is finished is kept; run again to go on")

    def _units(self, total: int) -> Iterator[tuple[Any, ...]]:
        """The units of which something is missing. The next are asked for while these are worked on."""
        coming = self._writer.gaps.remote(0, UNITS)
        for start in range(0, total, UNITS):
            units = self._ask(coming)
            coming = self._writer.gaps.remote(start + UNITS, start + 2 * UNITS)
            yield from units


class _Sink:
    """Rows on their way to the writer, in blocks."""

    def __init__(self, ray: Any, writer: Any) -> None:
        self._ray, self._writer = ray, writer
        self._blocks: list[Rows] = []
        self._rows, self._since = 0, 0.0
        self._sent: list[Any] = []
        self._new = 0

    def add(self, block: Rows, rows: int) -> None:
        """Takes the rows of a unit."""
        if not self._blocks:
            self._since = time.monotonic()
        self._blocks.append(block)
        self._rows += rows
        if self._rows >= BLOCK_ROWS:
            self._send()

    def flush_old(self) -> None:
        """Sends rows that have waited, and takes answers that are there: those of a writer that died are errors."""
        if self._blocks and time.monotonic() - self._since >= BLOCK_SECONDS:
            self._send()
        while self._sent and self._ray.wait(self._sent[:1], timeout=0)[0]:
            self._wait(len(self._sent) - 1)

    def end(self) -> int:
        """Waits until all rows are stored; returns how many were new."""
        if self._blocks:
            self._send()
        self._wait(0)
        return self._new

    def _send(self) -> None:
        self._sent.append(self._writer.put.remote(self._blocks))
        self._blocks, self._rows = [], 0
        # A writer that is behind holds the others up, instead of filling memory.
        self._wait(4)

    def _wait(self, left: int) -> None:
        while len(self._sent) > left:
            first = self._sent.pop(0)
            try:
                self._new += self._ray.get(first)
            except self._ray.exceptions.RayTaskError as error:
                raise cause_of(error) from None

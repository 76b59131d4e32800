"""Workers of a run on a Ray cluster, and the work they are given. A worker that dies is replaced, and its work is given again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .actors import Config, Worker

DEPTH = 2
"""Pieces of work that a worker has at once, so that it never waits for the next."""

DEATHS = 5
"""A piece of work during which this many workers died is given up, and so is a worker that died this often in a row."""


WAITING = 30.0
"""Seconds after which people are told why no worker has started."""


@dataclass
class Task:
    """A piece of work."""

    submit: Callable[[Any], Any]
    """Gives it to an actor; returns the reference of the result."""
    done: Callable[[Any], None]
    """Takes the result."""
    failed: Callable[[str], None]
    """Takes the reason why there is none."""
    deaths: int = 0


@dataclass
class Slot:
    """The place of one worker. The first reference of a new worker is that of its facts."""

    actor: Any = None
    starting: Any = None
    tasks: dict[Any, Task] = field(default_factory=dict)
    deaths: int = 0
    """How often in a row a worker died here before it had finished anything."""


class Workers:
    """The workers of a run."""

    def __init__(
        self, config: Config, count: int, options: dict[str, Any], check: Callable[[Any], None], say: Callable[[str], None]
    ) -> None:
        import ray

        self._ray = ray
        self._class = ray.remote(Worker)
        self._config = ray.put(config)
        self._options = options
        self._check = check
        self._say = say
        self.deaths = 0
        """Workers that died."""
        self._waiting: float | None = time.monotonic()
        """Since when no worker has started; none where one has, or where people were told."""
        self._slots = [Slot() for _ in range(count)]
        for slot in self._slots:
            self._start(slot)

    def run(self, tasks: Iterator[Task], *, alone: bool = False, idle: Callable[[], None] = lambda: None) -> None:
        """Does all tasks; with ``alone`` one at a time. ``idle`` is called every now and then."""
        again: deque[Task] = deque()
        exhausted = False
        for slot in self._slots:
            # Work of an attempt that was given up: whatever comes of it, it is given again.
            slot.tasks.clear()
        while True:
            for slot in self._slots:
                while slot.actor is not None and slot.starting is None and len(slot.tasks) < (1 if alone else DEPTH):
                    if alone and any(other.tasks for other in self._slots):
                        break
                    task = again.popleft() if again else (None if exhausted else next(tasks, None))
                    if task is None:
                        exhausted = True
                        break
                    slot.tasks[task.submit(slot.actor)] = task
            at = {ref: slot for slot in self._slots for ref in slot.tasks}
            if not at and exhausted and not again:
                return
            if all(slot.actor is None for slot in self._slots):
                raise RuntimeError("no worker is left: all died before they had finished anything; run again to go on")
            starting = {slot.starting: slot for slot in self._slots if slot.starting is not None}
            ready, _ = self._ray.wait([*at, *starting], num_returns=1, timeout=1.0)
            for ref in ready:
                if ref in starting:
                    self._started(starting[ref], ref)
                elif ref in at[ref].tasks:
                    self._finished(at[ref], ref, again)
            self._tell_waiting()
            idle()

    def stop(self) -> None:
        """Ends all workers."""
        for slot in self._slots:
            if slot.actor is not None:
                self._ray.kill(slot.actor)

    def _tell_waiting(self) -> None:
        """Says why no worker has started, once."""
        if self._waiting is None or time.monotonic() - self._waiting < WAITING:
            return
        self._waiting = None
        lack = lacking(self._options, self._ray.cluster_resources())
        self._say(f"no worker has started after {WAITING:.0f} s; waiting: {lack or 'others may use what the cluster has'}")

    def _start(self, slot: Slot) -> None:
        slot.actor = self._class.options(**self._options).remote(self._config)
        slot.starting = slot.actor.open.remote()

    def _started(self, slot: Slot, ref: Any) -> None:
        try:
            facts = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        except self._ray.exceptions.RayActorError as error:
            if getattr(error, "actor_init_failed", False):
                raise RuntimeError(f"a worker could not start: {reason(error)}") from None
            self._died(slot, deque())
            return
        slot.starting = self._waiting = None
        self._check(facts)

    def _finished(self, slot: Slot, ref: Any, again: deque[Task]) -> None:
        task = slot.tasks[ref]
        try:
            value = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            # The work itself failed; it would elsewhere.
            del slot.tasks[ref]
            task.failed(reason(error))
        except self._ray.exceptions.RayError:
            # The process or its machine is gone, or the result with it.
            task.deaths += 1
            self._died(slot, again)
        else:
            del slot.tasks[ref]
            slot.deaths = 0
            task.done(value)

    def _died(self, slot: Slot, again: deque[Task]) -> None:
        """Puts another worker in the place of one that died, and its work back."""
        self.deaths += 1
        slot.deaths += 1
        for task in slot.tasks.values():
            if task.deaths >= DEATHS:
                task.failed(f"{task.deaths} workers died while they measured it; is there enough memory?")
            else:
                again.append(task)
        slot.tasks.clear()
        self._ray.kill(slot.actor)
        slot.actor = slot.starting = None
        if slot.deaths < DEATHS:
            self._say("a worker died; another takes its place")
            self._start(slot)
        else:
            self._say(f"a worker died {DEATHS} times in a row and is not replaced")


def lacking(options: Mapping[str, Any], resources: Mapping[str, float]) -> str:
    """What a worker asks for that the whole cluster does not have; empty where there is nothing."""
    asked = {"CPU": ("processors", options["num_cpus"]), "GPU": ("GPUs", options["num_gpus"])}
    return "; ".join(
        f"a worker asks for {wanted:g} {name}, the cluster has {resources.get(key, 0):g}"
        for key, (name, wanted) in asked.items()
        if wanted > resources.get(key, 0)
    )


def cause_of(error: BaseException) -> Exception:
    """An error of another process as it was raised there."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else RuntimeError(reason(error))


def reason(error: BaseException) -> str:
    """The last line of an error of another process, which says what was wrong; the lines before are of the program."""
    cause = getattr(error, "cause", None)
    text = str(cause) if isinstance(cause, BaseException) and str(cause) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

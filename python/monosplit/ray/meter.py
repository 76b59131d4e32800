"""How far an evaluation is: rows done, rows per second, time left, and failures by reason."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

INTERVAL = 10.0
"""Seconds between two lines where standard error is no terminal."""


class Meter:
    """Counts the rows of one stage and says how far it is."""

    def __init__(
        self,
        name: str,
        total: int,
        done: int,
        *,
        shown: bool = True,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.total, self.done = name, total, done
        self.measured = 0
        """Rows that this run has measured."""
        self.failures: Counter[str] = Counter()
        """Rows without a result, by reason."""
        self._out = out or sys.stderr
        self._shown = shown
        self._clock = clock
        self._begun = clock()
        self._said = self._begun if not self._out.isatty() else float("-inf")

    def advance(self, rows: int) -> None:
        """Rows were measured."""
        self.done += rows
        self.measured += rows
        self._show()

    def fail(self, reason: str, rows: int) -> None:
        """Rows could not be measured."""
        self.failures[reason] += rows
        self._show()

    @property
    def rate(self) -> float:
        """Rows per second of this run."""
        return self.measured / max(self._clock() - self._begun, 1e-9)

    def line(self) -> str:
        """The state in one line."""
        parts = [f"{self.name}: {self.done:,} of {self.total:,} rows"]
        left = self.total - self.done - self.failures.total()
        if self.measured:
            parts.append(f"{self.rate:,.1f} rows/s")
            if left > 0:
                parts.append(f"{_duration(left / self.rate)} left")
        parts += [f"{rows:,} failed: {reason}" for reason, rows in self.failures.most_common(3)]
        return ", ".join(parts)

    def end(self) -> None:
        """Says the last state."""
        if self._shown:
            print(("\r\x1b[K" if self._out.isatty() else "") + self.line(), file=self._out, flush=True)

    def _show(self) -> None:
        terminal = self._out.isatty()
        now = self._clock()
        if self._shown and now - self._said >= (0.5 if terminal else INTERVAL):
            self._said = now
            print(f"\r\x1b[K{self.line()}" if terminal else self.line(), end="" if terminal else "\n", file=self._out, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"

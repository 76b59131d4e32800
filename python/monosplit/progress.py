"""Progress bars: tqdm's where it is installed, otherwise a line on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Union

Progress = Union[bool, Callable[[float], object]]
"""Whether to show a bar, or a function that is called with the share that is done."""


@contextmanager
def reporting(progress: Progress, title: str) -> Iterator[Callable[[float], object] | None]:
    """The function that a computation reports to, if any."""
    if callable(progress):
        yield progress
    elif not progress:
        yield None
    else:
        with _bar(title) as report:
            yield report


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float], object]]:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield lambda share: print(f"\r{title}: {share:4.0%}", end="\n" if share >= 1 else "", file=sys.stderr)
        return
    with tqdm(total=1000, desc=title, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}") as bar:
        yield lambda share: bar.update(round(1000 * share) - bar.n)

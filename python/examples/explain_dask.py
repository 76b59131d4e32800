"""Explains all pictures of a folder with Dask. Each process compiles once.

    python3 explain_dask.py PICTURES maps.npz
"""

import functools
import sys
from pathlib import Path

import dask
import numpy as np

import monosplit as ms

BATCH = 2


@functools.cache
def explain() -> ms.ray.Explain:
    return ms.ray.Explain(ms.assets.network(), ["splitcam"], threads=1)


@dask.delayed
def work(paths: list[str]) -> dict[str, np.ndarray]:
    return explain()({"path": paths})


def main() -> None:
    paths = [str(path) for path in sorted(Path(sys.argv[1]).glob("*.png"))]
    found = dask.compute(*(work(paths[at : at + BATCH]) for at in range(0, len(paths), BATCH)), num_workers=2)
    columns = {name: np.concatenate([np.asarray(one[name]) for one in found]) for name in found[0]}
    np.savez(sys.argv[2], **{name: column.astype(str) if column.dtype == object else column for name, column in columns.items()})


if __name__ == "__main__":
    main()

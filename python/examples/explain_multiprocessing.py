"""Explains all pictures of a folder on several processes of one machine.

    python3 explain_multiprocessing.py PICTURES maps.npz
"""

import multiprocessing
import sys
from pathlib import Path

import numpy as np

import monosplit as ms

BATCH = 2


def prepare() -> None:
    """Each process compiles once."""
    global explain
    explain = ms.ray.Explain(ms.assets.network(), ["splitcam"], threads=1)


def work(paths: list[str]) -> dict[str, np.ndarray]:
    return explain({"path": paths})


def main() -> None:
    paths = [str(path) for path in sorted(Path(sys.argv[1]).glob("*.png"))]
    batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
    # Started anew, not forked: threads do not live on in a fork.
    with multiprocessing.get_context("spawn").Pool(2, initializer=prepare) as pool:
        found = pool.map(work, batches)
    columns = {name: np.concatenate([np.asarray(one[name]) for one in found]) for name in found[0]}
    np.savez(sys.argv[2], **{name: column.astype(str) if column.dtype == object else column for name, column in columns.items()})


if __name__ == "__main__":
    main()

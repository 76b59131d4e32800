"""Explains all pictures of a folder with Daft. Each process compiles once.

    python3 explain_daft.py PICTURES maps.npz
"""

import sys

import daft
import numpy as np
from daft import DataType
from daft.functions import download

import monosplit as ms

COLUMNS = {
    "path": DataType.string(),
    "class": DataType.int64(),
    "class_name": DataType.string(),
    "probability": DataType.float64(),
    "reason": DataType.string(),
    "splitcam": DataType.tensor(DataType.float32()),
}


@daft.cls(max_concurrency=2)
class Explaining:
    def __init__(self) -> None:
        self.explain = ms.ray.Explain(ms.assets.network(), ["splitcam"], threads=1)

    @daft.method.batch(return_dtype=DataType.struct(COLUMNS), batch_size=16)
    def work(self, paths: daft.Series, files: daft.Series) -> list:
        found = self.explain({"path": paths.to_pylist(), "bytes": files.to_pylist()})
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def main() -> None:
    files = daft.from_glob_path(f"{sys.argv[1]}/*.png")
    read = download(daft.col("path"), on_error="null")
    explained = files.select(Explaining().work(daft.col("path"), read).alias("row")).select(daft.col("row").unnest())
    rows = explained.sort("path").to_pylist()
    columns = {name: np.array([row[name] for row in rows]) for name in COLUMNS if name != "reason"}
    np.savez(sys.argv[2], reason=np.array([row["reason"] or "" for row in rows]), **columns)


if __name__ == "__main__":
    main()

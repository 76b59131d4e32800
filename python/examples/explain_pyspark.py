"""Explains all pictures of a folder with Spark. Each partition compiles once.

    python3 explain_pyspark.py PICTURES maps.npz
"""

import os
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import monosplit as ms

SCHEMA = "path string, class bigint, class_name string, probability double, reason string, splitcam array<array<float>>"


def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    explain = ms.ray.Explain(ms.assets.network(), ["splitcam"], threads=1)
    for batch in batches:
        found = explain({"path": batch["path"].to_pylist(), "bytes": batch["content"].to_pylist()})
        maps = pa.array(found.pop("splitcam").tolist(), pa.list_(pa.list_(pa.float32())))
        yield pa.RecordBatch.from_pydict({**found, "splitcam": maps})


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.sql.execution.arrow.maxRecordsPerBatch", 16).getOrCreate()
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.png").load(sys.argv[1])
    rows = files.select("path", "content").mapInArrow(work, SCHEMA).orderBy("path").collect()
    columns = {name: np.array([row[name] for row in rows]) for name in ("path", "class", "class_name", "probability", "splitcam")}
    np.savez(sys.argv[2], reason=np.array([row["reason"] or "" for row in rows]), **columns)
    spark.stop()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Rows per second of an evaluation on a local Ray cluster, and the writer's share of the time.

    python3 benches/cluster.py [--workers 1,2] [--images 24] [--stored 1000] [--num-gpus 0.25]

Run it with a Python that has the package with its extra `ray`. The first table is of the small experiment of the tests; a worker
has one processor and one thread, and with `--num-gpus` that share of a GPU. The driver's share is the time that its process
computed, as a share of the time in which rows were measured. The second table is of the writer alone: rows of workers that cost
nothing, in blocks of different sizes, which is how fast rows can be stored on this disk whatever measures them.
"""

import argparse
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import ray

import monosplit as ms
from monosplit.ray.actors import Writer, configured

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))
import small_experiment  # noqa: E402


def evaluated(experiment, folder, counts, gpus):
    print("| workers | rows | rows/s | writer's share | driver's share | seconds in all |\n|--:|--:|--:|--:|--:|--:|")
    for count in counts:
        begun = time.process_time()
        report = ms.ray.evaluate(
            experiment, store=folder / f"{count}.sqlite", workers=count, num_gpus=gpus, progress=False
        )
        shares = [f"{seconds / report.measuring:.1%}" for seconds in (report.writing, time.process_time() - begun)]
        cells = [count, report.rows, f"{report.rate:.1f}", *shares, f"{report.seconds:.1f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def stored(experiment, folder):
    options = {"model": None, "target": None, "data": None, "threads": 1, "dtype": "float32", "device": "cpu", "simd": None}
    configs = configured(experiment, **options)
    worker = ms._monosplit.SweepWorker(configs[1])
    found = [worker.inspect(on_validation, 0, 1 << 30) for on_validation in (True, False)]
    for position, block in enumerate((10, 100, 1_000, 10_000)):
        store = folder / f"puts-{block}.sqlite"
        writer = Writer(configs[0], str(store))
        writer.open()
        writer.enter(*found)
        stage = writer.next_stage()
        units = writer.gaps(0, stage["units"])
        if position == 0:
            worker.prepare(stage["number"], stage["compared"], stage["ids"], stage["names"])
            rows = worker.measure(units[0])
            sizes = [len(pickle.dumps(each, protocol=5)) for each in (units[0], rows)]
            print(f"\na unit of {len(units[0][1])} images is {sizes[0]} bytes, its {len(rows[0])} rows are {sizes[1]} bytes")
            print("\n| rows in a message | rows stored | rows/s |\n|--:|--:|--:|")
        configurations, metrics = (np.array(ids) for ids in stage["ids"])
        images = np.unique([image[0] for unit in units for image in unit[1]])
        keys = np.stack([axis.ravel() for axis in np.meshgrid(configurations, images, metrics, indexing="ij")])
        values = np.random.default_rng(0).random(keys.shape[1])
        begun, new = time.perf_counter(), 0
        for at in range(0, keys.shape[1], block):
            part, of = keys[:, at : at + block].copy(), values[at : at + block]
            new += writer.put([(*part, of, of, [], rows[6])])
        took = time.perf_counter() - begun
        print(f"| {block:,} | {new:,} | {new / took:,.0f} |", flush=True)
    size = sum(path.stat().st_size for path in folder.glob("puts-10000.sqlite*"))
    print(f"\na row takes {size / new:.0f} bytes of the store, with its share of images and of what is written before it is merged")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--stored", type=int, default=1000, help="images whose rows are stored in the second table, 0 for none")
    parser.add_argument("--num-gpus", type=float, default=0, help="the share of a GPU that a worker has")
    arguments = parser.parse_args()
    counts = [int(word) for word in arguments.workers.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        experiment = small_experiment.make(folder / "experiment", arguments.images)
        ray.init("local", num_cpus=max(counts) + 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        evaluated(experiment, folder, counts, arguments.num_gpus)
        ray.shutdown()
        if arguments.stored:
            stored(small_experiment.make(folder / "many", arguments.stored), folder)


if __name__ == "__main__":
    main()

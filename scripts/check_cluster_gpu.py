#!/usr/bin/env python3
"""Explains pictures on a GPU that Ray has given an actor, and compares the maps with those of the processor.

    python3 scripts/check_cluster_gpu.py [--pictures 256] [--methods splitcam,gradcam,gradient]

Run it on a machine with an NVIDIA GPU, with a Python that has Ray and the package built with its feature `cuda`. One actor has
a whole GPU, then four have a quarter each. Every map must be that of the processor up to rounding, and the pictures that
cannot be read must be rows with a reason. With pyarrow the same is done by `map_batches` of Ray Data.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import ray

import monosplit as ms
from monosplit.ray.explain import _device

TYPICAL, WORST = 1e-5, 0.1
"""The norm of a map's difference to that of the processor, as a share of the map's norm: for half of the pictures, for all."""

BATCH = 32


def pictures(count):
    """Files of shifted parts of the photograph; every 50th is broken."""
    whole = ms._monosplit.decode_picture(ms.assets.photograph())
    found = []
    for number in range(count):
        top, left = (11 * number) % (whole.shape[0] - 128), (17 * number) % (whole.shape[1] - 128)
        cut = np.ascontiguousarray(whole[top : top + 128, left : left + 128])
        found.append(b"no picture" if number % 50 == 7 else bytes(ms._monosplit.encode_png(cut)))
    return found


class Explaining(ms.ray.Explain):
    """The class as it is, with what the process was given."""

    def device(self):
        return _device(), os.environ.get("CUDA_VISIBLE_DEVICES")


def check(name, expected, found, methods):
    """Ends the script where rows differ."""
    reasons = [[reason is None for reason in rows["reason"]] for rows in (expected, found)]
    classes = [list(rows["class"]) for rows in (expected, found)]
    if reasons[0] != reasons[1]:
        sys.exit(f"{name}: other pictures were read")
    same = np.mean([a == b for a, b in zip(*classes, strict=True)])
    for method in methods:
        maps = [np.stack([np.asarray(each, dtype=np.float64) for each in rows[method]]) for rows in (expected, found)]
        # A picture that is a close decision may have another class, and the map is then of that class.
        kept = [at for at, (a, b) in enumerate(zip(*classes, strict=True)) if a == b and a >= 0]
        one, other = (found[kept].reshape(len(kept), -1) for found in maps)
        apart = np.linalg.norm(one - other, axis=1) / np.maximum(np.linalg.norm(one, axis=1), 1e-30)
        print(f"  {method}: maps differ by {np.median(apart):.1e} (median), {apart.max():.1e} (most); "
              f"{same:.1%} of the classes are the same")
        if np.median(apart) > TYPICAL or apart.max() > WORST or same < 0.98:
            sys.exit(f"{name}: maps of {method} differ")


def joined(batches):
    return {key: [value for batch in batches for value in batch[key]] for key in batches[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--methods", default="splitcam,gradcam,gradient")
    arguments = parser.parse_args()
    methods, files = arguments.methods.split(","), pictures(arguments.pictures)
    batches = [{"bytes": files[at : at + BATCH]} for at in range(0, len(files), BATCH)]
    network = ms.assets.network()
    begun = time.perf_counter()
    on_processor = ms.ray.Explain(network, methods, device="cpu")
    expected = joined([on_processor(batch) for batch in batches])
    print(f"processor, one process: {len(files) / (time.perf_counter() - begun):.1f} pictures/s with compiling")
    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    print(f"the cluster has {ray.cluster_resources().get('GPU', 0):g} GPUs")
    for count in (1, 4):
        actors = [ray.remote(Explaining).options(num_gpus=1 / count, num_cpus=0.25).remote(network, methods) for _ in range(count)]
        devices = ray.get([actor.device.remote() for actor in actors])
        print(f"{count} actors with num_gpus={1 / count:g}: {devices[0]}")
        if any(device != "cuda" for device, _ in devices):
            sys.exit("an actor does not compute on its GPU")
        ray.get([actor.__call__.remote(batches[0]) for actor in actors])
        begun = time.perf_counter()
        found = ray.get([actors[at % count].__call__.remote(batch) for at, batch in enumerate(batches)])
        took = time.perf_counter() - begun
        print(f"  {len(files) / took:.1f} pictures/s, {len(methods)} methods each")
        check(f"{count} actors", expected, joined(found), methods)
        for actor in actors:
            ray.kill(actor)
        time.sleep(1)
    try:
        import pyarrow  # noqa: F401
        import ray.data as data
    except ImportError:
        print("Ray Data was not tried: pyarrow is not installed")
        return
    with tempfile.TemporaryDirectory() as scratch:
        for number, file in enumerate(files):
            (Path(scratch) / f"{number:04}.png").write_bytes(file)
        mapped = data.read_binary_files(scratch, include_paths=True).map_batches(
            ms.ray.Explain, fn_constructor_args=(network, methods), batch_size=BATCH,
            compute=data.ActorPoolStrategy(size=1), num_gpus=1,
        )
        rows = sorted(mapped.take_all(), key=lambda row: row["path"])
        check("Ray Data", expected, {key: [row[key] for row in rows] for key in rows[0]}, methods)
        print("Ray Data with num_gpus=1: the same")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times the Python package: against the Rust library (what the way through Python costs) and against Captum.

    python3 benches/python_package.py [--models FOLDER] [--repeats 15] [--threads 2] [--processor-time]

Run it with a Python that has the package installed from a release build (`pip install .`), torch, torchvision and captum. The row
against the Rust library needs the bench's worker (`cargo build --release -p monosplit-bench`); what Python adds to the compiled
call is measured without it, in one process, and so is the row against Captum. All competitors take turns; ratios are minimum over minimum and median over median. `--processor-time` compares the processor time
of one thread each, for a machine that does other work.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
from captum.attr import IntegratedGradients

import monosplit as ms
from comparison import environment, turns


def timed(call, clock):
    begun = clock()
    call()
    return clock() - begun


def as_the_worker(call, clock):
    """What the bench's worker times: by the clock one run of two, of processor time the mean of as many as take a second."""
    once = timed(call, clock)
    runs = 1 if clock is time.perf_counter else max(1, round(1 / max(once, 0.01)))
    return timed(lambda: [call() for _ in range(runs)], clock) / runs


def row(title, ours, peer):
    low, middle = min(ours) / min(peer), statistics.median(ours) / statistics.median(peer)
    print(f"| {title} | {low:.3f} | {middle:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default=environment.ROOT.parent / "shared/models")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true")
    arguments = parser.parse_args()
    clock = time.perf_counter
    if arguments.processor_time:
        clock, arguments.threads = time.process_time, 1
        # One thread of each library, whatever its default.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(arguments.threads)
    path = arguments.models / "resnet18-imagenet.onnx"
    model = ms.load(path, threads=arguments.threads)
    shape = (1, *model.input_shape)
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    layer = model.explain(x, "splitcam", target=0).layer
    images = environment.ROOT / "target/python-bench.npy"
    np.save(images, x)
    print("| work | ratio of minima | ratio of medians |\n|---|--:|--:|")
    load = ["method", path, f"input={images}", "name=splitcam", f"layers={layer}", "size=input", "attributions=yes", f"threads={arguments.threads}"]
    load.append(f"clock={'processor' if arguments.processor_time else 'wall'}")
    explain = lambda: model.explain(x, "splitcam", target=0)
    compiled = model.explainer("splitcam")._compiled
    alone = lambda: compiled.explain(x, [0])
    explain(), alone()
    package, library = [], []
    for _ in range(arguments.repeats):
        package.append(timed(explain, clock))
        library.append(timed(alone, clock))
    row("`model.explain`, SplitCAM of ResNet18, against the compiled call in it", package, library)
    if os.path.exists(environment.our_worker()[0]):
        with turns.Competitor(environment.our_worker(), load) as rust:
            rust.go()
            library, package = [], []
            for _ in range(arguments.repeats):
                library.append(rust.go())
                time.sleep(turns.PAUSE)
                package.append(as_the_worker(explain, clock))
        row("`model.explain`, SplitCAM of ResNet18, against the Rust library", package, library)
    else:
        print("no bench worker of a release build: the row against the Rust library is left out", file=sys.stderr)

    import torchvision

    torch.manual_seed(0)
    network, batch = torchvision.models.resnet18().eval(), torch.randn(1, 3, 224, 224)
    ours, theirs = ms.captum.IntegratedGradients(network), IntegratedGradients(network)
    ours.attribute(batch, target=3)
    theirs.attribute(batch, target=3)
    package, captum = [], []
    for _ in range(max(3, arguments.repeats // 3)):
        package.append(timed(lambda: ours.attribute(batch, target=3), clock))
        captum.append(timed(lambda: theirs.attribute(batch, target=3), clock))
    row("Integrated Gradients by the drop-in class, ResNet18, against Captum", package, captum)


if __name__ == "__main__":
    main()

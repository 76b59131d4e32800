#!/usr/bin/env python3
"""Explains small networks on odd numbers with every engine, and compares what comes out.

    python scripts/check_odd_numbers.py [--program target/release/monosplit] [--engines cpu cpu:f64 cuda cuda:f64 compiled]
        [--only NAME ...] [--jobs 4]

Needs NumPy and onnx, and onnxruntime for `compiled`. The pictures are constant, zeros, ones, 1e30, denormal, or have a NaN or an
infinity; weights are random, have a NaN or an infinity beside padding, or are those of 300 layers. For scores and each map there
is one line: for every engine `refused`, where the program said one line and ended with 2, or how far its numbers are from those of
the first engine in double precision, in parts of the largest, or `NaN` where numbers that are not finite are written. Ends with 1 where one engine refuses what
another computes, where a map is not finite while the scores are, or where numbers differ by more than `--tolerance`.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

REPOSITORY = Path(__file__).resolve().parent.parent
METHODS = {
    "splitcam": ["--method", "splitcam"],
    "gradient": ["--method", "gradient"],
    "splitgrad": ["--method", "splitgrad"],
    "splitlrp": ["--method", "splitlrp"],
    "alpha 0": ["--method", "splitcam", "--alpha", "0"],
}


class Network:
    """A chain of nodes."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.last, self.channels = [], [], "x", 3

    def weight(self, *shape):
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        values = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name, values

    def node(self, op, *more, **attributes):
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.last, *more], [name], name, **attributes))
        self.last = name
        return self

    def conv(self, channels, change=None):
        name, values = self.weight(channels, self.channels, 3, 3)
        if change:
            changed = values.copy()
            change(changed)
            self.weights[-1].CopyFrom(numpy_helper.from_array(changed, name))
        self.channels = channels
        return self.node("Conv", name, self.weight(channels)[0], pads=[1, 1, 1, 1])

    def relu(self):
        return self.node("Relu")

    def pool(self):
        return self.node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])

    def scores(self, classes=5):
        self.node("GlobalAveragePool").node("Flatten")
        return self.node("Gemm", self.weight(classes, self.channels)[0], transB=1)

    def save(self, path, side):
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "odd",
            [value("x", TensorProto.FLOAT, ["N", 3, side, side])],
            [value(self.last, TensorProto.FLOAT, ["N", 5])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def corner(number):
    """Puts a number where padding is multiplied by it."""

    def change(weight):
        weight[0, 0, 0, 0] = number

    return change


def small(change=None):
    return Network(3).conv(8).relu().pool().conv(8, change).relu().conv(8).relu().scores()


def strided():
    return Network(4).conv(6).relu().pool().conv(6).relu().pool().conv(6).relu().scores()


def deep(layers):
    network = Network(5)
    for _ in range(layers):
        network.conv(4).relu()
    return network.scores()


def pictures(side):
    random = np.random.default_rng(9)
    noise = random.standard_normal((1, 3, side, side)).astype(np.float32)

    def with_one(number):
        changed = noise.copy()
        changed[0, 1, side // 2, side // 3] = number
        return changed

    constant = np.ones_like(noise)
    constant *= np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
    return {
        "noise": noise,
        "constant": constant,
        "zeros": np.zeros_like(noise),
        "1e30": np.full_like(noise, 1e30),
        "denormal": np.full_like(noise, 1e-40),
        "one NaN": with_one(np.nan),
        "one infinity": with_one(np.inf),
    }


def cases():
    """Name, network, side, names of pictures."""
    few = ["noise", "constant"]
    return [
        ("small", small(), 24, list(pictures(4))),
        ("two pools", strided(), 32, ["noise", "constant", "zeros", "1e30"]),
        ("NaN weight", small(corner(np.nan)), 24, few),
        ("infinite weight", small(corner(np.inf)), 24, few),
        ("weight of 1e30", small(corner(np.float32(1e30))), 24, few),
        ("300 layers", deep(300), 8, few),
    ]


class Refused(Exception):
    pass


def run(options, *arguments):
    command = [str(options.program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    if done.returncode == 2 and "panicked" not in done.stderr:
        raise Refused(done.stderr.strip().splitlines()[-1])
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")


def numbers(options, folder, engine, network, picture, what):
    """The scores or a map."""
    out = folder / f"{abs(hash((engine, str(network), str(picture), what)))}.npy"
    kind, _, precision = engine.partition(":")
    if kind == "compiled":
        import onnxruntime

        compiled = out.with_suffix(".onnx")
        run(options, "compile", network, "--out", compiled, *METHODS[what])
        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(str(compiled), providers=["CPUExecutionProvider"])
        outputs = session.run(None, {session.get_inputs()[0].name: np.load(picture)})
        # Operators refuse no picture: that the scores are not finite says it.
        if not np.isfinite(outputs[0]).all():
            raise Refused("the scores of the compiled file are not finite")
        # Scores, the class, and the map, which alone has rows and columns.
        return np.asarray(next(value for value in outputs if value.ndim == 3), np.float64)
    how = ["--engine", kind, "--threads", "2"] + (["--precision", precision] if precision else [])
    if what == "scores":
        run(options, "run", network, picture, "--raw", out, *how)
    else:
        run(options, "explain", network, picture, "--raw", out, "--out", out.with_suffix(""), *METHODS[what], *how)
    return np.load(out).astype(np.float64)


def compared(options, folder, network, picture, what):
    """For every engine what came out, and whether all agree."""
    found = {}
    for engine in options.engines:
        # A compiled file is operators, which refuse no picture.
        if engine == "compiled" and (what == "scores" or not np.isfinite(np.load(picture)).all()):
            continue
        try:
            found[engine] = numbers(options, folder, engine, network, picture, what)
        except Refused as refused:
            found[engine] = str(refused)
    doubles = [engine for engine in found if engine.endswith(":f64")] or list(found)
    reference = found[doubles[0]]
    said, good = [], True
    for engine, values in found.items():
        if isinstance(values, str):
            said.append(f"{engine}: refused")
            good &= isinstance(reference, str)
        elif isinstance(reference, str):
            said.append(f"{engine}: {'finite' if np.isfinite(values).all() else 'NaN'}")
            good = False
        else:
            same = np.array_equal(np.isfinite(values), np.isfinite(reference))
            both = np.isfinite(values) & np.isfinite(reference)
            # A power of two of its own is printed beside numbers that single precision cannot hold.
            one, other = (array[both] / (np.abs(array[both]).max(initial=0) or 1) for array in (values, reference))
            away = np.abs(one - other).max(initial=0)
            good &= same and away <= options.tolerance
            said.append(f"{engine}: {away:.1e}" + ("" if np.isfinite(values).all() else " NaN") + ("" if same else " elsewhere"))
    refusals = {values for values in found.values() if isinstance(values, str)}
    return said, good, refusals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPOSITORY / "target/release/monosplit", type=Path)
    parser.add_argument("--engines", nargs="+", default=["cpu", "cpu:f64", "compiled"])
    parser.add_argument("--only", nargs="+", help="the networks of these names")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.program = options.program.resolve()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="odd-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        folder, jobs = Path(folder), []
        for name, network, side, names in cases():
            if options.only and name not in options.only:
                continue
            path = folder / f"{name.replace(' ', '-')}.onnx"
            network.save(path, side)
            for picture in names:
                file = folder / f"{name}-{picture}.npy".replace(" ", "-")
                np.save(file, pictures(side)[picture])
                for what in ["scores", *METHODS]:
                    jobs.append((name, picture, what, pool.submit(compared, options, folder, path, file, what)))
        for name, picture, what, job in jobs:
            said, good, refusals = job.result()
            failed += not good
            mark = "" if good else "  DIFFERENT"
            print(f"{name:16} {picture:13} {what:10} {'; '.join(said)}{mark}", flush=True)
            for refusal in sorted(refusals):
                print(f"    {refusal[:200]}")
    print(f"{len(jobs)} compared, {failed} different")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

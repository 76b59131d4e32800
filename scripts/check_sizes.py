#!/usr/bin/env python3
"""Puts absurd numbers into small networks, and checks that every command ends with an answer in bounded memory.

    python scripts/check_sizes.py [--program target/release/monosplit] [--count 500] [--seed 1] [--jobs 2] [--keep FOLDER]

Needs onnx and a shell with `ulimit`. Attributes, constants of whole numbers and lengths of inputs of the tests' networks become
2^62, −1, 2^35 and the like, one or two in a network, which is then inspected, verified, compiled and split with 8 GB of address
space. Ends with 1 if a command ends by a signal, by a panic, or with an exit code other than 0, 1 and 2. What takes longer than
--seconds is counted and named, and is no failure: a network may compute for long.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

REPOSITORY = Path(__file__).resolve().parent.parent
NUMBERS = [2**63 - 1, -(2**63), 2**62, 2**40, 2**35, 2**31, 2**32 + 1, 2**30, 2**24, 2**20, 2**17, 10**6, 0, -1, -(2**31)]
LARGEST_FILE = 40_000
# In KiB, as `ulimit -v` takes it.
ADDRESS_SPACE = 8 << 20


def places(model):
    """What can be changed: for each number a function that sets it, and its name."""
    for node in model.graph.node:
        for attribute in node.attribute:
            name = f"{attribute.name} of {node.op_type}"
            if attribute.type == AttributeProto.INT:
                yield lambda number, a=attribute: setattr(a, "i", number), name
            for index in range(len(attribute.ints)):
                yield lambda number, a=attribute, i=index: a.ints.__setitem__(i, number), name
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.INT64:
                yield lambda number, t=attribute.t: change_element(t, number), name
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT64:
            yield lambda number, t=tensor: change_element(t, number), tensor.name
    for value in model.graph.input:
        for axis, length in enumerate(value.type.tensor_type.shape.dim):
            yield lambda number, d=length: setattr(d, "dim_value", number), f"axis {axis} of {value.name}"


def change_element(tensor, number):
    array = numpy_helper.to_array(tensor).copy()
    if array.size:
        array.reshape(-1)[abs(number) % array.size] = number
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def tried(options, path):
    """What was wrong, and what took too long."""
    wrong, slow = [], []
    out = [str(path.with_suffix(f".{end}")) for end in ("compiled", "g", "h")]
    lines = [["inspect"], ["verify"], ["compile", "--out", out[0]], ["split", "--out-g", out[1], "--out-h", out[2]]]
    for command, *rest in lines:
        words = [str(options.program), command, str(path), *rest]
        shell = ["sh", "-c", f'ulimit -v {ADDRESS_SPACE}; exec "$0" "$@"', *words]
        try:
            done = subprocess.run(
                shell, capture_output=True, text=True, errors="replace", timeout=options.seconds, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            slow.append(command)
            continue
        if done.returncode not in (0, 1, 2) or "panicked" in done.stderr or "please report" in done.stderr:
            wrong.append(f"{command}: {done.returncode}: {done.stderr.strip()[:200]!r}")
    for file in out:
        Path(file).unlink(missing_ok=True)
    return wrong, slow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPOSITORY / "target/release/monosplit", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a folder for the networks that failed")
    options = parser.parse_args()
    options.program = options.program.resolve()
    files = sorted(path for path in REPOSITORY.glob("crates/**/fixtures/**/*.onnx") if path.stat().st_size < LARGEST_FILE)
    chance = random.Random(options.seed)
    failed = slow_ones = 0
    with tempfile.TemporaryDirectory(prefix="sizes-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        jobs = []
        for number in range(options.count):
            source = chance.choice(files)
            model = onnx.load(source, load_external_data=False)
            found, changed = list(places(model)), []
            for _ in range(chance.choice([1, 1, 1, 2]) if found else 0):
                change, name = chance.choice(found)
                value = chance.choice(NUMBERS)
                change(value)
                changed.append(f"{name} = {value}")
            path = Path(folder) / f"{options.seed}-{number}.onnx"
            path.write_bytes(model.SerializeToString())
            jobs.append((path, source, changed, pool.submit(tried, options, path)))
        for path, source, changed, job in jobs:
            wrong, slow = job.result()
            failed += bool(wrong)
            slow_ones += bool(slow)
            if wrong or slow:
                print(f"{source.relative_to(REPOSITORY)}, {'; '.join(changed)}: {'; '.join(wrong) or 'slow: ' + ', '.join(slow)}", flush=True)
            if wrong and options.keep:
                options.keep.mkdir(exist_ok=True)
                (options.keep / path.name).write_bytes(path.read_bytes())
    print(f"{options.count} networks, {failed} failed, {slow_ones} took longer than {options.seconds:g} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

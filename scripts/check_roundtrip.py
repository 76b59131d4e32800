"""Checks import → export against ONNX Runtime: the file written by monosplit must give the original's numbers.

    python scripts/check_roundtrip.py MODEL.onnx... [--opset N] [--batch N] [--checker]

Needs onnx, onnxruntime and numpy. Prints one line per model with the largest error relative to the largest value of
each output, and exits with 1 if any model differs or cannot be read.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

TOLERANCE = 1e-4
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
         "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def golden_feeds(model):
    """The inputs an operator case carries with it, by name."""
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name.startswith("__x")}
    return {name[2:]: array for name, array in arrays.items()}


def feeds_for(runtime, model, batch):
    golden = golden_feeds(model)
    random = np.random.default_rng(0)
    feeds = {}
    for value in runtime.get_inputs():
        if value.name in golden:
            feeds[value.name] = golden[value.name]
            continue
        shape = [n if isinstance(n, int) and n > 0 else batch for n in value.shape]
        kind = TYPES[value.type]
        array = random.standard_normal(shape) if np.issubdtype(kind, np.floating) else random.integers(0, 2, shape)
        feeds[value.name] = array.astype(kind)
    return feeds


def widened(runtime, feeds):
    """The same values in the types the written file declares (one kind of integer, one of real number)."""
    types = {value.name: TYPES[value.type] for value in runtime.get_inputs()}
    return {name: array.astype(types[name]) for name, array in feeds.items()}


def difference(expected, found):
    expected, found = np.asarray(expected, np.float64), np.asarray(found, np.float64)
    if expected.shape != found.shape:
        return f"shapes {expected.shape} and {found.shape}"
    if expected.size == 0:
        return 0.0
    if not np.array_equal(np.isfinite(expected), np.isfinite(found)):
        return "values that are not finite"
    finite = np.isfinite(expected)
    largest = max(np.abs(expected[finite]).max(initial=0), 1e-6)
    return float(np.abs(expected[finite] - found[finite]).max(initial=0) / largest)


def check(path, arguments, written):
    command = [arguments.roundtrip, str(path), str(written)]
    if arguments.opset:
        command += ["--opset", str(arguments.opset)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip()
    if arguments.checker:
        onnx.checker.check_model(str(written), full_check=True)
    before, after = session(path), session(written)
    feeds = feeds_for(before, onnx.load(str(path), load_external_data=False), arguments.batch)
    expected, found = before.run(None, feeds), after.run(None, widened(after, feeds))
    worst = [difference(e, f) for e, f in zip(expected, found, strict=True)]
    failed = [w for w in worst if isinstance(w, str)]
    return failed[0] if failed else max(worst, default=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--opset", type=int)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--checker", action="store_true", help="run the ONNX checker on what is written")
    parser.add_argument("--roundtrip", default="target/debug/examples/roundtrip", help="the example's binary")
    arguments = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        written = pathlib.Path(folder) / "written.onnx"
        for path in arguments.models:
            try:
                outcome = check(path, arguments, written)
            except Exception as error:  # one broken model should not hide the others
                outcome = f"{type(error).__name__}: {error}".splitlines()[0]
            good = isinstance(outcome, float) and outcome <= TOLERANCE
            failures += not good
            print(f"{'ok  ' if good else 'FAIL'} {path.name}: {outcome if isinstance(outcome, str) else f'{outcome:.1e}'}", flush=True)
    print(f"{len(arguments.models) - failures} of {len(arguments.models)} agree")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()

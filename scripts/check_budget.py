#!/usr/bin/env python3
"""Runs networks under memory budgets below and above what they need: refused in one line, computed in smaller batches, or whole.

    python scripts/check_budget.py [--program target/release/monosplit] [--engine cpu]

Needs NumPy and onnx. For an engine on a card the budget is that of its memory. Each line says what was run, what must come of it
and what did. What is computed must be what the same engine computes without a budget. Ends with 1 where anything is different.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

REPOSITORY = Path(__file__).resolve().parent.parent


def save(path, nodes, weights, sample, classes):
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["N", *sample])]
    outputs = [value(nodes[-1].output[0], TensorProto.FLOAT, ["N", classes])]
    graph = helper.make_graph(nodes, "budget", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def large_values(path):
    """Samples of 12 KiB that become values of 16 MiB."""
    random = np.random.default_rng(1)
    kernel = random.standard_normal((64, 3, 3, 3)).astype(np.float32)
    scores = random.standard_normal((5, 64)).astype(np.float32)
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["large"], "enlarge", mode="nearest"),
        helper.make_node("Conv", ["large", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["b"], "sigmoid"),
        helper.make_node("Softmax", ["b"], ["c"], "softmax", axis=1),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], "mean"),
        helper.make_node("Flatten", ["d"], ["e"], "flat"),
        helper.make_node("Gemm", ["e", "s"], ["y"], "scores", transB=1),
    ]
    arrays = {"w": kernel, "s": scores, "scales": np.array([1, 1, 8, 8], np.float32)}
    save(path, nodes, [numpy_helper.from_array(array, name) for name, array in arrays.items()], [3, 32, 32], 5)
    return np.random.default_rng(2).standard_normal((16, 3, 32, 32)).astype(np.float32)


def large_weights(path):
    """A matrix of 256 MiB."""
    random = np.random.default_rng(3)
    matrix = random.standard_normal((8192, 8192), dtype=np.float32) / 90
    scores = random.standard_normal((5, 8192)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], "wide", transB=1),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Gemm", ["b", "s"], ["y"], "scores", transB=1),
    ]
    weights = [numpy_helper.from_array(matrix, "w"), numpy_helper.from_array(scores, "s")]
    save(path, nodes, weights, [8192], 5)
    return np.random.default_rng(4).standard_normal((4, 8192)).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPOSITORY / "target/release/monosplit", type=Path)
    parser.add_argument("--engine", default="cpu")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="budget-") as folder:
        folder = Path(folder)
        plans = [
            ("values", large_values, [("8M", False), ("14M", False), ("100M", True), ("1G", True), (None, True)]),
            ("weights", large_weights, [("30M", False), ("200M", False), ("2G", True), (None, True)]),
        ]
        for name, make, budgets in plans:
            network, batch, out = folder / f"{name}.onnx", folder / f"{name}.npy", folder / "out.npy"
            np.save(batch, make(network))

            def run(budget, command="run"):
                out.unlink(missing_ok=True)
                limit = ["--memory", budget] if budget else []
                end = ["--raw", out, "--batch", "16", "--engine", options.engine, *limit]
                done = subprocess.run(
                    [str(options.program.resolve()), command, network, batch, *end],
                    capture_output=True, text=True, errors="replace", cwd=folder,
                )
                return done.returncode, done.stderr.strip()

            code, error = run(None)
            assert code == 0, error
            whole = np.load(out)
            for budget, fits in budgets:
                code, error = run(budget)
                lines = error.splitlines()
                if fits:
                    away = np.abs(np.load(out) - whole).max() / np.abs(whole).max() if code == 0 else np.nan
                    good, said = away <= 1e-5, f"exit code {code}, {away:.0e} from the whole batch"
                else:
                    good = code == 2 and "memory budget" in error and "panicked" not in error and not out.exists()
                    said = f"exit code {code}"
                failed += not good
                wanted = "computed" if fits else "refused"
                print(f"{options.engine} {name:8} {budget or 'default':8} {wanted:9} {said}{'' if good else '  WRONG'}")
                for line in lines[:3]:
                    print(f"    {line[:300]}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
